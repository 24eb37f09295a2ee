"""The page on images of things that the classifier never saw."""

from markupsafe import Markup

from clearance.report.audit_page import Action, AuditPage, Term, with_ends
from clearance.report.findings import Findings

TITLE = "Unknowns"


def unknowns_action(findings: Findings) -> Action | None:
    """The share of such images that a threshold rejects, and what it keeps of the others; None where nobody asked."""
    rejected = findings.row("mean", "out_of_distribution", "rejected")
    kept = findings.row("mean", "out_of_distribution", "kept")
    if rejected is None or kept is None or rejected.low is None or kept.low is None:
        return None
    said = Markup(
        "The threshold that keeps 95 % of the test images rejects {} of “{}”; of test images that it was not chosen on "
        "it keeps {}. It goes by how far an image's features lie from those of the training images."
    ).format(with_ends(rejected), rejected.context["unknown"], with_ends(kept))
    if rejected.low <= 1 - kept.low:  # no more than it may reject of the test images
        said += Markup(" That is no more than it may reject of the test images.")
        return Action(TITLE, said, "Expect an answer to anything it is shown.", alarm=True)
    return Action(TITLE, said, "This is not a defence: other unknown things may pass.")


_KNOWN = "It is no defence: read beside it how often an attack that knows the score passes."
PAGE = AuditPage(
    title="Things it has never seen",
    reading="Higher is better for what is rejected, and about 95 % is right for what is kept; the score was "
    "settled before anything was measured, and is no defence.",
    place=120,
    glossary={
        "rejected": Term(
            "Unknown images rejected",
            "The share of images of things that the network never saw whose features lie farther from those of "
            "training images than a threshold allows. It is chosen on one half of the test images so that it keeps "
            "95 % of such.",
            "Higher is better; 5 % is what a threshold that knows nothing rejects.",
            "It holds for these images. Others may pass, and so may an attack that knows the threshold: it is no "
            "defence.",
        ),
        "kept": Term(
            "Test images kept",
            "What the same threshold keeps of the other half of the test images.",
            "About 95 % is right.",
            "It holds for images drawn like these.",
        ),
        "auroc": Term(
            "Told apart from unknown images",
            "The chance that an unknown image lies farther from the training images than a test image does, in the "
            "network's features.",
            "Higher is better; 50 % is guessing.",
            _KNOWN,
        ),
    },
    action=unknowns_action,
)
