"""Pictures of likelihoods: how often they are evaded, before and after an attack, and images caught and missed."""

from markupsafe import Markup

from clearance.report.bands import bands
from clearance.report.evasions import AUDIT, OVER
from clearance.report.findings import Findings
from clearance.report.firsts import Draw, drawn_firsts, firsts
from clearance.report.gallery import Picture, picture
from clearance.report.names import method_name
from clearance.report.numbers import exact
from clearance.report.over_seeds import rows_of, stored
from clearance.report.scored_images import sheet, two_histograms
from clearance.report.scores import score_name, scores_of
from clearance.report.section import Row

SIZE = (5.9, 3.9)
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
    rows = [_evasion(findings)]
    radius = _middle_radius(findings)
    if radius is not None:
        rows += [*_histograms(findings, radius), *(_sheets(findings, radius, score) for score in SHEETS)]
    return [row for row in rows if row.pictures]


def _evasion(findings: Findings) -> Row:
    record = stored(findings, AUDIT, OVER)
    rows = [] if record is None else rows_of(record)
    found = []
    for score in scores_of(row["score"] for row in rows):
        assert record is not None
        mine = [row for row in rows if row["score"] == score]
        labels = ("radius, norm inf", "fool the network and pass")
        drawn = bands(mine, "radius", findings.methods, labels, size=SIZE, percent=True)
        caption = (
            f"{score_name(score).capitalize()}: right images for which an attack that knows it found an image that "
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
                    "normal images that look as unlikely; one in twenty and less is rejected."
                )
                found.append(picture(findings, drawn, caption, [record]))
    title = Markup("Images that fooled the network in one step of {}: caught by {}, and missed").format(
        exact(radius), score_name(score)
    )
    return Row(found, "two", title, folded=True)
