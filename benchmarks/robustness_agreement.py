"""The robustness verdict beside AutoAttack on twelve networks of many kinds, with the CPU seconds of both.

    python benchmarks/robustness_agreement.py --root DATA --cache FOLDER [--images 250] [--only NAME ...]

DATA holds the files of MNIST and CIFAR-10. FOLDER keeps the trained networks and AutoAttack's results, in blocks of 250
images, so that a killed run continues, and one with more images or seeds adds what is missing; it must stay on one
machine. Networks are trained with `fit` on the first 20,000 training images (one on all); nothing is chosen on test
images.

AutoAttack (pyautoattack, the standard version: APGD on cross-entropy, targeted APGD and FAB with nine targets, Square
with 5,000 queries, in its own batches of 250) runs under three seeds on the first 1,000 test images of MNIST, or 300 of
CIFAR-10. The lowest of its three accuracies counts, and the fewest of its CPU seconds. Our side is the audit
`robustness` on the same images, right after it. Targets, network by network: at most 0.5 points above, in at most half
the seconds; the exit status is 1 where one is missed.
"""

import argparse
import json
import logging
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance._describe import digest
from clearance.attacks import PGD
from clearance.audits import Robustness
from clearance.data import ImageSet
from clearance.experiments.datasets import load_dataset
from clearance.losses import LargeMarginLoss, Loss
from clearance.models import Classifier
from clearance.tensors import LossTerms, Outputs
from clearance.training import TRADES, EndToEnd, Limits, fit

POINTS, SHARE_OF_TIME = 0.5, 0.5
BATCH = 128
TEST_IMAGES = {"mnist": 1000, "cifar10": 300}
BLOCK = 250  # AutoAttack's own batch


# networks -----------------------------------------------------------------------------------------------------------


class Rounded(nn.Module):
    """Pixels in whole eighths."""

    def forward(self, images: Tensor) -> Tensor:
        """round(8x) / 8."""
        return (8 * images).round() / 8


class RandomDropout(nn.Module):
    """Dropout that stays on in evaluation mode."""

    def forward(self, features: Tensor) -> Tensor:
        """A fifth of the features set to zero, others in every call."""
        return F.dropout(features, 0.2, training=True)


def small_cnn(first: nn.Module | None = None, last: nn.Module | None = None) -> Classifier:
    """Two convolutions of stride 2 and a hidden layer: 0.35 million multiply-adds an image of 28x28."""
    layers = [
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(),
    ]  # fmt: skip
    parts = [part for part in (first, *layers, last) if part is not None]
    return Classifier(nn.Sequential(*parts), nn.Linear(64, 10))


class Residual(nn.Module):
    """Two convolutions beside the identity, or beside a convolution of one pixel where the size changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        same = channels == width and stride == 1
        self.beside = nn.Identity() if same else nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """relu(inner(x) + beside(x))."""
        return F.relu(self.inner(images) + self.beside(images))


def small_resnet() -> Classifier:
    """A residual network of 2.3 million multiply-adds an image of 32x32, with batch normalisation."""
    extractor = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Residual(16, 16, 1), Residual(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    return Classifier(extractor, nn.Linear(32, 10), mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))


# how they are trained -----------------------------------------------------------------------------------------------


class TemperedLoss(Loss):
    """Cross-entropy of logits divided by a temperature, with the labels or with a teacher's probabilities.

    Source: Papernot et al., *Distillation as a Defense to Adversarial Perturbations against Deep Neural Networks*
    (2016), section IV, with their temperature of 100. The logits are those at temperature 1.
    """

    def __init__(self, temperature: float = 100.0, teacher: Classifier | None = None) -> None:
        super().__init__()
        self.temperature = temperature
        self.layers = () if teacher is None else ("input",)
        self._teacher = [] if teacher is None else [teacher.eval()]  # in a list: not trained with the loss

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Cross-entropy at the temperature."""
        wanted: Tensor = labels
        for teacher in self._teacher:
            with torch.no_grad():
                wanted = (teacher(outputs.activations["input"]) / self.temperature).softmax(dim=1)
        return LossTerms({"cross_entropy": F.cross_entropy(outputs.logits / self.temperature, wanted)})


def madry(epsilon: float, rise: int, steps: int = 7) -> EndToEnd:
    """Every image attacked by PGD on cross-entropy (Madry et al. 2018), at a radius that rises."""
    attack = PGD(epsilon, loss="cross_entropy", steps=steps, chunk=BATCH)
    return EndToEnd(adversarial=attack, adversarial_share=1.0, adversarial_rise=rise)


