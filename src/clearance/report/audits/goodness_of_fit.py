"""Whether the features of each class lie as a Gaussian would."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure

from clearance.report.audit_page import AuditPage, Finding, Row, Section, Term, section
from clearance.report.audits.calibration import SIZE
from clearance.report.drawing import Columns, page_figure
from clearance.report.findings import Findings
from clearance.report.names import method_name
from clearance.report.numbers import data
from clearance.report.pictures import drawn_firsts, firsts
from clearance.report.svg import GRID, INK, MUTED, marker, series
from clearance.report.tables import Compact, by_method, means
from clearance.vocabulary import FAR_MEANS

AUDIT, TITLE = "goodness_of_fit", "Learned means"
ALL = "all"
WHAT = (
    "Some methods want the features of each class to be one Gaussian cloud. If they are, squared distances to the "
    "class's average, in units of its spread, follow a known curve (chi-square). Averages and spreads are those of "
    "training images, the distances those of test images."
)
NOT_MEANT = (
    "On training images the first number is one by construction, whatever the features look like. With enough "
    "images every network fails such a test; compare methods, and compare coverage with 95 %."
)
COLUMNS = (
    ("squared distance, relative to expected", "distance_ratio"),
    ("gap to the Gaussian", "ks_distance"),
    ("within the region of 95 %", "coverage"),
    ("part that is the means' offset", "mean_offset"),
)
STATISTICS = {
    "refitted": "Averages and spreads of training features, in every network alike",
    "own": "As the network's own last layer has them",
}


def offset_findings(findings: Findings) -> list[Finding]:
    """Whether the means that a mixture has learned are those of its classes."""
    row = findings.row("mean", AUDIT, "mean_offset")
    if row is None:
        return []
    if row.value > FAR_MEANS:
        said = Markup(
            "The means that the last layer has learned are away from those of the classes: that is {} of the squared "
            "distance of training features to them. Its densities say little about an image."
        ).format(data(row.value, row.unit))
        todo = (
            "Raise the means' learning rate, take weight decay off them, train longer, or call `fit_statistics` of the "
            "head."
        )
        return [Finding(TITLE, "warning", said, todo)]
    said = Markup(
        "The means that the last layer has learned are those of the classes: {} of the squared distance."
    )
    return [Finding(TITLE, "fine", said.format(data(row.value, row.unit)))]


def fit_section(findings: Findings) -> Section | None:
    """A table for each kind of statistics, and a picture for each method."""
    parts: list[Row | Compact | None] = []
    for statistics, words in STATISTICS.items():
        wanted = {"statistics": statistics, "class": ALL}
        columns = {title: means(findings, AUDIT, name, **wanted) for title, name in COLUMNS}
        parts.append(by_method(findings, words, columns))
    text = [WHAT, NOT_MEANT, *_far(findings)]
    return section("Are the classes Gaussian clouds?", text, [*parts, *_pictures(findings)])


def _far(findings: Findings) -> list[Markup]:
    """A sentence on the methods whose learned means are away from their classes; none without one."""
    rows = findings.rows("mean", AUDIT, "mean_offset")
    far = [method_name(row.method) for row in rows if row.value > FAR_MEANS]
    words = Markup(
        "The learned means of {} are away from those of their classes: their densities say little."
    )
    return [words.format(Markup(", ").join(far))] if far else []


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


def quantiles(columns: Columns, index: int) -> Figure:
    """Quantiles of squared distances over those of chi-square; on the dashed line both are the same.

    >>> len(quantiles({"chi-square": [0.5, 1.0], "features": [0.4, 1.5]}, 0).axes[0].lines)
    2
    """
    figure, axes = page_figure(SIZE)
    x, y = (list(columns[name]) for name in ("chi-square", "features"))
    axes.plot([min(x), max(x)], [min(x), max(x)], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.plot(x, y, color=series(index), linewidth=0, marker=marker(index), markersize=2.6)
    axes.set_xlabel("expected of a Gaussian", color=INK)
    axes.set_ylabel("found", color=INK)
    axes.grid(color=GRID, linewidth=0.6)
    return figure


PAGE = AuditPage(
    title="Whether classes are Gaussian clouds",
    reading="A ratio near one says that features of a class lie as a Gaussian cloud would; scores that assume "
    "such clouds rest on it.",
    place=210,
    glossary={
        "distance_ratio": Term(
            "Squared distance to its class, relative to the expected one",
            "How far test images lie from their class's average, squared and in units of the spread of training "
            "images, over what it would be if the features were Gaussian.",
            "1 is as expected. Above 1, test images lie farther out than training images did.",
            "1 does not make it a Gaussian. One test image that activates a nearly constant unit can dominate it.",
        ),
        "ks_distance": Term(
            "Gap to the Gaussian's distribution",
            "The largest difference between the share of images within some distance and the share that a Gaussian "
            "would have there, over all distances.",
            "Lower is better; 0 would be a Gaussian, as far as distances can show.",
            "No real network has 0; there is no threshold.",
        ),
        "coverage": Term(
            "Images within the region of 95 %",
            "The share of test images inside the region that holds 95 % of the Gaussian.",
            "Close to 95 % is right. Far below, features have long tails; above, they sit tighter than a Gaussian.",
            "It looks at one region; the gap above looks at all of them.",
        ),
        "mean_offset": Term(
            "Part of the distance that is the learned means' own offset",
            "Of the squared distance of training images to the average that a mixture has learned for their class: the "
            "part that comes from that average being elsewhere than the class's own.",
            "Lower is better; 0 means that learned averages are those of the classes.",
            "Above one tenth, the mixture's densities are poor at telling unusual images: its averages were not "
            "trained long enough, or with too small a step.",
        ),
    },
    section=fit_section,
    drawn=("quantiles",),
    findings=offset_findings,
)
