"""The pictures of a page, each with its caption and the names of the exhibits that its points come from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report import figures, kinds
from clearance.report.bands import bands
from clearance.report.cloud import features
from clearance.report.curve import curve_of
from clearance.report.findings import Findings
from clearance.report.names import head_name, method_name
from clearance.report.over_seeds import is_summary
from clearance.report.paper import cited
from clearance.report.svg import as_svg

CURVE_SIZE, SMALL_SIZE = (5.9, 4.0), (4.8, 4.0)  # with the names of the lines below
WIDE_SIZE = (5.9, 3.3)
# What has a place of its own on the page.
DRAWN = frozenset(
    {
        ("class_scatter", "features"),
        ("training", "curve"),
        ("training", "weak_heads"),
        ("training", "epochs"),
        ("robustness", "under_attack"),
        ("robustness", "alarms"),
        ("boundary_distance", "distances"),
        ("sure_mistakes", "contact_sheet"),
        ("weight_scale", "decay"),
        ("calibration", "reliability"),
        ("goodness_of_fit", "quantiles"),
        ("likelihood", "likelihood"),
        ("likelihood", "class mean"),
        ("likelihood", "probability"),
        ("likelihood", "sheet"),
        ("likelihood", "scores"),
        ("likelihood", "thresholds"),
        ("geodesic", "path_error"),
        ("geodesic", "segments"),
        ("low_dimension", "spectrum"),
        ("low_dimension", "lda"),
        ("low_dimension", "plane"),
        ("tilting", "path"),
        ("tilting", "plane"),
        ("tilting", "margins"),
        ("tilting", "pictures"),
        ("tilting", "losses"),
        ("tilting", "limits"),
        ("tilting", "distances"),
        ("tilting", "log_likelihood"),
        ("tilting", "likelihoods"),
    }
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, what it shows, the files that hold its points, and what to compare it with in the paper."""

    svg: Markup
    caption: str
    files: tuple[str, ...]
    cite: str = ""


def main_curve(findings: Findings) -> Picture | None:
    """Error over images used, with the last layers that the first screen is about."""
    return None if findings.head is None else _curve(findings, findings.head, CURVE_SIZE)


def other_curves(findings: Findings) -> list[Picture]:
    """The same for every other stand-in for the last layers."""
    heads = [head for head in findings.heads if head != findings.head]
    return [picture for head in heads if (picture := _curve(findings, head, SMALL_SIZE))]


def feature_pictures(findings: Findings) -> list[Picture]:
    """One picture per method of the features of test images."""
    return clouds(findings, "class_scatter", "features", "Features")


def clouds(findings: Findings, audit: str, name: str, what: str) -> list[Picture]:
    """One picture per method of a scatter of labelled points, a colour per class."""
    shown = one_seed(findings, audit, name)
    classes = _classes(shown.values())
    return [
        per_method(findings, record, features(record.exhibit.columns, classes), f"{what} of")
        for record in shown.values()
    ]


def one_seed(findings: Findings, audit: str, name: str) -> dict[str, ExhibitRecord]:
    """Each method's scatter of that name, of the first seed that most methods have."""
    records = [one for one in findings.exhibits(audit, name) if one.exhibit.kind == "scatter"]
    seeds = [record.seed for record in records]
    seed = max(dict.fromkeys(seeds), key=seeds.count, default=None)
    shown = {record.method: record for record in reversed(records) if record.seed == seed}
    return {method: shown[method] for method in findings.methods if method in shown}


def per_method(findings: Findings, record: ExhibitRecord, drawn: Figure, what: str) -> Picture:
    """A drawing of one exhibit, with method and seed as its caption."""
    caption = f"{method_name(record.method)}, seed {record.seed}"
    shown = record.exhibit
    svg = as_svg(drawn, _salt(findings, shown.audit, shown.name, record.method), f"{what} {caption}")
    return Picture(svg, caption, (exhibit_file(record),))


def picture(
    findings: Findings, drawn: Figure, caption: str, records: Sequence[ExhibitRecord], cite: str = ""
) -> Picture:
    """A drawing of several exhibits, or of one over all methods."""
    files = tuple(exhibit_file(record) for record in records)
    return Picture(as_svg(drawn, _salt(findings, caption, *files[:1]), caption), caption, files, cite)


