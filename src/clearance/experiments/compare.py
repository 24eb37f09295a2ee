"""Compare methods: run every method under every seed, and tell the result as one report."""

import dataclasses
import itertools
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from clearance._checks import check_choice, check_count, check_fraction
from clearance.data import as_image_set
from clearance.experiments.audit_sources import SETTING, named_sources
from clearance.experiments.auditing import chosen_audits
from clearance.experiments.build import RunData
from clearance.experiments.catalogue import named_audits
from clearance.experiments.draws import check_draws
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, to_tree, tuned_recipe
from clearance.experiments.run import RunFindings, RunPlan, run_method
from clearance.experiments.sweep import at_values, swept_recipes, swept_report, with_swept_audits
from clearance.experiments.sweep_words import Sweep, parse_sweep
from clearance.models import Classifier
from clearance.objectives import Objective
from clearance.records import Report
from clearance.regimes import EndToEnd, Regime
from clearance.regimes.describe import describe
from clearance.report import Card

LIBRARIES = ("torch-clearance", "torch", "numpy", "scipy", "scikit-learn")


def compare(
    methods: Mapping[str, "str | Method | Objective | Regime"] | Sequence[str],
    train: Any,
    test: Any,
    *,
    seeds: int = 3,
    epochs: int | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    noisy_labels: float = 0.0,
    small_data: int | None = None,
    sweep: str | None = None,
    model: "str | Callable[[], Classifier]" = "small-cnn",
    audits: Sequence[str] | None = None,
    directory: str | Path | None = None,
    on_run: Callable[[str, int], object] | None = None,
) -> Card:
    """Train methods side by side on your images, audit each, and return one card.

    Args:
        methods: Names of the catalogue, or a mapping from any name to one of: a name of the catalogue, a
            :class:`Method` (settings), an Objective (your own loss, trained end to end with plain's
            settings), or a Regime. The first is the one that the others are compared with.
        train: An ImageSet, a map-style Dataset, or (images, labels).
        test: Likewise; everything is measured on it, so choose nothing by it.
        seeds: How many seeds; a verdict needs two, and three can often not tell.
        epochs: Passes over the training images; the default is that of the dataset's tuned recipe.
        batch_size: Images a step; default likewise.
        steps: Updates in all, in place of `epochs`; one of the two.
        noisy_labels: Share of training labels switched to another class, in [0, 1): drawn once for each seed, alike
            for all methods. Errors on `test`, whose labels stay, are then recorded after every epoch (not under FOCA,
            whose head is trained at the end).
        small_data: Training images drawn for each seed, class-balanced and alike for all methods; all by default.
            Give `steps`, too, so that few images do not mean little training.
        sweep: One numeric setting at several values, ``"weight_decay=1e-5:1e-1:9"`` (equal ratios) or
            ``"lr=0.01,0.1"``: everything is compared at each of them, and the page draws it over them.
        model: Name of an extractor in the catalogue, or a function that builds a fresh Classifier (the
            methods' settings of head and norm then do not apply).
        audits: Names of audits; those of the recipe by default, with a sweep ``boundary_distance`` and
            ``weight_scale``, too, because its curves are of them.
        directory: Where runs are kept, so that an interrupted comparison goes on; None keeps nothing.
        on_run: Told the method and seed of each run before it starts.

    Raises:
        ValueError: If a name is unknown or the data are not as they should be.

    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> card = compare(["plain", "foca"], train, test, seeds=1, epochs=2, audits=["accuracy"])
    >>> sorted({record.method for record in card.records})
    ['foca', 'plain']
    """
    _check_arguments(methods, model, seeds, epochs, steps, noisy_labels, small_data)
    data = RunData(as_image_set(train), as_image_set(test))
    start = tuned_recipe(data.train.name)
    named = {name: name for name in methods} if not isinstance(methods, Mapping) else dict(methods)
    resolved = {name: _resolved(method, start.methods) for name, method in named.items()}
    recipe = dataclasses.replace(
        start,
        seeds=seeds,
        epochs=start.epochs if epochs is None else epochs,
        batch_size=start.batch_size if batch_size is None else batch_size,
        steps=steps,
        label_noise=noisy_labels,
        samples=small_data,
        model=model if isinstance(model, str) else "of the caller",
        audits=start.audits if audits is None else named_audits(audits),
        methods={name: settings for name, (settings, _) in resolved.items()},
    )
    swept = None if sweep is None else parse_sweep(sweep)
    if swept is not None and swept.of_data:
        raise ValueError(
            f"`sweep` of {swept.field!r} changes the images, which are given here; compare with each of them, or use "
            "the command."
        )
    if swept is not None and audits is None:
        recipe = with_swept_audits(recipe)
    recipes = {None: recipe} if swept is None else swept_recipes(recipe, swept)
    for one in recipes.values():
        check_draws(one, data)
    build = None if isinstance(model, str) else model
    found: list[tuple[float | None, RunFindings]] = []
    for seed, (value, one) in itertools.product(range(seeds), recipes.items()):
        for name, (_, regime) in resolved.items():
            if on_run is not None:
                on_run(name, seed)
            plan = RunPlan(one, name, seed, regime, build)
            found.append((value, run_method(plan, data, None if directory is None else Path(directory))))
    report = _report_of_values(recipe, found, swept)
    return Card(dataclasses.replace(report, recipe=_with_callers_regimes(report.recipe, resolved)))


