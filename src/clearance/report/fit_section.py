"""Whether the features of each class lie as a Gaussian would."""

from collections.abc import Sequence

from markupsafe import Markup

from clearance.report.compact import Compact, by_method, mean
from clearance.report.findings import Findings
from clearance.report.firsts import drawn_firsts, firsts
from clearance.report.reliability import quantiles
from clearance.report.section import Row, Section

AUDIT = "goodness_of_fit"
ALL = "all"
WHAT = (
    "Some methods want the features of each class to be one Gaussian cloud. If they are, squared distances to the "
    "class's average, in units of its spread, follow a known curve (chi-square). Averages and spreads are those of "
    "training images, the distances those of test images."
)
NOT_MEANT = (
    "On training images the first number is one by construction, whatever the features look like. No network passes "
    "such a test with enough images; compare methods, and compare coverage with 95 %."
)
COLUMNS = (
    ("squared distance, against expected", "distance_ratio"),
    ("gap to the Gaussian", "ks_distance"),
    ("within the region of 95 %", "coverage"),
)
STATISTICS = {
    "refitted": "Averages and spreads of training features, in every network alike",
    "own": "As the network's own last layer has them",
}


def fit_section(findings: Findings) -> Section | None:
    """A table for each kind of statistics, and a picture for each method.

    >>> from clearance.records import Report
    >>> fit_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    parts: list[Row | Compact] = []
    for statistics, words in STATISTICS.items():
        columns: dict[str | Markup, dict[str, Markup]] = {}
        for title, name in COLUMNS:
            rows = findings.rows("mean", AUDIT, name, statistics=statistics, **{"class": ALL})
            columns[title] = {row.method: mean(row) for row in rows}
        table = by_method(findings, words, columns)
        if table is not None:
            parts.append(table)
    if not parts:
        return None
    return Section("Are the classes Gaussian clouds?", [WHAT, NOT_MEANT], [*parts, *_pictures(findings)])


def _pictures(findings: Findings) -> Sequence[Row]:
    return [
        Row(
            drawn_firsts(
                findings,
                records,
                lambda record, index: quantiles(record.exhibit.columns, index),
                "Dashed: a Gaussian.",
            ),
            "features",
            f"Squared distances, from the smallest to the largest, over those of a Gaussian: {words.lower()}",
            folded=statistics != "refitted",
        )
        for statistics, words in STATISTICS.items()
        if (records := firsts(findings, AUDIT, "quantiles", statistics=statistics))
    ]
