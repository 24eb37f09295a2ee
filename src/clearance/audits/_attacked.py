"""A network under attack: whether its answers can be judged by attacks, and which images survive them."""

from collections.abc import Iterable
from functools import cached_property

import torch
from torch import Tensor

from clearance.attacks.attack import AnyAttack, broken
from clearance.attacks.balls import random_starts
from clearance.attacks.losses import LOSSES
from clearance.attacks.queries import CHUNK, Model, gradients_of, logits_of
from clearance.attacks.straight_through import has_steps
from clearance.vocabulary import Bounds

SUMS_TO_ONE = 1e-3
ALIKE = 0.02  # of the spread of logits over images: rounding is below it, dropout and noise far above
GRAIN = 1e-5  # of a logit, for networks that say nearly the same of all images


def checked_logits(model: Model, images: Tensor, name: str = "the model") -> Tensor:
    """Logits of images, (B, C), by a network that attacks can judge.

    Args:
        model: In evaluation mode.
        images: (B, ...), at least one.
        name: What messages call the model.

    Raises:
        ValueError: If these are probabilities: where they round to 0 and 1 no attack sees a way, and the number
            would say that the network is safe. If the logits of an image are random, or depends on the
            other images in the batch: then there is no fixed output to attack.

    >>> checked_logits(torch.nn.Identity(), torch.tensor([[3.0, -1.0], [0.0, 2.0]])).shape
    torch.Size([2, 2])
    """
    logits = logits_of(model, images)
    _refuse_probabilities(logits, name)
    _refuse_other_answers(model, images, logits, name)
    return logits


def check_source(source: Model, images: Tensor, classes: int) -> None:
    """Raise ValueError unless images can be made on another network, before any attack has begun.

    Args:
        source: In evaluation mode.
        images: (B, ...), of which the first are asked.
        classes: How many logits the attacked network has.
    """
    try:
        logits = checked_logits(source, images[: 2 * CHUNK], "`source`")
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`source` must take the images that the model takes, {tuple(images.shape[1:])}, {images.dtype}; it fails "
            f"with {type(error).__name__}: {error}"
        ) from error
    if logits.shape[1] != classes:
        raise ValueError(
            f"`source` must have a logit for each of the model's {classes}; got {logits.shape[1]}. Give a network of "
            "the same classes in the same order."
        )


def _refuse_probabilities(logits: Tensor, name: str) -> None:
    sums = logits.double().sum(dim=1)
    if len(logits) > 1 and bool((logits >= 0).all()) and bool(((sums - 1).abs() < SUMS_TO_ONE).all()):
        raise ValueError(
            f"{name} must return logits; its outputs are at least 0 and sum to one for all {len(logits)} images, as "
            "probabilities do, whose gradient vanishes where they round to 0 and 1. Remove the softmax from the model."
        )


def _refuse_other_answers(model: Model, images: Tensor, logits: Tensor, name: str) -> None:
    """Ask every other image of the first ones again, which are then in other company."""
    rows = torch.arange(0, min(len(images), 2 * CHUNK), 2, device=images.device)
    again = logits_of(model, images[rows])
    if _alike(again, logits[rows]):
        return
    if _alike(logits_of(model, images[rows]), again):
        raise ValueError(
            f"{name} must classify each image independently; its logits depend on the other images in the batch. "
            "Look for "
            "normalisation by the batch's own statistics (track_running_stats=False) or sums over the batch."
        )
    raise ValueError(
        f"{name} must give the same logits every time in evaluation mode; two calls differ. Look for noise or "
        "dropout that ignores eval(): a random output cannot be attacked. Judge its mean over many draws: a "
        "module that returns their average, with fixed noise."
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = torch.where(other.isfinite(), other, 0.0).double()
    # class by class: one that is masked by a large number says nothing of the others
    spread = wide.std(dim=0).max() if len(wide) > 1 else wide.std()
    close = (one.double() - wide).abs() <= ALIKE * spread + GRAIN * wide.abs()
    return bool((close | (one == other) | ~other.isfinite()).all())


SLICE = 2**26  # bytes of images that are attacked at once: an attack takes some thirty times that


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


def blind_share(model: Model, images: Tensor, labels: Tensor, loss: str) -> float:
    """Share of images where the loss has a gradient of exactly zero (or none that is a number).

    >>> import torch
    >>> blind_share(lambda images: images.round(), torch.tensor([[0.9, 0.1]]), torch.tensor([0]), "logit_margin")
    1.0
    """
    if not len(images):
        return 0.0
    _, gradients = gradients_of(model, images, lambda logits, rows: LOSSES[loss](logits, labels[rows]))
    seen = (gradients.isfinite() & (gradients != 0)).flatten(1).any(dim=1)
    return float((~seen).double().mean())


def share(alive: Tensor) -> float:
    """Share of images that are alive."""
    return float(alive.double().mean())


BOUNDS = Bounds()


class Target:
    """What one audit attacks, asked once for what does not depend on a radius.

    Args:
        model: In evaluation mode.
        images: (B, ...).
        labels: (B,).
        source: A network whose gradients make images too, in evaluation mode; None if there is none.
        seed: Of everything drawn.

    Raises:
        ValueError: If either gives probabilities, or no one answer to an image (see :func:`checked_logits`), or the
            source has other classes or takes other images.
    """

    def __init__(
        self, model: Model, images: Tensor, labels: Tensor, source: Model | None = None, seed: int = 0
    ) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.source, self.seed = source, seed
        logits = checked_logits(model, images)
        self.classes = logits.shape[1]
        self.unnumbered = share(~logits.isfinite().all(dim=1))
        if source is not None:
            check_source(source, images, self.classes)
        self.right = ~broken(logits, labels)
        self._blind: dict[str, float] = {}

    def left(self, attacks: Iterable[AnyAttack], alive: Tensor | None = None) -> Tensor:
        """The images that no attack breaks, of those alive, by default of those that are right."""
        begin = self.right if alive is None else alive
        return survivors(self.model, self.images, self.labels, attacks, begin)

    def under_noise(self, norm: float, epsilon: float) -> Tensor:
        """The images that stay right at one point of the ball that is drawn for each."""
        noise = random_starts(self.images, epsilon, norm, BOUNDS, seed=self.seed, stream=0)
        return self.right & ~broken(logits_of(self.model, self.images + noise), self.labels)

    @cached_property
    def steps(self) -> bool:
        """Whether the model rounds on the way, or stops gradients that would count."""
        return has_steps(self.model, self.images)

    def blind(self, loss: str) -> float:
        """Share of right images where a loss has no gradient."""
        if loss not in self._blind:
            self._blind[loss] = blind_share(
                self.model, self.images[self.right], self.labels[self.right], loss
            )
        return self._blind[loss]
