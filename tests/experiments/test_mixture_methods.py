"""Methods with a Gaussian mixture for a head, and those of the losses beside it, from recipe to a step."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.experiments.build import build_model, build_objective, build_optimizer, build_regime
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, identifier, to_tree, tuned_recipe
from clearance.experiments.run import RunPlan
from clearance.heads import MLP, GaussianMixture, GaussianMixtureHeads
from clearance.objectives import CenterLoss, GaussianMixtureLoss
from clearance.regimes.describe import describe

NAMES = ("lgm", "center", "l-softmax", "contrastive", "triplet")


def images():
    return gaussian_images(class_count=3, per_class=8, shape=(1, 8, 8))


def started(method):
    data = images()
    model = build_model("small-cnn", method, data, 0)
    regime = build_regime(method, model=model)
    optimizer = build_optimizer(method)(regime.trainable(model))
    return model, regime.start(model, data, optimizer, regime.generators(0))


@pytest.mark.parametrize("dataset", ["digits", "mnist"])
@pytest.mark.parametrize("name", NAMES)
def test_the_tuned_methods_make_a_step(dataset, name):
    method, data = tuned_recipe(dataset).methods[name], images()
    model, training = started(method)
    before = [value.detach().clone() for value in model.parameters()]
    assert training.step(data.images, data.labels).total.isfinite()
    moved = [not torch.equal(new, old) for new, old in zip(model.parameters(), before, strict=True)]
    frozen = 1 if isinstance(model.head, GaussianMixture) else 0  # uniform priors
    assert moved.count(False) == frozen


def test_hidden_layers_before_a_mixture_belong_to_the_extractor():
    model = build_model("small-cnn", Method(mixture="diagonal", hidden=(20, 5)), images(), 0)
    assert isinstance(model.head, GaussianMixture)
    assert (model.head.in_features, model.head.classes, model.head.covariance) == (5, 3, "diagonal")
    assert isinstance(model.extractor, nn.Sequential)
    assert isinstance(model.extractor[-1], MLP)
    assert (model.features(images().images) < 0).any()
    bare = build_model("small-cnn", Method(mixture="identity", hidden=()), images(), 0)
    assert bare.head.in_features == bare.features(images().images).shape[1]


@pytest.mark.parametrize(
    "method", [Method(objective="center"), Method(objective="center", mixture="identity")]
)
def test_a_loss_with_centres_takes_its_sizes_from_the_model(method):
    model = build_model("small-cnn", method, images(), 0)
    found = build_objective(method, model)
    assert isinstance(found, CenterLoss)
    assert (found.in_features, found.classes) == (model.features(images().images).shape[1], 3)


def test_schedules_are_settings_of_a_recipe():
    settings = {"alpha": {"start": 0.1, "factor": 2, "every": 5, "most": 0.3}}
    found = build_objective(Method(objective="gaussian-mixture", objective_settings=settings))
    assert isinstance(found, GaussianMixtureLoss)
    assert found.current_alpha == 0.1


@pytest.mark.parametrize(
    ("mixture", "covariance"), [("none", "scalar"), ("scalar", "scalar"), ("diagonal", "diagonal")]
)
def test_foca_draws_mixtures_of_the_heads_own_covariance(mixture, covariance):
    method = Method(regime="foca", weak_heads="mixture", mixture=mixture, hidden=(), per_class=2)
    _, training = started(method)
    assert training.regime.weak_heads == GaussianMixtureHeads(covariance)
    assert training.step(images().images, images().labels).total.isfinite()


def test_methods_without_a_mixture_keep_the_folders_they_had():
    """Those of runs that were made before there were any."""
    method = Method()
    recipe = Recipe(methods={"mine": method})
    shared = to_tree(recipe)
    for name in ("methods", "seeds", "audits", "audit_settings", "root"):
        del shared[name]
    settings = to_tree(method)
    del settings["mixture"]
    told = {"recipe": shared, "name": "mine", "method": settings, "regime": describe(None)}
    plain = RunPlan(recipe, "mine", 0).folder
    assert plain == f"mine-seed0-{identifier(told)}"
    assert RunPlan(Recipe(methods={"mine": replace(method, mixture="identity")}), "mine", 0).folder != plain


def test_an_unknown_mixture_is_refused():
    with pytest.raises(ValueError, match=r"`mixture` must be one of 'none', 'identity'.*got 'diag'"):
        Method(mixture="diag")  # type: ignore[arg-type]
