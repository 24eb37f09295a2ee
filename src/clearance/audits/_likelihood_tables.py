"""The scores behind the measurements: image by image, and the thresholds in this model's own units."""

from typing import Any

from clearance.audits._detection import lowest_for_nan
from clearance.audits._likelihood_findings import AUDIT
from clearance.audits._likelihood_scores import DENSITY, LIKELIHOOD, named_class
from clearance.audits._likelihood_sets import NormalImages
from clearance.audits.rejection import p_values
from clearance.vocabulary import Exhibit


def tables(normal: NormalImages, epsilon: float) -> list[Exhibit]:
    """Two exhibits of numbers that nothing draws, because they mean nothing beside those of another model.

    ``scores``: for each normal image its class, what it was taken for, its ``likelihood``, the ``density`` where the
    head has one, and ``p``, the share of held-out images that are as unlikely. ``thresholds``: what each score is held
    against, so that a program can reject images of its own.

    Args:
        normal: The images.
        epsilon: For the scores of pixels.
    """
    return [_scores(normal), _thresholds(normal, epsilon)]


def _scores(normal: NormalImages) -> Exhibit:
    scores, logits = normal.seen
    classes = normal.data.classes
    columns: dict[str, list[Any]] = {
        "class": [classes[k] for k in normal.data.labels.tolist()],
        "taken for": [named_class(classes, k) for k in logits.argmax(dim=1).tolist()],
        "p": p_values(normal.seen_held_out[0][LIKELIHOOD], scores[LIKELIHOOD]).tolist(),
    }
    columns |= {
        name: lowest_for_nan(scores[name]).tolist() for name in (LIKELIHOOD, DENSITY) if name in scores
    }
    caption = "Log-densities of normal images, in this model's own unit."
    return Exhibit(AUDIT, "scores", "histogram", columns, caption)


def _thresholds(normal: NormalImages, epsilon: float) -> Exhibit:
    limits = normal.thresholds(epsilon)
    columns: dict[str, list[Any]] = {"score": list(limits), "threshold": list(limits.values())}
    caption = "Below these scores a normal image falls in at most 5 % of cases."
    return Exhibit(AUDIT, "thresholds", "histogram", columns, caption)
