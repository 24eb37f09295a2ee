"""K heads of one architecture as stacked tensors, and the closed form for linear layers with ReLU."""

import copy
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from clearance._checks import check_count, check_non_negative
from clearance.heads.gaussian_mixture import GaussianMixture

WeightAndBias = tuple[Tensor, Tensor | None]


class HeadStack:
    """K heads of one architecture whose parameters are stacked along a first axis.

    Args:
        architecture: A head, shape (B, D) to (B, C); its own parameters are never changed.
        parameters: For each parameter name of `architecture` a tensor of shape (K, *its shape).

    Shapes:
        ``stack(features)`` is (K, B, C), for features (B, D) that all heads read, or (K, B, D), where
        head k reads ``features[k]``. It can be differentiated with respect to features.

    Raises:
        ValueError: If a parameter is missing, its shape does not fit, the head has none, holds buffers
            (batch normalisation: K heads cannot share running statistics), or runs one layer twice.

    >>> stack = HeadStack.initialised(nn.Linear(4, 3), count=5, generator=torch.Generator().manual_seed(0))
    >>> len(stack), stack(torch.zeros(2, 4)).shape
    (5, torch.Size([5, 2, 3]))
    """

    def __init__(self, architecture: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        _refuse_buffers(architecture)
        _refuse_repeated_layers(architecture)
        shapes = {name: tuple(value.shape) for name, value in architecture.named_parameters()}
        if set(shapes) != set(parameters):
            raise ValueError(f"`parameters` must name {sorted(shapes)}; got {sorted(parameters)}.")
        if not shapes:
            raise ValueError(f"a head in a stack must have parameters; got {architecture}.")
        count = len(next(iter(parameters.values())))
        for name, shape in shapes.items():
            if tuple(parameters[name].shape) != (count, *shape):
                raise ValueError(
                    f"parameter {name!r} must have shape (K, {', '.join(map(str, shape))}) with K = {count}; "
                    f"got {tuple(parameters[name].shape)}."
                )
        self.architecture = architecture
        self.parameters = {name: parameters[name].detach() for name in shapes}

    @classmethod
    def initialised(
        cls, architecture: nn.Module, count: int, generator: torch.Generator, std: float = 0.1
    ) -> "HeadStack":
        """K fresh heads: weights N(0, std^2), biases of linear and convolutional layers 0.

        Weights are all parameters of two dimensions or more but those of nn.LayerNorm, both of a layer with
        `weight_norm` too, and the means of a Gaussian mixture, whose variances keep their values. A scale of one value
        is kept.

        Args:
            architecture: Gives shapes, dtype and device; all other parameters keep its values.
            count: K.
            generator: On the CPU, so that a seed gives the same heads on every device and in every dtype.
            std: Standard deviation of the weights; 0.1 as in Sato et al. (2019), section 4.
        """
        check_count("count", count)
        check_non_negative("std", std)
        drawn = {}
        named = dict(architecture.named_parameters())  # a tensor that two layers share has one name here
        for prefix, module in architecture.named_modules():
            for name, value in module.named_parameters(prefix, recurse=False):
                if name not in named:
                    continue
                stacked = value.detach().expand(count, *value.shape).clone()
                if _is_drawn(module, name, value):
                    stacked = torch.zeros(stacked.shape, dtype=torch.float32, device="cpu")
                    if value.ndim > 1:
                        stacked.normal_(0.0, std, generator=generator)
                    stacked = stacked.to(value)
                drawn[name] = stacked
        return cls(architecture, drawn)

    @classmethod
    def of(cls, head: nn.Module) -> "HeadStack":
        """A stack of one: a copy of `head`."""
        return cls(head, {name: value.detach()[None].clone() for name, value in head.named_parameters()})

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def __call__(self, features: Tensor) -> Tensor:
        """Logits of every head, shape (K, B, C)."""
        layers = linear_layers(self.architecture)
        if layers is not None:
            return relu_forward(weights_and_biases(self.parameters, layers), features)
        own = 0 if features.ndim == 3 else None
        forward = vmap(self._call_one, in_dims=(0, own), randomness="different")
        return forward(self.parameters, features)

    def _call_one(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        return functional_call(self.architecture, parameters, (features,))

    def __getitem__(self, k: int) -> nn.Module:
        """Head k as an ordinary module with frozen parameters."""
        head = copy.deepcopy(self.architecture)
        if next(iter(self.parameters.values())).dtype == torch.float64:  # nothing is lost
            head = head.double()
        with torch.no_grad():
            for name, value in head.named_parameters():
                value.copy_(self.parameters[name][k])
        return head.requires_grad_(requires_grad=False)

    def absorbing_scale(self, scale: Tensor) -> "HeadStack | None":
        """Heads whose logits on features equal those of these heads on features / scale; None if that is not exact.

        It is exact if the first layer is linear: its weight is divided by the scale.
        """
        name = first_linear_weight(self.architecture)
        if name is None:
            return None
        return self.holding({**self.parameters, name: self.parameters[name] / scale.detach()})

    def select(self, chosen: Tensor) -> "HeadStack":
        """The heads at a boolean mask or an index tensor."""
        return self.holding({name: value[chosen] for name, value in self.parameters.items()})

    def holding(self, parameters: dict[str, Tensor]) -> "HeadStack":
        """Heads of the same architecture with other parameters, whose names and shapes are not checked."""
        # Checking them would cost more than a training step of a small head.
        stack = object.__new__(HeadStack)
        stack.architecture, stack.parameters = self.architecture, parameters
        return stack

    @torch.no_grad()
    def predictions(self, features: Tensor, chunk_elements: int = 2**24) -> Tensor:
        """The class that each head gives each sample, shape (K, B); -1 where its logits are not finite.

        Args:
            features: (B, D), read by every head.
            chunk_elements: Samples are processed in chunks so that no hidden layer of all heads together has
                more elements than this; it bounds memory and does not change the result.
        """
        widest = max(value.shape[1] for value in self.parameters.values() if value.ndim > 1)
        rows = max(1, chunk_elements // (len(self) * widest))
        chunks = []
        for part in features.split(rows):
            logits = self(part)
            best = logits.argmax(dim=-1)
            chunks.append(torch.where(logits.isfinite().all(dim=-1), best, -1))
        return torch.cat(chunks, dim=1)


def _is_drawn(module: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a parameter is a weight, or the bias of one; not a scale, which has one value or is a normalisation's."""
    if isinstance(module, GaussianMixture):
        return name.endswith("means")
    layers = nn.Linear | nn.modules.conv._ConvNd | nn.utils.parametrize.ParametrizationList
    return isinstance(module, layers) or (
        sum(size > 1 for size in value.shape) > 1 and not isinstance(module, nn.LayerNorm)
    )


def _refuse_buffers(architecture: nn.Module) -> None:
    buffers = [name for name, _ in architecture.named_buffers()]
    if buffers:
        raise ValueError(
            f"a head in a stack must not hold buffers; got {buffers}. Batch normalisation mixes samples and "
            "keeps running statistics, which K heads cannot share: use norm='none' or nn.LayerNorm."
        )


def _refuse_repeated_layers(architecture: nn.Module) -> None:
    layers = [m for m in architecture.modules() if next(m.parameters(recurse=False), None) is not None]
    for layer in layers:
        names = [n for n, m in architecture.named_modules(remove_duplicate=False) if m is layer]
        if len(names) > 1:
            raise ValueError(
                f"a head in a stack must not hold one layer twice; got {type(layer).__name__} at {names}. "
                "torch.func cannot stack it: give two layers the same weight instead."
            )


def linear_layers(architecture: nn.Module) -> list[tuple[str, str | None]] | None:
    """Names of (weight, bias) layer by layer, or None if this is not Linear (ReLU Linear)*.

    Only exact types without hooks count, because others may compute something else; nor may a module or tensor be used
    twice.
    """
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in architecture.modules())
    if hooked or not _each_parameter_once(architecture):
        return None
    names: list[tuple[str, str | None]]
    if type(architecture) is nn.Linear:
        names = [("weight", None if architecture.bias is None else "bias")]
    else:
        names = _alternating_with_relu(architecture)
    # under torch.nn.utils.weight_norm a layer's weight is no parameter of it
    own = set(dict(architecture.named_parameters()))
    return names if names and own == {name for pair in names for name in pair if name} else None


def _alternating_with_relu(architecture: nn.Module) -> list[tuple[str, str | None]]:
    """The names, if this is a sequence of Linear (ReLU Linear)*; otherwise an empty list."""
    if not _is_sequential(architecture) or len(list(architecture.children())) < len(architecture):
        return []
    names: list[tuple[str, str | None]] = []
    expects_linear = True
    for name, module in architecture.named_children():
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not module.training):
            continue
        if expects_linear and type(module) is nn.Linear:
            names.append((f"{name}.weight", f"{name}.bias" if module.bias is not None else None))
        elif expects_linear or type(module) is not nn.ReLU:
            return []
        expects_linear = not expects_linear
    return [] if expects_linear else names


def weights_and_biases(
    named: Mapping[str, Tensor], layers: Sequence[tuple[str, str | None]]
) -> list[WeightAndBias]:
    """The tensors of these names."""
    return [(named[weight], None if bias is None else named[bias]) for weight, bias in layers]


def _is_sequential(module: nn.Module) -> TypeGuard[nn.Sequential]:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _each_parameter_once(architecture: nn.Module) -> bool:
    named = dict(architecture.named_parameters(remove_duplicate=False))
    return len(named) == len({id(value) for value in named.values()})


def first_linear_weight(architecture: nn.Module) -> str | None:
    """Name of the first layer's weight, or None if that layer is not linear."""
    prefix = ""
    module = architecture
    if not _each_parameter_once(architecture):
        return None
    while True:
        if (inner := getattr(module, "linear_if", None)) is not None:
            prefix += f"{inner}."
            module = getattr(module, inner)
            continue
        if not _is_sequential(module):
            break
        children = [
            pair for pair in module.named_children() if not isinstance(pair[1], nn.Identity | nn.Dropout)
        ]
        if not children:
            return None
        name, module = children[0]
        prefix += f"{name}."
    name = f"{prefix}weight"
    linear = type(module) in (nn.Linear, nn.Conv2d)
    return name if linear and name in dict(architecture.named_parameters()) else None


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
