"""From a recipe's numbers to objects: data, model, loss and regime of one run."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from clearance._checks import check_choice
from clearance._rng import derived_seed
from clearance.attacks.gradient import FGSM
from clearance.audits import check_comparable
from clearance.data import Augmentation, ImageSet, split_classes
from clearance.experiments.catalogue import MODELS, OBJECTIVES, loss_defaults, resolve
from clearance.experiments.datasets import SPLIT_SEED, load_dataset
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.trained_start import started_from, trained_model
from clearance.heads import (
    MLP,
    EarlyStoppedHeads,
    GaussianMixture,
    GaussianMixtureHeads,
    GradientHeads,
    HeadTraining,
    PairHeads,
    RidgeHeads,
)
from clearance.heads.weak import WeakHeads
from clearance.models import Classifier
from clearance.objectives import Objective, SumLoss
from clearance.regimes import FOCA, EndToEnd, Regime

DATA_SEED = 0  # a fraction of the training set is part of the data, the same for every seed of a comparison


@dataclass(frozen=True)
class RunData:
    """The images of a comparison: what is trained on, and what everything is measured on.

    Raises:
        ValueError: If the two have different classes or image shapes: said before anything is trained.
    """

    train: ImageSet
    test: ImageSet
    new_classes: tuple[ImageSet, ImageSet] | None = None  # of classes kept from training: likewise
    validation: ImageSet | None = None  # kept from training, to look at after every epoch

    def __post_init__(self) -> None:
        check_comparable(self.train, self.test)


def build_data(recipe: Recipe) -> RunData:
    """Load, split, thin and augment as the recipe says; what differs from seed to seed is in `drawn_data`.

    With ``held_out`` above 0 the test set is never read: a part of the training set stands in for it.
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


def build_model(model: str, method: Method, train: ImageSet, seed: int) -> Classifier:
    """A fresh classifier whose first weights depend on `seed` alone; normalised by the training set.

    With ``run:PATH`` for a model it is the network of that run, as it was but for empirical priors: those are the
    shares of the labels that are trained on now.

    Raises:
        FileNotFoundError: If there is no such run.
        ValueError: If the images are not square, or images or method do not fit the run's network.
    """
    if (folder := started_from(model)) is not None:
        return _with_priors(trained_model(folder, method, train), method, train)
    fresh = empty_model(model, method, train.shape, train.class_count, seed)
    fresh.mean.copy_(train.images.mean(dim=(0, 2, 3)).view_as(fresh.mean))
    fresh.std.copy_(train.images.std(dim=(0, 2, 3)).clamp(min=1e-3).view_as(fresh.std))
    return _with_priors(fresh, method, train)


def _with_priors(model: Classifier, method: Method, train: ImageSet) -> Classifier:
    if method.priors == "empirical" and isinstance(model.head, GaussianMixture):
        counts = train.labels.bincount(minlength=train.class_count).double()
        model.head.set_priors(counts / counts.sum())
    return model


def empty_model(
    model: str, method: Method, shape: tuple[int, int, int], class_count: int, seed: int = 0
) -> Classifier:
    """The same without data: the classifier's form, to load weights into."""
    channels, height, width = shape
    if height != width:
        raise ValueError(
            f"model {model!r} takes square images; got {height} x {width}. Use a folder with --size."
        )
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay where they were
        torch.manual_seed(derived_seed(seed, "extractor"))
        extractor = _extractor(model, method, channels, height)
        with torch.no_grad():
            features = extractor.eval()(torch.zeros(1, *shape)).shape[1]
        torch.manual_seed(derived_seed(seed, "head"))
        head: nn.Module
        if method.mixture == "none":
            head = MLP((features, *method.hidden, class_count), method.dropout, method.norm)
        else:
            if method.hidden:
                extractor = nn.Sequential(
                    extractor, MLP((features, *method.hidden), method.dropout, method.norm)
                )
                features = method.hidden[-1]
            priors: Literal["uniform", "learned"] = "learned" if method.priors == "learned" else "uniform"
            head = GaussianMixture(features, class_count, method.mixture, priors=priors)
    return Classifier(extractor.train(), head, [0.0] * channels, [1.0] * channels)


def _extractor(name: str, method: Method, channels: int, size: int) -> nn.Module:
    """A fresh extractor, of the width that the method asks for.

    Raises:
        ValueError: If its width is no setting.
    """
    make = resolve("model", name, MODELS)
    width = {"width": method.features} if method.features else {}
    if width and "width" not in inspect.signature(make).parameters:
        raise ValueError(
            f"`features` must be 0 for model {name!r}, whose width is its own; got {method.features}. Use lenet-plus, "
            "or `hidden` for layers before the last."
        )
    made: nn.Module = make(channels, size, method.norm, **width)
    return made


