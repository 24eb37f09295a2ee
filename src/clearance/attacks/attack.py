"""What all attacks share: how a model is asked, and the call that verifies what an attack found.

An attack sees a callable `model(images) -> logits` on images in [0, 1], and nothing else of a classifier.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from clearance._checks import check_count, check_pixel_range
from clearance.attacks.balls import (
    as_norm,
    check_radius,
    chosen,
    norm_of,
    of_all_pixels,
    projected,
)
from clearance.attacks.losses import LOSSES, logit_margin, targeted_dlr

Model = Callable[[Tensor], Tensor]
"""Images in, logits (B, C) out; a module in evaluation mode, or any other callable."""

NO_GRAPH = "its logits have no graph to them (torch.no_grad, detach, or NumPy within)"
CHUNK = 64
"""Images that a model sees at once."""


class NoGradientWarning(UserWarning):
    """A model whose logits carry no gradient back to its images: the result of gradient attacks means nothing."""


def logits_of(model: Model, images: Tensor, *, chunk: int = CHUNK) -> Tensor:
    """Logits of images, without a graph, shape (B, C).

    Arithmetic on a batch depends, in its last bits, on how many images are in it: libraries choose another
    kernel for another shape. An attack asks about fewer and fewer images, and its steps turn last bits into
    whole steps. So the model always sees `chunk` images; where fewer are left, the last one is repeated.

    `images` are (B, ...), B at least 1; change `chunk` only for memory or speed.

    Raises:
        ValueError: If what comes back is not of shape (chunk, C) with C at least 2.

    >>> logits_of(torch.nn.Flatten(), torch.ones(3, 1, 1, 2)).shape
    torch.Size([3, 2])
    """
    # inference mode of a caller would outlive torch.no_grad() in the tensors that are made here
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([_answer(model, padded)[:size] for padded, size in _chunks(images, chunk)])


def gradients_of(
    model: Model, images: Tensor, loss: Callable[[Tensor, slice], Tensor], *, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Logits of images, and the gradient of each image's loss with respect to it.

    The sum over a chunk is differentiated, so that no gradient depends on how many images there are.
    Parameters' ``.grad`` and that of `images` stay as they are. A model whose logits do not depend on its
    images in any differentiable way has gradients of zero.

    Warns:
        NoGradientWarning: Of such a model.

    `images` are (B, ...), B at least 1; `loss` turns logits (b, C) and the rows of `images` that they belong to into
    losses (b,); `chunk` is as in :func:`logits_of`.

    Returns:
        Logits (B, C), without a graph, and gradients of the shape and type of `images`.

    >>> images = torch.tensor([[1.0, 2.0]])
    >>> gradients_of(torch.nn.Identity(), images, lambda logits, rows: logits[:, 0])
    (tensor([[1., 2.]]), tensor([[1., 0.]]))
    """
    logits, gradients = [], []
    with torch.inference_mode(False), torch.enable_grad():
        start = 0
        for padded, size in _chunks(images, chunk):
            leaf = padded.requires_grad_()
            answer = _answer(model, leaf.clone())  # which the model may change in place
            value = loss(answer[:size], slice(start, start + size)).sum()
            logits.append(answer[:size].detach())
            gradients.append(_gradient(value, leaf)[:size])
            start += size
    return torch.cat(logits), torch.cat(gradients)


def _chunks(images: Tensor, chunk: int) -> Iterator[tuple[Tensor, int]]:
    """Copies of `chunk` images each, the last one filled up, and how many of them count."""
    for part in images.detach().split(chunk):
        missing = chunk - len(part)
        yield torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]), len(part)


def chunk_count(images: int, chunk: int) -> int:
    """How many chunks so many images fill: dropping some saves time only where this falls."""
    return math.ceil(images / chunk)


def _answer(model: Model, images: Tensor) -> Tensor:
    logits = model(images)
    if not isinstance(logits, Tensor):
        raise TypeError(f"`model` must return a tensor of logits; got {type(logits).__name__}.")
    if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
        raise ValueError(
            f"`model` must return logits of shape (B, C) with at least 2 classes; "
            f"got {tuple(logits.shape)} for {len(images)} images."
        )
    return logits


def _gradient(value: Tensor, leaf: Tensor) -> Tensor:
    if not value.requires_grad:
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    try:
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        _warn("a step within has no derivative")  # like `//`, as round() has a gradient of 0
        return torch.zeros_like(leaf)
    if gradient is None:  # the logits depend only on parameters
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    return gradient.detach()


def _warn(reason: str) -> None:
    warnings.warn(
        f"the model passes no gradient to its images: {reason}. Gradient attacks will find nothing, which does not "
        "make it robust: use SquareSearch, or straight_through(model) where it only rounds.",
        NoGradientWarning,
        stacklevel=2,
    )


