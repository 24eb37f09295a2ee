"""The only training loop: it loops, logs, saves and resumes; the way of training defines a step."""

import logging
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from clearance._checks import check_count, check_fraction, check_positive
from clearance._describe import describe, digest, unsourced
from clearance._processes import (
    copy_from_first,
    from_all,
    from_first,
    in_any_process,
    mean_over_processes,
    own_stream,
    process_count,
    process_rank,
)
from clearance._rng import derived_seed, generator, seed_global
from clearance.data import ImageSet
from clearance.data.intake import open_images
from clearance.data.subsets import evenly_spaced
from clearance.heads import GaussianMixture
from clearance.losses._loss import Loss
from clearance.models._running import device_of
from clearance.models.classifier import Classifier, check_classifier
from clearance.models.features import extract_features, predictions
from clearance.runs import RunDirectory
from clearance.runs.directory import RUN
from clearance.training._way import (
    Training,
    WayOfTraining,
    chance_accuracy,
    check_moved,
    check_optimizer,
    largest_share,
)
from clearance.training.batch_norm import frozen_layers
from clearance.vocabulary import FAR_MEANS, Outcome, Status

_warn = logging.getLogger(__name__).warning  # reaches stderr unless logging is configured otherwise


def check_processes(batch_size: int) -> None:
    """Raise ValueError if several processes get too small a batch."""
    processes = process_count()
    if processes > 1 and batch_size < 2 * processes:
        raise ValueError(
            f"`batch_size` must be at least {2 * processes} with {processes} processes, two images for each; got "
            f"{batch_size}. Raise it, or start fewer."
        )


def check_kinds(way: object, optimizer: object, limits: object, execution: object, **calls: object) -> None:
    """Raise TypeError unless these are a way of training, a maker of an optimiser, settings, and functions or None."""
    if not isinstance(way, WayOfTraining):
        remedy = " Write EndToEnd(loss)." if isinstance(way, nn.Module) else ""
        raise TypeError(
            "`way` must be a way of training, such as clearance.training.EndToEnd() or FOCA(); got "
            f"{type(way).__name__ if isinstance(way, nn.Module) else repr(way)}.{remedy}"
        )
    if isinstance(optimizer, Optimizer) or not callable(optimizer):
        raise TypeError(
            "`optimizer` must be called with parameters, such as partial(torch.optim.SGD, lr=0.05), because the "
            f"way of training says which ones; got {type(optimizer).__name__}."
        )
    if not isinstance(limits, Limits):
        raise TypeError(f"`limits` must be clearance.training.Limits, such as {Limits(1.0)}; got {limits!r}.")
    if not isinstance(execution, Execution):
        example = Execution(torch.bfloat16)
        raise TypeError(
            f"`execution` must be clearance.training.Execution, such as {example}; got {execution!r}."
        )
    for name, call in calls.items():
        if call is not None and not callable(call):
            what = "the optimiser" if name == "schedule" else "the progress of the run"
            raise TypeError(f"`{name}` must be a function that is called with {what}, or None; got {call!r}.")


def check_lengths(epochs: int | None, steps: int | None, batch_size: int, checkpoint_every: int) -> None:
    """Raise ValueError unless one of `epochs` and `steps` is given, and every number is at least 1."""
    if (epochs is None) == (steps is None):
        raise ValueError(
            f"one of `epochs` and `steps` must be given, not both; got epochs={epochs} and steps={steps}."
        )
    check_count("epochs" if steps is None else "steps", epochs if steps is None else steps)  # type: ignore[arg-type]
    check_count("batch_size", batch_size)
    check_count("checkpoint_every", checkpoint_every)