def _check_arguments(
    methods: object,
    model: object,
    seeds: int,
    epochs: int | None,
    steps: int | None,
    noisy_labels: float,
    small_data: int | None,
) -> None:
    if isinstance(methods, str) or not methods:
        raise ValueError(f"`methods` must name at least one method, as a list or a mapping; got {methods!r}.")
    check_count("seeds", seeds)
    check_fraction("noisy_labels", noisy_labels, open_above=True)
    if small_data is not None:
        check_count("small_data", small_data, minimum=2)
    if epochs is not None and steps is not None:
        raise ValueError(f"one of `epochs` and `steps` must be given, not both; got {epochs} and {steps}.")
    if isinstance(model, torch.nn.Module):
        raise TypeError(
            f"`model` must be a name or a function that builds a fresh Classifier for every run; got a "
            f"{type(model).__name__}, which all runs would train on. Write a function that builds one."
        )


def _report_of_values(
    recipe: Recipe, found: Sequence[tuple[float | None, RunFindings]], swept: Sweep | None
) -> Report:
    command = "clearance.compare(...)"
    if swept is None:
        return report_of(recipe, [one for _, one in found], command)
    told = at_values([(value, one) for value, one in found if value is not None], swept)
    return swept_report(report_of(recipe, told, command), swept, recipe)


def full_settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, with every setting of its audits, the defaults too."""
    audits = chosen_audits(recipe.audits, recipe.audit_settings)
    sources = named_sources(recipe)
    named = {name: {SETTING: source} for name, source in sources.items()}
    told = {audit.name: {**vars(audit), **named.get(audit.name, {})} for audit in audits}
    return {**to_tree(recipe), "audit_settings": json.loads(json.dumps(told))}


def report_of(recipe: Recipe, findings: Iterable[RunFindings], command: str) -> Report:
    """All findings of a comparison as one report; names no folder of this machine."""
    settings = full_settings(recipe)
    settings["root"] = None if recipe.root is None else "given"
    for name in ("dataset", "model"):
        settings[name] = _without_folder(settings[name])
    return report_with(settings, findings, command)


def report_with(settings: Mapping[str, Any], findings: Iterable[RunFindings], command: str) -> Report:
    """Findings, with the settings that made them, as one report of today."""
    kept = list(findings)
    return Report(
        recipe=settings,
        versions={"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        records=tuple(r for f in kept for r in f.records),
        exhibits=tuple(e for f in kept for e in f.exhibits),
        runs=tuple(f.note for f in kept if f.note is not None),
    )


def _resolved(
    method: "str | Method | Objective | Regime", known: Mapping[str, Method]
) -> tuple[Method, Regime | None]:
    if isinstance(method, str):
        check_choice("method", method, known)
        return known[method], None
    if isinstance(method, Method):
        return method, None
    if isinstance(method, Objective):
        return known["plain"], EndToEnd(method)
    if isinstance(method, Regime):
        return known["foca" if not method.trains_head else "plain"], method
    raise TypeError(
        f"a method must be a name, a Method, an Objective or a Regime; got {type(method).__name__}. Wrap a "
        "loss function of your own in a subclass of clearance.objectives.Objective."
    )


def _with_callers_regimes(
    settings: Mapping[str, Any], resolved: Mapping[str, tuple[Method, Regime | None]]
) -> dict[str, Any]:
    """The settings with what the caller's own regimes and losses say in place of numbers they do not use."""
    methods = dict(settings["methods"])
    for name, (method, regime) in resolved.items():
        if regime is not None:
            used = ("lr", "weight_decay", "clip_norm", "max_norm", "hidden", "dropout", "norm")
            methods[name] = {"regime": describe(regime), **{key: to_tree(method)[key] for key in used}}
    return {**settings, "methods": methods}


def _without_folder(name: str) -> str:
    kind, _, path = name.partition(":")
    return f"{kind}:{Path(path).name}" if path else name
