"""What keeps a training run honest: bounded gradients and weights, and the signs of a run that failed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearance.data.image_set import ImageSet
from clearance.models.classifier import Classifier
from clearance.models.features import extract_features, predictions
from clearance.vocabulary import Outcome

PROBE_IMAGES = 256
TRAINING_IMAGES = 10_000  # so many tell a network that learns from labels of which 80 % are wrong from chance
FLAT = 1e-4  # spread of features over their size; float32 rounding alone gives about 1e-7


def limit_gradients(
    optimizer: Optimizer, parameters: Sequence[nn.Parameter], clip_norm: float | None
) -> None:
    """Clip the norm of the whole gradient before each step of `optimizer`."""
    if clip_norm is not None:

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(parameters, clip_norm)

        optimizer.register_step_pre_hook(clip)


def limit_weights(optimizer: Optimizer, parameters: Sequence[nn.Parameter], max_norm: float | None) -> None:
    """Bound every unit's incoming weights after each step of `optimizer`."""
    if max_norm is not None:

        def bound(*_: Any) -> None:
            for parameter in parameters:
                if parameter.ndim > 1:
                    bound_rows(parameter, max_norm)

        optimizer.register_step_post_hook(bound)


@torch.no_grad()
def bound_rows(weight: Tensor, max_norm: float) -> None:
    """Rescale, in place, every unit whose incoming weights (a row, or a filter) have a norm above max_norm.

    >>> weight = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    >>> bound_rows(weight, 1.0)
    >>> weight
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    norms = weight.flatten(1).norm(dim=1).view(-1, *[1] * (weight.ndim - 1))
    weight.mul_(max_norm / norms.clamp(min=max_norm))  # not its flat view, which channels_last makes a copy


def collapse_reason(model: Classifier, data: ImageSet) -> str | None:
    """Why this extractor counts as collapsed, or None: a sample of training images all get equal features."""
    rows = torch.linspace(0, len(data) - 1, min(PROBE_IMAGES, len(data))).long()
    features = extract_features(model, data.subset(rows.to(data.images.device)))
    if not bool(features.isfinite().all()):
        return None
    size = float(features.square().mean().sqrt())
    spread = float(features.std(dim=0, correction=0).square().mean().sqrt())
    if spread <= FLAT * size:
        return f"all features are equal (spread {spread:.1e}, size {size:.1e}); lower the learning rate"
    return None


def untrained_reason(
    model: Classifier, data: ImageSet, label_noise: float = 0.0
) -> tuple[Outcome, str] | None:
    """How and why a run that came to its end has failed all the same, or None.

    Args:
        model: As it was trained.
        data: What it was trained on.
        label_noise: Share of its labels that are known to be wrong: the truth alone is right on the others.
    """
    finite = all(bool(value.isfinite().all()) for value in model.state_dict().values())
    if not finite:
        return Outcome.DIVERGED, "the trained weights are not finite"
    if (flat := collapse_reason(model, data)) is not None:
        return Outcome.COLLAPSED, flat
    rows = torch.linspace(0, len(data) - 1, min(TRAINING_IMAGES, len(data))).long()
    some = data.subset(rows.to(data.images.device))
    accuracy = float((predictions(model, some) == some.labels).double().mean())
    largest = float(torch.bincount(some.labels).max()) / len(some)
    chance = 3 * (largest * (1 - largest) / len(some)) ** 0.5
    gain = 1 - label_noise - largest
    # In a small or lopsided set chance reaches up to all there is to gain; half of that is no chance.
    if gain > 0 and accuracy <= largest + min(chance, gain / 2):
        return Outcome.COLLAPSED, (
            f"training accuracy {accuracy:.3f} is no better than always naming the largest class "
            f"({largest:.3f}); lower the learning rate, or train longer"
        )
    return None
