"""What the Gaussian-mixture loss and its companions cost: ratios of medians, in one run.

    python benchmarks/gaussian_mixture.py                # minutes; one thread on a CPU, or the GPU where there is one
    python benchmarks/gaussian_mixture.py --only head    # one group: head, network, companions, memory
    python benchmarks/gaussian_mixture.py --small        # to see that it runs

Head and loss, forward and backward, at B x K x D = 256 x 1000 x 2048: beside a linear head with cross-entropy, and
beside the broadcast of public ports, (x - mu)^2 weighted over a B x K x D tensor. That needs gigabytes, so it is timed
and its memory taken at a batch of 8 and scaled by 32: its cost is proportional to the batch, ours nearly so, and small
batches spare the broadcast the worst of its memory traffic. Companions stand beside pytorch-metric-learning, the center
loss beside the usual port (all pairwise distances, masked), which that library lacks.

Ways take turns within a round and a ratio is one of medians over rounds, in CPU seconds of this process (on a GPU:
clock seconds, synchronised). Features are noise.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as others
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor, nn

from clearance.heads import GaussianMixture
from clearance.models import Classifier
from clearance.objectives import (
    CenterLoss,
    ContrastiveLoss,
    CrossEntropyLoss,
    GaussianMixtureLoss,
    LargeMarginSoftmaxLoss,
    Objective,
    TripletLoss,
)
from clearance.tensors import Outputs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("identity", "diagonal", "class_diagonal")


@dataclass(frozen=True)
class Sizes:
    """Samples, classes, width, samples of the broadcast, and rounds."""

    batch: int = 256
    classes: int = 1000
    width: int = 2048
    broadcast: int = 8
    images: int = 16
    rounds: int = 7


def seconds(action: Callable[[], object]) -> float:
    """Of one call."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        return time.perf_counter() - began
    began = time.process_time()
    action()
    return time.process_time() - began


