"""Settings of audits on the command line, as a recipe file has them under ``audit_settings``."""

import dataclasses
from fractions import Fraction
from typing import Any

FORM = "AUDIT.SETTING=VALUE, semicolons between them and commas within, such as robustness.inf=2/255,8/255"


def audit_settings(text: str | None) -> dict[str, dict[str, Any]]:
    """By audit and setting; where an audit takes several values there is a list, also of one and of ``none``.

    Args:
        text: For example ``"robustness.inf=2/255,8/255; minimal_perturbation.steps=20"``.

    Raises:
        ValueError: If a part has another form, there is no such audit or setting, or one is given twice.

    >>> audit_settings("robustness.inf=0.25; robustness.images=500; likelihood.other=photographs")
    {'robustness': {'inf': [0.25], 'images': 500}, 'likelihood': {'other': 'photographs'}}
    >>> audit_settings("robustness.two=none")
    {'robustness': {'two': []}}
    >>> audit_settings("boundary_distance.norms=inf,2")
    {'boundary_distance': {'norms': ['inf', '2']}}
    """
    found: dict[str, dict[str, Any]] = {}
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        place, equals, value = (word.strip() for word in part.partition("="))
        audit, dot, setting = place.partition(".")
        if not (equals and dot and value):
            raise ValueError(f"--settings takes {FORM}; got {part.strip()!r}.")
        if setting in found.setdefault(audit, {}):
            raise ValueError(f"--settings must have each setting once; got {place} twice.")
        kind = _type_of(audit, setting)
        values = [] if "tuple[" in kind and value.lower() == "none" else value.split(",")
        values = [word.strip() if "str" in kind else _value(word.strip()) for word in values]
        found[audit][setting] = values if len(values) > 1 or "tuple[" in kind else values[0]
    return found


def _type_of(audit: str, setting: str) -> str:
    """What a setting may be, as its audit declares it: words stay words there, and one value is a list of one."""
    from clearance._checks import check_choice
    from clearance.experiments.catalogue import AUDITS, resolve

    fields = {field.name: field for field in dataclasses.fields(resolve("audit", audit, AUDITS))}
    check_choice(f"setting of audit {audit!r}", setting, list(fields))
    return str(fields[setting].type)


def _value(word: str) -> Any:
    """A whole number, a number, a fraction of two whole numbers, true, false, none, or the word itself."""
    named: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if word.lower() in named:
        return named[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    try:
        return float(Fraction(word))
    except (ValueError, ZeroDivisionError):
        return word
