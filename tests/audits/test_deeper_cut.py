"""Fresh heads one layer of the head later: co-adaptation's numbers, on other features."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from clearance.audits import CoAdaptation, DeeperCut
from clearance.audits.deeper_cut import cut_deeper
from clearance.data.synthetic import GaussianClasses
from clearance.heads import MLP
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=3.0, noise=0.05)
co_adaptation = partial(CoAdaptation, per_class=(1, 5), repetitions=(4, 3), hidden=(8,))
deeper_cut = partial(DeeperCut, per_class=(1, 5), repetitions=(4, 3), hidden=(8,))
SEED = 3


@pytest.fixture(scope="module")
def train():
    return WORLD.images(per_class=20, seed=0)


@pytest.fixture(scope="module")
def held_out():
    return WORLD.images(per_class=40, seed=1)


def classifier():
    torch.manual_seed(0)
    return Classifier(nn.Flatten(), MLP((16, 9, 7, 3), dropout=0.5), mean=0.5, std=0.05)


def by_key(findings):
    return {(m.name, m.context["head"], m.context["samples"]): m for m in findings.measurements}


def test_is_co_adaptation_of_the_network_cut_by_hand(train, held_out):
    model = classifier()
    first, relu, dropout, *rest = model.head
    later = nn.Sequential(model.extractor, first, relu, dropout)
    by_hand = Classifier(later, nn.Sequential(*rest), mean=0.5, std=0.05)
    expected = by_key(co_adaptation(pixel_limit=0)(by_hand, train, held_out, seed=SEED))
    found = by_key(deeper_cut()(model, train, held_out, seed=SEED))
    before = by_key(co_adaptation(pixel_limit=0)(model, train, held_out, seed=SEED))
    assert found.keys() == expected.keys() == before.keys()
    for key, m in found.items():
        other = expected[key]
        assert (m.value, m.spread, m.n, m.unit) == (other.value, other.spread, other.n, other.unit)
        assert m.audit == "deeper_cut"
        assert dict(m.context) == {**before[key].context, "cut": 1}
    assert any(found[key].value != before[key].value for key in found)


def test_a_layer_that_forgets_the_class_shows_only_behind_it(train, held_out):
    """Pixels separate these classes; a first head layer that is all zero leaves nothing to any head."""
    model = classifier()
    nn.init.zeros_(model.head[0].weight)
    settings: dict[str, Any] = {"per_class": (5,), "repetitions": (10,), "all_images": False}
    before = by_key(co_adaptation(**settings)(model, train, held_out))
    behind = by_key(deeper_cut(**settings)(model, train, held_out))
    assert before["error", "class mean", 15].value < 0.4
    for head in ("retrained", "linear", "class mean"):
        assert behind["error", head, 15].value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "head", [lambda: nn.Linear(16, 3), lambda: nn.Sequential(nn.Tanh(), nn.Linear(16, 3))]
)
def test_a_head_without_a_later_cut_gives_no_measurement(head, train, held_out):
    found = deeper_cut()(Classifier(nn.Flatten(), head()), train, held_out)
    assert found.measurements == ()
    assert found.exhibits == ()


def test_settings_are_checked_as_those_of_co_adaptation():
    with pytest.raises(ValueError, match="`per_class` must ascend"):
        DeeperCut(per_class=(5, 1), repetitions=(1, 1))


def test_nearest_pixels_are_left_out_unless_asked_for(train, held_out):
    heads = {head for _, head, _ in by_key(deeper_cut()(classifier(), train, held_out))}
    assert heads == {"retrained", "linear", "class mean", "class mean, unit length", "nearest neighbour"}
    asked = deeper_cut(pixel_limit=3)(classifier(), train, held_out)
    assert ("error", "nearest pixel", 3) in by_key(asked)


def test_an_activation_that_is_used_twice_is_kept_twice():
    act = nn.ReLU()
    head = nn.Sequential(nn.Linear(64, 32), act, nn.Linear(32, 16), act, nn.Linear(16, 10))
    model = Classifier(nn.Flatten(), head).eval()
    images = torch.rand(5, 1, 8, 8)
    later = cut_deeper(model)
    assert later is not None
    assert torch.equal(later(images), model(images))
