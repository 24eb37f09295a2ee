"""The page on whether networks are as sure as they are right, as trained and after one temperature."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import CLOSE, Action, AuditPage, Row, Section, Term, points_with_ends
from clearance.report.drawing import empty
from clearance.report.findings import Findings
from clearance.report.names import setting
from clearance.report.numbers import data
from clearance.report.pictures import drawn_firsts, firsts
from clearance.report.svg import GRID, INK, MUTED, marker, series
from clearance.report.tables import Compact, by_method, number

AUDIT = "calibration"
STATES = ("as trained", "calibrated")
WHAT = (
    "A network says how sure it is of each answer. Of answers that it is sure of to nine parts in ten, nine of ten "
    "should be right. The first table judges all of its probabilities, as trained and after they were evened out by a "
    "single number that was found on other images; for both, lower is better. Differences that this one number takes "
    "away are no merit of the training."
)
NOT_MEANT = (
    "Both mix being right with knowing when: a network that is right more often does better in both. The calibration "
    "error in the second table depends on how images are sorted into bins, and sees the largest probability alone; it "
    "is shown, and nothing is judged by it. All of it holds for images like these, and for no others."
)
PICTURE = "Solid: as trained; hollow and dashed: evened out. Larger marks stand for more images."


def calibration_section(findings: Findings) -> Section | None:
    """Two tables, and a picture for each method.

    >>> from clearance.records import Report
    >>> calibration_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    proper = _table(
        findings, "Judged by all probabilities", (("surprise", "nll"), ("squared error", "brier"))
    )
    if proper is None:
        return None
    names = (("calibration error", "ece"), ("less chance", "ece_debiased"))
    binned = _table(findings, "Shown only: the largest probability, in bins", names, temperature=True)
    after = firsts(findings, AUDIT, "reliability", temperature=STATES[1])
    drawn = drawn_firsts(
        findings,
        firsts(findings, AUDIT, "reliability", temperature=STATES[0]),
        lambda record, index: reliability(
            record.exhibit.columns,
            after[record.method].exhibit.columns if record.method in after else None,
            index,
        ),
        PICTURE,
    )
    parts: list[Row | Compact] = [proper, *([binned] if binned else [])]
    if drawn:
        parts.append(Row(drawn, "features", "How many are right, over how sure the network is"))
    return Section("Is the network as sure as it is right?", [WHAT, NOT_MEANT], parts)


def _table(
    findings: Findings, title: str, names: tuple[tuple[str, str], ...], *, temperature: bool = False
) -> Compact | None:
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for words, name in names:
        for state in STATES:
            rows = findings.rows("mean", AUDIT, name, temperature=state)
            head = Markup("{}, {}").format(words, setting("temperature", state))
            columns[head] = {row.method: _cell(row) for row in rows}
    if temperature:
        rows = findings.rows("mean", AUDIT, "temperature")
        columns["temperature"] = {row.method: _cell(row) for row in rows}
    return by_method(findings, title, columns)


def _cell(row: SummaryRow) -> Markup:
    """The unit stands in the glossary, not in every cell."""
    unit = "" if row.unit in ("nats", "factor") else row.unit
    return number(row.value, unit, row.low, row.high)


Columns = Mapping[str, Sequence[Any]]
SIZE = (3.4, 3.3)
LARGEST, SMALLEST = 90.0, 8.0  # of a marker, in points squared: by how many images it stands for


def reliability(before: Columns, after: Columns | None, index: int) -> Figure:
    """Accuracy over confidence; a marker is as large as its bin is full. Hollow and dashed: after the temperature.

    Args:
        before: ``confidence``, ``accuracy``, ``images``, as trained.
        after: The same with calibrated probabilities.
        index: Of the method, which gives colour and marker.

    >>> columns = {"confidence": [0.6, 0.9], "accuracy": [0.5, 0.9], "images": [10, 90]}
    >>> len(reliability(columns, columns, 0).axes[0].collections)
    2
    """
    figure, axes = empty(SIZE)
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    _bins(axes, before, index, hollow=False)
    if after is not None:
        _bins(axes, after, index, hollow=True)
    axes.set_xlabel("how sure, %", color=INK)
    axes.set_ylabel("right, %", color=INK)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def _bins(axes: Axes, columns: Columns, index: int, *, hollow: bool) -> None:
    x, y = ([100 * value for value in columns[name]] for name in ("confidence", "accuracy"))
    most = max(columns["images"], default=1)
    sizes = [max(SMALLEST, LARGEST * count / most) for count in columns["images"]]
    style: dict[str, Any] = {"dashes": (5, 3)} if hollow else {}
    axes.plot(x, y, color=series(index), linewidth=1.0, zorder=2, **style)
    face = "none" if hollow else series(index)
    axes.scatter(x, y, s=sizes, marker=marker(index), facecolors=face, edgecolors=series(index), zorder=3)