def training_pictures(findings: Findings) -> list[Picture]:
    """Loss and error while training, a line per run; one picture each, where any was recorded."""
    records = [one for one in findings.exhibits("training", "curve") if "step" in one.exhibit.columns]
    records = [record for record in records if record.method in findings.methods]
    pictures = []
    for name in ("loss", "error"):
        shown = [record for record in records if figures.recorded(record.exhibit.columns, name)]
        runs = [(record.method, record.exhibit.columns) for record in shown]
        if runs:
            drawn = figures.training(runs, name, findings.methods, WIDE_SIZE)
            caption = (
                f"{name.capitalize()} on the images that were being trained on, with the last layers in use at "
                "that step; a thin line per run."
            )
            svg = as_svg(drawn, _salt(findings, "training", name), caption)
            pictures.append(Picture(svg, caption, tuple(exhibit_file(record) for record in shown)))
    return [*pictures, *_weak_heads(findings)]


def _weak_heads(findings: Findings) -> list[Picture]:
    """How good the heads were that a method trained against, of each method's first seed that says so."""
    records = [one for one in findings.exhibits("training", "weak_heads") if "step" in one.exhibit.columns]
    firsts = {record.method: record for record in reversed(records) if record.method in findings.methods}
    rows = {
        name: [
            {"method": record.method, "step": step, "mean": value, "low": None, "high": None}
            for record in firsts.values()
            for step, value in zip(
                *(record.exhibit.columns.get(key, ()) for key in ("step", name)), strict=False
            )
            if value is not None
        ]
        for name in ("weak_head_accuracy", "weak_heads_at_chance")
    }
    good, guessing = rows.values()
    if not good:
        return []
    labels = ("training step", "share")
    drawn = bands(good, "step", findings.methods, labels, size=WIDE_SIZE, percent=True, dashed=guessing)
    names = ", ".join(f"{method_name(method)}, seed {record.seed}" for method, record in firsts.items())
    caption = (
        f"{names}: of the images that they were not made from, how many the temporary last layers get right "
        "(solid), and how many of these last layers do no better than guessing (dashed)."
    )
    return [picture(findings, drawn, caption, list(firsts.values()))]


def further_pictures(findings: Findings) -> list[Picture]:
    """Every other exhibit, drawn by its kind; of several seeds, the first."""
    seen: set[Any] = set()
    pictures = []
    for record in findings.exhibits():
        shown = record.exhibit
        what = (record.method, shown.audit, shown.name, tuple(sorted(shown.context.items())))
        if (shown.audit, shown.name) in DRAWN or is_summary(record) or what in seen or not shown.columns:
            continue
        if shown.kind == "per_image":  # numbers to compare with other reports, nothing to look at
            continue
        seen.add(what)
        seed = "" if record.seed is None else f", seed {record.seed}"
        caption = f"{method_name(record.method)}{seed}: {shown.caption}"
        svg = as_svg(kinds.draw(shown), _salt(findings, exhibit_file(record)), caption)
        pictures.append(Picture(svg, caption, (exhibit_file(record),)))
    return pictures


def _curve(findings: Findings, head: str, size: tuple[float, float]) -> Picture | None:
    record = curve_of(findings)
    if record is None:
        return None
    shown = record.exhibit
    drawn = figures.partial_data(shown.columns, head, findings.methods, size)
    what = f"Last layers: {head_name(head)}"
    both = drawn.axes[0].get_yscale() == "log"
    scale = "Both axes are logarithmic." if both else "The horizontal axis is logarithmic."
    caption = f"{what}. {shown.caption} {scale}"
    alternative = (
        f"{what}: share of test images that are wrong, over the number of images used, a line per method"
    )
    svg = as_svg(drawn, _salt(findings, "curve", head), alternative)
    return Picture(svg, caption, (exhibit_file(record),), cited("Fig. 2"))


def _classes(records: Iterable[ExhibitRecord]) -> Sequence[str]:
    """Every class of several pictures, numbers in order of size."""
    names = {str(label) for record in records for label in record.exhibit.columns["label"]}
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))


def _salt(findings: Findings, *parts: str) -> str:
    return "/".join((findings.dataset, *parts))
