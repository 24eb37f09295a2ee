"""How a run went from epoch to epoch, and where a look at the validation images would have stopped it."""

from clearance.audits import Findings
from clearance.regimes import FitResult
from clearance.vocabulary import Exhibit, Measurement

LABELS = {"validation_error": "validation error", "test_error": "test error"}


def epoch_findings(result: FitResult, test_images: int) -> Findings:
    """The errors after every epoch as a picture, and the test error at the epoch that validation would choose.

    Nothing is chosen by the test curve: the verdict is that of the last epoch. Beside it stands the first epoch with
    the lowest error on the validation images, whose labels are as noisy as those of the training images are.

    Args:
        result: What ``fit`` gave with ``watched={"test": ...}``; without, there is nothing to say.
        test_images: What the test error was taken over.

    >>> from clearance.heads import MLP
    >>> from clearance.models import Classifier
    >>> from clearance.vocabulary import Outcome, Status
    >>> import torch
    >>> rows = [{"epoch": 1, "validation_error": 0.4, "test_error": 0.1},
    ...         {"epoch": 2, "validation_error": 0.5, "test_error": 0.05}]
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> found = epoch_findings(FitResult(model, Status(Outcome.FINISHED, 2), rows), 20)
    >>> [(m.name, m.value) for m in found.measurements]
    [('early_stopped_error', 0.1), ('early_stopped_epoch', 1)]
    """
    rows = [row for row in result.history if "test_error" in row]
    if not rows:
        return Findings(())
    shown = [name for name in LABELS if name in rows[0]]
    columns = {
        "epoch": [row["epoch"] for row in rows],
        **{LABELS[name]: [row[name] for row in rows] for name in shown},
    }
    caption = (
        "Errors after every epoch, that of validation against labels as noisy as those trained on. The test error is "
        "for the picture only: nothing was chosen by it."
    )
    picture = Exhibit("training", "epochs", "curve", columns, caption)
    if "validation_error" not in rows[0]:
        return Findings((), (picture,))
    best = min(rows, key=lambda row: row["validation_error"])
    context = {"chosen_on": "validation"}
    error = Measurement(
        "training", "early_stopped_error", best["test_error"], "fraction", test_images, better="lower", context=context
    )  # fmt: skip
    epoch = Measurement("training", "early_stopped_epoch", best["epoch"], "count", len(rows), context=context)
    return Findings((error, epoch), (picture,))
