"""The only training loop: it loops, logs, saves and resumes; what a step does is the regime's business."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from clearance._checks import check_count, check_positive
from clearance._rng import derived_seed, generator
from clearance.data import as_image_set
from clearance.models.classifier import Classifier
from clearance.regimes._guards import (
    collapse_reason,
    limit_gradients,
    limit_weights,
    untrained_reason,
)
from clearance.regimes._regime import Regime
from clearance.regimes._session import Session, final_state, load_final_state
from clearance.regimes.describe import describe
from clearance.runs import RunDirectory, digest
from clearance.vocabulary import Outcome, Status

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class FitResult:
    """What training gave: the model, how the run ended, and one row per epoch.

    Args:
        model: The classifier that was passed to ``fit``, trained in place, in evaluation mode.
        status: Finished, stopped, diverged (when, in which term) or collapsed.
        history: For each epoch its last step, the learning rate, the mean of every loss term over the epoch,
            and the validation error where there is one.
        seconds: Time spent in training steps and in finishing, over all resumed parts.
        counts: What the regime counted, for example weak heads that diverged.
    """

    model: Classifier
    status: Status
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `step` of `steps` are done."""

    step: int
    steps: int


def fit(
    model: Classifier,
    regime: Regime,
    train: Any,
    *,
    epochs: int,
    batch_size: int = 128,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    validation: Any = None,
    clip_norm: float | None = None,
    max_norm: float | None = None,
    device: str = "auto",
    seed: int = 0,
    run_dir: str | Path | None = None,
    checkpoint_every: int = 500,
    on_step: Callable[[Progress], object] | None = None,
) -> FitResult:
    """Train a classifier under a regime; killed at any moment and called again, continue to the same bits.

    Args:
        model: Trained in place.
        regime: What a step does.
        train: An ImageSet, a map-style Dataset, or (images, labels).
        epochs: Passes over the training set, at least 1.
        batch_size: Images a step; the last batch of an epoch may be smaller (a single image is left out).
        optimizer: Called with the parameters that the regime may move. Default: SGD with lr 0.05 and
            momentum 0.9.
        schedule: Called with the optimiser; stepped once an epoch, as in torch's own examples.
        validation: Like `train`; its error is logged after every epoch in which the head can be used.
        clip_norm: Bound on the norm of the whole gradient, above 0.
        max_norm: Bound, above 0, on the norm of every unit's incoming weights in the model, after each step
            (Srivastava et al. 2014; FOCA's stabiliser in Sato et al. 2019).
        device: ``"auto"`` is CUDA where there is one, else the CPU.
        seed: Decides batch order, augmentation, dropout, noise and fresh heads (not the model's own first
            weights: seed torch before you build it).
        run_dir: Where the run is kept. Finished runs are read back; another recipe's are refused.
        checkpoint_every: Steps between checkpoints, at least 1.
        on_step: Told of the progress after every step; returning ``"stop"`` ends the run as stopped.

    Raises:
        ValueError: If an argument is out of range, or `run_dir` belongs to another run.

    >>> from clearance.data import gaussian_images
    >>> from clearance.heads import MLP
    >>> from clearance.regimes import EndToEnd
    >>> data = gaussian_images(per_class=10, shape=(1, 4, 4))
    >>> _ = torch.manual_seed(0)
    >>> model = Classifier(torch.nn.Flatten(), MLP((16, 32, 3)))
    >>> str(fit(model, EndToEnd(), data, epochs=50, batch_size=10).status)
    'finished at step 150'
    """
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_count("checkpoint_every", checkpoint_every)
    place = _device(device)
    data = as_image_set(train).to(place)
    held_out = None if validation is None else as_image_set(validation).to(place)
    model.to(place)
    regime.objective.to(place)
    moved = list(regime.trainable(model))
    if not moved:
        raise ValueError("there is nothing to train: the parameters that this regime may move are none.")
    stepper = optimizer(moved)
    own = {id(parameter) for parameter in model.parameters()}
    limit_gradients(stepper, moved, _positive("clip_norm", clip_norm))
    limit_weights(stepper, [p for p in moved if id(p) in own], _positive("max_norm", max_norm))
    session = Session(
        model=model,
        objective=regime.objective,
        optimizer=stepper,
        schedule=None if schedule is None else _schedule(schedule, stepper),
        generators=regime.generators(seed) | {"augmentation": generator(seed, "augmentation")},
        data=data,
        validation=held_out,
        regime=regime,
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
    )
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(derived_seed(seed, "forward"))
        if run_dir is None:
            return _run(session, None, checkpoint_every, on_step)
        prints = {
            "model": describe(model),
            "first_weights": digest(model.state_dict().items()),
            "regime": describe(regime),
            "first_objective": digest(regime.objective.state_dict().items()),
            "train": data.digest(),
            "augmentation": describe(data.augmentation),
            "validation": None if held_out is None else held_out.digest(),
            "optimizer": describe(optimizer),
            "schedule": describe(schedule),
            "settings": {
                "epochs": epochs, "batch_size": batch_size, "clip_norm": clip_norm, "max_norm": max_norm,
                "seed": seed, "device": place.type,
            },
        }  # fmt: skip
        with RunDirectory.open(Path(run_dir), prints) as run:
            return _run(session, run, checkpoint_every, on_step)


