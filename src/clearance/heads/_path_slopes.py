"""Derivatives of a head's answers along a straight path of heads, layer by layer, sample by sample."""

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from clearance.heads._relu_layers import WeightAndBias

Parameters = Mapping[str, Tensor]
Slopes = tuple[Tensor, Tensor]


class ReluPath:
    """All points of a path of Linear (ReLU Linear)* heads at once.

    At point a a layer gives h (W + a dW)^T + b + a db = (h W^T + b) + a m with m = h dW^T + db, and m is
    also that layer's own derivative along the path. The features enter only the first layer's two products,
    which serve every a.
    """

    def __init__(self, origin: Sequence[WeightAndBias], step: Sequence[WeightAndBias], segments: int) -> None:
        self.origin, self.step = origin, step
        self.at = torch.arange(segments, dtype=torch.float64, device=origin[0][0].device)[:, None, None]

    def slopes(self, features: Tensor, labels: Tensor) -> Slopes:
        """Slope of each sample's loss and deviation of its answers' slopes, both (L + 1, P, n)."""
        first, moved = nn.functional.linear(features, *self.origin[0]), []
        moved.append(nn.functional.linear(features, *self.step[0]))
        hidden = first + self.at * moved[0]
        derivatives = moved[0].expand_as(hidden)[None]
        entered = []
        for layer, step in zip(self.origin[1:], self.step[1:], strict=True):
            active = hidden > 0
            hidden = torch.where(active, hidden, 0)
            entered.append(active)
            moved.append(nn.functional.linear(hidden, *step))
            derivatives = self._times_weight(torch.where(active, derivatives, 0), layer[0], step[0])
            derivatives = torch.cat([derivatives, moved[-1][None]])
            hidden = nn.functional.linear(hidden, *layer) + self.at * moved[-1]
        losses = self._backward(_logit_gradient(hidden, labels), entered, moved)
        total = derivatives.sum(dim=0, keepdim=True)
        return _with_sum(losses), _deviation(hidden, torch.cat([derivatives, total]))

    def _backward(self, delta: Tensor, entered: list[Tensor], moved: list[Tensor]) -> Tensor:
        """u_l = sum_out delta_l (a_{l-1} dW_l^T + db_l) with delta_l = dL/dz_l, shape (L, P, n)."""
        slopes = [(delta * moved[-1]).sum(dim=-1)]
        for above in range(len(moved) - 1, 0, -1):
            delta = self._times_weight(delta, self.origin[above][0].T, self.step[above][0].T)
            delta = torch.where(entered[above - 1], delta, 0)
            slopes.append((delta * moved[above - 1]).sum(dim=-1))
        return torch.stack(slopes[::-1])

    def _times_weight(self, values: Tensor, weight: Tensor, step: Tensor) -> Tensor:
        """The values (..., P, n, i) times the transposed weight at each point of the path."""
        return (values @ step.T).mul_(self.at).add_(values @ weight.T)


class JvpPath:
    """Any head, one point and one layer after another, through forward-mode differentiation."""

    def __init__(
        self, head: nn.Module, origin: Parameters, step: Parameters, layers: list[list[str]], segments: int
    ) -> None:
        self.head, self.origin, self.step = head, origin, step
        self.layers, self.segments = layers, segments

    def slopes(self, features: Tensor, labels: Tensor) -> Slopes:
        """Slope of each sample's loss and deviation of its answers' slopes, both (L + 1, P, n)."""
        points = [self._at(a, features) for a in range(self.segments)]
        logits = torch.stack([point for point, _ in points])
        derivatives = torch.stack([derivative for _, derivative in points], dim=1)
        derivatives = torch.cat([derivatives, derivatives.sum(dim=0, keepdim=True)])
        losses = (_logit_gradient(logits, labels) * derivatives).sum(dim=-1)
        return losses, _deviation(logits, derivatives)

    def _at(self, a: int, features: Tensor) -> Slopes:
        """Logits (n, C) at point a, and their derivative along each layer's part of the step, (L, n, C)."""
        here = {name: value + a * self.step[name] for name, value in self.origin.items()}

        def logits_of(parameters: dict[str, Tensor]) -> Tensor:
            return functional_call(self.head, parameters, (features,))

        found = []
        for owned in self.layers:
            along = {n: self.step[n] if n in owned else torch.zeros_like(v) for n, v in here.items()}
            with warnings.catch_warnings():
                # torch's first jvp compiles rules by what torch itself deprecates
                warnings.simplefilter("ignore", DeprecationWarning)
                logits, derivative, *_ = jvp(logits_of, (here,), (along,))
            found.append(derivative)
        return logits, torch.stack(found)


def _logit_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax minus one-hot, the label's entry as minus the sum of the others: p_label may round to 1."""
    own = nn.functional.one_hot(labels, logits.shape[-1]).bool()
    others = torch.where(own, 0, torch.log_softmax(logits, dim=-1).exp())
    return torch.where(own, -others.sum(dim=-1, keepdim=True), others)


def _deviation(logits: Tensor, derivatives: Tensor) -> Tensor:
    """Standard deviation of the logits' derivatives (..., C) under softmax(logits), shape (...).

    Measured from the likeliest class, whose difference is then 0: the variance of a confident head would
    otherwise be the difference of two nearly equal numbers.
    """
    chances = torch.log_softmax(logits, dim=-1).exp()
    likeliest = logits.argmax(dim=-1, keepdim=True).expand(*derivatives.shape[:-1], 1)
    differences = derivatives - derivatives.gather(-1, likeliest)
    mean = (chances * differences).sum(dim=-1)
    second = (chances * differences.square()).sum(dim=-1)
    return (second - mean.square()).clamp(min=0).sqrt()


def _with_sum(slopes: Tensor) -> Tensor:
    return torch.cat([slopes, slopes.sum(dim=0, keepdim=True)])
