"""A linear head with several classes: one hyperplane for each pair of them.

Between classes a and c the head  s(x) = W x + v  decides by  (W_c - W_a).x + (v_c - v_a): a binary classifier like any
other, with class a as I (y = -1) and class c as J (y = +1).
"""

import math

import torch
from torch import Tensor

from clearance.geometry.first_order import dual_norm, first_order_distance
from clearance.linear._arguments import Points, as_float64, as_rows, check_finite
from clearance.linear.hyperplane import Hyperplane


def class_plane(weight: Points, bias: Points, first: int, second: int) -> Hyperplane:
    """The boundary of a linear head between two of its classes, positive on the side of `second`.

    Args:
        weight: W, shape (K, d).
        bias: v, shape (K,).
        first: Class I, in 0 .. K - 1.
        second: Class J, another.

    Raises:
        ValueError: If a class is not there or both are the same, or their weights are equal: then there is no boundary.

    >>> class_plane([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.0, 0.0, 0.5], first=0, second=2)
    Hyperplane(weight=tensor([-1., 0.], dtype=torch.float64), bias=0.5)
    """
    w, v = _head(weight, bias)
    for name, label in (("first", first), ("second", second)):
        if not 0 <= label < len(w):
            raise ValueError(f"`{name}` must be a class in 0 .. {len(w) - 1}; got {label}.")
    if first == second:
        raise ValueError(f"`first` and `second` must be two classes; got {first} twice.")
    return Hyperplane.of(w[second] - w[first], v[second] - v[first])


def rival_distances(weight: Points, bias: Points, x: Points, labels: Points, norm: float = 2.0) -> Tensor:
    """Signed distance of each point to the boundary with each rival of its class, shape (n, K).

    d_k(x) = (s_y(x) - s_k(x)) / ||W_y - W_k||_q,  1/p + 1/q = 1: negative where the rival wins. A point's own class is
    infinitely far, so that the smallest of a row is the distance to the nearest boundary.

    Args:
        weight: W, shape (K, d).
        bias: v, shape (K,).
        x: Points, shape (n, d).
        labels: Classes in 0 .. K - 1, shape (n,).
        norm: p, at least 1.

    Raises:
        ValueError: If shapes do not fit or a label is out of range.

    >>> rival_distances([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], [[3.0, 7.0]], [0]).tolist()
    [[inf, 3.0]]
    """
    w, v = _head(weight, bias)
    rows = as_rows("x", x)
    own = torch.as_tensor(labels)
    if rows.shape[1] != w.shape[1]:
        raise ValueError(f"`x` must have {w.shape[1]} columns, as many as `weight`; got {rows.shape[1]}.")
    _check_labels(own, len(rows), len(w))
    logits = rows @ w.T + v
    gap = logits.gather(1, own.long().unsqueeze(1)) - logits
    slopes = rows.new_zeros(len(rows), len(w))
    for label in own.unique().tolist():  # one class at a time: differences of all pairs are K^2 d numbers
        slopes[own == label] = dual_norm(w[label] - w, norm)
    distance = first_order_distance(gap, slopes)
    return distance.scatter(1, own.long().unsqueeze(1), math.inf)


def _check_labels(labels: Tensor, count: int, classes: int) -> None:
    out_of_range = labels.shape == (count,) and bool(((labels < 0) | (labels >= classes)).any())
    if labels.shape != (count,) or labels.is_floating_point() or out_of_range:
        raise ValueError(
            f"`labels` must be {count} whole numbers in 0 .. {classes - 1}; got {labels.tolist()[:5]}."
        )


def _head(weight: Points, bias: Points) -> tuple[Tensor, Tensor]:
    w = as_rows("weight", weight)
    v = as_float64(bias)
    if len(w) < 2 or v.shape != (len(w),):
        raise ValueError(
            "a head needs `weight` (K, d) and `bias` (K,) with K at least 2; "
            f"got {tuple(w.shape)} and {tuple(v.shape)}."
        )
    check_finite("bias", v)
    return w, v
