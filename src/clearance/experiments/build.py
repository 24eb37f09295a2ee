"""Objects from a recipe's numbers: the images of a run, its loss, way of training and optimiser."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR

from clearance._checks import check_choice
from clearance._rng import derived_seed
from clearance.attacks import FGSM, PGD, Attack
from clearance.audits._audit import check_comparable
from clearance.data import Augmentation, ImageSet
from clearance.data.subsets import draw_samples, split_classes
from clearance.experiments.catalogue import LOSSES, loss_defaults, resolve
from clearance.experiments.datasets import SPLIT_SEED, load_dataset
from clearance.experiments.method import Method, MixtureSettings
from clearance.experiments.recipe import Recipe
from clearance.heads import (
    GaussianMixture,
    GaussianMixtureHeads,
    GradientHeads,
    HeadTraining,
    RidgeHeads,
    mixture_groups,
)
from clearance.heads.weak import WeakHeads
from clearance.losses import Loss, SumLoss
from clearance.models import Classifier
from clearance.training import FOCA, TRADES, EndToEnd, WayOfTraining

DATA_SEED = 0  # a fraction of the training set is part of the data, the same for every seed of a comparison


@dataclass(frozen=True)
class RunData:
    """The images of a comparison: training images and test images.

    Raises:
        ValueError: If the two have different classes or image shapes.
    """

    train: ImageSet
    test: ImageSet
    new_classes: tuple[ImageSet, ImageSet] | None = None  # training and test images of the left-out classes
    validation: ImageSet | None = None  # held out of training, evaluated after every epoch

    def __post_init__(self) -> None:
        check_comparable(self.train, self.test)


def build_data(recipe: Recipe) -> RunData:
    """Load, split, reduce and augment images by the recipe; `drawn_data` does what depends on the seed.

    With ``held_out`` above 0 the test set is never read: a part of the training set replaces it.
    """
    train = load_dataset(recipe.dataset, "train", recipe.root, recipe.size)
    if recipe.held_out > 0:
        train, test = train.split(recipe.held_out, SPLIT_SEED)
    else:
        test = load_dataset(recipe.dataset, "test", recipe.root, recipe.size)
    new = None
    if recipe.left_out:
        (train, new_train), (test, new_test) = (split_classes(s, recipe.left_out) for s in (train, test))
        new = (new_train, new_test)
    if recipe.train_fraction < 1:
        train = train.fraction(recipe.train_fraction, DATA_SEED)
    augmentation = Augmentation(recipe.augment_flip, recipe.augment_pad, recipe.augment_cutout)
    if augmentation != Augmentation():
        train = train.augmented(augmentation)
    return RunData(train, test, new)


def build_loss(method: Method, model: Classifier | None = None) -> Loss:
    """The loss that a method names, with its settings; losses with class centres get their sizes from the model.

    Raises:
        ValueError: If the loss or a setting is unknown, or a value is out of range.

    >>> build_loss(Method(loss="hinge", loss_settings={"margin": 2.0}))
    HingeLoss(margin=2.0, form='max')
    >>> parts = {"softmax": {"loss": "cross-entropy"}, "margin": {"loss": "hinge", "margin": 2.0}}
    >>> list(build_loss(Method(loss="sum", loss_settings={"parts": parts})).parts)
    ['softmax', 'margin']
    """
    sizes = {"in_features": 1, "classes": 1} if model is None else _sizes(model)
    return _named_loss(method.loss, method.loss_settings, sizes)


def _named_loss(name: str, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> Loss:
    kind = resolve("loss", name, LOSSES)
    taken = loss_defaults(kind)
    for key in settings:
        check_choice(f"setting of loss {name!r}", key, taken)
    given = {key: size for key, size in sizes.items() if key in taken} | dict(settings)
    if kind is SumLoss:
        given["parts"] = _parts(settings.get("parts"), sizes)
    for group, made_of in getattr(kind, "groups", {}).items():
        parts = {key: given.pop(key) for key in vars(made_of()) if key in given}
        if parts:
            given[group] = made_of(**parts)
    try:
        loss: Loss = kind(**given)
    except (TypeError, AttributeError) as error:  # of a value that the loss's own checks do not expect
        shown, why = ", ".join(f"{key}={value!r}" for key, value in settings.items()), str(error).rstrip(".")
        raise ValueError(
            f"settings of loss {name!r} must be of the types that it takes; got {shown}: {why}. Correct them. (YAML "
            "reads 1e-1 as text and 1.0e-1 as a number.)"
        ) from error
    return loss


def _parts(given: Any, sizes: Mapping[str, int]) -> dict[str, Loss]:
    """The losses of a sum, from a mapping of names to ``{loss: ..., its settings}``."""
    trees = given if isinstance(given, Mapping) else {}
    if not trees or not all(isinstance(tree, Mapping) and "loss" in tree for tree in trees.values()):
        raise ValueError(
            "`parts` of loss 'sum' must map names to losses, as in {margin: {loss: hinge, margin: 2.0}}; "
            f"got {given!r}."
        )
    return {
        part: _named_loss(tree["loss"], {k: v for k, v in tree.items() if k != "loss"}, sizes)
        for part, tree in trees.items()
    }


def _sizes(model: Classifier) -> dict[str, int]:
    """Features and classes, from the first and the last matrix of the head."""
    if isinstance(model.head, GaussianMixture):
        return {"in_features": model.head.in_features, "classes": model.head.classes}
    matrices = [value for value in model.head.parameters() if value.ndim == 2]
    return {"in_features": matrices[0].shape[1], "classes": matrices[-1].shape[0]}


def build_way(method: Method, model: Classifier | None = None) -> WayOfTraining:
    """The way of training of a method."""
    terms = build_loss(method, model)
    if method.way == "end_to_end":
        attack, share = _training_attack(method), method.adversarial_share
        return EndToEnd(terms, method.head_noise, attack, share, method.adversarial_rise)
    final = HeadTraining(method.final_head_steps, method.final_head_lr, 0.9, batch_size=128)
    return FOCA(
        terms,
        build_weak_heads(method, terms),
        per_class=method.per_class,
        heads=method.heads,
        reuse=method.reuse,
        mode=method.mode,
        batch_norm=method.heads_batch_norm,
        recalibrate=method.recalibrate,
        pool=method.pool,
        final_head=final,
    )


def _training_attack(method: Method) -> Attack | None:
    """The attack of adversarial training, or none."""
    epsilon, steps = method.adversarial, method.adversarial_steps
    if epsilon == 0:
        return None
    if method.trades > 0:
        return TRADES(epsilon, steps=steps, beta=method.trades)
    return FGSM(epsilon) if steps == 1 else PGD(epsilon, loss="cross_entropy", steps=steps)


def build_weak_heads(method: Method, loss: Loss) -> WeakHeads:
    """How FOCA draws its heads; heads trained by gradient descent get the extractor's loss (Eq. 2, 4)."""
    training = HeadTraining(method.head_steps, method.head_lr, 0.9, weight_decay=method.head_decay)
    if method.weak_heads == "ridge":
        return RidgeHeads(method.penalty)
    if method.weak_heads == "mixture":
        return GaussianMixtureHeads("diagonal" if method.mixture == "diagonal" else "scalar")
    return GradientHeads(training, loss=loss.sample_loss)


