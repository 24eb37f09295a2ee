"""The sentence about how sure a network says it is, against how often it is right."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.action import CLOSE, Action, points_with_ends
from clearance.report.findings import Findings
from clearance.report.numbers import data

AUDIT = "calibration"
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
