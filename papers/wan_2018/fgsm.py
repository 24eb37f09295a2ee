"""FGSM on every network, as the paper's table 6 has it, with the verdict that the scale of logits cannot move.

The paper does not say whether pixels were clipped, nor which loss the gradient is of. Here pixels are clipped, each
network is attacked with its own gradients, and the loss is cross-entropy of the logits that the network answers with;
the ledger also has the gradient of the whole training loss, margin and likelihood included.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from clearance import Classifier, ImageSet, Measurement, load_dataset
from clearance.attacks import FGSM
from clearance.losses import Loss
from clearance.research import (
    Recipe,
    Report,
    Scalar,
    build_loss,
    fixed_images,
    load_run,
    plans_of,
    read_result,
    share_of,
)
from papers.engine.ledger import JudgedStudy, TableRow
from papers.engine.study import StudyRequest, records_of, whose, with_added_records
from papers.engine.tasks import Tree
from papers.wan_2018.protocol import PAPER, PROTOCOLS, base_recipe
from papers.wan_2018.study import Column, images_note, method_table, seeds_note

# FGSM on a finished run's network, with the gradient of its logits' cross-entropy or of its whole training loss.

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


def training_loss(run: Path) -> Loss:
    """The loss that a finished run was trained with, as training left it: centres, and margins at their last value."""
    saved = load_run(run)
    loss = build_loss(saved.recipe.methods[saved.method], saved.model)
    weights, _ = read_result(run)
    prefix = "loss."
    loss.load_state_dict(
        {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    )
    return loss


def signed_steps(model: Classifier, loss: Loss, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """FGSM for a loss that reads features too: clip(x + epsilon sign(grad_x L)), one step for each image.

    Args:
        model: In evaluation mode.
        loss: Of outputs and labels; a mean over images, of which the sign of each image's gradient is free.
        images: (N, C, H, W) in [0, 1].
        labels: (N,).
        epsilon: Largest change of a pixel, at least 0.

    An image that is wrong already stays as it is, as under the library's own attacks.

    >>> from torch import nn
    >>> from clearance.losses import CrossEntropyLoss
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
    confidence, named = posterior.max(dim=1)
    right, count = int((named == labels).sum()), len(labels)
    return [
        share_of("attacked", "accuracy", right, count, "higher", context),
        Measurement(
            "attacked", "confidence", float(confidence.double().mean()), "fraction", count,
            spread=float(confidence.double().std()), better="lower", context=context,
        ),
    ]  # fmt: skip


VERDICT = "robustness"


def run(request: StudyRequest) -> Path:
    """Train every method, attack what was trained, and write the ledger; trained networks are read back.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipe = attacked_recipe(request.dataset, request.root, request.seeds)
    study = JudgedStudy(PAPER, ("fgsm",), request.dataset)
    data = study.data(recipe, request)
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    varied = PROTOCOLS[request.dataset]
    limits = {"dataset": request.dataset, "images": varied.attacked_images, "epsilons": varied.epsilons}
    work = partial(attacked_run, runs=str(request.runs), root=request.root)
    measured = with_added_records(
        found,
        plans,
        work,
        lambda plan: {**whose(plan, data.train.name, request.runs), **limits},
        "attacked",
        request,
    )
    report = request.paged(recipe, measured, study.command(request.seeds))
    return study.write_ledger(report, sections(report, request.dataset), request.out)


def attacked_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The paper's recipe, audited for the scale-proof verdict at the radii of the attack.

    >>> attacked_recipe("digits").audit_settings["robustness"]["epsilons"]
    {'inf': [0.1, 0.2, 0.3]}
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, seeds)
    verdict = {"epsilons": {"inf": list(varied.epsilons)}, "images": varied.verdict_images}
    return dataclasses.replace(
        start, audits=(*start.audits, VERDICT), audit_settings={**start.audit_settings, VERDICT: verdict}
    )


def sections(report: Report, dataset: str) -> list[str]:
    """Errors under attack next to the paper's, under the training loss, confidence, and the verdict."""
    varied = PROTOCOLS[dataset]
    radii = (0.0, *varied.epsilons)
    return [
        "## Errors under FGSM",
        f"On {images_note(report, 'attacked', 'accuracy', {'box': WHITE})} of the test set. {seeds_note(report)}",
        _table(report, dataset, "accuracy", WHITE, radii, flipped=True),
        "## The same with the gradient of the whole training loss",
        _table(report, dataset, "accuracy", TRAINING, radii, flipped=True),
        "## Posterior of the predicted class on the attacked images",
        _table(report, dataset, "confidence", WHITE, radii, flipped=False),
        "## Errors under the worst attack found: the verdict that the scale of logits cannot move",
        f"On {images_note(report, VERDICT, 'robust_accuracy', {})} of those. What FGSM leaves is no evidence of "
        "robustness; these errors are the least that is to be expected from an attacker.",
        method_table(report, [_worst(radius) for radius in varied.epsilons], dataset),
    ]


def _worst(radius: float) -> Column:
    context: dict[str, Scalar] = {"norm": "inf", "epsilon": radius}
    quantity = TableRow("", VERDICT, "robust_accuracy", context=context, better="higher")
    return Column(f"epsilon {radius:g}", quantity, flipped=True)


def _table(
    report: Report, dataset: str, name: str, box: str, radii: tuple[float, ...], *, flipped: bool
) -> str:
    columns = [Column(f"epsilon {radius:g}", fgsm_quantity(name, box, radius), flipped) for radius in radii]
    return method_table(report, columns, dataset)


def fgsm_quantity(name: str, box: str, epsilon: float) -> TableRow:
    """The share that is right, or the confidence, under FGSM at a radius."""
    context: dict[str, Scalar] = {"attack": "FGSM", "box": box, "epsilon": epsilon}
    return TableRow("", "attacked", name, context=context, better="higher" if name == "accuracy" else "lower")


def attacked_run(task: Tree, runs: str, root: str | None) -> Tree:
    """Records of a finished run under FGSM, as plain values.

    Args:
        task: ``run``, its folder, ``dataset``, ``images``, how many at most, and ``epsilons``; ``method``, ``seed`` and
            ``data``, the name of its images, for the records.
        runs: Where runs are kept.
        root: The folder that holds the dataset's files.
    """
    test = fixed_images(
        load_dataset(task["dataset"], "test", root), task["images"], seed=0
    )  # as the verdict's
    numbers = [
        one
        for box in BOXES
        for one in attacked_numbers(Path(runs) / task["run"], test, task["epsilons"], box)
    ]
    return records_of(task, numbers)
