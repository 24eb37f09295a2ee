"""Rectangular patches at another place in every image of a batch, and the bumps that a square search puts there."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Size of a patch in pixels."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Patches:
    """One patch in every image.

    Args:
        inside: Which pixels belong to it, (B, 1, H, W).
        row: Of each pixel inside the patch, counted from its upper edge and clipped, (B, H, 1).
        column: Likewise from its left edge, (B, 1, W).
    """

    inside: Tensor
    row: Tensor
    column: Tensor

    def filled(self, values: Tensor, turned: Tensor) -> Tensor:
        """`values` of shape (rows, columns) laid into the patches, 0 outside, (B, 1, H, W).

        Where `turned`, (B,), their transpose is laid there, if they are square.
        """
        upright = values[self.row, self.column]
        if values.shape[0] == values.shape[1]:
            upright = torch.where(turned.view(-1, 1, 1), values.T[self.row, self.column], upright)
        return torch.where(self.inside, upright.unsqueeze(1), 0.0)


def patches(window: Window, height: int, width: int, down: Tensor, across: Tensor) -> Patches:
    """Patches that lie wholly within images of `height` x `width`.

    Args:
        window: Size of a patch, at most that of the image.
        height: Of the images.
        width: Of the images.
        down: Where it begins, as a share in [0, 1) of all places from top to bottom, (B,).
        across: Likewise from left to right.

    >>> found = patches(Window(1, 2), 2, 3, torch.tensor([0.9]), torch.tensor([0.6]))
    >>> found.inside[0, 0].int()
    tensor([[0, 0, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    row = _offsets(down, window.rows, height)[:, :, None]
    column = _offsets(across, window.columns, width)[:, None, :]
    inside = (row >= 0) & (row < window.rows) & (column >= 0) & (column < window.columns)
    return Patches(inside.unsqueeze(1), row.clamp(0, window.rows - 1), column.clamp(0, window.columns - 1))


def _offsets(share: Tensor, size: int, whole: int) -> Tensor:
    begin = (share.double() * (whole - size + 1)).long().clamp(max=whole - size)
    return torch.arange(whole, device=share.device) - begin[:, None]


def pyramid(rows: int, columns: int) -> Tensor:
    """A bump of concentric rectangles, higher the nearer to the middle, (rows, columns).

    On the k-th rectangle from the outside the height is sum_{j=0..k} 1 / (n + 1 - j)^2, n = max(rows, columns) // 2.

    Source: Andriushchenko et al. (2020), section 3.4.

    >>> bump = pyramid(3, 3)
    >>> bool((bump[1, 1] > bump[0, 0]) & (bump[0, 0] == bump[0, 1]))
    True
    """
    depth = torch.minimum(_from_edge(rows)[:, None], _from_edge(columns)[None, :])
    n = max(rows, columns) // 2
    heights = torch.tensor([1 / (n + 1 - k) ** 2 for k in range(n + 1)]).cumsum(0)
    return heights[depth]


def split_pyramid(rows: int, columns: int) -> Tensor:
    """A bump in two halves of opposite sign, one beside the other, (rows, columns).

    >>> split_pyramid(1, 2)
    tensor([[ 1., -1.]])
    """
    if columns == 1:
        return pyramid(rows, columns)
    half = columns // 2
    return torch.cat([pyramid(rows, half), -pyramid(rows, columns - half)], dim=1)


def _from_edge(size: int) -> Tensor:
    place = torch.arange(size)
    return torch.minimum(place, size - 1 - place)
