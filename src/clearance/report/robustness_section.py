"""How many images stay right under attack: the worst case, what plain attacks leave, and what speaks against both."""

from markupsafe import Markup, escape

from clearance.records.derived import SummaryRow
from clearance.records.store import exhibit_file
from clearance.report import under_attack as over
from clearance.report.bands import bands
from clearance.report.compact import Compact, Line, by_method, mean
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.names import method_name
from clearance.report.norms import WORDS, norm_name, norms_of
from clearance.report.numbers import data, exact
from clearance.report.over_seeds import rows_of, stored
from clearance.report.section import Row, Section

SIZE = (5.9, 3.9)
WHAT = (
    "Images were changed on purpose so that the network gets them wrong, never by more than a radius. An image counts "
    "as right only if it stays right under every attack of a row of them, none of which can be misled by how loud "
    "the network's answers are. Pixels go from black at zero to white at one."
)
NOT_MEANT = (
    "A number here is an upper bound: an attack that nobody has tried may break more images. It says nothing about "
    "changes of another kind, such as turned or darker images, and numbers at different radii or norms cannot be "
    "compared. Dashed and in small print is what plain attacks on cross-entropy leave. It is there for the alarm "
    "alone: where it lies far above the worst case, these attacks were misled, and the network is not more robust."
)
NO_ALARM = "No alarm: nothing that was seen speaks against these numbers."
UNTOLD = (
    "Reasons for doubt were counted (see the table of all numbers); these records do not hold their words."
)
BESIDE = (
    "In small print below the interval: what is right under plain attacks, under noise of the same size, and, where "
    "there is a transfer, on images made on another network."
)
ABOUT = {"verdict": "the worst case: attacks were too weak", "plain attacks": "plain attacks only"}


def robustness_section(findings: Findings) -> Section | None:
    """A curve and a table for each norm, then every reason for an alarm in words.

    >>> from clearance.records import Report
    >>> robustness_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = findings.rows("mean", over.AUDIT, "robust_accuracy")
    norms = norms_of(row.context.get("norm") for row in rows)
    tables = [table for norm in norms if (table := _table(findings, norm)) is not None]
    if not tables:
        return None
    drawn = [one for norm in norms if (one := _picture(findings, norm)) is not None]
    further = [one for one in (_signs(findings, norms), _alarms(findings)) if one is not None]
    parts: list[Row | Compact] = [Row(drawn), *tables] if drawn else [*tables]
    said = [WHAT, NOT_MEANT, *_calm(findings)]
    return Section("How many images stay right under attack", said, [*parts, *further])


def _picture(findings: Findings, norm: str) -> Picture | None:
    record = stored(findings, over.AUDIT, over.CURVES)
    rows = [] if record is None else [row for row in rows_of(record) if row["norm"] == norm]
    if record is None or not rows:
        return None
    drawn = bands(
        [row for row in rows if row["attacks"] == "worst case"],
        "radius",
        findings.methods,
        (f"radius, norm {norm}", "right on test images"),
        size=SIZE,
        percent=True,
        dashed=[row for row in rows if row["attacks"] == "cross-entropy attacks"],
    )
    words = WORDS.get(norm, f"norm {norm}").capitalize()
    caption = f"{words}. Solid: the worst case. {record.exhibit.caption} Dashed: plain attacks, for the alarm alone."
    return picture(findings, drawn, caption, [record])


def _table(findings: Findings, norm: str) -> Compact | None:
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", over.AUDIT, "robust_accuracy", norm=norm):
        title = Markup("radius {}").format(exact(float(row.context["epsilon"])))
        columns.setdefault(title, {})[row.method] = mean(row) + _beside(findings, row)
    title = Markup("Right under the worst of all attacks: {} ({})").format(
        WORDS.get(norm, "as the norm says"), norm_name(norm)
    )
    return by_method(findings, title, columns, BESIDE)


def _beside(findings: Findings, row: SummaryRow) -> Markup:
    """In small print what plain attacks, noise and images made on another network leave at the same radius."""
    place = {"method": row.method, "norm": row.context["norm"], "epsilon": row.context["epsilon"]}
    names = (
        ("plain attacks", "cross_entropy_attack_accuracy"),
        ("noise", "noise_accuracy"),
        ("transfer", "transfer_accuracy"),
    )
    found = [(words, findings.row("mean", over.AUDIT, name, **place)) for words, name in names]
    lines = [
        Markup("<small>{} {}</small>").format(words, data(one.value, one.unit)) for words, one in found if one
    ]
    return Markup("").join(lines)


def _signs(findings: Findings, norms: list[str]) -> Compact | None:
    """What must be near zero if attacks saw what there is to see."""
    columns: dict[str | Markup, dict[str, Markup]] = {}
    blind = (("logit_margin", "no gradient at all"), ("cross_entropy", "no gradient of cross-entropy"))
    for loss, words in blind:
        found = findings.rows("mean", over.AUDIT, "zero_gradients", loss=loss)
        columns[words] = {row.method: mean(row) for row in found}
    for norm in norms:
        found = findings.rows("mean", over.AUDIT, "full_radius_accuracy", norm=norm)
        title = Markup("right where all may change, {}").format(norm_name(norm))
        columns[title] = {row.method: mean(row) for row in found}
    foot = (
        "Shares of images. All should be close to zero: attacks follow gradients, and within a radius that reaches "
        "every image there is, an attack that works leaves nothing."
    )
    return by_method(findings, "Did the attacks see what there is to see?", columns, foot)


def _alarms(findings: Findings) -> Compact | None:
    """Every reason, a line each."""
    record = stored(findings, over.AUDIT, over.ALARMS)
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
                exact(row["from"]) if row["from"] == row["to"] else _between(row["from"], row["to"]),
                data(row["runs"], "count"),
            ],
        )
        for row in rows_of(record)
        if row["method"] in findings.methods
    ]
    columns = [_words("What was seen"), _words("Speaks against"), "Norm", "Radius", "Runs"]
    foot = "Each share is the largest of those runs and radii."
    return Compact("The alarm in words", columns, lines, foot, (exhibit_file(record),))


def _with_share(reason: str, share: float) -> Markup:
    """The reason with its share, which is the largest of several runs and radii.

    >>> _with_share("noise leaves {}", 0.5).striptags().replace("\u202f", " ")
    'noise leaves 50.0 %'
    """
    before, _, after = reason.partition("{}")
    return Markup("{}{}{}").format(before, data(share, "fraction"), after)


def _between(low: float, high: float) -> Markup:
    return Markup("{} to {}").format(exact(low), exact(high))


def _words(text: str | Markup) -> Markup:
    """Words in a table, which may run over several lines."""
    return Markup('<span class="words">{}</span>').format(text)


def _calm(findings: Findings) -> list[Markup]:
    """That there was no alarm, or that there was one whose words are not known; otherwise a table says it."""
    counted = findings.rows("mean", over.AUDIT, "alarms")
    if any(row.value > 0 for row in counted):
        return [] if stored(findings, over.AUDIT, over.ALARMS) else [escape(UNTOLD)]
    return [escape(NO_ALARM)] if counted else []
