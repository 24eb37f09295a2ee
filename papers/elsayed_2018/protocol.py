"""What the experiments vary, by dataset; and the paper's protocol as far as it is known."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clearance import Method
from clearance.research import FACTORS, Recipe, check_choice
from papers.engine.catalogue import paper_recipe, with_rates

PAPER = "elsayed_2018"
BASELINE = "cross-entropy"
BLOCKS = ("extractor.block1", "extractor.block2")


@dataclass(frozen=True)
class Protocol:
    """What is varied on one dataset.

    Args:
        noise: Shares of training labels switched to another class.
        noise_fraction: Share of the training set in the study of noise; None is the recipe's.
        rivals_without_noise: Whether margins count all rivals, and hinge sums over them, at noise 0 too.
        adversarial_epochs: Those where half of every batch is attacked; None is the recipe's.
        validation: Share of the training set kept back while labels are noisy, 5,000 of 60,000 in the paper [M].
        samples: Numbers of training images.
        steps: Updates, the same for every number.
        small_batch: Images a step with few images; 68 are two batches of 34, so that none holds a handful.
        draws: Draws of such images, each with its own seed.
        epsilons: Largest changes of a pixel, of [0, 1].
        verdict: Those of them at which the scale-proof verdict is found, too: it takes its time.
        adversarial_verdict: The same for networks trained on attacked images: what survives takes longest to attack.
        searched_noise: Shares of wrong labels under which rates are chosen; other shares take those of the nearest, of
            two that are equally near the higher.
        searched_samples: Numbers of training images at which rates are chosen; others take those of the nearest.
        search_seeds: Runs of each candidate of the search.
        search_draws: The same with few images.
        finalist_seeds: Runs of each of a method's two best candidates under noise, where one says little; None is no
            more.
        finalist_draws: The same with few images.
        search_factors: Of the learning rates chosen before: what is tried at first.
        widenings: How often the learning rates of a method are widened, at most. Noisy labels ask for far smaller steps
            than clean ones, in which a search begins.
    """

    noise: tuple[float, ...]
    noise_fraction: float | None
    rivals_without_noise: bool
    adversarial_epochs: int | None
    validation: float
    samples: tuple[int, ...]
    steps: int
    small_batch: int
    draws: int
    epsilons: tuple[float, ...]
    verdict: tuple[float, ...]
    adversarial_verdict: tuple[float, ...]
    searched_noise: tuple[float, ...]
    searched_samples: tuple[int, ...]
    search_seeds: int
    search_draws: int
    finalist_seeds: int | None
    finalist_draws: int | None
    search_factors: tuple[float, ...]
    widenings: int


PIXELS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
PROTOCOLS = {
    "digits": Protocol(
        noise=SHARES, noise_fraction=None, rivals_without_noise=True, adversarial_epochs=None,
        validation=1 / 12,
        samples=(20, 68, 300), steps=1000, small_batch=34, draws=10,
        epsilons=PIXELS, verdict=(0.1, 0.2), adversarial_verdict=(0.1, 0.2),
        searched_noise=(0.4, 0.8), searched_samples=(68,), search_seeds=2, search_draws=2,
        finalist_seeds=None, finalist_draws=None,
        search_factors=FACTORS, widenings=5,
    ),
    "mnist": Protocol(
        noise=SHARES, noise_fraction=0.3, rivals_without_noise=False, adversarial_epochs=1,
        validation=1 / 12,
        samples=(68, 550, 5500), steps=3000, small_batch=34, draws=10,
        epsilons=PIXELS, verdict=(0.1, 0.2), adversarial_verdict=(0.2,),
        searched_noise=(0.4, 0.8), searched_samples=(68, 550, 5500), search_seeds=1, search_draws=1,
        finalist_seeds=3, finalist_draws=2, search_factors=FACTORS[1:-1],
        widenings=5,
    ),
    "cifar10": Protocol(
        noise=(0.4,), noise_fraction=None, rivals_without_noise=True, adversarial_epochs=None,
        validation=0.1,
        samples=(500, 2500), steps=1000, small_batch=64, draws=5,
        epsilons=(0.01, 0.03, 0.06, 0.1), verdict=(0.03, 0.1), adversarial_verdict=(0.03, 0.1),
        searched_noise=(0.4,), searched_samples=(2500,), search_seeds=1, search_draws=1,
        finalist_seeds=None, finalist_draws=None, search_factors=FACTORS, widenings=2,
    ),
}  # fmt: skip


def base_recipe(dataset: str, root: str | None, seeds: int | None = None, condition: str = "clean") -> Recipe:
    """The paper's recipe for a dataset, with the seeds that were asked for and the condition's learning rates.

    >>> sorted(base_recipe("mnist", None).methods) == sorted(base_recipe("mnist", None, condition="few-68").methods)
    True
    """
    return with_rates(paper_recipe(PAPER, dataset, root, seeds), PAPER, condition)


def noise_recipes(dataset: str, root: str | None = None, seeds: int | None = None) -> Mapping[float, Recipe]:
    """A recipe for each rate of noise; those above 0 differ in nothing else, and noise 0 has its own learning rates.

    >>> noise_recipes("mnist")[0.8].label_noise
    0.8
    """
    return {rate: noise_recipe(dataset, rate, root, seeds) for rate in PROTOCOLS[dataset].noise}


def noise_recipe(dataset: str, rate: float, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe for one rate of noise: where labels are wrong, margins and hinge sum over every rival.

    The nearest rival alone misleads where most labels are wrong. An image whose true class has the highest score
    is pulled down by every wrong label it may have, at 80 % noise four times as often as its true label lifts
    it; only among all rivals does each wrong class get a small share of those pulls.

    >>> noise_recipe("mnist", 0.8).methods["margin-l2"].loss_settings["aggregate"]
    'sum'
    >>> [noise_recipe(name, 0.0).methods["margin-l2"].loss_settings["top_k"] for name in ("digits", "mnist")]
    [None, 1]
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, seeds, searched_under(dataset, rate))
    methods = start.methods
    if rate > 0 or varied.rivals_without_noise:
        methods = {name: _against_all_rivals(method) for name, method in methods.items()}
    return dataclasses.replace(
        start,
        label_noise=rate,
        validation=varied.validation,
        train_fraction=varied.noise_fraction or start.train_fraction,
        methods=methods,
    )


def _against_all_rivals(method: Method) -> Method:
    if method.loss == "hinge":
        return dataclasses.replace(method, loss_settings={**method.loss_settings, "form": "sum"})
    if "layers" not in method.loss_settings:
        return method
    settings = {**method.loss_settings, "top_k": None, "aggregate": "sum"}
    return dataclasses.replace(method, loss_settings=settings)


def searched_under(dataset: str, rate: float) -> str:
    """The condition whose learning rates are used for this share of wrong labels.

    >>> [searched_under("mnist", rate) for rate in PROTOCOLS["mnist"].noise]
    ['noiseless', 'noisy-40', 'noisy-40', 'noisy-80', 'noisy-80']
    """
    if rate == 0:
        return "noiseless"
    searched = PROTOCOLS[dataset].searched_noise
    return noisy(min(searched, key=lambda other: (round(abs(other - rate), 9), -other)))


def noisy(rate: float) -> str:
    """What the search under this share of wrong labels is called.

    >>> noisy(0.4)
    'noisy-40'
    """
    return f"noisy-{100 * rate:.0f}"


def small_data_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[int, Recipe]:
    """A recipe for each number of images, drawn plainly at random; they differ in learning rates and nothing else.

    >>> small_data_recipes("mnist")[68].steps
    3000
    """
    return {count: small_data_recipe(dataset, count, root, seeds) for count in PROTOCOLS[dataset].samples}


def small_data_recipe(dataset: str, count: int, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe for one number of images, with the learning rates of the nearest number that was searched.

    >>> [searched_at("digits", count) for count in PROTOCOLS["digits"].samples]
    ['few-68', 'few-68', 'few-68']
    """
    varied = PROTOCOLS[dataset]
    draws = varied.draws if seeds is None else seeds
    start = base_recipe(dataset, root, draws, searched_at(dataset, count))
    return dataclasses.replace(
        start, samples=count, steps=varied.steps, batch_size=varied.small_batch, balanced=False
    )


