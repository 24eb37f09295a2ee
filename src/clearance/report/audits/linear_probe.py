"""The page on a new last layer, trained on all training images."""

from markupsafe import Markup

from clearance.report.audit_page import CLOSE, AuditPage, Finding, Term, points_with_ends
from clearance.report.audits.preprocessing import input_in_doubt
from clearance.report.findings import Findings


def outdone(findings: Findings) -> bool:
    """Whether a new last layer is clearly better than the network's own, and its input is not the reason."""
    row = findings.row("mean", "linear_probe", "gain")
    return row is not None and row.low is not None and row.low > CLOSE and not input_in_doubt(findings)


def _refit(findings: Findings) -> list[Finding]:
    row = findings.row("mean", "linear_probe", "gain")
    if row is None or row.low is None or row.high is None:
        return []
    title, gain = "Linear probe", points_with_ends(row)
    if row.low > 0:
        said = Markup("A new last layer (linear probe), trained on all training images, gains {}.").format(
            gain
        )
        if input_in_doubt(findings):
            return [Finding(title, "information", said, "Fix the input first.")]
        todo = "Retrain the last layer before you deploy."
        if findings.row("mean", "preprocessing", "gain") is None:
            todo = f"First rule out that the input is wrong (the audit preprocessing). {todo}"
        return [Finding(title, "problem" if outdone(findings) else "warning", said, todo)]
    outcome = "lowers the accuracy" if row.high < 0 else "gives no significant gain"
    return [Finding(title, "fine", Markup("A new last layer (linear probe) {}: {}.").format(outcome, gain))]


PAGE = AuditPage(
    title="Linear probe",
    reading="Where the interval of the gain lies above zero, the network's own last layer leaves accuracy unused.",
    place=39,
    glossary={
        "error": Term(
            "Error of a linear probe",
            "One new linear layer is trained on the features of all training images; the mean over several.",
            "Lower is better; compare it with the gain.",
            "It does not show what more training of the whole network would do.",
        ),
        "gain": Term(
            "Accuracy gained by a linear probe",
            "The error of the network's own last layers minus that of the new one, on the same test images.",
            "Near 0 there is nothing to gain. Clearly above 0 the last layers leave accuracy unused.",
            "Below 0 the network's own last layers are better than a single linear one, which is usual.",
            difference=True,
        ),
        "diverged_heads": Term(
            "New last layers that failed to train",
            "How many of the new last layers could not be trained; each counts as guessing.",
            "0 is right.",
            "Above 0 the error does not measure the features.",
        ),
    },
    findings=_refit,
)
