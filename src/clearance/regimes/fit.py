"""The only training loop: it loops, logs, saves and resumes; what a step does is the regime's business."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from clearance._checks import check_fraction, check_positive
from clearance._rng import derived_seed, generator
from clearance.data import ImageSet, as_image_set
from clearance.models.classifier import Classifier, check_classifier
from clearance.regimes._distributed import own_stream
from clearance.regimes._extractor_forward import ExtractorForward
from clearance.regimes._fit_arguments import check_kinds, check_lengths, check_processes, device_named
from clearance.regimes._guards import limit_gradients, limit_weights
from clearance.regimes._loop import run_session
from clearance.regimes._regime import Regime
from clearance.regimes._session import Session
from clearance.regimes.describe import check_resumable, describe
from clearance.regimes.result import FitResult as FitResult
from clearance.regimes.result import Progress as Progress
from clearance.runs import RunDirectory, digest

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def fit(
    model: Classifier,
    regime: Regime,
    train: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 128,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    validation: Any = None,
    watched: Mapping[str, Any] | None = None,
    clip_norm: float | None = None,
    max_norm: float | None = None,
    autocast: torch.dtype | None = None,
    compile_extractor: bool = False,
    label_noise: float = 0.0,
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
        epochs: Passes over the training set, at least 1; or give `steps`.
        steps: Updates in all, at least 1, however many images there are; the last pass may be cut short.
        batch_size: Images a step; the last batch of an epoch may be smaller (a single image is left out).
        optimizer: Called with the parameters that the regime may move. Default: SGD with lr 0.05 and
            momentum 0.9.
        schedule: Called with the optimiser; stepped once an epoch, as in torch's own examples, and after every
            update where `steps` is given.
        validation: Like `train`; its error is logged after every epoch in which the head can be used.
        watched: More such sets by name, each logged as ``NAME_error``: to look at, not to choose by.
        clip_norm: Bound on the norm of the whole gradient, above 0.
        max_norm: Bound, above 0, on the norm of every unit's incoming weights, after each step, in the part of
            the model that the regime moves (under FOCA the extractor alone; Srivastava et al. 2014, FOCA's
            stabiliser in Sato et al. 2019).
        autocast: ``torch.bfloat16`` runs the extractor in mixed precision during steps; heads, their training
            and the loss stay in float32. None is full precision.
        compile_extractor: Whether torch.compile translates the extractor for the steps; heads and loss stay as
            they are. The first steps then take long, and the last bits differ.
        label_noise: Share of the training labels that are known to be wrong, in [0, 1). It moves nothing: where few of
            so many labels are true, a network that has learnt those alone does not count as collapsed.
        device: ``"auto"`` is CUDA where there is one, else the CPU.
        seed: Decides batch order, augmentation, dropout, noise and fresh heads (not the model's own first
            weights: seed torch before you build it).
        run_dir: Where the run is kept. Finished runs are read back; another recipe's are refused.
        checkpoint_every: Steps between checkpoints, at least 1.
        on_step: Told of the progress after every step; returning ``"stop"`` ends the run as stopped.

    Under torch.distributed (torchrun) every process calls ``fit`` with the same arguments: each moves its
    share of every batch, gradients are averaged, and all end with the same model. Batch normalisation uses the
    statistics of a process's own share (pass a model with torch.nn.SyncBatchNorm otherwise).

    Raises:
        TypeError: If `model` is no Classifier, `regime` no regime, or `optimizer` cannot be called.
        ValueError: If an argument is out of range, both or neither of `epochs` and `steps` are given, `run_dir`
            belongs to another run or to one of code without a source, the objective reads activations of a
            compiled extractor, or several processes get a `run_dir` or too small a batch.

    >>> from clearance.data import gaussian_images
    >>> from clearance.heads import MLP
    >>> from clearance.regimes import EndToEnd
    >>> data = gaussian_images(per_class=10, shape=(1, 4, 4))
    >>> _ = torch.manual_seed(0)
    >>> model = Classifier(torch.nn.Flatten(), MLP((16, 32, 3)))
    >>> str(fit(model, EndToEnd(), data, epochs=50, batch_size=10).status)
    'finished at step 150'
    """
    check_classifier(model)
    check_kinds(regime, optimizer)
    check_lengths(epochs, steps, batch_size, checkpoint_every)
    check_fraction("label_noise", label_noise, open_above=True)
    place = device_named(device)
    check_processes(batch_size, run_dir)
    data = as_image_set(train).to(place)
    held_out = None if validation is None else as_image_set(validation).to(place)
    looked_at = {name: as_image_set(images).to(place) for name, images in (watched or {}).items()}
    model.to(place)
    regime.objective.to(place)
    stepper = _stepper(model, regime, optimizer, clip_norm, max_norm)
    session = Session(
        model=model,
        objective=regime.objective,
        optimizer=stepper,
        schedule=None if schedule is None else _schedule(schedule, stepper),
        generators=regime.generators(seed) | {"augmentation": generator(seed, *own_stream("augmentation"))},
        data=data,
        validation=held_out,
        regime=regime,
        forward=ExtractorForward(
            model.extractor, autocast, compiled=compile_extractor, objective=regime.objective
        ),
        seed=seed,
        epochs=epochs or 0,
        batch_size=batch_size,
        steps=steps,
        watched=looked_at,
        label_noise=label_noise,
    )
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(derived_seed(seed, *own_stream("forward")))
        if run_dir is None:
            return run_session(session, None, checkpoint_every, on_step)
        settings = {
            "epochs": epochs, "batch_size": batch_size, "clip_norm": clip_norm, "max_norm": max_norm,
            "seed": seed, "device": place.type,
            **_unusual(autocast, steps, looked_at, compile_extractor=compile_extractor),
        }  # fmt: skip
        fingerprint = _fingerprint(session, optimizer, schedule, settings)
        check_resumable(Path(run_dir), fingerprint)
        with RunDirectory.open(Path(run_dir), fingerprint) as run:
            return run_session(session, run, checkpoint_every, on_step)


