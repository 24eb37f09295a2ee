"""Two classes of points as the solvers see them: checked, centred, without what is constant or spare."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
SMALLEST = 1e-150  # whose squares float64 still holds to all its digits


@dataclass(frozen=True)
class Problem:
    """Rows  A_i = y_i (x_i - mid)  in coordinates of at most n axes, so that  y_i s(x_i) = A_i.w + y_i b.

    The middle of the centroids as origin makes the bias small and the equations better conditioned; neither
    that nor a change of axes moves the solution, because the bias is free and the norm is Euclidean.

    Args:
        rows: A, (n, r).
        y: -1 and +1, (n,).
        mid: The middle of the two centroids, (d,).
        kept: Which features vary, (d,) of bool.
        axes: Orthonormal columns (kept features, r) in which `rows` are given; None for the features themselves.
    """

    rows: Array
    y: Array
    mid: Array
    kept: NDArray[np.bool_]
    axes: Array | None

    @property
    def cap(self) -> float:
        """1/n, the most that one sample's multiplier can be."""
        return 1 / len(self.y)

    def weights(self, w: Array) -> Array:
        """Weights on all d features from those on the rows' axes."""
        full = np.zeros(len(self.mid))
        full[self.kept] = w if self.axes is None else self.axes @ w
        return full


def as_points(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Points (n, d) and labels (n,) as float64 arrays.

    Raises:
        ValueError: If shapes do not fit, a number or its square is not finite, a label is neither -1 nor +1, or a
            class is empty.
    """
    points, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(
            f"`x` must have shape (n, d) with d above 0; got {points.shape}; flatten images first."
        )
    if labels.shape != (len(points),):
        raise ValueError(
            f"`y` must have one label for each of the {len(points)} rows of `x`; got {labels.shape}."
        )
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"`x` must be finite; got {points[bad][~np.isfinite(points[bad])][0]} in row {bad}.")
    largest = float(np.abs(points).max())
    if not math.isfinite(largest * largest * points.size) or 0 < largest < SMALLEST:
        raise ValueError(
            f"`x` must have squares that are numbers; the largest of its values is {largest:.3g}. Rescale it: x times "
            "c, with lambda times c squared, gives w / c."
        )
    if not np.isin(labels, (-1.0, 1.0)).all():
        odd = sorted(set(labels[~np.isin(labels, (-1.0, 1.0))].tolist()))[:5]
        raise ValueError(f"`y` must hold -1 and +1; got {odd}; name one class -1 and the other +1.")
    for side in (-1.0, 1.0):
        if not (labels == side).any():
            raise ValueError(
                f"`y` must hold both classes; got none of {side:+.0f}: there is nothing to separate."
            )
    return points, labels


def problem_of(points: Array, labels: Array) -> Problem:
    """The problem of checked points and labels."""
    negative = labels < 0
    mid = (points[negative].mean(axis=0) + points[~negative].mean(axis=0)) / 2
    kept = np.ptp(points, axis=0) > 0
    rows = points[:, kept]
    rows -= mid[kept]
    rows *= labels[:, None]
    axes = None
    if rows.shape[1] > len(rows):
        # The best w lies in the span of the rows; more axes than rows would only cost time.
        axes, triangle = np.linalg.qr(rows.T)
        rows = np.ascontiguousarray(triangle.T)
    return Problem(rows, labels, mid, kept, axes)


def balanced_multipliers(problem: Problem) -> Array:
    """Every sample of the smaller class at 1/n, and the larger class with the same sum, evenly."""
    positive = problem.y > 0
    smaller = min(positive.sum(), (~positive).sum())
    return np.where(positive, smaller / positive.sum(), smaller / (~positive).sum()) * problem.cap


def repaired(a: Array, y: Array) -> Array:
    """Multipliers with sum a y = 0: the class with the larger sum shrunk to the other's."""
    positive = y > 0
    up, down = float(a[positive].sum()), float(a[~positive].sum())
    if up == down or min(up, down) <= 0:
        return a if up == down else np.zeros_like(a)
    return a * np.where(positive, min(up, down) / up, min(up, down) / down)