def _run(
    session: Session,
    run: RunDirectory | None,
    checkpoint_every: int,
    on_step: Callable[[Progress], object] | None,
) -> FitResult:
    if run is not None and run.finished:
        return _read_back(session, run)
    if run is not None and (checkpoint := run.latest()) is not None:
        session.load_state_dict(checkpoint.state)
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
        if row is not None and (flat := collapse_reason(session.model, session.data)) is not None:
            outcome, reason = Outcome.COLLAPSED, flat
            break
        if run is not None and session.step % checkpoint_every == 0 and session.step < total:
            run.save(session.step, session.state_dict())
        stop = on_step is not None and on_step(Progress(session.step, total)) == "stop"
        if stop and session.step < total:
            outcome, reason = Outcome.STOPPED, "asked to"
            break
    return _close(session, run, Status(outcome, session.step, reason))


def _close(session: Session, run: RunDirectory | None, status: Status) -> FitResult:
    """Complete the model, judge it, and keep it."""
    if status.outcome is not Outcome.DIVERGED:
        began = time.perf_counter()
        session.training.finish()
        session.seconds += time.perf_counter() - began
        problem = untrained_reason(session.model, session.data) if status.good else None
        status = status if problem is None else Status(problem[0], session.step, problem[1])
    session.model.eval()
    if run is not None and status.outcome is not Outcome.STOPPED:
        result = {
            "outcome": str(status.outcome), "step": status.step, "reason": status.reason,
            "seconds": session.seconds, "history": session.history, "counts": session.training.counts(),
        }  # fmt: skip
        run.finish(final_state(session), result)
    return FitResult(session.model, status, session.history, session.seconds, session.training.counts())


def _read_back(session: Session, run: RunDirectory) -> FitResult:
    weights, result = run.result()
    load_final_state(session, weights)
    session.model.eval()
    status = Status(Outcome(result["outcome"]), result["step"], result["reason"])
    return FitResult(session.model, status, list(result["history"]), result["seconds"], result["counts"])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _schedule(build: Callable[[Optimizer], LRScheduler], optimizer: Optimizer) -> LRScheduler:
    schedule = build(optimizer)
    if isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            "`schedule` must decide by the epoch alone; got ReduceLROnPlateau, which wants a measured value. Use "
            "another schedule of torch.optim.lr_scheduler."
        )
    return schedule


def _positive(name: str, value: float | None) -> float | None:
    if value is not None:
        check_positive(name, value)
    return value
