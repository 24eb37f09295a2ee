"""Methods with a Gaussian mixture for a head, and those of the losses beside it, from recipe to a step."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.experiments.build import build_loss, build_optimizer, build_way
from clearance.experiments.method import Method
from clearance.experiments.recipe import tuned_recipe
from clearance.experiments.saved import build_model
from clearance.heads import MLP, GaussianMixture, GaussianMixtureHeads
from clearance.losses import CenterLoss, GaussianMixtureLoss, SumLoss

NAMES = ("lgm", "center", "l-softmax", "contrastive", "triplet")


def images():
    return gaussian_images(class_count=3, per_class=8, shape=(1, 8, 8))


def started(method):
    data = images()
    model = build_model("small-cnn", method, data, 0)
    way = build_way(method, model=model)
    optimizer = build_optimizer(method, model)(way.trainable(model))
    return model, way.start(model, data, optimizer, way.generators(0))


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


@pytest.mark.parametrize("method", [Method(loss="center"), Method(loss="center", mixture="identity")])
def test_a_loss_with_centres_takes_its_sizes_from_the_model(method):
    model = build_model("small-cnn", method, images(), 0)
    found = build_loss(method, model)
    assert isinstance(found, CenterLoss)
    assert (found.in_features, found.classes) == (model.features(images().images).shape[1], 3)


def test_a_setting_of_another_type_is_one_error_that_names_the_loss():
    with pytest.raises(
        ValueError, match=r"of loss 'gaussian-mixture' .*alpha='1e-1'.*YAML reads 1e-1 as text"
    ):
        build_loss(Method(loss="gaussian-mixture", loss_settings={"alpha": "1e-1"}))


def test_schedules_are_settings_of_a_recipe():
    settings = {"alpha": {"start": 0.1, "factor": 2, "every": 5, "most": 0.3}}
    found = build_loss(Method(loss="gaussian-mixture", loss_settings=settings))
    assert isinstance(found, GaussianMixtureLoss)
    assert found.current_alpha == 0.1


class TestSum:
    PARTS = {  # noqa: RUF012
        "lgm": {"loss": "gaussian-mixture", "alpha": 0.5},
        "margin": {"loss": "large-margin", "layers": ["input", "features"], "cross_entropy_weight": 0.0},
        "center": {"loss": "center", "cross_entropy_weight": 0.0},
    }

    def test_parts_are_losses_with_their_settings_and_sizes(self):
        settings = {"parts": self.PARTS, "weights": {"margin": 0.5}}
        method = Method(mixture="identity", hidden=(6,), loss="sum", loss_settings=settings)
        model, training = started(method)
        loss = build_loss(method, model)
        assert isinstance(loss, SumLoss)
        parts: dict[str, Any] = dict(loss.parts.items())
        assert (parts["lgm"].alpha, parts["margin"].margin_layers) == (0.5, ("input", "features"))
        assert (parts["center"].in_features, parts["center"].classes) == (6, 3)
        assert loss.weights == {"lgm": 1.0, "margin": 0.5, "center": 1.0}
        terms = training.step(images().images, images().labels).terms
        assert [name.split("/")[0] for name in terms] == ["lgm", "lgm", "margin", "center"]
        assert all(term.isfinite() for term in terms.values())

    @pytest.mark.parametrize("parts", [None, {}, ["hinge"], {"hinge": {}}, {"hinge": "hinge"}])
    def test_what_is_no_list_of_losses_is_refused(self, parts):
        with pytest.raises(ValueError, match="`parts` of loss 'sum' must map names to losses"):
            build_loss(Method(loss="sum", loss_settings={"parts": parts}))

    def test_a_wrong_setting_of_a_part_is_named(self):
        parts = {"margin": {"loss": "hinge", "alpha": 1.0}}
        with pytest.raises(ValueError, match="setting of loss 'hinge'"):
            build_loss(Method(loss="sum", loss_settings={"parts": parts}))


@pytest.mark.parametrize(
    ("mixture", "covariance"), [("none", "scalar"), ("scalar", "scalar"), ("diagonal", "diagonal")]
)
def test_foca_draws_mixtures_of_the_heads_own_covariance(mixture, covariance):
    method = Method(way="foca", weak_heads="mixture", mixture=mixture, hidden=(), per_class=2)
    _, training = started(method)
    assert training.way.weak_heads == GaussianMixtureHeads(covariance)
    assert training.step(images().images, images().labels).total.isfinite()


class TestPriors:
    def test_they_are_uniform_unless_told(self):
        head: Any = build_model("tiny-lenet-plus", Method(mixture="identity", hidden=()), images(), 0).head
        assert not head.log_priors.requires_grad
        torch.testing.assert_close(head.log_prior().exp(), torch.full((3,), 1 / 3))

    def test_empirical_ones_are_the_shares_of_the_training_labels(self):
        data = images()
        order = data.labels.argsort(stable=True)
        data = data.subset(order[:17])  # one image of the last class
        method = Method(mixture="identity", hidden=(), priors="empirical")
        head: Any = build_model("tiny-lenet-plus", method, data, 0).head
        counts = [int((data.labels == name).sum()) for name in range(3)]
        assert counts[2] == 1
        assert not head.log_priors.requires_grad
        torch.testing.assert_close(head.log_prior().exp(), torch.tensor(counts) / len(data))

    def test_learned_ones_move_and_are_not_decayed(self):
        method = Method(
            mixture="identity", hidden=(), priors="learned", lr=0.1, momentum=0.0, weight_decay=0.5,
            loss="gaussian-mixture",
        )  # fmt: skip
        data = images()
        model = build_model("tiny-lenet-plus", method, data, 0)
        head: Any = model.head
        before = head.set_priors([0.5, 0.3, 0.2]).log_priors.detach().clone()
        optimizer = build_optimizer(method, model)(model.parameters())
        build_loss(method, model)(model.outputs(data.images), data.labels).total.backward()
        slope = head.log_priors.grad.clone()
        optimizer.step()
        assert slope.abs().max() > 0
        torch.testing.assert_close(head.log_priors.detach(), before - 0.1 * slope)

    def test_without_a_mixture_there_are_none(self):
        with pytest.raises(ValueError, match=r"`priors` must be uniform without a mixture.*got learned"):
            Method(priors="learned")


class TestStepSizes:
    """Means and variances at step sizes of their own, against a step by hand."""

    METHOD = Method(
        mixture="diagonal", hidden=(), features=3, lr=0.1, momentum=0.0, weight_decay=0.5, means_lr=2.0,
        variances_lr=0.25, means_decay=0.1, loss="gaussian-mixture",
        loss_settings={"alpha": 0.1, "likelihood_weight": 0.1},
    )  # fmt: skip

    def test_a_step_is_that_of_plain_descent_with_these_factors(self):
        data = images()
        model = build_model("tiny-lenet-plus", self.METHOD, data, 0).double()
        images64 = data.images.double()
        loss = build_loss(self.METHOD, model)
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        optimizer = build_optimizer(self.METHOD, model)(model.parameters())
        loss(model.outputs(images64), data.labels).total.backward()
        slopes = {
            name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
        }
        optimizer.step()
        rates = {"head.means": (0.2, 0.05), "head.raw_log_variance": (0.025, 0.0)}
        for name, value in model.named_parameters():
            if name == "head.log_priors":  # uniform, so that they stay
                assert torch.equal(value, before[name])
                continue
            lr, decay = rates.get(name, (0.1, 0.5))
            torch.testing.assert_close(
                value.detach(), before[name] - lr * (slopes[name] + decay * before[name])
            )

    def test_fixed_variances_without_factors_need_no_groups(self):
        model = build_model("tiny-lenet-plus", Method(mixture="identity", hidden=()), images(), 0)
        optimizer = build_optimizer(Method(mixture="identity"), model)(model.parameters())
        assert len(optimizer.param_groups) == 1

    def test_a_run_is_told_no_more_than_the_numbers_of_its_optimiser(self):
        """A setting of methods that comes later must not be another optimiser: runs could not be continued."""
        model = build_model("tiny-lenet-plus", self.METHOD, images(), 0)
        settings = build_optimizer(self.METHOD, model).keywords  # type: ignore[attr-defined]
        numbers = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.5}
        factors = {"means": 2.0, "variances": 0.25, "means_decay": 0.1}
        assert settings == {"head": model.head, **numbers, **factors}

    @pytest.mark.parametrize("name", ["means_lr", "variances_lr", "means_decay"])
    def test_without_a_mixture_they_are_refused(self, name):
        with pytest.raises(ValueError, match=rf"`{name}` must be 1 without a mixture.*got 2\.0"):
            Method(**{name: 2.0})  # type: ignore[arg-type]

    def test_they_must_be_in_range(self):
        with pytest.raises(ValueError, match="`means_lr`"):
            Method(mixture="identity", means_lr=0.0)
        with pytest.raises(ValueError, match="`means_decay`"):
            Method(mixture="identity", means_decay=-1.0)


def test_an_unknown_mixture_is_refused():
    with pytest.raises(ValueError, match=r"`mixture` must be one of 'none', 'identity'.*got 'diag'"):
        Method(mixture="diag")  # type: ignore[arg-type]
