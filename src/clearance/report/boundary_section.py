"""How far images are from a mistake: as a search found it, and to first order at several layers."""

from markupsafe import Markup

from clearance.report import boundary as over
from clearance.report.compact import Compact, by_method, mean, number
from clearance.report.distance_cloud import distance_cloud
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.groups import groups
from clearance.report.names import method_name
from clearance.report.norms import LENGTHS, norm_name, norms_of
from clearance.report.over_seeds import is_summary, rows_of, stored
from clearance.report.section import Row, Section

SIZE = (5.9, 3.9)
WHAT = (
    "How far an image has to be changed until the network gets it wrong: the median over test images. A search looks "
    "for the nearest wrong image; pixels go from black at zero to white at one. Beside it stands the first-order "
    "distance, which takes the network for straight: the gap between two answers, over how fast it closes. It can be "
    "taken at any layer, and is what training with a large margin makes larger."
)
NOT_MEANT = (
    "A found distance is an upper bound: a nearer wrong image may exist. The first-order distance is no bound at all. "
    "At a layer inside the network it is in units of how widely images lie there, and larger is not safer: compare "
    "methods at one layer, and believe the search."
)
ON_AVERAGE = (
    ("adversarial distance", "adversarial_distance"),
    ("error distance", "error_distance"),
    ("local scale", "local_scale"),
    ("along the gradient, median", "bisected_distance"),
    ("not to be trusted", "unreliable_share"),
)
EUCLIDEAN = "2"  # angles are those of this norm
ANGLES = {"centroid": "angle to the rival's average", "nearest sample": "angle to its nearest image"}
LAYERS = {"input": "to first order, at the input", "features": "at the features", "logits": "at the answers"}


def boundary_section(findings: Findings) -> Section | None:
    """A picture and a table for each norm, and the single images folded away.

    >>> from clearance.records import Report
    >>> boundary_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    names = ("minimum_distance", "first_order_distance")
    norms = norms_of(row.context["norm"] for name in names for row in findings.rows("mean", over.AUDIT, name))
    tables = [table for norm in norms if (table := _table(findings, norm)) is not None]
    if not tables:
        return None
    drawn = [one for norm in norms if (one := _by_class(findings, norm)) is not None]
    parts: list[Row | Compact] = [Row(drawn), *tables] if drawn else [*tables]
    parts += [table for norm in norms if (table := _on_average(findings, norm)) is not None]
    parts += [row for norm in norms if (row := _images(findings, norm)) is not None]
    return Section("How far images are from a mistake", [WHAT, NOT_MEANT], parts)


def _by_class(findings: Findings, norm: str) -> Picture | None:
    record = stored(findings, over.AUDIT, over.BY_CLASS)
    rows = [] if record is None else [row for row in rows_of(record) if row["norm"] == norm]
    if record is None or not rows:
        return None
    names = {
        name: "all" if name == over.ALL else name for name in dict.fromkeys(row["class"] for row in rows)
    }
    drawn = groups(rows, "class", names, findings.methods, "distance found, pixel units", size=SIZE)
    caption = (
        f"Median distance to the nearest wrong image found, by class. Distance: {LENGTHS.get(norm, norm)}."
    )
    return picture(findings, drawn, f"{caption} {record.exhibit.caption}".strip(), [record])


def _table(findings: Findings, norm: str) -> Compact | None:
    wanted = {"norm": norm, "class": over.ALL}
    found = findings.rows("mean", over.AUDIT, "minimum_distance", **wanted)
    columns: dict[str | Markup, dict[str, Markup]] = {
        "found by search": {row.method: number(row.value, "", row.low, row.high) for row in found}
    }
    for row in findings.rows("mean", over.AUDIT, "first_order_distance", **wanted):
        layer = str(row.context["layer"])
        title = LAYERS.get(layer, Markup("at <code>{}</code>").format(layer))
        columns.setdefault(title, {})[row.method] = number(row.value, "", row.low, row.high)
    title = Markup("Median distance to a mistake ({})").format(norm_name(norm))
    foot = "The first two in pixel units, the others in units of the layer's own spread."
    return by_method(findings, title, columns, foot)


def _on_average(findings: Findings, norm: str) -> Compact | None:
    """The linear case's numbers, and whether first order can be believed."""
    columns: dict[str | Markup, dict[str, Markup]] = {
        title: {row.method: mean(row) for row in findings.rows("mean", over.AUDIT, name, norm=norm)}
        for title, name in ON_AVERAGE
    }
    for direction, title in ANGLES.items() if norm == EUCLIDEAN else ():
        found = findings.rows("mean", over.AUDIT, "tilting_angle", direction=direction)
        columns[title] = {row.method: mean(row) for row in found}
    title = Markup("To first order, on average over all images ({})").format(norm_name(norm))
    foot = (
        "Adversarial and error distance: each class counts alike. Angles in radians; a right angle is 1.57."
    )
    return by_method(findings, title, columns, foot if norm == EUCLIDEAN else foot.partition(" Angles")[0])


def _images(findings: Findings, norm: str) -> Row | None:
    """The single images of each method's first seed."""
    shown: dict[str, Picture] = {}
    for record in findings.exhibits(over.AUDIT, "distances"):
        mine = record.exhibit.context.get("norm") == norm and record.method in findings.methods
        if is_summary(record) or not mine or record.method in shown:
            continue
        index = findings.methods.index(record.method)
        caption = f"{method_name(record.method)}, seed {record.seed}. Dashed: where both agree."
        drawn = distance_cloud(record.exhibit.columns, index)
        shown[record.method] = picture(findings, drawn, caption, [record])
    if not shown:
        return None
    title = Markup("Image by image: the distance found over the first-order distance ({})").format(
        norm_name(norm)
    )
    return Row(list(shown.values()), "features", title, folded=True)
