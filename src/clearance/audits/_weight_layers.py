"""The layers of a network that carry a weight matrix or kernels, in the order in which they run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from clearance.models.classifier import Classifier

NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
PASSING = (nn.Identity, _DropoutNd)  # what hands on just what it gets, in evaluation mode
WEIGHTED = (nn.Linear, _ConvNd, nn.MultiheadAttention)
DENSE = 64  # sides up to which all singular values are computed


@dataclass(frozen=True)
class WeightLayer:
    """One layer.

    Args:
        name: As in ``named_modules()``; of attention, with the name of the weight.
        weight: Its weight.
        groups: Parts of its channels that do not mix.
        normalised: Whether normalisation reads just what it gives, so that the size of its weight changes nothing but
            where a skip connection goes round it, which is not looked for.
    """

    name: str
    weight: Tensor
    groups: int
    normalised: bool


def weight_layers(model: Classifier, images: Tensor) -> list[WeightLayer]:
    """Linear layers, convolutions and attention of a network that run on some images, in that order, each once.

    Args:
        model: In evaluation mode.
        images: At least one.
    """
    trail = _Trail()
    names = {part: name for name, part in model.named_modules()}
    handles = [part.register_forward_hook(trail) for part, name in names.items() if _is_layer(part, name)]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return [
        WeightLayer(name, weight.detach(), getattr(part, "groups", 1), part in trail.normalised)
        for part in trail.ran
        for name, weight in _weights(part, names[part])
    ]


@dataclass
class _Trail:
    """A hook that follows what one layer hands to the next: by where it lies in memory, as long as it lies there."""

    ran: dict[nn.Module, None] = field(default_factory=dict)
    normalised: set[nn.Module] = field(default_factory=set)
    makers: dict[int, nn.Module | None] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)

    def __call__(self, part: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
        maker = None if given is None else self.makers.get(given.data_ptr())
        if isinstance(part, NORMALISATIONS) and maker is not None:
            self.normalised.add(maker)
        self.ran[part] = None
        if isinstance(output, Tensor):
            self.kept.append(output)
            carried = maker if isinstance(part, PASSING) else None
            self.makers[output.data_ptr()] = part if isinstance(part, WEIGHTED) else carried


def _is_layer(part: nn.Module, name: str) -> bool:
    """Whether a module is a layer; what a reparametrised one makes its weight with is none of its own."""
    if ".parametrizations." in f".{name}." or isinstance(part, torch.jit.ScriptModule):  # which takes no hook
        return False
    return isinstance(part, WEIGHTED) or next(part.children(), None) is None


def _weights(part: nn.Module, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, nn.MultiheadAttention):
        own = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        yield from ((f"{name}.{one}", getattr(part, one)) for one in own if getattr(part, one) is not None)
        yield f"{name}.out_proj", part.out_proj.weight
    elif isinstance(part, nn.Linear | _ConvNd):
        yield name, part.weight


def root_mean_square(weight: Tensor) -> float:
    """The typical size of an entry; infinite where one is not finite."""
    found = float(weight.double().square().mean().sqrt())
    return found if found == found else float("inf")


def spectral_norm(weight: Tensor, groups: int = 1) -> float:
    """The largest singular value of the weight as a matrix with a row for each output; infinite if not finite.

    Kernels are laid out flat: for a convolution this is the norm of the map from one patch to its outputs (of a
    transposed one, from one pixel to its patch), not of the whole layer. With groups it is that of the largest.

    >>> spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    4.0
    """
    matrices = weight.double().flatten(1).cpu()
    if not bool(torch.isfinite(matrices).all()):
        return float("inf")
    return max(_largest_singular_value(matrix) for matrix in matrices.chunk(groups))


def _largest_singular_value(matrix: Tensor) -> float:
    if min(matrix.shape) <= DENSE or not bool(matrix.any()):
        return float(torch.linalg.matrix_norm(matrix, ord=2))
    start = torch.ones(min(matrix.shape), dtype=torch.float64).numpy()  # the same number every time
    return float(svds(matrix.numpy(), k=1, v0=start, return_singular_vectors=False)[0])
