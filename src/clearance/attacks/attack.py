"""What all attacks share: one public call that checks, selects, searches and verifies."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from clearance._checks import check_count, check_non_negative
from clearance.attacks.balls import as_norm, check_norm, norm_of, projected
from clearance.attacks.losses import LOSSES, TARGETED_LOSSES
from clearance.attacks.queries import CHUNK, Model, gradients_of, logits_of
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


@dataclass(frozen=True)
class Batch:
    """Images under attack, and the model that is asked about them.

    Args:
        model: Images to logits.
        images: The originals, (B, ...).
        labels: (B,).
        targets: (B,), the classes wanted, or None where any wrong class will do.
        logits: Of the originals, (B, C).
        chunk: Images that the model sees at once.
    """

    model: Model
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    logits: Tensor
    chunk: int = CHUNK

    @classmethod
    def checked(
        cls, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None, bounds: Bounds, chunk: int
    ) -> "Batch":
        """A batch whose arguments have been checked; the model is asked for its logits.

        Raises:
            ValueError: If the model is in training mode, images are outside `bounds`, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        check_mode(model)
        check_images(images, bounds)
        images = _plain(images)
        labels = _plain(checked_classes("labels", labels, images))
        logits = logits_of(model, images, chunk=chunk) if len(images) else images.new_zeros(0, 2)
        check_range("labels", labels, logits.shape[1])
        if targets is not None:
            targets = _plain(checked_classes("targets", targets, images))
            check_range("targets", targets, logits.shape[1])
        return cls(model, images, labels, targets, logits, chunk)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, chosen: Tensor) -> "Batch":
        """Some of the images, by number or by mask."""
        targets = None if self.targets is None else self.targets[chosen]
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            targets=targets,
            logits=self.logits[chosen],
        )

    def broken(self, logits: Tensor) -> Tensor:
        """Whether the attack has what it wants, for logits of these images."""
        return broken(logits, self.labels, self.targets)

    def ascent(self, images: Tensor, loss: str, towards: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits of changed `images`, and the gradient of the loss named.

        The loss is steered towards the class `towards` if given, else towards the targets if there are any,
        else away from the labels.
        """
        steered = self.targets if towards is None else towards

        def value(logits: Tensor, rows: slice) -> Tensor:
            if steered is None:
                return LOSSES[loss](logits, self.labels[rows])
            return TARGETED_LOSSES[loss](logits, self.labels[rows], steered[rows])

        return gradients_of(self.model, images, value, chunk=self.chunk)


def _plain(tensor: Tensor) -> Tensor:
    """Without a graph, and not a tensor of inference mode, which no graph may hold."""
    with torch.inference_mode(False):
        return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


@dataclass(frozen=True)
class Attack(ABC):
    """An attack in a ball: settings that are called with a model, images and labels.

    A subclass says in `_search` how candidates are found. What it finds is clipped, range-checked and scored
    by asking the model again (:func:`~clearance.attacks.attack.rescored`).

    Args:
        epsilon: Radius in the unit of the pixels, at least 0; of the width of `bounds` at most in norm inf.
        norm: inf, 2 or 1.
        bounds: Of pixel values; [0, 1] everywhere in Clearance.
        chunk: Images that the model sees at once. Memory and speed alone are a reason to change it.

    Raises:
        ValueError: If a setting is out of range.
    """

    epsilon: float
    norm: float = math.inf
    bounds: Bounds = field(default=Bounds(), kw_only=True)
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_radius(self.epsilon, self.norm, self.bounds)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # of a caller: what is made in it cannot be differentiated by
    @torch.no_grad()
    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Attacked:
        """Attack the images that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. Its parameters' ``.grad`` and the
                images' are left alone.
            images: (B, ...) within the bounds, floating point.
            labels: (B,), the true classes.
            targets: (B,), classes that the images shall be taken for; by default any wrong class will do.

        Returns:
            Verified images; those that the model got wrong before are unchanged, at distance 0.

        Raises:
            ValueError: If the model is in training mode, images are outside the bounds, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._search(batch[~before], persist=False).to(found)
        return rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            bounds=self.bounds,
            epsilon=self.epsilon,
            targets=batch.targets,
            chunk=self.chunk,
            before=before,
        )

    @final
    @torch.inference_mode(False)
    @torch.no_grad()
    def perturbed(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Tensor:
        """The images after every step of the attack, whether or not the model is wrong on them already.

        Transfer wants these: images that are broken early go on to be changed. They are clipped and range-checked,
        but no success is claimed. Arguments and errors are those of a call.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        if not len(batch):
            return batch.images
        found = self._search(batch, persist=True)
        return confined(found, batch.images, norm=self.norm, bounds=self.bounds, epsilon=self.epsilon)

    @abstractmethod
    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        """Candidates for every image of the batch, of which there is at least one.

        Args:
            batch: Images to change.
            persist: Whether to go on with an image that is broken.
        """


AnyAttack = Callable[[Model, Tensor, Tensor], Attacked]
"""What takes attacks takes any of these; a callable that returns images becomes one by :func:`as_attack`."""


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


def check_radius(epsilon: float, norm: float, bounds: Bounds) -> None:
    """Raise ValueError unless `epsilon` is a radius of `norm` in the unit of `bounds`."""
    check_norm(norm)
    check_non_negative("epsilon", epsilon)
    width = bounds.upper - bounds.lower
    if norm == math.inf and epsilon > width:
        raise ValueError(
            f"`epsilon` must be at most {width:g}, the width of the bounds, in norm inf; got {epsilon}; "
            "it is in the unit of the pixels: divide grey levels by 255."
        )


def check_bounds(bounds: Any) -> None:
    """Raise TypeError unless these are :class:`Bounds`."""
    if not isinstance(bounds, Bounds):
        raise TypeError(
            f"`bounds` must be clearance.vocabulary.Bounds(lower, upper); got {type(bounds).__name__}."
        )


def check_mode(model: Any) -> None:
    """Raise ValueError if `model` is a module that is in training mode, or holds one that is."""
    if not isinstance(model, nn.Module):
        if getattr(model, "training", False):
            raise ValueError("`model` must not be in training mode; call `model.eval()` first.")
        return
    found = next((name for name, module in model.named_modules() if module.training), None)
    if found is not None:
        which = f"its {found!r} is in training mode" if found else "got one in training mode"
        raise ValueError(
            f"`model` must be in evaluation mode because dropout and batch normalisation would make its answer "
            f"depend on chance and on the other images; {which}; call `model.eval()` first."
        )
    found = next((name for name, module in model.named_modules() if _by_the_batch(module)), None)
    if found is not None:
        raise ValueError(
            f"`model` must answer to an image alone; its {found!r} normalises by the statistics of whatever images are "
            "asked together, also in evaluation mode. Give it running statistics (track_running_stats=True)."
        )


def _by_the_batch(module: nn.Module) -> bool:
    normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return normalises and module.running_mean is None and module.running_var is None


def check_images(images: Any, bounds: Bounds) -> None:
    """Raise unless `images` are a batch of floating point images within `bounds`."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"`images` must be a tensor of floating point numbers; got {got}.")
    if images.ndim < 2 or images[:1].numel() == 0 < len(images):
        raise ValueError(f"`images` must be of shape (B, ...); got {tuple(images.shape)}.")
    if not len(images):
        return
    low, high = (float(end) for end in images.detach().aminmax())
    if not (low >= bounds.lower and high <= bounds.upper):  # also where a pixel is not a number
        raise ValueError(
            f"`images` must lie in [{bounds.lower:g}, {bounds.upper:g}]; got values from {low:.6g} to {high:.6g}; "
            "normalise inside the model, not before it."
        )


def checked_classes(name: str, classes: Any, images: Tensor) -> Tensor:
    """Labels or targets as whole numbers on the device of `images`.

    Raises:
        TypeError: If they are not a tensor of whole numbers.
        ValueError: If there is not one for each image.
    """
    if not isinstance(classes, Tensor) or classes.is_floating_point() or classes.dtype == torch.bool:
        got = str(classes.dtype) if isinstance(classes, Tensor) else type(classes).__name__
        raise TypeError(f"`{name}` must be a tensor of whole numbers; got {got}.")
    if classes.shape != (len(images),):
        raise ValueError(
            f"`{name}` must be of shape ({len(images)},), one for each image; got {tuple(classes.shape)}."
        )
    return classes.detach().to(images.device, torch.long)


def check_other(targets: Tensor | None, labels: Tensor) -> None:
    """Raise ValueError if a target is the image's own label, which every image would reach as it is."""
    if targets is not None and len(same := (targets == labels).nonzero().flatten()):
        raise ValueError(
            f"`targets` must be other classes than `labels`; got the label itself, {int(labels[same[0]])}, for "
            f"{len(same)} of {len(labels)} images, the first at place {int(same[0])}. Leave those images out."
        )


def check_range(name: str, classes: Tensor, count: int) -> None:
    """Raise ValueError unless all `classes` are among the `count` that the model has logits for."""
    outside = classes[(classes < 0) | (classes >= count)]
    if len(outside):
        raise ValueError(
            f"`{name}` must lie in 0 ... {count - 1} because the model returns {count} logits; got {int(outside[0])}."
        )
