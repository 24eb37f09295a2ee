"""The sentences of one network's first screen as plain text, for the end of a command in a terminal."""

from dataclasses import dataclass

from clearance.records.store import Report
from clearance.report.actions import actions
from clearance.report.findings import Findings, datasets
from clearance.report.verdict import plain_text


@dataclass(frozen=True, slots=True)
class ActionLine:
    """One sentence: its title, the text with what to do about it, and whether it is an alarm."""

    title: str
    text: str
    alarm: bool


def action_lines(report: Report, dataset: str | None = None) -> list[ActionLine]:
    """What the page of one network says first; nothing for a report about several.

    Args:
        report: The report.
        dataset: Which of its datasets; the first by default.

    >>> action_lines(Report({}, {}, "", ""))
    []
    """
    findings = Findings(report, dataset or next(iter(datasets(report)), "no dataset"))
    return [
        ActionLine(one.title, plain_text(one.said) + (f" {one.todo}" if one.todo else ""), one.alarm)
        for one in actions(findings)
    ]
