"""What the Gaussian-mixture loss costs: ratios of medians, in one run.

    python benchmarks/gaussian_mixture.py                # minutes; one thread on a CPU, or the GPU where there is one
    python benchmarks/gaussian_mixture.py --only head    # one group: head, network, memory
    python benchmarks/gaussian_mixture.py --small        # to see that it runs

Head and loss, forward and backward, at B x K x D = 256 x 1000 x 2048: compared with a linear head with cross-entropy,
and the broadcast of public ports, (x - mu)^2 weighted over a B x K x D tensor. That needs gigabytes, so it is timed
and its memory taken at a batch of 8 and scaled by 32: its cost is proportional to the batch, ours nearly so, and small
batches spare the broadcast the worst of its memory traffic. The losses it is compared with are in companion_losses.py.

Ways take turns within a round and a ratio is one of medians over rounds, in CPU seconds of this process (on a GPU:
clock seconds, synchronised). Before all of it one tensor as large as a network's activations is made and freed
(timing.py says why). Features are noise.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from timing import DEVICE, as_after_a_network, medians, peak_bytes
from torch import Tensor, nn

from clearance.heads import GaussianMixture
from clearance.losses import CrossEntropyLoss, GaussianMixtureLoss, Loss
from clearance.models import Classifier
from clearance.tensors import Outputs

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


class Way:
    """Head and loss on a batch of features, forward and backward."""

    def __init__(self, head: nn.Module, loss: Loss, batch: int, sizes: Sizes) -> None:
        stream = torch.Generator().manual_seed(0)
        self.head, self.loss = head.to(DEVICE), loss.to(DEVICE)
        features = torch.randn(batch, sizes.width, generator=stream).to(DEVICE)
        self.features = features.requires_grad_()
        self.labels = (torch.arange(batch) % sizes.classes).to(DEVICE)

    def total(self) -> Tensor:
        """Of the batch."""
        outputs = Outputs(self.features, self.head(self.features), self.head)
        return self.loss(outputs, self.labels).total

    def __call__(self) -> None:
        """Forward and backward."""
        for tensor in (self.features, *self.head.parameters()):
            tensor.grad = None
        self.total().backward()


class Broadcast(Way):
    """The same loss with every difference written out, as ports do."""

    def total(self) -> Tensor:
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
    found = medians([linear, *ours], sizes.rounds, warm_up=1, device=DEVICE)
    line("linear head + cross-entropy", 1.0, 1e3 * found[0])
    for kind, took, target in zip(KINDS, found[1:], ("<= 1.5", "<= 2.5", ""), strict=True):
        line(f"mixture + L-GM, {kind}", took / found[0], 1e3 * took, target)
    for kind, took in zip(KINDS, found[1:], strict=True):
        wide = mixture_way(kind, sizes.broadcast, sizes, Broadcast)
        scaled = (
            medians([wide], max(2, sizes.rounds // 2), warm_up=1, device=DEVICE)[0]
            * sizes.batch
            / sizes.broadcast
        )
        line(
            f"  broadcast, {kind}, over it (scaled from {sizes.broadcast})",
            scaled / took,
            1e3 * scaled,
            ">= 30",
        )


def memory(sizes: Sizes) -> None:
    """Peak memory of head and loss; the broadcast's share that grows with the batch, scaled."""
    for kind in KINDS:
        ours = peak_bytes(mixture_way(kind, sizes.batch, sizes), DEVICE)
        pair = [
            peak_bytes(mixture_way(kind, b, sizes, Broadcast), DEVICE)
            for b in (sizes.broadcast // 2, sizes.broadcast)
        ]
        slope = (pair[1] - pair[0]) / (sizes.broadcast - sizes.broadcast // 2)
        wide = pair[1] + slope * (sizes.batch - sizes.broadcast)
        line(f"broadcast's memory over ours, {kind} (MiB ours)", wide / ours, ours / 2**20, ">= 30")


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
    ways: dict[str, tuple[nn.Module, Loss]] = {
        "13-layer network, softmax": (nn.Linear(384, 100), CrossEntropyLoss()),
        "13-layer network, L-GM, identity": (GaussianMixture(384, 100), GaussianMixtureLoss()),
        "13-layer network, L-GM, diagonal": (GaussianMixture(384, 100, "diagonal"), GaussianMixtureLoss()),
        "13-layer network, L-GM, class_diagonal": (
            GaussianMixture(384, 100, "class_diagonal"),
            GaussianMixtureLoss(),
        ),
    }

    def step_of(head: nn.Module, loss: Loss) -> Callable[[], None]:
        model = thirteen_layers(head).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

        def step() -> None:
            optimizer.zero_grad()
            outputs = model.outputs(images)
            loss(outputs, labels).total.backward()
            optimizer.step()
            loss.after_step(outputs, labels)

        return step

    found = medians([step_of(*way) for way in ways.values()], sizes.rounds, warm_up=1, device=DEVICE)
    for name, took in zip(ways, found, strict=True):
        line(name, took / found[0], 1e3 * took, "" if took == found[0] else "<= 1.05")


GROUPS = {"head": head_and_loss, "network": network, "memory": memory}


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
    as_after_a_network()
    small = Sizes(batch=16, classes=20, width=32, broadcast=4, images=4, rounds=2)
    sizes = small if options.small else Sizes()
    print(f"{DEVICE}, {sizes.batch} x {sizes.classes} x {sizes.width}, medians of {sizes.rounds} rounds")
    print(f"{'what':<60} {'ms':>10} {'ratio':>8}  target")
    for name, group in GROUPS.items():
        if options.only in (None, name):
            group(sizes)


if __name__ == "__main__":
    main()
