"""The page on the smallest change that changes the answer."""

import math

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import ALARM, AuditPage, Finding, Term, with_ends
from clearance.report.findings import Findings
from clearance.report.numbers import data, half_width, levels

TITLE = "Smallest change"
DOUBTS = {
    "missed_flips": Markup(
        "for {} of these images a search without gradients finds a change of that size, and this search does not"
    ),
    "no_gradient": Markup("{} of these images have no gradient"),
}


def _flip_size(findings: Findings) -> list[Finding]:
    size = findings.row("mean", "minimal_perturbation", "median_flip")
    noise = findings.row("mean", "minimal_perturbation", "noise_flipped")
    if size is None or noise is None or size.value == 0:  # where no image is right it is 0
        return []
    said = Markup(
        "For half of the correctly classified images, {} changes the prediction; random noise of that size changes it"
        " for {}."
    ).format(_change(size), data(noise.value, noise.unit))
    if not math.isfinite(size.value):
        said = Markup(
            "For half of the correctly classified images or more, the search found no change that changes the"
            " prediction."
        )
    for under in findings.rows("mean", "minimal_perturbation", "accuracy_under_attack"):
        radius = float(under.context["epsilon"])
        of_size = data(radius, "") if _is_length(under) else levels(radius)
        said += Markup(" At {}, at most {} of all images are right.").format(of_size, with_ends(under))
    doubts = [
        words.format(data(row.value, row.unit))
        for name, words in DOUBTS.items()
        if (row := findings.row("mean", "minimal_perturbation", name)) is not None and row.value > ALARM
    ]
    if doubts:
        said += Markup(" But ") + Markup("; ").join(doubts) + Markup(". The true size may be smaller.")
        return [Finding(TITLE, "problem", said, "Do not call this network robust.")]
    return [
        Finding(
            TITLE,
            "information",
            said,
            "Do not rely on it where someone could profit from a wrong prediction.",
        )
    ]


def _is_length(row: SummaryRow) -> bool:
    return row.context.get("norm") == "2"


def _change(size: SummaryRow) -> Markup:
    """A change of the median size, with its interval."""
    half = half_width(size.low, size.high)

    def shown(value: float) -> Markup:
        return data(value, "", half) if _is_length(size) else levels(value, half)

    found = shown(size.value)
    if size.low is not None and size.high is not None:
        found += Markup(" ({} to {})").format(shown(size.low), shown(size.high))
    if _is_length(size):
        return Markup("a change of Euclidean length {}, with pixels from 0 to 1,").format(found)
    return Markup("changing every pixel by at most {} of the range from black to white").format(found)


PAGE = AuditPage(
    title="Smallest change that changes the prediction",
    reading=(
        "Larger is better, as long as the warning counts stay near zero. The change is chosen by an attacker; it "
        "does not happen by chance."
    ),
    place=34,
    glossary={
        "median_flip": Term(
            "Change that flips half of the predictions",
            "How much an attacker has to change an image until the prediction is wrong; the median over correctly "
            "classified images. Pixels range from 0 to 1.",
            "Higher is better.",
            "It is the smallest change found: there may be smaller ones. Read it together with its warnings.",
        ),
        "accuracy_under_attack": Term(
            "Accuracy under this attack",
            "The share of images that are right and that no change found within the radius makes wrong.",
            "Higher is better.",
            "It is an upper bound: the audit robustness attacks harder and may find fewer.",
        ),
        "noise_flipped": Term(
            "Flipped by noise of that size",
            "The share of these images whose prediction changes under random noise of that size.",
            "Near 0 is usual: the change has to be chosen for the network.",
            "One draw of noise for each image.",
        ),
        "missed_flips": Term(
            "Warning: flips that the search missed",
            "The share of these images for which a search without gradients found a change of that size, and the "
            "search for the smallest one did not.",
            "0 is right. Far above 0 the size is overestimated: the network hides its gradients.",
            "The search without gradients itself finds few of them.",
        ),
        "no_gradient": Term(
            "Warning: images without a gradient",
            "The share of these images that no small change of any pixel seems to move.",
            "0 is right. Far above 0 the size is overestimated.",
            "It examines the image itself, not its neighbourhood.",
        ),
    },
    findings=_flip_size,
)
