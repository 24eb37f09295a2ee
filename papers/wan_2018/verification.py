"""Whether likelihoods separate FGSM images from ordinary ones (the paper's figure 4), by the audit of likelihoods.

Each loss has its own likelihood: L-GM the log-density at the predicted class, softmax the logit of the predicted
class, center loss the distance to the class's learned centre. Losses that learn means are asked at these, and every
loss at the means of its classes' training features. Beside them stand scores that any network has, and two that see
pixels alone.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from clearance import load_dataset
from clearance.audits import Likelihood
from clearance.research import (
    Recipe,
    Report,
    RunFindings,
    RunPlan,
    Scalar,
    build_data,
    load_run,
    plans_of,
)
from papers.engine.ledger import JudgedStudy, TableRow
from papers.engine.study import (
    StudyRequest,
    Tree,
    records_of,
    whose,
    with_added_records,
)
from papers.wan_2018.fgsm import training_loss
from papers.wan_2018.protocol import PAPER, PROTOCOLS, base_recipe
from papers.wan_2018.study import Column, images_note, margin_note, method_table, seeds_note

AUDIT, CURVE = "likelihood", "auroc"
CLASS_MEAN, LEARNED, MAHALANOBIS = "class mean", "learned centre", "mahalanobis"
OWN = {"center": CLASS_MEAN}  # every other method's own score is called likelihood
AT_LEARNED = {"center": LEARNED}  # likewise, at the means that training has learned
ATTACKED: dict[str, Scalar] = {"attack": "FGSM", "counted": "all", "negatives": "originals"}
KNOWN: dict[str, Scalar] = {"attack": "adaptive", "counted": "successful", "negatives": "originals"}
KINDS: dict[str, dict[str, Scalar]] = {
    "FGSM, all attacked images": ATTACKED,
    "FGSM, all attacked images against sign noise as large": {**ATTACKED, "negatives": "noise"},
    "FGSM, successful attacks against their own originals": {**ATTACKED, "counted": "successful"},
    "FGSM, successful attacks against sign noise as large": {**ATTACKED, "counted": "successful", "negatives": "noise"},
    "iterated FGSM, successful attacks against their own originals": {
        **ATTACKED, "attack": "IFGSM", "counted": "successful"
    },
    "images of an attack that knows the own likelihood, against their own originals": KNOWN,
    "images of an attack that knows the own likelihood, against sign noise as large": {**KNOWN, "negatives": "noise"},
}  # fmt: skip
SCORES = (
    "likelihood", "density", "class mean", "learned centre", "mahalanobis", "max softmax", "energy", "neighbours",
    "small pixels", "pixel steps",
)  # fmt: skip
EVADED = ("likelihood", "class mean", "mahalanobis")
UNSEEN = {"mnist": "fashion-mnist", "cifar10": "cifar100", "cifar100": "cifar10"}
EVADED_AT_MEANS = (
    "The same where the distance to the mean of the predicted class's training features is the score:"
)
EVADED_IMAGES = {"digits": 50, "mnist": 20}  # this attack takes its time: elsewhere it is not made


def run(request: StudyRequest) -> Path:
    """Train every method, audit its likelihoods, and write the ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipe = verification_recipe(request.dataset, request.root, request.seeds)
    study = JudgedStudy(PAPER, ("verification",), request.dataset)
    data = study.data(recipe, request)
    plans = plans_of(recipe)
    found = with_learned_centres(request.grid(plans, data), plans, data.train.name, request)
    report = request.paged(recipe, found, study.command(request.seeds))
    return study.write_ledger(report, sections(report, request.dataset), request.out)


def with_learned_centres(
    found: Sequence[RunFindings], plans: Sequence[RunPlan], data: str, request: StudyRequest
) -> list[RunFindings]:
    """The findings of runs; those with center loss also have the score at the centres that it learned.

    Args:
        found: What runs left behind.
        plans: Theirs.
        data: The name of their images.
        request: The request.
    """

    def task(plan: RunPlan) -> Tree | None:
        if plan.settings.loss != "center":
            return None
        settings = {k: v for k, v in plan.recipe.audit_settings[AUDIT].items() if k in ("epsilons", "other")}
        return {**whose(plan, data, request.runs), "audit": settings}

    work = partial(at_learned_centres, runs=str(request.runs), root=request.root)
    return with_added_records(found, plans, work, task, "centres", request)


