"""A report as the section ``Evaluation`` of a model card, in Markdown, as on the Hugging Face Hub."""

import re
from collections.abc import Sequence

from markupsafe import escape

from clearance.records.markdown import markdown_table, markdown_text
from clearance.records.store import Report
from clearance.report.audit_page import Finding
from clearance.report.audits import all_findings
from clearance.report.findings import Findings, datasets
from clearance.report.names import model_name
from clearance.report.sweep import at_shown
from clearance.report.terminal import beside, comparison_table


def model_card(report: Report) -> str:
    """The findings about each dataset, or the table of methods, under the headings of the Hub's template.

    >>> print(model_card(Report({}, {}, "", "")))
    ## Evaluation
    <BLANKLINE>
    ### Results
    <BLANKLINE>
    Nothing was measured.
    <BLANKLINE>
    """
    parts = ["## Evaluation"]
    if how := _how(report):
        parts += ["### Testing Data, Factors & Metrics", how]
    parts.append("### Results")
    views = [Findings(at_shown(report), dataset) for dataset in datasets(report)]
    audited = [(view, found) for view in views if (found := all_findings(view))]
    for view, found in audited:
        parts += _findings(view, found)
    if not audited:
        parts += _comparison(report)
    return "\n\n".join(parts) + "\n"


def _how(report: Report) -> str:
    version = report.versions.get("torch-clearance", "")
    made = f"by Clearance {version}".rstrip() + (f" on {report.created[:10]}" if report.created else "")
    if not report.records:
        return ""
    return f"Measured {_shown(made)} on images that were held out. Ranges in brackets are 95 % intervals."


def _findings(view: Findings, found: Sequence[Finding]) -> list[str]:
    rows = [("", "finding", "what to do")]
    for one in found:
        if not one.lead:
            code = [_code(line) for line in one.code.splitlines()]
            said = f"**{_shown(one.title)}**: {_shown(one.said.striptags())}"
            rows.append((one.severity, said, " ".join([_shown(escape(one.todo).striptags()), *code]).strip()))
    leads = [_shown((one.said + escape(f" {one.todo}")).striptags()) for one in found if one.lead]
    title = f"#### {_shown(model_name(view.methods[0]))} on {_shown(view.dataset)}"
    return [title, *leads, *([markdown_table(rows)] if len(rows) > 1 else []), *map(_shown, beside(view))]


def _comparison(report: Report) -> list[str]:
    table = comparison_table(report)
    rows = [tuple(map(_shown, row)) for row in (table.columns, *table.rows)]
    foot = [_shown(line) for line in table.foot.splitlines() if line]
    return [_shown(table.title), *([markdown_table(rows)] if table.rows else []), *foot]


def _shown(text: str) -> str:
    """Text that Markdown shows unchanged, with the emphasis that the Hub knows beside asterisks."""
    return re.sub(r"([_~#])", r"\\\1", markdown_text(text))


def _code(line: str) -> str:
    """A line to paste, between more backticks than it has."""
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"
