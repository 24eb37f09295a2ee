"""Training for Fig. 1: every variant under every seed, kept on disk so that an interrupted study goes on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance.data import ImageSet
from clearance.experiments.grid import Listener
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, identifier
from clearance.experiments.reproductions.sato_2019.fig1_toy import (
    VARIANTS,
    ToySettings,
    train_variant,
    two_moons,
)
from clearance.experiments.run import RunPlan
from clearance.regimes.describe import describe
from clearance.regimes.fit import FitResult, Progress

DATASET = "toy"  # what row F1 of the claims is about
STEPS_BETWEEN_NEWS = 50


@dataclass(frozen=True)
class ToyRun:
    """One trained panel.

    Args:
        variant: Name of the variant.
        seed: Of points, first weights and heads.
        data: The points.
        result: The trained network, and how training ended.
    """

    variant: str
    seed: int
    data: ImageSet
    result: FitResult


def trained_runs(settings: ToySettings, seeds: int, directory: Path, listener: Listener) -> list[ToyRun]:
    """Every variant under seeds 0, 1, 2 ..., in this process; what `directory` holds is read back.

    Args:
        settings: Of the toy.
        seeds: How many.
        directory: Each run has a folder in it, named after variant, seed and settings.
        listener: Told of start, step, done and kept, as in :func:`clearance.experiments.grid.run_grid`.
    """
    return [_run(name, seed, settings, directory, listener) for seed in range(seeds) for name in VARIANTS]


def run_folder(name: str, seed: int, settings: ToySettings) -> str:
    """The folder of a run; another whenever a setting is another that concerns this variant.

    >>> folder = run_folder("joint, MLP head", 3, ToySettings())
    >>> folder[:20], folder == run_folder("joint, MLP head", 3, ToySettings(lr_linear=0.1))
    ('joint-MLP-head-seed3', True)
    """
    variant = VARIANTS[name]
    told = {
        "points": [settings.per_class, settings.noise],
        "epochs": variant.epochs(settings),
        "lr": variant.lr(settings),
        "regime": describe(variant.regime(settings)),
    }
    return f"{name.replace(',', '').replace(' ', '-')}-seed{seed}-{identifier(told)}"


def _run(name: str, seed: int, settings: ToySettings, directory: Path, listener: Listener) -> ToyRun:
    data = two_moons(settings, seed)
    folder = directory / run_folder(name, seed, settings)
    # a listener knows runs by their plan; nothing of this one is used but method and seed
    plan = RunPlan(
        Recipe(dataset=DATASET, epochs=VARIANTS[name].epochs(settings), methods={name: Method()}), name, seed
    )
    steps: list[int] = []
    listener(plan, {"event": "start"})
    told = _telling(plan, listener, steps)
    result = train_variant(VARIANTS[name], data, settings, seed, run_dir=folder, on_step=told)
    listener(plan, {"event": "done", "status": str(result.status)} if steps else {"event": "kept"})
    return ToyRun(name, seed, data, result)


def _telling(plan: RunPlan, listener: Listener, steps: list[int]) -> Callable[[Progress], None]:
    """Passes progress on now and then, and notes each step in `steps`."""

    def tell(progress: Progress) -> None:
        steps.append(progress.step)
        if progress.step % STEPS_BETWEEN_NEWS == 0:
            news: Mapping[str, Any] = {"event": "step", "step": progress.step, "steps": progress.steps}
            listener(plan, news)

    return tell
