"""Random points of a ball, drawn for each image by itself."""

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.attacks.norms import check_norm, norm_of
from clearance.vocabulary import Bounds


def random_starts(
    images: Tensor, epsilon: float, norm: float, bounds: Bounds, *, seed: int, stream: int
) -> Tensor:
    """A displacement for each image, uniform in the ball and then clipped to the bounds.

    The draw follows from the seed, the stream and the image's own pixels. So an image gets the same one
    wherever it stands in a batch and whatever stands beside it, and on every device; equal images get
    equal ones. float64 and float32 images with the same values are equal.

    Args:
        images: (B, ...), within `bounds`.
        epsilon: Radius in the unit of the pixels.
        norm: inf, 2 or 1.
        bounds: Of pixel values.
        seed: At least 0.
        stream: Tells several draws of one seed apart.

    Returns:
        Displacements of the shape and type of `images`.

    >>> images = torch.rand(4, 9)
    >>> starts = random_starts(images, 0.5, 2, Bounds(), seed=0, stream=1)
    >>> bool((norm_of(starts, 2) <= 0.5).all())
    True
    >>> torch.equal(random_starts(images[2:], 0.5, 2, Bounds(), seed=0, stream=1), starts[2:])
    True
    """
    check_norm(norm)
    size = images[0].numel()
    drawn = [_uniform(size, norm, draws) for draws in streams_of(images, seed, "start", stream)]
    delta = (epsilon * torch.stack(drawn)).to(images).view_as(images)
    # towards the centre at most, so the ball is not left
    return torch.maximum(torch.minimum(delta, bounds.upper - images), bounds.lower - images)


def streams_of(images: Tensor, seed: int, *names: str | int) -> Iterator[torch.Generator]:
    """A stream of random numbers for each image, which follows from the seed, the names and its own pixels.

    >>> one, other = streams_of(torch.tensor([[0.0, 0.5], [-0.0, 0.5]]), 0, "example")
    >>> one.initial_seed() == other.initial_seed()
    True
    """
    for pixels in images.detach().to("cpu", torch.float64):
        bits = (pixels + 0.0).numpy().tobytes()  # + 0.0 makes one zero of two
        yield generator(seed, *names, hashlib.sha256(bits).hexdigest())


def _uniform(size: int, norm: float, draws: torch.Generator) -> Tensor:
    """A point of the unit ball: a direction that is uniform on its surface, times U^(1 / size)."""
    if norm == math.inf:
        return 2 * torch.rand(size, generator=draws, dtype=torch.float64) - 1
    direction = torch.randn(size, generator=draws, dtype=torch.float64)
    if norm == 1:
        # uniform on the surface of the cross-polytope: exponential sizes, random signs
        uniform = torch.rand(size, generator=draws, dtype=torch.float64)
        direction = direction.sign() * -torch.log1p(-uniform)
    radius = torch.rand(1, generator=draws, dtype=torch.float64) ** (1 / size)
    return radius * direction / norm_of(direction.unsqueeze(0), norm)
