"""Options that several commands share."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from clearance.experiments.method import Method
    from clearance.experiments.recipe import Recipe
    from clearance.runs.remote import RemoteRuns


OptionalText = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
OptionalCount = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
OptionalNumber = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


DEFAULT_METHODS = ("plain", "dropout", "lgm", "foca")
LOCAL, RAY = "local", "ray"


def check_engine_options(engine: str, jobs: int | None, cpus_per_run: int, gpus_per_run: float) -> None:
    """Raise ValueError for options that do not go together, before any work."""
    from clearance._checks import check_count, check_non_negative

    if engine not in (LOCAL, RAY) and not engine.startswith("ray://"):
        raise ValueError(f"--engine takes local, ray or ray://HOST:PORT; got {engine!r}.")
    check_count("cpus_per_run", cpus_per_run)
    check_non_negative("gpus_per_run", gpus_per_run)
    if jobs is not None:
        check_count("jobs", jobs)
    if engine == LOCAL and (cpus_per_run, gpus_per_run) != (1, 0.0):
        raise ValueError(
            "--cpus-per-run and --gpus-per-run are kept by Ray; give --engine ray or ray://HOST:PORT with them."
        )
    if engine != LOCAL and jobs is not None:
        raise ValueError(
            "--jobs is the number of local processes; with --engine ray, --cpus-per-run and --gpus-per-run decide."
        )


def places(engine: str, jobs: int | None, cpus_per_run: int, gpus_per_run: float) -> str:
    """Where runs execute, in words.

    >>> places("local", 3, 1, 0.0), places("ray", None, 1, 0.5)
    ('3 at a time', 'on ray with 1 cores and 0.5 GPUs for each')
    """
    if engine != LOCAL:
        return f"on {engine} with {cpus_per_run} cores and {gpus_per_run:g} GPUs for each"
    from clearance.experiments.engines import default_jobs

    return f"{default_jobs() if jobs is None else jobs} at a time"


@contextmanager
def chosen_engine(
    engine: str, jobs: int | None, cpus_per_run: int, gpus_per_run: float
) -> "Iterator[Executor | int]":
    """Where runs execute: a number of local processes, or Ray, which is left when the block ends.

    Raises:
        ValueError: If the options do not go together, or Ray is not installed, does not answer, or lacks what a run
            needs.
    """
    check_engine_options(engine, jobs, cpus_per_run, gpus_per_run)
    if engine == LOCAL:
        from clearance.experiments.engines import default_jobs

        yield default_jobs() if jobs is None else jobs
        return
    try:
        from clearance.integrations.ray import RayEngine
    except ImportError as error:
        raise ValueError(f"--engine {engine}: {error}") from error
    address = None if engine == RAY else engine
    with RayEngine(address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run) as executor:
        yield executor


def chosen_recipe(
    recipe: Path | None,
    dataset: str | None,
    methods: tuple[str, ...],
    *,
    keep_sources: bool = False,
    **changes: object,
) -> "Recipe":
    """The recipe of a file, or the dataset's tuned one, changed by the given options.

    With `keep_sources`, methods that an audit names as its source are kept too.

    Raises:
        ValueError: If a method or setting is unknown.
    """
    from clearance._checks import check_choice
    from clearance.experiments.recipe import read_recipe, tuned_recipe

    start = tuned_recipe(dataset or "digits") if recipe is None else read_recipe(recipe, dataset)
    shipped = tuned_recipe(start.dataset).methods
    known = {**shipped, **start.methods}
    for name in methods:
        check_choice("method", name, known)
    if methods:
        settings = start.audit_settings.values() if keep_sources else ()
        sources = [one["source"] for one in settings if str(one.get("source")) in known]
        start = dataclasses.replace(start, methods={name: known[name] for name in (*methods, *sources)})
    given = {name: value for name, value in changes.items() if value is not None}
    if "epochs" in given:
        if "steps" in given:
            raise ValueError("--epochs and --steps both set the length of training; give one of them.")
        given["steps"] = None  # a file's steps would override the given epochs
    chosen: Recipe = dataclasses.replace(start, **given)  # type: ignore[arg-type]
    _check_names(chosen, shipped)
    return chosen


def _check_names(recipe: "Recipe", shipped: "Mapping[str, Method]") -> None:
    """Raise ValueError for an unknown name, before any process or training starts.

    Settings of losses are checked but for methods as they are `shipped`, so that a plan of these needs no torch.
    """
    from clearance._checks import check_choice
    from clearance.experiments.catalogue import AUDIT_GROUPS, AUDITS, DATASETS, LOSSES, MODELS
    from clearance.experiments.recipe import tuned_recipe

    if not recipe.dataset.startswith(("folder:", "npz:")):
        check_choice("dataset", recipe.dataset, DATASETS)
    if not recipe.model.startswith("run:"):  # the network of a finished run
        check_choice("model", recipe.model, MODELS)
    for name in (*recipe.audits, *recipe.audit_settings):
        check_choice("audit", name, [*AUDITS, *AUDIT_GROUPS])
    if recipe.audit_settings != tuned_recipe(recipe.dataset).audit_settings:
        from clearance.experiments.audit_plan import AuditPlan

        AuditPlan.of_recipe(recipe)  # raises for invalid settings
    for name, method in recipe.methods.items():
        check_choice("loss", method.loss, LOSSES)
        if method.loss_settings and method != shipped.get(name):
            from clearance.experiments.build import build_loss

            build_loss(method)  # raises for invalid settings


def default_methods(given: str | None, recipe: Path | None) -> tuple[str, ...]:
    """The given methods; if neither the option nor the recipe file names any, the default ones.

    Raises:
        ValueError: If the list is empty.
    """
    if given is not None:
        return split_names(given, "--methods")
    from clearance.experiments.recipe import names_methods

    return () if recipe is not None and names_methods(recipe) else DEFAULT_METHODS


def check_file(option: str, path: Path) -> None:
    """Raise ValueError unless a file can be written at `path`; called before the work that produces it."""
    from clearance._files import check_folder

    if path.is_dir():
        raise ValueError(f"{option} must be a file; {path} is a folder.")
    if not path.exists() or path.is_file():  # a device or a pipe is written into, wherever it is
        check_folder(option, path.parent)


def check_out(out: str, *, report: bool = False) -> None:
    """Raise ValueError unless results, or a report, can be written at a path or an address: before long work."""
    from clearance._files import check_folder, check_report_folder, is_remote

    if is_remote(out):
        from clearance.runs.remote import RemoteRuns

        RemoteRuns(out).check()
    else:
        (check_report_folder if report else check_folder)("out", Path(out))


def runs_at(out: str) -> "Path | RemoteRuns":
    """Where runs lie below a path or an address."""
    from clearance._files import is_remote

    if not is_remote(out):
        return Path(out) / "runs"
    from clearance.runs.remote import RemoteRuns

    return RemoteRuns(f"{out.rstrip('/')}/runs")


def split_names(text: str | None, option: str = "") -> tuple[str, ...]:
    """Names separated by commas.

    Raises:
        ValueError: If one is there twice, or none though an option is given to name some.

    >>> split_names("plain, foca")
    ('plain', 'foca')
    """
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"each must be given once; got {twice!r} twice in {text!r}. Remove one.")
    if option and not names:
        raise ValueError(f"{option} must name at least one; got none. `clearance list` shows them.")
    return names


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, separated by commas.

    Raises:
        ValueError: If one of them is invalid, or the list is empty.

    >>> whole_numbers("--per-class", "1,10")
    (1, 10)
    """
    names = split_names(text)
    if not names or not all(name.isdecimal() and int(name) > 0 for name in names):
        raise ValueError(f"{option} takes whole numbers above 0 separated by commas; got {text!r}.")
    return tuple(int(name) for name in names)