def at_learned_centres(task: Tree, runs: str, root: str | None) -> Tree:
    """Records of a finished run's score at the centres that its loss learned, as plain values.

    Args:
        task: ``run``, its folder, and ``audit``, settings of the audit; ``method``, ``seed`` and ``data``, the name of
            its images, for the records.
        runs: Where runs are kept.
        root: The folder that holds its files.
    """
    place = Path(runs) / task["run"]
    saved = load_run(place)
    data = build_data(dataclasses.replace(saved.recipe, root=root))
    other = task["audit"].get("other")
    audit = Likelihood(
        epsilons=tuple(task["audit"]["epsilons"]),
        other=None if other is None else load_dataset(other, "test", root),
        adaptive=(),
        centres=dict(training_loss(place).named_buffers())["centres"],
    )
    made = audit(saved.model, data.train, data.test, task["seed"], data.new_classes)
    return records_of(task, [one for one in made.measurements if one.context.get("score") == LEARNED])


def verification_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The paper's recipe, audited for likelihoods; with another dataset's images where its files are there, too.

    >>> verification_recipe("digits").audit_settings["likelihood"]["epsilons"]
    [0.1, 0.2, 0.3]
    """
    start = base_recipe(dataset, root, seeds)
    settings: dict[str, Any] = {"epsilons": list(PROTOCOLS[dataset].epsilons), "adaptive": []}
    if dataset in EVADED_IMAGES:
        settings |= {"adaptive": list(EVADED), "adaptive_images": EVADED_IMAGES[dataset]}
    if dataset in UNSEEN and _is_there(UNSEEN[dataset], root):
        settings["other"] = UNSEEN[dataset]
    return dataclasses.replace(
        start, audits=(*start.audits, AUDIT), audit_settings={**start.audit_settings, AUDIT: settings}
    )


def _is_there(dataset: str, root: str | None) -> bool:
    if root is None:
        return False
    try:
        load_dataset(dataset, "test", root)
    except FileNotFoundError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class OwnScore(TableRow):
    """A measure of detection by each loss's own likelihood."""

    def of(self, report: Report, method: str) -> dict[int, float]:
        """The method's number under each seed, by its own score."""
        context = _of_method({**self.context, "score": own_score(method)}, method)
        return TableRow(self.label, self.audit, self.name, context=context).of(report, method)


@dataclasses.dataclass(frozen=True)
class AtLearned(TableRow):
    """A measure of detection by each loss's own likelihood, at the means that it learned where it learns some."""

    def of(self, report: Report, method: str) -> dict[int, float]:
        """The method's number under each seed, by its own score."""
        context = {**self.context, "score": AT_LEARNED.get(method, "likelihood")}
        return TableRow(self.label, self.audit, self.name, context=context).of(report, method)


@dataclasses.dataclass(frozen=True)
class UnderOwnAttack(TableRow):
    """A number of one score, the same for every method; an attack that knows a score knows the method's own."""

    def of(self, report: Report, method: str) -> dict[int, float]:
        """The method's number under each seed."""
        context = _of_method(self.context, method)
        return TableRow(self.label, self.audit, self.name, context=context).of(report, method)


def _of_method(context: Mapping[str, Scalar], method: str) -> dict[str, Scalar]:
    """Settings that say which score an attack knows, where it knows one."""
    return {
        **context,
        **({"attacked": own_score(method)} if context.get("attack") == KNOWN["attack"] else {}),
    }


def own_score(method: str) -> str:
    """What the audit calls the likelihood of a method.

    >>> own_score("center"), own_score("softmax")
    ('class mean', 'likelihood')
    """
    return OWN.get(method, "likelihood")


