"""The page on why a boundary tilts: a pair's path over the penalty, and how scaling changes a loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.drawing import Columns, draw_legend, legend_below, page_figure, shown_pixels
from clearance.report.findings import Findings
from clearance.report.pictures import Picture, picture
from clearance.report.svg import GRID, INK, MUTED, marker, series
from clearance.report.tables import by_method, means
from clearance.vocabulary import Exhibit

SIZE = (4.8, 3.4)
NAMES = {"zero_one": "0-1", "hinge": "hinge", "softplus": "softplus"}


def losses(columns: Columns) -> Figure:
    """The three losses over y s(x)."""
    figure, axes = page_figure(SIZE)
    for index, (name, label) in enumerate(NAMES.items()):
        style = "steps-post" if name == "zero_one" else "default"
        axes.plot(
            columns["z"], columns[name], color=series(index), linewidth=1.8, label=label, drawstyle=style
        )
    _labelled(axes, "y s(x): score of the true side", "loss")
    draw_legend(axes)
    return figure


def limits(columns: Columns, distances: Columns, *, large: bool) -> Figure:
    """Hinge and softplus at one end of the scale, with their limits, over the example distances.

    Columns are those of the exhibits ``limits`` and ``distances``; `large` is for large weights, else small ones.
    """
    figure, axes = page_figure(SIZE)
    scale = (max if large else min)(columns["scale"])
    top = scale * 3 if large else 1.4
    _bars(axes, distances, 0.6 * top)
    for index, (name, label) in enumerate(list(NAMES.items())[1:], start=1):
        chosen = [k for k, one in enumerate(columns["loss"]) if one == name and columns["scale"][k] == scale]
        z, scaled, limit = ([columns[key][k] for k in chosen] for key in ("z", "scaled", "limit"))
        axes.plot(z, scaled, color=series(index), linewidth=1.8, label=label)
        axes.plot(z, limit, color=series(index), linewidth=1.4, dashes=(4, 3), label=f"{label}, limit")
    axes.set_ylim(0, top)
    _labelled(axes, "y d(x): distance to the boundary", f"loss at ‖w‖ = {scale:.3g}")
    draw_legend(axes)
    return figure


def log_likelihood(columns: Columns, likelihoods: Columns) -> Figure:
    """Minus the logarithm of the likelihood, over a histogram of likelihoods."""
    figure, axes = page_figure(SIZE)
    _bars(axes, likelihoods, 2.5)
    axes.plot(columns["likelihood"], columns["loss"], color=series(0), linewidth=1.8)
    axes.set_ylim(0, 5)
    _labelled(axes, "likelihood of the true class", "− ln likelihood")
    return figure


def path_over_penalty(columns: Columns) -> Figure:
    """Angle and adversarial distance, and both errors, over the penalty."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = columns["log10_lambda"]
    largest = max(columns["adversarial_distance"])
    left.plot(
        x, [math.degrees(angle) / 90 for angle in columns["angle"]], color=series(0), label="angle / 90°"
    )
    share = [distance / largest for distance in columns["adversarial_distance"]]
    left.plot(x, share, color=series(1), label=f"adversarial distance / {largest:.3g}")
    for index, split in ((2, "train"), (3, "test")):
        percents = [100 * value for value in columns[f"{split}_error"]]
        if all(map(math.isfinite, percents)):
            right.plot(x, percents, color=series(index), label="training" if split == "train" else split)
    for axes, name in ((left, "share of the largest"), (right, "wrong, %")):
        axes.tick_params(colors=INK, labelsize=9)
        for side, spine in axes.spines.items():
            spine.set(visible=side in ("left", "bottom"), color=MUTED)
        axes.set_ylim(bottom=0)
        _labelled(axes, "log10 λ", name)
        draw_legend(axes)
    return figure


def _bars(axes: Axes, columns: Columns, height: float) -> None:
    """A histogram as grey columns behind a curve, of the given height."""
    centres, counts = np.array(columns["centre"]), np.array(columns["count"])
    axes.bar(centres, counts * height / counts.max(), width=centres[1] - centres[0], color=GRID, zorder=0)


def _labelled(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)


Shown = Mapping[str, Exhibit]
"""An exhibit for each SVM, by its name."""


