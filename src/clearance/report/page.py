"""The page: one HTML file that can be mailed, made from a report and from nothing else."""

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from clearance._files import check_report_folder, write_bytes
from clearance.records.encoding import encode
from clearance.records.store import Report
from clearance.report.audits import all_findings, headline, page_of, sections, terms, with_summaries
from clearance.report.audits.co_adaptation import main_curve, other_curves
from clearance.report.audits.training import training_pictures
from clearance.report.drawing import draw
from clearance.report.findings import Findings, datasets
from clearance.report.first_screen import first_screen
from clearance.report.ledger import ledger
from clearance.report.left_out import fewer_images, left_out, times
from clearance.report.names import class_noun, described, method_name, model_name
from clearance.report.numbers import data, half_width, interval
from clearance.report.over_seeds import is_summary
from clearance.report.pictures import Picture, clouds, picture
from clearance.report.svg import glyph, marker
from clearance.report.sweep import at_shown, sweep_section
from clearance.report.tables import cost, cost_title, overview, pixels_error, stand_ins
from clearance.vocabulary import Exhibit

FILE, SHARED = "index.html", "share.html"
NO_PAGE = "<p>This page could not be made. The numbers are in report.json; clearance report makes the page again.</p>\n"
IMAGES = "images"  # the kind of exhibit that shows images of the data


def render_page(report: Report) -> str:
    """The page as text: of a comparison, or of one network where the report has a single method.

    >>> render_page(Report({}, {}, "clearance compare", "2026-01-01T00:00:00+00:00")).count("<script")
    1
    """
    return _page(with_summaries(report))


def _page(report: Report) -> str:
    here = at_shown(report)
    worlds = [
        _world(Findings(here, dataset), Findings(report, dataset))
        for dataset in datasets(report) or ("no dataset",)
    ]
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            report=report,
            worlds=worlds,
            names=[method_name(method) for method in report.methods],
            recipe=json.dumps(encode(report.recipe), indent=1, ensure_ascii=False),
            glossary=terms((row.audit, row.name) for row in report.summary),
        )
    )


def write_page(report: Report, directory: str | os.PathLike[str]) -> Path:
    """Write ``index.html``, ``report.json`` and ``exhibits/`` into `directory`; return the page's path.

    The summary and every exhibit over seeds are computed afresh from the measurements first. Beside the page of one
    network is ``share.html``, the same without images of the data and names of their files. Where a page cannot be
    made, the rest is written before the error is raised, so that nothing measured is lost.

    Raises:
        ValueError: A file of one of these names is not of Clearance; nothing is written.
    """
    check_report_folder("directory", Path(directory))
    try:
        summed = with_summaries(report)
        pages = {FILE: _page(summed)}
        if len(report.methods) == 1:
            pages[SHARED] = render_page(without_images(report))
    except Exception:
        report.save(directory, dict.fromkeys((FILE, SHARED), NO_PAGE))
        raise
    if SHARED not in pages:
        Path(directory, SHARED).unlink(missing_ok=True)  # of an earlier report
    return summed.save(directory, pages).with_name(FILE)


def write_html(path: str | os.PathLike[str], text: str) -> Path:
    """Write one page as a file, and return its path; missing folders are made."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, text.encode())
    return target


def framed(page: str, title: str) -> str:
    """A page in its own frame, so that its style and a notebook's do not mix."""
    style = "width:100%;height:660px;border:1px solid #8886;border-radius:6px"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" title="{title}"></iframe>'


def without_images(report: Report) -> Report:
    """`report` without the exhibits that show images of the data or name their files."""
    kept = tuple(record for record in report.exhibits if not _shows(record.exhibit))
    left = len(report.exhibits) - len(kept)
    return (
        replace(
            report, exhibits=kept, recipe={**report.recipe, "pictures_left_out": left, "names_left_out": True}
        )
        if left
        else report
    )


def _shows(exhibit: Exhibit) -> bool:
    """Whether it shows images of the data, or names their files."""
    named = any(column in ("file", "image") or column.endswith(" image") for column in exhibit.columns)
    return exhibit.kind == IMAGES or (named and exhibit.kind != "heatmap")  # whose columns are classes


def _world(findings: Findings, everything: Findings) -> dict[str, Any]:
    """Everything that the templates show about one dataset; `findings` are those at one value of a sweep."""
    swept = sweep_section(everything)
    found = all_findings(findings)
    return {
        "findings": findings,
        "noun": class_noun(findings.dataset),
        "first_screen": first_screen(findings),
        "described": described(findings.methods),
        "found": found,
        "headline": headline(f"Audit of {model_name(findings.methods[0])}", found) if found else "",
        "left_out": left_out(findings.report.recipe),
        "fewer_images": fewer_images(findings.report.recipe),
        "times": times(findings.report.recipe),
        "lines": overview(findings),
        "stand_ins": stand_ins(findings, findings.methods[0]) if findings.methods else [],
        "pixels": pixels_error(findings),
        "curve": main_curve(findings),
        "features": clouds(findings, "class_scatter", "features", "Features"),
        "other_curves": other_curves(findings),
        "training": training_pictures(findings),
        "sections": [*([] if swept is None else [swept]), *sections(findings)],
        "further": further_pictures(findings),
        "ledger": ledger(everything),
    }


@cache
def templates() -> jinja2.Environment:
    """The templates of every page."""
    files = resources.files("clearance.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: files.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,  # names come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data"] = data
    environment.filters["slug"] = _slug
    environment.filters["contents"] = contents
    script = files.joinpath("page.js").read_text(encoding="utf-8")
    environment.globals.update(
        style=files.joinpath("page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        interval=interval,
        half_width=half_width,
        cost=cost,
        cost_title=cost_title,
        glyph=lambda index: glyph(index, marker(index)),
    )
    return environment


_PART = re.compile(r'<details class="part[^"]*" id="([^"]*)"><summary><h3 class=part>(.*?)</h3>', re.DOTALL)


def contents(below: Markup) -> list[tuple[str, Markup]]:
    """Place and title of each folded part of a page.

    >>> contents(Markup('<details class="part" id="all-numbers"><summary><h3 class=part>All numbers</h3></summary>'))
    [('all-numbers', Markup('All numbers'))]
    """
    return [(place, Markup(title)) for place, title in _PART.findall(below)]  # noqa: S704 - a page's own markup


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", escape(title).striptags().lower()).strip("-")


def further_pictures(findings: Findings) -> list[Picture]:
    """Every other exhibit, drawn by its kind; of several seeds, the first."""
    seen: set[Any] = set()
    pictures = []
    for record in findings.exhibits():
        shown = record.exhibit
        what = (record.method, shown.audit, shown.name, tuple(sorted(shown.context.items())))
        if (
            shown.name in page_of(shown.audit).drawn
            or is_summary(record)
            or what in seen
            or not any(map(len, shown.columns.values()))
        ):
            continue
        if shown.kind in ("per_image", "table"):  # numbers and texts, nothing to look at
            continue
        seen.add(what)
        seed = "" if record.seed is None else f", seed {record.seed}"
        caption = f"{method_name(record.method)}{seed}: {shown.caption}"
        pictures.append(picture(findings, draw(shown), caption, [record]))
    return pictures