TITLE = "Sureness"


def sureness_action(findings: Findings) -> Action | None:
    """Too sure, not sure enough, or no difference that the images would tell.

    >>> from clearance.records import Report
    >>> sureness_action(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    row = findings.row("mean", AUDIT, "overconfidence", temperature="as trained")
    if row is None or row.low is None or row.high is None:
        return None
    if row.low > 0:
        said = Markup("It is too sure: it claims to be right on {} more of the images than it is.{}").format(
            points_with_ends(row), _mended(findings, row)
        )
        todo = "Do not read its probabilities as chances of being right."
        return Action(TITLE, said, todo, alarm=row.low > CLOSE)
    if row.high < 0:
        said = Markup(
            "It is less sure than it could be: what it claims to be right on, less what it is, comes to {} of the "
            "images.{}"
        ).format(points_with_ends(row), _mended(findings, row))
        return Action(TITLE, said)
    said = Markup("It is as sure as it is right, as far as these images tell: the difference is {}.")
    return Action(TITLE, said.format(points_with_ends(row)))


def _mended(findings: Findings, before: SummaryRow) -> Markup:
    """What one temperature does about it, where that was measured."""
    temperature = findings.row("mean", AUDIT, "temperature")
    after = findings.row("mean", AUDIT, "overconfidence", temperature="calibrated")
    if temperature is None or after is None or after.low is None or after.high is None:
        return Markup("")
    if abs(after.value) >= abs(before.value):
        return Markup(" Dividing its outputs by one number does not mend that.")
    return Markup(
        " Dividing its outputs by {} before they become probabilities changes no answer and leaves {}."
    ).format(data(temperature.value, "ratio", temperature.within), points_with_ends(after))


PAGE = AuditPage(
    title="As sure as it is right",
    reading="Lower is better; a gap between the numbers as trained and evened out is mended by one number, the "
    "temperature.",
    place=200,
    glossary={
        "nll": Term(
            "Surprise at the right answers",
            "Minus the logarithm of the probability that the network gave to the right class, averaged over test "
            "images.",
            "Lower is better, and lowest for true probabilities. One sure mistake among many images can be most of it.",
            "It rewards being right as well as being honestly unsure: read the error beside it.",
        ),
        "brier": Term(
            "Squared error of the probabilities",
            "The squared differences between the probabilities of all classes and what they should have been, 1 for "
            "the right class and 0 for the others, summed over classes and averaged over images.",
            "Lower is better, and lowest for true probabilities; from 0 to 2. Mistakes count, but none without limit.",
            "Like surprise it mixes being right with knowing when.",
        ),
        "overconfidence": Term(
            "Surer than right",
            "How sure the network says it is of its answers, on average, less the share of them that are right.",
            "Close to 0 is right. Above 0 it claims to be right more often than it is; below 0 less often.",
            "0 may hide that it is too sure of some images and not sure enough of others: look at the picture.",
        ),
        "ece": Term(
            "Calibration error",
            "Images are sorted into bins by the largest probability. In each bin: how far the share of right images is "
            "from the mean of these probabilities; averaged over images.",
            "0 means as sure as right, on average over each bin. With few images it is above 0 by chance alone.",
            "It depends on the bins, sees the largest probability only, and is 0 for a network that always answers "
            "with the overall share of a class. It is shown, and nothing is judged by it.",
        ),
        "ece_debiased": Term(
            "Calibration error less chance",
            "The calibration error, less what chance adds to it in bins of so few images.",
            "Close to 0 is right; it may fall a little below.",
            "Near 0 part of what chance adds is left. It too depends on the bins.",
        ),
        "temperature": Term(
            "Temperature that evens out sureness",
            "What all answers are divided by before they become probabilities, so that these are as sure as they are "
            "right; found on other images than those that it is tried on.",
            "1 means that nothing was to be done; above 1 that the network was too sure, below that it was not sure "
            "enough.",
            "It changes no answer.",
        ),
    },
    section=calibration_section,
    drawn=("reliability",),
    action=sureness_action,
)
