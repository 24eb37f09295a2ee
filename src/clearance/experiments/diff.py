"""What changed between two audits of the same test images: paired, with intervals, the most severe first."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from markupsafe import Markup, escape

from clearance._files import check_report_folder, write_together
from clearance._text import visible
from clearance.gate import Tolerance, check
from clearance.gate.results import LEVEL, PER_IMAGE, GateResult
from clearance.gate.tolerance import OF_GROUPS, Quantity
from clearance.records import ExhibitRecord, Record, Report, load_report
from clearance.records.record import settings
from clearance.report import Card
from clearance.report.audit_page import CLOSE, FAR, SEVERITIES, Finding, Section, Severity
from clearance.report.audits import headline, shown_unit
from clearance.report.audits import title as title_of
from clearance.report.audits.mistakes import stored_shots
from clearance.report.names import model_name, setting
from clearance.report.numbers import POINTS, data, half_width, interval
from clearance.report.page import FILE, SHARED, framed, templates, without_images, write_html
from clearance.report.pictures import Gallery
from clearance.report.tables import NONE, Compact, Line, number
from clearance.report.terminal import findings_text

ANSWERS = ("performance", "answers")  # the exhibit with what is answered to every image
NAMED = 12  # images in a sentence or a gallery of the first screen
NOT_COMPARED = ("behind", "nll", "brier")  # they follow from others, or mix them
TITLES = {
    ("accuracy", "error"): "Accuracy",
    ("performance", "recall"): "Recall by class",
    ("performance", "accuracy"): "Accuracy by slice",
    ("calibration", "overconfidence"): "Confidence minus accuracy",
    ("minimal_perturbation", "median_flip"): "Smallest change",
    ("robustness", "robust_accuracy"): "Under attack",
}


def diff(last: Card | str | os.PathLike[str], now: Card | str | os.PathLike[str]) -> "Diff":
    """Compare two audits of the same test images.

    A change counts where its 95 % interval, paired over images, excludes none. The intervals of several numbers of one
    audit, such as those of all classes, hold together (Bonferroni).

    Args:
        last: The older audit: a card, its folder, or its ``report.json``.
        now: The newer one.

    Returns:
        What changed; it prints its findings, shows its page in a notebook, and saves it with ``save(path)``.

    Raises:
        FileNotFoundError: If there is no audit.
        ValueError: If an audit is of several models, the two are of other images, or nothing can be compared.

    Misleads where the two were audited with other settings: what was measured differently is left out.

    >>> import torch
    >>> import clearance as cl
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> def card(seed):
    ...     torch.manual_seed(seed)
    ...     model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    ...     return cl.audit(model, train=train, test=test, audits=["accuracy", "performance"], name=f"seed {seed}")
    >>> print(str(diff(card(0), card(1))).splitlines()[0].partition(":")[0])
    seed 1 against seed 0
    """
    names = [_name(given) for given in (last, now)]
    if names[0] == names[1]:
        names = [f"{names[0]} (older)", f"{names[1]} (newer)"]
    reports = [
        each.report if isinstance(each, Card) else load_report(each, exhibits=False) for each in (last, now)
    ]
    for name, report in zip(names, reports, strict=True):
        if len(report.methods) != 1:
            raise ValueError(
                f"each of the two must be the audit of one model; got {len(report.methods)} in {name}. For methods of "
                "one comparison, see its own page."
            )
        if (seeds := len({record.seed for record in report.records})) > 1:
            raise ValueError(
                f"each of the two must be the audit of one network; got {seeds} seeds in {name}. Audit one run of "
                "each: clearance audit RUN_DIR."
            )
    found = Diff(reports[0], reports[1], names[0], names[1])
    _check_same_images(found)
    return found


def _name(given: Card | str | os.PathLike[str]) -> str:
    if isinstance(given, Card):
        return model_name(given.report.methods[0]) if given.report.methods else "nothing"
    if not isinstance(given, str | os.PathLike):
        raise TypeError(
            f"an audit must be a Card or the folder of a report; got {type(given).__name__}. Audit each model first: "
            "clearance.diff(clearance.audit(a, ...), clearance.audit(b, ...))."
        )
    path = Path(given)
    folder = path.parent if path.suffix == ".json" else path
    return visible(folder.resolve().name)


def _check_same_images(found: "Diff") -> None:
    """Raise unless a number of both is kept for the same images."""
    if not any(change.result.low is not None for change in found.changes):
        reasons = {change.result.reason for change in found.changes}
        why = sorted(reasons)[0] if reasons else "they have no number in common"
        raise ValueError(
            f"the two audits cannot be compared: {why}. Audit both models on the same test images."
        )


@dataclass(frozen=True)
class Change:
    """One number of both audits.

    Args:
        quantity: What was measured.
        better: Which direction is better.
        result: Both numbers, and the interval of the change.
    """

    quantity: Quantity
    better: str
    result: GateResult

    @property
    def group(self) -> tuple[str, str]:
        """What its interval holds together with."""
        return self.quantity.audit, self.quantity.name

    @property
    def harm(self) -> tuple[float, float] | None:
        """Both ends of how much worse it became; a distance as a share of the older one."""
        found = self.result
        if found.low is None or found.high is None or found.last is None or found.now is None:
            return None
        if self.better == "neither":  # overconfidence: nearer to zero is better
            ends = found.last + found.low, found.last + found.high
            nearest = 0.0 if ends[0] < 0 < ends[1] else min(map(abs, ends))
            return nearest - abs(found.last), max(map(abs, ends)) - abs(found.last)
        return (found.low, found.high) if self.better == "lower" else (-found.high, -found.low)

    @property
    def severity(self) -> Severity:
        """A problem beyond two points, or a tenth of a distance; a warning beyond chance; fine otherwise."""
        if self.harm is None or self.harm[0] <= 0:
            return "fine"
        return "problem" if self.harm[0] > self.limit else "warning"

    @property
    def limit(self) -> float:
        """From where on it is a problem: two points, or a tenth of a distance."""
        return FAR if self.result.tolerance.relative else CLOSE

    @property
    def loss(self) -> float:
        """How much worse it became, in the unit of `harm`; 0 where that is not known."""
        found = self.result
        if self.harm is None or found.last is None or found.now is None:
            return 0.0
        if self.better == "neither":
            return abs(found.now) - abs(found.last)
        change = found.now / found.last - 1 if found.tolerance.relative else found.now - found.last
        return change if self.better == "lower" else -change

    @property
    def improved(self) -> bool:
        """Whether it became better beyond chance."""
        return self.harm is not None and self.harm[1] < 0

    @property
    def where(self) -> str:
        """The class, slice or setting that it is of, in words."""
        kept = {
            key: value for key, value in self.quantity.context.items() if key not in ("split", "temperature")
        }
        named = next((kept[kind] for kind in OF_GROUPS if kind in kept), None)
        if named is not None:
            return named
        return ", ".join(setting(key, _number(value)).striptags() for key, value in kept.items())

    @property
    def numbers(self) -> Markup:
        """Both numbers, the older first."""
        found = self.result
        unit = shown_unit(self.quantity.audit, self.quantity.name, found.unit)
        return Markup("{} → {}").format(data(found.last, unit), data(found.now, unit))

    @property
    def interval(self) -> Markup:
        """The change and its interval."""
        found = self.result
        if found.low is None or found.high is None or found.last is None or found.now is None:
            return NONE
        half = half_width(found.low, found.high)
        if found.unit == "fraction":
            gap = data(found.now - found.last, POINTS, half)
            return Markup("{} ({})").format(gap, interval(found.low, found.high, POINTS))
        if found.tolerance.relative:
            ends = Markup("{} to {}").format(data(found.low, "fraction"), data(found.high, "fraction"))
            return Markup("{} ({})").format(data(found.now / found.last - 1, "fraction"), ends)
        ends = Markup("{} to {}").format(data(found.low, found.unit), data(found.high, found.unit))
        return Markup("{} ({})").format(data(found.now - found.last, found.unit), ends)


def _number(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


@dataclass(frozen=True, repr=False)
class Diff:
    """Two audits of the same test images, and what changed from the older to the newer; made by :func:`diff`.

    Args:
        last: The older report.
        now: The newer one.
        last_name: What the older model is called.
        now_name: What the newer model is called.
    """

    last: Report
    now: Report
    last_name: str
    now_name: str

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Every number that both have, those that became worse most clearly first."""
        groups: dict[tuple[str, str], list[Record]] = {}
        shared = {_identity(record) for record in self.last.records}
        for record in self.now.records:
            found = record.measurement
            if _identity(record) in shared and _kept(self.now, record) and found.name not in NOT_COMPARED:
                groups.setdefault((found.audit, found.name), []).append(record)
        made = [
            self._change(record, 1 - (1 - LEVEL) / len(records))
            for records in groups.values()
            for record in records
        ]
        return tuple(sorted(made, key=lambda change: -(change.harm or (float("-inf"), 0.0))[0]))

    def _change(self, record: Record, level: float) -> Change:
        found = record.measurement
        mirrored = (found.audit, found.name) == ("accuracy", "error")
        context = {key: str(value) for key, value in settings(found.context)}
        quantity = Quantity(found.audit, found.name, context, mirrored)
        tolerance = Tolerance(quantity, "changes", 0.0, relative=found.unit not in ("fraction", "ratio"))
        (result,) = check(self.now, self.last, [tolerance], level=level)
        return Change(quantity, "higher" if mirrored else found.better, result)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One for each audit, the most severe first, and the images whose prediction flipped."""
        groups: dict[tuple[str, str], list[Change]] = {}
        for change in self.changes:
            if change.result.low is not None:
                groups.setdefault(change.group, []).append(change)
        flipped = "Look at the images that are wrong now." if self.flips and self.flips["lost"] else ""
        found = [
            _finding(changes, flipped if audit in ("accuracy", "performance") else "")
            for (audit, _), changes in groups.items()
        ]
        return tuple(sorted([*found, *self._flips()], key=lambda one: SEVERITIES.index(one.severity)))

    def _flips(self) -> Iterator[Finding]:
        """Images that were right and are wrong, and the other way round."""
        flips = self.flips
        if flips is None:
            return
        lost, won, other = (len(flips[kind]) for kind in KINDS)
        said = Markup("{} {} now, {} {}, {} wrong {} got another answer.")
        words = (
            (lost, "image that was right is wrong" if lost == 1 else "images that were right are wrong"),
            (won, "that was wrong is right" if won == 1 else "that were wrong are right"),
            (other, "one" if other == 1 else "ones"),
        )
        galleries = (self._gallery(kind, NAMED, folded=kind != "lost") for kind in ("lost", "won"))
        shown = [gallery for gallery in galleries if gallery is not None]
        todo = "Look at the images that are wrong now." if lost else ""
        yield Finding("Flipped images", "information", said.format(*chain(*words)), todo, pictures=shown)

    @cached_property
    def flips(self) -> dict[str, list[dict[str, str]]] | None:
        """Images that were right and are wrong (``lost``), wrong and right (``won``), wrong in another way (``other``).

        Each has the ``file``, the class ``given``, and what was predicted ``before`` and ``now``. None where the audits
        keep no answers (audit `performance`), or are of other images.
        """
        kept = [_answers(report) for report in (self.last, self.now)]
        if kept[0] is None or kept[1] is None or kept[0].exhibit.context != kept[1].exhibit.context:
            return None
        before, now = (each.exhibit.columns for each in kept if each is not None)
        if len(before["value"]) != len(now["value"]):
            return None
        found: dict[str, list[dict[str, str]]] = {kind: [] for kind in KINDS}
        for row, (was, right) in enumerate(zip(before["value"], now["value"], strict=True)):
            kind = "lost" if was and not right else "won" if right and not was else "other"
            if before["predicted"][row] != now["predicted"][row]:
                image = {name: str(now[name][row]) for name in ("file", "given")}
                answers = {"before": str(before["predicted"][row]), "now": str(now["predicted"][row])}
                found[kind].append({**image, **answers})
        return found

    def _gallery(self, kind: str, most: int, *, folded: bool = False) -> Gallery | None:
        """Images of a kind of flip that an audit keeps a picture of; first of the class that has most of it."""
        shots = {shot.words[0]: shot for report in (self.last, self.now) for shot in stored_shots(report)}
        rows = [] if self.flips is None else [row for row in self.flips[kind] if row["file"] in shots]
        often = Counter(row["given"] for row in rows)
        rows.sort(key=lambda row: (-often[row["given"]], row["given"]))
        shown = [
            replace(
                shots[row["file"]],
                words=(row["file"], f"given {row['given']}", f"before {row['before']}", f"now {row['now']}"),
            )
            for row in rows[:most]
        ]
        return Gallery(KINDS[kind], shown, folded=folded) if shown else None

    def _others(self) -> Iterator[Line]:
        """Numbers of both with a better direction that are kept for no single images; not of classes and slices."""
        before = {_identity(record): record.measurement for record in self.last.records}
        for record in self.now.records:
            found, last = record.measurement, before.get(_identity(record))
            apart = last is None or found.better == "neither" or _kept(self.now, record)
            if last is None or apart or any(kind in found.context for kind in OF_GROUPS):
                continue
            words = ", ".join(setting(key, value).striptags() for key, value in settings(found.context))
            name = title_of(found.audit, found.name) + (f", {words}" if words else "")
            unit = shown_unit(found.audit, found.name, found.unit)
            yield Line(name, None, [number(one.value, unit, one.low, one.high) for one in (last, found)])

    def __repr__(self) -> str:
        return self.text()

    def text(self, width: int = 96) -> str:
        """The findings in plain text.

        Args:
            width: Characters in a line.
        """
        return findings_text(self._start, self.findings, width)

    @property
    def _start(self) -> str:
        return f"{self.now_name} against {self.last_name}"

    def to_html(self, *, images: bool = True) -> str:
        """The page, complete in itself.

        Args:
            images: Whether it shows images of the data, and the names of their files.
        """
        shown = self
        if not images:
            shown = replace(self, last=without_images(self.last), now=without_images(self.now))
        return (
            templates()
            .get_template("diff.html.j2")
            .render(
                title=headline(self._start, self.findings),
                found=shown.findings,
                sections_=list(shown._sections(files=images)),
                dataset=self.now.records[0].dataset,
                commands={self.last_name: self.last.command, self.now_name: self.now.command}.items(),
                versions=self.now.versions,
            )
        )

    def save(self, path: str | os.PathLike[str], *, images: bool = True) -> Path:
        """Write the page as one file, and return its path.

        Args:
            path: The file.
            images: Whether it shows images of the data; without them it can be shared.
        """
        return write_html(path, self.to_html(images=images))

    def save_folder(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``index.html`` and, without images, ``share.html`` into a folder, and return the first's path."""
        folder = Path(directory)
        check_report_folder("directory", folder)
        folder.mkdir(parents=True, exist_ok=True)
        pages = {FILE: self.to_html(), SHARED: self.to_html(images=False)}
        write_together((folder / name, [text.encode()]) for name, text in pages.items())
        return folder / FILE

    def _repr_html_(self) -> str:
        return framed(self.to_html(), "Clearance diff")

    def _sections(self, *, files: bool) -> Iterator[Section]:
        measured = [change for change in self.changes if change.result.low is not None]
        lines = [
            Line(_line_name(change), None, [change.numbers, change.interval, escape(_verdict(change))])
            for change in measured
        ]
        table = Compact("All changes", ["before → now", "change", ""], lines, head="Quantity")
        what = (
            "What became worse most clearly comes first. Better and worse: the interval excludes no change."
        )
        yield Section("What changed", [what], [table])
        if self.flips is not None and files:
            galleries = [gallery for kind in KINDS if (gallery := self._gallery(kind, 5 * NAMED)) is not None]
            tables = [_flip_table(KINDS[kind], rows) for kind, rows in self.flips.items() if rows]
            if tables:
                yield Section("Flipped images", [FLIPPED], [*galleries, *tables])
        if others := list(self._others()):
            table = Compact("Both numbers", ["before", "now"], others, head="Quantity")
            yield Section("Without an interval of the change", [OTHERS], [table])
        missing = [change for change in self.changes if change.result.low is None]
        if missing:
            reasons = [Line(_line_name(one), None, [escape(one.result.reason)]) for one in missing]
            yield Section(
                "Not compared",
                ["Measured in both, without an interval of the change."],
                [Compact("", ["why"], reasons)],
            )