ROUNDING = 1e-4
"""Share of epsilon by which rounding may leave the ball; more than that is a mistake of the attack."""


@dataclass(frozen=True)
class Attacked:
    """Images after an attack; all three are verified, none is taken from the attack.

    Args:
        images: In [0, 1] and in the ball, shape and type of the originals. An image that the model got wrong
            before the attack is the original.
        success: (B,), whether the model is wrong on it: the class of the largest logit differs from the
            label (or equals the target, if there is one).
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
        """Share of images on which the model is wrong; NaN without images."""
        return float(self.success.double().mean())


def broken(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether the class of the largest logit differs from the label, or equals the target if there is one.

    Logits that are not finite name no class: they are wrong for every label and reach no target.

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
    before: Tensor,
    epsilon: float | None = None,
    targets: Tensor | None = None,
    chunk: int = CHUNK,
) -> Attacked:
    """Clip, check the range, ask the model again.

    An image on which the model was wrong before (or which it took for the target) is a success at distance
    0 and returned unchanged. Pixels that are not numbers are reset to the original.

    Args:
        model: Images to logits.
        originals: (B, ...), in [0, 1].
        candidates: What the attack found, the same shape.
        labels: (B,).
        norm: inf, 2 or 1; of the ball and of the distance.
        before: (B,), whether the originals are broken.
        epsilon: Radius of the ball in pixel units; None where the attack searches for the distance itself.
        targets: (B,), the classes wanted; None if any wrong class counts.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If candidates are outside the ball by more than rounding.

    >>> originals = torch.tensor([[0.9, 0.1]])
    >>> hit = rescored(torch.nn.Identity(), originals, torch.tensor([[0.5, 0.75]]), torch.tensor([0]),
    ...                norm=1, before=torch.tensor([False]))
    >>> hit.success, hit.distance
    (tensor([True]), tensor([1.0500]))
    """
    originals = originals.detach()
    found = confined(candidates, originals, norm=norm, epsilon=epsilon)
    if not len(originals):
        return Attacked(found, labels.new_zeros(0, dtype=torch.bool), norm_of(found - originals, norm))
    found = chosen(before, originals, found)
    success = broken(logits_of(model, found, chunk=chunk), labels, targets) | before
    return Attacked(found, success, norm_of(found - originals, norm))


def confined(candidates: Tensor, originals: Tensor, *, norm: float, epsilon: float | None) -> Tensor:
    """What an attack found, clipped and range-checked; pixels that are not numbers are reset to the original.

    `originals` are (B, ...), in [0, 1]; without a ball, `epsilon` is None.

    Raises:
        ValueError: If candidates are outside the ball by more than rounding.
    """
    found = candidates.detach().to(originals)
    found = torch.where(found.isnan(), originals, found).clamp(0, 1)
    return found if epsilon is None else _inside(found, originals, epsilon, norm)


def _inside(found: Tensor, originals: Tensor, epsilon: float, norm: float) -> Tensor:
    """Within the ball; what is outside by rounding is projected back, anything farther outside is an error."""
    delta = found - originals
    distance = norm_of(delta, norm)
    largest = max(float(one.abs().max()) for one in (found, originals)) if len(found) else 0.0
    grain = torch.finfo(originals.dtype).eps * largest
    outside = distance > epsilon
    # every pixel may be off by its own rounding, which adds up in norm 1
    if bool((distance > epsilon * (1 + ROUNDING) + grain * of_all_pixels(delta, norm)).any()):
        raise ValueError(
            f"an attack must stay within `epsilon` {epsilon} in norm {norm:g}; it returned an image at "
            f"{float(distance.max()):.6g}; give it the same radius, in pixel units."
        )
    repaired = originals + projected(delta, originals, epsilon, norm)
    return chosen(outside, repaired, found)


@dataclass(frozen=True)
class Batch:
    """Images under attack, and the model that is asked about them.

    Args:
        images: The originals, (B, ...).
        labels: (B,).
        targets: (B,), the classes wanted, or None if any wrong class counts.
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
        cls, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None, chunk: int
    ) -> "Batch":
        """A batch whose arguments have been checked; the model is asked for its logits.

        Raises:
            ValueError: If the model is in training mode, images are outside [0, 1], shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        check_mode(model)
        check_images(images)
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

    def margin(self, logits: Tensor) -> Tensor:
        """How near each image is to what the attack wants, (B,): positive where it is broken."""
        if self.targets is None:
            return logit_margin(logits, self.labels)
        return -logit_margin(logits, self.targets)

    def ascent(self, images: Tensor, loss: str, towards: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits of changed `images`, and the gradient of the loss named, as :meth:`loss` steers it."""

        def value(logits: Tensor, rows: slice) -> Tensor:
            return self.loss(logits, loss, towards, rows)

        return gradients_of(self.model, images, value, chunk=self.chunk)

    def loss(
        self, logits: Tensor, name: str, towards: Tensor | None = None, rows: slice = slice(None)
    ) -> Tensor:
        """The loss named, of logits of some of the images.

        It is steered towards the class `towards` if given, else towards the targets if there are any,
        else away from the labels.
        """
        steered = self.targets if towards is None else towards
        if steered is None:
            return LOSSES[name](logits, self.labels[rows])
        if name == "dlr":
            return targeted_dlr(logits, self.labels[rows], steered[rows])
        return -LOSSES[name](logits, steered[rows])


