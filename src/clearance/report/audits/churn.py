"""How often last layers that were rebuilt in the same way give different answers."""

from markupsafe import Markup

from clearance.report.audit_page import AuditPage, Section, Term, section
from clearance.report.findings import Findings
from clearance.report.numbers import data
from clearance.report.tables import by_method, mean

AUDIT = "churn"
WHAT = (
    "The last layers are retrained several times in the same way, and their predictions on the same test images are"
    " compared pair by pair. Layers that are always wrong in the same way agree, too: compare this with the errors."
)
CHANGED = {"first weights": "other first weights", "images": "other images"}


def churn_section(findings: Findings) -> Section | None:
    """A column for each number of images and each thing that was changed."""
    worst = {
        (row.method, row.context.get("samples"), row.context.get("differ_in")): row
        for row in findings.rows("mean", AUDIT, "worst_class_disagreement")
    }
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for row in findings.rows("mean", AUDIT, "disagreement"):
        samples, changed = int(row.context["samples"]), str(row.context["differ_in"])
        title = Markup("from {} images, {}").format(data(samples, "count"), CHANGED.get(changed, changed))
        cell = mean(row)
        if (most := worst.get((row.method, samples, changed))) is not None:
            cell += Markup("<small>worst class {}</small>").format(data(most.value, most.unit))
        columns.setdefault(title, {})[row.method] = cell
    table = by_method(
        findings, "Share of test images on which two retrained sets of last layers differ", columns
    )
    return section("Do retrained last layers agree?", [WHAT], [table])


PAGE = AuditPage(
    title="Agreement of retrained last layers",
    reading="Lower is better: where last layers trained in the same way disagree, the prediction is a matter of luck.",
    place=80,
    glossary={
        "disagreement": Term(
            "Disagreement of retrained last layers",
            "Last layers are retrained several times, from other first weights or from other images. For each pair,"
            " the share of test images on which their predictions differ; then averaged.",
            "Lower is better: it does not matter which of them is used.",
            "Layers that are always wrong in the same way agree. Compare it with the errors.",
        ),
        "worst_class_disagreement": Term(
            "Disagreement on the worst class",
            "The same for the one class of test images on which it is largest.",
            "Lower is better.",
            "The largest of several numbers is large partly by luck, the more so the fewer images a class has.",
        ),
    },
    section=churn_section,
)
