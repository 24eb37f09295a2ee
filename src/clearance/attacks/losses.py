"""What attacks climb: losses of one sample each, named, most of them blind to the scale of logits.

| loss | scale-free | source |
|---|---|---|
| cross_entropy | no | Goodfellow, Shlens and Szegedy (2015) |
| logit_margin | yes | Carlini and Wagner (2017), without their floor |
| dlr | yes | Croce and Hein (2020), equations 6 and 7 |
| scaled_cross_entropy | yes | cross-entropy in units of the sample's own logits, as log odds |

*Scale-free*: logits times c > 0 is the same classifier, and an attack on it takes the same steps: bit for bit
where c is a power of two, up to rounding elsewhere. Plain cross-entropy saturates instead: its gradient becomes
exactly zero, and a classifier looks robust only because its logits are large.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from clearance._precision import at_least_float32

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits (B, C), labels (B,)) to (B,)."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(z)[y]: what most published attacks ascend.

    Misleads where logits are large: softmax is exactly one-hot in floating point, and the gradient zero.

    >>> cross_entropy(torch.zeros(1, 2), torch.tensor([0]))
    tensor([0.6931])
    """
    return F.cross_entropy(at_least_float32(logits), labels, reduction="none")


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """max_{i != y} z_i - z_y: positive where the sample is broken.

    >>> logit_margin(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([-1.])
    """
    logits = at_least_float32(logits)
    return _best_but(logits, labels) - _at(logits, labels)


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """(max_{i != y} z_i - z_y) / (z_(1) - z_(3)), z_(k) being the k-th largest logit: difference of logits ratio.

    Raises:
        ValueError: For two classes, where there is no third logit.

    >>> dlr(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([-0.5000])
    """
    _check_third_class(logits)
    top = at_least_float32(logits).topk(3, dim=1).values
    return logit_margin(logits, labels) / _or_one(top[:, 0] - top[:, 2])


def scaled_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of z / s as log odds, log((1 - p_y) / p_y), s being the sample's own spread of logits.

    log sum_{i != y} exp(z_i / s) - z_y / s

    s = (max_i z_i - min_i z_i) / SPREAD_IN_UNITS, constant in the gradient, and 1 where all logits are equal. With
    four or more classes the minimum leaves out those that are masked by a very small logit: more than :data:`MASKED`
    times as far below the largest as the middle one is. Its gradient has the direction of cross-entropy's and, unlike
    that, never vanishes: with two classes p_y is 1 to the last digit in any such units. Numerator and denominator of
    z / s are multiplied by the same power of two without rounding, so that not even the last bit changes.

    >>> logits, labels = torch.randn(5, 10), torch.arange(5)
    >>> torch.equal(scaled_cross_entropy(64 * logits, labels), scaled_cross_entropy(logits, labels))
    True
    """
    own = _in_own_units(logits)
    return own.scatter(1, labels.unsqueeze(1), -torch.inf).logsumexp(dim=1) - _at(own, labels)


def targeted_dlr(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """(z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2); with three classes z_(3) replaces the mean.

    Raises:
        ValueError: For two classes.

    >>> targeted_dlr(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), torch.tensor([0]), torch.tensor([2]))
    tensor([-0.6667])
    """
    _check_third_class(logits)
    values = at_least_float32(logits)
    top = values.topk(min(4, values.shape[1]), dim=1).values
    return (_at(values, targets) - _at(values, labels)) / _or_one(top[:, 0] - top[:, 2:].mean(dim=1))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "logit_margin": logit_margin,
    "dlr": dlr,
    "scaled_cross_entropy": scaled_cross_entropy,
}
"""Losses by name, to be ascended away from the label; towards a class, all but `dlr` are its loss with a minus."""

SCALE_FREE = ("logit_margin", "dlr", "scaled_cross_entropy")
"""Names of the losses whose attacks the scale of logits cannot mislead."""

SPREAD_IN_UNITS = 20.0
"""What the spread of a sample's logits becomes in :func:`scaled_cross_entropy`.

Of 1, 3, 5, 10, 20 and 40 the one that leaves least accuracy to one step and to forty on two small networks of the
digits, in all three norms; 10 is as good for forty steps, smaller values are clearly weaker.
"""

MASKED = 100.0
"""How many times as far below the largest as the middle logit one must be to count as masked. Ours, not tuned."""


def _at(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes.unsqueeze(1)).squeeze(1)


def _best_but(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.scatter(1, classes.unsqueeze(1), -torch.inf).amax(dim=1)


def _or_one(spread: Tensor) -> Tensor:
    """Tied logits have no scale to divide by."""
    return torch.where(spread > 0, spread, 1)


def _in_own_units(logits: Tensor) -> Tensor:
    values = at_least_float32(logits)
    ordered = values.detach().sort(dim=1, descending=True).values
    gaps = ordered[:, :1] - ordered
    classes = ordered.shape[1]
    middle = gaps[:, [min(max(2, classes // 2), classes - 1)]]  # of two or three the last: none is masked
    counted = (gaps <= MASKED * middle) | (middle == 0)
    spread = torch.where(counted, gaps, 0).amax(dim=1) / SPREAD_IN_UNITS
    return values / _or_one(spread).unsqueeze(1)


def _check_third_class(logits: Tensor) -> None:
    if logits.shape[1] < 3:
        raise ValueError(
            f"`loss` 'dlr' must have at least 3 classes because it divides by the gap to the third logit; "
            f"got {logits.shape[1]}; use 'logit_margin'."
        )
