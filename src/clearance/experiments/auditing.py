"""Audits by name, and all of them on one classifier."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance._checks import check_choice
from clearance.audits import Audit, Findings, Subject
from clearance.experiments.audit_datasets import with_datasets
from clearance.experiments.audit_sources import SETTING, with_sources
from clearance.experiments.build import RunData
from clearance.experiments.catalogue import AUDITS, resolve
from clearance.experiments.feature_cache import FeatureCache, KeptSubject
from clearance.experiments.plan import RunPlan
from clearance.models import Classifier

MODEL_AUDITS = (
    "accuracy",
    "preprocessing",
    "co_adaptation",
    "refit",
    "class_pairs",
    "flip_size",
    "calibration",
    "class_scatter",
)
"""What is asked of one model by itself: what its page says first, and what that rests on."""


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


def audit_model(
    model: Classifier,
    data: RunData,
    audits: Sequence[Audit],
    seed: int,
    on_audit: Callable[[str], object] | None = None,
    cache: FeatureCache | None = None,
) -> list[Findings]:
    """Every audit on one classifier; features are extracted once, or taken from `cache`."""
    images = (data.train, data.test, seed, data.new_classes)
    subject = Subject(model, *images) if cache is None else KeptSubject(model, *images, cache=cache)
    found = []
    for audit in audits:
        if on_audit is not None:
            on_audit(audit.name)
        found.append(audit.examine(subject))
    return found