OTHERS = (
    "The audits keep no numbers of single images for these, so the change has no interval. The small numbers are the "
    "95 % interval of each alone."
)
KINDS = {"lost": "Right before, wrong now", "won": "Wrong before, right now", "other": "Wrong in another way"}
FLIPPED = (
    "Images whose prediction changed: the class given, and the class predicted before and now. Pictures are those that "
    "one of the two audits keeps."
)


def _flip_table(title: str, rows: Sequence[dict[str, str]]) -> Compact:
    lines = [
        Line(row["file"], None, [escape(row[name]) for name in ("given", "before", "now")]) for row in rows
    ]
    return Compact(title, ["given", "before", "now"], lines, head="Image")


def _identity(record: Record) -> tuple[object, ...]:
    found = record.measurement
    return found.audit, found.name, settings(found.context)


def _kept(report: Report, record: Record) -> bool:
    """Whether the report keeps numbers of single images for it."""
    found = record.measurement
    context = {key: str(value) for key, value in settings(found.context)}
    quantity = Quantity(found.audit, found.name, context)
    return any(
        one.exhibit.kind == PER_IMAGE
        and quantity.fits(one.exhibit.audit, one.exhibit.name, one.exhibit.context)
        for one in report.exhibits
    )


def _answers(report: Report) -> ExhibitRecord | None:
    return next((one for one in report.exhibits if (one.exhibit.audit, one.exhibit.name) == ANSWERS), None)


