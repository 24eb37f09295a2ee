"""Inputs that models are trained with: what their pixels may have to become, other than what was asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.data import ImageSet
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CAFFE = (103.939, 116.779, 123.68)  # mean of blue, green, red in 0..255
_BATCH = 64
_FLIP = "Put a layer in front of the model that turns the channels: x.flip(1)."


@dataclass(frozen=True)
class InputWay:
    """One way to prepare images.

    Args:
        name: What it is called.
        remedy: What to do where it is the right one.
        prepared: Images in [0, 1], (B, C, H, W), to what the module sees.
    """

    name: str
    remedy: str
    prepared: Callable[[Tensor], Tensor]


def input_ways(model: Classifier, images: Tensor) -> Iterator[InputWay]:
    """The usual ways, other than the model's own, the published ones first: normalisation, values up to 255, colours.

    Args:
        model: With the normalisation that was asked for.
        images: In [0, 1], (B, C, H, W): their own mean and standard deviation are one of the ways, because many
            scripts take those of their training images.

    >>> from torch import nn
    >>> model = Classifier(nn.Flatten(), nn.Linear(4, 2))
    >>> [way.name for way in input_ways(model, torch.rand(3, 1, 2, 2))]
    ['no normalisation', 'mean 0.5 and std 0.5', 'values up to 255', "the images' own mean and std"]
    """
    yield InputWay("no normalisation", "Leave out --mean and --std.", lambda images: images)
    yield InputWay("mean 0.5 and std 0.5", "Give --mean 0.5 --std 0.5.", _normalised([0.5], [0.5]))
    yield InputWay(
        "values up to 255",
        f"Give --mean 0 --std {1 / 255:.9f}, and no other normalisation.",
        lambda images: 255 * images,
    )
    if images.shape[1] == 3:
        yield from _of_colours(model)
    mean, std = images.mean(dim=(0, 2, 3)).tolist(), images.std(dim=(0, 2, 3)).clamp(min=1e-3).tolist()
    yield InputWay(
        "the images' own mean and std",
        f"Give those of the training script, about --mean {_joined(mean)} --std {_joined(std)}.",
        _normalised(mean, std),
    )


def _of_colours(model: Classifier) -> Iterator[InputWay]:
    def as_given(images: Tensor) -> Tensor:
        return (images - model.mean) / model.std

    numbers = [",".join(map(str, values)) for values in IMAGENET]
    yield InputWay(
        "ImageNet's mean and std", f"Give --mean {numbers[0]} --std {numbers[1]}.", _normalised(*IMAGENET)
    )
    yield InputWay("channels in the order blue, green, red", _FLIP, lambda images: as_given(images).flip(1))
    caffe = _normalised([0.0], [1 / 255])
    yield InputWay(
        "Caffe's input (blue, green, red up to 255 less their mean)",
        f"{_FLIP} Give --mean {','.join(f'{each / 255:.4f}' for each in reversed(_CAFFE))} --std {1 / 255:.9f}.",
        lambda images: caffe(images).flip(1) - torch.tensor(_CAFFE).view(-1, 1, 1).to(images),
    )


def right_when(model: Classifier, data: ImageSet, way: InputWay | None = None) -> Tensor:
    """Which images the model is right on if the module saw what `way` makes of them; (N,) bool, on the CPU."""
    device = device_of(model)
    found = []
    with evaluating(model):
        for images, labels in data.batches(_BATCH):
            seen = images.to(device)
            if way is not None:  # undo the model's own normalisation, which comes next
                seen = way.prepared(seen) * model.std + model.mean
            logits = model(seen)
            found.append((logits.argmax(dim=1).cpu() == labels.cpu()) & logits.isfinite().all(dim=1).cpu())
    return torch.cat(found)


def _normalised(mean: Sequence[float], std: Sequence[float]) -> Callable[[Tensor], Tensor]:
    shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return lambda images: (images - shift.to(images)) / scale.to(images)


def _joined(values: Sequence[float]) -> str:
    return ",".join(f"{value:.3f}" for value in values)
