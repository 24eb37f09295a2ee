"""The contract of a loss: what it takes, returns and declares, and when it warns that training fails."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance.tensors import GivenOutputs, LossTerms, Outputs, check_class_numbers, is_transformed

_EARLY = (1, 2, 3, 5, 10, 15, 20, 50)  # checked batches; on an accelerator each check waits for its numbers
_EVERY = 100  # then
_BEGUN = 20  # batches, in which a training has changed something, and most recover from a bad start
_SETTLED = 10  # batches, in which a training with large steps may explode and recover
_EXPLODED = 4.0  # times the cross-entropy of guessing, and of the first batch
_LEAST_EXPLODED = 12.0  # nats; with few classes, weak heads and wrong labels reach several
_WORSE = 1.5  # times the same two, twice in a row, in a network that does not classify
_ONE_CLASS = 0.98  # share of a batch's predictions
_ALIKE = 0.03  # spread of logits over a batch, in nats
_SAME = 1 / 3, 1.5  # times the first batch's spread
_STILL = 0.09  # share by which the logits' mean has moved
_SHRUNK = 0.005  # spread of logits over a batch, as a share of the largest so far; many recover from 0.01
_GROWN = 20.0  # times the first batch's loss, or guessing's
_BRIGHT = 2.0  # from here on images were not meant to lie in [0, 1], if they have no negative values
_DARK = -0.1  # below, they were normalised; noise may go a little below 0
_FORGOTTEN = 50  # batches without `after_step`; fewer may be one step of accumulated gradients
_ROUNDING = 0.01  # of the sum of probabilities in a low precision
_CLASSIFIES = 0.15  # share of a batch that is right beyond that of its largest class


class Loss(nn.Module):
    """Turns a batch's outputs and labels into named loss terms.

    A subclass implements ``forward(outputs, labels) -> LossTerms``. Its parameters are put into the
    optimiser with the model's, and its parameters and buffers into the same checkpoint.

    It is called with (outputs, labels), or without a Classifier with (logits, labels) or (features, logits, labels), if
    it reads no more than these.

    Attributes:
        layers: Names of the activations that ``forward`` reads from ``outputs.activations``.
        reads_logits_only: Whether ``forward`` uses only ``outputs.logits``; it must then accept logits of
            shape (K, B, C) and average over K. Other losses are called once per head.
        sample_loss: The loss of each sample, from logits (m, C) and labels (m,). Heads that are trained on fixed
            features (FOCA's weak heads and its final one) use it; None is softmax cross-entropy.

    >>> from torch.nn.functional import cross_entropy
    >>> class Smoothed(Loss):
    ...     def forward(self, outputs, labels):
    ...         return LossTerms({"smoothed": cross_entropy(outputs.logits, labels, label_smoothing=0.1)})
    >>> Smoothed().layers
    ()
    >>> Smoothed()(torch.zeros(2, 4), torch.tensor([0, 3])).total    # log 4
    tensor(1.3863)
    """

    layers: Sequence[str] = ()
    reads_logits_only: bool = False
    sample_loss: Callable[[Tensor, Tensor], Tensor] | None = None
    _watched = True  # a part of a sum is not
    _repeated = False
    _without_steps: str | None = None  # what goes wrong if `after_step` is never called; None if nothing does
    _batches_in_all = _batches_since_step = 0
    _said_forgotten = False
    _first_weights: Tensor | None = None
    # see `TrainingWatch`, "not begun"; more for a loss that moves the mean of all logits faster
    _still = 0.004
    _takes_probabilities = False  # whether it also makes sense after a softmax
    _trains_head = True  # else logits say nothing

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call ``forward`` with (outputs, labels), (logits, labels) or (features, logits, labels); watch for failures.

        Raises:
            TypeError: If the loss reads more than the tensors that were given, or returns no LossTerms.

        Warns:
            TrainingWarning: In training mode, with gradients: see `TrainingWatch`.
        """
        if not given:
            given = tuple(named.pop(name) for name in ("outputs", "features", "logits") if name in named)
        if given and isinstance(given[0], Tensor):
            given = _gathered(*given, *(named.pop("labels") for _ in range("labels" in named)))
        elif given and not isinstance(given[0], Outputs):
            _check_outputs(given[0])
            given = (GivenOutputs(given[0].logits), *given[1:])
        terms = super().__call__(*given, **named)
        if not isinstance(terms, LossTerms):
            raise TypeError(
                f"forward of {type(self).__name__} must return LossTerms({{'name': loss}}); got {type(terms).__name__}."
            )
        if (
            self.training
            and not self._repeated
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and not is_transformed(terms.total)
        ):
            outputs = given[0]
            if self._watched:
                self._watch.note(outputs, given[1] if len(given) > 1 else named["labels"], terms)
            self._count_batch(outputs)
        return terms

    def train(self, mode: bool = True) -> Self:
        """As for any module, but a frozen network that a loss holds, as a teacher, is not put into training mode."""
        self.training = mode
        for part in self.children():
            if not mode or not _is_frozen(part):
                part.train(mode)
        return self

    @contextlib.contextmanager
    def _for_another_head(self) -> Iterator[None]:
        """Calls with a batch that was counted already."""
        here = [part for part in self.modules() if isinstance(part, Loss)]
        for part in here:
            part._repeated = True
        try:
            yield
        finally:
            for part in here:
                part._repeated = False

    def _watch_anew(self) -> None:
        """Forget the batches of an earlier training, so that what fails in the next one is said again."""
        for part in self.modules():
            if isinstance(part, Loss):
                part.__dict__.pop("_watch_of_this", None)
                part._batches_in_all, part._batches_since_step, part._first_weights = 0, 0, None
                part._said_forgotten = False

    def extra_repr(self) -> str:
        """The settings: public attributes."""
        kept = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return ", ".join(f"{name}={value!r}" for name, value in kept.items() if name != "training")

    def _count_batch(self, outputs: Outputs) -> None:
        self._batches_in_all += 1
        weights, before = self._weights_of_classes(outputs), self._first_weights
        if (
            weights is not None
            and before is not None
            and (before.shape, before.device) != (weights.shape, weights.device)
        ):  # another network's, or moved
            before, self._batches_in_all = None, 1
        if weights is not None and before is None:
            self._first_weights = weights.detach().clone()
        elif (
            weights is not None
            and before is not None
            and self._batches_in_all == _FORGOTTEN
            and bool(weights.eq(before).all())
        ):
            warnings.warn(
                f"the means of the classes have not changed in {_FORGOTTEN} batches; unless one step accumulates as "
                "many, give the optimiser the parameters of the loss and of the model's head.",
                TrainingWarning,
                stacklevel=3,
            )
        self._batches_since_step += 1
        if (
            self._batches_since_step == _FORGOTTEN
            and not self._said_forgotten
            and self._without_steps is not None
        ):
            self._said_forgotten = True
            warnings.warn(
                f"{self._without_steps}, after {_FORGOTTEN} batches without `after_step`; unless one step accumulates "
                "as many, call loss.after_step(outputs, labels) after each step of the optimiser.",
                TrainingWarning,
                stacklevel=3,
            )

    @property
    def _watch(self) -> "TrainingWatch":
        """Made on first use, because a subclass need not call our ``__init__``."""
        watch: TrainingWatch = self.__dict__.setdefault(
            "_watch_of_this",
            TrainingWatch(
                self._still, takes_probabilities=self._takes_probabilities, judges_logits=self._trains_head
            ),
        )
        return watch

    def _weights_of_classes(self, outputs: Outputs) -> Tensor | None:
        """Means or centres that the optimiser should move, if there are any."""
        del outputs
        return None

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """The loss of a batch: named 0-dim terms, already weighted, averaged over samples."""
        raise NotImplementedError

    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Called without gradient after each optimiser step; does nothing but count by default."""
        del outputs, labels
        self._batches_since_step = 0


def _is_frozen(module: nn.Module) -> bool:
    if any(isinstance(part, Loss) for part in module.modules()):  # each part of a sum sees to its own
        return False
    weights = list(module.parameters())
    return bool(weights) and not any(one.requires_grad for one in weights)


def _gathered(*tensors: Tensor) -> tuple[Outputs, Tensor]:
    """(logits, labels) or (features, logits, labels) as outputs and labels.

    Raises:
        TypeError: If there are fewer or more tensors.
    """
    if len(tensors) not in (2, 3):
        raise TypeError(
            "a loss must be called with (model.outputs(images, loss.layers), labels), (logits, labels) or (features, "
            f"logits, labels); got {len(tensors)} arguments."
        )
    *features, logits, labels = tensors
    return GivenOutputs(logits, *features), labels


def _check_outputs(given: object) -> None:
    """Raise TypeError for what stands in place of outputs and has no logits."""
    if isinstance(given, type) or not isinstance(getattr(given, "logits", None), Tensor):
        remedy = "Give one of these."
        if isinstance(given, nn.Module):
            remedy = "Call it first: loss(model(images), labels)."
        elif isinstance(given, np.ndarray):
            remedy = "An array has no graph: give the tensor that it was made from."
        raise TypeError(
            "a loss must be called with (model.outputs(images, loss.layers), labels), or with tensors, (logits, "
            f"labels) or (features, logits, labels); got {type(given).__name__} first. {remedy}"
        )


def check_labels(logits: Tensor, labels: Tensor) -> None:
    """Check that labels hold one class for every sample of logits (B, C), or (K, B, C) of several heads.

    Raises:
        TypeError: If they are not an int64 tensor.
        ValueError: If logits have another shape, labels and samples differ in number, there is none, or a label is no
            class.

    >>> import torch
    >>> check_labels(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    Traceback (most recent call last):
        ...
    ValueError: a batch must hold at least 1 sample, because its loss is a mean; got none.
    """
    if not 2 <= logits.ndim <= 3:
        raise ValueError(
            f"logits must have shape (B, C), or (K, B, C) of several heads; got {tuple(logits.shape)}. The order is "
            "(logits, labels)."
        )
    samples, classes = logits.shape[-2:]
    check_class_numbers(labels, samples, classes)
    if samples == 0:
        raise ValueError("a batch must hold at least 1 sample, because its loss is a mean; got none.")


class TrainingWarning(UserWarning):
    """Training has failed, or is about to; the message names the cause and what to do.

    Every loss gives it, once for each cause, from batches that it sees in training mode with gradients: in your own
    loop, in ``fit`` and under FOCA.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", TrainingWarning)  # a script that stops when a training fails
    """


class TrainingWatch:
    r"""What a loss sees of a training that fails, from a few of its batches.

    A batch is judged by the cross-entropy of its logits, whatever the loss, in units of log C, that of guessing:

    - *lost its numbers*: a loss or a logit is NaN or infinite, but no pixel is; in the first batch the start is to
      blame;
    - *images*, where ``model.outputs`` gave them: one is NaN or infinite; or all values are at least 0 and one is above
      2, as in bytes, where the model takes [0, 1]; or one is
      below -0.1, and the model normalises them itself;
    - *probabilities*: all logits are at least 0 and below 1, and in every row their sum is 1;
    - *exploded*: from batch 10 on, the loss is above 20 times that of the first batch and 20 log C; or it is above that
      of the first batch, and cross-entropy is above 4 log C, above 12, and above four times that of the first batch;
      or, at two checks in a row, it is above 1.5 log C and 1.5 times that of the first batch, and the share of right
      answers is at most 15 points above the share of the largest class;
    - *collapsed*: from batch 20 on, 98 % of a batch are put in one class, and the logits' standard deviation over the
      batch is below 0.005 of its largest so far: the network has lost sight of its images;
    - *not begun*: at batch 20 the logits' standard deviation over the batch is below 0.03 and between a third and 1.5
      times that of the first batch, and their mean over the batch has moved by less than 0.09 of its size, or by so
      little that (share moved) (standard deviation / size of the mean) is below `still`: the network answers all images
      alike, and its steps are too small to change that;
    - *stalled*: at two hundredth batches in a row cross-entropy is that of guessing or more, and no more answers are
      right than that.

    So large logits alone are no failure, as where a loss divides them by a temperature; nor is a cross-entropy that is
    large in the first batches, as with Adam at high learning rates: most such trainings recover.

    Batches 1, 2, 3, 5, 10, 15, 20, 50 are checked, and every hundredth. Of batches with fewer than 8 images, of
    labels that are no class numbers or ignored, and under a loss that does not train the head, only images and loss are
    read: whether it is finite, and above 20 times the first.

    Misleads where all images of a batch are alike; where a deep network without normalisation begins after batch 20;
    and a network that starts to recover after a warning may still learn, with fewer units than it had.

    Args:
        still: 0.004, 0.01 for Gaussian mixtures and 0.02 for large margins, which move the logits' mean faster. From
            1,050 runs of random networks (``tests/training/test_stability.py``).
        takes_probabilities: Whether probabilities are no fault, as for squared errors.
        judges_logits: Whether the loss trains the head; else its logits say nothing.

    >>> watch, labels = TrainingWatch(), torch.arange(10)
    >>> def batch(logits):
    ...     return Outputs(torch.zeros(10, 2), logits, torch.nn.Identity())
    >>> loss = LossTerms({"cross_entropy": torch.tensor(2.3)})
    >>> for _ in range(9):
    ...     watch.note(batch(2 * torch.eye(10)), labels, loss)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     watch.note(batch(-100 * torch.eye(10)), labels, LossTerms({"cross_entropy": torch.tensor(100.0)}))
    >>> "exploded" in str(caught[0].message)
    True
    """

    def __init__(
        self, still: float = Loss._still, *, takes_probabilities: bool = False, judges_logits: bool = True
    ) -> None:
        self.batches = 0
        self._still = still
        self._judges_logits = judges_logits
        self._takes_probabilities = takes_probabilities
        self._first: tuple[float, float, float] | None = (
            None  # the first batch's cross-entropy, loss and spread
        )
        self._first_loss = 0.0  # where the loss alone is read
        self._first_mean: Tensor | None = None  # its logits' mean over the batch, centred over classes
        self._widest = 0.0
        self._worse = self._guessing = 0  # checks in a row
        self._warned: set[str] = set()

    def note(self, outputs: Outputs, labels: Tensor, loss: LossTerms) -> None:
        """Count a batch; check some.

        Warns:
            TrainingWarning: Once for each cause.
        """
        self.batches += 1
        if self.batches in _EARLY or self.batches % _EVERY == 0:
            images, mean = getattr(outputs, "images", None), getattr(outputs, "mean", None)
            self._check(outputs.logits.detach(), labels, loss.total.detach(), images, mean)

    @torch.no_grad()
    def _check(
        self, logits: Tensor, labels: Tensor, total: Tensor, images: Tensor | None, subtracted: Tensor | None
    ) -> None:
        if total.is_meta:  # only traced: there are no numbers
            return
        samples, classes = logits.shape[-2:] if logits.ndim > 1 else (len(logits), 1)
        if (
            not self._judges_logits
            or samples < 8
            or classes < 2
            or not isinstance(labels, Tensor)
            or labels.shape != (samples,)
            or labels.is_floating_point()
            or bool(((labels < 0) | (labels >= classes)).any())
        ):
            if self._takes_alone(images, subtracted):
                self._judge_loss_alone(float(total), math.log(max(classes, 2)))
            return
        labels = labels.long()
        heads = logits.reshape(-1, samples, classes).float()
        entropy = F.cross_entropy(heads.flatten(0, 1), labels.repeat(len(heads)))
        named = heads.argmax(dim=-1)
        right = (named == labels).float().mean()  # float64 is not there on every device
        chosen = F.one_hot(named, classes).float().mean(dim=1).amax(dim=1).mean()
        own = F.one_hot(labels, classes).float().mean(dim=0).amax()
        spread = (heads - heads.mean(dim=1, keepdim=True)).square().mean().sqrt()
        mean = heads.mean(dim=1)
        mean = mean - mean.mean(dim=1, keepdim=True)
        known = self._first_mean
        if known is None or (known.shape, known.device) != (mean.shape, mean.device):
            self._first_mean = known = mean
        moved = (mean - known).norm() / known.norm()
        apart = spread / mean.square().mean().sqrt()
        (least, most), off = torch.aminmax(heads), (heads.sum(dim=-1) - 1).abs().amax()
        undecided = ((heads > _ROUNDING) & (heads < 1 - _ROUNDING)).any()  # one-hot rows may be logits
        # of images NaN if any is; without images two numbers that are not read
        darkest, brightest = (spread, spread) if images is None else torch.aminmax(images.detach())
        moves = logits.new_zeros(()) if subtracted is None else subtracted.abs().amax()
        ends = darkest, brightest, moves
        *judged, least, most, off, undecided, darkest, brightest, moves = torch.stack([
            one.float().to(logits.device)
            for one in (total, entropy, right, chosen, own, spread, moved, apart, least, most, off, undecided, *ends)
        ]).tolist()  # fmt: skip
        probabilities = (
            least >= 0 and most <= 1 and off < _ROUNDING and undecided > 0 and not self._takes_probabilities
        )
        if self._takes(
            None if images is None else (darkest, brightest), twice=moves > 0, probabilities=probabilities
        ):
            self._judge(math.log(classes), *judged)

    def _takes_alone(self, images: Tensor | None, subtracted: Tensor | None) -> bool:
        """The same of the images where logits say nothing."""
        ends = None
        if images is not None and images.numel():
            darkest, brightest = torch.stack(torch.aminmax(images.detach())).tolist()
            ends = darkest, brightest
        twice = subtracted is not None and bool(subtracted.abs().amax() > 0)
        return self._takes(ends, twice=twice, probabilities=False)

    def _takes(self, ends: tuple[float, float] | None, *, twice: bool, probabilities: bool) -> bool:
        """Whether the images, with values between these ends, are finite; else nothing follows from the loss."""
        if ends is not None and not all(map(math.isfinite, ends)):
            self._say("images", "hold NaN or infinity, and so will the weights; repair or drop them")
            return False
        if ends is not None and ends[0] >= 0 and ends[1] > _BRIGHT:
            self._say(
                "images",
                f"have values from {ends[0]:.3g} to {ends[1]:.4g}, and a Classifier takes [0, 1]; divide bytes by 255",
            )
        if ends is not None and ends[0] < _DARK and twice:
            self._say(
                "images",
                f"have values from {ends[0]:.3g} to {ends[1]:.3g}, and this Classifier normalises images in [0, 1] "
                "itself; leave the normalisation out before it",
            )
        if probabilities:
            self._say(
                "logits",
                "look like probabilities, at least 0 and of sum 1 in every row, and a softmax of these hardly learns; "
                "remove the softmax that made them",
            )
        return True

    def _judge_loss_alone(self, total: float, guess: float) -> None:
        if not math.isfinite(total):
            self._warn("lost its numbers", f"the loss is {total:.3g}")
            return
        self._first_loss = self._first_loss or total
        if self.batches >= _SETTLED and total > _GROWN * max(self._first_loss, guess):
            self._warn("exploded", f"the loss went from {self._first_loss:.3g} to {total:.3g}")

    def _judge(
        self,
        guess: float,
        total: float,
        entropy: float,
        right: float,
        chosen: float,
        own: float,
        spread: float,
        moved: float,
        apart: float,
    ) -> None:
        if not (math.isfinite(total) and math.isfinite(spread)):
            self._warn("lost its numbers", f"the loss is {total:.3g}, and logits spread by {spread:.3g}")
            return
        if self._first is None:
            self._first = (entropy, total, spread)
        first, start, begun = self._first
        self._widest = max(self._widest, spread)
        change = (
            f"the loss went from {start:.3g} to {total:.3g}, cross-entropy from {first:.3g} to {entropy:.3g}"
        )
        classifies = right > own + _CLASSIFIES
        if self.batches >= _SETTLED:
            known = max(first, guess)
            worse = total > start and entropy > _WORSE * known and not classifies
            self._worse = self._worse + 1 if worse else 0
            far = total > start and entropy > max(_EXPLODED * known, _LEAST_EXPLODED)
            far = far or total > _GROWN * max(start, guess)
            if far or self._worse == 2:
                self._warn("exploded", f"{change}; guessing has {guess:.3g}")
        if self.batches >= _BEGUN and chosen >= _ONE_CLASS and own < 0.5 and spread < _SHRUNK * self._widest:
            self._warn(
                "collapsed",
                f"{chosen:.0%} of the images are put in one class, and logits spread by {spread:.2g} over a batch, "
                f"before by {self._widest:.2g}",
            )
        same = _SAME[0] * begun < spread < min(_ALIKE, _SAME[1] * begun)
        still = moved < _STILL or apart * moved < self._still
        if self.batches == _BEGUN and same and still and own < 0.5:
            self._warn(
                "not begun", f"logits spread by {spread:.2g} over a batch, in the first by {begun:.2g}"
            )
        if self.batches % _EVERY == 0:
            self._guessing = self._guessing + 1 if entropy >= 0.999 * guess and not classifies else 0
            if self._guessing == 2:
                self._warn("stalled", f"{change}; guessing has {guess:.3g}")

    def _warn(self, cause: str, seen: str) -> None:
        if cause in self._warned:
            return
        self._warned.add(cause)
        if cause == "lost its numbers" and self.batches == 1:
            self._warning(
                f"training begins without numbers, in the first batch of this loss: {seen}; look for NaN, infinity or "
                "huge values in the images and in the first weights."
            )
            return
        remedy = {
            "not begun": "the network answers all images alike, and the learning rate is probably too small to change "
            "that soon; raise it, or put normalisation between the layers (while a warm-up still raises it, wait)",
            "stalled": "the learning rate is probably too small or too large; check also that labels belong to images",
            "lost its numbers": "the learning rate is probably too large, or an image of an earlier batch was not "
            "finite; lower it, clip the gradient's norm, or look for NaN and infinity in the images",
        }.get(cause, "the learning rate is probably too large; lower it, or clip the gradient's norm")
        self._warning(f"training has {cause} after {self.batches} batches: {seen}; {remedy}.")

    def _say(self, what: str, fault: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warning(f"the {what} of batch {self.batches} {fault}.")

    def _warning(self, text: str) -> None:
        warnings.warn(text, TrainingWarning, stacklevel=8)
