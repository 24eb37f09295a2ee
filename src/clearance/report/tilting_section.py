"""Why a boundary leans, on paper: a pair's path over the penalty, and what scaling makes of a loss."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from markupsafe import Markup
from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.report import tilted_pair, tilting
from clearance.report.compact import Compact, by_method, number
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.section import Row, Section

AUDIT = "tilting"
WHAT = (
    "A hinge machine for each of 81 penalties on the size of its weights. A weak penalty leans the boundary until "
    "every training sample is right; a strong one turns it towards the line through the class averages, where it is as "
    "far from all samples as it can be. Large weights make a loss see only how deep the errors lie; small ones make it "
    "a straight line, which counts every sample alike."
)
COLUMNS = {
    "angle": "angle, rad",
    "adversarial_distance": "adversarial distance",
    "error_distance": "error distance",
}
LOSSES: tuple[tuple[Callable[..., Figure], tuple[str, ...], str], ...] = (
    (tilting.losses, ("losses",), "Three losses of a score."),
    (
        partial(tilting.limits, large=True),
        ("limits", "distances"),
        "With large weights both losses (solid) tend to ‖w‖ max(−y d, 0) (dashed): only the depth of errors counts.",
    ),
    (
        partial(tilting.limits, large=False),
        ("limits", "distances"),
        "With small weights both are nearly straight lines (dashed): every sample counts alike.",
    ),
    (
        tilting.log_likelihood,
        ("log_likelihood", "likelihoods"),
        "The loss of a classifier that gives likelihoods, over those of the example samples (grey).",
    ),
)
PAIR: tuple[tuple[Callable[..., Figure], str, str], ...] = (
    (
        tilted_pair.planes,
        "plane",
        "Training samples in the plane of the class means (+) and the weights, which shows every distance to the "
        "boundary as it is.",
    ),
    (
        tilted_pair.distances,
        "margins",
        "How far training samples are from the boundary, and the hinge loss of the first class as the size of the "
        "weights scales it.",
    ),
    (
        tilted_pair.pictures,
        "pictures",
        "Class means; the weights, grey where they are 0; the sample of each class nearest to its mean, and its mirror "
        "image, which the machine is as sure of the other way round. Mirror images are not clipped.",
    ),
)


def tilting_section(findings: Findings) -> Section | None:
    """A table of three penalties, the path, and the figures on losses.

    >>> from clearance.records import Report
    >>> tilting_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    every = list(findings.exhibits(AUDIT))
    shown = {record.exhibit.name: record for record in every}
    if "path" not in shown:
        return None
    columns: dict[str | Markup, dict[str, Markup]] = {
        title: _column(findings, name) for name, title in COLUMNS.items()
    }
    table = by_method(findings, "Three of the machines", columns, "Distances count both classes alike.")
    path = shown["path"]
    drawn = picture(findings, tilting.path(path.exhibit.columns), path.exhibit.caption, [path])
    parts: list[Row | Compact] = [*([table] if table is not None else []), Row([drawn])]
    for place, one in enumerate(_pair(findings, every)):
        parts.append(Row([one], title="The pair itself" if place == 0 else ""))
    parts.append(
        Row(_losses(findings, shown), title="Losses, and what the size of the weights makes of them")
    )
    return Section("Why the boundary leans", [WHAT], parts)


def _pair(findings: Findings, every: Sequence[ExhibitRecord]) -> list[Picture]:
    """What the interactive page draws of the pair, at the machines of the table."""
    found = []
    for make, name, caption in PAIR:
        records = [record for record in every if record.exhibit.name == name]
        if records:
            drawn = make({record.method: record.exhibit for record in records})
            found.append(picture(findings, drawn, caption, records))
    return found


def _column(findings: Findings, name: str) -> dict[str, Markup]:
    return {
        row.method: number(row.value, "", row.low, row.high) for row in findings.rows("mean", AUDIT, name)
    }


def _losses(findings: Findings, shown: Mapping[str, ExhibitRecord]) -> list[Picture]:
    """Every figure whose exhibits are there."""
    pictures = []
    for make, names, caption in LOSSES:
        if all(name in shown for name in names):
            records = [shown[name] for name in names]
            drawn = make(*(record.exhibit.columns for record in records))
            pictures.append(picture(findings, drawn, caption, records))
    return pictures
