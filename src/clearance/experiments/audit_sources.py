"""Networks that an audit makes images on: named in a recipe as a method, read from that method's own run."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance._checks import check_choice
from clearance.audits import Audit
from clearance.experiments.recipe import Recipe
from clearance.experiments.saved import load_model
from clearance.runs import read_result
from clearance.vocabulary import Outcome, Status

SETTING = "source"
FIRST_SOURCE = 1000  # the seed of the source for seed 0: above every seed that a comparison reaches


def named_sources(recipe: Recipe) -> dict[str, str]:
    """The method that each audit of a recipe takes its source from, by audit; nothing for one without a source.

    ``audit_settings: {robustness: {source: plain}}`` asks for one more network trained as ``plain`` is, under a seed
    of its own, one for each seed of the comparison.

    Raises:
        ValueError: If a source is no method of the recipe.

    >>> named_sources(Recipe(audits=("robustness",)))
    {}
    """
    found = {}
    for audit in recipe.audits:
        name = recipe.audit_settings.get(audit, {}).get(SETTING)
        if name is not None:
            check_choice(f"{SETTING} of audit {audit!r}, a method of the recipe", name, recipe.methods)
            found[audit] = name
    return found


def with_sources(audits: Sequence[Audit], folders: Mapping[str, Path | None]) -> list[Audit]:
    """The audits, each with the network of its source in place of the name.

    Args:
        audits: As the recipe has them, without sources.
        folders: The directory of the source's run by audit; None where no runs are kept.

    Raises:
        ValueError: If a source's run is not there, or did not finish well: images made on it would say nothing.

    >>> with_sources([], {})
    []
    """
    ready = []
    for audit in audits:
        if audit.name in folders:
            given: Any = {SETTING: _network(audit.name, folders[audit.name])}
            audit = dataclasses.replace(audit, **given)  # type: ignore[type-var]  # every audit is a dataclass
        ready.append(audit)
    return ready


def _network(audit: str, folder: Path | None) -> Any:
    if folder is None or not folder.exists():
        where = "no directory of runs" if folder is None else f"none in {folder}"
        raise ValueError(
            f"`{SETTING}` of audit {audit!r} must be a trained network of the same directory of runs; got {where}. "
            "Train it with `clearance compare`, which does so by itself, or leave the setting out."
        )
    _, result = read_result(folder)
    ended = Status(Outcome(result["outcome"]), result["step"], result["reason"])
    if not ended.good:
        raise ValueError(
            f"`{SETTING}` of audit {audit!r} must be a network whose training finished; got one in {folder} that "
            f"{ended}. Name another method, or leave the setting out."
        )
    return load_model(folder)
