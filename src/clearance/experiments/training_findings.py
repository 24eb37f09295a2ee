"""What a training run cost and looked like, as measurements and exhibits."""

from clearance.audits import Findings
from clearance.regimes import FitResult
from clearance.vocabulary import Exhibit, Measurement

NOT_LOSSES = ("epoch", "step", "lr", "validation_error", "test_error")


def training_findings(result: FitResult, memory: float | None = None) -> Findings:
    """Time, steps, memory and weak heads of a run, and its curves.

    Args:
        result: What ``fit`` gave.
        memory: What training added, at its highest, to what its process held before it, MiB; None where others
            shared the process.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> from clearance.models import Classifier
    >>> from clearance.vocabulary import Outcome, Status
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> found = training_findings(FitResult(model, Status(Outcome.FINISHED, 3), seconds=1.5), memory=30.0)
    >>> [(m.name, m.value) for m in found.measurements]
    [('seconds', 1.5), ('steps', 3), ('memory', 30.0)]
    """
    steps = result.status.step
    found = [
        Measurement("training", "seconds", result.seconds, "seconds", max(steps, 1), better="lower"),
        Measurement("training", "steps", steps, "count", 1),
    ]
    if memory is not None:
        found.append(Measurement("training", "memory", memory, "MiB", 1, better="lower"))
    if result.counts.get("drawn_heads"):
        drawn, bad = result.counts["drawn_heads"], result.counts["diverged_heads"]
        found.append(Measurement("training", "diverged_heads", bad, "count", drawn, better="lower"))
    return Findings(tuple(found), _curves(result))


def _curves(result: FitResult) -> tuple[Exhibit, ...]:
    curves = []
    if result.history:
        terms = [name for name in result.history[0] if name not in NOT_LOSSES]
        columns = {
            "step": [row["step"] for row in result.history],
            "loss": [sum(row[term] for term in terms) for row in result.history],
        }
        caption = "Training loss, averaged over each pass through the training images."
        curves.append(Exhibit("training", "curve", "curve", columns, caption))
    if result.diagnostics:
        names = [name for name in result.diagnostics[0] if name != "epoch"]
        columns = {name: [row[name] for row in result.diagnostics] for name in names}
        caption = "Weak heads on images that they were not trained on: accuracy, and the share at chance."
        curves.append(Exhibit("training", "weak_heads", "curve", columns, caption))
    return tuple(curves)
