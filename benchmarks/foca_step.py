"""What a step of FOCA costs compared with a plain step: ratios of medians, measured in one run on one thread.

    python benchmarks/foca_step.py            # minutes
    python benchmarks/foca_step.py --small    # seconds: a smaller network, to see that it runs

The setting is that of Sato et al. (2019) on CIFAR-10: 4,096 features, heads 4096-128-128-10, 10 images of each
class a head, 32 steps, batches of 128. Algorithm 1 needs a step on the extractor and, every u-th step, one forward pass
without gradient of the images that the heads are trained on: that and a plain step are the bound. (A plain step moves
the head too, which FOCA's does not, so a ratio just below 1 is possible.)
With K heads these are K times as many images. Heads from a pool of recent features, a deviation from the paper, need
no such pass. Plain steps and forward passes are written here in plain PyTorch; the parts of a case take turns.

Seconds are CPU seconds of this process, so that other work on the machine disturbs them less. Images are noise: what
is on them does not matter to the time.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from timing import seconds
from torch import nn
from torch.nn.functional import cross_entropy

from clearance.data import ImageSet
from clearance.heads import MLP, GradientHeads, HeadTraining, RidgeHeads
from clearance.models import Classifier, convnet32, small_cnn
from clearance.training import FOCA

CLASSES = 10
GRADIENT = GradientHeads(HeadTraining(steps=32, lr=0.1, momentum=0.9, weight_decay=1e-2))
RIDGE = RidgeHeads()


@dataclass(frozen=True)
class Sizes:
    """What is timed: the extractor and its image side, a batch, and how often."""

    extractor: Callable[[int, int], nn.Sequential]
    side: int
    width: int
    batch: int
    repeats: int


FULL = Sizes(convnet32, side=32, width=4096, batch=128, repeats=5)
SMALL = Sizes(small_cnn, side=8, width=1024, batch=32, repeats=2)


@dataclass(frozen=True)
class Case:
    """FOCA's settings, whether the head is one linear layer, and which ratio must not be passed, if any."""

    name: str
    way: FOCA
    linear: bool = False
    to_bound: float | None = None
    to_plain: float | None = None


CASES = (
    Case("u=1", FOCA(weak_heads=GRADIENT), to_bound=1.05),
    Case("u=8", FOCA(weak_heads=GRADIENT, reuse=8), to_plain=1.08),
    Case("u=1, pool of 1024", FOCA(weak_heads=GRADIENT, pool=1024), to_plain=1.08),
    Case("K=16 ridge", FOCA(weak_heads=RIDGE, heads=16), linear=True, to_bound=1.08),
    Case("K=16 ridge, pool of 1024", FOCA(weak_heads=RIDGE, heads=16, pool=1024), linear=True),
)


class Bench:
    """One case: a plain step, the heads' forward pass, and a cycle of FOCA's steps, on equal networks."""

    def __init__(self, case: Case, sizes: Sizes) -> None:
        self.case, self.way = case, case.way
        torch.manual_seed(0)
        per_class = max(20, sizes.batch // CLASSES + 1)
        labels = torch.arange(CLASSES).repeat(per_class)
        pixels = torch.rand(len(labels), 3, sizes.side, sizes.side)
        self.data = ImageSet(pixels, labels, tuple(map(str, range(CLASSES))))
        self.images, self.labels = pixels[: sizes.batch], labels[: sizes.batch]
        rows = torch.arange(self.way.heads * self.way.per_class * CLASSES) % len(labels)
        self.head_images = pixels[rows]
        self.model, self.optimizer = self._network(sizes)
        foca_model, foca_optimizer = self._network(sizes)
        generators = self.way.generators(seed=0)
        self.training = self.way.start(foca_model, self.data, foca_optimizer, generators)

    def _network(self, sizes: Sizes) -> tuple[Classifier, torch.optim.Optimizer]:
        head = nn.Linear(sizes.width, CLASSES) if self.case.linear else MLP((sizes.width, 128, 128, CLASSES))
        model = Classifier(sizes.extractor(3, sizes.side), head)
        return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def plain_step(self) -> None:
        """A step as it is usually written."""
        self.optimizer.zero_grad()
        cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()

    @torch.no_grad()
    def forward(self) -> None:
        """The forward pass of the images that all heads of one draw are trained on."""
        self.model.features(self.head_images)

    def foca_steps(self) -> None:
        """As many steps as one draw of heads serves."""
        for _ in range(self.way.reuse):
            self.training.step(self.images, self.labels)

    def seconds_a_step(self, repeats: int) -> tuple[float, float, float]:
        """Medians of a plain step, the share of the heads' forward pass in a step, and a step of FOCA."""
        pool, reuse = self.way.pool, self.way.reuse
        for _ in range(1 + pool // len(self.images)):  # warms up, and fills the pool
            self.foca_steps()
        self.plain_step()
        found = []
        for _ in range(repeats):
            forward = 0.0 if pool else seconds(self.forward) / reuse
            found.append((seconds(self.plain_step), forward, seconds(self.foca_steps) / reuse))
        plain, forward, foca = (statistics.median(column) for column in zip(*found, strict=True))
        return plain, forward, foca


def target(case: Case) -> str:
    if case.to_bound is not None:
        return f"/bound <= {case.to_bound:g}"
    return "" if case.to_plain is None else f"/plain <= {case.to_plain:g}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a smaller network: only to see that it runs")
    sizes = SMALL if parser.parse_args(arguments).small else FULL
    torch.set_num_threads(1)
    print(f"{sizes.extractor.__name__}, {sizes.width} features, batch {sizes.batch}, one thread, ", end="")
    print(f"medians of {sizes.repeats}")
    print(f"{'case':<24} {'plain ms':>9} {'forward':>9} {'foca ms':>9} {'/plain':>7} {'/bound':>7}  target")
    for case in CASES:
        plain, forward, foca = Bench(case, sizes).seconds_a_step(sizes.repeats)
        times = f"{1e3 * plain:9.1f} {1e3 * forward:9.1f} {1e3 * foca:9.1f}"
        ratios = f"{foca / plain:7.3f} {foca / (plain + forward):7.3f}"
        print(f"{case.name:<24} {times} {ratios}  {target(case)}", flush=True)


if __name__ == "__main__":
    main()
