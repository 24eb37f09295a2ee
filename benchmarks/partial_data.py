"""The 200 small heads of the partial-data protocol against a loop of modules, in one run on one thread.

    python benchmarks/partial_data.py            # minutes
    python benchmarks/partial_data.py --small    # seconds: few narrow heads, to see that it runs

Sato et al. (2019), section 4.1, on CIFAR-10: 150 heads 4096-128-128-10 on 10 images each, and 50 on 100 images each,
on frozen features. Features are given, not extracted, and random; the pool that heads draw their rows from holds
5,000 of them, not 50,000, to keep memory at 82 MB: a head reads its own rows alone, so the pool's size does not enter.

`train_heads` trains all of them. The loop (an `nn.Sequential` and `torch.optim.SGD` for each head) trains the first
few, as many as the column "timed" says, and its time is scaled up to all: its heads are trained one after another at
equal cost. The two take turns; what is printed are medians, in CPU seconds of this process, so that other work on the
machine disturbs them less, and their ratio.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from clearance.heads import MLP, HeadStack, HeadTraining, train_heads

CLASSES = 10
TARGET = 5.0
SETTINGS = HeadTraining(steps=200, lr=0.03, momentum=0.9, nesterov=True)


@dataclass(frozen=True)
class Protocol:
    """Heads for each number of images, of which the loop trains `timed`; width, pool and repeats."""

    heads: dict[int, int]
    timed: int
    width: int
    pool: int
    repeats: int


FULL = Protocol(heads={10: 150, 100: 50}, timed=10, width=4096, pool=5000, repeats=3)
SMALL = Protocol(heads={10: 6, 100: 4}, timed=2, width=256, pool=500, repeats=1)


def loop_of_modules(stack: HeadStack, features: Tensor, labels: Tensor, rows: Tensor) -> None:
    """The first heads of the stack, as they are usually trained; one for each of `rows`."""
    for k, own in enumerate(rows):
        head = copy.deepcopy(stack[k]).requires_grad_(requires_grad=True)
        optimizer = torch.optim.SGD(
            head.parameters(), lr=SETTINGS.lr, momentum=SETTINGS.momentum, nesterov=SETTINGS.nesterov
        )
        images, names = features[own], labels[own]
        for _ in range(SETTINGS.steps):
            optimizer.zero_grad()
            cross_entropy(head(images), names).backward()
            optimizer.step()


def seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def measure(protocol: Protocol, samples: int, heads: int) -> tuple[float, float]:
    """Median seconds for all heads on `samples` images: the loop, scaled up, and train_heads."""
    generator = torch.Generator().manual_seed(samples)
    features = torch.randn(protocol.pool, protocol.width, generator=generator) * (128 / protocol.width) ** 0.5
    labels = torch.arange(protocol.pool) % CLASSES
    rows = torch.stack([_balanced(samples, protocol.pool, generator) for _ in range(heads)])
    stack = HeadStack.initialised(MLP((protocol.width, 128, 128, CLASSES)), heads, generator)
    loop_of_modules(stack, features, labels, rows[:1])  # the first use of torch.optim is slow
    loops, ours = [], []
    for _ in range(protocol.repeats):
        timed = seconds(lambda: loop_of_modules(stack, features, labels, rows[: protocol.timed]))
        loops.append(timed * heads / protocol.timed)
        ours.append(seconds(lambda: train_heads(stack, features, labels, SETTINGS, rows=rows)))
    return statistics.median(loops), statistics.median(ours)


def _balanced(samples: int, pool: int, generator: torch.Generator) -> Tensor:
    """Row numbers of as many images of every class; class c has the rows c, c + 10, c + 20 ..."""
    each = [
        torch.randperm(pool // CLASSES, generator=generator)[: samples // CLASSES] for _ in range(CLASSES)
    ]
    return torch.cat([CLASSES * chosen + c for c, chosen in enumerate(each)])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="few narrow heads: only to see that it runs")
    protocol = SMALL if parser.parse_args(arguments).small else FULL
    torch.set_num_threads(1)
    print(f"heads {protocol.width}-128-128-10, {SETTINGS.steps} full-batch steps, one thread, ", end="")
    print(f"medians of {protocol.repeats}")
    print(f"{'images':>6} {'heads':>6} {'timed':>6} {'loop s':>8} {'ours s':>8} {'ratio':>6}  target")
    totals = [0.0, 0.0]
    for samples, heads in protocol.heads.items():
        loop, ours = measure(protocol, samples, heads)
        totals = [totals[0] + loop, totals[1] + ours]
        sizes = f"{samples:>6} {heads:>6} {protocol.timed:>6}"
        print(f"{sizes} {loop:8.2f} {ours:8.2f} {loop / ours:6.1f}", flush=True)
    loop, ours = totals
    sizes = f"{'both':>6} {sum(protocol.heads.values()):>6} {'':>6}"
    print(f"{sizes} {loop:8.2f} {ours:8.2f} {loop / ours:6.1f}  >= {TARGET:g}")


if __name__ == "__main__":
    main()
