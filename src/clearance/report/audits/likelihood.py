"""Whether a low likelihood gives away images that a network has not learned, and whether that can be evaded."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.audits.out_of_distribution import NO_DEFENCE
from clearance.report.drawing import Columns, bands, page_figure, shown_pixels
from clearance.report.findings import Findings
from clearance.report.names import SCORES, in_usual_order, method_name, score_name, setting
from clearance.report.numbers import exact
from clearance.report.over_seeds import bars, rows_of, stored, summary_exhibit, with_interval
from clearance.report.pictures import Draw, Picture, drawn_firsts, firsts, picture
from clearance.report.svg import GRID, INK, MUTED, cut, series
from clearance.report.tables import NONE, Compact, Line, by_method, mean, small_print

WHAT = (
    "A score measures how normal an image looks to the network; images from outside the training classes should "
    "score low. The tables show how well that works: the chance that such an image scores below a normal one; one "
    "half is guessing. A network's own likelihood is the density of its features if its last layer is a Gaussian "
    "mixture, and its largest logit otherwise. Two scores use only pixels and no network: a score that does not "
    "beat them is not a finding."
)
NOT_A_DEFENCE = (
    "None of this is a defence. The first tables show attacks that know a score: they search for images that fool "
    "the network and still look normal. What they find is a lower bound. The attacks in the tables below them do "
    "not know the scores."
)
UNITS = (
    "Likelihoods of two networks have different units and are not compared on this page: the tables compare how "
    "well each network ranks its own images."
)
ATTACKS = {"FGSM": "one step (FGSM)", "IFGSM": "many small steps (I-FGSM)"}
FOOT = (
    "Images that fooled the network, against the images they were made from. In small print: against the same "
    "images with noise of the same size; and all attacked images against all normal ones."
)
FOOT_IN_VIEW = (
    "Images that fool the network and look as normal to that score as the attack could make them, rejected or not, "
    "against the images they were made from. In small print: against the same images with noise of the same size."
)


def likelihood_section(findings: Findings) -> Section | None:
    """Evasion first, then a table for each attack, one for images never learned, one for thresholds, and pictures."""
    tables = [_evasion(findings), *_in_view(findings)]
    tables += [_under_attack(findings, attack) for attack in ATTACKS]
    tables += [_unseen(findings), _rejected(findings)]
    said = [WHAT, NOT_A_DEFENCE, UNITS]
    return section("Does a low likelihood detect unfamiliar images?", said, [*tables, *pictures(findings)])


def _in_view(findings: Findings) -> list[Compact | None]:
    """A table for each score that an attack knew, a column for each score that was asked about its images."""
    main = {"attack": "adaptive", "counted": "successful", "negatives": "originals"}
    rows = findings.rows("mean", AUDIT, "auroc", **main)
    return [
        _by_score(
            findings,
            f"Images of an attack that knows one score ({score_name(score)}): detection AUROC",
            {**main, "attacked": score},
            FOOT_IN_VIEW,
        )
        for score in in_usual_order(
            (row.context["attacked"] for row in rows if "attacked" in row.context), SCORES
        )
    ]


def _under_attack(findings: Findings, attack: str) -> Compact | None:
    """A line for each method and radius, a column for each score."""
    main = {"attack": attack, "counted": "successful", "negatives": "originals"}
    title = f"Images attacked in {ATTACKS[attack]}: detection AUROC"
    return _by_score(findings, title, main, FOOT)


def _unseen(findings: Findings) -> Compact | None:
    rows = [row for row in findings.rows("mean", AUDIT, "auroc") if "unseen" in row.context]
    return _lined(
        findings,
        "Out-of-distribution images: detection AUROC",
        rows,
        "unseen",
        _beside_unseen,
        "In small print: the share that passes where 95 % of normal images pass.",
    )


def _by_score(findings: Findings, title: str, main: Mapping[str, Any], foot: str) -> Compact | None:
    rows = findings.rows("mean", AUDIT, "auroc", **main)
    return _lined(findings, title, rows, "epsilon", _beside_attack, foot)


def _lined(
    findings: Findings, title: str, rows: list[SummaryRow], key: str, beside: Any, foot: str
) -> Compact | None:
    """A line for each method and value of a setting, a column for each score."""
    scores = in_usual_order((row.context["score"] for row in rows), SCORES)
    cells = {(row.method, row.context[key], row.context["score"]): row for row in rows}
    places = list(dict.fromkeys(row.context[key] for row in rows))
    lines = [
        Line(
            _line_name(method, key, place),
            index,
            [
                mean(row) + beside(findings, row) if (row := cells.get((method, place, score))) else NONE
                for score in scores
            ],
        )
        for index, method in enumerate(findings.methods)
        for place in places
        if any((method, place, score) in cells for score in scores)
    ]
    return Compact(title, [score_name(score) for score in scores], lines, foot) if lines else None


def _line_name(method: str, key: str, place: Any) -> Markup:
    where = Markup("radius {}").format(exact(place)) if key == "epsilon" else setting(key, place)
    return Markup("{}, {}").format(method_name(method), where)


def _beside_attack(findings: Findings, row: SummaryRow) -> Markup:
    keys = [key for key in ("attack", "attacked", "epsilon", "score") if key in row.context]
    same = {"method": row.method, **{key: row.context[key] for key in keys}}
    noise = findings.row("mean", AUDIT, "auroc", **same, counted="successful", negatives="noise")
    every = findings.row("mean", AUDIT, "auroc", **same, counted="all", negatives="originals")
    return small_print({"noise": noise, "all": every})


def _beside_unseen(findings: Findings, row: SummaryRow) -> Markup:
    same = {"method": row.method, **{key: row.context[key] for key in ("unseen", "score")}}
    return small_print({"pass": findings.row("mean", AUDIT, "fpr95", **same)})


def _rejected(findings: Findings) -> Compact | None:
    rows = findings.rows("mean", AUDIT, "rejected")
    columns: dict[str | Markup, dict[str, Markup]] = {
        score_name(score): {row.method: mean(row) for row in rows if row.context["score"] == score}
        for score in in_usual_order((row.context["score"] for row in rows), SCORES)
    }
    foot = "Thresholds were chosen on other normal images so that one in twenty of these is rejected."
    return by_method(findings, "Normal images that a threshold rejects", columns, foot)


def _evasion(findings: Findings) -> Compact | None:
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", AUDIT, "evasion"):
        score, epsilon = str(row.context["score"]), float(row.context["epsilon"])
        title = Markup("{}, radius {}").format(score_name(score), exact(epsilon))
        wanted = {"attack": "adaptive", "epsilon": epsilon, "score": score, "method": row.method}
        auroc = findings.row("mean", AUDIT, "auroc", **wanted, attacked=score, negatives="originals")
        columns.setdefault(title, {})[row.method] = mean(row) + small_print({"AUROC": auroc})
    foot = (
        "Share of correctly classified images for which an attack that knows the score found an image that fools "
        "the network and is not rejected. In small print: how well the score still separates those images from the "
        "originals (AUROC)."
    )
    return by_method(findings, "Adaptive attacks on a score: how often they pass", columns, foot)


AUDIT, OVER = "likelihood", "evasion"


def evasions(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, score and radius."""
    rows = [
        with_interval(row, score=str(row.context["score"]), radius=row.context["epsilon"])
        for row in findings.rows("mean", AUDIT, "evasion")
    ]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shade"))


