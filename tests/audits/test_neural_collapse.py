"""The four signs of neural collapse on features that have collapsed, and on features that have not."""

import math

import pytest
import torch
from torch import nn

from audits.draws import trained_alone
from clearance.audits import NeuralCollapse
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.geometry import class_scatter, nc1, nc2_equiangle, nc2_equinorm, nc2_simplex, nc3
from clearance.heads import MLP
from clearance.models import Classifier
from clearance.models.features import predictions

WORLD = GaussianClasses(class_count=3, shape=(1, 2, 3), separation=2.0, noise=0.05)
TRAIN, TEST = WORLD.images(40, seed=0), WORLD.images(70, seed=1)


def pixels(head):
    return Classifier(nn.Flatten(), head, mean=0.5, std=0.1)


def linear(weight):
    head = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.zero_()
    return head


def numbers(findings):
    return {(m.name, m.context["split"]): m for m in findings.measurements}


def collapsed(per_class):
    """Every image of class k is the k-th unit vector: a simplex around its centre."""
    labels = torch.arange(4).repeat_interleave(per_class)
    return ImageSet(torch.eye(4)[labels].view(-1, 1, 1, 4), labels, tuple("abcd"))


def test_4_6_collapsed_features_with_their_head_are_0_everywhere():
    model = Classifier(nn.Flatten(), linear(3 * (torch.eye(4) - 0.25)), mean=0.0, std=1.0)
    found = numbers(NeuralCollapse()(model, collapsed(6), collapsed(9)))
    for (name, split), m in found.items():
        expected = 3.0 if name == "effective_rank" else 0.0
        assert m.value == pytest.approx(expected, abs=1e-6), (name, split)
        assert m.better == "lower"
    assert found["nc4", "test"].n == 36
    assert found["nc3", "train"].context["head"] == "own"
    assert (found["nc3", "train"].n, found["nc3", "train"].spread) == (1, None)


def test_a_single_layer_in_another_module_is_the_models_own_too():
    alone = linear(3 * (torch.eye(4) - 0.25))
    for head in (alone, nn.Sequential(alone)):
        m = numbers(NeuralCollapse()(Classifier(nn.Flatten(), head), collapsed(6), collapsed(9)))[
            "nc3", "train"
        ]
        assert (m.value, m.context["head"]) == (pytest.approx(0.0, abs=1e-6), "own")


def test_4_6_fresh_linear_heads_on_collapsed_features_point_at_the_means():
    """By symmetry every step from weights 0 is a multiple of the centred means."""
    model = Classifier(nn.Flatten(), MLP((4, 5, 4)), mean=0.0, std=1.0)
    m = numbers(NeuralCollapse(heads=3)(model, collapsed(6), collapsed(9)))["nc3", "train"]
    assert m.value == pytest.approx(0.0, abs=1e-5)
    assert (m.n, m.context["head"]) == (3, "fresh linear")
    assert m.spread == pytest.approx(0.0, abs=1e-6)


def test_4_6_numbers_are_those_of_geometry_on_both_sets():
    torch.manual_seed(0)
    model = pixels(nn.Linear(6, 3))
    found = numbers(NeuralCollapse()(model, TRAIN, TEST))
    train = class_scatter(((TRAIN.images - 0.5) / 0.1).flatten(1), TRAIN.labels, 3)
    for split, data in (("train", TRAIN), ("test", TEST)):
        features = ((data.images - 0.5) / 0.1).flatten(1)
        cloud = class_scatter(features, data.labels, 3)
        assert found["nc1", split].value == pytest.approx(nc1(features, data.labels, 3), rel=1e-6)
        for number in (nc2_equinorm, nc2_equiangle, nc2_simplex):
            assert found[number.__name__, split].value == pytest.approx(number(cloud), rel=1e-5)
        nearest = torch.cdist(features.double(), train.means).argmin(dim=1)
        expected = float((nearest != predictions(model, data)).double().mean())
        assert found["nc4", split].value == pytest.approx(expected, abs=1e-12)
        assert expected > 0.1
        assert found["nc1", split].n == len(data)
    assert found["nc3", "train"].value == pytest.approx(nc3(model.head.weight.detach(), train), rel=1e-6)
    assert ("nc3", "test") not in found


def test_fresh_heads_are_those_of_a_loop_in_the_unit_of_features():
    features = ((TRAIN.images - 0.5) / 0.1).flatten(1).double()
    unit = features.square().mean().sqrt() * (6 / 128) ** 0.5
    head = linear(torch.zeros(3, 6)).double()
    weight = trained_alone(head, features / unit, TRAIN.labels, [torch.arange(len(TRAIN))] * 200, 0.03).weight
    expected = nc3(weight.detach(), class_scatter(features, TRAIN.labels, 3))
    found = numbers(NeuralCollapse(heads=2)(pixels(MLP((6, 4, 3))), TRAIN, TEST))["nc3", "train"]
    assert found.value == pytest.approx(expected, rel=1e-4)
    assert found.spread == pytest.approx(0.0, abs=1e-7)  # all 120 images fit in one batch


def test_fresh_heads_differ_where_minibatches_do():
    large = WORLD.images(50, seed=0)
    found = numbers(NeuralCollapse(heads=3)(pixels(MLP((6, 4, 3))), large, TEST))["nc3", "train"]
    assert 0 < found.spread < found.value


def test_a_fresh_head_that_diverges_is_the_farthest():
    found = numbers(NeuralCollapse(heads=2, lr=1e38)(pixels(MLP((6, 4, 3))), TRAIN, TEST))["nc3", "train"]
    assert found.value == 2.0


def test_a_head_of_nan_is_infinitely_far_and_never_agrees():
    model = pixels(linear(torch.full((3, 6), float("nan"))))
    found = numbers(NeuralCollapse()(model, TRAIN, TEST))
    assert found["nc3", "train"].value == math.inf
    assert found["nc4", "test"].value == 1.0


@pytest.mark.parametrize(("settings", "name"), [({"heads": 0}, "heads"), ({"lr": 0.0}, "lr")])
def test_settings_are_checked_before_anything_runs(settings, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        NeuralCollapse(**settings)


def test_the_own_layer_is_read_in_every_mode():
    data = collapsed(6)
    model = Classifier(
        nn.Flatten(), nn.Sequential(nn.Dropout(0.5), nn.Linear(data.images[0].numel(), data.class_count))
    )
    contexts = []
    for training in (True, False):
        found = NeuralCollapse(heads=2)(model.train(training), data, data)
        contexts.append(next(m.context for m in found.measurements if m.name == "nc3"))
    assert contexts[0] == contexts[1]
    assert contexts[0]["head"] == "own"
