"""The page on whether confidence matches accuracy, as trained and after calibration."""

from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import (
    CLOSE,
    FAR,
    AuditPage,
    Finding,
    Row,
    Section,
    Severity,
    Term,
    points_with_ends,
    section,
)
from clearance.report.drawing import Columns, page_figure
from clearance.report.findings import Findings
from clearance.report.names import setting
from clearance.report.numbers import data, rest
from clearance.report.pictures import drawn_firsts, firsts
from clearance.report.svg import GRID, INK, MUTED, marker, series
from clearance.report.tables import Compact, by_method, mean

AUDIT = "calibration"
STATES = ("as trained", "calibrated")
WHAT = (
    "A network gives a probability (its confidence) with each prediction. Of the predictions at a confidence of "
    "nine tenths, nine in ten should be right. The first table scores all probabilities, as trained and after "
    "calibration with one temperature fitted on other images; for both, lower is better. Differences that "
    "calibration removes are not a merit of the training."
)
NOT_MEANT = (
    "Both scores mix accuracy with calibration: a network that is right more often does better in both. The "
    "calibration error in the second table depends on how images are sorted into bins and uses only the largest "
    "probability; it is shown, but not used for any verdict. All numbers hold only for images like these."
)
PICTURE = "Solid: as trained; hollow and dashed: calibrated. Larger marks stand for more images."


def calibration_section(findings: Findings) -> Section | None:
    """Two tables, and a picture for each method."""
    proper = _table(
        findings,
        "Scores of all probabilities",
        (("negative log-likelihood", "nll"), ("Brier score", "brier")),
    )
    if proper is None:
        return None
    names = (("calibration error", "ece"), ("less chance", "ece_debiased"))
    binned = _table(findings, "For information: the largest probability, in bins", names, temperature=True)
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
    parts = [proper, binned, Row(drawn, "features", "Accuracy against confidence")]
    return section("Does its confidence match its accuracy?", [WHAT, NOT_MEANT], parts)


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
    """The unit is in the glossary, not in every cell."""
    return mean(row, "" if row.unit in ("nats", "factor") else row.unit)


SIZE = (3.4, 3.3)
LARGEST, SMALLEST = 90.0, 8.0  # of a marker, in points squared: by how many images it stands for


def reliability(before: Columns, after: Columns | None, index: int) -> Figure:
    """Accuracy over confidence; a marker is as large as its bin is full. Hollow and dashed: after the temperature.

    Columns are ``confidence``, ``accuracy`` and ``images``, as trained and with calibrated probabilities; the method's
    `index` gives colour and marker.

    >>> columns = {"confidence": [0.6, 0.9], "accuracy": [0.5, 0.9], "images": [10, 90]}
    >>> len(reliability(columns, columns, 0).axes[0].collections)
    2
    """
    figure, axes = page_figure(SIZE)
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    _bins(axes, before, index, hollow=False)
    if after is not None:
        _bins(axes, after, index, hollow=True)
    axes.set_xlabel("confidence, %", color=INK)
    axes.set_ylabel("right, %", color=INK)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    axes.grid(color=GRID, linewidth=0.6)
    return figure


def _bins(axes: Axes, columns: Columns, index: int, *, hollow: bool) -> None:
    x, y = ([100 * value for value in columns[name]] for name in ("confidence", "accuracy"))
    most = max(columns["images"], default=1)
    sizes = [max(SMALLEST, LARGEST * count / most) for count in columns["images"]]
    style: dict[str, Any] = {"dashes": (5, 3)} if hollow else {}
    axes.plot(x, y, color=series(index), linewidth=1.0, zorder=2, **style)
    face = "none" if hollow else series(index)
    axes.scatter(x, y, s=sizes, marker=marker(index), facecolors=face, edgecolors=series(index), zorder=3)


TITLE = "Confidence"