EVASION_SIZE = (5.9, 3.9)
PAPER = "Wan et al. (2018)"
QUANTITIES = (
    ("likelihood", "Likelihood", "likelihood, in this network's own unit", "Fig. 4"),
    (
        "class mean",
        "Distance to the class mean",
        "minus half its square, in this network's own unit",
        "Fig. 4",
    ),
    ("probability", "Largest probability", "largest probability", "Fig. 3"),
)
SHEETS = ("likelihood", "class mean")


def pictures(findings: Findings) -> list[Row]:
    """Rows of pictures, those of single images folded away."""
    rows = [_evasion_pictures(findings)]
    radius = _middle_radius(findings)
    if radius is not None:
        rows += [*_histograms(findings, radius), *(_sheets(findings, radius, score) for score in SHEETS)]
    return rows


def _evasion_pictures(findings: Findings) -> Row:
    record = stored(findings, AUDIT, OVER)
    rows = [] if record is None else rows_of(record)
    found = []
    for score in in_usual_order((row["score"] for row in rows), SCORES):
        assert record is not None
        mine = [row for row in rows if row["score"] == score]
        labels = ("radius, norm inf", "fool the network and pass")
        drawn = bands(mine, "radius", findings.methods, labels, size=EVASION_SIZE, percent=True)
        caption = (
            f"{score_name(score).capitalize()}: correctly classified images for which an attack that knows the "
            "score found an image that "
            f"fools the network and passes. {record.exhibit.caption}"
        )
        found.append(picture(findings, drawn, caption.strip(), [record]))
    return Row(found)


