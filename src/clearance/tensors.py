"""What a loss reads, a classifier's outputs, and what it returns, named terms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn


def check_class_numbers(labels: Tensor, samples: int, classes: int) -> None:
    """Refuse labels that are not one of the classes for each sample.

    The range is checked only on the CPU: elsewhere the check would wait for the device at every step, and torch itself
    stops there. It is not checked while a step is traced or compiled.

    Raises:
        TypeError: If they are no tensor of whole numbers of 64 bits.
        ValueError: If they are not as many as samples, or one is no class.

    >>> check_class_numbers(torch.tensor([0, 3]), 2, 3)
    Traceback (most recent call last):
        ...
    ValueError: `labels` must lie in 0 .. 2, because there are 3 classes; got 0 .. 3. Number the classes from 0.
    """
    if not isinstance(labels, Tensor):
        raise TypeError(
            f"`labels` must be a tensor of int64 class numbers; got {type(labels).__name__}. Write "
            "torch.as_tensor(labels)."
        )
    if labels.shape != (samples,):
        raise ValueError(
            f"`labels` must have shape ({samples},), one for each sample; got {tuple(labels.shape)}. "
            "One-hot labels: labels.argmax(1); mixed labels are not taken."
        )
    if labels.dtype != torch.int64:
        raise TypeError(f"`labels` must be int64 class numbers; got {labels.dtype}. Write labels.long().")
    traced = type(labels) is not Tensor or torch.compiler.is_compiling() or is_transformed(labels)
    if samples == 0 or labels.device.type != "cpu" or traced:
        return
    smallest, largest = (int(end) for end in torch.aminmax(labels))
    if smallest < 0 or largest >= classes:
        remedy = "Number the classes from 0."
        if classes < 2:
            remedy = "Give the model two outputs; clearance.wrap does."
        elif smallest < 0:
            remedy = "Leave samples out that have no class: no label is ignored."
        raise ValueError(
            f"`labels` must lie in 0 .. {classes - 1}, because there are {classes} classes; got "
            f"{smallest} .. {largest}. {remedy}"
        )


def is_transformed(tensor: Tensor) -> bool:
    """Whether ``torch.func`` transforms it: under ``vmap`` its values cannot be read."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


Head = Callable[[Tensor], Tensor]


def head_logits(head: Head, features: Tensor) -> Tensor:
    """The head's logits for features, which must not change.

    Raises:
        ValueError: If the head changes the features in place, other than by torch's own modules: later readers of
            the features would get wrong values.

    >>> features = torch.tensor([[-1.0, 2.0]])
    >>> head_logits(nn.ReLU(inplace=True), features), features
    (tensor([[0., 2.]]), tensor([[-1.,  2.]]))
    """
    if isinstance(head, nn.Module) and any(getattr(part, "inplace", False) for part in head.modules()):
        return head(features.clone())
    if features.is_inference():  # has no version
        return head(features)
    version = features._version
    logits = head(features)
    if features._version != version:
        raise ValueError(
            "the head must leave its features as they are; it changed them in place. Let it begin with a copy "
            "(features.clone())."
        )
    return logits


@dataclass(frozen=True, eq=False)
class Outputs:
    """A classifier's outputs for one batch; every tensor keeps its graph.

    Args:
        features: The head's input, shape (B, D).
        logits: The head's output, shape (B, C), or (K, B, C) when K heads read the same features.
        head: The head that made `logits` from `features`.
        activations: Outputs of the layers asked for, by name; ``"input"`` is the images themselves.
        again: Makes the same outputs with a graph; None if they have one, or no layers were asked for.
        images: The images that they are of; None if they are not known.
        mean: What the model subtracts from them; None if that is not known.

    >>> head = torch.nn.Linear(3, 2)
    >>> features = torch.ones(4, 3)
    >>> outputs = Outputs(features, head(features), head)
    >>> other = torch.nn.Linear(3, 2)
    >>> outputs.with_head(other).features is features
    True
    """

    features: Tensor
    logits: Tensor
    head: Head
    activations: Mapping[str, Tensor] = field(default_factory=dict)
    again: "Callable[[], Outputs] | None" = field(default=None, repr=False)
    images: Tensor | None = field(default=None, repr=False)
    mean: Tensor | None = field(default=None, repr=False)

    def with_head(self, head: Head) -> "Outputs":
        """The same features and graph, with another head's logits."""
        return replace(self, logits=head_logits(head, self.features), head=head)

    def detached(self) -> "Outputs":
        """The values without their graph, to be kept after its backward pass."""
        activations = {name: value.detach() for name, value in self.activations.items()}
        return Outputs(self.features.detach(), self.logits.detach(), self.head, activations)

    def with_graph(self) -> "Outputs":
        """These outputs, made again with a graph if they were made without one; else the graph starts at the features.

        For a loss that takes gradients of its own, in an evaluation under ``torch.no_grad`` or
        ``torch.inference_mode``.

        >>> head = torch.nn.Linear(3, 2)
        >>> with torch.no_grad():
        ...     made = Outputs(torch.ones(4, 3), head(torch.ones(4, 3)), head)
        >>> made.logits.requires_grad, made.with_graph().logits.requires_grad
        (False, True)
        """
        if self.logits.requires_grad:
            return self
        with torch.inference_mode(mode=False), torch.enable_grad():
            if self.again is not None:
                return self.again()
            features = self.features.detach().clone().requires_grad_()
            return replace(self, features=features).with_head(self.head)


