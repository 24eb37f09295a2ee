"""The page on retrained last layers: test error over the number of training images, as exhibit, picture and sentence.

The curve is drawn from the summary over seeds, so the summary itself becomes an exhibit (method ``"summary"``, no
seed), made afresh from the measurements whenever a page is built.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report.audit_page import CLOSE, AuditPage, Finding, Term
from clearance.report.audits.linear_probe import outdone
from clearance.report.drawing import (
    Columns,
    finite,
    legend_below,
    page_figure,
)
from clearance.report.findings import FEW, Findings
from clearance.report.names import NO_NETWORK, PIXEL_MEANS, PIXELS, cited, head_name, method_name
from clearance.report.numbers import POINTS, data
from clearance.report.over_seeds import stored, summary_exhibit
from clearance.report.pictures import Picture, salt
from clearance.report.svg import GRID, INK, MUTED, PAPER, as_svg, marker, series

NAME = "partial_data"
OWN = "own"  # the last layers that the network was trained with
USUAL, LATER = "usual cut", "one layer later"  # where the network is cut
DEEPER = "deeper_cut"  # the audit that cuts it later


def curve(findings: Findings) -> ExhibitRecord | None:
    """The curve of one dataset: a row per method, stand-in, cut and number of images, and one per own error.

    `low` and `high` are the 95 % t interval over seeds; with a single seed, one standard deviation over the
    repetitions either side. The caption says which.
    """
    rows = [_point(row, str(row.context.get("head"))) for row in findings.rows("mean", FEW, "error")]
    rows += [
        _point(row, str(row.context.get("head")), LATER) for row in findings.rows("mean", DEEPER, "error")
    ]
    rows += [_point(row, OWN) for row in findings.rows("mean", "accuracy", "error", split="test")]
    if not any(row["head"] != OWN and row["cut"] == USUAL for row in rows):
        return None
    bars = "95 % interval over seeds" if findings.seeds > 1 else "standard deviation over repetitions"
    caption = f"Bars: {bars}. Dashed across: with its own last layers."
    return summary_exhibit(findings, FEW, NAME, rows, caption)


def _point(row: SummaryRow, head: str, cut: str = USUAL) -> dict[str, Any]:
    low, high = row.low, row.high
    if row.seeds == 1 and row.within is not None:
        low, high = row.value - row.within, row.value + row.within
    return {
        "method": "" if head in NO_NETWORK else row.method,
        "head": head,
        "cut": cut,
        "samples": row.context.get("samples"),
        "error": row.value,
        "low": low,
        "high": high,
        "seeds": row.seeds,
    }


PERCENTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def partial_data(columns: Columns, head: str, methods: Sequence[str], size: tuple[float, float]) -> Figure:
    """Test error over the number of images that rebuilt the last layers, both on logarithmic axes.

    `columns` are those of the summary's ``partial_data`` exhibit, `head` is what stands in for the last layers.
    Methods are in the page's order, which gives colours and markers; `size` is width and height, inches. The first
    method is drawn at both cuts of the network, where both were measured. An error of zero has no place on a
    logarithmic axis; then the axis is linear.
    """
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    figure, axes = page_figure(size)
    bare = PIXEL_MEANS if head == "class mean" else PIXELS
    pixels = _line(rows, bare, "")
    if pixels:
        x, y = [row["samples"] for row in pixels], [100 * row["error"] for row in pixels]
        axes.plot(x, y, color=MUTED, linewidth=1.2, zorder=1, label=NO_NETWORK[bare])
    for index, method in enumerate(methods):
        if points := _line(rows, head, method):
            _with_bars(axes, points, index, method_name(method))
        if index == 0 and (points := _line(rows, head, method, LATER)):
            _with_bars(axes, points, index, f"{method_name(method)}, cut one layer later", later=True)
        for row in rows:
            if row["head"] == OWN and row["method"] == method and finite(row["error"]):
                axes.axhline(100 * row["error"], color=series(index), linewidth=1.1, dashes=(5, 3), zorder=1)
    wanted = [row for row in rows if row["head"] in (head, OWN, bare) and finite(row["error"])]
    wanted = [row for row in wanted if row["cut"] == USUAL or row["method"] == methods[0]]
    samples = sorted({row["samples"] for row in wanted if row["samples"]})
    _partial_data_axes(axes, samples, [100 * row["error"] for row in wanted])
    return figure


def _line(
    rows: Iterable[Mapping[str, Any]], head: str, method: str, cut: str = USUAL
) -> list[Mapping[str, Any]]:
    """The rows of one line in order of images; of several that stand at one place, the first."""
    found: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        if (
            (row["head"], row["method"], row["cut"]) == (head, method, cut)
            and row["samples"]
            and finite(row["error"])
        ):
            found.setdefault(row["samples"], row)
    return [found[samples] for samples in sorted(found)]


def _with_bars(
    axes: Axes, points: Sequence[Mapping[str, Any]], index: int, label: str, later: bool = False
) -> None:
    """A line with markers, and a bar from low to high wherever both are known; the later cut's is hollow."""
    colour = series(index)
    x, y = [row["samples"] for row in points], [100 * row["error"] for row in points]
    style: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "markerfacecolor": PAPER} if later else {}
    style |= {"marker": marker(index), "markersize": 5.5, "linewidth": 1.8, "zorder": 3}
    axes.plot(x, y, color=colour, label=label, **style)
    barred = [row for row in points if finite(row["low"]) and finite(row["high"])]
    if barred:
        at = [100 * row["error"] for row in barred]
        ends = [
            [100 * (row["error"] - row["low"]) for row in barred],
            [100 * (row["high"] - row["error"]) for row in barred],
        ]
        where = [row["samples"] for row in barred]
        axes.errorbar(
            where, at, yerr=np.abs(ends), fmt="none", ecolor=colour, elinewidth=1.1, capsize=2.5, zorder=2
        )


