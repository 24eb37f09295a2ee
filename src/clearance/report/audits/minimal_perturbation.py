"""The page on the smallest change that changes the answer."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import ALARM, Action, AuditPage, Term
from clearance.report.findings import Findings
from clearance.report.numbers import data, half_width, levels

DOUBTS = {
    "missed_flips": Markup("a search without gradients flips {} of the others within it"),
    "no_gradient": Markup("{} of the images have no gradient"),
}


def _flip_size(findings: Findings) -> Action | None:
    size = findings.row("mean", "minimal_perturbation", "median_flip")
    noise = findings.row("mean", "minimal_perturbation", "noise_flipped")
    if size is None or noise is None:
        return None
    said = Markup(
        "Half of the images it is right on can be flipped by changing every pixel by at most {} of the range from "
        "black to white; random noise of that size flips {}."
    ).format(_size_with_ends(size), data(noise.value, noise.unit))
    doubts = [
        words.format(data(row.value, row.unit))
        for name, words in DOUBTS.items()
        if (row := findings.row("mean", "minimal_perturbation", name)) is not None and row.value > ALARM
    ]
    if doubts:
        said += Markup(" ALARM: ") + Markup("; ").join(doubts) + Markup(". The true size is smaller.")
        return Action("Flip size", said, "Do not call this network robust.", alarm=True)
    return Action("Flip size", said, "Do not rely on it where somebody gains from a wrong answer.")


def _size_with_ends(size: SummaryRow) -> Markup:
    half = half_width(size.low, size.high)
    if size.low is None or size.high is None or half is None:
        return levels(size.value)
    ends = Markup("{} to {}").format(levels(size.low, half), levels(size.high, half))
    return Markup("{} ({})").format(levels(size.value, half), ends)


PAGE = AuditPage(
    title="The smallest change that changes the answer",
    reading="Larger is better, as long as the alarm counts beside it stay near zero; it is a change that somebody "
    "aims, not one that happens by itself.",
    place=110,
    glossary={
        "median_flip": Term(
            "Change that flips half of the images",
            "How much an image has to be changed, aimed at the network, until it answers wrongly; the median over "
            "images that it is right on. In the range of pixels from 0 to 1.",
            "Higher is better.",
            "It is the smallest change that was found: there may be smaller ones. Read it with its alarm.",
        ),
        "noise_flipped": Term(
            "Flipped by noise of that size",
            "The share of these images that random noise flips, as large as the change that flips half of them.",
            "Near 0 is usual: the change has to be aimed.",
            "One draw of noise for each image.",
        ),
        "missed_flips": Term(
            "Alarm: flips that the search missed",
            "The share of these images for which a search without gradients found a change of that size, and the "
            "search for the smallest one did not.",
            "0 is what one wants. Far above it the size is too large: the network hides its gradients.",
            "The search without gradients finds few of them itself.",
        ),
        "no_gradient": Term(
            "Alarm: images without a gradient",
            "The share of these images that no small change of any pixel seems to move.",
            "0 is what one wants. Far above it the size is too large.",
            "It looks at the image itself, not at its neighbourhood.",
        ),
    },
    action=_flip_size,
)
