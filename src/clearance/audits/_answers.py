"""Whether a network's answers can be judged by attacks: logits, one answer an image, whatever else is asked with it."""

import torch
from torch import Tensor

from clearance.attacks.queries import CHUNK, Model, logits_of

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
            would say that the network is safe. If the answer to an image is drawn anew every time, or depends on the
            images that are asked with it: then there is no one answer to break.

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
            f"{name} must answer to an image alone; its logits depend on the images that are asked with it. Look for "
            "normalisation by the batch's own statistics (track_running_stats=False) or sums over the batch."
        )
    raise ValueError(
        f"{name} must give the same logits every time in evaluation mode; asked twice they differ. Look for noise or "
        "dropout that ignores eval(): what is drawn anew has no one answer to break. Judge its mean over many draws: a "
        "module that returns their average, with fixed noise."
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = torch.where(other.isfinite(), other, 0.0).double()
    # class by class: one that is masked by a large number says nothing of the others
    spread = wide.std(dim=0).max() if len(wide) > 1 else wide.std()
    close = (one.double() - wide).abs() <= ALIKE * spread + GRAIN * wide.abs()
    return bool((close | (one == other) | ~other.isfinite()).all())
