"""The boundary of two classes in the plane, and exact distances to it."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearance._checks import check_count

HALVINGS = 40  # of a grid's edge: past the precision of float64


def boundary_points(
    score: Callable[[Tensor], Tensor], low: float, high: float, resolution: int = 400
) -> Tensor:
    """Points of the curve score = 0 in a square: its crossings with a grid's edges, each found by bisection.

    Args:
        score: Takes points (N, 2), gives (N,); positive on one side, negative on the other.
        low: Where both coordinates begin.
        high: Where they end; above `low`.
        resolution: Cells along a side, at least 2. An edge that the curve crosses twice is not seen, so that
            details smaller than a cell are lost.

    Shapes:
        returns (P, 2) float64, each within float rounding of the curve; P is 0 where there is none.

    Raises:
        ValueError: If `resolution` is below 2 or `high` is not above `low`.

    >>> circle = boundary_points(lambda at: at.square().sum(dim=1) - 0.25, -1.0, 1.0, resolution=50)
    >>> bool(((circle.norm(dim=1) - 0.5).abs() < 1e-9).all())
    True
    """
    check_count("resolution", resolution, minimum=2)
    if not low < high:
        raise ValueError(f"`low` must be below `high`; got {low} and {high}.")
    ticks = torch.linspace(low, high, resolution + 1, dtype=torch.float64)
    grid = torch.cartesian_prod(ticks, ticks).reshape(resolution + 1, resolution + 1, 2)
    inside = (score(grid.reshape(-1, 2)) > 0).reshape(resolution + 1, resolution + 1)
    starts, ends = [], []
    for first, second in (
        ((slice(None, -1), slice(None)), (slice(1, None), slice(None))),
        ((slice(None), slice(None, -1)), (slice(None), slice(1, None))),
    ):
        crossed = inside[first] != inside[second]
        starts.append(grid[first][crossed])
        ends.append(grid[second][crossed])
    return _bisected(score, torch.cat(starts), torch.cat(ends))


def distances_to(points: Tensor, curve: Tensor) -> Tensor:
    """Distance of every point to the nearest point of a curve that is given by closely spaced points.

    Never too small; too large by at most h^2 / 8d for points of the curve h apart at distance d.

    Shapes:
        points (N, 2); curve (P, 2), P at least 1; returns (N,) float64.

    >>> distances_to(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
    tensor([5.], dtype=torch.float64)
    """
    return torch.cdist(points.double(), curve.double()).amin(dim=1)


def _bisected(score: Callable[[Tensor], Tensor], start: Tensor, end: Tensor) -> Tensor:
    if not len(start):
        return start
    side = score(start) > 0
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        before = (score(middle) > 0) == side
        start = torch.where(before[:, None], middle, start)
        end = torch.where(before[:, None], end, middle)
    return (start + end) / 2
