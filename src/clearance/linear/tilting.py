"""How far a boundary is tilted against that of the nearest centroid, and the plane in which one sees it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.linear._arguments import Points, as_rows, as_signs, check_both_classes
from clearance.linear.hyperplane import Hyperplane

UNTILTED = 1e-12  # share of ||w|| below which what is left of w across z is rounding


def centroids(x: Points, y: Points) -> tuple[Tensor, Tensor]:
    """The means i of class I (y = -1) and j of class J (y = +1), each of shape (d,).

    Points are (n, d); y is -1 and +1, both present, (n,).

    Raises:
        ValueError: If a class is empty.

    >>> centroids([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]], [-1, -1, 1])[0].tolist()
    [1.0, 0.0]
    """
    rows = as_rows("x", x)
    signs = as_signs(y, len(rows))
    check_both_classes(signs)
    return rows[signs < 0].mean(dim=0), rows[signs > 0].mean(dim=0)


@dataclass(frozen=True)
class TiltingPlane:
    """The plane of w and z, with the middle of the centroids as origin; distances in it are those of the data.

    w / ||w|| = cos(angle) z + sin(angle) n,    d(x) = cos(angle) z_x + sin(angle) n_x + offset

    Source: Tanay and Griffin (2018).

    Args:
        z: From centroid i to centroid j, length 1, shape (d,).
        n: Across it, towards w, length 1, shape (d,).
        mid: (i + j) / 2, shape (d,).
        angle: Between w and z, in [0, pi].
        offset: Signed distance of `mid` to the boundary; the article's b.
        separation: ||j - i||; the centroids are at (-separation / 2, 0) and (separation / 2, 0).
    """

    z: Tensor
    n: Tensor
    mid: Tensor
    angle: float
    offset: float
    separation: float

    def coordinates(self, x: Points) -> Tensor:
        """(z_x, n_x) of every point, shape (n, 2), for points (n, d)."""
        return (as_rows("x", x) - self.mid) @ torch.stack([self.z, self.n], dim=1)

    def distances(self, coordinates: Tensor) -> Tensor:
        """Signed distances of points given by their coordinates (n, 2), shape (n,)."""
        turned = torch.tensor([math.cos(self.angle), math.sin(self.angle)], dtype=torch.float64)
        return coordinates @ turned + self.offset


def tilting_plane(plane: Hyperplane, x: Points, y: Points) -> TiltingPlane:
    """The tilting plane of a classifier on labelled data.

    Args:
        plane: The classifier.
        x: Points, shape (n, d), with d at least 2.
        y: -1 and +1, both present, shape (n,).

    Where w lies along z, n is free: it is taken from the feature that is most nearly across z.

    Raises:
        ValueError: If the centroids coincide, or d is 1, where no direction is across z.

    Misleads at small angles: n is what rounding and the solver's tolerance leave of w across z.

    >>> found = tilting_plane(Hyperplane.of([1.0, 1.0]), [[-2.0, 0.0], [2.0, 0.0]], [-1, 1])
    >>> round(found.angle / math.pi, 12), found.n.tolist(), found.separation
    (0.25, [0.0, 1.0], 4.0)
    """
    first, second = centroids(x, y)
    z, mid = _direction(first, second), (first + second) / 2
    if len(z) < 2:
        raise ValueError("a tilting plane needs points with at least 2 features; got 1.")
    along, left = _decomposed(plane.weight, z)
    length = float(torch.linalg.vector_norm(left))
    straight = length <= UNTILTED * plane.scale
    n = _across(z) if straight else left / length
    return TiltingPlane(
        z,
        n,
        mid,
        math.atan2(0.0 if straight else length, along),
        (float(plane.weight @ mid) + plane.bias) / plane.scale,
        float(torch.linalg.vector_norm(second - first)),
    )


def tilting_angle(plane: Hyperplane, x: Points, y: Points) -> float:
    """Theta = atan2(||w - (w.z) z||, w.z), between w and the direction z of the nearest centroid; in [0, pi] radians.

    Source: Tanay and Griffin (2018). atan2 keeps the digits of small angles, which arccos loses.

    Args:
        plane: The classifier.
        x: Points, shape (n, d).
        y: -1 and +1, both present, shape (n,).

    Raises:
        ValueError: If the centroids coincide.

    >>> tilting_angle(Hyperplane.of([1.0, 0.0], 7.0), [[-2.0, 0.0], [2.0, 0.0]], [-1, 1])
    0.0
    """
    along, left = _decomposed(plane.weight, _direction(*centroids(x, y)))
    return math.atan2(float(torch.linalg.vector_norm(left)), along)


def _direction(first: Tensor, second: Tensor) -> Tensor:
    difference = second - first
    length = torch.linalg.vector_norm(difference)
    # differences of equal means are rounding of the size of their entries, in each of d entries
    if float(length) <= 1e-14 * math.sqrt(len(first)) * float(first.abs().max() + second.abs().max()):
        raise ValueError(
            "the class centroids coincide, so that the nearest-centroid direction and the tilting angle do not exist; "
            "got ||j - i|| = 0. Tilting says nothing about such data."
        )
    return difference / length


def _decomposed(weight: Tensor, z: Tensor) -> tuple[float, Tensor]:
    """w.z, and what is left of w across z."""
    if weight.shape != z.shape:
        raise ValueError(
            f"`x` must have {len(weight)} columns, as many as the plane has weights; got {len(z)}."
        )
    along = weight @ z
    left = weight - along * z
    return float(along), left - (left @ z) * z


def _across(z: Tensor) -> Tensor:
    """The feature that is most nearly across z, less its part along z; of length 1."""
    nearest = torch.zeros_like(z)
    nearest[z.abs().argmin()] = 1.0
    left = _decomposed(nearest, z)[1]
    return left / torch.linalg.vector_norm(left)
