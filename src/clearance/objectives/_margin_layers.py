"""Where a margin can be measured: captured activations, the features, the logits; and every refusal."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from clearance._checks import check_choice, check_non_negative
from clearance.models._activations import ALWAYS
from clearance.tensors import Outputs

ANALYTIC = ALWAYS
"""Layers that every classifier has; they need no backward sweep (the features only where the head is linear)."""


def checked_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple; refuses none, and one twice.

    >>> checked_layers(["input", "logits"])
    ('input', 'logits')
    """
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`layers` must name at least one layer, each once; got {list(names)}.")
    return names


def captured_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """Those that the model must hand over as activations.

    >>> captured_layers(("input", "extractor.3", "features", "logits"))
    ('input', 'extractor.3')
    """
    return tuple(name for name in layers if name not in ANALYTIC)


def affine_weight(head: Any) -> Tensor | None:
    """W of a head that computes W f + b and nothing else, None of any other."""
    while _is_plain(head, nn.Sequential) and len(head) == 1:
        head = head[0]
    # a parametrised weight is another one at every look, where looking moves its state (spectral_norm)
    plain = _is_plain(head, nn.Linear) and not is_parametrized(head)
    return head.weight if plain else None


def _is_plain(module: Any, kind: type[nn.Module]) -> bool:
    """Whether it does what torch's own `kind` does, and no hook changes that."""
    if not isinstance(module, kind) or type(module).forward is not kind.forward or "forward" in vars(module):
        return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def margin_tensors(outputs: Outputs, layers: Sequence[str]) -> dict[str, Tensor]:
    """The tensor at each layer, by name, with a graph to the logits wherever a sweep needs one.

    Raises:
        ValueError: If an activation is missing, its first axis does not count samples, or it has no graph.
    """
    return {name: _tensor(outputs, name) for name in layers}


def _tensor(outputs: Outputs, name: str) -> Tensor:
    if name == "logits":
        return outputs.logits
    tensor = outputs.features if name == "features" else _captured(outputs, name)
    if tensor.shape[0] != outputs.logits.shape[0]:
        raise ValueError(
            f"the first axis of layer {name!r} must count the {outputs.logits.shape[0]} samples; got shape "
            f"{tuple(tensor.shape)}. Name a layer whose output has the batch first."
        )
    needs_sweep = name != "features" or affine_weight(outputs.head) is None
    if needs_sweep and not (tensor.requires_grad and outputs.logits.requires_grad):
        raise ValueError(
            f"layer {name!r} carries no graph, so the distance at it has no gradient to be taken from. If everything "
            "before it is frozen, let the graph begin at the images: model.outputs(images, [*objective.layers, "
            "'input']), or name 'input' among the layers. If it ran in torch.no_grad, leave that (for a diagnostic, "
            "margin_distances does); if in reentrant checkpointing, pass use_reentrant=False."
        )
    return tensor


def _captured(outputs: Outputs, name: str) -> Tensor:
    if name not in outputs.activations:
        raise ValueError(
            f"`outputs` must hold the activation of layer {name!r}; it holds {list(outputs.activations)}. "
            "Make it by model.outputs(images, objective.layers)."
        )
    return outputs.activations[name]


def check_pairs(logits: Tensor, rivals: int | None) -> int:
    """How many rivals of each sample are looked at; refuses more than there are classes besides its own."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits must have shape (B, C) with at least two classes; got {tuple(logits.shape)}. With one logit for "
            "two classes, give the second class the logit 0."
        )
    wrong = logits.shape[1] - 1
    if rivals is not None and rivals > wrong:
        raise ValueError(
            f"at most {wrong} rivals exist for {wrong + 1} classes, because a sample's own class is none; got "
            f"{rivals}. Take fewer, or top_k=None for all."
        )
    return wrong if rivals is None else rivals


def full_precision(tensor: Tensor) -> torch.autocast:
    """Switches automatic mixed precision off: distances are worth the digits, and cost little."""
    return torch.autocast(tensor.device.type, enabled=False)


def weights_of_layers(given: float | Mapping[str, float] | None, layers: Sequence[str]) -> tuple[float, ...]:
    """A weight for each layer, by default alike and with sum 1.

    Raises:
        ValueError: If a layer is missing or unknown, or a weight below 0.
    """
    if given is None:
        return tuple(1 / len(layers) for _ in layers)
    if isinstance(given, Mapping):
        for name in given:
            check_choice("layer_weights", name, layers)
        missing = [name for name in layers if name not in given]
        if missing:
            raise ValueError(f"`layer_weights` must name every layer or be one number; it lacks {missing}.")
    weights = tuple(given[name] if isinstance(given, Mapping) else given for name in layers)
    for weight in weights:
        check_non_negative("layer_weights", weight)
    return weights
