"""A linear classifier's boundary: scores, signed distances and the mirror image.

Over a labelled data set: adversarial distance, error distance, error rate.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._first_order import dual_exponent, dual_norm, first_order_distance
from clearance.linear._arguments import (
    SMALLEST,
    Points,
    as_float64,
    as_rows,
    as_signs,
    check_both_classes,
    check_finite,
)


@dataclass(frozen=True)
class Hyperplane:
    """The classifier  s(x) = w.x + b:  class J (y = +1) where s >= 0, class I (y = -1) where s <= 0.

    Args:
        weight: w, shape (d,), float64, not all zero.
        bias: b.

    Use :meth:`of`, which checks its arguments.

    >>> plane = Hyperplane.of([3.0, 4.0], -5.0)
    >>> plane.scale, scores(plane, [[3.0, 4.0]]).tolist(), signed_distances(plane, [[3.0, 4.0]]).tolist()
    (5.0, [20.0], [4.0])
    """

    weight: Tensor
    bias: float

    @classmethod
    def of(cls, weight: Points, bias: Tensor | float = 0.0) -> "Hyperplane":
        """From weights (d,) or (1, d) and a bias of one number.

        Raises:
            ValueError: If the shape is another, a number or the square of a weight is not finite, or all weights are
                0: then there is no boundary.
        """
        w = as_float64(weight)
        w = w[0] if w.ndim == 2 and len(w) == 1 else w
        if w.ndim != 1 or not len(w):
            raise ValueError(
                f"`weight` must have shape (d,); got {tuple(w.shape)}. Between classes k and j of several it is "
                "weight[j] - weight[k], with the bias bias[j] - bias[k]."
            )
        b = as_float64(bias)
        if b.numel() != 1:
            raise ValueError(f"`bias` must be one number; got shape {tuple(b.shape)}.")
        check_finite("weight", w)
        check_finite("bias", b.reshape(1))
        if not bool(w.any()):
            raise ValueError(
                "`weight` must not be all 0, because then no boundary exists; got only zeros. "
                "Check whether the class centroids coincide."
            )
        largest = float(w.abs().max())
        if not math.isfinite(largest * largest * len(w)) or largest < SMALLEST:
            raise ValueError(
                f"`weight` must have squares within float64; got a largest weight of {largest:.3g}. Divide weights and "
                "bias by it: the boundary stays the same."
            )
        return cls(w.clone(), float(b))

    @property
    def scale(self) -> float:
        """||w||_2, the factor between a signed distance and a score; its inverse is a hinge's margin."""
        return float(torch.linalg.vector_norm(self.weight))


def scores(plane: Hyperplane, x: Points) -> Tensor:
    """s(x) = w.x + b, shape (n,), for points (n, d).

    Raises:
        ValueError: If the points have another width than the plane.

    >>> scores(Hyperplane.of([1.0, 0.0], 2.0), [[3.0, 9.0]])
    tensor([5.], dtype=torch.float64)
    """
    rows = as_rows("x", x)
    if rows.shape[1] != len(plane.weight):
        raise ValueError(
            f"`x` must have {len(plane.weight)} columns, as many as the plane has weights; got {rows.shape[1]}."
        )
    return rows @ plane.weight + plane.bias


def signed_distances(plane: Hyperplane, x: Points, norm: float = 2.0) -> Tensor:
    """d(x) = s(x) / ||w||_q,  1/p + 1/q = 1: how far the boundary is, positive on the side of class J.

    Source: Tanay and Griffin (2018), for p = 2; for other p the largest change of a linear function by a step of
    length 1 is the dual norm of its weights.

    Points are (n, d), distances (n,), in the unit of x. p is at least 1: 2 as in the article, ``inf`` for the largest
    change of a pixel.

    >>> signed_distances(Hyperplane.of([3.0, 4.0]), [[1.0, 1.0]], norm=float("inf"))      # 7 / (3 + 4)
    tensor([1.], dtype=torch.float64)
    """
    length = dual_norm(plane.weight.unsqueeze(0), norm)
    return first_order_distance(scores(plane, x), length)


def steepest(weight: Points, norm: float = 2.0) -> Tensor:
    """The step v of p-norm 1 along which w.v is largest, namely ||w||_q; shape (d,).

    v_i = sign(w_i) (|w_i| / ||w||_q)^(q - 1);  for p = 1 the largest weight alone, for p = inf all signs.

    w, (d,), is not all zero; p is at least 1. For p = 1 the first of several largest weights is used, for p = inf a
    zero weight gives no step: other steps are then equally good.

    Raises:
        ValueError: If all weights are 0, or one is not finite.

    >>> weight = torch.tensor([3.0, -4.0], dtype=torch.float64)
    >>> steepest(weight, 2).tolist(), steepest(weight, 1).tolist(), steepest(weight, float("inf")).tolist()
    ([0.6, -0.8], [0.0, -1.0], [1.0, -1.0])
    """
    dual, w = dual_exponent(norm), as_float64(weight)
    check_finite("weight", w)
    if not bool(w.any()):
        raise ValueError("`weight` must not be all 0, because it then has no direction; got only zeros.")
    if math.isinf(dual):
        only = torch.zeros_like(w)
        largest = w.abs().argmax()
        only[largest] = w[largest].sign()
        return only
    length = dual_norm(w.unsqueeze(0), norm)
    return w.sign() * (w.abs() / length) ** (dual - 1)


