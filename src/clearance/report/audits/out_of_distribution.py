"""The page on images of things that the classifier never saw."""

from markupsafe import Markup

from clearance.report.audit_page import AuditPage, Finding, Row, Section, Term, section, with_ends
from clearance.report.drawing import draw
from clearance.report.findings import Findings
from clearance.report.numbers import ratio
from clearance.report.pictures import drawn_firsts, firsts

AUDIT, TITLE = "out_of_distribution", "Unknown images"
HALF = 0.5
OTHERS = {"auroc_softmax": "softmax", "auroc_energy": "energy"}


def detection_findings(findings: Findings) -> list[Finding]:
    """The share of such images that a threshold rejects, and of the others that it keeps."""
    rejected = findings.row("mean", AUDIT, "rejected")
    kept = findings.row("mean", AUDIT, "kept")
    if rejected is None or kept is None or rejected.low is None or rejected.high is None or kept.low is None:
        return []
    said = Markup("{} of “{}” rejected{}, by a threshold that keeps {} of other test images.").format(
        with_ends(rejected), rejected.context["unknown"], _auroc(findings), with_ends(kept)
    )
    if rejected.low <= 1 - kept.low:  # no more than it may reject of the test images
        return [
            Finding(
                TITLE,
                "problem",
                Markup("Detection fails: ") + said,
                "Expect a prediction for any image at all; do not rely on this score to reject such images.",
            )
        ]
    todo = "This is not a defence: other unfamiliar images may pass."
    if rejected.high < HALF:
        return [Finding(TITLE, "warning", Markup("Detection misses most: ") + said, todo)]
    return [Finding(TITLE, "fine", Markup("Detection: {} {}").format(said, todo))]


def _auroc(findings: Findings) -> Markup:
    """The AUROC of the score, and those of usual scores beside it."""
    own = findings.row("mean", AUDIT, "auroc")
    if own is None:
        return Markup("")
    others = [
        Markup("; {} {}").format(words, ratio(row.value))
        for name, words in OTHERS.items()
        if (row := findings.row("mean", AUDIT, name)) is not None
    ]
    return Markup(" (AUROC {}{})").format(ratio(own.value), Markup("").join(others))


def detection_section(findings: Findings) -> Section | None:
    """What other thresholds keep and reject."""
    curves = drawn_firsts(
        findings,
        firsts(findings, AUDIT, "thresholds"),
        lambda record, _: draw(record.exhibit),
        "Test images that a threshold keeps, and unknown images that it rejects: nearer to the top is better.",
    )
    return section(PAGE.title, [PAGE.reading], [Row(curves)])


NO_DEFENCE = "It is not a defence: compare it with how often an attack that knows the score passes."
PAGE = AuditPage(
    title="Out-of-distribution detection",
    reading=(
        "Higher is better for what is rejected, and about 95 % is right for what is kept; the score was fixed "
        "before anything was measured, and is not a defence."
    ),
    place=32,
    glossary={
        "rejected": Term(
            "Out-of-distribution images rejected",
            "The share of images from outside the training classes whose features lie farther from those of "
            "training images than a threshold. The threshold is chosen on one half of the test images so that it "
            "keeps 95 % of them.",
            "Higher is better; 5 % is what a random score rejects.",
            "It holds for these images. Others may pass, and so may an attack that knows the threshold: it is not a"
            " defence.",
        ),
        "kept": Term(
            "Test images kept",
            "The share of the other half of the test images that the same threshold keeps.",
            "About 95 % is right.",
            "It holds for images drawn like these.",
        ),
        "auroc": Term(
            "AUROC of out-of-distribution detection",
            "The chance that an out-of-distribution image lies farther from the training images than a test image, "
            "in the network's features.",
            "Higher is better; 50 % is guessing.",
            NO_DEFENCE,
        ),
        "auroc_softmax": Term(
            "AUROC of the largest softmax probability",
            "The same with the largest probability as score.",
            "Higher is better; 50 % is guessing.",
            NO_DEFENCE,
        ),
        "auroc_energy": Term(
            "AUROC of the energy",
            "The same with the logarithm of the summed exponentials of the logits as score.",
            "Higher is better; 50 % is guessing.",
            NO_DEFENCE,
        ),
    },
    section=detection_section,
    drawn=("thresholds",),
    findings=detection_findings,
)
