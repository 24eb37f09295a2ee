"""The two parts of a module that is cut at its head: what runs before it, and the head on vectors of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn


class UntilHead(nn.Module):
    """The part of a module that runs before its head, as a separate module.

    The modules that contain the head are replaced by copies that share their parameters, buffers and hooks;
    all others are shared. So the given module works as before, its weights exist once, and the head's
    parameters are not among the extractor's.

    Args:
        module: The module to cut; it is not changed.

    Shapes:
        the input of `module` -> the input of its head.

    Raises:
        RuntimeError: In the forward pass, if that ends without calling the head.

    Misleads: submodules that only run after the head stay registered, and never get a gradient.

    >>> import torch
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extractor = UntilHead(net, net[3])
    >>> extractor(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    >>> [name for name, _ in extractor.named_parameters()]
    ['module.1.weight', 'module.1.bias']
    """

    def __init__(self, module: nn.Module, head: nn.Module) -> None:
        super().__init__()
        tap = _Tap(head)
        self.module = _without_head(module, head, tap, {})
        self.tap = tap
        self.training = tap.training = module.training

    def forward(self, *inputs: Any) -> Tensor:
        """The input of the head."""
        try:
            self.module(*inputs)
        except _HeadReached as signal:
            place, features = signal.args
            if place is not self.tap._place:  # of another cut module inside this one
                raise
            return features
        raise RuntimeError("the forward pass ended without calling the head that was cut off.")


class UntilHeads(UntilHead):
    """The extractor for several heads: their inputs side by side, or the one input that all of them read.

    Args:
        module: The module to cut; it is not changed.
        heads: Linear layers in it, in the order in which they run.
    """

    def __init__(self, module: nn.Module, heads: Sequence[Any]) -> None:
        *first, last = heads
        taps = [_Passed(head) for head in first]
        for head, tap in zip(first, taps, strict=True):
            module = _without_head(module, head, tap, {})
        super().__init__(module, last)
        self.taps = nn.ModuleList(taps)
        self.shared = False

    def parts(self, *inputs: Tensor) -> list[Tensor]:
        """The input of each head."""
        last = super().forward(*inputs)
        taps: Any = self.taps
        found = [*(tap.taken() for tap in taps), last]
        self.shared = all(part is last for part in found)
        return found

    def forward(self, *inputs: Tensor) -> Tensor:
        """Features of shape (B, sum of widths), or (B, width) if all heads read the same."""
        found = self.parts(*inputs)
        return found[-1] if self.shared else torch.cat(found, dim=1)


class SummedHeads(nn.Module):
    """Several heads as one: logits = sum of weight * head(its features).

    Args:
        heads: Linear layers.
        weights: One for each.
        widths: How many features each reads; empty if all read the same.

    Shapes:
        features (B, sum of widths), or (B, width) -> logits (B, K).

    >>> head = SummedHeads([nn.Linear(4, 3), nn.Linear(2, 3)], [0.5, 0.5], (4, 2))
    >>> head(torch.rand(5, 6)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, heads: Sequence[nn.Module], weights: Sequence[float], widths: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.heads, self.weights, self.widths = nn.ModuleList(heads), tuple(weights), widths
        self.training = heads[0].training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, K)."""
        parts = features.split(self.widths, dim=1) if self.widths else [features] * len(self.heads)
        made = [
            weight * head(part) for weight, head, part in zip(self.weights, self.heads, parts, strict=True)
        ]
        return torch.stack(made).sum(dim=0)


class TwoLogits(nn.Module):
    """A head with one logit, of the second of two classes, as a head with two: softmax((0, z)) has sigmoid(z)."""

    linear_if = "part"  # the first layer that reads features is in there

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.training = part.training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, 2)."""
        return two_logits(self.part(features))


def two_logits(one: Tensor) -> Tensor:
    """Logits of two classes from that of the second, (B,) or (B, 1).

    >>> two_logits(torch.tensor([2.0, -1.0]))
    tensor([[ 0.,  2.],
            [ 0., -1.]])
    """
    second = one.reshape(-1, 1)
    return torch.cat([torch.zeros_like(second), second], dim=1)


class UntilMap(UntilHead):
    """The extractor for a head that receives maps (B, C, H, W), which are flattened, or averaged over H and W."""

    def __init__(self, module: nn.Module, head: nn.Module, *, pooled: bool) -> None:
        super().__init__(module, head)
        self.pooled = pooled

    def forward(self, *inputs: Tensor) -> Tensor:
        """Features of shape (B, C H W), or (B, C) if pooled."""
        maps = super().forward(*inputs)
        return maps.mean((2, 3)) if self.pooled else maps.flatten(1)


class MapHead(nn.Module):
    """A head that reads maps, as a head that reads vectors.

    logits = part(features as (B, C, H, W)) as (B, K)

    Shapes:
        features (B, C H W) -> logits (B, K).

    >>> import torch
    >>> head = MapHead(nn.Conv2d(8, 3, 1), (8, 1, 1))
    >>> head(torch.rand(2, 8)).shape
    torch.Size([2, 3])
    """

    linear_if = "part"

    def __init__(self, part: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.part, self.shape = part, shape
        self.training = part.training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, K)."""
        return self.part(features.unflatten(1, self.shape)).flatten(1)


def _without_head(
    module: nn.Module, head: nn.Module, tap: nn.Module, twins: dict[nn.Module, nn.Module]
) -> nn.Module:
    """`tap` for the head, a copy for a module that contains it, any other module itself."""
    if module is head:
        return tap
    if all(part is not head for part in module.modules()):
        return module
    if module not in twins:
        twin = object.__new__(type(module))  # without the class's own __new__ and __init__
        # The dicts of parameters, buffers and hooks are the same objects, so `.to()` and training on
        # either side reach both; only the dict of submodules is new.
        twin.__dict__.update(module.__dict__)
        twin.__dict__["_compiled_call_impl"] = None  # of module.compile(), and bound to that module
        twin.__dict__["_modules"] = {
            name: child if child is None else _without_head(child, head, tap, twins)
            for name, child in module._modules.items()
        }
        twins[module] = twin
    return twins[module]


class _HeadReached(BaseException):
    """Carries the tap's place and the head's input out of a forward pass, as its `args`.

    Not an Exception, so that no ``except Exception`` inside the module catches it; without its own constructor,
    because torch.compile supports only the plain one.
    """


class _Tap(nn.Module):
    """Replaces the head and ends the forward pass with the head's input."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        # Sizes stay readable: a forward pass may use `x.view(-1, self.fc.in_features)`.
        for name, value in vars(head).items():
            if isinstance(value, int) and not name.startswith("_"):
                setattr(self, name, value)
        self._place = object()  # torch.export calls a copy of this module, with the same attributes

    def forward(self, features: Tensor, /) -> NoReturn:
        raise _HeadReached(self._place, features)


class _Passed(_Tap):
    """Replaces a head that is not the last: keeps its input, and lets the forward pass go on."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__(head)
        self.outputs = head.out_features
        self.kept: Tensor | None = None

    def forward(self, features: Tensor, /) -> Tensor:  # type: ignore[override]
        self.kept = features
        return features.new_zeros(len(features), self.outputs)

    def taken(self) -> Tensor | None:
        """The input, which is then forgotten."""
        kept, self.kept = self.kept, None
        return kept