def medians(actions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Of each action, all of them in turn in every round; one round warms up."""
    rows = [[seconds(action) for action in actions] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


class Way:
    """Head and loss on a batch of features, forward and backward."""

    def __init__(self, head: nn.Module, objective: Objective, batch: int, sizes: Sizes) -> None:
        stream = torch.Generator().manual_seed(0)
        self.head, self.objective = head.to(DEVICE), objective.to(DEVICE)
        features = torch.randn(batch, sizes.width, generator=stream).to(DEVICE)
        self.features = features.requires_grad_()
        self.labels = (torch.arange(batch) % sizes.classes).to(DEVICE)

    def loss(self) -> Tensor:
        """Of the batch."""
        outputs = Outputs(self.features, self.head(self.features), self.head)
        return self.objective(outputs, self.labels).total

    def __call__(self) -> None:
        """Forward and backward."""
        for tensor in (self.features, *self.head.parameters()):
            tensor.grad = None
        self.loss().backward()


class Broadcast(Way):
    """The same loss with every difference written out, as ports do."""

    def loss(self) -> Tensor:
        """The same number, by another way."""
        head = self.head
        assert isinstance(head, GaussianMixture)
        squares = (self.features[:, None] - head.means[None]).square()
        if head.raw_log_variance is not None:
            squares = squares * head.log_variance().neg().exp()[None]
        d = 0.5 * squares.sum(dim=2)
        hot = F.one_hot(self.labels, head.classes)
        scores = -head.half_log_determinant() - d * (1 + 0.1 * hot)
        own = (hot * d).sum(dim=1) + head.half_log_determinant()[self.labels]
        return F.cross_entropy(scores, self.labels) + 0.1 * own.mean()


def line(name: str, ratio: float, milliseconds: float, target: str = "") -> None:
    print(f"{name:<60} {milliseconds:10.2f} {ratio:8.2f}  {target}", flush=True)


def mixture_way(kind: str, batch: int, sizes: Sizes, way: type[Way] = Way) -> Way:
    head = GaussianMixture(sizes.width, sizes.classes, kind)  # type: ignore[arg-type]
    return way(head, GaussianMixtureLoss(), batch, sizes)


def head_and_loss(sizes: Sizes) -> None:
    """Over a linear head with cross-entropy; and the broadcast over ours."""
    linear = Way(nn.Linear(sizes.width, sizes.classes), CrossEntropyLoss(), sizes.batch, sizes)
    ours = [mixture_way(kind, sizes.batch, sizes) for kind in KINDS]
    found = medians([linear, *ours], sizes.rounds)
    line("linear head + cross-entropy", 1.0, 1e3 * found[0])
    for kind, took, target in zip(KINDS, found[1:], ("<= 1.5", "<= 2.5", "<= 2.5"), strict=True):
        line(f"mixture + L-GM, {kind}", took / found[0], 1e3 * took, target)
    for kind, took in zip(KINDS, found[1:], strict=True):
        wide = mixture_way(kind, sizes.broadcast, sizes, Broadcast)
        scaled = medians([wide], max(2, sizes.rounds // 2))[0] * sizes.batch / sizes.broadcast
        line(
            f"  broadcast, {kind}, over it (scaled from {sizes.broadcast})",
            scaled / took,
            1e3 * scaled,
            ">= 30",
        )


def memory(sizes: Sizes) -> None:
    """Peak memory of head and loss; the broadcast's share that grows with the batch, scaled."""
    for kind in KINDS:
        ours = peak_bytes(mixture_way(kind, sizes.batch, sizes))
        pair = [
            peak_bytes(mixture_way(kind, b, sizes, Broadcast))
            for b in (sizes.broadcast // 2, sizes.broadcast)
        ]
        slope = (pair[1] - pair[0]) / (sizes.broadcast - sizes.broadcast // 2)
        wide = pair[1] + slope * (sizes.batch - sizes.broadcast)
        line(f"broadcast's memory over ours, {kind} (MiB ours)", wide / ours, ours / 2**20, ">= 30")


def peak_bytes(way: Way) -> int:
    """How far memory rises above what is there before a call."""
    way()
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=activities) as profile:
        way()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def thirteen_layers(head: nn.Module) -> Classifier:
    """The CIFAR-100 network of Wan et al. as released: 13 convolutions, batch normalisation, global pooling."""
    widths = [96] * 5 + [192] * 4 + [384] * 4
    layers: list[nn.Module] = []
    for place, (width_in, width) in enumerate(zip([3, *widths[:-1]], widths, strict=True)):
        if place in (5, 9):
            layers.append(nn.MaxPool2d(2))
        layers += [nn.Conv2d(width_in, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return Classifier(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), head, 0.5, 0.5)


def network(sizes: Sizes) -> None:
    """A training step of the 13-layer network: over the same with softmax."""
    images = torch.rand(sizes.images, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    labels = (torch.arange(sizes.images) % 100).to(DEVICE)
    ways: dict[str, tuple[nn.Module, Objective]] = {
        "13-layer network, softmax": (nn.Linear(384, 100), CrossEntropyLoss()),
        "13-layer network, L-GM, identity": (GaussianMixture(384, 100), GaussianMixtureLoss()),
        "13-layer network, L-GM, diagonal": (GaussianMixture(384, 100, "diagonal"), GaussianMixtureLoss()),
    }

    def step_of(head: nn.Module, objective: Objective) -> Callable[[], None]:
        model = thirteen_layers(head).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

        def step() -> None:
            optimizer.zero_grad()
            outputs = model.outputs(images)
            objective(outputs, labels).total.backward()
            optimizer.step()
            objective.after_step(outputs, labels)

        return step

    found = medians([step_of(*way) for way in ways.values()], max(2, sizes.rounds // 2))
    for name, took in zip(ways, found, strict=True):
        line(name, took / found[0], 1e3 * took, "" if took == found[0] else "<= 1.05")


class PortedCenter(nn.Module):
    """Center loss as usually ported: distances to all classes, of which a mask leaves one."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(classes, width))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean squared distance."""
        squares = features.square().sum(1, keepdim=True) + self.centres.square().sum(1)
        distances = squares - 2 * features @ self.centres.T
        mask = labels[:, None] == torch.arange(len(self.centres), device=labels.device)
        return (distances * mask).clamp(1e-12, 1e12).sum() / len(labels)


Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]


def companion_ways(classes: int) -> dict[str, Pair]:
    """Ours and the other's, by name, at B = 128 and D = 512."""
    features = torch.randn(128, 512, generator=torch.Generator().manual_seed(0)).to(DEVICE).requires_grad_()
    labels = (torch.arange(128) % min(classes, 32)).to(DEVICE)
    linear = nn.Linear(512, classes, bias=False).to(DEVICE)
    distance = LpDistance(normalize_embeddings=True, power=2)
    far = others.TripletMarginLoss(0.2, distance=distance, reducer=MeanReducer())
    miner = TripletMarginMiner(0.2, "semihard", distance=distance)

    def ours(objective: Objective, head: nn.Module | None = None) -> Callable[[], Tensor]:
        objective.to(DEVICE)
        reader = nn.Identity() if head is None else head
        return lambda: objective(Outputs(features, reader(features), reader), labels).total

    def other(loss: nn.Module) -> Callable[[], Tensor]:
        loss.to(DEVICE)
        return lambda: loss(features, labels)

    return {
        "L-Softmax": (
            ours(LargeMarginSoftmaxLoss(4), linear),
            other(others.LargeMarginSoftmaxLoss(classes, 512)),
        ),
        "center": (
            ours(CenterLoss(512, classes, cross_entropy_weight=0.0)),
            other(PortedCenter(classes, 512)),
        ),
        "triplet, semi-hard": (
            ours(TripletLoss(cross_entropy_weight=0.0)),
            lambda: far(features, labels, miner(features, labels)),
        ),
        "triplet, all": (ours(TripletLoss(mining="all", cross_entropy_weight=0.0)), other(far)),
        "contrastive": (ours(ContrastiveLoss(cross_entropy_weight=0.0)), other(others.ContrastiveLoss())),
    }


def companions(sizes: Sizes) -> None:
    """Forward and backward beside the other library, for 10 and 1,000 classes."""
    for classes in (10, 1000):
        for name, pair in companion_ways(classes).items():

            def moved(way: Callable[[], Tensor]) -> Callable[[], None]:
                return lambda: way().backward()

            found = medians([moved(way) for way in pair], 2 * sizes.rounds)
            line(f"{name}, {classes} classes, over the other", found[0] / found[1], 1e3 * found[0], "<= 1")


GROUPS = {"head": head_and_loss, "network": network, "companions": companions, "memory": memory}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=GROUPS, help="one group of the table")
    parser.add_argument(
        "--small", action="store_true", help="small sizes, few rounds: only to see that it runs"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    small = Sizes(batch=16, classes=20, width=32, broadcast=4, images=4, rounds=2)
    sizes = small if options.small else Sizes()
    print(f"{DEVICE}, {sizes.batch} x {sizes.classes} x {sizes.width}, medians of {sizes.rounds} rounds")
    print(f"{'what':<60} {'ms':>10} {'ratio':>8}  target")
    for name, group in GROUPS.items():
        if options.only in (None, name):
            group(sizes)


if __name__ == "__main__":
    main()
