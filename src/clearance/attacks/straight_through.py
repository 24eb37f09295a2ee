"""A model as it is, with a gradient where rounding has none."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearance.attacks.queries import Model

NAMES = ("round", "floor", "ceil", "trunc", "fix", "sign")
"""Functions whose gradient is zero nearly everywhere, and which follow their argument from afar."""

_STEPS = frozenset(getattr(room, name) for room in (torch, Tensor) for name in NAMES)


class _Value(torch.autograd.Function):
    """The value of one tensor, bit for bit, with the gradient of another."""

    @staticmethod
    def forward(_: Any, smooth: Tensor, stepped: Tensor) -> Tensor:
        return stepped.detach().to(smooth.dtype).clone()

    @staticmethod
    def backward(_: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope, None


class _Passing(TorchFunctionMode):
    """Within it, steps let gradients pass; it counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func not in _STEPS or not args or not args[0].requires_grad:
            return answer
        self.passed += 1
        return _Value.apply(args[0], answer)


def straight_through(model: Model) -> Model:
    r"""The same model, bit for bit, whose gradient passes through rounding as if it were not there.

    d round(x) / dx := 1

    An attack that follows gradients finds nothing before a network that rounds its images, and the network is no
    safer for it. Attacks made on this model (with :func:`transferred`, judged on the model itself) find what is behind.

    Source: Bengio, Leonard and Courville (2013) for the estimator; Athalye, Carlini and Wagner (2018), *Obfuscated
    Gradients Give a False Sense of Security*, section 4.1, for attacks with it.

    Args:
        model: Images to logits; any callable that works with torch's functions.

    Misleads: ``round``, ``floor``, ``ceil``, ``trunc`` and ``sign`` are passed. Changes in place (``round_``),
    comparisons, casts to whole numbers, scripted modules, other libraries' code and noise are not.

    >>> rounded = lambda images: (4 * images).round() / 4
    >>> images = torch.tensor([[0.6, 0.4]], requires_grad=True)
    >>> torch.autograd.grad(rounded(images).sum(), images)[0]
    tensor([[0., 0.]])
    >>> torch.autograd.grad(straight_through(rounded)(images).sum(), images)[0]
    tensor([[1., 1.]])
    >>> bool((straight_through(rounded)(images) == rounded(images)).all())
    True
    """

    def passing(images: Tensor) -> Tensor:
        with _Passing():
            return model(images)

    return passing


def has_steps(model: Model, images: Tensor) -> bool:
    """Whether :func:`straight_through` makes any difference for these images.

    >>> has_steps(torch.nn.Identity(), torch.rand(1, 2)), has_steps(torch.floor, torch.rand(1, 2))
    (False, True)
    """
    with torch.inference_mode(False), torch.enable_grad(), _Passing() as mode:
        model(images.detach().clone().requires_grad_())
    return mode.passed > 0
