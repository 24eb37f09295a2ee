"""Networks whose answers no attack can judge are refused; those that hide their gradients are not fooled by."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearance.attacks import FGSM, PGD
from clearance.audits import Accuracy, BoundaryDistance, MinimalPerturbation, Robustness, robustness
from clearance.models import Classifier
from digits_nets import RoundingFront, Times, digits, network

FEW: Any = {"steps": 5, "queries": 20}


class Changed(nn.Module):
    """Features of the network after a function of the images, or of the features."""

    def __init__(self, before=None, after=None):
        super().__init__()
        self.model, self.before, self.after = network().extractor, before, after

    def forward(self, images):
        features = self.model(images if self.before is None else self.before(images))
        return features if self.after is None else self.after(features)


def with_extractor(extractor):
    return Classifier(extractor, network().head).eval()


def some(per_class=3):
    return digits()[1].per_class(per_class, seed=0)


def audited(model, test=None, norm="inf", epsilon=0.1, **settings):
    return Robustness(epsilons={norm: (epsilon,)}, **{**FEW, **settings})(
        model, digits()[0], some() if test is None else test
    )


def value(findings, name="robust_accuracy"):
    return next(m.value for m in findings.measurements if m.name == name)


def reasons(findings):
    """Why the verdict is in doubt."""
    (alarms,) = [one for one in findings.exhibits if one.name == "alarms"]
    return alarms.columns["reason"]


class TestRefused:
    @pytest.mark.parametrize("audit", [MinimalPerturbation(), BoundaryDistance()])
    @pytest.mark.parametrize(
        "changed", [lambda f: F.dropout(f, 0.1, training=True), lambda f: f + 0.2 * torch.randn_like(f)]
    )
    def test_distances_where_chance_changes_answers(self, audit, changed):
        with pytest.raises(ValueError, match="the model must give the same logits every time"):
            audit(with_extractor(Changed(after=changed)), digits()[0], some())

    @pytest.mark.parametrize("audit", [Robustness(**FEW), MinimalPerturbation(), BoundaryDistance()])
    def test_answers_that_other_images_change(self, audit):
        with pytest.raises(ValueError, match="the model must give logits that depend on one image only"):
            audit(with_extractor(Changed(after=lambda f: f - f.mean(dim=0))), digits()[0], some())

    def test_normalisation_by_the_batch_has_its_own_words(self):
        extractor = nn.Sequential(network().extractor, nn.BatchNorm1d(48, track_running_stats=False))
        model = with_extractor(extractor)
        with pytest.raises(ValueError, match="the model must give logits that depend on one image only"):
            audited(model)
        with pytest.raises(ValueError, match=r"its 'extractor.1' normalises by the statistics of"):
            FGSM(0.1)(model, some().images, some().labels)

    def test_one_image_by_itself_is_no_company(self):
        one = digits()[1].subset(torch.tensor([0]))
        assert value(audited(network(), one, epsilon=1e-6)) == 1.0

    def test_probabilities_have_no_distances(self):
        sure = Classifier(network().extractor, nn.Sequential(network().head, nn.Softmax(dim=1))).eval()
        with pytest.raises(ValueError, match="must return logits; its outputs are at least 0 and sum to one"):
            BoundaryDistance()(sure, digits()[0], some())

    def test_a_model_that_is_no_classifier(self):
        with pytest.raises(
            TypeError, match=r"`model` must be a clearance Classifier; got function.*clearance\.wrap"
        ):
            Robustness()(lambda images: images, digits()[0], some())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="got Sequential"):
            Accuracy()(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), digits()[0], some())  # type: ignore[arg-type]


class TestSource:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (
                Classifier(nn.Flatten(), nn.Linear(64, 5)),
                "`source` must have a logit for each of the model's 10; got 5",
            ),
            (Classifier(nn.Flatten(), nn.Linear(64, 12)), "a logit for each of the model's 10; got 12"),
            (
                Classifier(nn.Flatten(), nn.Linear(192, 10)),
                r"`source` must take the images that the model takes, \(1, 8, 8\)",
            ),
            (
                Classifier(nn.Flatten(), nn.Sequential(nn.Linear(64, 10), nn.Softmax(dim=1))),
                "`source` must return logits; its outputs",
            ),
            (
                with_extractor(Changed(after=lambda f: F.dropout(f, 0.2, training=True))),
                "`source` must give the same",
            ),
        ],
    )
    def test_one_that_makes_no_images_for_this_network_is_refused(self, source, message):
        with pytest.raises(ValueError, match=message):
            audited(network(), source=source.eval())


class TestLogitsThatAreNoNumbers:
    def test_a_masked_class_is_said(self):
        """Nothing that is asked names a class then: the number is 0, and the reason is beside it."""

        def masked(features):
            return torch.cat([features, torch.full_like(features[:, :1], -math.inf)], dim=1)

        class Head(nn.Module):
            def forward(self, features):
                return masked(network().head(features))

        found = audited(Classifier(network().extractor, Head()).eval())
        assert value(found) == 0
        assert any("not finite before any attack" in reason for reason in reasons(found))


class Decoy(nn.Module):
    """A front that rounds, or stops gradients, with a faint linear classifier beside it, which has some of its own."""

    def __init__(self, front):
        super().__init__()
        self.model, self.front = network().extractor, front
        train = digits()[0]
        means = torch.stack([train.images[train.labels == k].mean(dim=0).flatten() for k in range(10)])
        self.faint = 1e-3 * (means - means.mean(dim=0))

    def forward(self, images):
        return torch.cat([self.model(self.front(images)), images.flatten(1) @ self.faint.T], dim=1)


class Both(nn.Module):
    """The network's logits, and those beside them."""

    def forward(self, features):
        return network().head(features[:, :48]) + features[:, 48:]


