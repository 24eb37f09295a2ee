"""The page on how many images stay right under attack, and what speaks against these numbers."""

from typing import Any

from markupsafe import Markup, escape

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report.audit_page import AuditPage, Finding, Row, Section, Term, section, with_ends
from clearance.report.drawing import bands
from clearance.report.findings import Findings
from clearance.report.names import NORMS, in_usual_order, method_name, norm_name
from clearance.report.numbers import data, exact
from clearance.report.over_seeds import (
    bars,
    curves,
    rows_of,
    stored,
    summary_exhibit,
    with_interval,
)
from clearance.report.pictures import Picture, picture
from clearance.report.tables import Compact, Line, by_method, mean, means, small_print

AUDIT = "robustness"
CURVES, ALARMS = "accuracy_over_radius", "alarms_over_seeds"
# How a measurement and a column of the runs' own exhibits are called, for each kind of attack.
KINDS = {
    "worst case": "robust_accuracy",
    "cross-entropy attacks": "cross_entropy_attack_accuracy",
    "noise": "noise_accuracy",
    "transfer": "transfer_accuracy",
}


def over_radius(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm, kind of attack and radius; at radius 0 nothing is attacked."""
    rows = [
        with_interval(row, norm=row.context["norm"], attacks=kind, radius=row.context["epsilon"])
        for kind, name in KINDS.items()
        for row in findings.rows("mean", AUDIT, name)
    ]
    shaded = bars(findings, "Shaded") or "Shaded: 95 % interval over images."
    return summary_exhibit(findings, AUDIT, CURVES, [*_unattacked(findings), *rows], shaded) if rows else None


def _unattacked(findings: Findings) -> list[dict[str, Any]]:
    """The accuracy on the same images without an attack, which the runs' exhibits begin with."""
    records = findings.exhibits(AUDIT, "under_attack")
    return [
        {
            "method": row["method"],
            "norm": norm,
            "attacks": kind,
            "radius": 0.0,
            **{key: row[key] for key in ("mean", "low", "high", "seeds")},
        }
        for norm in dict.fromkeys(one.exhibit.context.get("norm") for one in records)
        for kind in KINDS
        for row in curves(
            [one for one in records if one.exhibit.context.get("norm") == norm],
            "radius",
            kind,
            findings.methods,
            most=1.0,
        )
        if row["radius"] == 0
    ]


def alarms(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm and reason: from which radius to which, at how many runs, and its largest share."""
    seen: dict[tuple[Any, ...], list[tuple[Any, dict[str, Any]]]] = {}
    for method in findings.methods:
        for record in findings.exhibits(AUDIT, "alarms"):
            if record.method == method:
                for row in rows_of(record):
                    what = (method, record.exhibit.context.get("norm"), row["about"], row["reason"])
                    seen.setdefault(what, []).append((record.seed, row))
    rows = [
        {
            **dict(zip(("method", "norm", "about", "reason"), what, strict=True)),
            "from": min(row["radius"] for _, row in found),
            "to": max(row["radius"] for _, row in found),
            "share": max(row["share"] for _, row in found),
            "runs": float(len({seed for seed, _ in found})),
        }
        for what, found in seen.items()
    ]
    return summary_exhibit(findings, AUDIT, ALARMS, rows, "Reasons to doubt accuracies under attack.")


SIZE = (5.9, 3.9)
WHAT = (
    "Images were changed on purpose so that the network misclassifies them, by at most a radius. An image counts as"
    " right only if it stays right under each of several attacks, none of which depends on the scale of the logits."
    " Pixels go from black at zero to white at one."
)
NOT_MEANT = (
    "A number here is an upper bound: a stronger attack may break more images. It says nothing about other changes,"
    " such as rotated or darker images, and numbers at different radii or norms cannot be compared. The accuracy "
    "under plain attacks on cross-entropy is dashed and in small print. It serves only as a warning: where it lies "
    "far above the worst case, these attacks were misled, and the network is not more robust."
)
NO_ALARM = "No warnings: no sign was found against these numbers."
UNNAMED = "Reasons for doubt were counted (see the table of all numbers); these records do not name them."
BESIDE = (
    "In small print below the interval: the accuracy under plain attacks, under noise of the same size, and, if "
    "there is a transfer, on images made on another network."
)
ABOUT = {
    "verdict": "the worst case: attacks were too weak",
    "plain attacks": "plain attacks only",
    "network": "the network: it names no class",
}


def robustness_section(findings: Findings) -> Section | None:
    """A curve and a table for each norm, then every reason for an alarm in words."""
    rows = findings.rows("mean", AUDIT, "robust_accuracy")
    norms = in_usual_order((row.context.get("norm") for row in rows), NORMS)
    tables = [table for norm in norms if (table := _table(findings, norm)) is not None]
    if not tables:
        return None
    drawn = Row([one for norm in norms if (one := _picture(findings, norm)) is not None])
    said = [WHAT, NOT_MEANT, *_calm(findings)]
    parts = [drawn, *tables, _signs(findings, norms), _alarms(findings)]
    return section("Accuracy under attack", said, parts)


def _under_attack(findings: Findings) -> list[Finding]:
    """What is left at the smallest radius of each norm."""
    rows = findings.rows("mean", AUDIT, "robust_accuracy")
    found = []
    for norm in in_usual_order((row.context.get("norm") for row in rows), NORMS):
        row = min((row for row in rows if row.context.get("norm") == norm), key=_radius)
        said = Markup("Under the worst of all attacks, {} of {} images stay right with {} {} ({}).").format(
            with_ends(row),
            data(row.n, "count"),
            NORMS.get(norm, "a radius of"),
            exact(_radius(row)),
            norm_name(norm),
        )
        alarms = findings.row("mean", AUDIT, "alarms", norm=norm, epsilon=row.context["epsilon"])
        if alarms is not None and alarms.value > 0:
            said += Markup(" But the attacks show signs of failing.")
            if row.value > 0:
                said += Markup(" The true share may be lower.")
            found.append(Finding("Under attack", "problem", said, "Do not call this network robust."))
        else:
            found.append(Finding("Under attack", "information", said))
    return found


def _radius(row: SummaryRow) -> float:
    return float(row.context["epsilon"])


def _picture(findings: Findings, norm: str) -> Picture | None:
    record = stored(findings, AUDIT, CURVES)
    rows = [] if record is None else [row for row in rows_of(record) if row["norm"] == norm]
    if record is None or not rows:
        return None
    drawn = bands(
        [row for row in rows if row["attacks"] == "worst case"],
        "radius",
        findings.methods,
        (f"radius, norm {norm}", "accuracy on test images"),
        size=SIZE,
        percent=True,
        dashed=[row for row in rows if row["attacks"] == "cross-entropy attacks"],
    )
    words = NORMS.get(norm, f"norm {norm}").capitalize()
    caption = (
        f"{words}. Solid: the worst case. {record.exhibit.caption} Dashed: plain attacks, only as a warning."
    )
    return picture(findings, drawn, caption, [record])


def _table(findings: Findings, norm: str) -> Compact | None:
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", AUDIT, "robust_accuracy", norm=norm):
        title = Markup("radius {}").format(exact(float(row.context["epsilon"])))
        columns.setdefault(title, {})[row.method] = mean(row) + _beside(findings, row)
    title = Markup("Accuracy under the worst of all attacks: {} ({})").format(
        NORMS.get(norm, "as the norm says"), norm_name(norm)
    )
    return by_method(findings, title, columns, BESIDE)


def _beside(findings: Findings, row: SummaryRow) -> Markup:
    """In small print what plain attacks, noise and images made on another network leave at the same radius."""
    place = {"method": row.method, "norm": row.context["norm"], "epsilon": row.context["epsilon"]}
    names = {
        "plain attacks": "cross_entropy_attack_accuracy",
        "noise": "noise_accuracy",
        "transfer": "transfer_accuracy",
    }
    return small_print({words: findings.row("mean", AUDIT, name, **place) for words, name in names.items()})


def _signs(findings: Findings, norms: list[str]) -> Compact | None:
    """What must be near zero if attacks could follow the gradient."""
    columns: dict[str | Markup, dict[str, Markup]] = {}
    blind = (("logit_margin", "no gradient"), ("cross_entropy", "no gradient of cross-entropy"))
    for loss, words in blind:
        columns[words] = means(findings, AUDIT, "zero_gradients", loss=loss)
    for norm in norms:
        title = Markup("accuracy where every pixel may change, {}").format(norm_name(norm))
        columns[title] = means(findings, AUDIT, "full_radius_accuracy", norm=norm)
    foot = (
        "Shares of images. All should be close to zero: attacks follow gradients, and within a radius that reaches "
        "every possible image, a working attack leaves no image right."
    )
    return by_method(findings, "Were the attacks misled?", columns, foot)


def _alarms(findings: Findings) -> Compact | None:
    """Every reason, a line each."""
    record = stored(findings, AUDIT, ALARMS)
    if record is None:
        return None
    lines = [
        Line(
            method_name(row["method"]),
            findings.methods.index(row["method"]),
            [
                _words(_with_share(row["reason"], row["share"])),
                _words(ABOUT.get(row["about"], row["about"])),
                Markup("<code>{}</code>").format(row["norm"]),
                Markup(" to ").join(map(exact, dict.fromkeys((row["from"], row["to"])))),
                data(row["runs"], "count"),
            ],
        )
        for row in rows_of(record)
        if row["method"] in findings.methods
    ]
    columns = [_words("What was seen"), _words("Casts doubt on"), "Norm", "Radius", "Runs"]
    foot = "Each share is the largest of those runs and radii."
    return Compact("Warnings", columns, lines, foot, (exhibit_file(record),))


def _with_share(reason: str, share: float) -> Markup:
    """The reason with its share, which is the largest of several runs and radii.

    >>> _with_share("noise leaves {}", 0.5).striptags().replace("\u202f", " ")
    'noise leaves 50.0 %'
    """
    before, _, after = reason.partition("{}")
    return Markup("{}{}{}").format(before, data(share, "fraction"), after)


def _words(text: str | Markup) -> Markup:
    """Words in a table, which may run over several lines."""
    return Markup('<span class="words">{}</span>').format(text)


def _calm(findings: Findings) -> list[Markup]:
    """That there was no alarm, or that there was one whose words are not known; otherwise a table says it."""
    counted = findings.rows("mean", AUDIT, "alarms")
    if stored(findings, AUDIT, ALARMS) or not counted:
        return []
    return [escape(UNNAMED if any(row.value > 0 for row in counted) else NO_ALARM)]


_ALARM_ONLY = "It serves only as a warning: never read it as robustness."
PAGE = AuditPage(
    title="Accuracy under the worst of all attacks",
    reading="Higher is better, but meaningless with a warning: then attacks failed for a reason other than robustness.",
    place=36,
    glossary={
        "robust_accuracy": Term(
            "Accuracy under the worst of all attacks",
            "Images are changed on purpose, by no more than a radius. An image counts as right only if the network "
            "is right without an attack and after each of several attacks, none of which depends on the scale of "
            "the logits.",
            "Higher is better, at the same radius and norm. Close to the accuracy without an attack means that no "
            "attack worked.",
            "It is an upper bound: a better attack may break more images. Networks that hide their gradients get "
            "numbers that are too high; the warnings show where that is likely.",
        ),
        "cross_entropy_attack_accuracy": Term(
            "Accuracy under plain attacks",
            "The same with the attacks of most papers, which follow the gradient of cross-entropy.",
            "Close to the worst case is right. Far above it, these attacks were misled, usually by large logits.",
            _ALARM_ONLY,
        ),
        "noise_accuracy": Term(
            "Accuracy under noise",
            "The same images, each with one random change of the same size instead of an attack.",
            "It should be well above the worst case: an attack that is no better than noise does not work.",
            "It is one draw, and says nothing about an attacker.",
        ),
        "transfer_accuracy": Term(
            "Accuracy on images made on another network",
            "Images are made with the gradients of another network and shown to this one. They count in the worst "
            "case.",
            "It should be above the worst case. If such images do more harm than the network's own gradients, the "
            "gradients are hidden, and a warning is shown.",
            "A high number may only show that the two networks differ.",
        ),
        "alarms": Term(
            "Number of warnings",
            "How many signs were found that attacks were too weak.",
            "Zero is right. The warnings are listed with the numbers under attack.",
            "No warning is not a certificate: signs can be missing.",
        ),
        "full_radius_accuracy": Term(
            "Accuracy where every pixel may change",
            "The radius is so large that every possible image lies within it.",
            "Close to zero is right: some image of another class is always within reach. More means that the "
            "attacks got stuck.",
            "It is a test of the attack, not of the network.",
        ),
        "zero_gradients": Term(
            "Images without a gradient",
            "The share of correctly classified images at which a loss has zero gradient.",
            "Zero is right. With cross-entropy it means that logits are too large; with the gap between logits, "
            "that the network is piecewise constant.",
            "A nonzero gradient may still lead nowhere.",
        ),
    },
    section=robustness_section,
    over_seeds={CURVES: over_radius, ALARMS: alarms},
    drawn=(
        "under_attack",
        "alarms",
    ),
    findings=_under_attack,
)
