"""First-order distances to the nearest boundary, and a backward pass for each rival, on a network of ten classes.

    python benchmarks/boundary_distance.py [--root DATA] [--rounds 15] [--images 10000]

Batches of 256 images of 28 x 28, one thread. The loop takes one forward pass and K - 1 = 9 backward passes over the
whole batch, one a rival, and a norm of each; next to it the loop over 64 images at a time, whose activations a
processor's cache holds; all rivals at once, in both ways; and the two with the highest logits. In all but the loops
filters lie with their channels last, as the audit has it; laying them out is in the time. Times are those of the
processor, medians of rounds that take turns. With --root (the folder that holds mnist/) the network is trained on
MNIST for two hundred steps, and minima over the highest logits are compared with those over all rivals; without, it
is trained on random images and labels.
Target: all rivals not slower than the loop.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from clearance.audits.boundary_distance import CHUNK
from clearance.data.idx import read_idx
from clearance.losses.margins import margin_distances
from clearance.models import Classifier, small_cnn
from clearance.models._running import filters_channels_last

BATCH, CLASSES, STEPS = 256, 10, 200


def loop(model: Classifier, images: Tensor, labels: Tensor) -> Tensor:
    """The smallest distance of each image, one backward pass a rival."""
    moving = images.detach().clone().requires_grad_()
    logits = model(moving)
    own = logits.gather(1, labels[:, None])[:, 0]
    found = []
    for place in range(1, CLASSES):
        rival = (labels + place) % CLASSES
        gap = own - logits.gather(1, rival[:, None])[:, 0]
        (gradient,) = torch.autograd.grad(gap.sum(), moving, retain_graph=place < CLASSES - 1)
        found.append(gap.detach() / gradient.flatten(1).norm(dim=1))
    return torch.stack(found).amin(dim=0)


def ours(model: Classifier, images: Tensor, labels: Tensor, rivals: int | None = None) -> Tensor:
    return margin_distances(model, images, labels, ("input",), top_k=rivals).nearest()["input"]


def trained(images: Tensor, labels: Tensor) -> Classifier:
    torch.manual_seed(0)
    extractor = small_cnn(1, 28)
    model = Classifier(extractor, nn.Linear(576, CLASSES), 0.13, 0.31)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        rows = torch.arange(step * 128, (step + 1) * 128) % len(images)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
    return model.eval()


def seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def in_chunks(way: Callable[[Tensor, Tensor], Tensor], images: Tensor, labels: Tensor, size: int) -> Tensor:
    return torch.cat([way(*both) for both in zip(images.split(size), labels.split(size), strict=True)])


def as_audited(model: Classifier, way: Callable[[], object]) -> Callable[[], object]:
    """With filters as the audit lays them out, and back again: both are in the time."""

    def action() -> object:
        with filters_channels_last(model):
            return way()

    return action


def print_agreements(model: Classifier, images: Tensor, labels: Tensor) -> None:
    """How often the rivals with the highest logits hold the nearest of all."""
    every = in_chunks(lambda x, y: ours(model, x, y, None), images, labels, CHUNK)
    for count in (2, 3, 4):
        top = in_chunks(partial(ours, model, rivals=count), images, labels, CHUNK)
        same = float(torch.isclose(top, every, rtol=1e-4, atol=1e-7).double().mean())
        print(f"  {count} highest logits: same minimum on {same:.2%} of {len(images)} test images")


def print_times(model: Classifier, images: Tensor, labels: Tensor, rounds: int) -> None:
    """Of one batch, in turns."""
    ways: dict[str, Callable[[], object]] = {
        "loop": lambda: loop(model, images, labels),
        f"loop, {CHUNK} at a time": lambda: in_chunks(partial(loop, model), images, labels, CHUNK),
    }
    audited: dict[str, Callable[[], object]] = {
        "all rivals": partial(ours, model, images, labels),
        f"all rivals, {CHUNK} at a time": partial(in_chunks, partial(ours, model), images, labels, CHUNK),
        f"two highest, {CHUNK} at a time": partial(
            in_chunks, partial(ours, model, rivals=2), images, labels, CHUNK
        ),
    }
    ways |= {name: as_audited(model, way) for name, way in audited.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(seconds(way))
    for name, own in times.items():
        ratios = [
            statistics.median(a / b for a, b in zip(times[base], own, strict=True))
            for base in ("loop", f"loop, {CHUNK} at a time")
        ]
        print(
            f"{name:>26}: {statistics.median(own):.3f} s, {ratios[0]:.2f} and {ratios[1]:.2f} times the loops' speed"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder that holds mnist/")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--images", type=int, default=10_000, help="test images whose minima are compared")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.root is None:
        torch.manual_seed(0)
        images, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(CLASSES, (BATCH,))
        model = trained(images, labels)
    else:
        train, test = (read_idx(Path(given.root, "mnist"), split) for split in ("train", "test"))
        model, images, labels = trained(train.images, train.labels), test.images, test.labels
    batch = images[:BATCH], labels[:BATCH]
    torch.testing.assert_close(ours(model, *batch, None), loop(model, *batch), rtol=1e-3, atol=1e-5)
    print_times(model, *batch, given.rounds)
    print("target: all rivals 1.00")
    if given.root is not None:
        spread = torch.linspace(0, len(labels) - 1, min(given.images, len(labels))).long()
        print_agreements(model, images[spread], labels[spread])


if __name__ == "__main__":
    main()