def calibration_findings(findings: Findings) -> list[Finding]:
    """Overconfident, underconfident, or no difference that the images can show; and the temperature to copy."""
    row = findings.row("mean", AUDIT, "overconfidence", temperature="as trained")
    if row is None or row.low is None or row.high is None:
        return []
    least = max(row.low, -row.high)  # the end of the interval that is nearer to 0, if 0 is not within
    if least <= 0:
        said = Markup("Confidence matches accuracy within what these images can show: the difference is {}.")
        return [Finding(TITLE, "fine", said.format(points_with_ends(row)))]
    severity: Severity = "problem" if least > FAR else "warning" if least > CLOSE else "fine"
    kind = (
        f"{'slightly ' if severity == 'fine' else ''}{'overconfident' if row.value > 0 else 'underconfident'}"
    )
    said = Markup("{}: {}confidence minus accuracy is {}.").format(
        kind.capitalize(), _both(findings), points_with_ends(row)
    )
    if severity == "fine":
        return [Finding(TITLE, severity, said)]
    broken = findings.row("mean", "accuracy", "not_finite", split="test")
    if broken is not None and least - broken.value <= CLOSE:  # these alone may be the cause
        said += Markup(" Images whose logits are not finite count as sure and wrong.")
        return [Finding(TITLE, severity, said, "Mend first the logits that are not finite.")]
    temperature = _temperature(findings, row)
    if temperature is None:
        said += Markup(" Dividing its logits by one temperature does not fix that.")
        return [Finding(TITLE, severity, said, "Do not read its probabilities as the chance of being right.")]
    divisor = data(temperature[0].value, "ratio", temperature[0].within)
    todo = Markup("Divide logits by {}: this changes no prediction and leaves {}.").format(
        divisor, points_with_ends(temperature[1])
    )
    number = divisor.striptags().replace(",", "").replace("\N{MINUS SIGN}", "-")
    code = f"logits = logits / {number}"
    return [Finding(TITLE, severity, said, todo, code)]


def _both(findings: Findings) -> Markup:
    """Mean confidence and accuracy, where both were measured."""
    confidence = findings.row("mean", AUDIT, "confidence", temperature="as trained")
    error = findings.own_error(findings.methods[0])
    if confidence is None or error is None:
        return Markup("")
    return Markup("mean confidence {}, accuracy {}; ").format(
        data(confidence.value, "fraction"), rest(error.value)
    )


def _temperature(findings: Findings, before: SummaryRow) -> tuple[SummaryRow, SummaryRow] | None:
    """The temperature, and the difference that it leaves; None where it was not measured, or leaves more than half."""
    temperature = findings.row("mean", AUDIT, "temperature")
    after = findings.row("mean", AUDIT, "overconfidence", temperature="calibrated")
    if temperature is None or after is None or abs(after.value) > abs(before.value) / 2:
        return None
    return temperature, after


PAGE = AuditPage(
    title="Calibration",
    reading=(
        "Lower is better; a gap between the numbers as trained and calibrated can be fixed with one number, the "
        "temperature."
    ),
    place=30,
    glossary={
        "nll": Term(
            "Negative log-likelihood",
            "Minus the logarithm of the probability of the right class, averaged over test images.",
            "Lower is better, and lowest for true probabilities. One confident mistake among many images can "
            "dominate it.",
            "It rewards accuracy as well as calibration: compare it with the error.",
        ),
        "brier": Term(
            "Brier score",
            "The squared differences between the probabilities of all classes and what they should have been, 1 for "
            "the right class and 0 for the others, summed over classes and averaged over images.",
            "Lower is better, and lowest for true probabilities; from 0 to 2. Mistakes count, but none without limit.",
            "Like the negative log-likelihood it mixes accuracy with calibration.",
        ),
        "confidence": Term(
            "Mean confidence",
            "The largest probability of each prediction, averaged over test images.",
            "Close to the accuracy is right.",
            "It says nothing about single images.",
        ),
        "overconfidence": Term(
            "Overconfidence",
            "The mean confidence of its predictions minus its accuracy.",
            "Close to 0 is right. Above 0 it is overconfident; below 0 underconfident.",
            "0 may hide that it is overconfident on some images and underconfident on others: see the picture.",
            difference=True,
        ),
        "ece": Term(
            "Expected calibration error (ECE)",
            "Images are sorted into bins by the largest probability. In each bin: how far the share of right images is "
            "from the mean of these probabilities; averaged over images.",
            "0 means that confidence matches accuracy on average in each bin. With few images it is above 0 by chance.",
            "It depends on the bins, uses only the largest probability, and is 0 for a network that always gives "
            "the overall share of a class. It is shown, but not used for any verdict.",
        ),
        "ece_debiased": Term(
            "Calibration error less chance",
            "The calibration error, less what chance adds to it in bins of so few images.",
            "Close to 0 is right; it may fall a little below.",
            "Near 0 part of what chance adds is left. It also depends on the bins.",
        ),
        "temperature": Term(
            "Calibration temperature",
            "What all logits are divided by so that confidence matches accuracy; fitted on other images than those "
            "it is applied to.",
            "1 means that nothing had to change; above 1 the network was overconfident, below 1 underconfident.",
            "It changes no prediction.",
        ),
    },
    section=calibration_section,
    drawn=("reliability",),
    findings=calibration_findings,
)