def trades(epsilon: float, rise: int) -> EndToEnd:
    """Clean images, and a penalty on how far an attack moves their predictions (Zhang et al. 2019)."""
    return EndToEnd(
        adversarial=TRADES(epsilon, steps=7, chunk=BATCH), adversarial_share=1.0, adversarial_rise=rise
    )


def of_margin(gamma: float) -> EndToEnd:
    """A margin in norm inf at the images (Elsayed et al. 2018), in units of itself, beside cross-entropy."""
    return EndToEnd(LargeMarginLoss(("input",), float("inf"), gamma, layer_weights=1 / gamma))


Way = Callable[[Path, str], EndToEnd]
"""How a network is trained, given the cache and the root, which only distillation reads."""


@dataclass(frozen=True)
class Network:
    """How a network is trained and built, and the radius in norm inf at which it is attacked."""

    epsilon: float
    way: Way = lambda *_: EndToEnd()
    build: Callable[[], Classifier] = small_cnn
    dataset: str = "mnist"
    epochs: int = 5
    lr: float = 0.002
    images: int = 20_000

    def training_images(self, root: str) -> ImageSet:
        """The first ones of the training set."""
        return load_dataset(self.dataset, "train", root).subset(torch.arange(self.images))

    def test_images(self, root: str, most: int) -> ImageSet:
        """The first ones of the test set."""
        count = min(most, TEST_IMAGES[self.dataset])
        return load_dataset(self.dataset, "test", root).subset(torch.arange(count))


NETWORKS = {
    "adversarial_0.2": Network(0.2, lambda *_: madry(0.2, 400)),
    "plain": Network(0.1),
    "trades_0.2": Network(0.2, lambda *_: trades(0.2, 400)),
    "margin": Network(0.1, lambda *_: of_margin(0.1)),
    "rounded": Network(0.1, build=partial(small_cnn, first=Rounded())),
    "saturated": Network(0.1),
    "distilled": Network(
        0.1, lambda cache, root: EndToEnd(TemperedLoss(teacher=trained("teacher", cache, root))), lr=0.01
    ),
    "adversarial_0.1": Network(0.1, lambda *_: madry(0.1, 400)),
    "adversarial_0.3": Network(0.3, lambda *_: madry(0.3, 700), epochs=8),
    "residual": Network(
        8 / 255, lambda *_: madry(8 / 255, 200, 3), small_resnet, "cifar10", epochs=3, lr=0.005
    ),
    "adversarial_0.2_longer": Network(0.2, lambda *_: madry(0.2, 1000), images=60_000),
    "dropout": Network(0.1, build=partial(small_cnn, last=RandomDropout())),
    "teacher": Network(0.1, lambda *_: EndToEnd(TemperedLoss()), lr=0.01),
}
TABLE = [name for name in NETWORKS if name != "teacher"]


def trained(name: str, cache: Path, root: str) -> Classifier:
    """A network of the table in evaluation mode, from the cache, or trained and put there."""
    network, file = NETWORKS[name], cache / f"{name}.pt"
    torch.manual_seed(0)
    model = network.build()
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()
    began = time.process_time()
    if name == "saturated":
        model = trained("plain", cache, root)
        with torch.no_grad():
            for value in model.head.parameters():
                value.mul_(50)
    else:
        result = fit(
            model, network.way(cache, root), network.training_images(root), epochs=network.epochs, batch_size=BATCH,
            optimizer=partial(torch.optim.Adam, lr=network.lr), limits=Limits(clip_norm=1.0),
            schedule=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=network.epochs),
        )  # fmt: skip
        print(f"{name}: {result.status}, {time.process_time() - began:.0f} cpu seconds", file=sys.stderr)
    torch.save(model.state_dict(), file)
    return model.eval()


# the two verdicts ---------------------------------------------------------------------------------------------------


