"""What an attack refuses, with the reason."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_non_negative
from clearance.attacks.norms import check_norm
from clearance.vocabulary import Bounds


def check_radius(epsilon: float, norm: float, bounds: Bounds) -> None:
    """Raise ValueError unless `epsilon` is a radius of `norm` in the unit of `bounds`."""
    check_norm(norm)
    check_non_negative("epsilon", epsilon)
    width = bounds.upper - bounds.lower
    if norm == math.inf and epsilon > width:
        raise ValueError(
            f"`epsilon` must be at most {width:g}, the width of the bounds, in norm inf; got {epsilon}; "
            "it is in the unit of the pixels: divide grey levels by 255."
        )


def check_bounds(bounds: Any) -> None:
    """Raise TypeError unless these are :class:`Bounds`."""
    if not isinstance(bounds, Bounds):
        raise TypeError(
            f"`bounds` must be clearance.vocabulary.Bounds(lower, upper); got {type(bounds).__name__}."
        )


def check_mode(model: Any) -> None:
    """Raise ValueError if `model` is a module that is in training mode, or holds one that is."""
    if not isinstance(model, nn.Module):
        if getattr(model, "training", False):
            raise ValueError("`model` must not be in training mode; call `model.eval()` first.")
        return
    found = next((name for name, module in model.named_modules() if module.training), None)
    if found is not None:
        which = f"its {found!r} is in training mode" if found else "got one in training mode"
        raise ValueError(
            f"`model` must be in evaluation mode because dropout and batch normalisation would make its answer "
            f"depend on chance and on the other images; {which}; call `model.eval()` first."
        )
    found = next((name for name, module in model.named_modules() if _by_the_batch(module)), None)
    if found is not None:
        raise ValueError(
            f"`model` must answer to an image alone; its {found!r} normalises by the statistics of whatever images are "
            "asked together, also in evaluation mode. Give it running statistics (track_running_stats=True)."
        )


def _by_the_batch(module: nn.Module) -> bool:
    normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return normalises and module.running_mean is None and module.running_var is None


def check_images(images: Any, bounds: Bounds) -> None:
    """Raise unless `images` are a batch of floating point images within `bounds`."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"`images` must be a tensor of floating point numbers; got {got}.")
    if images.ndim < 2 or images[:1].numel() == 0 < len(images):
        raise ValueError(f"`images` must be of shape (B, ...); got {tuple(images.shape)}.")
    if not len(images):
        return
    low, high = (float(end) for end in images.detach().aminmax())
    if not (low >= bounds.lower and high <= bounds.upper):  # also where a pixel is not a number
        raise ValueError(
            f"`images` must lie in [{bounds.lower:g}, {bounds.upper:g}]; got values from {low:.6g} to {high:.6g}; "
            "normalise inside the model, not before it."
        )


def checked_classes(name: str, classes: Any, images: Tensor) -> Tensor:
    """Labels or targets as whole numbers on the device of `images`.

    Raises:
        TypeError: If they are not a tensor of whole numbers.
        ValueError: If there is not one for each image.
    """
    if not isinstance(classes, Tensor) or classes.is_floating_point() or classes.dtype == torch.bool:
        got = str(classes.dtype) if isinstance(classes, Tensor) else type(classes).__name__
        raise TypeError(f"`{name}` must be a tensor of whole numbers; got {got}.")
    if classes.shape != (len(images),):
        raise ValueError(
            f"`{name}` must be of shape ({len(images)},), one for each image; got {tuple(classes.shape)}."
        )
    return classes.detach().to(images.device, torch.long)


def check_other(targets: Tensor | None, labels: Tensor) -> None:
    """Raise ValueError if a target is the image's own label, which every image would reach as it is."""
    if targets is not None and len(same := (targets == labels).nonzero().flatten()):
        raise ValueError(
            f"`targets` must be other classes than `labels`; got the label itself, {int(labels[same[0]])}, for "
            f"{len(same)} of {len(labels)} images, the first at place {int(same[0])}. Leave those images out."
        )


def check_range(name: str, classes: Tensor, count: int) -> None:
    """Raise ValueError unless all `classes` are among the `count` that the model has logits for."""
    outside = classes[(classes < 0) | (classes >= count)]
    if len(outside):
        raise ValueError(
            f"`{name}` must lie in 0 ... {count - 1} because the model returns {count} logits; got {int(outside[0])}."
        )
