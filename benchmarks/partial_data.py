"""The heads of the partial-data protocol against a loop of modules, in one run on one thread.

    python benchmarks/partial_data.py            # minutes
    python benchmarks/partial_data.py --small    # seconds: few narrow heads, to see that it runs

Sato et al. (2019), section 4.1, on CIFAR-10: heads 4096-128-128-10 on frozen features, 150 of them on 10 images each,
50 on 100, 15 on 1,000, 5 on 10,000 and one on 50,000, 221 in all. The paper leaves their training open; here it is
that of the audit `co_adaptation`: 200 steps on all images at once up to 128, above that batches of 128, 20 passes,
3,000 steps at most. Features are given, not extracted, and random; the pool that heads draw their rows from holds
5,000 of them, or as many as the largest set needs: a head reads its own rows alone.

`train_heads` trains all heads of a size at once. The loop (an `nn.Sequential` and `torch.optim.SGD` for each head)
trains the first few, as many as the column "timed" says, and its time is scaled up to all: its heads are trained one
after another at equal cost. Of long trainings both sides are timed over their first steps, as the column "of" says:
the time of no step at all, plus that of a step times their number. The two take turns; what is printed are medians,
in CPU seconds of this process, so that other work on the machine disturbs them less, and their ratio.

The target is for the 200 heads on 10 and 100 images, where a loop spends its time on moving weights that hardly any
data touch. Batches of 128 for heads on more images leave little to save: their time is that of the same products.
"""

import argparse
import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from timing import seconds
from torch import Tensor
from torch.nn.functional import cross_entropy

from clearance.audits._heads import head_training
from clearance.heads import MLP, HeadStack, HeadTraining, train_heads

CLASSES = 10
FEW = 100  # images up to which the target holds
TARGET = 5.0
LR = 0.03


@dataclass(frozen=True)
class Size:
    """Heads on as many images, how many of them the loop trains, and the steps that are timed (None: all)."""

    images: int
    heads: int
    timed: int
    steps: int | None = None


@dataclass(frozen=True)
class Protocol:
    """The sizes, the features' width, how many of them the pool has at least, and how often all is timed."""

    sizes: tuple[Size, ...]
    width: int
    pool: int
    repeats: int


FULL = Protocol(
    sizes=(
        Size(images=10, heads=150, timed=10),
        Size(images=100, heads=50, timed=10),
        Size(images=1000, heads=15, timed=2, steps=40),
        Size(images=10_000, heads=5, timed=2, steps=40),
        Size(images=50_000, heads=1, timed=1, steps=80),
    ),
    width=4096,
    pool=5000,
    repeats=3,
)
SMALL = Protocol(
    sizes=(
        Size(images=10, heads=6, timed=2),
        Size(images=100, heads=4, timed=2),
        Size(images=500, heads=2, timed=1, steps=10),
        Size(images=1000, heads=1, timed=1, steps=10),
    ),
    width=256,
    pool=500,
    repeats=1,
)


def loop_of_modules(
    stack: HeadStack, features: Tensor, labels: Tensor, rows: Tensor, training: HeadTraining
) -> None:
    """The first heads of the stack, as they are usually trained; one for each of `rows`."""
    for k, own in enumerate(rows):
        head = copy.deepcopy(stack[k]).requires_grad_(requires_grad=True)
        optimizer = torch.optim.SGD(
            head.parameters(), lr=training.lr, momentum=training.momentum, nesterov=training.nesterov
        )
        images, names = features[own], labels[own]
        for batch in _batches(len(own), training):
            optimizer.zero_grad()
            chosen = (images, names) if batch is None else (images[batch], names[batch])
            cross_entropy(head(chosen[0]), chosen[1]).backward()
            optimizer.step()


def _batches(images: int, training: HeadTraining) -> list[Tensor | None]:
    """The rows of each step; None for all of them."""
    size = training.batch_size
    if size is None or size >= images:
        return [None] * training.steps
    batches: list[Tensor | None] = []
    while len(batches) < training.steps:
        batches += torch.randperm(images).split(size)
    return batches[: training.steps]


def whole_time(train: Callable[[HeadTraining], object], training: HeadTraining, steps: int | None) -> float:
    """Seconds of a training; where `steps` are timed, those of no step plus those of a step times their number."""
    if steps is None:
        return seconds(lambda: train(training))
    start = seconds(lambda: train(replace(training, steps=0)))
    begun = seconds(lambda: train(replace(training, steps=steps)))
    return start + (begun - start) * training.steps / steps


def measure(protocol: Protocol, size: Size) -> tuple[float, float]:
    """Median seconds for all heads of a size: the loop, scaled up, and train_heads."""
    generator = torch.Generator().manual_seed(size.images)
    pool = max(protocol.pool, size.images)
    features = torch.randn(pool, protocol.width, generator=generator).mul_((128 / protocol.width) ** 0.5)
    labels = torch.arange(pool) % CLASSES
    rows = torch.stack([_balanced(size.images, pool, generator) for _ in range(size.heads)])
    stack = HeadStack.initialised(MLP((protocol.width, 128, 128, CLASSES)), size.heads, generator)
    training = head_training(size.images, LR)

    def loop(training: HeadTraining) -> None:
        loop_of_modules(stack, features, labels, rows[: size.timed], training)

    def ours(training: HeadTraining) -> None:
        train_heads(stack, features, labels, training, rows=rows, generator=generator)

    loop(replace(training, steps=2))  # the first use of torch.optim is slow
    loops, all_at_once = [], []
    for _ in range(protocol.repeats):
        loops.append(whole_time(loop, training, size.steps) * size.heads / size.timed)
        all_at_once.append(whole_time(ours, training, size.steps))
    return statistics.median(loops), statistics.median(all_at_once)


def _balanced(images: int, pool: int, generator: torch.Generator) -> Tensor:
    """Row numbers of as many images of every class; class c has the rows c, c + 10, c + 20 ..."""
    each = [torch.randperm(pool // CLASSES, generator=generator)[: images // CLASSES] for _ in range(CLASSES)]
    return torch.cat([CLASSES * chosen + c for c, chosen in enumerate(each)])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="few narrow heads: only to see that it runs")
    protocol = SMALL if parser.parse_args(arguments).small else FULL
    torch.set_num_threads(1)
    print(f"heads {protocol.width}-128-128-10, one thread, medians of {protocol.repeats}")
    columns = f"{'images':>7} {'heads':>6} {'timed':>6} {'steps':>6} {'of':>6}"
    print(f"{columns} {'loop s':>9} {'ours s':>9} {'ratio':>6}  target")
    found = {}
    for size in protocol.sizes:
        loop, ours = found[size] = measure(protocol, size)
        steps = head_training(size.images, LR).steps
        timed = f"{size.timed:>6} {size.steps or steps:>6} {steps:>6}"
        print(f"{size.images:>7} {size.heads:>6} {timed} {_times(loop, ours)}", flush=True)
    few = [size for size in found if size.images <= FEW]
    for name, sizes, target in ((f"to {FEW}", few, f"  >= {TARGET:g}"), ("all", list(found), "")):
        loop, ours = (sum(found[size][side] for size in sizes) for side in (0, 1))
        print(f"{name:>7} {sum(s.heads for s in sizes):>6} {'':>20} {_times(loop, ours)}{target}")


def _times(loop: float, ours: float) -> str:
    return f"{loop:9.2f} {ours:9.2f} {loop / ours:6.2f}"


if __name__ == "__main__":
    main()
