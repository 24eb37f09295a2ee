"""Which images survive a row of attacks: the worst case over all of them, image by image."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from clearance.attacks.attack import AnyAttack, Attack
from clearance.attacks.gradient import FGSM, PGD
from clearance.attacks.queries import CHUNK, Model

STARTS = 5  # the image itself and four random ones
RIVALS = 3
SLICE = 2**26  # bytes of images that are attacked at once: an attack takes some thirty times that
NORM_NAMES = {math.inf: "inf", 2.0: "2", 1.0: "1"}


def scale_free_attacks(norm: float, epsilon: float, classes: int, steps: int, seed: int) -> list[Attack]:
    """White-box attacks whose loss ignores the scale of logits, cheap ones first.

    The same direction of attack is tried under three losses, because each has networks that it is stuck on:
    the margin sees one rival at a time, the difference-of-logits ratio bends where the third logit comes near,
    scaled cross-entropy sees every class.
    """
    losses = ["logit_margin", "scaled_cross_entropy"]
    if classes > 2:  # the ratio needs a third logit; with two classes there is one rival, and no choice of it
        losses.append("dlr")
    attacks: list[Attack] = [FGSM(epsilon, norm, loss=loss) for loss in losses]
    attacks += [PGD(epsilon, norm, loss=loss, steps=steps, restarts=STARTS, seed=seed) for loss in losses]
    if classes > 2:
        attacks.append(PGD(epsilon, norm, steps=steps, restarts=STARTS, targets=RIVALS, seed=seed))
    return attacks


def cross_entropy_attacks(norm: float, epsilon: float, steps: int) -> list[Attack]:
    """The attacks of most papers, which the scale of logits can mislead."""
    return [FGSM(epsilon, norm), PGD(epsilon, norm, loss="cross_entropy", steps=steps)]


def survivors(
    model: Model, images: Tensor, labels: Tensor, attacks: Iterable[AnyAttack], alive: Tensor | None = None
) -> Tensor:
    """The images that no attack breaks, (B,); one that is broken is not attacked again.

    Args:
        model: In evaluation mode.
        images: (B, ...).
        labels: (B,).
        attacks: In the order in which they are tried.
        alive: Images to begin with, by default all; the rest counts as broken.

    >>> from clearance.attacks import FGSM
    >>> images, model = torch.tensor([[0.9, 0.1], [0.6, 0.5]]), torch.nn.Identity().eval()
    >>> survivors(model, images, torch.tensor([0, 0]), [FGSM(0.1), FGSM(0.2)])
    tensor([ True, False])
    """
    alive = torch.ones_like(labels, dtype=torch.bool) if alive is None else alive.clone()
    for attack in attacks:
        for rows in alive.nonzero().flatten().split(_at_once(images)):
            if len(rows):
                alive[rows[attack(model, images[rows], labels[rows]).success]] = False
    return alive


def _at_once(images: Tensor) -> int:
    """Images that are attacked at once: whole chunks, so that the model sees the same ones together."""
    return max(1, SLICE // (images[:1].nbytes * CHUNK)) * CHUNK
