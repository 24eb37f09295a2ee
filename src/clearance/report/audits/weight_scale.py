"""How large weights and answers are: the sizes that weight decay works on."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clearance.report.audit_page import AuditPage, Section, Term
from clearance.report.findings import Findings
from clearance.report.numbers import exact
from clearance.report.over_seeds import is_summary
from clearance.report.tables import Compact, by_method, mean

AUDIT = "weight_scale"
WHAT = (
    "Large weights make loud answers, and with loud answers a network learns from its mistakes alone; with quiet ones, "
    "from all images. Weight decay sets how loud. The temperature is what answers are divided by until the network is "
    "as sure as it is right: above one, it is too loud."
)
NOT_MEANT = (
    "No direction is better. Where normalisation follows a layer, the size of its weights does not reach the answers; "
    "read the answers' own size."
)
ANSWERS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("size of the answers", "logit_scale", {}),
    ("temperature, as sure as right", "temperature", {"by": "likelihood"}),
    ("temperature, 95 % sure", "temperature", {"by": "median confidence"}),
    ("training images still learnt from", "active_share", {}),
    ("layers before normalisation", "normalised_layers", {}),
)


def weight_section(findings: Findings) -> Section | None:
    """A table of answers, and one of the layers' weights.

    >>> from clearance.records import Report
    >>> weight_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns = {
        title: {row.method: mean(row) for row in findings.rows("mean", AUDIT, name, **wanted)}
        for title, name, wanted in ANSWERS
    }
    tables = [
        by_method(findings, "How loud the answers are", columns),
        decay_table(findings),
        _layers(findings, "weight_rms", "Typical size of a weight (root mean square)"),
        _layers(findings, "spectral_norm", "Most that a layer can stretch its input (spectral norm)"),
    ]
    shown = [table for table in tables if table is not None]
    return Section("How large weights and answers are", [WHAT, NOT_MEANT], shown) if shown else None


def _layers(findings: Findings, name: str, title: str) -> Compact | None:
    """A column for each layer, in the order in which they run."""
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", AUDIT, name):
        layer = str(row.context["layer"])
        head = Markup("layer {}").format(exact(int(layer))) if layer.isdecimal() else Markup("all layers")
        columns.setdefault(head, {})[row.method] = mean(row)
    return by_method(findings, title, columns)


DECAY = "decay"
ROLES = {"weight": "weights", "bias or gain": "biases and gains"}
FOOT = (
    "By so much times its value. Coupled: decay is part of the gradient, and goes through momentum. Decoupled: the "
    "value shrinks by itself. What the optimiser of the network does not move, such as last layers that are trained on "
    "their own, counts as not decaying."
)


def decay_table(findings: Findings) -> Compact | None:
    """A line for each method, from its first run; None where no run says.

    >>> from clearance.records import Report
    >>> decay_table(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns: dict[str | Markup, dict[str, Markup]] = {title: {} for title in ROLES.values()}
    for record in findings.exhibits(AUDIT, DECAY):
        if is_summary(record):
            continue
        for role, title in ROLES.items():
            columns[title].setdefault(record.method, _told(record.exhibit.columns, role))
    return by_method(findings, "Which parameters decay", columns, FOOT)


def _told(columns: Mapping[str, Sequence[Any]], role: str) -> Markup:
    """Of all parameters of a role: how many numbers decay by how much, and how.

    >>> columns = {"role": ["weight", "weight"], "numbers": [90, 10], "weight_decay": [0.1, 0.0],
    ...            "how": ["coupled", "none"]}
    >>> print(_told(columns, "weight").striptags())
    0.1, coupled (90 %); not at all (10 %)
    """
    counts: dict[tuple[str, float], int] = {}
    rows = zip(*(columns[name] for name in ("role", "how", "weight_decay", "numbers")), strict=True)
    for mine, how, factor, numbers in rows:
        if mine == role:
            counts[how, factor] = counts.get((how, factor), 0) + numbers
    parts = []
    for (how, factor), numbers in counts.items():
        what = Markup("not at all") if how == "none" else Markup("{}, {}").format(exact(factor), how)
        share = 100 * numbers / sum(counts.values())
        parts.append(what if len(counts) == 1 else Markup("{} ({:.0f} %)").format(what, share))
    return Markup("; ").join(parts) if parts else Markup("none there")


PAGE = AuditPage(
    title="How large weights and answers are",
    reading="Nothing here is better or worse: loud answers and large weights explain why other numbers cannot be "
    "compared.",
    place=180,
    glossary={
        "weight_rms": Term(
            "Typical size of a weight",
            "The root mean square of a layer's weights, counted from the image.",
            "Neither direction is better. Compare methods layer by layer.",
            "Nothing, where normalisation follows the layer.",
        ),
        "spectral_norm": Term(
            "Most that a layer can stretch its input",
            "The largest singular value of a layer's weights. Of a convolution it is that of one patch.",
            "Neither direction is better. Of linear layers the product bounds how fast answers can change.",
            "The bound is never reached, as layers seldom stretch in the same direction; patches that overlap add to "
            "it.",
        ),
        "logit_scale": Term(
            "Size of the answers",
            "How far the answers of an image lie from their average over classes (root mean square).",
            "Neither direction is better. Small: all images are learnt from. Large: mistakes alone.",
            "Loud answers are not right answers.",
        ),
        "temperature": Term(
            "Calibrated temperature",
            "What answers are divided by, until the network is as sure as it is right, or until the median image is "
            "95 % sure.",
            "Above one the network is surer than that, below one less sure.",
            "Dividing changes how sure a network is, and never what it answers.",
        ),
        "active_share": Term(
            "Training images that are still learnt from",
            "The share of training images that are right, for which the loss still asks for more.",
            "Near zero: only mistakes are learnt from, a sign of little regularisation. Near one: all images are.",
            "It counts images, and not how much each of them still changes.",
        ),
        "normalised_layers": Term(
            "Layers before normalisation",
            "How many layers are directly followed by normalisation, which takes the size of their weights away.",
            "Neither direction is better.",
            "Normalisation further on, or by a layer of your own, is not counted.",
        ),
    },
    section=weight_section,
    drawn=("decay",),
)