def drawn_data(recipe: Recipe, data: RunData, seed: int) -> RunData:
    """The images of one seed: the recipe's validation set, small sample and noisy labels.

    The validation set is the same for every seed. Samples and noise depend only on data and seed: a higher rate of
    noise keeps the wrong labels of a lower one and adds more; a larger sample contains a smaller one. If training
    labels are noisy, so are the labels that choices are based on: those of the validation set, and of the part of
    the training set that replaces the test set (``held_out``). The real test set is never changed.

    Of the recipe, ``validation``, ``samples``, ``balanced``, ``label_noise`` and ``held_out`` are used; `data` is its
    dataset, the same for all seeds.

    Raises:
        ValueError: If there are too few images, or the validation split would miss a class.

    >>> from clearance.data import gaussian_images
    >>> data = RunData(gaussian_images(), gaussian_images(seed=1))
    >>> drawn = drawn_data(Recipe(samples=6, label_noise=0.5), data, seed=0)
    >>> len(drawn.train), drawn.test is data.test
    (6, True)
    """
    train, test, validation = data.train, data.test, None
    if recipe.validation > 0:
        train, validation = train.split(recipe.validation, SPLIT_SEED)
    if recipe.samples is not None:
        train = draw_samples(train, recipe.samples, seed, balanced=recipe.balanced)
    rate = recipe.label_noise
    if rate > 0:
        train = train.with_label_noise(rate, seed)
        if validation is not None:
            validation = validation.with_label_noise(rate, derived_seed(seed, "validation"))
        if recipe.held_out > 0:
            test = test.with_label_noise(rate, derived_seed(seed, "held_out"))
    return dataclasses.replace(data, train=train, test=test, validation=validation)


