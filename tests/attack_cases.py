"""The one list of attacks that the contract tests run; a new attack is one more entry."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearance.attacks import (
    APGD,
    FGSM,
    IFGSM,
    PGD,
    DeepFool,
    MinimumNorm,
    SquareSearch,
    TargetedAscent,
    as_attack,
    transferred,
)
from digits_nets import digits, network

COUNT = 40  # images that contracts are checked on


def signs(model, images, labels):
    """A foreign attack: the sign method at radius 0.15, in a few lines of anybody's."""
    leaf = images.clone().requires_grad_()
    F.cross_entropy(model(leaf), labels, reduction="sum").backward()
    return (leaf + 0.15 * leaf.grad.sign()).detach()


@dataclass(frozen=True)
class AttackCase:
    """An attack under test, on digits.

    Args:
        make: The attack, at a radius where it breaks some images and not others.
        norm: Its norm.
        epsilon: Its radius, or None where it looks for the distance itself.
        scale_free: Whether the scale of logits must not matter.
        at_radius: The same attack at another radius.
        own_goal: Whether success is something else than a wrong class.
        foreign: Whether gradients are taken by code that is not ours.
        source: Whether images are made on another network.
    """

    make: Callable[[], Any]
    norm: float
    epsilon: float | None = None
    scale_free: bool = True
    at_radius: Callable[[float], Any] | None = None
    own_goal: bool = False
    foreign: bool = False
    source: bool = False


def ball(
    kind: Callable[..., Any], epsilon: float, norm: float, scale_free: bool, **settings: Any
) -> AttackCase:
    """A case of an attack in a ball."""

    def at(radius: float) -> Any:
        return kind(radius, norm, **settings)

    return AttackCase(lambda: at(epsilon), norm, epsilon, scale_free, at)


def on_another(epsilon: float, norm: float) -> Any:
    """Images made on a network that was trained from another seed."""
    return transferred(network(seed=1), PGD(epsilon, norm, steps=4))


INF, TWO, ONE = (math.inf, 0.12), (2.0, 0.6), (1.0, 2.5)

ATTACKS = {
    **{f"FGSM, norm {n:g}": ball(FGSM, e, n, True, loss="logit_margin") for n, e in (INF, TWO, ONE)},
    **{f"I-FGSM, norm {n:g}": ball(IFGSM, e, n, True, loss="dlr", steps=4) for n, e in (INF, TWO, ONE)},
    **{
        f"PGD, norm {n:g}": ball(PGD, e, n, True, steps=5, restarts=3, loss="scaled_cross_entropy")
        for n, e in (INF, TWO, ONE)
    },
    **{
        f"Auto-PGD, norm {n:g}": ball(APGD, e, n, True, steps=7, restarts=2)
        for n, e in (INF, TWO, (1.0, 1.5))
    },
    "Auto-PGD at rivals": ball(APGD, 0.12, math.inf, True, steps=5, loss="dlr", targets=2),
    "PGD at rivals": ball(PGD, 0.12, math.inf, True, steps=4, restarts=2, loss="dlr", targets=2),
    "FGSM as published": ball(FGSM, 0.15, math.inf, False),
    "I-FGSM as published": ball(IFGSM, 0.12, math.inf, False, steps=4),
    "transferred": replace(ball(on_another, 0.15, math.inf, True), source=True),
    "foreign": AttackCase(lambda: as_attack(signs, 0.15), math.inf, 0.15, scale_free=False, foreign=True),
    "targeted ascent": AttackCase(
        lambda: TargetedAscent(confidence=0.9, step=0.1, steps=12), 2.0, scale_free=False, own_goal=True
    ),
    **{
        f"square, norm {n:g}": ball(SquareSearch, e, n, True, queries=20)
        for n, e in (INF, (2.0, 1.2), (1.0, 4.0))
    },
    "DeepFool": AttackCase(lambda: DeepFool(steps=6), 2.0),
    **{
        f"minimum norm, norm {n:g}": AttackCase(partial(MinimumNorm, n, steps=8), n)
        for n, _ in (INF, TWO, ONE)
    },
}


def batch(count: int = COUNT, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Test digits, two of them with a wrong label, so that the model is wrong before any attack."""
    _, test = digits()
    images, labels = test.batch(torch.arange(count))
    labels = labels.clone()
    labels[:2] = (labels[:2] + 1) % 10
    return images.to(dtype), labels
