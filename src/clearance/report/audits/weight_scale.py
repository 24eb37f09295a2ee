"""How large the weights and the logits are: the sizes that weight decay works on."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clearance.report.audit_page import AuditPage, Section, Term, section
from clearance.report.findings import Findings
from clearance.report.numbers import exact
from clearance.report.pictures import firsts
from clearance.report.tables import Compact, by_method, mean, means

AUDIT = "weight_scale"
WHAT = (
    "Large weights give large logits. With large logits a network learns only from its mistakes; with small ones, "
    "from all images. Weight decay controls the logit scale. The temperature is what logits are divided by to "
    "calibrate the network: above one, they are too large."
)
NOT_MEANT = (
    "Neither direction is better. Where normalisation follows a layer, the size of its weights does not affect the "
    "logits; see the size of the logits instead."
)
ANSWERS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("size of the logits", "logit_scale", {}),
    ("temperature, calibrated", "temperature", {"by": "likelihood"}),
    ("temperature, 95 % confidence", "temperature", {"by": "median confidence"}),
    ("training images with a loss", "active_share", {}),
    ("layers before normalisation", "normalised_layers", {}),
)


def weight_section(findings: Findings) -> Section | None:
    """A table of answers, and one of the layers' weights."""
    columns = {title: means(findings, AUDIT, name, **wanted) for title, name, wanted in ANSWERS}
    tables = [
        by_method(findings, "How large the logits are", columns),
        decay_table(findings),
        _layers(findings, "weight_rms", "Typical size of a weight (root mean square)"),
        _layers(findings, "spectral_norm", "Most that a layer can stretch its input (spectral norm)"),
    ]
    return section("How large the weights and the logits are", [WHAT, NOT_MEANT], tables)


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
    "The factor times the value. Coupled: decay is part of the gradient and passes through momentum. Decoupled: the"
    " value shrinks directly. Parameters outside the network's optimiser, such as last layers trained separately, "
    "count as not decaying."
)


def decay_table(findings: Findings) -> Compact | None:
    """A line for each method, from its first run; None where no run says."""
    records = firsts(findings, AUDIT, DECAY)
    columns = {
        title: {method: _decay(record.exhibit.columns, role) for method, record in records.items()}
        for role, title in ROLES.items()
    }
    return by_method(findings, "Which parameters decay", columns, FOOT)


def _decay(columns: Mapping[str, Sequence[Any]], role: str) -> Markup:
    """Of all parameters of a role: how many numbers decay by how much, and how.

    >>> columns = {"role": ["weight", "weight"], "numbers": [90, 10], "weight_decay": [0.1, 0.0],
    ...            "how": ["coupled", "none"]}
    >>> print(_decay(columns, "weight").striptags())
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
    title="How large the weights and the logits are",
    reading=(
        "Nothing here is better or worse: large logits and large weights explain why other numbers cannot be "
        "compared."
    ),
    place=180,
    glossary={
        "weight_rms": Term(
            "Typical size of a weight",
            "The root mean square of a layer's weights, counted from the image.",
            "Neither direction is better. Compare methods layer by layer.",
            "It means nothing where normalisation follows the layer.",
        ),
        "spectral_norm": Term(
            "Most that a layer can stretch its input",
            "The largest singular value of a layer's weights. For a convolution, of one patch.",
            "Neither direction is better. For linear layers the product bounds how fast logits can change.",
            "The bound is never reached, as layers seldom stretch in the same direction; patches that overlap add to "
            "it.",
        ),
        "logit_scale": Term(
            "Size of the logits",
            "How far the logits of an image lie from their average over classes (root mean square).",
            "Neither direction is better. Small: the network learns from all images. Large: only from mistakes.",
            "Large logits are not correct predictions.",
        ),
        "temperature": Term(
            "Calibrated temperature",
            "What logits are divided by, until confidence matches accuracy, or until the median confidence is 95 %.",
            "Above one the network is more confident than that, below one less.",
            "Dividing changes the confidence of a network, never its predictions.",
        ),
        "active_share": Term(
            "Training images with a loss",
            "The share of training images that are right, on which the loss is not yet satisfied.",
            "Near zero: the network learns only from mistakes, a sign of little regularisation. Near one: from all "
            "images.",
            "It counts images, not how much each of them contributes.",
        ),
        "normalised_layers": Term(
            "Layers before normalisation",
            "How many layers are directly followed by normalisation, which removes the effect of the size of their "
            "weights.",
            "Neither direction is better.",
            "Normalisation by later layers or by custom layers is not counted.",
        ),
    },
    section=weight_section,
    drawn=("decay",),
)
