"""Square search: random changes of square patches, kept when they help; needs only logits, no gradient."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction, check_positive
from clearance.attacks.attack import Attack, Batch, chunk_count, logits_of
from clearance.attacks.balls import norm_of, projected, room_along, streams_of


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

    The window is at most as large as the image; `down` and `across`, (B,), are where a patch begins, as a share in
    [0, 1) of all places from top to bottom and from left to right.

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
    """A bump in two halves of opposite sign, next to each other, (rows, columns).

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


HALVED_AT = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""After which share of the queries the area of a patch is halved: the paper's schedule for 10,000 queries."""
DRAWN_AT_ONCE = 250
"""Queries whose random numbers are drawn together; after each such number images may be given up."""
FEW, TOGETHER = 500, 5
"""Queries after which few images are left where some are given up; from then on an image shows several at once."""
DRAWS = 5
"""Numbers that one query of one image uses in addition to the signs of its channels: two corners and a turn."""


@dataclass(frozen=True)
class SquareSearch(Attack):
    r"""A random search that changes one square patch a query, and keeps what raises the logit margin.

    Norm inf: the start is vertical stripes of +-epsilon; then a patch of every channel is set to +epsilon or
    -epsilon. Norm 2: the start is a grid of bumps of random sign; then a patch gets a bump in two halves of
    opposite sign, paid for by emptying another patch. Norm 1: the start is the image; then a patch of one channel, of
    at most as many pixels as epsilon can move from bound to bound, goes towards one, paid for by what is not spent
    yet, and where that is too little by putting one pixel back, drawn in proportion to how far it was moved.
    Patches shrink as queries are spent.

    Source: Andriushchenko, Croce, Flammarion, Hein, *Square Attack* (2020), algorithms 1 to 3 and section 3.3;
    written from the description. Norm 1 is not in the paper (Croce and Hein, *Mind the Box*, 2021, have another
    search there).

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf, 2 or 1.
        queries: Forward passes an image, the start's included; 1,000 by default.
        share: Of the image's area that the first patches cover, in (0, 1]; 0.8, the paper's for MNIST.
        seed: What is drawn for an image follows from it and from the image's own pixels, so that neither its
            place nor the other images in a batch matter.
        patience: Above 0. After every 250 queries an image is given up if its logit margin is farther from 0 than
            patience / queries of what it was without an attack. By default none is.
        chunk: Images that the model sees at once.

    Images that are not of shape (C, H, W) are searched as one row of pixels.

    Raises:
        ValueError: If a setting is out of range.

    Misleads as the only attack: gradients find more where the model has them. It is meant for models that
    hide them.

    >>> model, image = torch.nn.Flatten().eval(), torch.tensor([[[[0.8, 0.4]]]])     # every pixel is a class
    >>> hit = SquareSearch(epsilon=0.3, queries=50)(model, image, torch.tensor([0]))
    >>> hit.success
    tensor([True])
    """

    queries: int = 1000
    share: float = 0.8
    seed: int = 0
    patience: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("queries", self.queries)
        check_fraction("share", self.share, open_below=True)
        check_count("seed", self.seed, minimum=0)
        if self.patience is not None:
            check_positive("patience", self.patience)

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        searched = batch.images.shape[1:]
        shape = searched if batch.images.ndim == 4 else (1, 1, searched.numel())
        images, streams = batch.images.reshape(-1, *shape), [*streams_of(batch.images, self.seed, "square")]
        first = torch.stack(
            [torch.rand(shape, generator=stream, dtype=torch.float32) for stream in streams]
        ).to(images)
        best = self._kept_inside(self._start(images, first).to(images), images).clone()
        found, rows = batch.images.clone(), torch.arange(len(batch), device=images.device)
        least = torch.full_like(images[:, 0, 0, 0], -math.inf)
        begin, open_ = batch.margin(batch.logits).to(least), torch.ones_like(rows, dtype=torch.bool)
        draws, query = first.new_zeros(len(batch), 0), 0
        while query < self.queries:
            fresh = query % DRAWN_AT_ONCE
            if fresh == 0 < query and not persist and self.patience is not None:
                open_ &= least >= begin * (self.patience / query)
            together = TOGETHER if self.patience is not None and query >= FEW else 1
            left = int(open_.sum())
            if chunk_count(left * together, self.chunk) < chunk_count(len(rows) * together, self.chunk):
                found[rows] = (images + best).reshape(-1, *searched)
                if not left:
                    return found
                streams = [stream for stream, kept in zip(streams, open_.tolist(), strict=True) if kept]
                batch, rows, images, best = batch[open_], rows[open_], images[open_], best[open_]
                begin, least, draws, open_ = begin[open_], least[open_], draws[open_], open_[open_]
            if fresh == 0:
                count = min(DRAWN_AT_ONCE, self.queries - query)
                draws = _uniform(streams, count, DRAWS + shape[0]).to(images)
            tried = [
                best if query == 0 else self._moved(best, images, draws[:, number], query)
                for number in range(fresh, min(fresh + together, draws.shape[1]))
            ]
            query += len(tried)
            shown = torch.cat([(images + each).reshape(-1, *searched) for each in tried])
            asked = [
                (batch.margin(logits).to(least), batch.broken(logits))
                for logits in logits_of(batch.model, shown, chunk=self.chunk).split(len(rows))
            ]
            for each, (margin, done) in zip(tried, asked, strict=True):
                margin = margin.masked_fill(done & margin.isnan(), math.inf)  # such logits name no class
                better = open_ & ((margin > least) | (done & (not persist)))
                best[better], least[better] = each[better], margin[better]
                if not persist:
                    open_ &= ~done
        found[rows] = (images + best).reshape(-1, *searched)
        return found

    def _start(self, images: Tensor, draws: Tensor) -> Tensor:
        height, width = images.shape[2:]
        if self.norm == 1:
            return torch.zeros_like(images)
        if self.norm == math.inf:
            return (self.epsilon * _sign(draws[:, :, :1])).expand_as(images)
        side = max(min(height, width) // 5, 1)
        signs = _sign(draws)
        bump = pyramid(side, side).to(images)
        tiles = bump.repeat(math.ceil(height / side), math.ceil(width / side))[:height, :width]
        corner = [torch.arange(size, device=images.device) // side * side for size in (height, width)]
        bumps = tiles * signs[:, :, corner[0]][:, :, :, corner[1]]  # one sign a tile
        return self.epsilon * bumps / norm_of(bumps, 2).view(-1, 1, 1, 1)

    def _moved(self, delta: Tensor, images: Tensor, draws: Tensor, query: int) -> Tensor:
        _, channels, height, width = images.shape
        window = self._window(height, width, query / self.queries)
        here = patches(window, height, width, draws[:, 0], draws[:, 1])
        if self.norm == 1:
            channel = (draws[:, 3] * channels).long().clamp(max=channels - 1)
            one = torch.arange(channels, device=images.device) == channel.unsqueeze(1)
            patch = here.inside & one[:, :, None, None]
            return self._kept_inside(self._spent(delta, images, patch, draws[:, 2], draws[:, 4]), images)
        signs = _sign(draws[:, DRAWS : DRAWS + channels]).view(-1, channels, 1, 1)
        if self.norm == math.inf:
            up = (1 - images).clamp(max=self.epsilon)
            down = -images.clamp(max=self.epsilon)
            return torch.where(here.inside, torch.where(signs > 0, up, down), delta)
        there = patches(window, height, width, draws[:, 2], draws[:, 3])
        bump = here.filled(split_pyramid(window.rows, window.columns).to(images), draws[:, 4] < 0.5) * signs
        return self._kept_inside(self._exchanged(delta, here.inside, there.inside, bump), images)

    def _exchanged(self, delta: Tensor, here: Tensor, there: Tensor, bump: Tensor) -> Tensor:
        """One patch emptied; its length, and what was not spent yet, go into a bump on another."""
        unspent = (self.epsilon**2 - delta.square().sum(dim=(1, 2, 3))).clamp(min=0) / delta.shape[1]
        freed = _length(torch.where(here | there, delta, 0.0)).square()
        available = (freed + unspent.view(-1, 1, 1, 1)).sqrt()
        old = torch.where(here, delta, 0.0)
        shape = bump / _length(bump).clamp(min=1e-12) + old / _length(old).clamp(min=1e-12)
        filled = shape / _length(shape).clamp(min=1e-12) * available
        return torch.where(here, filled, torch.where(there, 0.0, delta))

    def _spent(self, delta: Tensor, images: Tensor, here: Tensor, pixel: Tensor, direction: Tensor) -> Tensor:
        """A patch moved towards a bound as far as what is left of epsilon goes; a pixel is put back if it is short."""
        rest = torch.where(here, 0.0, delta)
        way = _sign(direction).view(-1, 1, 1, 1)
        room = torch.where(here, room_along(way.expand_as(images), images), 0.0)
        short = self.epsilon - _total(rest) < _total(room)
        rest = torch.where(short, _one_put_back(rest, pixel), rest)
        each = (self.epsilon - _total(rest)).clamp(min=0) / _total(here.to(delta))
        return torch.where(here, way * torch.minimum(room, each), rest)

    def _kept_inside(self, delta: Tensor, images: Tensor) -> Tensor:
        return projected(delta, images, self.epsilon, self.norm)

    def _window(self, height: int, width: int, spent: float) -> Window:
        """A square, or what has its area where the image is too narrow for one."""
        halvings = sum(spent > at for at in HALVED_AT)
        area = self.share / 2**halvings * height * width
        if self.norm == 1:
            # A larger patch could not come near its bounds, and few pixels moved far do most.
            area = min(area, self.epsilon)
        side = max(round(math.sqrt(area)), 1)
        if side > height:
            return Window(height, min(max(round(area / height), 1), width))
        return Window(side if side <= width else min(round(area / width), height), min(side, width))


def _sign(uniform: Tensor) -> Tensor:
    return torch.where(uniform < 0.5, -1.0, 1.0).to(uniform)


def _uniform(streams: list[torch.Generator], count: int, width: int) -> Tensor:
    """Uniform numbers of each stream, (B, count, width)."""
    return torch.stack(
        [torch.rand(count, width, generator=stream, dtype=torch.float32) for stream in streams]
    )


def _length(delta: Tensor) -> Tensor:
    """Euclidean length of each channel, (B, C, 1, 1)."""
    return delta.square().sum(dim=(2, 3), keepdim=True).sqrt()


def _total(delta: Tensor) -> Tensor:
    """Sum of sizes over each image, (B, 1, 1, 1)."""
    return delta.abs().sum(dim=(1, 2, 3), keepdim=True)


def _one_put_back(delta: Tensor, share: Tensor) -> Tensor:
    """The displacement without one of its entries, drawn by their sizes: the one at `share` of their running sum.

    >>> delta = torch.tensor([0.5, 0.0, -1.5, 0.0]).repeat(2, 1)             # a quarter of the sum, and the rest
    >>> _one_put_back(delta, torch.tensor([0.24, 0.26])).tolist()
    [[0.0, 0.0, -1.5, 0.0], [0.5, 0.0, 0.0, 0.0]]
    >>> _one_put_back(torch.zeros(1, 2), torch.tensor([0.9])).tolist()
    [[0.0, 0.0]]
    """
    flat = delta.flatten(1)
    running = flat.abs().cumsum(dim=1)
    place = torch.searchsorted(running, share.unsqueeze(1).to(running) * running[:, -1:], right=True)
    return flat.scatter(1, place.clamp(max=flat.shape[1] - 1), 0.0).view_as(delta)
