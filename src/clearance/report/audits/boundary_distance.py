"""The page on how far images are from a mistake: as a search found it, and to first order at several layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.drawing import MOST_POINTS, groups, page_figure
from clearance.report.findings import Findings
from clearance.report.names import LENGTHS, NORMS, in_usual_order, norm_name
from clearance.report.over_seeds import bars, rows_of, stored, summary_exhibit, with_interval
from clearance.report.pictures import Picture, drawn_firsts, firsts, picture
from clearance.report.svg import GRID, INK, MUTED, series
from clearance.report.tables import Compact, by_method, mean, means

AUDIT, BY_CLASS = "boundary_distance", "by_class"
ALL = "all"


def by_class(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm and class: the median of the distances that the search found."""
    rows = [
        with_interval(row, norm=row.context["norm"], **{"class": str(row.context["class"])})
        for row in findings.rows("mean", AUDIT, "minimum_distance")
    ]
    return summary_exhibit(findings, AUDIT, BY_CLASS, rows, bars(findings))


SIZE = (5.9, 3.9)
WHAT = (
    "How far an image has to be changed until the network gets it wrong: the median over test images. A search "
    "looks for the nearest wrong image; pixels go from black at zero to white at one. It is compared with the "
    "first-order distance, which treats the network as linear: the gap between two logits, divided by how fast it "
    "closes. It can be computed at any layer, and training with a large margin increases it."
)
NOT_MEANT = (
    "The distance found is an upper bound: a nearer wrong image may exist. The first-order distance is not a bound."
    " At a hidden layer its unit is the spread of the images there, and larger is not safer: compare methods at one"
    " layer, and rely on the search."
)
ON_AVERAGE = (
    ("adversarial distance", "adversarial_distance"),
    ("error distance", "error_distance"),
    ("local scale", "local_scale"),
    ("along the gradient, median", "bisected_distance"),
    ("unreliable", "unreliable_share"),
)
EUCLIDEAN = "2"  # angles are those of this norm
ANGLES = {"centroid": "angle to the rival's average", "nearest sample": "angle to its nearest image"}
LAYERS = {"input": "to first order, at the input", "features": "at the features", "logits": "at the logits"}


def boundary_section(findings: Findings) -> Section | None:
    """A picture and a table for each norm, and the single images folded away."""
    names = ("minimum_distance", "first_order_distance")
    norms = in_usual_order(
        (row.context["norm"] for name in names for row in findings.rows("mean", AUDIT, name)), NORMS
    )
    tables = [table for norm in norms if (table := _table(findings, norm)) is not None]
    if not tables:
        return None
    drawn = [one for norm in norms if (one := _by_class(findings, norm)) is not None]
    singles = [*(_on_average(findings, norm) for norm in norms), *(_images(findings, norm) for norm in norms)]
    return section("Distance to the decision boundary", [WHAT, NOT_MEANT], [Row(drawn), *tables, *singles])


def _by_class(findings: Findings, norm: str) -> Picture | None:
    record = stored(findings, AUDIT, BY_CLASS)
    rows = [] if record is None else [row for row in rows_of(record) if row["norm"] == norm]
    if record is None or not rows:
        return None
    names = {name: name for name in (row["class"] for row in rows)}
    drawn = groups(rows, "class", names, findings.methods, "distance found, pixel units", size=SIZE)
    caption = (
        f"Median distance to the nearest wrong image found, by class. Distance: {LENGTHS.get(norm, norm)}."
    )
    return picture(findings, drawn, f"{caption} {record.exhibit.caption}".strip(), [record])


def _table(findings: Findings, norm: str) -> Compact | None:
    wanted = {"norm": norm, "class": ALL}
    columns: dict[str | Markup, dict[str, Markup]] = {
        "found by search": means(findings, AUDIT, "minimum_distance", "", **wanted)
    }
    for row in findings.rows("mean", AUDIT, "first_order_distance", **wanted):
        layer = str(row.context["layer"])
        title = LAYERS.get(layer, Markup("at <code>{}</code>").format(layer))
        columns.setdefault(title, {})[row.method] = mean(row, "")
    title = Markup("Median distance to a mistake ({})").format(norm_name(norm))
    foot = "The first two in pixel units, the others in units of the layer's own spread."
    return by_method(findings, title, columns, foot)


def _on_average(findings: Findings, norm: str) -> Compact | None:
    """The linear case's numbers, and whether first order can be believed."""
    columns: dict[str | Markup, dict[str, Markup]] = {
        title: means(findings, AUDIT, name, norm=norm) for title, name in ON_AVERAGE
    }
    for direction, title in ANGLES.items() if norm == EUCLIDEAN else ():
        columns[title] = means(findings, AUDIT, "tilting_angle", direction=direction)
    title = Markup("To first order, on average over all images ({})").format(norm_name(norm))
    foot = (
        "Adversarial and error distance: each class counts alike. Angles in radians; a right angle is 1.57."
    )
    return by_method(findings, title, columns, foot if norm == EUCLIDEAN else foot.partition(" Angles")[0])


