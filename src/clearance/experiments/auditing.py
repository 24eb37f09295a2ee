"""Audits by name, and all of them on one classifier."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance._checks import check_choice
from clearance.audits import Audit, Findings, Subject
from clearance.experiments.audit_datasets import OTHER, with_datasets
from clearance.experiments.audit_sources import SETTING, with_sources
from clearance.experiments.build import RunData
from clearance.experiments.catalogue import AUDITS, named_audits, resolve
from clearance.experiments.feature_cache import FeatureCache, KeptSubject
from clearance.experiments.plan import RunPlan
from clearance.experiments.recipe import Recipe
from clearance.models import Classifier

MODEL_AUDITS = (
    "accuracy",
    "preprocessing",
    "co_adaptation",
    "linear_probe",
    "confusions",
    "minimal_perturbation",
    "out_of_distribution",
    "calibration",
    "class_scatter",
)
"""What is asked of one model by itself, the most useful first: what its page says first, and what that rests on."""

NEEDS_UNKNOWN = "out_of_distribution"


def asked_audits(names: Sequence[str] | None, *, unknown: bool) -> tuple[str, ...]:
    """The audits that were asked for by name; ``("all",)`` is every one, None those of `MODEL_AUDITS`.

    Args:
        names: What was asked for.
        unknown: Whether there are images of unknown things, which one audit needs.

    Raises:
        ValueError: If that audit is asked for by its name, and there are none.

    >>> ["out_of_distribution" in asked_audits(None, unknown=given) for given in (False, True)]
    [False, True]
    """
    found = MODEL_AUDITS if names is None else named_audits(names)
    if unknown:
        return found
    if names is not None and NEEDS_UNKNOWN in names:
        raise ValueError(
            f"audit {NEEDS_UNKNOWN!r} needs images of things that the model never saw; give them with --unknown "
            "(in Python: unknown=...), or leave the audit out."
        )
    return tuple(name for name in found if name != NEEDS_UNKNOWN)


def asked_of_run(recipe: Recipe, names: Sequence[str], *, unknown: bool) -> tuple[str, ...]:
    """The audits asked for of a saved run; by default its own, and out_of_distribution where there are such images.

    Args:
        recipe: Of the run; it may name images of unknown things itself.
        names: What was asked for; empty is the default.
        unknown: Whether images of unknown things were given.

    Raises:
        ValueError: As in `asked_audits`.

    >>> asked_of_run(Recipe(audits=("accuracy",)), (), unknown=True)
    ('accuracy', 'out_of_distribution')
    """
    if not names:
        return tuple(dict.fromkeys((*recipe.audits, *((NEEDS_UNKNOWN,) if unknown else ()))))
    return asked_audits(names, unknown=unknown or OTHER in recipe.audit_settings.get(NEEDS_UNKNOWN, {}))


def check_settings(settings: Mapping[str, object], names: Sequence[str]) -> None:
    """Settings that no audit would read.

    Args:
        settings: By audit.
        names: Of the audits that are asked for.

    Raises:
        ValueError: If there are settings of another audit.

    >>> check_settings({"robustness": {"inf": [0.1]}}, ["accuracy", "robustness"])
    """
    for audit in settings:
        check_choice("audit", audit, AUDITS)
        if audit not in names:
            raise ValueError(
                f"settings are for audits that are asked for; got some of {audit!r}, and these are asked for: "
                f"{', '.join(names)}. Add it: --audits {','.join((*names, audit))}"
            )


def with_audits(recipe: Recipe, names: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """The recipe with these audits, and these settings of theirs on top of its own.

    Args:
        recipe: Of a run.
        names: Of the audits.
        settings: By audit and setting.

    Raises:
        ValueError: If there are settings of another audit.

    >>> recipe = Recipe(audit_settings={"robustness": {"images": 100}})
    >>> with_audits(recipe, ["robustness"], {"robustness": {"steps": 5}}).audit_settings
    {'robustness': {'images': 100, 'steps': 5}}
    """
    check_settings(settings, names)
    told = dict(recipe.audit_settings)
    told |= {name: {**told.get(name, {}), **given} for name, given in settings.items()}
    return dataclasses.replace(recipe, audits=tuple(names), audit_settings=told)


def chosen_audits(
    names: Sequence[str], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Audit]:
    """The audits of these names, with their defaults where `settings` says nothing else; sources are left out.

    Raises:
        ValueError: If a name is unknown, or an audit has no such setting.
    """
    chosen = []
    for name in names:
        given = {
            key: tuple(v) if isinstance(v, list) else v for key, v in (settings or {}).get(name, {}).items()
        }
        kind = resolve("audit", name, AUDITS)
        for key in given:
            check_choice(f"setting of audit {name!r}", key, [f.name for f in dataclasses.fields(kind)])
        given.pop(SETTING, None)  # a name; which network that is depends on the run
        chosen.append(kind(**given))
    return chosen


def ready_audits(plan: RunPlan, directory: Path | None) -> list[Audit]:
    """The audits of a plan, each with the network that it makes images on and the other dataset that the recipe names.

    Args:
        plan: The run that is audited.
        directory: Where runs are kept: that of the source must be among them.

    Raises:
        ValueError: If a name or setting is unknown, or a source is not there.
        FileNotFoundError: If the files of another dataset are not there.
    """
    folders = {
        audit: None if directory is None else directory / run.folder for audit, run in plan.sources.items()
    }
    chosen = chosen_audits(plan.recipe.audits, plan.recipe.audit_settings)
    return with_datasets(with_sources(chosen, folders), plan.recipe.root, plan.recipe.size)


def subject_of(model: Classifier, data: RunData, seed: int, cache: FeatureCache | None = None) -> Subject:
    """The classifier with its images; its features are taken from `cache` where there is one."""
    images = (data.train, data.test, seed, data.new_classes)
    return Subject(model, *images) if cache is None else KeptSubject(model, *images, cache=cache)


def audit_model(
    model: Classifier,
    data: RunData,
    audits: Sequence[Audit],
    seed: int,
    on_audit: Callable[[str], object] | None = None,
    cache: FeatureCache | None = None,
) -> list[Findings]:
    """Every audit on one classifier; features are extracted once, or taken from `cache`."""
    subject = subject_of(model, data, seed, cache)
    found = []
    for audit in audits:
        if on_audit is not None:
            on_audit(audit.name)
        found.append(audit.examine(subject))
    return found