def planes(shown: Shown) -> Figure:
    """The samples as the tilting plane shows them, with both class means and the boundary."""
    figure, cells = _side_by_side(shown, 3.1)
    for axes, (title, one) in zip(cells, shown.items(), strict=True):
        x, y = (np.array(one.columns[key], float) for key in ("x", "y"))
        labels = list(one.columns["label"])
        for index, name in enumerate(dict.fromkeys(labels)):
            mine = np.array([label == name for label in labels])
            axes.scatter(
                x[mine], y[mine], s=5, color=series(index), marker=marker(index), linewidths=0, label=name
            )
        angle, offset, apart = (float(one.context[key]) for key in ("angle", "offset", "separation"))
        axes.scatter([-apart / 2, apart / 2], [0, 0], s=34, color=INK, marker="+", label="class means")
        reach = 1.05 * float(np.abs([x, y]).max())
        along, across = (
            np.array([-math.sin(angle), math.cos(angle)]),
            np.array([math.cos(angle), math.sin(angle)]),
        )
        ends = np.array([-2 * reach, 2 * reach])[:, None] * along - offset * across
        axes.plot(ends[:, 0], ends[:, 1], color=INK, linewidth=1.4, label="boundary")
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        _named(axes, title, "along the class means", "across")
    legend_below(cells[0])
    return figure


def distances(shown: Shown) -> Figure:
    """Histograms of signed distances, with the hinge of the first class's side scaled by the weights."""
    figure, cells = _side_by_side(shown, 2.6)
    for axes, (title, one) in zip(cells, shown.items(), strict=True):
        centres = np.array(one.columns["centre"])
        width = centres[1] - centres[0]
        for index, key in enumerate(("first", "second")):
            counts = np.array(one.columns[key])
            axes.bar(
                centres, counts, width=width, color=series(index), alpha=0.6, label=str(one.context[key])
            )
        most = max(max(one.columns["first"]), max(one.columns["second"]))
        loss = np.maximum(1 + float(one.context["scale"]) * centres, 0)
        axes.plot(
            centres, loss * 0.6 * most / loss.max(), color=INK, linewidth=1.4, label="hinge loss, scaled"
        )
        _named(axes, title, "signed distance d(x)", "training samples")
    legend_below(cells[0])
    return figure


