"""First-order distances to the nearest boundary, beside a backward pass for each rival, on a network of ten classes.

    python benchmarks/boundary_distance.py [--root DATA] [--rounds 15] [--images 10000]

Batches of 256 images of 28 x 28, one thread. The loop takes one forward pass and K - 1 = 9 backward passes over the
whole batch, one a rival, and a norm of each; beside it the loop over 64 images at a time, whose activations a
processor's cache holds; all rivals at once, in both ways; the two with the highest logits; and those that are likely
to be the nearest, as the audit with `doubt` finds them once it has learnt how long gradients are, which costs as much
as all rivals of 256 other images and is not in the time. In all but the loops filters lie with their channels last and
maps are pooled before they are rectified, as the audit has it; laying them out is in the time. Times are those of the
processor, medians of rounds that take turns. With --root (the folder of MNIST's files) the network is trained on MNIST
for two hundred steps, and minima are compared with those over all rivals, to choose a doubt on training images that no
step saw, and then on test images; without, it is trained on random images and labels.
Targets: all rivals not slower than the loop; the nearest of all 3 times faster, on 99 % of MNIST.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from clearance.audits._likely_rivals import CHUNK, Sweeper
from clearance.audits._pair_norms import PairNorms
from clearance.data import read_idx
from clearance.models import Classifier, small_cnn
from clearance.models._channels_last import filters_channels_last
from clearance.models._pools_first import pools_before_rectifiers
from clearance.objectives.margins import margin_distances

BATCH, CLASSES, STEPS = 256, 10, 200
FASTER, SAME = 3.0, 0.99
DOUBTS = (
    math.inf,
    0.2,
    0.1,
    0.05,
    0.03,
    0.025,
    0.02,
    0.01,
)  # infinite: two rivals of each image, and no more
CHOSEN_ON = 2000  # training images


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


def learnt(model: Classifier, images: Tensor, labels: Tensor) -> PairNorms:
    """How long gradients are, from all rivals of some images."""
    sweeper = Sweeper.of(model, images, labels, 2.0, None)
    sweeper.measure(torch.arange(len(labels)), None)
    forecast = sweeper.known.fitted()
    assert forecast is not None
    return forecast


def likely(model: Classifier, images: Tensor, labels: Tensor, forecast: PairNorms, doubt: float) -> Sweeper:
    """Only rivals that are likely to be nearest."""
    sweeper = Sweeper.of(model, images, labels, 2.0, None)
    sweeper.search(torch.arange(len(labels)), forecast, doubt)
    return sweeper


def as_audited(model: Classifier, way: Callable[[], object]) -> Callable[[], object]:
    """With filters and layers as the audit lays them out, and back again: both are in the time."""

    def action() -> object:
        with filters_channels_last(model), pools_before_rectifiers(model):
            return way()

    return action


def agreements(model: Classifier, images: Tensor, labels: Tensor, forecast: PairNorms) -> dict[float, float]:
    """How often a shortlist has the same minimum as all rivals, by doubt; told beside the highest logits."""
    every = in_chunks(lambda x, y: ours(model, x, y, None), images, labels, CHUNK)

    def told(name: str, found: Tensor, rivals: float) -> float:
        same = float(torch.isclose(found.float(), every, rtol=1e-4, atol=1e-7).double().mean())
        print(f"  {name}: same minimum on {same:.2%} of {len(images)}, {rivals:.2f} rivals an image")
        return same

    for count in (2, 3, 4):
        top = in_chunks(partial(ours, model, rivals=count), images, labels, CHUNK)
        told(f"{count} highest logits", top, count)
    found = {}
    for doubt in DOUBTS:
        known = likely(model, images, labels, forecast, doubt).known
        rivals = float(known.measured.sum(1).double().mean())
        found[doubt] = told(f"likely, doubt {doubt:g}", known.distances.amin(dim=1), rivals)
    return found


def print_times(model: Classifier, images: Tensor, labels: Tensor, forecast: PairNorms, rounds: int) -> None:
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
    audited |= {
        f"likely, doubt {doubt:g}": partial(likely, model, images, labels, forecast, doubt)
        for doubt in DOUBTS
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
    parser.add_argument("--root", help="folder of MNIST's files")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--images", type=int, default=10_000, help="test images whose minima are compared")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.root is None:
        torch.manual_seed(0)
        images, labels = torch.rand(2 * BATCH, 1, 28, 28), torch.randint(CLASSES, (2 * BATCH,))
        model, held_out = trained(images, labels), (images[BATCH:], labels[BATCH:])
    else:
        train, test = read_idx(given.root, "train"), read_idx(given.root, "test")
        model, images, labels = trained(train.images, train.labels), test.images, test.labels
        held_out = train.images[-BATCH:], train.labels[-BATCH:]  # no step saw them
    batch = images[:BATCH], labels[:BATCH]
    torch.testing.assert_close(ours(model, *batch, None), loop(model, *batch), rtol=1e-3, atol=1e-5)
    forecast = learnt(model, *held_out)
    print_times(model, *batch, forecast, given.rounds)
    print(
        f"targets: all rivals 1.00, likely rivals {FASTER:.2f}, with the same minimum on {SAME:.0%} of MNIST"
    )
    if given.root is None:
        return
    print("training images that no step saw:")
    rows = slice(-BATCH - CHOSEN_ON, -BATCH)
    tried = agreements(model, train.images[rows], train.labels[rows], forecast)
    enough = [doubt for doubt, same in tried.items() if same >= SAME]
    print(f"the largest doubt with {SAME:.0%} of these is {max(enough, default=0)}; test images:")
    spread = torch.linspace(0, len(labels) - 1, min(given.images, len(labels))).long()
    agreements(model, images[spread], labels[spread], forecast)


if __name__ == "__main__":
    main()
