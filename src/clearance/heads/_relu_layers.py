"""Linear layers with ReLU between them, for K heads at once, forward and backward by hand.

Written out because one batched product per layer costs a fraction of a module and autograd call when the
layers are small: this is the inner loop of FOCA and of the audits.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

WeightAndBias = tuple[Tensor, Tensor | None]


def linear_layers(architecture: nn.Module) -> list[tuple[str, str | None]] | None:
    """Names of (weight, bias) layer by layer, or None if this is not Linear (ReLU Linear)*.

    Exact types only: a subclass may compute something else, and a module or a tensor that is used twice
    is listed once.
    """
    if not _each_parameter_once(architecture):
        return None
    if type(architecture) is nn.Linear:
        return [("weight", "bias" if architecture.bias is not None else None)]
    if not _is_sequential(architecture) or len(list(architecture.children())) < len(architecture):
        return None
    names: list[tuple[str, str | None]] = []
    expects_linear = True
    for name, module in architecture.named_children():
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not module.training):
            continue
        if expects_linear and type(module) is nn.Linear:
            names.append((f"{name}.weight", f"{name}.bias" if module.bias is not None else None))
        elif expects_linear or type(module) is not nn.ReLU:
            return None
        expects_linear = not expects_linear
    if expects_linear or set(dict(architecture.named_parameters())) != {
        n for pair in names for n in pair if n
    }:
        return None
    return names


def _is_sequential(module: nn.Module) -> TypeGuard[nn.Sequential]:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _each_parameter_once(architecture: nn.Module) -> bool:
    named = dict(architecture.named_parameters(remove_duplicate=False))
    return len(named) == len({id(value) for value in named.values()})


def first_linear_weight(architecture: nn.Module) -> str | None:
    """Name of the weight that features meet first, or None where that is not a linear layer's."""
    prefix = ""
    module = architecture
    if not _each_parameter_once(architecture):
        return None
    while _is_sequential(module):
        children = [
            pair for pair in module.named_children() if not isinstance(pair[1], nn.Identity | nn.Dropout)
        ]
        if not children:
            return None
        name, module = children[0]
        prefix += f"{name}."
    name = f"{prefix}weight"
    return name if type(module) is nn.Linear and name in dict(architecture.named_parameters()) else None


def apply_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Inputs (K, n, i) or (n, i) times weight (K, o, i), plus bias (K, o): shape (K, n, o)."""
    if inputs.ndim == 2:
        heads, width, _ = weight.shape
        # One product for all heads reads the shared inputs once.
        shared = inputs @ weight.reshape(heads * width, -1).T
        out = shared.view(len(inputs), heads, width).transpose(0, 1)
        return out if bias is None else out + bias[:, None]
    if bias is None:
        return torch.bmm(inputs, weight.mT)
    return torch.baddbmm(bias[:, None], inputs, weight.mT)


def relu_forward(layers: Sequence[WeightAndBias], features: Tensor) -> Tensor:
    """Logits (K, n, C) of K heads for features (n, D) or (K, n, D)."""
    hidden = features
    for weight, bias in layers[:-1]:
        hidden = torch.relu(apply_linear(hidden, weight, bias))
    return apply_linear(hidden, *layers[-1])


def relu_backward(
    layers: Sequence[WeightAndBias],
    gradients: Sequence[WeightAndBias],
    activations: Sequence[Tensor],
    delta: Tensor,
) -> Tensor:
    """Write the gradient of each layer into `gradients`; return that of the first layer's output.

    Args:
        layers: The weights and biases of all layers but the first, which the caller handles.
        gradients: Where to write, shaped like `layers`.
        activations: What entered each of `layers`, shape (K, n, i), after ReLU.
        delta: Gradient of the logits, shape (K, n, C).
    """
    for (weight, _), (grad_weight, grad_bias), entered in zip(
        reversed(layers), reversed(gradients), reversed(activations), strict=True
    ):
        torch.bmm(delta.mT, entered, out=grad_weight)
        if grad_bias is not None:
            torch.sum(delta, dim=1, out=grad_bias)
        # relu'(z) is 1 where its output is above 0
        delta = torch.ops.aten.threshold_backward(torch.bmm(delta, weight), entered, 0)
    return delta
