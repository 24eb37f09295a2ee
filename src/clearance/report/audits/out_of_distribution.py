"""The page on images of things that the classifier never saw."""

from markupsafe import Markup

from clearance.report.audit_page import Action, AuditPage, Term, with_ends
from clearance.report.findings import Findings

TITLE = "Out of distribution"


def detection_action(findings: Findings) -> Action | None:
    """The share of such images that a threshold rejects, and of the others that it keeps; None if not measured."""
    rejected = findings.row("mean", "out_of_distribution", "rejected")
    kept = findings.row("mean", "out_of_distribution", "kept")
    if rejected is None or kept is None or rejected.low is None or kept.low is None:
        return None
    said = Markup(
        "The threshold that keeps 95 % of the test images rejects {} of “{}”; of other test images it keeps {}. The"
        " score is the distance of an image's features from those of the training images."
    ).format(with_ends(rejected), rejected.context["unknown"], with_ends(kept))
    if rejected.low <= 1 - kept.low:  # no more than it may reject of the test images
        said += Markup(" That is no more than it rejects of the test images.")
        return Action(TITLE, said, "Expect a prediction for any image at all.", alarm=True)
    return Action(TITLE, said, "This is not a defence: other unfamiliar images may pass.")


_KNOWN = "It is not a defence: compare it with how often an attack that knows the score passes."
PAGE = AuditPage(
    title="Out-of-distribution detection",
    reading=(
        "Higher is better for what is rejected, and about 95 % is right for what is kept; the score was fixed "
        "before anything was measured, and is not a defence."
    ),
    place=120,
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
            _KNOWN,
        ),
    },
    action=detection_action,
)
