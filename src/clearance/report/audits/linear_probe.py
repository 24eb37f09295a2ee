"""The page on a new last layer, trained on all training images."""

from markupsafe import Markup

from clearance.report.audit_page import CLOSE, Action, AuditPage, Term, points_with_ends
from clearance.report.audits.preprocessing import input_in_doubt
from clearance.report.findings import Findings


def outdone(findings: Findings) -> bool:
    """Whether a new last layer is clearly better than the network's own, and its input is not the reason."""
    row = findings.row("mean", "linear_probe", "gain")
    return row is not None and row.low is not None and row.low > CLOSE and not input_in_doubt(findings)


def _refit(findings: Findings) -> Action | None:
    row = findings.row("mean", "linear_probe", "gain")
    if row is None or row.low is None or row.high is None:
        return None
    gain = points_with_ends(row)
    if row.low > 0:
        said = Markup("A new last layer, trained on all training images, gains {}.").format(gain)
        if input_in_doubt(findings):
            return Action("Free refit", said, "Mend the input first: that may be all of it.")
        todo = "Refit the last layer before you ship."
        if outdone(findings):
            return Action("Free refit", said + DAMAGED, todo, alarm=True)
        return Action("Free refit", said, todo)
    if row.high < 0:
        return Action(
            "Free refit",
            Markup("Nothing to gain, a new last layer is right less often: {}.").format(gain),
        )
    return Action("Free refit", Markup("Nothing to gain that these images would tell: {}.").format(gain))


DAMAGED = Markup(
    " What enters the last layer tells the classes apart better than the layer does: the layer was damaged, or not "
    "trained to the end, or on other images or labels."
)


PAGE = AuditPage(
    title="With a new last layer from all training images",
    reading="Where the interval of the gain lies above zero, the network's own last layer leaves accuracy unused.",
    place=90,
    glossary={
        "error": Term(
            "Error with a new last layer",
            "One linear layer is trained anew on what the network makes of all training images; the mean over several.",
            "Lower is better; beside it stands what it gains.",
            "It says nothing of what further training of the whole network would do.",
        ),
        "gain": Term(
            "Accuracy that a new last layer gains",
            "The error of the network's own last layers less that of the new one, on the same test images.",
            "About 0 there is nothing to gain. Clearly above 0 the last layers leave accuracy unused.",
            "Below 0 the network's own last layers are better than a single linear one, which is ordinary.",
        ),
        "diverged_heads": Term(
            "New last layers that broke down",
            "How many of the new last layers could not be trained; each counts as guessing.",
            "0 is what one wants.",
            "Above 0 the error beside it is no measure of the features.",
        ),
    },
    action=_refit,
)
