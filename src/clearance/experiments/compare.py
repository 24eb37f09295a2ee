"""Compare methods: run every method under every seed, and make one report."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearance._checks import check_choice
from clearance._describe import describe
from clearance._files import is_remote
from clearance.audits import Audit
from clearance.data.intake import open_images
from clearance.experiments.audit import check_held_out
from clearance.experiments.audit_plan import SOURCE, AuditPlan, Settings
from clearance.experiments.build import RunData, build_data, check_draws
from clearance.experiments.engines import default_jobs
from clearance.experiments.grid import (
    Engine,
    Listener,
    Piece,
    Results,
    plans_of,
    run_grid,
    silent,
)
from clearance.experiments.method import WAYS, Method, NetworkSettings
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe, to_tree, tuned_recipe
from clearance.experiments.run import RunFindings, RunPlan, sources_of
from clearance.experiments.saved import check_networks
from clearance.experiments.sweep import (
    Sweep,
    at_values,
    parse_sweep,
    swept_recipes,
    swept_report,
    with_swept_audits,
)
from clearance.losses import Loss
from clearance.models import Classifier
from clearance.records import Report
from clearance.report import Card
from clearance.report.left_out import PARTIAL
from clearance.runs.remote import RemoteRuns
from clearance.training import EndToEnd, WayOfTraining


@dataclass(frozen=True)
class Comparison:
    """Methods side by side: what ``clearance.compare`` and ``clearance compare`` run.

    Args:
        recipe: All settings that are plain values.
        data: Images that replace the recipe's.
        ways: By method, a way of training that replaces the method's.
        model: Builds a fresh classifier that replaces the recipe's.
        audits: Replace the recipe's.
        command: The command or call, for the report.

    >>> from clearance.data import gaussian_images
    >>> data = RunData(gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1))
    >>> recipe = Recipe(epochs=2, seeds=1, audits=("accuracy",), methods={"plain": Method()})
    >>> card = Comparison(recipe, data=data).run()
    >>> [m.context["split"] for m in card.measurements if (m.audit, m.name) == ("accuracy", "error")]
    ['test', 'train']
    """

    recipe: Recipe
    sweep: Sweep | None = None
    data: RunData | None = None
    ways: Mapping[str, WayOfTraining] = field(default_factory=dict)
    model: "Callable[[], Classifier] | None" = None
    audits: AuditPlan | None = None
    command: str = "clearance.compare(...)"

    def __post_init__(self) -> None:
        """Raise for invalid settings, before any training."""
        self.recipes()
        plan = AuditPlan.of_recipe(self.recipe) if self.audits is None else self.audits
        for audit, source in plan.sources.items():
            if self.model is not None:
                raise ValueError(
                    f"`model` must be a name where {audit!r} makes images on the network of a method; got a function. "
                    "Give that network itself: Robustness(source=network)."
                )
            named = [name for name in self.recipe.methods if name not in self.ways]
            check_choice(f"{SOURCE} of audit {audit!r}, a method of plain settings", source, named)
        of_ways = {name for unset in WAYS.values() for name in vars(unset())}
        if self.sweep is not None and self.ways and self.sweep.field in of_ways:
            raise ValueError(
                f"`sweep` of {self.sweep.field!r} does not change {', '.join(self.ways)}, given as a loss or way of "
                "training; give them as methods, or sweep something else."
            )
        if self.sweep is not None and self.model is not None and self.sweep.field in vars(NetworkSettings()):
            raise ValueError(
                f"`model` must be a name with a `sweep` of {self.sweep.field!r}, which changes the network; got a "
                "function, which builds the same at every value. Sweep something else."
            )
        if self.sweep is not None and self.sweep.of_data and self.data is not None:
            raise ValueError(
                f"`sweep` of {self.sweep.field!r} changes the images, but the images are given here; make one "
                "comparison for each value, or use the command."
            )

    def recipes(self) -> "dict[float | None, Recipe]":
        """The recipe, or the recipe at each value of the sweep."""
        return (
            {None: self.recipe}
            if self.sweep is None
            else dict(swept_recipes(self.recipe, self.sweep).items())
        )

    def plans(self, recipe: Recipe) -> list[RunPlan]:
        """Every run of one recipe, seed by seed."""
        return [
            dataclasses.replace(plan, way=self.ways.get(plan.method), model=self.model, audits=self.audits)
            for plan in plans_of(recipe)
        ]

    @property
    def count(self) -> int:
        """The number of runs, including those of networks that audits make images on."""
        plans = [plan for recipe in self.recipes().values() for plan in self.plans(recipe)]
        return len(plans) + len(sources_of(plans))

    def run(
        self,
        engine: Engine = None,
        listener: Listener = silent,
        directory: Path | RemoteRuns | None = None,
        on_seed: Callable[[Card], object] | None = None,
    ) -> Card:
        """Train and audit every method under every seed.

        Args:
            engine: A number of local processes, or an Executor. None means one process per core if the recipe
                names the images, and this process if the caller gave them.
            listener: Called with the events of :func:`clearance.experiments.grid.run_grid`.
            directory: The folder for runs, or their address, so that an interrupted comparison resumes; None stores no
                runs.
            on_seed: Called when the first seed is complete, and then each time twice as many are; not for the last. It
                gets a card of the seeds so far, whose page is marked as partial.

        Raises:
            ValueError: If the images are missing, or do not fit the recipe.
        """
        if engine is None and self.data is None:
            engine = default_jobs()
        common = self.data
        if common is None and not (self.sweep is not None and self.sweep.of_data):
            common = build_data(self.recipe)
        images = {value: common or build_data(recipe) for value, recipe in self.recipes().items()}
        for value, recipe in self.recipes().items():
            check_draws(recipe, images[value])
            if self.model is None:
                check_networks(recipe, images[value])
        planned = [(value, plan) for value, recipe in self.recipes().items() for plan in self.plans(recipe)]
        found = run_grid(
            [plan for _, plan in planned],
            [images[value] for value, _ in planned],
            directory,
            engine,
            listener,
            send_data=self.data is not None,
            on_result=silent if on_seed is None else self._partial(planned, on_seed),
        )
        return Card(self._report([value for value, _ in planned], found))

    def _partial(
        self, planned: "Sequence[tuple[float | None, RunPlan]]", on_seed: Callable[[Card], object]
    ) -> Callable[[Results], object]:
        """What calls `on_seed` each time twice as many seeds are complete: a page takes time from runs."""
        shown = 0
        missing = Counter(plan.seed for _, plan in planned)
        counted = 0

        def hear(results: Results) -> None:
            nonlocal counted, shown
            for place in itertools.islice(results, counted, None):
                missing[planned[place][1].seed] -= 1
            counted = len(results)
            complete = {seed for seed, count in missing.items() if not count}
            if len(complete) == len(missing) or len(complete) < max(2 * shown, 1):
                return
            shown = len(complete)
            places = [place for place, (_, plan) in enumerate(planned) if plan.seed in complete]
            report = self._report(
                [planned[place][0] for place in places], [results[place] for place in places]
            )
            seeds = {"seeds": len(complete), "of": len(missing)}
            on_seed(Card(dataclasses.replace(report, recipe={**report.recipe, PARTIAL: seeds})))

        return hear

    def _report(self, values: "Sequence[float | None]", found: Sequence[RunFindings]) -> Report:
        if self.sweep is not None:
            pairs = zip(values, found, strict=True)
            found = at_values([(value, one) for value, one in pairs if value is not None], self.sweep)
        report = report_of(self.recipe, found, self.command, self.audits)
        if self.sweep is not None:
            report = swept_report(report, self.sweep, self.recipe)
        settings = _with_callers_ways(report.recipe, self.recipe, self.ways)
        return dataclasses.replace(report, recipe=settings)


def compare(
    methods: Mapping[str, "str | Method | Loss | WayOfTraining"] | Sequence[str],
    train: Any,
    test: Any,
    *,
    seeds: int = 5,
    epochs: int | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    label_noise: float = 0.0,
    samples: int | None = None,
    sweep: str | None = None,
    model: "str | Callable[[], Classifier]" = "small-cnn",
    audits: "Sequence[str | Audit] | None" = None,
    audit_settings: Settings | None = None,
    directory: str | Path | None = None,
    engine: Engine = None,
    on_run: Callable[[str, int], object] | None = None,
) -> Card:
    """Train methods side by side on your images, audit each, and return one card.

    Args:
        methods: Names of the catalogue, or a mapping from any name to one of: a name of the catalogue, a
            :class:`Method` (settings), a Loss (your own loss, trained end to end with plain's settings, its learning
            rate among them: ``sweep="lr=0.01,0.1"`` compares at several), or a way of training. The others are
            compared with the first.
        train: An ImageSet, (images, labels), or other data that :func:`clearance.data.open_images` takes: a map-style
            Dataset, a DataLoader, a Hugging Face dataset, ``"folder:PATH"``.
        test: The same; all results are measured on it, so do not use it for choices.
        seeds: Number of seeds; a verdict needs two, and fewer than five are often inconclusive.
        epochs: Passes over the training images; default: the dataset's tuned recipe.
        batch_size: Images per step; default: the dataset's tuned recipe.
        steps: Total updates, instead of `epochs`.
        label_noise: Share of training labels switched to another class, in [0, 1): drawn once for each seed, the
            same for all methods. Errors on `test`, whose labels are unchanged, are then recorded after every epoch
            (not under FOCA, whose head is trained at the end).
        samples: Training images drawn for each seed, class-balanced and the same for all methods; all by
            default. Also give `steps`, so that few images do not mean little training.
        sweep: One numeric setting at several values, ``"weight_decay=1e-5:1e-1:9"`` (equal ratios) or
            ``"lr=0.01,0.1"``: methods are compared at each of them, and the page plots results against them.
        model: Name of an extractor in the catalogue, or a function that builds a fresh Classifier. It is then the
            network of all methods, so that those that change it (``"dropout"``, ``"batchnorm"``) are refused.
        audits: Names of audits, or audits with your own settings; default: the recipe's, with a sweep also
            ``boundary_distance`` and ``weight_scale``, which its curves show.
        audit_settings: Settings of audits by audit and name, as in
            ``{"minimal_perturbation": {"steps": 20}}``, where they differ from the defaults.
        directory: The folder for runs, so that an interrupted comparison resumes, or an address that fsspec knows, such
            as ``"s3://bucket/prefix"``; None stores no runs.
        engine: Where runs execute: a number of local processes, or any ``concurrent.futures.Executor``, for which
            all arguments must be importable and picklable; tasks in threads of one process take turns. None is this
            process. A run that breaks after another of its method has finished is recorded as failed; the others go on.
        on_run: Called with the method and seed of each run before it starts.

    Raises:
        TypeError: If `model` is a module and not a function that builds one for every run.
        ValueError: If a name is unknown, the data are invalid, or all test images are training images.

    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> card = compare(["plain", "foca"], train, test, seeds=1, epochs=2, audits=["accuracy"])
    >>> sorted({record.method for record in card.records})
    ['foca', 'plain']
    """
    _check_arguments(methods, model, epochs, steps)
    data = RunData(open_images(train), open_images(test))
    check_held_out(data)
    start = tuned_recipe(data.train.name)
    if not isinstance(methods, Mapping) and len(set(methods)) < len(methods):
        raise ValueError(f"`methods` must name each method once; got {', '.join(map(str, methods))}.")
    named = {name: name for name in methods} if not isinstance(methods, Mapping) else dict(methods)
    resolved = {name: _resolved(method, start.methods) for name, method in named.items()}
    if not isinstance(model, str):
        _check_one_network({name: settings for name, (settings, way) in resolved.items() if way is None})
    if audits is None:
        audits = start.audits if sweep is None else with_swept_audits(start).audits
    asked = AuditPlan.of(audits, audit_settings, defaults=start.audit_settings)
    recipe = dataclasses.replace(
        start,
        seeds=seeds,
        epochs=start.epochs if epochs is None else epochs,
        batch_size=start.batch_size if batch_size is None else batch_size,
        steps=steps,
        label_noise=label_noise,
        samples=samples,
        model=model if isinstance(model, str) else "of the caller",
        audits=asked.names,
        methods={name: settings for name, (settings, _) in resolved.items()},
    )

    def heard(piece: Piece, event: Mapping[str, Any]) -> None:
        if on_run is not None and event["event"] == "start" and isinstance(piece, RunPlan):
            on_run(piece.method, piece.seed)

    comparison = Comparison(
        recipe,
        sweep=None if sweep is None else parse_sweep(sweep),
        data=data,
        ways={name: way for name, (_, way) in resolved.items() if way is not None},
        model=None if isinstance(model, str) else model,
        audits=asked,
    )
    place = (
        RemoteRuns(str(directory)) if is_remote(directory) else None if directory is None else Path(directory)
    )
    return comparison.run(engine, heard, place)


def _check_arguments(methods: object, model: object, epochs: int | None, steps: int | None) -> None:
    if isinstance(methods, str) or not methods:
        advice = f" Write [{methods!r}]." if methods and isinstance(methods, str) else ""
        raise ValueError(
            f"`methods` must name at least one method, as a list or a mapping; got {methods!r}.{advice}"
        )
    if epochs is not None and steps is not None:
        raise ValueError(f"one of `epochs` and `steps` must be given, not both; got {epochs} and {steps}.")
    if isinstance(model, torch.nn.Module):
        raise TypeError(
            f"`model` must be a name or a function that builds a fresh Classifier for every run; got a "
            f"{type(model).__name__}, which all runs would train on. Write a function that builds one."
        )


def _check_one_network(methods: Mapping[str, Method]) -> None:
    for name, settings in methods.items():
        changed = [
            part
            for part in ("dropout", "norm", "features", "mixture")
            if getattr(settings, part) != getattr(Method(), part)
        ]
        if changed:
            raise ValueError(
                f"`model` must be a name for the method {name!r}, which changes the network (`{changed[0]}`); got a "
                "function, which builds the same for all methods. Leave the method out, or train both networks and "
                "compare their audits with `clearance diff`."
            )


def _resolved(
    method: "str | Method | Loss | WayOfTraining", known: Mapping[str, Method]
) -> tuple[Method, WayOfTraining | None]:
    if isinstance(method, str):
        check_choice("method", method, known)
        return known[method], None
    if isinstance(method, Method):
        return method, None
    if isinstance(method, Loss):
        return known["plain"], EndToEnd(method)
    if isinstance(method, WayOfTraining):
        return known["foca" if not method.trains_head else "plain"], method
    if isinstance(method, type):
        raise TypeError(
            f"a method must be a name, a Method, a Loss or a way of training; got the class {method.__name__}. Write "
            f"{method.__name__}(...), with its settings."
        )
    if isinstance(method, Classifier):
        raise TypeError(
            "a method must be a name, a Method, a Loss or a way of training; got a trained model. Audit each, and "
            "compare the two cards: clearance.diff(clearance.audit(a, ...), clearance.audit(b, ...))."
        )
    raise TypeError(
        f"a method must be a name, a Method, a Loss or a way of training; got {type(method).__name__}. Wrap your "
        "own loss function in a subclass of clearance.losses.Loss."
    )


def _with_callers_ways(
    settings: Mapping[str, Any], recipe: Recipe, ways: Mapping[str, WayOfTraining]
) -> dict[str, Any]:
    """The settings; for the caller's own losses and ways of training, their description and the settings they use."""
    used = ("lr", "weight_decay", "clip_norm", "max_norm", "hidden", "dropout", "norm")
    own = {
        name: {"way": describe(way), **{key: to_tree(recipe.methods[name])[key] for key in used}}
        for name, way in ways.items()
    }
    return {**settings, "methods": {**settings["methods"], **own}}
