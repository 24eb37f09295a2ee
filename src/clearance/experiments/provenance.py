"""The origin of a report's numbers: settings, versions, date; without folder, user or machine names."""

import dataclasses
import getpass
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clearance._describe import code_of, describe
from clearance.audits import Audit
from clearance.data import ImageSet
from clearance.data.slices import Slices
from clearance.experiments.audit_plan import SOURCE, AuditPlan
from clearance.experiments.recipe import Recipe, to_tree
from clearance.experiments.run import RunFindings
from clearance.records import Report
from clearance.records.shelf import ShelvedRecords

LIBRARIES = ("torch-clearance", "torch", "numpy", "scipy", "scikit-learn")


def versions_here() -> dict[str, str]:
    """The versions of Python and of the libraries that numbers depend on.

    >>> list(versions_here())
    ['python', 'torch-clearance', 'torch', 'numpy', 'scipy', 'scikit-learn']
    """
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}


def full_settings(recipe: Recipe, audits: AuditPlan | None = None) -> dict[str, Any]:
    """The recipe as plain values, with all settings of its audits, or of `audits`, including defaults."""
    plan = AuditPlan.of_recipe(recipe) if audits is None else audits
    named = {name: {SOURCE: source} for name, source in plan.sources.items()}
    settings = {audit.name: {**described(audit), **named.get(audit.name, {})} for audit in plan.audits}
    return {**to_tree(recipe), "audit_settings": settings}


def described(audit: Audit) -> dict[str, Any]:
    """The settings of an audit as JSON values, and the code of one that is not Clearance's, as hashes.

    Of images the name and digest are kept, of slices the names of their columns, of a folder or file its own name.
    """
    names = (
        [one.name for one in dataclasses.fields(audit)] if dataclasses.is_dataclass(audit) else vars(audit)
    )
    return {**code_of(audit), **{name: _described(getattr(audit, name)) for name in names}}


def _described(value: Any) -> Any:
    if isinstance(value, ImageSet):
        return {"name": value.name, "images": len(value), "digest": value.digest()[:16]}
    if isinstance(value, Slices):
        return {"name": value.name, "columns": list(value.columns)}
    if isinstance(value, str) and value.startswith(("folder:", "npz:")):
        return without_folder(value)
    return describe(value)


def report_of(
    recipe: Recipe, findings: Iterable[RunFindings], command: str, audits: AuditPlan | None = None
) -> Report:
    """All findings of a comparison as one report, without folders of this machine."""
    settings = full_settings(recipe, audits)
    settings["root"] = None if recipe.root is None else "given"
    for name in ("dataset", "model"):
        settings[name] = without_folder(settings[name])
    kept = list(findings)
    if left_out := [
        {**left.setting(), "run": f"{found.note.method}, seed {found.note.seed}"}
        for found in kept
        if found.note is not None
        for left in found.left_out
    ]:
        settings["audits_left_out"] = left_out
        settings["audits_left_out_command"] = (
            command  # finished runs are read back, failed audits tried again
        )
    shown = {one.measurement.audit for found in kept for one in found.records}
    shown |= {one.exhibit.audit for found in kept for one in found.exhibits}
    shown |= {left.audit for found in kept for left in found.left_out}
    asked = (AuditPlan.of_recipe(recipe) if audits is None else audits).names
    if shown and (without := [name for name in asked if name not in shown]):
        settings["audits_without_numbers"] = without
    return report_with(settings, kept, command)


def report_with(settings: Mapping[str, Any], findings: Iterable[RunFindings], command: str) -> Report:
    """Findings and the settings that made them as one report, dated now."""
    kept = list(findings)
    return Report(
        recipe=settings,
        versions=versions_here(),
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        records=ShelvedRecords.joined(f.records for f in kept),
        exhibits=tuple(e for f in kept for e in f.exhibits),
        runs=tuple(f.note for f in kept if f.note is not None),
    )


def without_folder(name: str) -> str:
    """npz:/home/ann/my.npz as npz:my.npz.

    >>> without_folder("npz:/home/ann/my.npz"), without_folder("digits")
    ('npz:my.npz', 'digits')
    """
    kind, _, path = name.partition(":")
    return f"{kind}:{Path(path).name}" if path else name


INSTEAD = "images"


def without_owner(name: str) -> str:
    """The name of a folder or set, or `INSTEAD` if it is the name of the user, the home folder or the machine.

    >>> without_owner("val"), without_owner(getpass.getuser())
    ('val', 'images')
    """
    return INSTEAD if name.casefold() in _owner() else name


def shown_path(path: str) -> str:
    """A path below the working folder as it is; of another one the last name. `without_owner` hides the user's name.

    >>> shown_path("runs/one"), shown_path("/home/ann/pets"), shown_path("../pets")
    ('runs/one', 'pets', 'pets')
    """
    typed = Path(path)
    here = typed.relative_to(Path.cwd()) if typed.is_relative_to(Path.cwd()) else typed
    if here.is_absolute() or ".." in here.parts or path.startswith("~"):
        return without_owner(typed.name)
    return "/".join(without_owner(part) for part in here.parts) or "."


def _owner() -> set[str]:
    found = {platform.node(), platform.node().partition(".")[0], Path.home().name}
    with suppress(OSError, KeyError, ImportError):  # a user without a name
        found.add(getpass.getuser())
    return {name.casefold() for name in found if name}
