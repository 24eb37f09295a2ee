"""The page on how often a network is wrong."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import Action, AuditPage, Term
from clearance.report.findings import Findings
from clearance.report.numbers import data, half_width, rest, rest_interval


def _accuracy(findings: Findings) -> Action | None:
    row = findings.own_error(findings.methods[0])
    if row is None:
        return None
    said = Markup("{} of {} test images are classified correctly").format(_right(row), data(row.n, "count"))
    expected = findings.report.recipe.get("expected_accuracy")
    if expected is not None:
        said += Markup("; its owner says {}").format(data(expected, "fraction"))
    return Action("Accuracy", said + "." + _further_outputs(findings), first=True)


def _further_outputs(findings: Findings) -> Markup:
    """What was taken for granted of a network that has more outputs than there are classes."""
    outputs = findings.report.recipe.get("outputs")
    if outputs is None:
        return Markup("")
    return Markup(
        " It has {} outputs: the first {} are taken as the classes in the order of their names, and a prediction of"
        " any other output counts as wrong. If the classes are in another order, the numbers on this page are not "
        "valid."
    ).format(data(outputs["of the model"], "count"), data(outputs["classes"], "count"))


def _right(error: SummaryRow) -> Markup:
    """The share of right answers with its interval, as its owner says it, too."""
    if error.low is None or error.high is None:
        return rest(error.value)
    shown = rest(error.value, half_width(error.low, error.high))
    return Markup("{} ({})").format(shown, rest_interval(error.low, error.high))


PAGE = AuditPage(
    title="As trained",
    reading=(
        "Lower is better, and the test images count: a much lower error on the training images shows how much was "
        "memorised."
    ),
    place=10,
    glossary={
        "error": Term(
            "Error with its own last layers",
            "The share of images that the network gets wrong as it was trained, from input to prediction.",
            "Lower is better; 0 % is never wrong. Guessing among ten equally common classes is wrong on 90 %. "
            "Much lower on the training images than on the test images means that images were memorised.",
            "It does not say how the network behaves on images from elsewhere, or on altered ones.",
        ),
    },
    action=_accuracy,
)
