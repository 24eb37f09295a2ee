"""Which parameters of each method decay, by how much, and in which of the two ways."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clearance.report.compact import Compact, by_method
from clearance.report.findings import Findings
from clearance.report.numbers import exact
from clearance.report.over_seeds import is_summary

AUDIT, DECAY = "weight_scale", "decay"
ROLES = {"weight": "weights", "bias or gain": "biases and gains"}
FOOT = (
    "By so much times its value. Coupled: decay is part of the gradient, and goes through momentum. Decoupled: the "
    "value shrinks by itself. What the optimiser of the network does not move, such as last layers that are trained on "
    "their own, counts as not decaying."
)


def decay_table(findings: Findings) -> Compact | None:
    """A line for each method, from its first run; None where no run says.

    >>> from clearance.records import Report
    >>> decay_table(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns: dict[str | Markup, dict[str, Markup]] = {title: {} for title in ROLES.values()}
    for record in findings.exhibits(AUDIT, DECAY):
        if is_summary(record):
            continue
        for role, title in ROLES.items():
            columns[title].setdefault(record.method, _told(record.exhibit.columns, role))
    return by_method(findings, "Which parameters decay", columns, FOOT)


def _told(columns: Mapping[str, Sequence[Any]], role: str) -> Markup:
    """Of all parameters of a role: how many numbers decay by how much, and how.

    >>> columns = {"role": ["weight", "weight"], "numbers": [90, 10], "weight_decay": [0.1, 0.0],
    ...            "how": ["coupled", "none"]}
    >>> print(_told(columns, "weight").striptags())
    0.1, coupled (90 %); not at all (10 %)
    """
    counts: dict[tuple[str, float], int] = {}
    rows = zip(*(columns[name] for name in ("role", "how", "weight_decay", "numbers")), strict=True)
    for mine, how, factor, numbers in rows:
        if mine == role:
            counts[how, factor] = counts.get((how, factor), 0) + numbers
    parts = []
    for (how, factor), numbers in counts.items():
        what = Markup("not at all") if how == "none" else Markup("{}, {}").format(exact(factor), how)
        share = 100 * numbers / sum(counts.values())
        parts.append(what if len(counts) == 1 else Markup("{} ({:.0f} %)").format(what, share))
    return Markup("; ").join(parts) if parts else Markup("none there")