@dataclass(frozen=True)
class Limits:
    """Bounds that keep training stable, in each step of the optimiser.

    Args:
        clip_norm: Bound on the norm of the whole gradient, above 0; None sets none.
        max_norm: Bound, above 0, on the norm of every unit's incoming weights, in ``nn.Linear`` and convolutions that
            are no transposed ones, after each step, in the part of
            the model that is trained (under FOCA only the extractor; Srivastava et al. 2014, FOCA's
            stabiliser in Sato et al. 2019), but not of a Gaussian mixture's means and covariance; None sets none.

    Raises:
        ValueError: If a bound is not above 0.

    >>> Limits(clip_norm=1.0)
    Limits(clip_norm=1.0, max_norm=None)
    """

    clip_norm: float | None = None
    max_norm: float | None = None

    def __post_init__(self) -> None:
        for name in ("clip_norm", "max_norm"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Execution:
    """How the extractor is computed during training steps; heads, their training and the loss stay in float32.

    Args:
        autocast: ``torch.bfloat16`` is mixed precision; None is full precision.
        compile_extractor: Whether to use torch.compile. The first steps are then slow, and the last bits differ.

    Raises:
        ValueError: If `autocast` is another dtype.

    >>> Execution(autocast=torch.bfloat16)
    Execution(autocast=torch.bfloat16, compile_extractor=False)
    """

    autocast: torch.dtype | None = None
    compile_extractor: bool = False

    def __post_init__(self) -> None:
        if self.autocast not in (None, torch.bfloat16):
            raise ValueError(
                f"`autocast` must be torch.bfloat16 or None; got {self.autocast}. In float16 small gradients become 0 "
                "without a loss scaler, and this loop has none."
            )


class ExtractorForward:
    """Stands in for an extractor's forward pass during training steps; outside them nothing changes.

    Args:
        extractor: Features are converted back to float32 after mixed precision, so that heads, their
            training and the loss are computed in full precision.
        execution: Mixed precision and compilation, once for every batch shape.
        loss: Read for `layers`, which a compiled extractor cannot give.

    Raises:
        ValueError: If the loss reads activations of a compiled extractor.
    """

    def __init__(self, extractor: nn.Module, execution: Execution, loss: Loss) -> None:
        autocast, compiled = execution.autocast, execution.compile_extractor
        if compiled and loss.layers:
            raise ValueError(
                f"`compile_extractor` must be False with {type(loss).__name__}, because it reads the "
                f"activations of {list(loss.layers)} and compiled code keeps none; switch it off."
            )
        self.extractor, self.autocast = extractor, autocast
        self.changes = compiled or autocast is not None
        self.inner = _compiled(extractor.forward) if compiled else extractor.forward

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The extractor runs this way while the block does."""
        if not self.changes:
            yield
            return
        own = vars(self.extractor).get("forward")
        self.extractor.forward = self._forward
        try:
            yield
        finally:
            del self.extractor.forward
            if own is not None:
                self.extractor.forward = own

    def _forward(self, images: Tensor) -> Any:
        if self.autocast is None:
            return self.inner(images)
        with torch.autocast(images.device.type, dtype=self.autocast):
            features = self.inner(images)
        return features.float() if features.dtype == self.autocast else features


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(images: Tensor) -> Any:  # torch.compile ignores torch's own containers, but not this
        return forward(images)

    return torch.compile(run)


@dataclass
class Session:
    """Everything that changes while a classifier is trained; `step` counts the updates so far."""

    model: Classifier
    loss: Loss
    optimizer: Optimizer
    schedule: LRScheduler | None
    generators: dict[str, torch.Generator]
    data: ImageSet
    validation: Mapping[str, ImageSet]
    way: WayOfTraining
    forward: ExtractorForward
    seed: int
    epochs: int
    batch_size: int
    steps: int | None = None  # instead of `epochs`: the last pass may then be incomplete
    label_noise: float = 0.0
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    diagnostics: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.training: Training = self.way.start(self.model, self.data, self.optimizer, self.generators)
        self._sums: dict[str, float] = {}
        self._order: tuple[int, list[Tensor]] = (-1, [])
        self._rate = 0.0  # of the last update
        self._frozen_statistics = frozen_layers(self.model.extractor)
        if self.steps_per_epoch == 0:
            raise ValueError(f"`train` must hold at least 2 images; got {len(self.data)}.")

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch; a last batch of one image per process is left out (batch statistics need two)."""
        full, rest = divmod(len(self.data), self.batch_size)
        return full + (1 if rest >= 2 * process_count() else 0)

    @property
    def total_steps(self) -> int:
        """Updates in the run."""
        return self.epochs * self.steps_per_epoch if self.steps is None else self.steps

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last update was the last of its epoch, or of the run."""
        return self.step % self.steps_per_epoch == 0 or self.step == self.total_steps

    def advance(self) -> str | None:
        """One update; returns the reason if a loss term is not finite."""
        self.model.train()
        for layer in self._frozen_statistics:
            layer.eval()
        images, labels = self.data.batch(self._rows(), self.generators["augmentation"])
        self._rate = float(self.optimizer.param_groups[0]["lr"])
        with self.forward.in_use():
            loss = self.training.step(images, labels)
        self.step += 1
        if self.steps is not None:
            self._turn_schedule()
        values = [float(term.detach()) for term in loss.terms.values()]
        means = mean_over_processes(values, len(labels), images.device)
        for name, value in zip(loss.terms, means, strict=True):
            if not math.isfinite(value):
                return f"term {name} is not finite"
            self._sums[name] = self._sums.get(name, 0.0) + value
        return None

    def end_epoch(self) -> dict[str, float]:
        """End the epoch: add a row to the history and, if any, diagnostics; returns both as one row to log."""
        copy_from_first(self.model, self.loss)
        epoch, place = divmod(self.step - 1, self.steps_per_epoch)
        row: dict[str, float] = {
            "epoch": epoch + 1,
            "step": self.step,
            "lr": self._rate,
            **{name: total / (place + 1) for name, total in self._sums.items()},
            **self._errors(),
        }
        if self.steps is None:
            self._turn_schedule()
        self._sums = {}
        self.history.append(row)
        found = self.training.diagnostics()
        if not found:
            return row
        means = mean_over_processes(list(found.values()), 1, self.data.labels.device)
        found = dict(zip(found, means, strict=True))
        self.diagnostics.append({"epoch": row["epoch"], "step": row["step"], **found})
        return row | found

    def _turn_schedule(self) -> None:
        """A schedule counts in the unit of the run's length: epochs, or updates."""
        if self.schedule is not None:
            self.schedule.step()

    def _errors(self) -> dict[str, float]:
        """Errors of the head in use, if any, on the sets that are evaluated after every epoch."""
        if not self.way.trains_head:
            return {}
        return {
            f"{name}_error": float((predictions(self.model, data) != data.labels).cpu().double().mean())
            for name, data in self.validation.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how the run continues."""
        return {
            "model": dict(self.model.state_dict()),
            "loss": dict(self.loss.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "way": self.training.state_dict(),
            "generators": {name: stream.get_state() for name, stream in self.generators.items()},
            "forward": torch.get_rng_state(),
            "forward_cuda": torch.cuda.get_rng_state(self.data.labels.device) if self._on_cuda else None,
            "step": self.step,
            "seconds": self.seconds,
            "sums": self._sums,
            "history": self.history,
            "diagnostics": self.diagnostics,
        }

    def own_state_dict(self) -> dict[str, Any]:
        """The part of the state that differs between processes that train together."""
        whole = self.state_dict()
        model = whole["model"]
        # of batch normalisation, until the end of an epoch
        buffers = {name: model[name] for name, _ in self.model.named_buffers() if name in model}
        return {
            "buffers": buffers,
            **{name: whole[name] for name in ("way", "generators", "forward", "forward_cuda")},
        }

    def load_own_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state of this process, from that of the first with those of the others in it."""
        others = state.pop("others", [])
        if process_rank() == 0:
            return state
        own = dict(others[process_rank() - 1])
        return {**state, **own, "model": {**state["model"], **own.pop("buffers")}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.model.load_state_dict(state["model"])
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.training.load_state_dict(state["way"])
        for name, stream in self.generators.items():
            stream.set_state(state["generators"][name])
        torch.set_rng_state(state["forward"])
        if self._on_cuda and state["forward_cuda"] is not None:
            torch.cuda.set_rng_state(state["forward_cuda"], self.data.labels.device)
        self.step, self.seconds = state["step"], state["seconds"]
        self._sums, self.history = dict(state["sums"]), list(state["history"])
        self.diagnostics = list(state.get("diagnostics", []))

    @property
    def _on_cuda(self) -> bool:
        return self.data.labels.is_cuda

    def _rows(self) -> Tensor:
        """The next batch's rows. An epoch's order depends only on seed and epoch, so resuming needs no state."""
        epoch, place = divmod(self.step, self.steps_per_epoch)
        if self._order[0] != epoch:
            order = torch.randperm(len(self.data), generator=generator(self.seed, "batches", epoch))
            self._order = (epoch, list(order.split(self.batch_size)))
        share = self._order[1][place].tensor_split(process_count())[process_rank()]
        return share.to(self.data.labels.device)


@dataclass(frozen=True)
class FitResult:
    """The result of training: the model, how the run ended, and one row per epoch.

    Args:
        model: The classifier that was passed to ``fit``, trained in place, in evaluation mode.
        status: Finished, stopped, diverged (when, in which term) or collapsed.
        history: For each epoch its last step, the learning rate, the mean of every loss term over the epoch,
            and the validation error, if there is a validation set and the model's own head is trained (not under FOCA).
        seconds: Time spent in training steps and in finishing, over all resumed parts.
        counts: Counts of the way of training, for example of weak heads that diverged.
        diagnostics: For each epoch, its number and last step, and the way of training's diagnostics: the
            accuracy of FOCA's weak heads. Empty for other methods.

    >>> from clearance.data import gaussian_images
    >>> from clearance.training import EndToEnd
    >>> _ = torch.manual_seed(0)
    >>> model, test = Classifier(nn.Flatten(), nn.Linear(64, 3)), gaussian_images(seed=1)
    >>> result = fit(model, EndToEnd(), gaussian_images(), epochs=50, batch_size=10, validation=test)
    >>> str(result.status), sorted(result.history[-1])
    ('finished at step 300', ['cross_entropy', 'epoch', 'lr', 'step', 'validation_error'])
    """

    model: Classifier
    status: Status
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    diagnostics: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Args:
        step: Updates made so far.
        steps: Total number of updates.
    """

    step: int
    steps: int


_STEPS_BETWEEN = 50  # minimum number of steps between two checks for a collapse
_PROBE_IMAGES = 256  # for the check for a collapse
_TRAINING_IMAGES = 10_000  # enough to separate learning from chance when 80 % of labels are wrong
_FLAT = 1e-4  # spread of features over their size; float32 rounding alone gives about 1e-7


def run_session(
    session: Session,
    run: "SharedRun | None",
    checkpoint_every: int,
    on_step: Callable[[Progress], object] | None,
    on_epoch: Callable[[Mapping[str, float]], object] | None = None,
) -> FitResult:
    """Train to the end, or to the first failure or stop; continue from the state in `run`, and save there."""
    if run is not None and (found := run.result()) is not None:
        return _read_back(session, *found)
    if run is not None and (state := run.latest()) is not None:
        session.load_state_dict(session.load_own_state_dict(state))
    outcome = Outcome.FINISHED
    reason = ""
    total = session.total_steps
    while session.step < total:
        began = time.perf_counter()
        failure = session.advance()
        session.seconds += time.perf_counter() - began
        if failure is not None:
            outcome, reason = Outcome.DIVERGED, failure
            break
        row = session.end_epoch() if session.at_epoch_end else None
        if row is not None and run is not None:
            run.log(row)
        check = row is not None and _is_checked(session.step, session.steps_per_epoch)
        if check and (collapse := collapse_reason(session.model, session.data)) is not None:
            outcome, reason = Outcome.COLLAPSED, collapse
            break
        if run is not None and session.step % checkpoint_every == 0 and session.step < total:
            run.save(session)
        stop = on_step is not None and on_step(Progress(session.step, total)) == "stop"
        stop |= row is not None and on_epoch is not None and on_epoch(row) == "stop"
        if in_any_process(stop, session.data.labels.device) and session.step < total:
            outcome, reason = Outcome.STOPPED, "asked to"
            if run is not None and session.step % checkpoint_every > 0:
                run.save(session)
            break
    return _close(session, run, Status(outcome, session.step, reason))


def _is_checked(step: int, epoch: int) -> bool:
    """Whether to check for a collapse at the end of this epoch: at the first, then every _STEPS_BETWEEN steps or more.

    A check takes about as long as a step, so it would slow down epochs of few steps.
    """
    return step <= epoch or step // _STEPS_BETWEEN > (step - epoch) // _STEPS_BETWEEN


class SharedRun:
    """A run's directory for all processes that train together: the first reads and writes, the others hear from it.

    `run` is the directory in the first process, None in the others.
    """

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run

    def result(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Weights and result of a finished run."""
        found: tuple[dict[str, Tensor], dict[str, Any]] | None = from_first(
            self._run.result() if self._run is not None and self._run.finished else None
        )
        return found

    def latest(self) -> dict[str, Any] | None:
        """The state of the newest checkpoint."""
        checkpoint = None if self._run is None else self._run.latest()
        state: dict[str, Any] | None = from_first(None if checkpoint is None else checkpoint.state)
        return state

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one line to the metrics."""
        if self._run is not None:
            self._run.log(row)

    def save(self, session: Session) -> None:
        """Write one checkpoint that holds what differs between processes, too."""
        others = from_all(session.own_state_dict())[1:] if process_count() > 1 else []
        if self._run is not None:
            state = session.state_dict()
            self._run.save(session.step, {**state, "others": others} if others else state)

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the weights and the result; no process goes on before they are there."""
        if self._run is not None:
            self._run.finish(weights, result)
        from_first(None)


def _close(session: Session, run: SharedRun | None, status: Status) -> FitResult:
    """Complete the model, check it, and save it."""
    if status.outcome is not Outcome.DIVERGED:
        began = time.perf_counter()
        copy_from_first(session.model, session.loss)
        session.training.finish()
        copy_from_first(session.model)
        session.seconds += time.perf_counter() - began
        if status.good:
            status = _judged(session, status)
        if status.good:
            _warn_of_far_means(session.model, session.data)
    session.model.eval()
    if run is not None and status.outcome is not Outcome.STOPPED:
        result = {
            "outcome": str(status.outcome), "step": status.step, "reason": status.reason,
            "seconds": session.seconds, "history": session.history, "counts": session.training.counts(),
            "diagnostics": session.diagnostics, "label_noise": session.label_noise,
        }  # fmt: skip
        run.finish(_whole(session).state_dict(), result)
    counts = session.training.counts()
    return FitResult(session.model, status, session.history, session.seconds, counts, session.diagnostics)


def _judged(session: Session, status: Status) -> Status:
    """A finished run's status, or that it learned nothing."""
    problem = untrained_reason(session.model, session.data, session.label_noise)
    return status if problem is None else Status(problem[0], session.step, problem[1])


def _warn_of_far_means(model: Classifier, data: ImageSet) -> None:
    """A line on stderr if the means of a mixture have stayed away from their classes."""
    if not isinstance(model.head, GaussianMixture):
        return
    some = data.subset(evenly_spaced(len(data), _TRAINING_IMAGES))
    offset = model.head.mean_offset(extract_features(model, some), some.labels)
    if offset > FAR_MEANS:
        _warn(
            "the mixture's learned means are away from those of their classes: that is %.0f %% of the squared distance "
            "of training features to them, and their densities say little about an image. Raise the means' learning "
            "rate or take weight decay off them (`means_lr` and `means_decay` of a recipe, `means` and `means_decay` "
            "of heads.mixture_groups), train longer, or set them to the class means with `fit_statistics`.",
            100 * offset,
        )


def _read_back(session: Session, weights: dict[str, Tensor], result: dict[str, Any]) -> FitResult:
    _whole(session).load_state_dict(weights)
    session.model.eval()
    status = Status(Outcome(result["outcome"]), result["step"], result["reason"])
    trained = status.outcome in (Outcome.FINISHED, Outcome.COLLAPSED) and status.step == session.total_steps
    if trained and not session.way.trains_head:
        session.model.unfinished = None  # as `finish` left it: part of the next run's fingerprint
    if trained and result.get("label_noise", session.label_noise) != session.label_noise:
        # the known share of wrong labels has changed
        status = _judged(session, Status(Outcome.FINISHED, status.step))
    return FitResult(
        session.model,
        status,
        list(result["history"]),
        result["seconds"],
        result["counts"],
        list(result.get("diagnostics", [])),
    )


def _whole(session: Session) -> nn.Module:
    """Model and loss as one module, whose weights a finished run keeps."""
    return nn.ModuleDict({"model": session.model, "loss": session.loss})


def collapse_reason(model: Classifier, data: ImageSet) -> str | None:
    """Why the extractor counts as collapsed, or None: a sample of training images all have equal features."""
    features = extract_features(model, data.subset(evenly_spaced(len(data), _PROBE_IMAGES)))
    if not bool(features.isfinite().all()):
        return None
    size = float(features.square().mean().sqrt())
    spread = float(features.std(dim=0, correction=0).square().mean().sqrt())
    if spread <= _FLAT * size:
        return f"all features are equal (spread {spread:.1e}, size {size:.1e}); lower the learning rate"
    return None


def untrained_reason(
    model: Classifier, data: ImageSet, label_noise: float = 0.0
) -> tuple[Outcome, str] | None:
    """How and why a completed run has failed, or None.

    `label_noise` is the share of labels that are known to be wrong; a network that learned only the truth agrees with
    the others.
    """
    running = (
        value for name, value in model.named_buffers() if name.endswith(("running_mean", "running_var"))
    )
    broken = any(bool(value.isnan().any()) for value in model.buffers() if value.is_floating_point())
    if broken or not all(bool(value.isfinite().all()) for value in (*model.parameters(), *running)):
        return Outcome.DIVERGED, "the trained weights are not finite"
    if (flat := collapse_reason(model, data)) is not None:
        return Outcome.COLLAPSED, flat
    some = data.subset(evenly_spaced(len(data), _TRAINING_IMAGES))
    answers = predictions(model, some)
    accuracy = float((answers == some.labels).cpu().double().mean())
    largest = largest_share(some.labels)
    if accuracy <= chance_accuracy(some.labels, label_noise):
        if (unanswered := int((answers < 0).sum())) > len(some) / 2:
            return Outcome.COLLAPSED, (
                f"logits of {unanswered} of {len(some)} training images are not finite, and such an image counts as "
                "wrong; to leave a class out, give it a logit of -1e9, not of minus infinity"
            )
        return Outcome.COLLAPSED, (
            f"training accuracy {accuracy:.3f} is not clearly better than always naming the largest class "
            f"({largest:.3f}); lower the learning rate, or train longer"
        )
    return None


@torch.no_grad()
def bound_rows(weight: Tensor, max_norm: float) -> None:
    """Rescale, in place, every unit whose incoming weights (a row, or a filter) have a norm above max_norm.

    >>> weight = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    >>> bound_rows(weight, 1.0)
    >>> weight
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    norms = weight.flatten(1).norm(dim=1).view(-1, *[1] * (weight.ndim - 1))
    weight.mul_(max_norm / norms.clamp(min=max_norm))  # not its flat view, which channels_last makes a copy


SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
NO_LIMITS = Limits()
IN_FLOAT32 = Execution()


def fit(
    model: Classifier,
    way: WayOfTraining,
    train: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 128,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    validation: Any = None,
    limits: Limits = NO_LIMITS,
    execution: Execution = IN_FLOAT32,
    label_noise: float = 0.0,
    seed: int = 0,
    run_dir: str | Path | None = None,
    checkpoint_every: int = 500,
    on_step: Callable[[Progress], object] | None = None,
    on_epoch: Callable[[Mapping[str, float]], object] | None = None,
) -> FitResult:
    """Train a classifier with a way of training. A killed run that is called again continues to the same bits.

    That holds for what is in the module's ``state_dict`` or drawn from torch's random numbers: buffers with
    ``persistent=False``, attributes that change and Python's ``random`` are not restored.

    Args:
        model: Trained in place, on its device. Batch normalisation in the extractor whose weights are frozen keeps its
            statistics.
        way: The way of training, which defines a step.
        train: An ImageSet, (images, labels), or other data that :func:`clearance.data.open_images` takes: a map-style
            Dataset, a DataLoader (read once: its batch size and order are not used), a Hugging Face dataset,
            ``"folder:PATH"``.
        epochs: Passes over the training set, at least 1; or give `steps`.
        steps: Total number of updates, at least 1; the last pass may be incomplete.
        batch_size: Images per step; the last batch of an epoch may be smaller (one image is left out).
        optimizer: Called with the parameters that the way of training may move. Default: SGD with lr 0.05 and
            momentum 0.9.
        schedule: Called with the optimiser; stepped once per epoch, as in torch's own examples, or after every
            update if `steps` is given.
        validation: Like `train`, with the same classes; its error is logged as ``validation_error`` after every epoch
            in which the head can be used. Or a mapping of names to such sets, each logged as ``NAME_error``. Nothing is
            chosen by them.
        limits: Bounds on the norms of gradient and weights. Default: none.
        execution: Mixed precision and compilation of the extractor. Default: neither.
        label_noise: Share of the training labels that are known to be wrong, in [0, 1). It does not affect
            training: with few correct labels, a network that has learned only those does not count as collapsed.
        seed: Of batch order, augmentation, dropout, noise and new heads. It does not affect the model's initial
            weights: seed torch before you build the model.
        run_dir: Where the run is saved. A finished run is read back; a run with other settings raises an error.
        checkpoint_every: Steps between checkpoints, at least 1.
        on_step: Called with the progress after every step; returning ``"stop"`` ends the run as stopped.
        on_epoch: Called after every epoch with its row of the history, and diagnostics if there are any: ``"epoch"``,
            ``"step"``, the terms of the loss, and ``"validation_error"`` where `FitResult.history` has it; returning
            ``"stop"`` ends the run as stopped, and what it raises ends ``fit``, as Optuna's pruning does.

    Under torch.distributed (torchrun) every process calls ``fit`` with the same arguments. Each processes its
    share of every batch, gradients are averaged, and all end with the same model. Batch normalisation uses the
    statistics of a process's own share (pass a model with torch.nn.SyncBatchNorm otherwise). The first process
    reads and writes `run_dir`; a run that was killed continues with as many processes.

    Raises:
        TypeError: If `model` is not a Classifier, `way` not a way of training, `optimizer`, `schedule`, `on_step` or
            `on_epoch` not callable, `limits` or `execution` of another class, or the schedule one that needs a
            measurement (ReduceLROnPlateau).
        ValueError: If an argument is out of range, both or neither of `epochs` and `steps` are given, `run_dir`
            belongs to another run, the loss reads activations of a compiled extractor, or several processes
            get too small a batch.

    >>> from clearance.data import gaussian_images
    >>> from clearance.heads import MLP
    >>> from clearance.training import EndToEnd
    >>> data = gaussian_images(per_class=10, shape=(1, 4, 4))
    >>> _ = torch.manual_seed(0)
    >>> model = Classifier(torch.nn.Flatten(), MLP((16, 32, 3)))
    >>> str(fit(model, EndToEnd(), data, epochs=50, batch_size=10).status)
    'finished at step 150'
    """
    check_classifier(model)
    check_kinds(way, optimizer, limits, execution, schedule=schedule, on_step=on_step, on_epoch=on_epoch)
    check_lengths(epochs, steps, batch_size, checkpoint_every)
    check_fraction("label_noise", label_noise, open_above=True)
    place = device_of(model)
    check_processes(batch_size)
    data = open_images(train).to(place)
    sets = _validation_sets(validation, data, place)
    way.loss.train().to(place)
    _say_whose_state(way.loss, model)
    stepper = _stepper(model, way, optimizer, limits)
    session = Session(
        model=model,
        loss=way.loss,
        optimizer=stepper,
        schedule=None if schedule is None else _schedule(schedule, stepper),
        generators=way.generators(seed) | {"augmentation": generator(seed, *own_stream("augmentation"))},
        data=data,
        validation=sets,
        way=way,
        forward=ExtractorForward(model.extractor, execution, way.loss),
        seed=seed,
        epochs=epochs or 0,
        batch_size=batch_size,
        steps=steps,
        label_noise=label_noise,
    )
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        seed_global(derived_seed(seed, *own_stream("forward")), place)
        if run_dir is None:
            return run_session(session, None, checkpoint_every, on_step, on_epoch)
        settings = {
            "epochs": epochs, "steps": steps, "batch_size": batch_size, "limits": asdict(limits),
            "autocast": None if execution.autocast is None else str(execution.autocast),
            "compile_extractor": execution.compile_extractor, "seed": seed, "device": place.type,
        }  # fmt: skip
        if process_count() > 1:  # each draws its own noise, and sums have another order
            settings["processes"] = process_count()
        if process_rank() > 0:
            return run_session(session, SharedRun(None), checkpoint_every, on_step, on_epoch)
        fingerprint = _fingerprint(session, optimizer, schedule, settings)
        _check_resumable(Path(run_dir), fingerprint)
        with RunDirectory.open(Path(run_dir), fingerprint) as run:
            return run_session(session, SharedRun(run), checkpoint_every, on_step, on_epoch)


_TRAINED: "weakref.WeakKeyDictionary[Loss, weakref.ref[Classifier]]" = weakref.WeakKeyDictionary()


def _say_whose_state(loss: Loss, model: Classifier) -> None:
    """Say that a loss goes on with what it has learned of another network."""
    before, _TRAINED[loss] = _TRAINED.get(loss), weakref.ref(model)
    if before is not None and before() is not model and loss.state_dict():
        _warn(
            "the loss goes on with the state of another network's training (%s); give each network a new one",
            ", ".join(loss.state_dict()),
        )


def _check_resumable(run_dir: Path, fingerprint: Any) -> None:
    """Raise ValueError if the run was started and a part of its code cannot be compared with the present code."""
    if (missing := unsourced(fingerprint)) and (run_dir / RUN).exists():
        raise ValueError(
            "`run_dir` must be a new directory if the source of a function is missing, because the function cannot be "
            f"compared with that of the run in {run_dir}; got no source for {', '.join(missing[:3])}. Define the "
            "function in a file, or use another directory."
        )


def _validation_sets(validation: Any, data: ImageSet, place: torch.device) -> dict[str, ImageSet]:
    """The sets by name, with the classes of the training set; a single one is called validation."""
    if validation is None:
        return {}
    named = validation if isinstance(validation, Mapping) else {"validation": validation}
    sets = {name: open_images(images, like=data).to(place) for name, images in named.items()}
    for name, images in sets.items():
        if images.classes != data.classes:
            raise ValueError(
                f"`{name}` must have the classes of `train`, in their order: {', '.join(data.classes[:5])}; got "
                f"{', '.join(images.classes[:5])}. Give an ImageSet with these `classes`, or labels in this order."
            )
    return sets


def _stepper(
    model: Classifier,
    way: WayOfTraining,
    optimizer: Callable[..., Optimizer],
    limits: Limits,
) -> Optimizer:
    """The optimiser of the trained parameters, with both bounds."""
    moved = list(way.trainable(model))
    check_moved(moved)
    stepper = optimizer(moved)
    check_optimizer(stepper, moved)
    stepped = [p for group in stepper.param_groups for p in group["params"]]
    clip_norm, max_norm = limits.clip_norm, limits.max_norm
    if clip_norm is not None:

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(stepped, clip_norm)

        stepper.register_step_pre_hook(clip)
    if max_norm is not None:
        layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        units = {
            id(layer.weight)
            for layer in model.modules()
            if isinstance(layer, layers) and layer.weight.requires_grad
        }

        def bound(*_: Any) -> None:
            for parameter in stepped:
                if id(parameter) in units:
                    bound_rows(parameter, max_norm)

        stepper.register_step_post_hook(bound)
    return stepper


def _fingerprint(
    session: Session, optimizer: object, schedule: object, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that affects a run's numbers; a run directory belongs to one fingerprint."""
    return {
        "model": describe(session.model),
        "first_weights": digest(session.model.state_dict().items()),
        "frozen": [name for name, value in session.model.named_parameters() if not value.requires_grad],
        "way": describe(session.way),
        "first_loss": digest(session.loss.state_dict().items()),
        "train": session.data.digest(),
        "augmentation": describe(session.data.augmentation),
        "validation": {name: images.digest() for name, images in session.validation.items()},
        "optimizer": describe(optimizer),
        "schedule": describe(schedule),
        "settings": settings,
    }


def _schedule(build: Callable[[Optimizer], LRScheduler], optimizer: Optimizer) -> LRScheduler:
    schedule = build(optimizer)
    if isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            "`schedule` must depend only on the epoch; got ReduceLROnPlateau, which needs a measured value. Use "
            "another schedule of torch.optim.lr_scheduler."
        )
    return schedule
