"""What the experiments vary, by dataset; and the paper's protocol as far as it is known."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from clearance.experiments.papers import paper_recipe
from clearance.experiments.recipe import Method, Recipe

PAPER = "elsayed-2018"
BASELINE = "cross-entropy"
Condition = Literal["clean", "noisy", "few"]
BLOCKS = ("extractor.block1", "extractor.block2")


@dataclass(frozen=True)
class Protocol:
    """What is varied on one dataset.

    Args:
        noise: Shares of training labels switched to another class.
        noise_epochs: Passes over the training images in the study of noise; None is the recipe's.
        adversarial_epochs: Those where half of every batch is attacked; None is the recipe's.
        validation: Share of the training set kept back while labels are noisy, 5,000 of 60,000 in the paper [M].
        samples: Numbers of training images.
        steps: Updates whatever that number.
        small_batch: Images a step with few images.
        draws: Draws of such images, each with a seed of its own.
        epsilons: Largest changes of a pixel, of [0, 1].
        verdict: Those of them at which the scale-proof verdict is found, too: it takes its time.
        adversarial_verdict: The same for networks trained on attacked images: what survives takes longest to attack.
        searched_noise: The share of wrong labels under which the learning rates for noisy labels are chosen.
        search_seeds: Runs of each candidate of the search.
        trial_epochs: Epochs of its first trials; the best are repeated in full length. None is all.
    """

    noise: tuple[float, ...]
    noise_epochs: int | None
    adversarial_epochs: int | None
    validation: float
    samples: tuple[int, ...]
    steps: int
    small_batch: int
    draws: int
    epsilons: tuple[float, ...]
    verdict: tuple[float, ...]
    adversarial_verdict: tuple[float, ...]
    searched_noise: float
    search_seeds: int
    trial_epochs: int | None


PIXELS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
PROTOCOLS = {
    "digits": Protocol(
        noise=SHARES, noise_epochs=None, adversarial_epochs=None, validation=1 / 12,
        samples=(20, 68, 300), steps=1000, small_batch=32, draws=10,
        epsilons=PIXELS, verdict=(0.1, 0.2), adversarial_verdict=(0.1, 0.2),
        searched_noise=0.4, search_seeds=2, trial_epochs=None,
    ),
    "mnist": Protocol(
        noise=(0.0, 0.8), noise_epochs=3, adversarial_epochs=1, validation=1 / 12,
        samples=(68, 550, 5500), steps=3000, small_batch=32, draws=10,
        epsilons=PIXELS, verdict=(0.1, 0.2), adversarial_verdict=(0.2,),
        searched_noise=0.8, search_seeds=1, trial_epochs=1,
    ),
    "cifar10": Protocol(
        noise=SHARES, noise_epochs=None, adversarial_epochs=None, validation=0.1,
        samples=(500, 2500, 10000), steps=10000, small_batch=64, draws=5,
        epsilons=(0.01, 0.03, 0.06, 0.1), verdict=(0.03, 0.1), adversarial_verdict=(0.03, 0.1),
        searched_noise=0.8, search_seeds=1, trial_epochs=10,
    ),
}  # fmt: skip


def base_recipe(
    dataset: str, root: str | None, seeds: int | None = None, condition: Condition = "clean"
) -> Recipe:
    """The paper's recipe for a dataset, with the seeds that were asked for and the condition's learning rates.

    >>> sorted(base_recipe("mnist", None).methods) == sorted(base_recipe("mnist", None, condition="few").methods)
    True
    """
    recipe = paper_recipe(PAPER, dataset, root, seeds)
    rates = learning_rates(dataset, condition)
    methods = {
        name: dataclasses.replace(method, lr=rates.get(name, method.lr))
        for name, method in recipe.methods.items()
    }
    return dataclasses.replace(recipe, methods=methods)


def learning_rates(dataset: str, condition: Condition) -> Mapping[str, float]:
    """Those that ``--only search`` chose, by method; none where nothing was searched.

    >>> learning_rates("cifar10", "clean")
    {}
    """
    text = resources.files(__package__).joinpath("learning_rates.toml").read_text("utf-8")
    found: Mapping[str, float] = tomllib.loads(text).get(dataset, {}).get(condition, {})
    return found


def noise_recipes(dataset: str, root: str | None = None, seeds: int | None = None) -> Mapping[float, Recipe]:
    """A recipe for each rate of noise; those above 0 differ in nothing else.

    >>> noise_recipes("mnist")[0.8].label_noise
    0.8
    """
    return {rate: noise_recipe(dataset, rate, root, seeds) for rate in PROTOCOLS[dataset].noise}


def noise_recipe(dataset: str, rate: float, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe for one rate of noise: where labels are wrong, margins and hinge sum over every rival.

    The nearest rival alone misleads where most labels are wrong. An image whose true class has the highest score
    is pulled down by every wrong label it may have, at 80 % noise four times as often as its true label lifts
    it; only among all rivals does each wrong class get a small share of those pulls. On MNIST margins with one
    rival learnt nothing there. Without noise one rival does, with the rates of clean labels.

    >>> noise_recipe("mnist", 0.8).methods["margin-l2"].objective_settings["aggregate"]
    'sum'
    >>> noise_recipe("mnist", 0.0).methods["margin-l2"].objective_settings["top_k"]
    1
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, seeds, "noisy" if rate > 0 else "clean")
    methods = start.methods
    if rate > 0:
        methods = {name: _against_all_rivals(method) for name, method in methods.items()}
    return dataclasses.replace(
        start,
        label_noise=rate,
        validation=varied.validation,
        epochs=varied.noise_epochs or start.epochs,
        methods=methods,
    )


def _against_all_rivals(method: Method) -> Method:
    if method.objective == "hinge":
        return dataclasses.replace(method, objective_settings={**method.objective_settings, "form": "sum"})
    if "layers" not in method.objective_settings:
        return method
    settings = {**method.objective_settings, "top_k": None, "aggregate": "sum"}
    return dataclasses.replace(method, objective_settings=settings)


def small_data_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[int, Recipe]:
    """A recipe for each number of images, drawn plainly at random; they differ in nothing else.

    >>> small_data_recipes("mnist")[68].steps
    3000
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, varied.draws if seeds is None else seeds, "few")
    start = dataclasses.replace(start, steps=varied.steps, batch_size=varied.small_batch, balanced=False)
    return {count: dataclasses.replace(start, samples=count) for count in varied.samples}


