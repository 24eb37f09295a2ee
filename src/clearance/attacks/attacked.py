"""What an attack returns, and the one function that everything it returns has passed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.attacks.balls import projected
from clearance.attacks.norms import norm_of
from clearance.attacks.queries import CHUNK, Model, logits_of
from clearance.vocabulary import Bounds

ROUNDING = 1e-4
"""Share of epsilon by which rounding may leave the ball; more than that is a mistake of the attack."""


@dataclass(frozen=True)
class Attacked:
    """Images after an attack; all three are verified, none is the attack's own word.

    Args:
        images: Within bounds and ball, shape and type of the originals. An image that the model got wrong
            before the attack is the original.
        success: (B,), whether the model is wrong on it: the class of the largest logit differs from the
            label (or equals the target, where there is one).
        distance: (B,), norm of `images` minus the originals, in pixel units, of successes and failures alike.

    >>> hit = Attacked(torch.zeros(2, 3), torch.tensor([True, False]), torch.zeros(2))
    >>> hit.success_rate
    0.5
    """

    images: Tensor
    success: Tensor
    distance: Tensor

    @property
    def success_rate(self) -> float:
        """Share of images on which the model is wrong; NaN where there are none."""
        return float(self.success.double().mean())


def broken(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether the class of the largest logit differs from the label, or equals the target where there is one.

    Logits that are not finite name no class: wrong whatever the label, and no target.

    >>> broken(torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), torch.tensor([1, 0]))
    tensor([False,  True])
    """
    named = logits.argmax(dim=1)
    nothing = ~logits.isfinite().all(dim=1)
    if targets is None:
        return (named != labels) | nothing
    return (named == targets) & ~nothing


@torch.no_grad()
def rescored(
    model: Model,
    originals: Tensor,
    candidates: Tensor,
    labels: Tensor,
    *,
    norm: float,
    bounds: Bounds,
    epsilon: float | None = None,
    targets: Tensor | None = None,
    chunk: int = CHUNK,
    before: Tensor | None = None,
) -> Attacked:
    """Clip, check the range, ask the model again.

    An image on which the model was wrong before (or which it took for the target) is a success at distance
    0 and returned unchanged, whatever the attack made of it. Pixels that are not numbers are put back.

    Args:
        model: Images to logits.
        originals: (B, ...), within `bounds`.
        candidates: What the attack found, the same shape.
        labels: (B,).
        norm: inf, 2 or 1; of the ball and of the distance.
        bounds: Of pixel values.
        epsilon: Radius of the ball in pixel units; None where the attack looks for the distance itself.
        targets: (B,), the classes wanted; None where any wrong class will do.
        chunk: Images that the model sees at once.
        before: (B,), whether the originals are broken, where that is known; else the model is asked.

    Raises:
        ValueError: If candidates have another shape, or are outside the ball by more than rounding.

    >>> originals = torch.tensor([[0.9, 0.1]])
    >>> hit = rescored(torch.nn.Identity(), originals, torch.tensor([[0.5, 0.75]]), torch.tensor([0]),
    ...                norm=1, bounds=Bounds())
    >>> hit.success, hit.distance
    (tensor([True]), tensor([1.0500]))
    """
    originals = originals.detach()
    found = confined(candidates, originals, norm=norm, bounds=bounds, epsilon=epsilon)
    if not len(originals):
        return Attacked(found, labels.new_zeros(0, dtype=torch.bool), norm_of(found - originals, norm))
    if before is None:
        before = broken(logits_of(model, originals, chunk=chunk), labels, targets)
    found = torch.where(before.view(-1, *[1] * (found.ndim - 1)), originals, found)
    success = broken(logits_of(model, found, chunk=chunk), labels, targets) | before
    return Attacked(found, success, norm_of(found - originals, norm))


def confined(
    candidates: Tensor, originals: Tensor, *, norm: float, bounds: Bounds, epsilon: float | None
) -> Tensor:
    """What an attack found, clipped and range-checked; pixels that are not numbers are put back.

    Args:
        candidates: What it found.
        originals: (B, ...), within `bounds`.
        norm: Of the ball.
        bounds: Of pixel values.
        epsilon: Radius of the ball; None where there is none.

    Raises:
        ValueError: If candidates have another shape, or are outside the ball by more than rounding.
    """
    if candidates.shape != originals.shape:
        raise ValueError(
            f"an attack must return images of shape {tuple(originals.shape)}, as it got; "
            f"it returned {tuple(candidates.shape)}."
        )
    found = candidates.detach().to(originals)
    found = torch.where(found.isnan(), originals, found).clamp(bounds.lower, bounds.upper)
    return found if epsilon is None else _inside(found, originals, epsilon, norm, bounds)


def _inside(found: Tensor, originals: Tensor, epsilon: float, norm: float, bounds: Bounds) -> Tensor:
    """Within the ball; what is outside by rounding is led back, what is farther outside is refused."""
    delta = found - originals
    distance = norm_of(delta, norm)
    largest = max(float(one.abs().max()) for one in (found, originals)) if len(found) else 0.0
    grain = torch.finfo(originals.dtype).eps * largest
    outside = distance > epsilon
    # every pixel may be off by its own rounding, which adds up in norm 1
    if bool((distance > epsilon * (1 + ROUNDING) + grain * _unit_norm(delta, norm)).any()):
        raise ValueError(
            f"an attack must stay within `epsilon` {epsilon} in norm {norm:g}; it returned an image at "
            f"{float(distance.max()):.6g}; give it the same radius, in pixel units."
        )
    repaired = originals + projected(delta, originals, epsilon, norm, bounds)
    return torch.where(outside.view(-1, *[1] * (found.ndim - 1)), repaired, found)


def _unit_norm(delta: Tensor, norm: float) -> float:
    """The norm of an image whose every pixel is 1."""
    pixels = delta[:1].numel() if len(delta) else 0
    return 1.0 if norm == float("inf") else pixels ** (1 / norm)
