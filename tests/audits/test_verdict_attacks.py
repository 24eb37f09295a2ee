"""What the verdict is made of: every loss that ignores scale, every start, and a search without gradients."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance.attacks import SquareSearch
from clearance.attacks.attack import NoGradientWarning
from clearance.attacks.transfer import straight_through
from clearance.audits import Robustness
from clearance.audits.robustness import scale_free_attacks
from clearance.models import Classifier
from digits_nets import digits, network

EPSILON = 0.1
LOSSES = ("logit_margin", "scaled_cross_entropy", "dlr")


def left(model, images, labels, attacks):
    """Share of the images that no attack breaks."""
    broken = torch.stack([attack(model, images, labels).success for attack in attacks])
    return float((~broken.any(dim=0)).double().mean())


@pytest.mark.parametrize("norm", [math.inf, 2.0, 1.0])
def test_three_losses_that_ignore_scale_from_the_image_and_random_points_and_at_rivals(norm):
    row: Any = scale_free_attacks(norm, 0.2, classes=10, steps=50, seed=7)
    assert {(attack.epsilon, attack.norm, attack.steps, attack.seed) for attack in row} == {
        (0.2, norm, 50, 7)
    }
    assert [attack.loss for attack in row] == ["scaled_cross_entropy", "logit_margin", "dlr"]
    assert [attack.restarts for attack in row] == [3, 1, 1]
    assert [attack.targets for attack in row] == [None, 3, 9]


def test_with_two_classes_there_is_no_third_logit_and_no_choice_of_a_rival():
    row: Any = scale_free_attacks(math.inf, 0.2, classes=2, steps=50, seed=0)
    assert [attack.loss for attack in row] == ["scaled_cross_entropy", "logit_margin"]


def test_what_is_not_said_is_the_full_effort():
    assert (Robustness().steps, Robustness().queries, Robustness().images) == (50, 5000, 1000)
    assert Robustness().epsilons == {"inf": None, "2": None}


class Table(nn.Module):
    """Sixteen grey values, read from a table: there is no way for a gradient, and no step that one could pass."""

    edges: torch.Tensor
    values: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", (torch.arange(15) + 0.5) / 15)
        self.register_buffer("values", torch.arange(16) / 15)

    def forward(self, images):
        return self.values[torch.bucketize(images.detach(), self.edges)]


def test_where_no_gradient_leads_through_a_search_without_any_decides():
    train, test = digits()
    some = test.per_class(2, seed=0)
    model = Classifier(nn.Sequential(Table(), network().extractor), network().head).eval()
    past = straight_through(model)
    blind = scale_free_attacks(math.inf, EPSILON, 10, 5, 0)
    right = model(some.images).argmax(1) == some.labels
    with pytest.warns(NoGradientWarning):
        by_gradients = left(past, some.images, some.labels, blind)
    found = Robustness(epsilons={"inf": (EPSILON,)}, steps=5, queries=300)(model, train, some)
    (verdict,) = [m.value for m in found.measurements if m.name == "robust_accuracy"]
    searched = left(model, some.images, some.labels, [SquareSearch(EPSILON, queries=300)])
    assert float(right.double().mean()) > 0.9
    assert by_gradients > verdict + 0.2
    assert verdict <= searched
