"""The page: one HTML file that can be mailed, made from a report and from nothing else."""

import json
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from clearance._files import write_bytes
from clearance.records.encoding import encode
from clearance.records.store import Report
from clearance.report import gallery
from clearance.report.actions import actions
from clearance.report.compact import cost, cost_title
from clearance.report.findings import Findings, datasets
from clearance.report.glossary import entries
from clearance.report.ledger import ledger
from clearance.report.left_out import left_out, looked_at
from clearance.report.names import class_noun, described, method_name
from clearance.report.numbers import data, half_width, interval
from clearance.report.overview import overview, pixels_error, stand_ins
from clearance.report.sections import sections
from clearance.report.summaries import with_summaries
from clearance.report.svg import glyph, marker
from clearance.report.sweep import at_shown
from clearance.report.sweep_section import sweep_section
from clearance.report.verdict import verdict

FILE = "index.html"


def render_page(report: Report) -> str:
    """The page as text: of a comparison, or of one network where the report has a single method.

    >>> "<script" in render_page(Report({}, {}, "clearance compare", "2026-01-01T00:00:00+00:00"))
    False
    """
    report = with_summaries(report)
    here = at_shown(report)
    worlds = [
        _world(Findings(here, dataset), Findings(report, dataset))
        for dataset in datasets(report) or ("no dataset",)
    ]
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            report=report,
            worlds=worlds,
            names=[method_name(method) for method in report.methods],
            recipe=json.dumps(encode(report.recipe), indent=1, ensure_ascii=False),
            glossary=entries((row.audit, row.name) for row in report.summary),
            style=resources.files("clearance.report").joinpath("page.css").read_text(encoding="utf-8"),
        )
    )


def write_page(report: Report, directory: str | os.PathLike[str]) -> Path:
    """Write ``index.html``, ``report.json`` and ``exhibits/`` into `directory`; return the page's path.

    The summary and every exhibit over seeds are computed afresh from the measurements first.
    """
    folder = Path(directory)
    with_summaries(report).save(folder)
    write_bytes(folder / FILE, render_page(report).encode())
    return folder / FILE


def _world(findings: Findings, everything: Findings) -> dict[str, Any]:
    """Everything that the templates show about one dataset; `findings` are those at one value of a sweep."""
    swept = sweep_section(everything)
    return {
        "findings": findings,
        "noun": class_noun(findings.dataset),
        "verdict": verdict(findings),
        "described": described(findings.methods),
        "actions": actions(findings),
        "left_out": left_out(findings.report.recipe),
        "looked_at": looked_at(findings.report.recipe),
        "lines": overview(findings),
        "stand_ins": stand_ins(findings, findings.methods[0]) if findings.methods else [],
        "pixels": pixels_error(findings),
        "curve": gallery.main_curve(findings),
        "features": gallery.feature_pictures(findings),
        "other_curves": gallery.other_curves(findings),
        "training": gallery.training_pictures(findings),
        "sections": [*([] if swept is None else [swept]), *sections(findings)],
        "further": gallery.further_pictures(findings),
        "ledger": ledger(everything),
    }


@cache
def _templates() -> jinja2.Environment:
    files = resources.files("clearance.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: files.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,  # names come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data"] = data
    environment.globals.update(
        interval=interval,
        half_width=half_width,
        cost=cost,
        cost_title=cost_title,
        glyph=lambda index: glyph(index, marker(index)),
    )
    return environment
