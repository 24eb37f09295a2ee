"""One quantity in a report: a number for each seed, and for each image where the report keeps those."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.gate.intervals import STATISTICS, Statistic
from clearance.gate.tolerance import Quantity
from clearance.records.record import settings
from clearance.records.store import Report

PER_IMAGE = "per_image"


class UnclearError(ValueError):
    """A tolerance that does not say which number it means."""


@dataclass(frozen=True)
class Reading:
    """A quantity of one method.

    Args:
        seeds: The number by seed.
        images: A number for each image, by seed, NaN where an image has none; empty where none are kept.
        which: What identifies these images and how they were measured, by seed.
        statistic: How the number follows from those of images.
        unit: Of the number.
    """

    seeds: Mapping[int, float]
    images: Mapping[int, NDArray]
    which: Mapping[int, str]
    statistic: Statistic = "mean"
    unit: str = ""


def reading(report: Report, quantity: Quantity, method: str | None = None) -> Reading:
    """The quantity in a report, of its one method or the one named.

    Raises:
        UnclearError: A ValueError, if several methods or numbers would do.
    """
    method = _method(report, method)
    found = [
        (record.seed, record.measurement)
        for record in report.records
        if record.method == method
        and quantity.fits(record.measurement.audit, record.measurement.name, record.measurement.context)
    ]
    _check_one(quantity, [dict(settings(one.context)) for _, one in found])
    kept = [
        (record.seed, record.exhibit)
        for record in report.exhibits
        if record.method == method
        and record.seed is not None
        and record.exhibit.kind == PER_IMAGE
        and quantity.fits(record.exhibit.audit, record.exhibit.name, record.exhibit.context)
    ]
    sign, shift = (-1.0, 1.0) if quantity.mirrored else (1.0, 0.0)
    statistics = {str(shown.context.get("statistic", "mean")) for _, shown in kept} & STATISTICS.keys()
    return Reading(
        {seed: shift + sign * one.value for seed, one in found},
        {seed: shift + sign * np.array(shown.columns["value"], dtype=float) for seed, shown in kept},
        {seed: str(sorted(shown.context.items())) for seed, shown in kept},
        "median" if statistics == {"median"} else "mean",
        found[0][1].unit if found else "",
    )


def _method(report: Report, method: str | None) -> str:
    known = report.methods
    if method is None and len(known) > 1:
        raise UnclearError(f"the report must be of one method; got {', '.join(known)}. Name one: --method.")
    if method is not None and method not in known:
        raise UnclearError(f"`method` must be one of {', '.join(map(repr, known))}; got {method!r}.")
    return known[0] if known and method is None else str(method)


def _check_one(quantity: Quantity, contexts: Sequence[Mapping[str, Any]]) -> None:
    different = []
    for context in contexts:
        if context not in different:
            different.append(context)
    if len(different) > 1:
        keys = sorted(
            {key for each in different for key in each if len({str(c.get(key)) for c in different}) > 1}
        )
        choices = "; ".join(f"{key} is {', '.join(_values(different, key))}" for key in keys)
        raise UnclearError(
            f"{quantity.audit}.{quantity.name} is {len(different)} numbers ({choices}); say which, as "
            f"{quantity.audit}.{quantity.name}[{keys[0]}={_values(different, keys[0])[0]},...]."
        )


def _values(contexts: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(str(each.get(key)) for each in contexts))[:8]