def _middle_radius(findings: Findings) -> float | None:
    """Of the radii in the pictures; every radius is in the files."""
    shown = [one.exhibit.context.get("epsilon") for one in findings.exhibits(AUDIT, "likelihood")]
    radii = sorted({float(value) for value in shown if value is not None})
    return radii[(len(radii) - 1) // 2] if radii else None


def _histograms(findings: Findings, radius: float) -> list[Row]:
    """A row for each quantity, in it a picture for each method."""
    return [
        Row(
            drawn_firsts(
                findings,
                firsts(findings, AUDIT, name, epsilon=radius),
                _draw(label),
                "Grey: before the attack.",
            ),
            "features",
            Markup("{}, before and after one step of {}").format(title, exact(radius)),
            f"Compare {figure} of {PAPER}.",
        )
        for name, title, label, figure in QUANTITIES
    ]


def _draw(label: str) -> Draw:
    return lambda record, index: two_histograms(record.exhibit.columns, index, label)


def _sheets(findings: Findings, radius: float, score: str) -> Row:
    """Images that fooled each network, in two sheets: what a score caught, and what it missed."""
    found: list[Picture] = []
    for method, record in firsts(findings, AUDIT, "sheet", epsilon=radius, score=score).items():
        for caught, words in ((True, "caught"), (False, "missed")):
            drawn = sheet(record.exhibit.columns, caught)
            if drawn is not None:
                caption = (
                    f"{method_name(method)}, seed {record.seed}: {words}. Below each pair of names: the share of "
                    "normal images that look at least as unlikely; at most one in twenty is rejected."
                )
                found.append(picture(findings, drawn, caption, [record]))
    title = Markup("Images that fooled the network in one step of {}: caught by {}, and missed").format(
        exact(radius), score_name(score)
    )
    return Row(found, "two", title, folded=True)


HISTOGRAM_SIZE = (3.6, 2.9)
ACROSS = 8  # images in a row of the sheet


def two_histograms(columns: Columns, index: int, label: str) -> Figure:
    """Shares of images in bars: grey before the attack, in the method's colour after it.

    `columns` are ``from``, where bars begin, and ``before`` and ``after``, their heights; `label` is of the horizontal
    axis.

    >>> shown = {"from": [0.0, 0.5], "before": [0.25, 0.75], "after": [1.0, 0.0]}
    >>> len(two_histograms(shown, 0, "probability").axes[0].patches)      # an area and an edge for each
    4
    """
    figure, axes = page_figure(HISTOGRAM_SIZE)
    begin = [float(value) for value in columns["from"]]
    width = begin[1] - begin[0] if len(begin) > 1 else 1.0
    edges = [*begin, begin[-1] + width]
    for name, colour in (("before", MUTED), ("after", series(index))):
        heights = [100 * float(value) for value in columns[name]]
        axes.stairs(heights, edges, color=colour, fill=True, alpha=0.3)
        axes.stairs(heights, edges, color=colour, linewidth=1.3)
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("images, %", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    return figure


def sheet(columns: Columns, caught: bool) -> Figure | None:
    """The images that were caught, or those that were missed: what they are and what they were taken for.

    `columns` are ``image``, ``caught``, ``class``, ``taken for`` and ``p``, the share of normal images as unlikely.

    >>> shown = {"image": [[[[0.0, 1.0]]]], "caught": [True], "class": ["7"], "taken for": ["3"], "p": [0.01]}
    >>> sheet(shown, caught=False) is None, len(sheet(shown, caught=True).axes)
    (True, 8)
    """
    rows = [row for row in zip(*(columns[name] for name in _NAMES), strict=True) if bool(row[1]) is caught]
    if not rows:
        return None
    down = -(-len(rows) // ACROSS)
    figure = Figure(figsize=(5.9, 1.15 * down), layout="constrained")
    grid = figure.subplots(down, ACROSS, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, row in zip(grid.flat, rows, strict=False):
        _shown(axes, row)
    return figure


_NAMES = ("image", "caught", "class", "taken for", "p")


def _shown(axes: Axes, row: tuple[Any, ...]) -> None:
    pixels, _, own, taken, p = row
    axes.imshow(shown_pixels(pixels), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(f"{cut(own, 9)} → {cut(taken, 9)}\np {p:.2g}", fontsize=8.5, color=INK, pad=2)


PAGE = AuditPage(
    title="Detection by likelihood",
    reading=(
        "Higher is better for detection and lower for passing; compare scores only within one network, and read "
        "evasion first."
    ),
    place=190,
    glossary={
        "auroc": Term(
            "Detection AUROC",
            "The chance that an out-of-distribution or attacked image gets a lower score than a normal one (AUROC).",
            "100 % detects every one, 50 % is guessing; below 50 %, such images look more normal than normal ones.",
            f"Scores of pixels alone are often as good: a score that does not beat them is not a finding. {NO_DEFENCE}",
        ),
        "aupr": Term(
            "Average precision of detection",
            "Images are flagged from the lowest score up; the share of flagged images that are flagged correctly, "
            "averaged over all that are found (AUPR).",
            "Higher is better; a random score has the share of such images in the set.",
            f"It cannot be compared between sets with other shares. {NO_DEFENCE}",
        ),
        "fpr95": Term(
            "Passing when 95 % of normal images pass",
            "The share of such images that pass the threshold that 95 % of the normal ones pass (FPR95).",
            "Lower is better; 95 % is guessing.",
            NO_DEFENCE,
        ),
        "rejected": Term(
            "Normal images rejected",
            "The threshold is chosen on one half of the test images so that it rejects 5 % of them; this is the "
            "share it rejects of the other half.",
            "About 5 %, or less, is right.",
            "It holds for images drawn like these.",
        ),
        "caught": Term(
            "Images caught",
            "The share of images below that threshold, of those that fooled the network or are out of distribution.",
            "Higher is better; 5 % of normal images are lost in exchange.",
            NO_DEFENCE,
        ),
        "fooled": Term(
            "Images that fooled the network",
            "The share of correctly classified images that are wrong after an attack that does not know the detector.",
            "Lower is better, but see the worst of all attacks: this attack is weak.",
            "With large logits the attack has no gradient to follow, and the number is low for the wrong reason.",
        ),
        "evasion": Term(
            "Passing under an adaptive attack",
            "The share of correctly classified images for which an attack that knows the score found a change that "
            "fools the network and passes its threshold.",
            "Lower is better.",
            "It is a lower bound: another attack may pass more often.",
        ),
    },
    section=likelihood_section,
    over_seeds={OVER: evasions},
    drawn=(
        "likelihood",
        "class mean",
        "probability",
        "sheet",
        "scores",
        "thresholds",
    ),
)