def joined(batches: Sequence[tuple[Outputs, Tensor]]) -> tuple[Outputs, Tensor]:
    """Batches of one step, whose gradients were accumulated, as one; without their graph.

    >>> head = torch.nn.Identity()
    >>> one, labels = joined([(Outputs(torch.zeros(2, 3), torch.zeros(2, 3), head), torch.zeros(2)) for _ in range(2)])
    >>> one.logits.shape, labels.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """
    parts, labels = zip(*batches, strict=True)
    first = parts[0]
    if len(parts) == 1:
        return first, labels[0]
    activations = {name: torch.cat([part.activations[name] for part in parts]) for name in first.activations}
    features = torch.cat([part.features for part in parts])
    logits = torch.cat([part.logits for part in parts], dim=-2)
    return Outputs(features, logits, first.head, activations).detached(), torch.cat(labels)


class GivenOutputs(Outputs):
    """Outputs of which only the logits, or features and logits, were given: anything else raises an error when read.

    Args:
        logits: (B, C).
        features: (B, D), or None.

    >>> GivenOutputs(torch.zeros(2, 3))
    GivenOutputs(logits=(2, 3))
    >>> GivenOutputs(torch.zeros(2, 3)).features
    Traceback (most recent call last):
        ...
    TypeError: this loss reads `features`, which were not given; call it with (features, logits, labels).
    """

    def __init__(self, logits: Tensor, features: Tensor | None = None) -> None:
        given = {"logits": logits, "activations": {}, "again": None, "images": None, "mean": None}
        for name, value in (given if features is None else given | {"features": features}).items():
            object.__setattr__(self, name, value)

    def detached(self) -> "GivenOutputs":
        """What was given, without its graph."""
        features = self.features.detach() if "features" in vars(self) else None
        return GivenOutputs(self.logits.detach(), features)

    def __repr__(self) -> str:
        """What was given."""
        given = [name for name in ("logits", "features") if name in vars(self)]
        return f"GivenOutputs({', '.join(f'{name}={tuple(vars(self)[name].shape)}' for name in given)})"

    def __getattr__(self, name: str) -> Any:
        """Called for what was not given."""
        if name == "features":
            raise TypeError(
                "this loss reads `features`, which were not given; call it with (features, logits, labels)."
            )
        if name == "head":
            raise TypeError(
                "this loss reads the model's `head`, which was not given; call it with (model.outputs(images, "
                "loss.layers), labels)."
            )
        raise AttributeError(name)

    def with_graph(self) -> Outputs:
        """These: without the head there is no way to a graph."""
        return self


_COLUMNS = ("epoch", "step", "lr")  # of a history, beside the terms of the loss


@dataclass(frozen=True)
class LossTerms:
    """The named terms of a loss, each a 0-dim tensor of at least float32 that already carries its weight.

    Args:
        terms: By name, in the order in which they are shown.

    >>> LossTerms({"cross_entropy": torch.tensor(1.0), "centre": torch.tensor(0.5)}).total
    tensor(1.5000)
    """

    terms: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a loss must have at least one term; got none.")
        for name, term in self.terms.items():
            if name in _COLUMNS:
                raise ValueError(
                    f"a term of a loss must not be called {name!r}, which is another column of the history; got "
                    f"{', '.join(self.terms)}. Choose another name."
                )
            if not isinstance(term, Tensor) or term.ndim:
                got = f"shape {tuple(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
                raise ValueError(
                    f"term {name!r} of a loss must be one number, a 0-dim tensor; got {got}. Average it."
                )

    def __getattr__(self, name: str) -> Any:
        """Called for what a tensor would have."""
        raise AttributeError(f"a loss returns LossTerms, which have no {name!r}; the number is .total")

    def _no_number(self, *_: object) -> Any:
        raise TypeError(
            "a loss returns LossTerms, which are no number to calculate with; the number is .total"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __float__ = _no_number

    @property
    def total(self) -> Tensor:
        """Sum of all terms: the number to differentiate."""
        return torch.stack(list(self.terms.values())).sum()