def mirrored(plane: Hyperplane, x: Points, norm: float = 2.0) -> Tensor:
    """x_m = x - 2 d(x) v: the mirror image, with s(x_m) = -s(x); shape (n, d).

    Source: Tanay and Griffin (2018), "mirror image"; v is :func:`steepest`, w / ||w|| for p = 2.
    ||x_m - x||_p = 2 |d(x)|.

    Points are (n, d); p, of the step, is at least 1. For p = 2 mirroring twice gives x; so it does for any p, because
    the step depends on the plane alone. The result is not clipped: it may leave the range of images.

    >>> mirrored(Hyperplane.of([1.0, 0.0], -1.0), [[3.0, 5.0]])
    tensor([[-1.,  5.]], dtype=torch.float64)
    """
    distances = signed_distances(plane, x, norm)
    return as_rows("x", x) - 2.0 * distances.unsqueeze(1) * steepest(plane.weight, norm)


def margins(plane: Hyperplane, x: Points, y: Points, norm: float = 2.0) -> Tensor:
    """Margins y d(x): the signed distance, positive where the class is right; shape (n,).

    There is at least one point, (n, d); y is -1 and +1, (n,); p is at least 1.

    >>> margins(Hyperplane.of([2.0]), [[-3.0], [-1.0]], [-1, 1]).tolist()
    [3.0, -1.0]
    """
    rows = as_rows("x", x)
    if not len(rows):
        raise ValueError("`x` must hold at least one point; got none.")
    return as_signs(y, len(rows)) * signed_distances(plane, rows, norm)


def adversarial_distance(
    plane: Hyperplane, x: Points, y: Points, norm: float = 2.0, *, class_balanced: bool = False
) -> float:
    """d_adv = mean y d(x): how far the data are from the boundary on average; errors count against it.

    Source: Tanay and Griffin (2018). For classes of equal size and p = 2 it is  ||j - i|| cos(theta) / 2  with the
    centroids i, j and the tilting angle theta: no bias changes it.

    Args:
        plane: The classifier.
        x: Points, shape (n, d).
        y: -1 and +1, shape (n,).
        norm: p, at least 1.
        class_balanced: Average the two classes' means, (d(j) - d(i)) / 2, so that the bias drops out for classes of
            unequal size too. With classes of equal size it is the same number.

    Raises:
        ValueError: If `class_balanced` and a class is empty.

    >>> adversarial_distance(Hyperplane.of([1.0]), [[-3.0], [-1.0], [1.0]], [-1, -1, 1], class_balanced=True)
    1.5
    """
    return _mean(margins(plane, x, y, norm), y, class_balanced=class_balanced)


def error_distance(
    plane: Hyperplane, x: Points, y: Points, norm: float = 2.0, *, class_balanced: bool = False
) -> float:
    """d_err = mean max(-y d(x), 0): how deep the errors lie on the wrong side, at least 0.

    Source: Tanay and Griffin (2018). mean |d| = d_adv + 2 d_err.

    Args:
        plane: The classifier.
        x: Points, shape (n, d).
        y: -1 and +1, shape (n,).
        norm: p, at least 1.
        class_balanced: Average the two classes' means.

    Misleads as an error rate: data on the boundary have error distance 0 and are all wrong.

    >>> error_distance(Hyperplane.of([1.0]), [[-3.0], [1.0], [-2.0], [4.0]], [-1, -1, 1, 1])
    0.75
    """
    return _mean((-margins(plane, x, y, norm)).clamp_min(0), y, class_balanced=class_balanced)


def error_rate(plane: Hyperplane, x: Points, y: Points) -> float:
    """The share of points with y s(x) <= 0, in [0, 1]; a score of 0 is an error for either class.

    >>> error_rate(Hyperplane.of([1.0]), [[-3.0], [0.0], [2.0]], [-1, 1, 1])
    0.3333333333333333
    """
    return float(wrong(plane, x, y).double().mean())


def wrong(plane: Hyperplane, x: Points, y: Points) -> Tensor:
    """Which points have y s(x) <= 0, shape (n,).

    >>> wrong(Hyperplane.of([1.0]), [[-3.0], [0.0]], [-1, 1]).tolist()
    [False, True]
    """
    return margins(plane, x, y) <= 0


def _mean(values: Tensor, y: Points, *, class_balanced: bool) -> float:
    if not class_balanced:
        return float(values.mean())
    signs = as_float64(y)
    check_both_classes(signs)
    return float((values[signs > 0].mean() + values[signs < 0].mean()) / 2)