def sections(report: Report, dataset: str) -> list[str]:
    """The paper's comparison, the attack that knows the score, and all scores."""
    radii = PROTOCOLS[dataset].epsilons
    areas = _areas(AtLearned, ATTACKED, radii)
    at_means = _areas(TableRow, {**ATTACKED, "score": CLASS_MEAN}, radii)
    text = [
        "## How well each loss's own likelihood separates FGSM images from ordinary ones",
        "At the means that training has learned: of `gm` and `lgm` those of the mixture, of `center` its centres.",
        "Area under the ROC curve (50 % is chance, 100 % apart) of all attacked images, successful or not: "
        f"{images_note(report, AUDIT, CURVE, ATTACKED)} and as many ordinary ones. Each likelihood is in a "
        f"unit of its own: areas can be compared, log-densities cannot. {seeds_note(report)}",
        method_table(report, areas, dataset),
        *margin_note(report, areas),
        "## The same, by the area under the curve of precision over recall, and by what passes at 95 %",
        "The second: the share of attacked images that pass where 95 % of ordinary ones do.",
        method_table(
            report,
            [*_areas(AtLearned, ATTACKED, radii, "aupr"), *_areas(AtLearned, ATTACKED, radii, "fpr95")],
            dataset,
        ),
        "## The same by the distance to the mean of the predicted class's training features",
        "At class means, of every loss alike.",
        method_table(report, at_means, dataset),
        *margin_note(report, at_means),
        "## The same by Mahalanobis distances, fitted to every network afterwards",
        method_table(report, _areas(TableRow, {**ATTACKED, "score": MAHALANOBIS}, radii), dataset),
    ]
    if dataset in EVADED_IMAGES:
        text += _evading(report, dataset, radii)
    else:
        text.append("An attack that knows the likelihood: not run, budget.")
    kinds = {
        f"{kind}, epsilon {radius:g}": {**context, "epsilon": radius}
        for kind, context in KINDS.items()
        if dataset in EVADED_IMAGES or context["attack"] != KNOWN["attack"]
        for radius in radii
    }
    kinds |= {f"images of {name}, never learned": {"unseen": name} for name in _unseen(report)}
    for kind, context in kinds.items():
        text += [f"## Every score: {kind}", every_score(report, context, dataset)]
    if (missed := UNSEEN.get(dataset)) is not None and missed not in _unseen(report):
        text.append(f"Images of {missed} were not used: their files were not below the folder of --root.")
    return text


def _evading(report: Report, dataset: str, radii: Sequence[float]) -> list[str]:
    """The attack that knows the score."""
    evaded = [Column(f"epsilon {r:g}", OwnScore("", AUDIT, "evasion", context={"epsilon": r})) for r in radii]
    at_means, fitted = (
        [
            Column(f"epsilon {r:g}", TableRow("", AUDIT, "evasion", context={"epsilon": r, "score": score}))
            for r in radii
        ]
        for score in (CLASS_MEAN, MAHALANOBIS)
    )
    known = {**KNOWN, "attacked": MAHALANOBIS, "score": MAHALANOBIS}
    return [
        "## Share of right images for which an attack that knows the likelihood finds a wrong one that passes",
        f"Of {images_note(report, AUDIT, 'evasion', {})}, above the threshold that rejects 5 % of ordinary ones. It "
        "is a lower bound: another attack may find more.",
        method_table(report, evaded, dataset),
        EVADED_AT_MEANS,
        method_table(report, at_means, dataset),
        "The same where Mahalanobis distances, fitted afterwards, are the score, and the attack knows them:",
        method_table(report, fitted, dataset),
        "## How well the likelihood separates the images of that attack from their own originals",
        "Area under the ROC curve, of the images that it found; below 50 % they look more ordinary than what they were "
        "made from.",
        method_table(report, _areas(OwnScore, KNOWN, radii), dataset),
        "## The same by Mahalanobis distances, which the attack then knows",
        method_table(report, _areas(TableRow, known, radii), dataset),
    ]


def _areas(
    quantity: type[TableRow],
    context: dict[str, Scalar],
    radii: Sequence[float],
    measure: str = CURVE,
) -> list[Column]:
    """The area under the ROC curve, or another measure, at every radius, by a score that `quantity` picks."""
    prefix = "" if measure == CURVE else f"{measure.upper()}, "
    better: Literal["lower", "higher"] = "lower" if measure == "fpr95" else "higher"
    return [
        Column(
            f"{prefix}epsilon {r:g}",
            quantity("", AUDIT, measure, context={**context, "epsilon": r}, better=better),
        )
        for r in radii
    ]


def every_score(report: Report, context: dict[str, Scalar], dataset: str) -> str:
    """A table of AUROC with a column for each score that was measured."""
    columns = [
        Column(score, UnderOwnAttack("", AUDIT, CURVE, context={**context, "score": score}, better="higher"))
        for score in SCORES
    ]
    shown = [c for c in columns if any(c.quantity.of(report, method) for method in report.methods)]
    return method_table(report, shown, dataset) if shown else "Nothing was measured."


def _unseen(report: Report) -> list[str]:
    found = (r.measurement.context.get("unseen") for r in report.records if r.measurement.audit == AUDIT)
    return sorted({str(name) for name in found if name is not None})
