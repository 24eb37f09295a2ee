"""Whether networks are as sure as they are right, as trained and after one temperature."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.compact import Compact, by_method, number
from clearance.report.findings import Findings
from clearance.report.firsts import drawn_firsts, firsts
from clearance.report.reliability import reliability
from clearance.report.section import Row, Section
from clearance.report.settings import setting

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