@torch.no_grad()
def without_graph(images):
    return (8 * images).round() / 8


FRONTS = {
    "round": lambda x: (8 * x).round() / 8,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "no_grad": without_graph,
}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(("norm", "epsilon"), [("inf", 0.1), ("2", 0.5)])
def test_a_faint_way_beside_a_front_hides_nothing(front, norm, epsilon):
    """Gradients are not zero then, only wrong; of all signs of that none need ring."""
    test = some(6)
    hidden = Classifier(Decoy(FRONTS[front]), Both()).eval()
    made_on = PGD(epsilon, math.inf if norm == "inf" else 2.0, loss="logit_margin")
    made = made_on.perturbed(network(), test.images, test.labels)
    transfer = float((hidden(made).argmax(1) == test.labels).double().mean())
    assert value(audited(hidden, test, norm, epsilon, steps=20)) <= transfer + 0.01


class OwnEstimator(nn.Module):
    """The answer of steps with the gradient of what is stepped, by hand: detach is a part of it."""

    def __init__(self):
        super().__init__()
        self.model = network().extractor

    def forward(self, images):
        features = self.model(images)
        return features + ((4 * features).round() / 4 - features).detach()


def test_an_estimator_of_the_networks_own_is_not_lost():
    """Past its detach the two ways cancel, and nothing is left to follow: both gradients are tried."""
    flips = [
        value(MinimalPerturbation(images=30, steps=20, queries=20)(model, digits()[0], some()), "median_flip")
        for model in (network(), with_extractor(OwnEstimator()))
    ]
    assert flips[1] < 1.3 * flips[0]


class Stopped(nn.Module):
    """A stage that is computed again in the backward pass, with a detach in it."""

    def __init__(self):
        super().__init__()
        self.model = network().extractor

    def forward(self, images):
        return checkpoint(self._stage, images, use_reentrant=False)

    def _stage(self, images):
        features = self.model(images)
        return features * torch.sigmoid(features.detach())


@pytest.mark.parametrize(
    "audit",
    [
        Robustness(epsilons={"inf": (0.1,)}, **FEW),
        MinimalPerturbation(steps=3, queries=3),
        BoundaryDistance(steps=3),
    ],
)
def test_checkpointed_networks_are_audited(audit):
    assert audit(with_extractor(Stopped()), digits()[0], some()).measurements


def test_a_class_that_is_masked_by_a_large_number_hides_no_chance():
    class Masked(nn.Module):
        def forward(self, features):
            logits = F.dropout(network().head(features), 0.5, training=True)
            return torch.cat([logits, torch.full_like(logits[:, :2], -1e9)], dim=1)

    model = Classifier(network().extractor, Masked()).eval()
    assert any("the answers are random" in reason for reason in reasons(audited(model)))
    with pytest.raises(ValueError, match="the model must give the same logits every time"):
        MinimalPerturbation(images=9)(model, digits()[0], some())


@pytest.mark.parametrize(
    "changed", [lambda f: F.dropout(f, 0.1, training=True), lambda f: f + 0.05 * torch.randn_like(f)]
)
def test_random_answers_get_an_alarm_and_no_credit(changed):
    model = with_extractor(Changed(after=changed))
    settings: Any = {"epsilon": 0.05, "steps": 10, "queries": 200}
    found = audited(model, some(6), **settings)
    assert any("the answers are random" in reason for reason in reasons(found))
    assert value(found, "alarms") >= 1
    still = value(audited(network(), some(6), **settings))
    assert 0 < value(found) <= still + 0.02  # chance is no defence
    assert value(audited(model, some(6), **settings)) == value(found)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e9])
def test_ordinary_networks_are_taken_however_loud(scale):
    model = Classifier(network().extractor, Times(network().head, scale)).eval()
    assert len(audited(model, steps=1, queries=1).measurements) > 3


def test_distances_are_searched_past_rounding():
    plain, rounding = (
        BoundaryDistance(norms=("inf",), layers=("input",))(model, digits()[0], some())
        for model in (network(), with_extractor(RoundingFront(network().extractor)))
    )
    assert value(rounding, "minimum_distance") <= 1.25 * value(plain, "minimum_distance")


def test_where_no_image_has_a_gradient_both_mean_distances_are_the_worst():
    """A mean of nothing had been 0: the best there is of errors' distances."""
    blind = with_extractor(Changed(before=torch.round))
    found = BoundaryDistance(norms=("2",), layers=("input",), steps=5)(blind, digits()[0], some())
    numbers = {m.name: m for m in found.measurements if m.name in ("error_distance", "adversarial_distance")}
    assert {m.n for m in numbers.values()} == {0}
    assert {name: m.value for name, m in numbers.items()} == {
        "adversarial_distance": 0.0,
        "error_distance": math.inf,
    }


def test_large_images_are_attacked_in_parts_to_the_same_end(monkeypatch):
    """An attack takes some thirty times the memory of its images."""
    test = some(13)
    attacks = [PGD(0.08, steps=5, restarts=2), PGD(0.5, 1.0, steps=5)]
    whole = robustness.survivors(network(), test.images, test.labels, attacks)
    assert 0 < int(whole.sum()) < len(whole)
    monkeypatch.setattr(robustness, "SLICE", test.images[:64].nbytes)
    assert torch.equal(robustness.survivors(network(), test.images, test.labels, attacks), whole)