class Log(logging.Handler):
    """AutoAttack's lines on its stages and its warnings, each with the CPU seconds until then."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.began, self.lines = time.process_time(), list[tuple[float, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        words = record.getMessage()
        if record.levelno >= logging.WARNING or "accuracy after" in words:
            self.lines.append((round(time.process_time() - self.began, 1), words))


def autoattack(model: Classifier, data: ImageSet, epsilon: float, seed: int) -> dict[str, Any]:
    """The standard AutoAttack: how many images it leaves, its CPU seconds, its stages and warnings."""
    from pyautoattack import AutoAttack

    log, logger = Log(), logging.getLogger("auto-attack")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attack = AutoAttack(model, eps=epsilon, norm="Linf", seed=seed)
        _, named = attack.run_standard_evaluation(data.images, data.labels)
    seconds = time.process_time() - log.began
    logger.removeHandler(log)
    # the class named last: of the image where no attack broke it, else a wrong one
    left = int((named == data.labels).sum())
    return {"left": left, "images": len(data), "seconds": seconds, "log": log.lines}


def kept(file: Path) -> dict[str, Any]:
    """AutoAttack's results in the cache by network, seed and images."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


def autoattacked(name: str, seed: int, given: argparse.Namespace) -> tuple[float, float]:
    """The accuracy that AutoAttack leaves and its CPU seconds, of blocks from the cache, or measured and put there.

    Raises:
        ValueError: If the cached one is of other weights or from another machine.
    """
    network, model, file = (
        NETWORKS[name],
        trained(name, given.cache, given.root),
        given.cache / "autoattack.json",
    )
    here = {
        "weights": digest(model.state_dict().items()),
        "machine": f"{platform.platform()}, torch {torch.__version__}",
    }
    data, found = network.test_images(given.root, given.images), []
    for rows in torch.arange(len(data)).split(BLOCK):
        key = f"{name}, seed {seed}, images {rows[0]} to {rows[-1]}"
        known = kept(file)
        if key not in known:
            made = here | autoattack(model, data.subset(rows), network.epsilon, seed)
            known = kept(file) | {key: made}  # another process may have added its own
            file.write_text(json.dumps(known, indent=1))
            print(f"{key}: {known[key]['left']} left, {known[key]['seconds']:.0f} s", file=sys.stderr)
        if {part: known[key][part] for part in here} != here:
            raise ValueError(
                f"{file} has {key!r} of other weights or from another machine; use a new folder."
            )
        found.append(known[key])
    return sum(block["left"] for block in found) / len(data), sum(block["seconds"] for block in found)


def verdict(name: str, given: argparse.Namespace) -> tuple[float, float]:
    """The audit's accuracy under attack, and its CPU seconds."""
    network, model = NETWORKS[name], trained(name, given.cache, given.root)
    data = network.test_images(given.root, given.images)
    audit = Robustness(epsilons={"inf": (network.epsilon,)}, images=len(data))
    began = time.process_time()
    found = audit(model, data, data).measurements
    seconds = time.process_time() - began
    return next(m.value for m in found if m.name == "robust_accuracy"), seconds


def row(name: str, given: argparse.Namespace) -> str:
    theirs = [autoattacked(name, seed, given) for seed in given.seeds]
    accuracies = [100 * accuracy for accuracy, _ in theirs]
    network = NETWORKS[name]
    images = min(given.images, TEST_IMAGES[network.dataset])
    start = f"| {name} | {images} | inf, {network.epsilon:.3g} |"
    values = " ".join(f"{accuracy:.1f}" for accuracy in accuracies)
    try:
        ours, seconds = verdict(name, given)
    except ValueError as refusal:
        return f"{start} refused: {str(refusal).split(':')[0]} | {values} | | | | MISSED |"
    fewest = min(seconds for _, seconds in theirs)
    above, ratio = 100 * ours - min(accuracies), seconds / fewest
    missed = {"points": above > POINTS + 1e-9, "time": ratio > SHARE_OF_TIME}
    reached = ", ".join(word for word, miss in missed.items() if miss)
    return (
        f"{start} {100 * ours:.1f} | {values} | {above:+.1f} | {seconds:.0f} / {fewest:.0f} | {ratio:.2f} | "
        f"{f'MISSED: {reached}' if reached else 'reached'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, help="folder with the datasets' files")
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder for networks and AutoAttack's results"
    )
    parser.add_argument("--images", type=int, default=1000, help="at most, of each test set")
    parser.add_argument("--only", nargs="+", default=TABLE, choices=TABLE, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of AutoAttack")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.cache.mkdir(parents=True, exist_ok=True)
    print(
        "| network | images | norm, radius | ours, % | AutoAttack, % | above | CPU seconds | ratio | targets |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name in given.only:
        rows.append(row(name, given))
        print(rows[-1], flush=True)
    sys.exit(any("MISSED" in line for line in rows))


if __name__ == "__main__":
    main()