def build_objective(method: Method, model: Classifier | None = None) -> Objective:
    """The loss that a method names, with its settings; one with a centre a class takes its sizes from the model.

    Raises:
        ValueError: If there is no such loss, it has no such setting, or a value is out of range.

    >>> build_objective(Method(objective="hinge", objective_settings={"margin": 2.0}))
    HingeLoss(margin=2.0, form='max')
    >>> parts = {"softmax": {"objective": "cross-entropy"}, "margin": {"objective": "hinge", "margin": 2.0}}
    >>> list(build_objective(Method(objective="sum", objective_settings={"parts": parts})).parts)
    ['softmax', 'margin']
    """
    sizes = {"in_features": 1, "classes": 1} if model is None else _sizes(model)
    return _named_objective(method.objective, method.objective_settings, sizes)


def _named_objective(name: str, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> Objective:
    kind = resolve("objective", name, OBJECTIVES)
    taken = loss_defaults(kind)
    for key in settings:
        check_choice(f"setting of objective {name!r}", key, taken)
    given = {key: size for key, size in sizes.items() if key in taken} | dict(settings)
    if kind is SumLoss:
        given["parts"] = _parts(settings.get("parts"), sizes)
    for group, made_of in getattr(kind, "groups", {}).items():
        parts = {key: given.pop(key) for key in vars(made_of()) if key in given}
        if parts:
            given[group] = made_of(**parts)
    loss: Objective = kind(**given)
    return loss


def _parts(given: Any, sizes: Mapping[str, int]) -> dict[str, Objective]:
    """The losses of a sum, from a mapping of names to ``{objective: ..., its settings}``."""
    trees = given if isinstance(given, Mapping) else {}
    if not trees or not all(isinstance(tree, Mapping) and "objective" in tree for tree in trees.values()):
        raise ValueError(
            "`parts` of objective 'sum' must map names to losses, as in {margin: {objective: hinge, margin: 2.0}}; "
            f"got {given!r}."
        )
    return {
        part: _named_objective(tree["objective"], {k: v for k, v in tree.items() if k != "objective"}, sizes)
        for part, tree in trees.items()
    }


def _sizes(model: Classifier) -> dict[str, int]:
    """Features and classes, from the first and the last matrix of the head."""
    if isinstance(model.head, GaussianMixture):
        return {"in_features": model.head.in_features, "classes": model.head.classes}
    matrices = [value for value in model.head.parameters() if value.ndim == 2]
    return {"in_features": matrices[0].shape[1], "classes": matrices[-1].shape[0]}


def build_regime(
    method: Method, objective: Objective | None = None, model: Classifier | None = None
) -> Regime:
    """The regime of a method; `objective` takes the place of the one it names (a copy of it is used)."""
    loss = copy.deepcopy(objective) if objective is not None else build_objective(method, model)
    if method.regime == "end_to_end":
        attack = FGSM(method.adversarial) if method.adversarial > 0 else None
        return EndToEnd(loss, method.head_noise, attack, method.adversarial_share)
    final = HeadTraining(method.final_head_steps, method.final_head_lr, 0.9, batch_size=128)
    return FOCA(
        loss,
        build_weak_heads(method, loss),
        per_class=method.per_class,
        heads=method.heads,
        reuse=method.reuse,
        mode=method.mode,
        batch_norm=method.heads_batch_norm,
        recalibrate=method.recalibrate,
        pool=method.pool,
        final_head=final,
    )


def build_weak_heads(method: Method, loss: Objective) -> WeakHeads:
    """How FOCA draws its heads; those trained by gradient get the loss that moves the extractor (Eq. 2, 4)."""
    training = HeadTraining(method.head_steps, method.head_lr, 0.9, weight_decay=method.head_decay)
    if method.weak_heads == "ridge":
        return RidgeHeads(method.penalty)
    if method.weak_heads == "mixture":
        return GaussianMixtureHeads("diagonal" if method.mixture == "diagonal" else "scalar")
    if method.weak_heads == "pair":
        return PairHeads(method.penalty)
    kind = EarlyStoppedHeads if method.weak_heads == "early_stopped" else GradientHeads
    return kind(training, loss=loss.sample_loss)
