"""K heads at once against a loop of modules: ratios of medians, measured in one run on one thread.

    python benchmarks/train_heads.py

Each line times Clearance's `train_heads` and a plain loop of `nn.Sequential` with `torch.optim.SGD` on the
same data, in turn, and prints the ratio of the medians. Seconds are CPU seconds of this process, so that other work
on the machine disturbs them less. Both end at the same weights (tested in tests/heads).
"""

import copy
import statistics
from dataclasses import dataclass

import torch
from timing import seconds
from torch.nn.functional import cross_entropy

from clearance.heads import MLP, HeadStack, HeadTraining, train_heads


@dataclass(frozen=True)
class Case:
    """K heads D-128-128-10 on n samples each, S steps; `target` is the ratio that must be reached, if any."""

    heads: int
    samples: int
    steps: int
    width: int = 4096
    target: float | None = None


CASES = (
    Case(heads=20, samples=10, steps=100, target=6.0),
    Case(heads=1, samples=100, steps=32, target=5.0),
    Case(heads=1, samples=10, steps=32),
    Case(heads=1, samples=10, steps=32, width=1024),
    Case(heads=50, samples=100, steps=32, width=1024),
)
REPEATS = 9


def loop_of_modules(
    stack: HeadStack, features: torch.Tensor, labels: torch.Tensor, training: HeadTraining
) -> None:
    """The same training as it is usually written."""
    for k in range(len(stack)):
        head = copy.deepcopy(stack[k]).requires_grad_(requires_grad=True)
        optimizer = torch.optim.SGD(
            head.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
        )
        for _ in range(training.steps):
            optimizer.zero_grad()
            cross_entropy(head(features[k]), labels[k]).backward()
            optimizer.step()


def measure(case: Case) -> tuple[float, float]:
    """Median seconds of the loop and of train_heads, timed in turn."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(case.heads, case.samples, case.width, generator=generator)
    labels = (torch.arange(case.samples) % 10).expand(case.heads, -1).contiguous()
    stack = HeadStack.initialised(MLP((case.width, 128, 128, 10)), case.heads, generator)
    training = HeadTraining(steps=case.steps, lr=0.001, momentum=0.9, weight_decay=1e-2)
    loops, ours = [], []
    for repeat in range(REPEATS + 1):
        pair = (
            seconds(lambda: loop_of_modules(stack, features, labels, training)),
            seconds(lambda: train_heads(stack, features, labels, training)),
        )
        if repeat > 0:  # the first round warms up
            loops.append(pair[0])
            ours.append(pair[1])
    return statistics.median(loops), statistics.median(ours)


def main() -> None:
    torch.set_num_threads(1)
    print("head D-128-128-10, one thread, medians of", REPEATS)
    print(f"{'K':>3} {'n':>4} {'S':>4} {'D':>5} {'loop ms':>9} {'ours ms':>9} {'ratio':>6}  target")
    for case in CASES:
        loop, ours = measure(case)
        target = "" if case.target is None else f">= {case.target:g}"
        sizes = f"{case.heads:>3} {case.samples:>4} {case.steps:>4} {case.width:>5}"
        print(f"{sizes} {1e3 * loop:9.1f} {1e3 * ours:9.1f} {loop / ours:6.1f}  {target}")


if __name__ == "__main__":
    main()
