"""Attacks that take their gradients from another model, or from the model itself past its rounding."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearance.attacks.attack import Attack, Batch, Model, check_mode


@dataclass(frozen=True)
class Transfer(Attack):
    """Images made on a source, scored on the model that is attacked: no gradient of that model is used.

    Every image takes every step of the attack on the source, whether or not the source is wrong on it.
    Made by :func:`transferred`.
    """

    source: Model = field(kw_only=True)
    attack: Attack = field(kw_only=True)

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist
        return self.attack.perturbed(self.source, batch.images, batch.labels, batch.targets)


def transferred(source: Model, attack: Attack) -> Transfer:
    """The attack that makes its images on `source`; the ball is that of `attack`.

    Args:
        source: A model of the same classes, in evaluation mode, whose gradients are used.
        attack: How images are made on it.

    Raises:
        TypeError: If that is no attack in a ball.

    >>> from clearance.attacks.gradient import FGSM
    >>> source, rounded = torch.nn.Identity().eval(), lambda images: images.round()
    >>> images, labels = torch.tensor([[0.625, 0.375]]), torch.tensor([0])
    >>> FGSM(0.25)(rounded, images, labels).success           # rounding has no gradient
    tensor([False])
    >>> transferred(source, FGSM(0.25))(rounded, images, labels).success
    tensor([True])
    """
    if not isinstance(attack, Attack):
        raise TypeError(
            f"`attack` must be an attack in a ball (FGSM, PGD ..., or what as_attack makes of a callable), because its "
            f"images are shown to other models; got {type(attack).__name__}."
        )
    return Transfer(attack.epsilon, attack.norm, chunk=attack.chunk, source=source, attack=attack)


NAMES = ("round", "floor", "ceil", "trunc", "fix", "sign", "sgn")
"""Functions whose gradient is zero nearly everywhere, and which roughly follow their argument."""


def _of_both(names: Sequence[str]) -> frozenset[Any]:
    """The functions of torch and of tensors by these names, if they exist."""
    found = (getattr(room, name, None) for room in (torch, torch.special, Tensor) for name in names)
    return frozenset(function for function in found if function is not None)


# where whole numbers are needed, no graph can be (NumPy), or a checkpoint is computed again without the mode
_FAILURES = (RuntimeError, TypeError, IndexError)
_TRIED = 16  # images that tell whether gradients are stopped
_STEPS = _of_both(NAMES)
_IN_PLACE = _of_both([f"{name}_" for name in NAMES])
_DIVISIONS = _of_both(("div", "divide"))
_WHOLE_DIVISIONS = _of_both(("floor_divide", "__floordiv__"))
_DIVISIONS_IN_PLACE = _of_both(("div_", "divide_"))
_WHOLE_DIVISIONS_IN_PLACE = _of_both(("floor_divide_", "__ifloordiv__"))
_REMAINDERS = _of_both(("remainder", "fmod", "frac", "__mod__"))
_STOPS = _of_both(("detach",)) | {Tensor.data.__get__}  # type: ignore[attr-defined]  # a descriptor
_CASTS = _of_both(("int", "long", "short", "byte", "char", "to", "type"))


class _Value(torch.autograd.Function):
    """The value of one tensor, bit for bit, with the gradient of another."""

    @staticmethod
    def forward(_: Any, smooth: Tensor, stepped: Tensor) -> Tensor:
        return stepped.detach().to(smooth.dtype).clone()

    @staticmethod
    def backward(_: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope, None


class _Passing(TorchFunctionMode):
    """Within it, steps let gradients pass; it counts them, and the places where the model stops gradients.

    Args:
        casts: Whether a cast to whole numbers stays floating point, so that a gradient can pass through it.
        stops: Whether gradients also pass where the model stops them: detach, data and torch.no_grad.
    """

    def __init__(self, *, casts: bool, stops: bool) -> None:
        super().__init__()
        self.passed, self.stopped, self.casts, self.stops = 0, 0, casts, stops

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if not args and isinstance(first := named.get("input", named.get("self")), Tensor):
            args, named = (first,), {k: v for k, v in named.items() if k not in ("input", "self")}
        if not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return func(*args, **named)
        if self.stops and not torch.is_grad_enabled():
            self.stopped += 1
            with torch.enable_grad():
                return self._passing(func, args, named)
        return self._passing(func, args, named)

    def _passing(self, func: Any, args: tuple[Any, ...], named: Any) -> Any:
        if func in _REMAINDERS:
            self.passed += 1  # what is left of a step: x less the rounded x, which moves with x
            return func(*args, **named).detach()
        rounds = bool(named.get("rounding_mode"))
        if func in _IN_PLACE:
            return self._stepped_in_place(func, args, named, args[0].clone())
        if func in _WHOLE_DIVISIONS_IN_PLACE or (func in _DIVISIONS_IN_PLACE and rounds):
            return self._stepped_in_place(func, args, named, args[0] / _divisor(args, named))
        answer, smooth = func(*args, **named), None
        if self.stops and func in _STOPS:
            self.stopped += 1
            return _Value.apply(args[0], answer)  # type: ignore[no-untyped-call]
        if func in _STEPS or (self.casts and func in _CASTS and _is_whole(answer)):
            smooth = args[0]
        elif func in _WHOLE_DIVISIONS or (func in _DIVISIONS and rounds):
            smooth = args[0] / _divisor(args, named)
        if smooth is None:
            return answer
        self.passed += 1
        return _Value.apply(smooth, answer.detach())  # type: ignore[no-untyped-call]  # `//` has no derivative

    def _stepped_in_place(self, func: Any, args: tuple[Any, ...], named: Any, smooth: Tensor) -> Tensor:
        self.passed += 1
        stepped = func(args[0].detach().clone(), *args[1:], **named)
        changed: Tensor = args[0].copy_(_Value.apply(smooth, stepped))  # type: ignore[no-untyped-call]
        return changed


def _divisor(args: tuple[Any, ...], named: Any) -> Any:
    return args[1] if len(args) > 1 else named["other"]


def _is_whole(answer: Any) -> bool:
    """Whether a cast gave whole numbers; booleans are not."""
    return isinstance(answer, Tensor) and not answer.is_floating_point() and answer.dtype != torch.bool


def straight_through(model: Model) -> Model:
    r"""The same model, bit for bit, whose gradient passes through rounding as if it were not there.

    d round(x) / dx := 1

    A gradient attack finds nothing on a network that rounds its images, which does not make the network safer.
    Attacks made on this model (with :func:`transferred`, judged on the model itself) see past the rounding.

    Source: Bengio, Leonard and Courville (2013) for the estimator; Athalye, Carlini and Wagner (2018), *Obfuscated
    Gradients Give a False Sense of Security*, section 4.1, for attacks with it.

    Args:
        model: Images to logits; any callable that works with torch's functions. A module must be in evaluation mode.

    Raises:
        ValueError: When it is called, if the model is in training mode.

    Misleads: ``round``, ``floor``, ``ceil``, ``trunc`` and ``sign`` are passed, and so are divisions that round
    (``//``), both in place as well (``round_``, ``//=``), remainders (``%``) and casts to whole numbers, unless the
    model needs whole numbers there (as indices). What stops gradients (``detach``, ``data``, ``torch.no_grad``) is
    passed where that changes the gradient, unless the model continues without one (NumPy, checkpointing). A network
    with its own straight-through estimator may get a worse gradient by this, so try both gradients.
    Comparisons, lookups in tables, scripted modules, other libraries' code and noise are not passed.

    >>> rounded = lambda images: (4 * images).round() / 4
    >>> images = torch.tensor([[0.6, 0.4]], requires_grad=True)
    >>> torch.autograd.grad(rounded(images).sum(), images)[0]
    tensor([[0., 0.]])
    >>> torch.autograd.grad(straight_through(rounded)(images).sum(), images)[0]
    tensor([[1., 1.]])
    >>> bool((straight_through(rounded)(images) == rounded(images)).all())
    True
    """
    way: list[_Way] = []  # known from the first images that ask for a gradient

    def passing(images: Tensor) -> Tensor:
        check_mode(model)
        if not images.requires_grad:
            return model(images)
        if not way:
            way.append(_way(model, images))
        if not (way[0].steps or way[0].stops):
            return model(images)
        try:
            with _Passing(casts=way[0].casts, stops=way[0].stops):
                return model(images)
        except _FAILURES:  # of these images, in other numbers than the first had
            return model(images)

    return passing


def has_steps(model: Model, images: Tensor) -> bool:
    """Whether :func:`straight_through` makes any difference: the model rounds, or stops a gradient that would count.

    >>> has_steps(torch.nn.Identity(), torch.rand(1, 2)), has_steps(torch.floor, torch.rand(1, 2))
    (False, True)
    """
    way = _way(model, images)
    return way.steps or way.stops


@dataclass(frozen=True)
class _Way:
    """How a model's steps can be passed, and whether it has any."""

    casts: bool
    stops: bool
    steps: bool


def _way(model: Model, images: Tensor) -> _Way:
    """What works, forth and back, for some images; where gradients are stopped, only if passing that changes them."""
    images = images[:: -(-len(images) // _TRIED)]  # of one image alone the gradient may happen to be zero
    try:
        with torch.inference_mode(False), torch.enable_grad():
            for casts in (True, False):  # without, where whole numbers are needed
                found = _slope(model, images, casts=casts, stops=False)
                if found is not None:
                    more = _slope(model, images, casts=casts, stops=True)
                    if more is not None and more[0].stopped and not torch.equal(more[1], found[1]):
                        return _Way(casts, stops=True, steps=more[0].passed > 0)
                    return _Way(casts, stops=False, steps=found[0].passed > 0)
            return _Way(casts=False, stops=False, steps=False)
    finally:
        with torch.no_grad():
            model(images.detach().clone())  # what the model keeps of its last images then has no graph


def _slope(model: Model, images: Tensor, *, casts: bool, stops: bool) -> tuple[_Passing, Tensor] | None:
    """The gradient of some sum of logits, and what was passed; None where that does not work."""
    leaf = images.detach().clone().requires_grad_()
    try:
        with _Passing(casts=casts, stops=stops) as mode:
            answer = model(leaf.clone())  # which the model may change in place
        weights = torch.linspace(1, 2, answer.numel(), dtype=answer.dtype, device=answer.device).view_as(
            answer
        )
        total = (weights * answer).sum()
        slope = torch.autograd.grad(total, leaf, allow_unused=True)[0] if total.requires_grad else None
    except _FAILURES:
        return None
    return mode, torch.zeros_like(leaf) if slope is None else slope