def _stepper(
    model: Classifier,
    regime: Regime,
    optimizer: Callable[..., Optimizer],
    clip_norm: float | None,
    max_norm: float | None,
) -> Optimizer:
    """The optimiser of what the regime may move, with both limits."""
    moved = list(regime.trainable(model))
    if not moved:
        raise ValueError("there is nothing to train: the parameters that this regime may move are none.")
    stepper = optimizer(moved)
    own = {id(parameter) for parameter in model.parameters()}
    limit_gradients(stepper, moved, _positive("clip_norm", clip_norm))
    limit_weights(stepper, [p for p in moved if id(p) in own], _positive("max_norm", max_norm))
    return stepper


def _fingerprint(
    session: Session, optimizer: object, schedule: object, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What decides a run's numbers, before its first step: a run's directory is opened with nothing else."""
    validation = session.validation
    return {
        "model": describe(session.model),
        "first_weights": digest(session.model.state_dict().items()),
        "regime": describe(session.regime),
        "first_objective": digest(session.objective.state_dict().items()),
        "train": session.data.digest(),
        "augmentation": describe(session.data.augmentation),
        "validation": None if validation is None else validation.digest(),
        "optimizer": describe(optimizer),
        "schedule": describe(schedule),
        "settings": settings,
    }


def _unusual(
    autocast: torch.dtype | None,
    steps: int | None,
    watched: Mapping[str, ImageSet],
    *,
    compile_extractor: bool,
) -> dict[str, Any]:
    """Settings that are named only where they are used, so that older runs stay known by theirs."""
    used = {
        "autocast": None if autocast is None else str(autocast),
        "compile_extractor": compile_extractor,
        "steps": steps,
        "watched": {name: images.digest() for name, images in watched.items()},
    }
    return {name: value for name, value in used.items() if value}


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
