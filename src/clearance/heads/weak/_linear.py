"""Shared by closed-form weak heads: checks of the head and its batches, and the stack of solutions."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clearance._precision import at_least_float32
from clearance.heads.stack import HeadStack, linear_layers
from clearance.heads.train import TrainedHeads


def linear_names(architecture: nn.Module, kind: str) -> tuple[str, str]:
    """Names of the weight and the bias of a head that is one linear layer.

    Raises:
        ValueError: If it is anything else; `kind` names the weak heads in the message.
    """
    layers = linear_layers(architecture)
    if layers is None or len(layers) != 1 or layers[0][1] is None:
        raise ValueError(
            f"{kind} need a head that is one nn.Linear with a bias, because only that has a closed form; got "
            f"{type(architecture).__name__}. Give the model such a head, or draw GradientHeads."
        )
    weight, bias = layers[0]
    assert bias is not None
    return weight, bias


def check_batches(features: Tensor, labels: Tensor, classes: int) -> None:
    """Raise ValueError unless features are (K, n, D) and labels (K, n), of `classes` classes."""
    check_batch_shapes(features, labels)
    if bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(
            f"`labels` must lie in 0 .. {classes - 1}, because the head has {classes} outputs; got "
            f"{int(labels.min())} .. {int(labels.max())}."
        )


def check_batch_shapes(features: Tensor, labels: Tensor) -> None:
    """Raise ValueError unless features are (K, n, D) and labels (K, n)."""
    if features.ndim != 3 or labels.shape != features.shape[:2]:
        raise ValueError(
            f"`features` must be (K, n, D) and `labels` (K, n); got {tuple(features.shape)} and "
            f"{tuple(labels.shape)}."
        )


def solved_heads(architecture: nn.Module, solution: Mapping[str, Tensor], like: Tensor) -> TrainedHeads:
    """K solutions, each parameter (K, ...), as heads for features such as `like`."""
    dtype = at_least_float32(like).dtype  # as trained heads are
    parameters = {name: value.to(dtype) for name, value in solution.items()}
    finite = [value.isfinite().flatten(1).all(dim=1) for value in parameters.values()]
    return TrainedHeads(HeadStack(architecture, parameters), ~torch.stack(finite).all(dim=0))
