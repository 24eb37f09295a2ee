"""Adversarial images in the paper's way: FGSM and iterated FGSM on cross-entropy, white box and black box.

Such attacks have little gradient where logits are large, so that accuracy under them is not evidence of robustness.
The ledger also has the verdict of the audit `robustness`, which does not depend on the scale of logits.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from clearance import Classifier, ImageSet, Measurement, load_dataset, load_model
from clearance.attacks import FGSM, IFGSM, Attack, transferred
from clearance.research import (
    FIRST_SOURCE,
    Recipe,
    RunData,
    RunPlan,
    Scalar,
    fixed_images,
    plans_of,
    share_of,
)
from papers.elsayed_2018.conditions import Table, write_tables
from papers.elsayed_2018.protocol import BASELINE, PAPER, PROTOCOLS, adversarial_recipe, base_recipe
from papers.engine.ledger import JudgedStudy
from papers.engine.study import (
    StudyRequest,
    Tree,
    is_finished,
    network_of,
    records_of,
    whose,
    with_added_records,
)

IMAGES = 1000  # of the test set, class-balanced, the same for all
VERDICT = "robustness"
ATTACKS: dict[str, Callable[[float], Attack]] = {"FGSM": FGSM, "IFGSM": IFGSM}
WHITE, BLACK, TRAINED = "white", "black", "white, adversarially trained"
BOXES = {WHITE: "white box", BLACK: "black box", TRAINED: "white box"}  # as figures say it
LABEL = "epsilon, largest change of a pixel in [0, 1]"


def run_white_box(request: StudyRequest) -> Path:
    """Attack every network with its own gradients; see `attack_study`."""
    return attack_study("white-box", WHITE, _recipe(request), request)


def run_black_box(request: StudyRequest) -> Path:
    """Show every network images made on one more network trained with cross-entropy; see `attack_study`."""
    return attack_study("black-box", BLACK, _recipe(request), request)


def run_adversarially_trained(request: StudyRequest) -> Path:
    """The white box for networks that were trained on FGSM images; see `attack_study`."""
    recipe = adversarial_recipe(request.dataset, request.root, request.seeds)
    return attack_study("adversarially-trained", TRAINED, recipe, request)


def _recipe(request: StudyRequest) -> Recipe:
    return base_recipe(request.dataset, request.root, request.seeds)


def with_verdict(recipe: Recipe, box: str) -> Recipe:
    """The recipe with the verdict that the scale of logits cannot move; it counts the black box's images, too."""
    varied = PROTOCOLS[recipe.dataset]
    radii = varied.adversarial_verdict if box == TRAINED else varied.verdict
    verdict = {"epsilons": {"inf": list(radii)}, "source": BASELINE}
    settings = {**recipe.audit_settings, VERDICT: verdict}
    return dataclasses.replace(recipe, audits=(*recipe.audits, VERDICT), audit_settings=settings)


def attack_study(name: str, box: str, recipe: Recipe, request: StudyRequest) -> Path:
    """Train every method, attack what was trained, and write the ledger; trained networks are read back.

    Args:
        name: Of the study.
        box: What the setting ``box`` of its numbers says.
        recipe: What is trained.
        request: What was asked for. Without the dataset's files the ledger says "not run: no data".
    """
    study = JudgedStudy(PAPER, (name,), recipe.dataset)
    data = study.data(recipe, request)
    recipe = with_verdict(recipe, box)
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    sources = _sources(recipe, data, request) if box == BLACK else {}
    given = {
        "dataset": recipe.dataset,
        "images": IMAGES,
        "epsilons": list(PROTOCOLS[recipe.dataset].epsilons),
        "box": box,
    }

    def task(plan: RunPlan) -> Tree | None:
        if box == BLACK and plan.seed not in sources:
            return None
        settings = {**whose(plan, data.train.name, request.runs), **given, "source": sources.get(plan.seed)}
        return settings | (
            {"source_network": network_of(request.runs / sources[plan.seed])} if sources else {}
        )

    work = partial(attacked_run, runs=str(request.runs), root=request.root)
    measured = with_added_records(found, plans, work, task, "attacked", request)
    return write_tables(study, _tables(box), recipe, measured, request)


def attacked_run(task: Tree, runs: str, root: str | None) -> Tree:
    """Records of a finished run under attack, as plain values.

    Args:
        task: ``run``, its folder, ``dataset``, ``images``, how many at most, ``epsilons``, ``box``, and ``source``, the
            folder of the run that images of the black box are made on, or None; ``method``, ``seed`` and ``data``, the
            name of its images, for the records.
        runs: Where runs are kept.
        root: The folder that holds the dataset's files.
    """
    shown = fixed_images(
        load_dataset(task["dataset"], "test", root), task["images"], seed=0
    )  # as the verdict's
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shown, epsilons = shown.to(place), task["epsilons"]
    model = load_model(Path(runs) / task["run"]).to(place)
    if task["source"] is None:
        return records_of(task, accuracies(model, shown, epsilons, task["box"]))
    source = load_model(Path(runs) / task["source"]).to(place)
    numbers = accuracies(model, shown, epsilons, task["box"], source)
    # and the white box, which must not be weaker than it
    return records_of(task, [*numbers, *accuracies(model, shown, epsilons, WHITE)])


def accuracies(
    model: Classifier, images: ImageSet, epsilons: Sequence[float], box: str, source: Classifier | None = None
) -> list[Measurement]:
    """What is left of accuracy under each attack at each radius, and without one (radius 0).

    Args:
        model: What is attacked.
        images: Which images.
        epsilons: Largest changes of a pixel, of [0, 1].
        box: What the setting of that name says.
        source: Where images are made; the model itself by default.
    """
    found = []
    for name, make in ATTACKS.items():
        for epsilon in (0.0, *epsilons):
            attack = make(epsilon) if source is None else transferred(source, make(epsilon))
            with torch.enable_grad():
                right = int((~attack(model, images.images, images.labels).success).sum())
            context: dict[str, Scalar] = {"attack": name, "box": box, "epsilon": epsilon}
            found.append(share_of("attacked", "accuracy", right, len(images), "higher", context))
    return found


def _sources(recipe: Recipe, data: RunData, request: StudyRequest) -> dict[int, str]:
    """The verdict's sources: for each seed the run of one more network with cross-entropy; none where that failed."""
    bare = dataclasses.replace(recipe, audits=(), audit_settings={})
    plans = [RunPlan(bare, BASELINE, FIRST_SOURCE + seed) for seed in range(recipe.seeds)]
    found = request.grid(plans, data)
    return {
        plan.seed - FIRST_SOURCE: plan.folder
        for plan, one in zip(plans, found, strict=True)
        if is_finished(one)
    }


def _tables(box: str) -> tuple[Table, ...]:
    boxes = (BLACK, WHITE) if box == BLACK else (box,)
    verdict = Table(
        "The verdict that the scale of logits cannot move: accuracy under the worst attack",
        VERDICT, "robust_accuracy", "epsilon", {"norm": "inf"}, as_accuracy=False,
        panel="verdict free of scale", label=LABEL, scale="apart",
    )  # fmt: skip
    shown = tuple(
        Table(f"Accuracy under {name}, box: {one}", "attacked", "accuracy", "epsilon",
              {"attack": name, "box": one}, as_accuracy=False,
              panel=f"{name}, {BOXES[one]}", label=LABEL)
        for one in boxes
        for name in reversed(ATTACKS)
    )  # fmt: skip
    return (*shown, verdict)