def _partial_data_axes(axes: Axes, samples: Sequence[float], drawn: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(readable_ticks(samples)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if drawn and min(drawn) > 0:
        axes.set_yscale("log")
        low, high = 0.7 * min(drawn), min(100.0, 1.35 * max(drawn))
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator([tick for tick in PERCENTS if low <= tick <= high]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_xlabel("images used to retrain the last layers", color=INK)
    axes.set_ylabel("wrong on test images", color=INK)
    legend_below(axes)


APART = 0.12  # the least distance between two labels, as a share of the axis


def readable_ticks(samples: Sequence[float]) -> list[float]:
    """Where a logarithmic axis is labelled: the ends, and between them what leaves room for its number.

    Samples are ascending, above 0.

    >>> readable_ticks([10, 100, 1000, 1300])
    [10, 100, 1300]
    """
    kept = list(samples[-1:])
    least = APART * math.log(samples[-1] / samples[0]) if samples else 0.0
    for value in reversed(samples[:-1]):
        if math.log(kept[0] / value) >= least:
            kept.insert(0, value)
    return kept


CURVE_SIZE, SMALL_SIZE = (5.9, 4.0), (4.8, 4.0)  # with the names of the lines below


def main_curve(findings: Findings) -> Picture | None:
    """Error over images used, with the last layers that the first screen is about."""
    return None if findings.head is None else _curve_picture(findings, findings.head, CURVE_SIZE)


def other_curves(findings: Findings) -> list[Picture]:
    """The same for every other stand-in for the last layers."""
    heads = [head for head in findings.heads if head != findings.head]
    return [picture for head in heads if (picture := _curve_picture(findings, head, SMALL_SIZE))]


def _curve_picture(findings: Findings, head: str, size: tuple[float, float]) -> Picture | None:
    record = stored(findings, FEW, NAME)
    if record is None:
        return None
    shown = record.exhibit
    drawn = partial_data(shown.columns, head, findings.methods, size)
    what = f"Last layers: {head_name(head)}"
    both = drawn.axes[0].get_yscale() == "log"
    scale = "Both axes are logarithmic." if both else "The horizontal axis is logarithmic."
    caption = f"{what}. {shown.caption} {scale}"
    alternative = (
        f"{what}: share of test images that are wrong, over the number of images used, a line per method"
    )
    svg = as_svg(drawn, salt(findings, "curve", head), alternative)
    return Picture(svg, caption, (exhibit_file(record),), cited("Fig. 2"))


LAST_LAYER = "linear"


def _label_cost(findings: Findings) -> list[Finding]:
    gaps = {int(row.context["samples"]): row for row in findings.rows("mean", FEW, "gap", head=LAST_LAYER)}
    if not gaps:
        return []
    title = "Label cost"
    if findings.images is not None and findings.images * CLOSE < 1:
        said = Markup("{} test images are too few: each counts for more than two points.")
        return [Finding(title, "information", said.format(data(findings.images, "count")))]
    best = min(gaps, key=lambda n: gaps[n].value)
    probed = findings.row("mean", "linear_probe", "gain") is not None  # which says it, with an interval
    if gaps[best].value < -CLOSE and not probed:
        said = Markup("A new last layer, trained on {} of the training images, changes the error by {}.")
        todo = "The network's own can be better: train longer, or retrain it."
        return [
            Finding(title, "warning", said.format(data(best, "count"), data(gaps[best].value, POINTS)), todo)
        ]
    fewest = min(gaps)
    enough = next((n for n in sorted(gaps) if gaps[n].value <= CLOSE), None)
    lost = Markup("with {} it loses {}{}").format(
        data(fewest, "count"), _points(gaps[fewest]), _neighbour(findings, fewest)
    )
    reach = "train a new last layer to within two points of the network's own"
    if enough is None:
        said = Markup(
            "A new last layer, trained on up to {} of the training images, stays more than two points behind the "
            "network's own; {}."
        ).format(data(max(gaps), "count"), lost)
        return [Finding(title, "information", said)]
    # the largest set may be all images, which no one balanced
    balanced = ", the same number of each class," if enough < max(gaps) else ""
    said = Markup("{} labelled images{} {}").format(data(enough, "count"), balanced, reach)
    if outdone(findings):  # it is compared with a last layer that is worse than necessary
        return [
            Finding(title, "information", said + Markup(", which could be better: see the linear probe."))
        ]
    if enough == fewest:
        return [Finding(title, "information", said + Markup("."))]
    below = max(n for n in gaps if n < enough)
    if below != fewest:
        said += Markup(" ({} do not)").format(data(below, "count"))
    todo = Markup("To retrain the last layer, collect about {} images.").format(data(enough, "count"))
    return [Finding(title, "information", said + Markup("; {}.").format(lost), todo)]


NEIGHBOUR = "nearest neighbour"


def _neighbour(findings: Findings, samples: int) -> Markup:
    row = findings.row("mean", FEW, "gap", head=NEIGHBOUR, samples=samples)
    return Markup("") if row is None else Markup(", a nearest neighbour {}").format(_points(row))


def _points(row: SummaryRow) -> Markup:
    """A loss, with the standard deviation from one draw of images to the next."""
    shown = data(row.value, POINTS)
    return (
        shown
        if row.within is None
        else shown + Markup(" (± {} from draw to draw)").format(data(row.within, POINTS))
    )


PAGE = AuditPage(
    title="With retrained last layers",
    reading=(
        "Lower is better; the less an error rises from many images to few, the less the features depend on their "
        "own last layers."
    ),
    place=38,
    glossary={
        "error": Term(
            "Error with retrained last layers",
            "The last layers are discarded and new ones are trained on a few images, while the rest of the network "
            "is frozen. This is repeated with other images and other random starts, and the errors are averaged.",
            "Lower is better. An error that hardly rises with fewer images means that the features already separate"
            " the classes, for any last layers and not only for their own. “Nearest image, pixel by pixel” uses no "
            "network: it is the baseline to beat.",
            "The rest of the network has seen every training image of these classes. The number promises nothing for "
            "new classes, and it is not the error of training a network on so few images.",
        ),
        "gap": Term(
            "Gap to its own last layers",
            "The error with retrained last layers minus the error with the network's own.",
            "Close to zero is better. With all training images a gap above zero says that the features had adapted "
            "to one set of last layers; below zero, that new last layers fit the features better.",
            "With few images a gap also contains what few images cost; compare it between methods.",
            difference=True,
        ),
        "diverged_heads": Term(
            "Retrained last layers that failed",
            "How many of the retrained last layers diverged during training. They count as guessing.",
            "Zero is right. Anything else makes the error above higher than it needs to be.",
            "It depends on how they were trained, not only on the network.",
        ),
        "unfitted_heads": Term(
            "Retrained last layers that miss their own images",
            "How many of the retrained last layers misclassify some of the images they were trained on.",
            "Zero is right for few images. With all images some are expected.",
            "It does not say that the network is bad: last layers that are too simple also miss images.",
        ),
    },
    over_seeds={NAME: curve},
    findings=_label_cost,
)