def pictures(shown: Shown) -> Figure:
    """A row for each machine: means, weights, and a sample of each class with its mirror image."""
    count = max(len(one.columns["image"]) for one in shown.values())
    figure = Figure(figsize=(8.2, 1.5 * len(shown) + 0.2), layout="constrained")
    cells = figure.subplots(len(shown), count, squeeze=False)
    for row, (title, one) in zip(cells, shown.items(), strict=True):
        images, labels = np.array(one.columns["image"], float), list(one.columns["label"])
        for axes, image, label, (low, high) in zip(row, images, labels, _ranges(images, labels), strict=True):
            axes.imshow(_last(image, low, high), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set_title(label[:22], fontsize=7, pad=2, color=INK)
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
        row[0].set_ylabel(title, fontsize=8, color=INK)
    return figure


def _ranges(images: np.ndarray, labels: Sequence[str]) -> list[tuple[float, float]]:
    """What is black and white: one range for samples and mirror images, weights around 0, means within [0, 1]."""
    at = labels.index("weights")
    most = float(np.abs(images[at]).max()) or 1.0
    common = (float(images[at + 1 :].min()), float(images[at + 1 :].max()))
    return [*[(0.0, 1.0)] * at, (-most, most), *[common] * (len(labels) - at - 1)]


def _last(image: np.ndarray, low: float, high: float) -> np.ndarray:
    scaled = (image - low) / (high - low) if high > low else image - low
    return shown_pixels(scaled)


def _side_by_side(shown: Shown, height: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(8.2, height), layout="constrained")
    return figure, figure.subplots(1, len(shown), squeeze=False)[0]


def _named(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9.5, color=INK)
    axes.tick_params(colors=INK, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=MUTED)
    axes.set_xlabel(x, color=INK, fontsize=9)
    if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel(y, color=INK, fontsize=9)


AUDIT = "tilting"
WHAT = (
    "A linear SVM for each of 81 weight penalties. A weak penalty tilts the boundary until every training sample is"
    " right; a strong one aligns its normal with the line through the class averages, which keeps it as far as "
    "possible from all samples. With large weights a loss depends only on how deep the errors lie; with small ones "
    "it is nearly linear and counts every sample alike."
)
COLUMNS = {
    "angle": "angle, rad",
    "adversarial_distance": "adversarial distance",
    "error_distance": "error distance",
}
LOSSES: tuple[tuple[Callable[..., Figure], tuple[str, ...], str], ...] = (
    (losses, ("losses",), "Three losses of a score."),
    (
        partial(limits, large=True),
        ("limits", "distances"),
        "With large weights both losses (solid) tend to ‖w‖ max(−y d, 0) (dashed): only the depth of errors counts.",
    ),
    (
        partial(limits, large=False),
        ("limits", "distances"),
        "With small weights both are nearly straight lines (dashed): every sample counts alike.",
    ),
    (
        log_likelihood,
        ("log_likelihood", "likelihoods"),
        "The loss of a probabilistic classifier, over the likelihoods of the example samples (grey).",
    ),
)
PAIR: tuple[tuple[Callable[..., Figure], str, str], ...] = (
    (
        planes,
        "plane",
        "Training samples in the plane of the class means (+) and the weights, which preserves every distance to "
        "the boundary.",
    ),
    (
        distances,
        "margins",
        "How far training samples are from the boundary, and the hinge loss of the first class as the size of the "
        "weights scales it.",
    ),
    (
        pictures,
        "pictures",
        "Class means; the weights, grey where they are 0; the sample of each class nearest to its mean, and its "
        "mirror image, where the SVM's score is reversed. Mirror images are not clipped.",
    ),
)


def tilting_section(findings: Findings) -> Section | None:
    """A table of three penalties, the path, and the figures on losses."""
    every = list(findings.exhibits(AUDIT))
    shown = {record.exhibit.name: record for record in every}
    if "path" not in shown:
        return None
    columns: dict[str | Markup, dict[str, Markup]] = {
        title: means(findings, AUDIT, name, "") for name, title in COLUMNS.items()
    }
    table = by_method(findings, "Three of the SVMs", columns, "Distances count both classes alike.")
    path = shown["path"]
    drawn = picture(findings, path_over_penalty(path.exhibit.columns), path.exhibit.caption, [path])
    pair = [
        Row([one], title="" if place else "The pair itself")
        for place, one in enumerate(_pair(findings, every))
    ]
    losses = Row(_losses(findings, shown), title="Losses, and how the size of the weights changes them")
    return section("Why the boundary tilts", [WHAT], [table, Row([drawn]), *pair, losses])


def _pair(findings: Findings, every: Sequence[ExhibitRecord]) -> list[Picture]:
    """What the interactive page draws of the pair, at the machines of the table."""
    found = []
    for make, name, caption in PAIR:
        records = [record for record in every if record.exhibit.name == name]
        if records:
            drawn = make({record.method: record.exhibit for record in records})
            found.append(picture(findings, drawn, caption, records))
    return found


def _losses(findings: Findings, shown: Mapping[str, ExhibitRecord]) -> list[Picture]:
    """Every figure whose exhibits are there."""
    pictures = []
    for make, names, caption in LOSSES:
        if all(name in shown for name in names):
            records = [shown[name] for name in names]
            drawn = make(*(record.exhibit.columns for record in records))
            pictures.append(picture(findings, drawn, caption, records))
    return pictures


PAGE = AuditPage(
    title="Tilting",
    place=220,
    glossary={
        "angle": Term(
            "Tilting angle",
            "The angle between the boundary's weights and the line through the two class averages, in radians.",
            "0 is the nearest-average classifier; near 1.57 (a right angle) the boundary passes close to nearly "
            "every sample.",
            "It says nothing about errors: a tilted boundary may be right.",
        ),
        "adversarial_distance": Term(
            "Adversarial distance",
            "How far the training samples lie from the boundary on average, errors counted against it, both classes "
            "alike.",
            "Higher is better: larger changes are needed to cross. It is at most half the distance between the "
            "class averages.",
            "An average can hide samples that are close.",
        ),
        "error_distance": Term(
            "Error distance",
            "How deep the errors lie on the wrong side, averaged over all training samples, both classes alike.",
            "Lower is better; 0 means no errors, or only shallow ones.",
            "It is not an error rate: samples on the boundary are wrong and have 0.",
        ),
    },
    section=tilting_section,
    drawn=(
        "path",
        "plane",
        "margins",
        "pictures",
        "losses",
        "limits",
        "distances",
        "log_likelihood",
        "likelihoods",
    ),
)
