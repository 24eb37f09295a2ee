"""What a data set's distances to a linear boundary come to: adversarial distance, error distance, error rate."""

from torch import Tensor

from clearance.linear._arguments import Points, as_float64, as_rows, as_signs, check_both_classes
from clearance.linear.hyperplane import Hyperplane, scores, signed_distances


def margins(plane: Hyperplane, x: Points, y: Points, norm: float = 2.0) -> Tensor:
    """Y d(x): the signed distance, positive where the class is right; shape (n,).

    Args:
        plane: The classifier.
        x: Points, shape (n, d), at least one.
        y: -1 and +1, shape (n,).
        norm: p, at least 1.

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
    rows = as_rows("x", x)
    if not len(rows):
        raise ValueError("`x` must hold at least one point; got none.")
    return as_signs(y, len(rows)) * scores(plane, rows) <= 0


def _mean(values: Tensor, y: Points, *, class_balanced: bool) -> float:
    if not class_balanced:
        return float(values.mean())
    signs = as_float64(y)
    check_both_classes(signs)
    return float((values[signs > 0].mean() + values[signs < 0].mean()) / 2)