def _images(findings: Findings, norm: str) -> Row:
    """The single images of each method's first seed."""
    shown = drawn_firsts(
        findings,
        firsts(findings, AUDIT, "distances", norm=norm),
        lambda record, index: distance_cloud(record.exhibit.columns, index),
        "Dashed: where both agree.",
    )
    title = Markup("Image by image: the distance found over the first-order distance ({})").format(
        norm_name(norm)
    )
    return Row(shown, "features", title, folded=True)


CLOUD_SIZE = (3.6, 3.3)


def distance_cloud(columns: Mapping[str, Sequence[Any]], index: int) -> Figure:
    """A point for each image, and the line on which both distances agree.

    `columns` are ``x``, first order, and ``y``, found; the method's `index` gives the colour. An image that is
    misclassified has a negative first-order distance, and 0 for the one found.

    >>> len(distance_cloud({"x": [0.1, 0.2], "y": [0.1, 0.1]}, 0).axes[0].collections)
    1
    """
    figure, axes = page_figure(CLOUD_SIZE)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = (np.array(columns[name][::step], dtype=float) for name in ("x", "y"))
    end = float(max([*x, *y, 0.0]))
    axes.plot([0, end], [0, end], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.scatter(x, y, s=11, color=series(index), linewidths=0, zorder=2)
    axes.set_xlabel("to first order, pixel units", color=INK)
    axes.set_ylabel("found, pixel units", color=INK)
    axes.grid(color=GRID, linewidth=0.6)
    return figure


PAGE = AuditPage(
    title="Distance to the decision boundary",
    reading=(
        "Longer is better; where the first-order distance and the one found by search differ much, rely on the "
        "search."
    ),
    place=160,
    glossary={
        "minimum_distance": Term(
            "Distance to the nearest mistake found",
            "A search looks for the nearest image that the network gets wrong; the median over images of its "
            "distance. Zero for images that are already misclassified.",
            "Higher is better. In the unit of the pixels, which go from zero to one.",
            "It is an upper bound, and much too long for a network that hides its gradients.",
        ),
        "first_order_distance": Term(
            "Distance to a mistake, to first order",
            "The gap between the logits of the right class and of its nearest rival, divided by how fast it closes:"
            " the distance if the network were linear. Negative where the image is already misclassified.",
            "Higher is better, at one layer. At the input the unit is that of the pixels, at other layers the "
            "spread of the images there.",
            "It is not a bound on the true distance. Larger at a layer inside the network is not safer at the input.",
        ),
        "adversarial_distance": Term(
            "Adversarial distance",
            "The average of the first-order distance to the nearest rival, each class counting alike; mistakes count "
            "against it.",
            "Higher is better, in the unit of the pixels. It is what strong weight decay makes larger.",
            "It is an average: many images may still be close to a mistake. Images without a distance are left out.",
        ),
        "error_distance": Term(
            "Error distance",
            "How deep the mistakes lie on the wrong side, to first order, on average over all images; images that are "
            "right count as zero.",
            "Lower is better. It is what weak weight decay makes smaller.",
            "It may be small with many mistakes, if all of them are near the boundary.",
        ),
        "local_scale": Term(
            "Local scale",
            "How fast the gap between the logits of the right class and of its nearest rival closes when the image "
            "is changed; the median over images.",
            "Neither direction is better: it is the factor between a gap and a distance.",
            "A network with large logits has a large one, and is not less robust because of it.",
        ),
        "tilting_angle": Term(
            "Tilting angle",
            "The angle between the direction in which an image has to be changed to become a mistake, and the one "
            "from its class to the rival class: between the averages, or to the nearest image of it. In radians; the "
            "median.",
            "Small: the image has to be turned into the other class. Near a right angle (1.57): the boundary lies "
            "along the data, and a meaningless change is enough.",
            "In many dimensions most directions are nearly at right angles: compare methods.",
        ),
        "bisected_distance": Term(
            "Distance along the gradient",
            "How far an image must be moved straight along the gradient until the rival wins; the median. It is zero "
            "for mistakes.",
            "Compare it with the first-order distance: where both agree, the network is nearly linear along the way.",
            "It is an upper bound, and does not stay within the range of pixels.",
        ),
        "mirror_share": Term(
            "Images with a mirror image",
            "The share of images for which a point on the other side was found where the network is as confident in"
            " the rival as it is in the image's own class.",
            "Near one is usual; for a linear network it is one.",
            "Mirror images are not kept within the range of pixels.",
        ),
        "mirror_stretch": Term(
            "Distance to the mirror image",
            "How much farther than twice the first-order distance the mirror image is; the median of the ratio.",
            "One: as for a linear network. Above one: the network gets flatter along the way.",
            "It measures how linear the network is, not how robust.",
        ),
        "unreliable_share": Term(
            "Images whose distance is unreliable",
            "The share of images without a usable gradient, or where first order and the way along the gradient "
            "differ by more than a factor of two.",
            "Lower is better. Near zero the first-order numbers are reliable.",
            "Agreement along one line does not prove that there is no nearer mistake elsewhere.",
        ),
    },
    section=boundary_section,
    over_seeds={BY_CLASS: by_class},
    drawn=("distances",),
)