def _title(change: Change) -> str:
    return TITLES.get(change.group, title_of(*change.group))


def _line_name(change: Change) -> str:
    return _title(change) + (f", {change.where}" if change.where else "")


def _verdict(change: Change) -> str:
    if change.severity != "fine":
        return "worse"
    if change.improved:
        return "better"
    low, high = change.result.low, change.result.high
    if low is not None and high is not None and (low > 0 or high < 0):
        return "changed, neither clearly better nor worse"
    return "no significant change"


def _finding(changes: Sequence[Change], todo: str) -> Finding:
    """The change of a group that is worse most clearly, and how many others are, with what to do if any is."""
    first = changes[0]
    of_group = any(kind in first.quantity.context for kind in OF_GROUPS)
    where = Markup("{}: ").format(first.where) if len(changes) > 1 or of_group else Markup("")
    worse = [change for change in changes if change.severity != "fine"]
    better = [change.where for change in changes if change.improved]
    if worse or len(changes) == 1:
        said = where + Markup("{}, {}: {}, {}.").format(
            first.numbers, _verdict(first), first.interval, first.result.over
        )
        if len(worse) > 1:
            said += Markup(" Also worse: {}.").format(_some([change.where for change in worse[1:]]))
    else:
        said = Markup("None of {} is significantly worse{}.").format(len(changes), _largest_loss(changes))
    if better and len(changes) > 1:
        said += Markup(" Better: {}.").format(_some(better))
    return Finding(_title(first), first.severity, said, todo if worse else "")


def _largest_loss(changes: Sequence[Change]) -> Markup:
    """The one that lost most, and whether the interval leaves a loss open that would be a problem."""
    lost = max(changes, key=lambda change: change.loss)
    if lost.loss <= 0 or lost.harm is None:
        return Markup("")
    found = lost.result
    assert found.last is not None
    assert found.now is not None
    doubt = "; too few images to tell" if lost.harm[1] > lost.limit else ""
    way = "drop" if found.now < found.last else "rise"
    return Markup("; largest {}: {}, {}{}").format(way, lost.where, lost.interval, doubt)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