def adversarial_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe with half of every batch attacked by FGSM, at the middle of the radii that are tried.

    >>> adversarial_recipe("mnist").methods["hinge"].adversarial
    0.2
    """
    start, varied = base_recipe(dataset, root, seeds), PROTOCOLS[dataset]
    middle = varied.epsilons[len(varied.epsilons) // 2]
    methods = {n: dataclasses.replace(m, adversarial=middle) for n, m in start.methods.items()}
    return dataclasses.replace(start, epochs=varied.adversarial_epochs or start.epochs, methods=methods)


def full_protocol(root: str | None = None, seeds: int | None = None) -> Recipe:
    """MNIST as in the sheet of the paper and its code: their network, all nine rivals, 300 epochs of batches of 128.

    For a GPU. Rates of noise and numbers of images are then the caller's to set, as `noise_recipes` does. The
    published code trains with RMSProp, which recipes do not know; this one keeps SGD.

    >>> full_protocol().model
    'large-margin-cnn'
    """
    start = base_recipe("mnist", root, seeds)
    methods = {name: _full(method) for name, method in start.methods.items()}
    return dataclasses.replace(start, model="large-margin-cnn", epochs=300, batch_size=128, methods=methods)


def _full(method: Method) -> Method:
    settings: dict[str, Any] = dict(method.objective_settings)
    if "layers" in settings:
        settings["top_k"] = None
        settings["layers"] = ["input", *(BLOCKS if len(settings["layers"]) > 1 else ())]
    return dataclasses.replace(method, norm="batch", hidden=(), objective_settings=settings)
