"""Whether a low likelihood gives away images that a network has not learned, and whether that can be evaded."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.compact import NONE, Compact, Line, by_method, mean
from clearance.report.evasions import AUDIT
from clearance.report.findings import Findings
from clearance.report.likelihood_pictures import pictures
from clearance.report.names import method_name
from clearance.report.numbers import data, exact
from clearance.report.scores import score_name, scores_of
from clearance.report.section import Row, Section
from clearance.report.settings import setting

WHAT = (
    "A score says how normal an image looks to the network; images that it has not learned should score low. The "
    "tables say how well that works: the chance that such an image scores below a normal one, one half being guessing. "
    "A network's own likelihood is the density of its features where its last layer is one of Gaussian clouds, and the "
    "largest answer otherwise. Two scores look at pixels and at no network: what does not beat them is no finding."
)
NOT_A_DEFENCE = (
    "None of this is a defence. The first tables are of attacks that know a score: they look for images that fool "
    "the network and still look normal. What they find is a lower bound. The attacks of the tables below them know of "
    "no score."
)
UNITS = (
    "Likelihoods of two networks have two units and are compared nowhere on this page: what is compared is how well "
    "each puts its own images in order."
)
ATTACKS = {"FGSM": "one step (FGSM)", "IFGSM": "many small steps (I-FGSM)"}
FOOT = (
    "Images that fooled the network, against the very images that they were made from. In small print: against the "
    "same under noise as large, which fools nobody; and all attacked images against all normal ones."
)

FOOT_IN_VIEW = (
    "Images that fool the network and look as normal as the attack could make them to that score, rejected or not, "
    "against the very images that they were made from. In small print: against the same under noise as large."
)


def likelihood_section(findings: Findings) -> Section | None:
    """Evasion first, then a table for each attack, one for images never learned, one for thresholds, and pictures.

    >>> from clearance.records import Report
    >>> likelihood_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    tables = [_evasion(findings), *_in_view(findings)]
    tables += [_under_attack(findings, attack) for attack in ATTACKS]
    tables += [_unseen(findings), _rejected(findings)]
    shown = [table for table in tables if table is not None]
    if not shown:
        return None
    parts: list[Row | Compact] = [*shown, *pictures(findings)]
    return Section("Does a low likelihood give images away?", [WHAT, NOT_A_DEFENCE, UNITS], parts)


def _in_view(findings: Findings) -> list[Compact | None]:
    """A table for each score that an attack knew, a column for each score that was asked about its images."""
    main = {"attack": "adaptive", "counted": "successful", "negatives": "originals"}
    rows = findings.rows("mean", AUDIT, "auroc", **main)
    return [
        _by_score(
            findings,
            f"Images of an attack that knows one score ({score_name(score)}): told apart (AUROC)",
            {**main, "attacked": score},
            "epsilon",
            _beside_attack,
            FOOT_IN_VIEW,
        )
        for score in scores_of(row.context["attacked"] for row in rows if "attacked" in row.context)
    ]


def _under_attack(findings: Findings, attack: str) -> Compact | None:
    """A line for each method and radius, a column for each score."""
    main = {"attack": attack, "counted": "successful", "negatives": "originals"}
    title = f"Images changed in {ATTACKS[attack]}: told apart (AUROC)"
    return _by_score(findings, title, main, "epsilon", _beside_attack, FOOT)


def _unseen(findings: Findings) -> Compact | None:
    rows = [row for row in findings.rows("mean", AUDIT, "auroc") if "unseen" in row.context]
    return _lined(
        findings,
        "Images that were never learned: told apart (AUROC)",
        rows,
        "unseen",
        _beside_unseen,
        "In small print: the share that passes where 95 % of normal images pass.",
    )


def _by_score(
    findings: Findings, title: str, main: Mapping[str, Any], key: str, beside: Any, foot: str
) -> Compact | None:
    return _lined(findings, title, findings.rows("mean", AUDIT, "auroc", **main), key, beside, foot)


def _lined(
    findings: Findings, title: str, rows: list[SummaryRow], key: str, beside: Any, foot: str
) -> Compact | None:
    """A line for each method and value of a setting, a column for each score."""
    scores = scores_of(row.context["score"] for row in rows)
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
    return _small((("noise", noise), ("all", every)))


def _beside_unseen(findings: Findings, row: SummaryRow) -> Markup:
    same = {"method": row.method, **{key: row.context[key] for key in ("unseen", "score")}}
    return _small((("pass", findings.row("mean", AUDIT, "fpr95", **same)),))


def _small(found: tuple[tuple[str, SummaryRow | None], ...]) -> Markup:
    lines = [
        Markup("<small>{} {}</small>").format(words, data(row.value, row.unit)) for words, row in found if row
    ]
    return Markup("").join(lines)


def _rejected(findings: Findings) -> Compact | None:
    rows = findings.rows("mean", AUDIT, "rejected")
    columns: dict[str | Markup, dict[str, Markup]] = {
        score_name(score): {row.method: mean(row) for row in rows if row.context["score"] == score}
        for score in scores_of(row.context["score"] for row in rows)
    }
    foot = "Thresholds were chosen on other normal images so that one in twenty of these is rejected."
    return by_method(findings, "Normal images that a threshold rejects", columns, foot)


def _evasion(findings: Findings) -> Compact | None:
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", AUDIT, "evasion"):
        score, epsilon = str(row.context["score"]), float(row.context["epsilon"])
        title = Markup("{}, radius {}").format(score_name(score), exact(epsilon))
        wanted = {"attack": "adaptive", "epsilon": epsilon, "score": score, "method": row.method}
        every = findings.rows("mean", AUDIT, "auroc", **wanted, negatives="originals")
        # a report from before every score was asked does not say which one was attacked: it was this one
        told = next((one for one in every if one.context.get("attacked", score) == score), None)
        columns.setdefault(title, {})[row.method] = mean(row) + _small((("told apart", told),))
    foot = (
        "Share of right images for which an attack that knows the score found an image that fools the network and is "
        "not rejected. In small print: how well the score still tells what it found from the originals (AUROC)."
    )
    return by_method(findings, "With the score in view: how often an attack passes", columns, foot)
