"""What the studies vary, by dataset; and the released protocol as far as it is known."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clearance import Method
from clearance.research import FACTORS, Recipe, check_choice
from papers.engine.catalogue import paper_recipe, with_rates

PAPER = "wan_2018"
BASELINE = "softmax"
Condition = Literal["all", "plane", "combinations"]
MIRROR_AND_CROP = {"augment_flip": True, "augment_pad": 4}
MNIST_STEPS, EPOCHS = 20_000, 307  # of the released files
STEPS_AN_EPOCH = {"digits": 21, "cifar10": 391, "cifar100": 391}  # in the batches of their recipes


@dataclass(frozen=True)
class Protocol:
    """What is varied on one dataset.

    Args:
        epsilons: Largest changes of a pixel, of [0, 1], as the paper has them on MNIST.
        attacked_images: How many test images FGSM is made on, at most; all of them in the paper.
        verdict_images: On how many test images the scale-proof verdict is found: it takes its time.
        search_seeds: Runs of each candidate of the search.
        search_steps: Updates of its trials, in place of the recipe's; None leaves them.
        search_factors: Of the recipe's learning rates: what the search tries at first.
        search_settings: Of every loss a second value of one more setting, with which the search tries all rates, too;
            none on digits and MNIST, where `--only search-settings` comes after it.
    """

    epsilons: tuple[float, ...]
    attacked_images: int
    verdict_images: int
    search_seeds: int
    search_steps: int | None
    search_factors: tuple[float, ...] = FACTORS
    search_settings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


MEANS_LR = {"means_lr": 10.0}  # the released 2 is for a run fifteen times as long; MNIST's search chose 10
SECOND = {
    "softmax": {"weight_decay": 0.002},
    "center": {"weight": 0.01},
    "l-softmax": {"weight_decay": 0.002},
    **dict.fromkeys(("gm", "lgm-0.1", "lgm-0.2", "lgm"), MEANS_LR),
}
SMALL, PAPERS_OWN = (0.01, 0.03, 0.06), (0.1, 0.2, 0.3)
PROTOCOLS = {
    "digits": Protocol(PAPERS_OWN, 10_000, 300, 2, None),
    "mnist": Protocol(PAPERS_OWN, 2000, 100, 1, 600),
    "cifar10": Protocol(SMALL, 1000, 50, 1, None, (0.5, 1.0, 2.0)),
    "cifar100": Protocol(SMALL, 1000, 300, 1, None, (0.5, 1.0, 2.0), SECOND),
}
PLANE_STEPS = {"digits": 4000, "mnist": 1500}  # updates of the networks of two features


def base_recipe(
    dataset: str, root: str | None = None, seeds: int | None = None, condition: Condition = "all"
) -> Recipe:
    """The paper's recipe for a dataset, with the seeds that were asked for and the condition's learning rates.

    >>> list(base_recipe("digits").methods)
    ['softmax', 'center', 'l-softmax', 'gm', 'lgm']
    """
    return with_rates(paper_recipe(PAPER, dataset, root, seeds), PAPER, condition)


def accuracy_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[bool, Recipe]:
    """The recipes whose errors are compared, by whether images are cropped and mirrored: both for CIFAR-100.

    >>> [list(accuracy_recipes(name)) for name in ("mnist", "cifar10", "cifar100")]
    [[False], [True], [False, True]]
    """
    start = base_recipe(dataset, root, seeds)
    changed = dataclasses.replace(start, **MIRROR_AND_CROP)  # type: ignore[arg-type]
    if dataset == "cifar100":
        return {False: start, True: changed}
    return {start == changed: start}


def plane_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe with two features for every method, for pictures; one seed, unless more are asked for.

    Raises:
        ValueError: If the dataset is neither digits nor mnist: other networks have a fixed width.

    >>> {method.features for method in plane_recipe("digits").methods.values()}
    {2}
    """
    check_choice("dataset", dataset, PLANE_STEPS)
    start = paper_recipe(PAPER, dataset, root, 1 if seeds is None else seeds)
    start = paced(start, PLANE_STEPS[dataset])
    methods = {name: dataclasses.replace(method, features=2) for name, method in start.methods.items()}
    return with_rates(dataclasses.replace(start, methods=methods), PAPER, "plane")


def full_protocol(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The released file's network and length: MNIST with 20,000 steps, CIFAR-100 with 307 epochs. For a GPU.

    On MNIST the mixture learns a variance for every class, as that file does. What recipes do not know stays ours:
    Nesterov's momentum, and on MNIST a step size times 0.7 every 3,000 steps (here a cosine).

    Raises:
        ValueError: If nothing is released for the dataset.

    >>> full_protocol("mnist").methods["lgm"].loss_settings["alpha"]["every"]
    1500
    """
    check_choice("dataset", dataset, ("mnist", "cifar100"))
    start = paper_recipe(PAPER, dataset, root, seeds)
    if dataset == "mnist":
        start = dataclasses.replace(paced(start, MNIST_STEPS), model="lenet-plus", channels_last=False)
    else:
        methods = {name: _paced(method, EPOCHS / start.epochs) for name, method in start.methods.items()}
        methods = {name: dataclasses.replace(method, hidden=()) for name, method in methods.items()}
        start = dataclasses.replace(
            start, model="convnet13", epochs=EPOCHS, autocast=False, channels_last=False, methods=methods
        )
    methods = {name: _released(method, dataset) for name, method in start.methods.items()}
    return dataclasses.replace(start, methods=methods)


def _released(method: Method, dataset: str) -> Method:
    if dataset != "mnist" or method.mixture == "none":
        return dataclasses.replace(method, clip_norm=None)
    settings = {
        **method.loss_settings,
        "variance_prior": 0.0,
    }  # the formula alone; the head's floor stays
    return dataclasses.replace(method, clip_norm=None, mixture="class_scalar", loss_settings=settings)


def paced(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with this number of updates, in which alpha grows and softmax fades in the same parts of the run.

    Args:
        recipe: One of this paper.
        steps: At least 1.

    >>> paced(base_recipe("mnist"), 5000).methods["lgm"].loss_settings["alpha"]["every"]
    375
    """
    before = recipe.steps if recipe.steps is not None else recipe.epochs * STEPS_AN_EPOCH[recipe.dataset]
    methods = {name: _paced(method, steps / before) for name, method in recipe.methods.items()}
    return dataclasses.replace(recipe, steps=steps, methods=methods)


def _paced(method: Method, factor: float) -> Method:
    settings: dict[str, Any] = dict(method.loss_settings)
    if isinstance(settings.get("alpha"), Mapping):
        grown = settings["alpha"]
        settings["alpha"] = {**grown, "every": max(1, round(grown["every"] * factor))}
    if isinstance(settings.get("softmax_weight"), Mapping):
        fading = settings["softmax_weight"]
        settings["softmax_weight"] = {**fading, "rate": fading["rate"] / factor}
    return dataclasses.replace(method, loss_settings=settings)
