"""The pictures of a page, each with its caption and the names of the exhibits that its points come from."""

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file, table_file
from clearance.report.drawing import labelled_cloud, shown_pixels
from clearance.report.findings import Findings
from clearance.report.names import method_name
from clearance.report.over_seeds import is_summary
from clearance.report.svg import as_svg


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, what it shows, the files that hold its points, and what to compare it with in the paper."""

    svg: Markup
    caption: str
    files: tuple[str, ...]
    cite: str = ""


@dataclass(frozen=True, slots=True)
class Shot:
    """One image of a gallery.

    Args:
        source: The image within the page, as `as_image` makes it.
        words: Lines below it, such as its file's name and what was predicted.
    """

    source: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Gallery:
    """Images of the data, side by side; never in the page that can be shared.

    Args:
        shots: The images, the first ones first.
        folded: Whether they are shown only when asked for.
        together: How many stay beside each other, such as the two of a pair.
    """

    title: str
    shots: Sequence[Shot]
    folded: bool = False
    together: int = 1


def as_image(pixels: Any) -> str:
    """Stored pixels as a PNG within the page.

    Pixels are nested lists in [0, 1], of shape (H, W) or (C, H, W) with 1 or 3 channels; of more, the first is shown.

    Raises:
        TypeError: If they are something else.

    >>> as_image([[0.0, 1.0]])[:22]
    'data:image/png;base64,'
    """
    try:
        array = np.clip(np.asarray(pixels, dtype=float), 0, 1)
    except ValueError as error:  # rows of several lengths, or text
        raise TypeError(f"an image must be rows of numbers; {error}.") from error
    if array.ndim not in (2, 3) or not array.size or not np.isfinite(array).all():
        raise TypeError(f"an image must be rows of numbers, (H, W) or (C, H, W); got shape {array.shape}.")
    file = io.BytesIO()
    Image.fromarray(np.round(255 * shown_pixels(array)).astype(np.uint8)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def labelled_shots(record: ExhibitRecord) -> list[Shot]:
    """The images of an exhibit of kind ``"images"``, each with its label."""
    columns = record.exhibit.columns
    return [
        Shot(as_image(image), (str(label),))
        for image, label in zip(columns["image"], columns["label"], strict=True)
    ]


def table_of(findings: Findings, audit: str, name: str) -> str:
    """Where a table of an audit is read: on a page that keeps it, in the file beside it, and in Python.

    >>> from clearance.records import Report
    >>> table_of(Findings(Report({}, {}, "", ""), "digits"), "duplicates", "duplicates")
    "in Python card.table('duplicates', 'duplicates')"
    """
    files = [table_file(record) for record in firsts(findings, audit, name).values()]
    beside = f"on the page, in {', '.join(files)} beside it, or " if files else ""  # none on a page to share
    return f"{beside}in Python card.table({audit!r}, {name!r})"


def clouds(findings: Findings, audit: str, name: str, what: str) -> list[Picture]:
    """One picture per method of a scatter of labelled points, a colour per class."""
    shown = one_seed(findings, audit, name)
    classes = _classes(shown.values())
    return [
        per_method(findings, record, labelled_cloud(record.exhibit.columns, classes), f"{what} of")
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
    svg = as_svg(drawn, salt(findings, shown.audit, shown.name, record.method), f"{what} {caption}")
    return Picture(svg, caption, (exhibit_file(record),))


def picture(
    findings: Findings, drawn: Figure, caption: str, records: Sequence[ExhibitRecord], cite: str = ""
) -> Picture:
    """A drawing of several exhibits, or of one over all methods."""
    files = tuple(exhibit_file(record) for record in records)
    return Picture(as_svg(drawn, salt(findings, caption, *files[:1]), caption), caption, files, cite)


def _classes(records: Iterable[ExhibitRecord]) -> Sequence[str]:
    """Every class of several pictures, numbers in order of size."""
    names = {str(label) for record in records for label in record.exhibit.columns["label"]}
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))


def salt(findings: Findings, *parts: str) -> str:
    """A name for a drawing that no other drawing of the page has."""
    return "/".join((findings.dataset, *parts))


Draw = Callable[[ExhibitRecord, int], Figure]
"""A record and the number of its method, which gives its colour."""


def firsts(findings: Findings, audit: str, name: str, **context: Any) -> dict[str, ExhibitRecord]:
    """The exhibit of that name of each method's first seed that has one, in the page's order."""
    found: dict[str, ExhibitRecord] = {}
    for record in findings.exhibits(audit, name):
        mine = all(record.exhibit.context.get(key) == value for key, value in context.items())
        if mine and not is_summary(record):
            found.setdefault(record.method, record)
    return {method: found[method] for method in findings.methods if method in found}


def of_method(title: str, method: str, findings: Findings) -> str:
    """A title with the method that it is of, if there are several."""
    return title if len(findings.methods) == 1 else f"{title}, {method_name(method)}"


def drawn_firsts(
    findings: Findings, records: dict[str, ExhibitRecord], draw: Draw, what: str
) -> list[Picture]:
    """A picture for each method; its caption names method and seed, and says `what` is drawn."""
    return [
        picture(
            findings,
            draw(record, findings.methods.index(method)),
            f"{method_name(method)}, seed {record.seed}. {what}".strip(),
            [record],
        )
        for method, record in records.items()
    ]
