"""What a user gives beside a trained model, an example and a normalisation, and what the model gives back."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearance.data.preprocessing import Preprocessing, preprocessing_of

_LARGEST = {"mean": 1.0, "std": 2.0}  # for images in [0, 1]; larger values mean images up to 255


def checked_example(example: Tensor) -> Tensor:
    """The example.

    Raises:
        ValueError: Unless it is a batch of images in [0, 1].
    """
    if not isinstance(example, Tensor) or example.ndim != 4 or not len(example):
        got = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise ValueError(f"`example` must be a batch of images of shape (B, C, H, W); got {got}.")
    if not example.is_floating_point():
        raise ValueError(
            f"`example` must hold floating-point images in [0, 1]; got {example.dtype}. Divide by 255.0."
        )
    low, high = float(example.min()), float(example.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"`example` must hold images in [0, 1]; got values from {low:.4g} to {high:.4g}. Divide by 255, "
            "or, if they are already normalised, pass the images before that and give wrap `mean` and `std`."
        )
    return example


def normalisation_of(
    example: Tensor, mean: float | Sequence[float], std: float | Sequence[float], preprocessing: Any = None
) -> tuple[Tensor, Tensor]:
    """Mean and std per channel, from `preprocessing` if that is given.

    Raises:
        ValueError: As :func:`wrap` does.
    """
    if preprocessing is not None:
        found = preprocessing_of(preprocessing)
        if isinstance(preprocessing, Preprocessing) and (found.mean, found.std) == (None, None):
            return normalisation_of(example, mean, std)  # it is about sizes alone
        if (mean, std) != (0.0, 1.0):
            raise ValueError(
                f"give `preprocessing`, or `mean` and `std`, not both; got `preprocessing`, mean {mean} and std {std}."
            )
        if found.mean is None or found.std is None:
            raise ValueError(
                f"`preprocessing` must hold mean and std; got a {type(preprocessing).__name__} without. Give `mean` "
                "and `std`."
            )
        mean, std = found.mean, found.std
    return _per_channel("mean", mean, example), _per_channel("std", std, example)


def _per_channel(name: str, value: float | Sequence[float], example: Tensor) -> Tensor:
    channels = torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1)
    if len(channels) not in (1, example.shape[1]):
        raise ValueError(
            f"`{name}` must be one value or one per channel ({example.shape[1]} in the example); got {value}."
        )
    check_of_unit_images(name, channels.flatten().tolist())
    return channels.to(example)


def check_of_unit_images(name: str, values: Sequence[float]) -> None:
    """Raise ValueError for a mean or standard deviation of images up to 255, or one that nothing can be divided by.

    >>> check_of_unit_images("mean", (0.485, 0.456, 0.406))
    """
    if name == "std" and not all(value > 0 for value in values):
        got = ", ".join(f"{value:g}" for value in values)
        raise ValueError(f"`std` must be above 0 in every channel; got {got}.")
    if any(not value <= _LARGEST[name] for value in values):  # nan too
        raise ValueError(
            f"`{name}` must be for images in [0, 1], at most {_LARGEST[name]:g}; got "
            f"{', '.join(f'{value:g}' for value in values)}. If `mean` and `std` are for images up to 255, divide both "
            "by 255."
        )


class ExampleError(ValueError):
    """A model fails on the example."""


def failed_on(name: str, inputs: Tensor, error: Exception) -> ExampleError:
    """The error about a model that fails on the example."""
    return ExampleError(
        f"`{name}` must take the example as its only argument, shape {tuple(inputs.shape)}, {inputs.dtype} on "
        f"{inputs.device}; it fails with {type(error).__name__}: {' '.join(str(error).split())}"
    )


def logits_entries(output: Any) -> dict[str, Tensor]:
    """The tensors of an output that may be its logits, by name; only one if it is clear which.

    A tensor is the logits. If there is an attribute or key `logits`, as in libraries that return objects, only that
    counts (not a loss, hidden states or an auxiliary head's logits). Otherwise every tensor.

    >>> import torch
    >>> list(logits_entries({"logits": torch.zeros(2, 3), "aux": torch.zeros(2, 3)}))
    ['logits']
    >>> list(logits_entries((torch.zeros(2, 3), torch.zeros(2, 4))))
    ['0', '1']
    """
    if isinstance(output, Tensor):
        return {"": output}
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return {"logits": named}
    if isinstance(output, Mapping):
        entries = {str(name): value for name, value in output.items()}
    elif isinstance(output, (tuple, list)):
        entries = dict(zip(getattr(output, "_fields", map(str, range(len(output)))), output, strict=True))
    else:
        entries = {}
    return {name: value for name, value in entries.items() if isinstance(value, Tensor)}
