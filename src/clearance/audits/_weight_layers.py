"""The layers of a network that carry a weight matrix or kernels, in the order in which they run."""

from dataclasses import dataclass

import torch
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from clearance.models._observe import observed_calls
from clearance.models.classifier import Classifier

NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
DENSE = 64  # sides up to which all singular values are computed


@dataclass(frozen=True)
class WeightLayer:
    """One layer.

    Args:
        name: As in ``named_modules()``.
        weight: Its weight.
        normalised: Whether normalisation runs directly after it, so that the size of its weight changes nothing but
            where a skip connection goes round it, which is not looked for.
    """

    name: str
    weight: Tensor
    normalised: bool


def weight_layers(model: Classifier, images: Tensor) -> list[WeightLayer]:
    """Linear layers and convolutions of a network that run on some images, in that order, each once.

    Args:
        model: In evaluation mode.
        images: At least one.
    """
    _, calls = observed_calls(model, images)
    names = {part: name for name, part in model.named_modules()}
    leaves = [call.module for call in calls if _is_leaf(call.module, names[call.module])]
    after = dict(zip(leaves, [*leaves[1:], None], strict=True))
    return [
        WeightLayer(names[part], part.weight.detach(), isinstance(after[part], NORMALISATIONS))
        for part in dict.fromkeys(leaves)
        if isinstance(part, nn.Linear | _ConvNd)
    ]


def _is_leaf(part: nn.Module, name: str) -> bool:
    """Whether a module is a layer; what a reparametrised one makes its weight with is none of its own."""
    if ".parametrizations." in f".{name}.":
        return False
    return isinstance(part, nn.Linear | _ConvNd) or next(part.children(), None) is None


def root_mean_square(weight: Tensor) -> float:
    """The typical size of an entry; infinite where one is not finite."""
    found = float(weight.double().square().mean().sqrt())
    return found if found == found else float("inf")


def spectral_norm(weight: Tensor) -> float:
    """The largest singular value of the weight as a matrix with a row for each output; infinite if not finite.

    Kernels are laid out flat: for a convolution this is the norm of the map from one patch to its outputs, not of the
    whole layer.

    >>> spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    4.0
    """
    matrix = weight.double().flatten(1).cpu()
    if not bool(torch.isfinite(matrix).all()):
        return float("inf")
    if min(matrix.shape) <= DENSE or not bool(matrix.any()):
        return float(torch.linalg.matrix_norm(matrix, ord=2))
    start = torch.ones(min(matrix.shape), dtype=torch.float64).numpy()  # the same number every time
    return float(svds(matrix.numpy(), k=1, v0=start, return_singular_vectors=False)[0])
