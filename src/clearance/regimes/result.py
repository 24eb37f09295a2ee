"""What training gives, and where it stands on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clearance.models.classifier import Classifier
from clearance.vocabulary import Status


@dataclass(frozen=True)
class FitResult:
    """What training gave: the model, how the run ended, and one row per epoch.

    Args:
        model: The classifier that was passed to ``fit``, trained in place, in evaluation mode.
        status: Finished, stopped, diverged (when, in which term) or collapsed.
        history: For each epoch its last step, the learning rate, the mean of every loss term over the epoch,
            and the validation error where there is one.
        seconds: Time spent in training steps and in finishing, over all resumed parts.
        counts: What the regime counted, for example weak heads that diverged.
        diagnostics: For each epoch, its number and last step, and what the regime saw besides the loss: the
            accuracy of FOCA's weak heads. Empty where there is nothing to see.
    """

    model: Classifier
    status: Status
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    diagnostics: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Args:
        step: Updates made so far.
        steps: Updates in all.
    """

    step: int
    steps: int
