"""The verdict beside AutoAttack's, on a small network of the digits: never more than half a point above it."""

import functools
import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from clearance.attacks import APGD
from clearance.attacks.attack import broken
from clearance.audits import Robustness
from clearance.audits.robustness import Target, scale_free_attacks
from clearance.models import Classifier
from digits_nets import Times, digits, network

pyautoattack = pytest.importorskip("pyautoattack")

CASES = [(math.inf, "Linf", 0.08), (2.0, "L2", 0.4), (1.0, "L1", 1.5)]


def verdict(model, images, norm, epsilon, **settings):
    audit = Robustness(epsilons={norm: (epsilon,)}, **settings)
    return audit(model, images, images)


def value(found, name="robust_accuracy"):
    return next(m.value for m in found.measurements if m.name == name)


def left_by_auto_attack(model, data, name, epsilon, **settings):
    attack = pyautoattack.AutoAttack(model, norm=name, eps=epsilon, seed=0, **settings)
    attack.apgd.n_restarts = 5 if name == "L1" else 1  # as in its standard version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images, _ = attack.run_standard_evaluation(data.images, data.labels)
    with torch.no_grad():
        return float((~broken(model(images), data.labels)).double().mean())


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "name", "epsilon"), CASES)
def test_it_is_at_most_half_a_point_above_auto_attack(norm, name, epsilon):
    some = digits()[1].per_class(5, seed=0)
    ours = value(verdict(network(), some, norm, epsilon))
    assert ours <= left_by_auto_attack(network(), some, name, epsilon) + 0.005
    assert 0.05 < ours < 0.95


def test_nor_above_its_attacks_with_gradients():
    some = digits()[1].per_class(4, seed=0)
    gradients = {"version": "custom", "attacks": ["apgd-ce", "apgd-t"]}
    ours = value(verdict(network(), some, math.inf, 0.08, queries=250))
    assert ours <= left_by_auto_attack(network(), some, "Linf", 0.08, **gradients) + 0.005


@functools.cache
def whole(norm, epsilon, scale=1.0):
    model = Classifier(network().extractor, Times(network().head, scale)).eval()
    return survivors(model, norm, epsilon, digits()[1].per_class(7, seed=0))


def survivors(model, norm, epsilon, data):
    target = Target(model, data.images, data.labels)
    return target.left(scale_free_attacks(norm, epsilon, 10, 20, 0))


@pytest.mark.parametrize(("norm", "epsilon"), [(norm, epsilon) for norm, _, epsilon in CASES])
@pytest.mark.parametrize("scale", [50.0, 1e-3])
def test_the_scale_of_logits_moves_no_image(norm, epsilon, scale):
    assert torch.equal(whole(norm, epsilon, scale), whole(norm, epsilon))


@pytest.mark.parametrize("cuts", [(10, 64), (1, 2, 69)])
def test_nor_does_it_matter_how_images_are_shared_out(cuts):
    data = digits()[1].per_class(7, seed=0)
    parts = torch.arange(len(data)).tensor_split(list(cuts))
    found = torch.cat(
        [survivors(network(), math.inf, 0.08, data.subset(rows)) for rows in parts if len(rows)]
    )
    assert torch.equal(found, whole(math.inf, 0.08))
    assert 0 < int(found.sum()) < len(data)


def test_a_search_that_finds_more_than_gradients_rings():
    some = digits()[1].per_class(4, seed=0)
    hidden = Classifier(nn.Sequential(Far(), network().extractor), network().head).eval()
    found = verdict(hidden, some, math.inf, 0.12, steps=10, queries=400)
    (alarms,) = [one for one in found.exhibits if one.name == "alarms"]
    assert any("attacks without the network's own gradients break" in one for one in alarms.columns["reason"])


class Far(nn.Module):
    """Gradients that lead elsewhere: those of the image turned upside down."""

    def forward(self, images):
        other = images.flip(2, 3)
        return images.detach() + other - other.detach()


@pytest.mark.parametrize(("norm", "epsilon"), [(norm, epsilon) for norm, _, epsilon in CASES])
def test_steps_that_adapt_find_more_than_one_step(norm, epsilon):
    some: Any = digits()[1].per_class(5, seed=0)
    one, many = (
        APGD(epsilon, norm, steps=steps)(network(), some.images, some.labels).success for steps in (1, 50)
    )
    assert int(many.sum()) > int(one.sum())
