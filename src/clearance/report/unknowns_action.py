"""What the first screen says of images of things that the classifier never saw."""

from markupsafe import Markup

from clearance.report.action import Action, with_ends
from clearance.report.findings import Findings

TITLE = "Unknowns"


def unknowns_action(findings: Findings) -> Action | None:
    """The share of such images that a threshold rejects, and what it keeps of the others; None where nobody asked."""
    rejected = findings.row("mean", "unknowns", "rejected")
    kept = findings.row("mean", "unknowns", "kept")
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
