"""How large weights and answers are: the sizes that weight decay works on."""

from markupsafe import Markup

from clearance.report.compact import Compact, by_method, mean
from clearance.report.decay_table import decay_table
from clearance.report.findings import Findings
from clearance.report.numbers import exact
from clearance.report.section import Section

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
