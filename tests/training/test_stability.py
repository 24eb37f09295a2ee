"""The losses with their defaults, in plain loops without clipping, on random networks: they learn, or they warn.

A draw is a network (depth, width, normalisation, convolutions or not, activation), a learning rate from 0.001 to 0.3
and an optimizer. Where cross-entropy learns (half of the test images right after 400 steps on digits), the other losses
should end within 5 points of it and be silent, in at least nine of ten draws; elsewhere a loss that ends at chance has
to say why within 20 batches. A loss that is only slow (its test images have less cross-entropy than guessing) need not.

Measured on 30 draws that were not looked at before, on 2026-11-24 and again a day later. Cross-entropy learns in 26:

| | within 5 points, silent | within 5 points, after a warning | short, after a warning | short, silent |
|---|---|---|---|---|
| large margin | 25 | 1 | 0 | 0 |
| L-GM | 25 | 1 | 0 | 0 |
| center | 25 | 0 | 1 | 0 |
| FOCA | 26 | 0 | 0 | 0 |

In three of the other four the learning rate (SGD, 0.0012 to 0.002) is too small for 400 steps: all are slow or have
learnt. In the last (two layers of tanh without normalisation, Adam at 0.2) large margin ends at 16 % without a warning,
and FOCA at 10 % with one at batch 400: two misses.

On two more blocks nine in ten is missed by large margin and L-GM. Within 5 points and silent, of 40 draws from
30,001,000 on and of the 28 of 30 that cross-entropy learns from 40,000,000 on: large margin 34 and 24, L-GM 33 and 24,
center 37 and 26, FOCA 38 and 28. Cross-entropy itself, with three other seeds for the 40: 35, 34 and 36. The first two
blocks ran before "stalled" was checked at any time, and all three before "exploded" asked whether the loss has grown.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearance.data.digits import read_digits
from clearance.heads import GaussianMixture
from clearance.losses import (
    CenterLoss,
    CrossEntropyLoss,
    GaussianMixtureLoss,
    LargeMarginLoss,
    Loss,
    TrainingWarning,
)
from clearance.models import Classifier
from clearance.training import FOCA

STEPS, BATCH = 400, 64
LEARNT, CHANCE, POINTS, GUESSING = 0.5, 0.2, 0.05, math.log(10)
FIRST_DRAW = 20_261_123  # no draw from here on was looked at before the defaults were fixed
OTHERS = ("large margin", "L-GM", "center", "FOCA")
LOSSES: dict[str, Callable[[int], Loss]] = {
    "cross-entropy": lambda features: CrossEntropyLoss(),
    "large margin": lambda features: LargeMarginLoss(),
    "L-GM": lambda features: GaussianMixtureLoss(),
    "center": lambda features: CenterLoss(features, 10),
}
ACTIVATIONS = {"relu": nn.ReLU, "leaky": nn.LeakyReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
NORMS: dict[str, Callable[[int, bool], list[nn.Module]]] = {
    "none": lambda width, maps: [],
    "batch": lambda width, maps: [nn.BatchNorm2d(width) if maps else nn.BatchNorm1d(width)],
    "layer": lambda width, maps: [nn.GroupNorm(1, width)],
    "group": lambda width, maps: [nn.GroupNorm(4, width)],
}
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "sgd": lambda moved, lr: torch.optim.SGD(moved, lr=lr),
    "momentum": lambda moved, lr: torch.optim.SGD(moved, lr=lr, momentum=0.9),
    "adam": lambda moved, lr: torch.optim.Adam(moved, lr=lr),
}


@dataclass(frozen=True)
class Draw:
    """A network and how it is trained."""

    seed: int
    kind: str
    depth: int
    width: int
    norm: str
    activation: str
    optimizer: str
    lr: float

    @classmethod
    def of(cls, seed: int) -> "Draw":
        stream = torch.Generator().manual_seed(seed)

        def pick(*values: Any) -> Any:
            return values[int(torch.randint(len(values), (1,), generator=stream))]

        chosen = (
            pick("mlp", "conv"),
            pick(1, 2, 3, 4),
            pick(16, 32, 64),
            pick(*NORMS),
            pick(*ACTIVATIONS),
            pick(*OPTIMIZERS),
        )
        lr = 10 ** (float(torch.rand(1, generator=stream)) * math.log10(300) - 3)
        return cls(seed, *chosen, lr)

    def extractor(self) -> tuple[nn.Sequential, int]:
        """The network without its head, and the number of features."""
        act, norm = ACTIVATIONS[self.activation], NORMS[self.norm]
        if self.kind == "mlp":
            widths = [64, *[self.width] * self.depth]
            layers: list[nn.Module] = [nn.Flatten()]
            for i in range(self.depth):
                layers += [nn.Linear(widths[i], widths[i + 1]), *norm(self.width, False), act()]
            return nn.Sequential(*layers), self.width
        maps, side, layers = self.width // 4, 8, []
        for i in range(self.depth):
            layers += [nn.Conv2d(maps if i else 1, maps, 3, padding=1), *norm(maps, True), act()]
            if i in (0, 2):
                layers.append(nn.MaxPool2d(2))
                side //= 2
        return nn.Sequential(*layers, nn.Flatten()), maps * side * side


@dataclass(frozen=True)
class Ending:
    """Test accuracy and cross-entropy, and the batch of the first warning (None: silent) with its message."""

    accuracy: float
    entropy: float
    warned: int | None
    message: str


def trained(draw: Draw, name: str) -> Ending:
    """One plain loop: no clipping, no schedule, no warm-up."""
    train, test = read_digits("train"), read_digits("test")
    torch.manual_seed(draw.seed)
    extractor, width = draw.extractor()
    head = GaussianMixture(width, 10) if name == "L-GM" else nn.Linear(width, 10)
    model = Classifier(extractor, head, mean=0.3, std=0.4).train()
    step: Callable[[Tensor, Tensor], object]
    if name == "FOCA":
        way = FOCA()
        optimizer = OPTIMIZERS[draw.optimizer](list(way.trainable(model)), draw.lr)
        training = way.start(model, train, optimizer, way.generators(draw.seed))
        step, finish = training.step, training.finish
    else:
        loss = LOSSES[name](width)
        optimizer = OPTIMIZERS[draw.optimizer]([*model.parameters(), *loss.parameters()], draw.lr)

        def step(images: Tensor, labels: Tensor) -> None:
            outputs = model.outputs(images, loss.layers)
            terms = loss(outputs, labels)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            loss.after_step(outputs, labels)

        def finish() -> None:
            pass

    stream, warned, message = torch.Generator().manual_seed(draw.seed), None, ""
    for batch in range(1, STEPS + 1):
        images, labels = train.batch(torch.randint(len(train), (BATCH,), generator=stream))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step(images, labels)
        causes = [str(one.message) for one in caught if issubclass(one.category, TrainingWarning)]
        if causes and warned is None:
            warned, message = batch, causes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finish()
        with torch.no_grad():
            logits = model.eval()(test.images)
    right = float((logits.argmax(dim=1) == test.labels).double().mean())
    return Ending(right, float(nn.functional.cross_entropy(logits, test.labels)), warned, message)


def judged(
    draws: int, first: int = FIRST_DRAW, say: Callable[[str], object] = lambda line: None
) -> dict[str, dict[str, int]]:
    """Counts by loss; `say` gets each ending.

    In draws where cross-entropy learns: ``reached`` within 5 points and silent, ``alarmed`` within 5 points after a
    warning, ``warned`` short of it with a warning in 20 batches, ``short`` of it without. In the rest: ``learnt``,
    ``slow`` (silent, with less cross-entropy than guessing), ``warned``. Anywhere: ``silent`` at chance.
    """
    counts: dict[str, dict[str, int]] = {name: {} for name in ("cross-entropy", *OTHERS)}
    for seed in range(first, first + draws):
        draw = Draw.of(seed)
        endings = {name: trained(draw, name) for name in counts}
        own = endings["cross-entropy"].accuracy
        for name, ending in endings.items():
            early = ending.warned is not None and ending.warned <= 20
            if own >= LEARNT and ending.accuracy >= own - POINTS:
                kind = "reached" if ending.warned is None else "alarmed"
            elif early:
                kind = "warned" if own >= LEARNT else "rest: warned"
            elif ending.accuracy < CHANCE and not ending.entropy < GUESSING:
                kind = "silent"
            elif own >= LEARNT:
                kind = "short"
            else:
                kind = "rest: learnt" if ending.accuracy >= LEARNT else "rest: slow"
            counts[name][kind] = counts[name].get(kind, 0) + 1
            say(f"{draw} {name}: {kind}, {ending}")
    return counts


def check(counts: dict[str, dict[str, int]], missing: int, silent: int = 0) -> None:
    for name in OTHERS:
        found = counts[name]
        learns = sum(found.get(kind, 0) for kind in ("reached", "alarmed", "warned", "short", "silent"))
        assert found.get("reached", 0) >= learns - missing, (name, found)
        assert found.get("silent", 0) <= silent, (name, found)


@pytest.mark.slow
def test_on_random_networks_they_learn_or_warn():
    check(judged(5), missing=1)


@pytest.mark.long
def test_on_thirty_random_networks_they_learn_or_warn():
    check(judged(30), missing=2, silent=1)
