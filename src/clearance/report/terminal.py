"""The first screen as plain text for a terminal: the table, or the findings about one network."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from clearance._text import visible
from clearance.records.derived import SummaryRow
from clearance.records.store import Report
from clearance.report.audit_page import Finding
from clearance.report.audits import all_findings, headline
from clearance.report.findings import Findings, datasets
from clearance.report.first_screen import failures, first_screen
from clearance.report.names import model_name
from clearance.report.numbers import half_width, printed
from clearance.report.sweep import at_shown, at_value
from clearance.report.tables import Overview, overview

WIDTH = 96  # characters: what a terminal holds
INDENT = 13  # of a finding: the longest name of a severity, and two spaces


@dataclass(frozen=True, slots=True)
class Table:
    """Texts only: a title (the verdict), the columns' names, a row per method, and a line below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: str

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """The table in columns of spaces, and sentences in lines of at most `width` characters."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[index]) for line in lines) for index in range(len(self.columns))]
        padded = [
            "  ".join(
                cell.ljust(width) if index == 0 else cell.rjust(width) for index, (cell, width) in pairs
            )
            for pairs in (list(enumerate(zip(line, widths, strict=True))) for line in lines)
        ]
        words = [textwrap.fill(part, width) for part in (self.title, *self.foot.splitlines())]
        return "\n".join(text for text in (words[0], *padded, *words[1:]) if text)


def comparison_table(report: Report) -> Table:
    """What the first screen says of the first dataset, as text.

    >>> print(comparison_table(Report({}, {}, "", "")))
    Nothing was measured.
    method
    """
    findings = Findings(at_shown(report), next(iter(datasets(report)), "no dataset"))
    lines = overview(findings)
    columns = [
        ("wrong, own layers", [_cell(line.own) for line in lines]),
        (f"wrong, from {findings.few.striptags()}", [_cell(line.few) for line in lines]),
        ("time", [_cell(line.time) for line in lines]),
        ("memory", [_cell(line.memory) for line in lines]),
    ]
    shown = [(name, cells) for name, cells in columns if any(cell != "–" for cell in cells)]
    words = first_screen(findings)
    return Table(
        title=words.sentence.striptags(),
        columns=("method", *(name for name, _ in shown)),
        rows=tuple((_name(line), *(cells[at] for _, cells in shown)) for at, line in enumerate(lines)),
        foot="\n".join(text for text in (words.also.striptags(), *beside(findings)) if text),
    )


def beside(findings: Findings) -> list[str]:
    """What is said below: the value of a sweep that all of it is about, and runs that went wrong.

    >>> beside(Findings(Report({"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}}, {}, "", ""), "digits"))
    ['All of this is at lr 0.2, one of 2 values.']
    """
    said = (at_value(findings.report), *failures(findings))
    return [text.striptags() for text in said if text]


def _name(line: Overview) -> str:
    return f"{line.name} ({line.endings})" if line.endings else line.name


def _cell(row: SummaryRow | None) -> str:
    return "–" if row is None else printed(row.value, row.unit, half_width(row.low, row.high))


def first_text(report: Report, width: int = WIDTH) -> str:
    """The first screen in plain text: the findings about one network, or the table of methods.

    `width` is characters in a line; what can be pasted is never broken.

    >>> print(first_text(Report({}, {}, "", "")))
    Nothing was measured.
    method
    """
    findings = Findings(at_shown(report), next(iter(datasets(report)), "no dataset"))
    found = all_findings(findings)
    if not found:
        return comparison_table(report).text(width)
    start = f"Audit of {visible(model_name(findings.methods[0]))} on {visible(findings.dataset)}"
    below = [textwrap.fill(line, width) for line in beside(findings)]
    return "\n".join([findings_text(start, found, width), *below])


def findings_text(start: str, found: Sequence[Finding], width: int = WIDTH) -> str:
    """Findings below their headline.

    The headline begins with `start`; `width` is characters in a line, and what can be pasted is never broken.

    >>> from markupsafe import Markup
    >>> print(findings_text("Audit of net", [Finding("Leaks", "fine", Markup("None was found."))]))
    Audit of net: 1 fine
    fine         Leaks: None was found.
    """
    lines = [textwrap.fill(headline(start, found), width)]
    for one in found:
        said = one.said.striptags() + (f" {escape(one.todo).striptags()}" if one.todo else "")
        if one.lead:
            lines += [textwrap.fill(said, width), ""]
            continue
        start = one.severity.ljust(INDENT)
        lines.append(
            textwrap.fill(
                f"{start}{one.title}: {said}",
                max(width, 2 * INDENT),
                subsequent_indent=" " * INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        lines += [f"{' ' * INDENT}    {visible(line)}" for line in one.code.splitlines()]
    return "\n".join(lines)