def _plain(tensor: Tensor) -> Tensor:
    """Without a graph, and not a tensor of inference mode, which no graph may hold."""
    with torch.inference_mode(False):
        return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


@dataclass(frozen=True)
class Attack(ABC):
    """An attack in a ball: settings that are called with a model, images and labels.

    A subclass implements `_search`. What it finds is clipped, range-checked and scored
    by asking the model again (:func:`rescored`).

    Args:
        epsilon: Radius in the unit of the pixels, at least 0; at most 1 in norm inf.
        norm: inf, 2 or 1.
        chunk: Images that the model sees at once. Change it only for memory or speed.

    Raises:
        ValueError: If a setting is out of range.

    >>> from clearance.attacks import FGSM
    >>> model = torch.nn.Linear(1, 2).eval()  # bright pixels are class 1
    >>> _ = model.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.tensor([0.5, 0.0])})
    >>> attacked = FGSM(epsilon=0.25)(model, torch.tensor([[0.7], [0.9]]), torch.tensor([1, 1]))
    >>> attacked.success.tolist()
    [True, False]
    """

    epsilon: float
    norm: float = math.inf
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_radius(self.epsilon, self.norm)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # a caller's inference mode would make tensors without gradients
    @torch.no_grad()
    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Attacked:
        """Attack the images that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. Its parameters' ``.grad`` and the
                images' stay unchanged.
            images: (B, ...) in [0, 1], floating point.
            labels: (B,), the true classes.
            targets: (B,), the classes wanted; by default any wrong class counts.

        Returns:
            Verified images; those that the model got wrong before are unchanged, at distance 0.

        Raises:
            ValueError: If the model is in training mode, images are outside [0, 1], shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, targets, self.chunk)
        check_other(batch.targets, batch.labels)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._candidates(batch[~before], persist=False).to(found)
        return rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            before=before,
            epsilon=self.epsilon,
            targets=batch.targets,
            chunk=self.chunk,
        )

    @final
    @torch.inference_mode(False)
    @torch.no_grad()
    def perturbed(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Tensor:
        """The images after every step of the attack, whether or not the model is wrong on them already.

        Transfer wants these: images that are broken early are changed further. They are clipped and range-checked,
        but no success is claimed. Arguments and errors are those of a call.
        """
        batch = Batch.checked(model, images, labels, targets, self.chunk)
        check_other(batch.targets, batch.labels)
        if not len(batch):
            return batch.images
        found = self._candidates(batch, persist=True)
        return confined(found, batch.images, norm=self.norm, epsilon=self.epsilon)

    def _candidates(self, batch: Batch, *, persist: bool) -> Tensor:
        found = self._search(batch, persist=persist)
        if found.shape != batch.images.shape:
            raise ValueError(
                f"an attack must return images of shape {tuple(batch.images.shape)}, as it got; it returned "
                f"{tuple(found.shape)}."
            )
        return found

    @abstractmethod
    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        """Candidates for every image of the batch, of which there is at least one.

        `persist` tells whether to continue with an image that is broken.
        """


AnyAttack = Callable[[Model, Tensor, Tensor], Attacked]
"""Whatever takes attacks takes any of these; a callable that returns images becomes one by :func:`as_attack`."""


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
            f"`model` must give logits that depend on one image only; its {found!r} normalises by the statistics "
            "of the whole batch, also in evaluation mode. Give it running statistics (track_running_stats=True)."
        )


def _by_the_batch(module: nn.Module) -> bool:
    normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return normalises and module.running_mean is None and module.running_var is None


def check_images(images: Any) -> None:
    """Raise unless `images` are a batch of floating point images in [0, 1]."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"`images` must be a tensor of floating point numbers; got {got}.")
    if images.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"`images` must be float32 or float64, because small steps vanish in {images.dtype}. Give images.float(): "
            "a Classifier casts them, and of another model give lambda images: model(images.to(dtype))."
        )
    if images.ndim < 2 or images[:1].numel() == 0 < len(images):
        raise ValueError(f"`images` must be of shape (B, ...); got {tuple(images.shape)}.")
    if not len(images):
        return
    low, high = (float(end) for end in images.detach().aminmax())
    check_pixel_range(low, high, "normalise inside the model, not before it")


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
    """Raise ValueError if a target is the image's own label, which every image would reach unchanged."""
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
