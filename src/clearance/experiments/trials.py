"""What a search has tried of each method, and which of it is best."""

from dataclasses import dataclass

CRITERIA = ("one_image_error", "own_error")
FAILED = "failed:"  # how the note on a run begins that broke down


@dataclass(frozen=True)
class Trial:
    """One candidate of one method, measured on the held-out part of the training set; means over seeds.

    Args:
        method: The method.
        lr: Its step size.
        per_class: Its images of every class for a weak head; only FOCA's candidates differ in it.
        epochs: Passes over the training images.
        one_image_error: Test error of heads retrained from one image of each class; None where the search did not ask.
        one_image_standard_error: Of that mean, over the draws of images and the seeds.
        own_error: Error of the model's own head.
        statuses: How the runs ended.
    """

    method: str
    lr: float
    per_class: int
    epochs: int
    one_image_error: float | None
    one_image_standard_error: float | None
    own_error: float
    statuses: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether a run broke down outside training, which says nothing of its settings."""
        return any(status.startswith(FAILED) for status in self.statuses)


def best(trials: list[Trial], method: str, criterion: str = "one_image_error") -> Trial:
    """The trial of a method that is best by a criterion, among those with most epochs and seeds.

    By one-image error: of all trials within one standard error of the lowest (Breiman et al. 1984), the one
    with the smallest own error. By own error: the smallest; ties go to the smaller one-image error.

    Raises:
        ValueError: If all of them failed.
    """
    most = max((_effort(trial) for trial in trials if trial.method == method), default=(0, 0))
    own = measured_trials([trial for trial in trials if _effort(trial) == most], method)
    if criterion == "own_error":
        return min(own, key=lambda trial: (trial.own_error, one_image_order(trial)))
    lowest = min(own, key=one_image_order)
    limit = one_image_order(lowest) + (lowest.one_image_standard_error or 0.0)
    alike = [trial for trial in own if one_image_order(trial) <= limit]
    return min(alike, key=lambda trial: (trial.own_error, one_image_order(trial)))


def measured_trials(trials: list[Trial], method: str) -> list[Trial]:
    """A method's trials that came to a measurement."""
    own = [trial for trial in trials if trial.method == method]
    if own and all(trial.failed for trial in own):
        reason = next(status for status in own[0].statuses if status.startswith(FAILED))
        raise ValueError(
            f"no trial of method {method!r} could be measured, so there is nothing to choose: {reason}"
        )
    return [trial for trial in own if not trial.failed]


def _effort(trial: Trial) -> tuple[int, int]:
    return trial.epochs, len(trial.statuses)


def one_image_order(trial: Trial) -> float:
    """One-image error for an order; a search that did not ask for it has none."""
    return 0.0 if trial.one_image_error is None else trial.one_image_error


def at_edge(trials: list[Trial], chosen: Trial) -> bool:
    """Whether a trial has the smallest or largest learning rate that its method was tried with."""
    tried = [trial.lr for trial in trials if trial.method == chosen.method]
    return chosen.lr in (min(tried), max(tried))
