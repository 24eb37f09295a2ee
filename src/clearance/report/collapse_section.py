"""How far the classes have become points in a regular pattern: the signs of neural collapse."""

from clearance.report.compact import by_method, mean
from clearance.report.findings import Findings
from clearance.report.section import Section

AUDIT = "neural_collapse"
WHAT = (
    "Networks that are trained long after they make no more mistakes tend to draw each class together to a "
    "point, and these points to the corners of a regular figure, as far apart as they can be. Each number but "
    "the last is zero where that is complete."
)
COLUMNS = (
    ("spread within classes", "nc1"),
    ("averages unequally far out", "nc2_equinorm"),
    ("averages at unequal angles", "nc2_equiangle"),
    ("off the widest angles", "nc2_simplex"),
    ("last layer off the averages", "nc3"),
    ("nearest average says otherwise", "nc4"),
    ("directions filled", "effective_rank"),
)


def collapse_section(findings: Findings) -> Section | None:
    """A table for test images; what is known of training images alone is in the full table too.

    >>> from clearance.records import Report
    >>> collapse_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns = {}
    for title, name in COLUMNS:
        split = "train" if name == "nc3" else "test"
        rows = findings.rows("mean", AUDIT, name, split=split)
        columns[title] = {row.method: mean(row) for row in rows}
    table = by_method(
        findings,
        "On test images (the last layer: on training images)",
        columns,
        "Where a network's last layers are several, the one compared with the averages is a single fresh layer.",
    )
    return None if table is None else Section("Are the classes points?", [WHAT], [table])
