"""FGSM on a finished run's network, with the gradient of its logits' cross-entropy or of its whole training loss."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from clearance.attacks.gradient import FGSM
from clearance.audits.accuracy import wilson_interval
from clearance.data import ImageSet
from clearance.experiments.build import build_objective
from clearance.experiments.saved import load_run
from clearance.models import Classifier
from clearance.objectives import Objective
from clearance.runs import read_result
from clearance.vocabulary import Measurement, Scalar

WHITE, TRAINING = "white", "white, training loss"
BOXES = (WHITE, TRAINING)
CHUNK = 500  # images at once


def attacked_numbers(run: Path, images: ImageSet, epsilons: Sequence[float], box: str) -> list[Measurement]:
    """Accuracy under FGSM at each radius and without it (radius 0), and the mean posterior of the predicted class.

    Args:
        run: The directory of a finished run.
        images: Which images.
        epsilons: Largest changes of a pixel, of [0, 1].
        box: ``"white"``: the gradient of cross-entropy of the logits. ``"white, training loss"``: of everything that
            the network was trained with.
    """
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, shown = load_run(run).model.to(place), images.to(place)
    loss = training_loss(run).to(place) if box == TRAINING else None
    found = []
    for epsilon in (0.0, *epsilons):
        if loss is None or epsilon == 0:
            with torch.enable_grad():
                attacked = FGSM(epsilon)(model, shown.images, shown.labels).images
        else:
            attacked = signed_steps(model, loss, shown.images, shown.labels, epsilon)
        found += _measured(model, attacked, shown.labels, {"attack": "FGSM", "box": box, "epsilon": epsilon})
    return found


def training_loss(run: Path) -> Objective:
    """The loss that a finished run was trained with, as training left it: centres, and margins at their last value."""
    saved = load_run(run)
    objective = build_objective(saved.recipe.methods[saved.method], saved.model)
    weights, _ = read_result(run)
    prefix = "objective."
    objective.load_state_dict(
        {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    )
    return objective


def signed_steps(
    model: Classifier, loss: Objective, images: Tensor, labels: Tensor, epsilon: float
) -> Tensor:
    """FGSM for a loss that reads features too: clip(x + epsilon sign(grad_x L)), one step for each image.

    Args:
        model: In evaluation mode.
        loss: Of outputs and labels; a mean over images, of which the sign of each image's gradient is free.
        images: (N, C, H, W) in [0, 1].
        labels: (N,).
        epsilon: Largest change of a pixel, at least 0.

    An image that is wrong already stays as it is, as under the library's own attacks.

    >>> from torch import nn
    >>> from clearance.objectives import CrossEntropyLoss
    >>> model = Classifier(nn.Flatten(), nn.Linear(4, 2)).eval()
    >>> images = torch.full((3, 1, 2, 2), 0.5)
    >>> moved = signed_steps(model, CrossEntropyLoss(), images, model(images).argmax(dim=1), 0.1)
    >>> bool(((moved - images).abs() - 0.1).abs().max() < 1e-6)
    True
    """
    steps = []
    for some, named in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
        with torch.enable_grad():
            outputs = model.outputs(some, tuple(dict.fromkeys(("input", *loss.layers))))
            entered = outputs.activations["input"]
            (slope,) = torch.autograd.grad(loss(outputs, named).total, entered)
        right = outputs.logits.argmax(dim=1) == named
        moved = (some + epsilon * slope.sign()).clamp(0, 1)
        steps.append(torch.where(right[:, None, None, None], moved, some))
    return torch.cat(steps)


@torch.no_grad()
def _measured(
    model: Classifier, images: Tensor, labels: Tensor, context: dict[str, Scalar]
) -> list[Measurement]:
    posterior = torch.cat([model(some).softmax(dim=1) for some in images.split(CHUNK)])
    sure, named = posterior.max(dim=1)
    right, count = int((named == labels).sum()), len(labels)
    low, high = wilson_interval(right, count)
    return [
        Measurement(
            "attacked", "accuracy", right / count, "fraction", count, low=low, high=high, better="higher",
            context={**context, "interval": "wilson 95 %"},
        ),
        Measurement(
            "attacked", "confidence", float(sure.double().mean()), "fraction", count,
            spread=float(sure.double().std()), better="lower", context=context,
        ),
    ]  # fmt: skip