def searched_at(dataset: str, count: int) -> str:
    """The condition whose learning rates are used for this number of training images: the nearest in ratio."""
    searched = PROTOCOLS[dataset].searched_samples
    return f"few-{min(searched, key=lambda other: abs(math.log(other / count)))}"


def adversarial_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe with half of every batch attacked by FGSM, at the middle of the radii that are tried.

    >>> adversarial_recipe("mnist").methods["hinge"].adversarial
    0.2
    """
    start, varied = base_recipe(dataset, root, seeds), PROTOCOLS[dataset]
    middle = varied.epsilons[len(varied.epsilons) // 2]
    methods = {n: dataclasses.replace(m, adversarial=middle) for n, m in start.methods.items()}
    return dataclasses.replace(start, epochs=varied.adversarial_epochs or start.epochs, methods=methods)


def full_protocol(dataset: str = "mnist", root: str | None = None, seeds: int | None = None) -> Recipe:
    """MNIST as in the paper and its code: their network, all nine rivals, 300 epochs of batches of 128.

    For a GPU. Rates of noise and numbers of images are then the caller's to set, as `noise_recipes` does. The
    published code trains with RMSProp (`published`), which recipes do not know; this has SGD. Learning rates are
    those chosen for the small network; l1 and linf at the input alone, which were not searched there, have those of
    all layers.

    Raises:
        ValueError: If the dataset is another.

    >>> full_protocol().model
    'large-margin-cnn'
    """
    check_choice("dataset", dataset, ("mnist",))
    start = base_recipe(dataset, root, seeds)
    methods = {name: _full(method) for name, method in start.methods.items()}
    for name in ("margin-l1", "margin-linf"):  # left out on a CPU
        settings = {**methods[name].loss_settings, "layers": ["input"]}
        methods[f"{name}-input"] = dataclasses.replace(methods[name], loss_settings=settings)
    return dataclasses.replace(
        start, model="large-margin-cnn", train_fraction=1.0, epochs=300, batch_size=128, methods=methods
    )


def _full(method: Method) -> Method:
    settings: dict[str, Any] = dict(method.loss_settings)
    if "layers" in settings:
        settings["top_k"] = None
        settings["layers"] = ["input", *(BLOCKS if len(settings["layers"]) > 1 else ())]
    return dataclasses.replace(method, norm="batch", hidden=(), loss_settings=settings)
