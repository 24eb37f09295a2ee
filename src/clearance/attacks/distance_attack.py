"""What attacks that look for the distance itself share: one public call that checks, selects and verifies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.attacks._arguments import check_bounds
from clearance.attacks.attack import Batch
from clearance.attacks.attacked import Attacked, rescored
from clearance.attacks.norms import as_norm, check_norm
from clearance.attacks.queries import CHUNK, Model, logits_of
from clearance.vocabulary import Bounds

FARTHER = (1.0005, 1.002, 1.01, 1.02)
"""By how much a candidate on the very boundary is moved out, as factors of its distance, one after the other."""


@dataclass(frozen=True)
class DistanceAttack(ABC):
    """An attack without a radius: it looks for the nearest image that the model gets wrong.

    Args:
        norm: inf, 2 or 1; what nearest means.
        bounds: Of pixel values; [0, 1] everywhere in Clearance.
        chunk: Images that the model sees at once. Memory and speed alone are a reason to change it.

    Raises:
        ValueError: If a setting is out of range.
    """

    norm: float = 2.0
    bounds: Bounds = field(default=Bounds(), kw_only=True)
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_norm(self.norm)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # of a caller: what is made in it cannot be differentiated by
    @torch.no_grad()
    def __call__(self, model: Model, images: Tensor, labels: Tensor) -> Attacked:
        """The nearest wrong images found for those that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. No ``.grad`` is touched.
            images: (B, ...) within the bounds, floating point.
            labels: (B,), the true classes.

        Returns:
            Verified images with their distances in pixel units: 0 for an image that the model got wrong
            before, infinity (and the original) for one where no wrong image was found.

        Raises:
            ValueError: If the model is in training mode, images are outside the bounds, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images or labels are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, None, self.bounds, self.chunk)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._search(batch[~before])
            found = self._settled(batch, found, before)
        hit = rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            bounds=self.bounds,
            chunk=self.chunk,
            before=before,
        )
        failed = hit.success.logical_not()
        images = chosen(failed, batch.images, hit.images)
        return replace(hit, images=images, distance=torch.where(failed, torch.inf, hit.distance))

    def _settled(self, batch: Batch, found: Tensor, before: Tensor) -> Tensor:
        """Candidates that lie so near the boundary that rounding decides, moved a little farther out.

        What a search saw of an image can differ in the last bit from what the whole batch shows.
        """
        for farther in FARTHER:
            wrong = before | batch.broken(logits_of(batch.model, found, chunk=batch.chunk))
            if bool(wrong.all()):
                break
            share = torch.full_like(found.flatten(1)[:, 0], farther)
            found = chosen(wrong, found, blended(batch.images, found, share, self.bounds))
        return found

    @abstractmethod
    def _search(self, batch: Batch) -> Tensor:
        """Candidates within the bounds for every image of the batch, of which there is at least one."""


def blended(images: Tensor, far: Tensor, share: Tensor, bounds: Bounds) -> Tensor:
    """Images moved towards others by a share of the way each, (B,)."""
    moved = images + _column(share, images).to(images) * (far - images)
    return moved.clamp(bounds.lower, bounds.upper)


def shortened(batch: Batch, far: Tensor, bounds: Bounds, halvings: int) -> Tensor:
    """Wrong images nearer to the originals, on the straight way to `far`, found by bisection.

    Precise to 2^-halvings of the way; exact where the way crosses the boundary once. Rows of `far` that are
    not wrong themselves are returned as they are, or nearly.

    >>> model = torch.nn.Identity().eval()                                  # the larger pixel names the class
    >>> batch = Batch.checked(model, torch.tensor([[1.0, 0.5]]), torch.tensor([0]), None, Bounds(), 64)
    >>> near = shortened(batch, torch.tensor([[0.0, 0.5]]), Bounds(), halvings=12)
    >>> round(float(near[0, 0]), 3)
    0.5
    """
    low, high = torch.zeros_like(far.flatten(1)[:, 0]), torch.ones_like(far.flatten(1)[:, 0])
    for _ in range(halvings):
        middle = (low + high) / 2
        logits = logits_of(batch.model, blended(batch.images, far, middle, bounds), chunk=batch.chunk)
        wrong = batch.broken(logits)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return blended(batch.images, far, high, bounds)


def chosen(which: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Whole images of `first` where `which` is true, of `second` elsewhere; `which` is (B,)."""
    return torch.where(_column(which, first), first, second)


def _column(numbers: Tensor, images: Tensor) -> Tensor:
    return numbers.view(-1, *[1] * (images.ndim - 1))