def check_draws(recipe: Recipe, data: RunData, seeds: Sequence[int] | None = None) -> None:
    """Raise ValueError before any training if a seed cannot have the images that the recipe draws.

    The recipe is as in `drawn_data`; in a class-balanced sample, every class must keep a label. None are the recipe's
    seeds.

    >>> from clearance.data import gaussian_images
    >>> check_draws(Recipe(samples=2), RunData(gaussian_images(class_count=3), gaussian_images(class_count=3)))
    Traceback (most recent call last):
    ...
    ValueError: `samples` must be at least 3, one image of each class; got 2. Take more.
    """
    count, classes = recipe.samples, data.train.class_count
    if count is None:
        return
    if count > len(data.train):
        raise ValueError(f"`samples` must not exceed the {len(data.train)} training images; got {count}.")
    if not recipe.balanced:
        return
    if count < classes:
        raise ValueError(
            f"`samples` must be at least {classes}, one image of each class; got {count}. Take more."
        )
    seeds = range(recipe.seeds) if seeds is None else seeds
    for seed in seeds if recipe.label_noise > 0 else seeds[:1]:
        sizes = torch.bincount(drawn_data(recipe, data, seed).train.labels.cpu(), minlength=classes)
        if int(sizes.min()) == 0:
            lost = data.train.classes[int(sizes.argmin())]
            raise ValueError(
                f"`label_noise` of {recipe.label_noise:g} leaves no label of class {lost!r} among {count} images "
                f"under seed {seed}, and methods and audits need one of each; take more images, or switch fewer labels."
            )


def build_optimizer(method: Method, model: Classifier | None = None) -> Callable[..., Optimizer]:
    """SGD with momentum; means, variances and priors of a mixture have their own learning rates and decay."""
    head = None if model is None else model.head
    if not isinstance(head, GaussianMixture) or _needs_no_groups(head, method):
        return partial(
            torch.optim.SGD, lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay
        )
    return partial(
        mixture_sgd, head=head, lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay,
        means=method.means_lr, variances=method.variances_lr, means_decay=method.means_decay,
    )  # fmt: skip


def _needs_no_groups(head: GaussianMixture, method: MixtureSettings) -> bool:
    """Whether only the means are learned, with the same settings as other weights."""
    only_means = head.covariance == "identity" and not head.log_priors.requires_grad
    return only_means and method.means_lr == method.variances_lr == method.means_decay == 1


def mixture_sgd(
    parameters: Iterable[nn.Parameter],
    *,
    head: GaussianMixture,
    lr: float,
    momentum: float,
    weight_decay: float,
    means: float,
    variances: float,
    means_decay: float,
) -> torch.optim.SGD:
    """SGD over the groups of :func:`clearance.heads.mixture_groups`, which explains the numbers.

    >>> head = GaussianMixture(4, 3, "diagonal")
    >>> factors = {"means": 1.0, "variances": 0.1, "means_decay": 1.0}
    >>> stepper = mixture_sgd(head.parameters(), head=head, lr=0.05, momentum=0.9, weight_decay=0.0, **factors)
    >>> [round(group["lr"], 4) for group in stepper.param_groups]
    [0.05, 0.005]
    """
    groups = mixture_groups(
        parameters,
        head,
        lr,
        means=means,
        variances=variances,
        weight_decay=weight_decay,
        means_decay=means_decay,
    )
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


def build_schedule(recipe: Recipe) -> Callable[[Optimizer], LRScheduler] | None:
    """Cosine decay to 0 over the run, a tenth after half and again after three quarters of it, or none.

    Counted in epochs, or in updates if the recipe does; then the schedule does not depend on the number of images.
    """
    length = recipe.epochs if recipe.steps is None else recipe.steps
    if recipe.schedule == "constant":
        return None
    if recipe.schedule == "tenths":
        milestones = [
            max(1, length // 2),
            max(1, 3 * length // 4),
        ]  # at 0 it would decay before the first update
        return partial(MultiStepLR, milestones=milestones, gamma=0.1)
    return partial(CosineAnnealingLR, T_max=length)
