"""The nearest rival without a sweep for each: as often right as it says, and right for certain where it must be."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from clearance.audits import BoundaryDistance, _likely_rivals
from clearance.audits._likely_rivals import Sweeper, agreement, likely_rivals
from clearance.audits._nearest_rival import likely_nearest_rivals, nearest_rivals
from clearance.models import Classifier
from digits_nets import digits, network  # type: ignore[import-not-found]  # on pytest's path


@pytest.fixture(scope="module")
def exact():
    """A trained network, its images, and all distances of them."""
    model, (_, test) = network(), digits()
    return model, test, nearest_rivals(model, test.images, test.labels, 2.0)


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_it_misses_no_more_than_the_doubt_and_saves_sweeps(monkeypatch, norm):
    monkeypatch.setattr(_likely_rivals, "LEARNT", 120)
    model, (_, test) = network(), digits()
    every = nearest_rivals(model, test.images, test.labels, norm)
    near, found = likely_nearest_rivals(model, test.images, test.labels, norm, doubt=0.1)
    assert found.agreement is not None
    same = torch.isclose(near.distance, every.distance, rtol=1e-4).double().mean()
    assert same > 0.9
    assert (near.distance >= every.distance - 1e-5).all()
    assert found.checked == 60
    assert abs(found.agreement - float(same)) < 0.1
    known = found.known.measured.sum(1)
    assert (known == 9).sum() >= 120
    assert known.double().mean() < 6
    surer = likely_rivals(model, test.images, test.labels, norm, doubt=0.001)
    assert surer.known.measured.sum() > found.known.measured.sum()


def test_what_is_measured_are_the_distances_of_all_rivals(monkeypatch, exact):
    monkeypatch.setattr(_likely_rivals, "CHUNK", 50)
    model, test, every = exact
    sweeper = Sweeper.of(model, test.images, test.labels, 2.0, None)
    sweeper.measure(torch.arange(len(test)), None)
    assert bool(sweeper.known.measured.all())
    torch.testing.assert_close(sweeper.known.distances.amin(1).float(), every.distance, rtol=1e-4, atol=1e-6)
    forecast = sweeper.known.fitted()
    assert forecast is not None
    assert agreement(sweeper.known, forecast, 1e-9) == 1
    one_round = agreement(sweeper.known, forecast, math.inf)
    fresh = Sweeper.of(model, test.images, test.labels, 2.0, None)
    fresh.search(torch.arange(len(test)), forecast, math.inf)
    assert set(fresh.known.measured.sum(1).tolist()) == {2}
    same = torch.isclose(fresh.known.distances.amin(1), sweeper.known.distances.amin(1), rtol=1e-5)
    assert one_round == pytest.approx(float(same.double().mean()), abs=0.005)


def test_on_a_linear_network_two_rivals_are_enough(monkeypatch):
    """Norms of one pair are the same for all images, so that nothing is left to doubt."""
    monkeypatch.setattr(_likely_rivals, "LEARNT", 60)
    draws = torch.Generator().manual_seed(0)
    head = nn.Linear(9, 6)
    with torch.no_grad():
        head.weight.copy_(torch.randn(6, 9, generator=draws))
    model = Classifier(nn.Flatten(), head).double().eval()
    images = torch.rand(200, 1, 3, 3, generator=draws, dtype=torch.float64)
    labels = model(images).argmax(1)
    labels[:20] = (labels[:20] + 1) % 6
    every = nearest_rivals(model, images, labels, 2.0)
    near, found = likely_nearest_rivals(model, images, labels, 2.0, doubt=0.01)
    assert torch.equal(near.rival, every.rival)
    assert found.agreement == 1
    assert sorted(set(found.known.measured.sum(1).tolist())) == [2, 5]


def test_nothing_is_guessed_where_nothing_can_be_learnt(monkeypatch, exact):
    model, test, _ = exact
    few = likely_rivals(model, test.images[:50], test.labels[:50], 2.0, doubt=0.5)
    assert few.agreement is None
    assert bool(few.known.measured.all())
    monkeypatch.setattr(_likely_rivals, "LEARNT", 20)
    for weight in (0.0, math.nan):  # no gradient, and no number
        head = nn.Linear(64, 10)
        nn.init.constant_(head.weight, weight)
        found = likely_rivals(
            Classifier(nn.Flatten(), head).eval(), test.images[:50], test.labels[:50], 2.0, 0.5
        )
        assert found.agreement is None
        assert bool(found.known.measured.all())
        assert bool(found.known.distances.isinf().all())


def test_only_the_highest_logits_are_candidates_where_that_is_asked(monkeypatch, exact):
    monkeypatch.setattr(_likely_rivals, "LEARNT", 100)
    model, test, _ = exact
    few = nearest_rivals(model, test.images, test.labels, 2.0, rivals=3)
    near, found = likely_nearest_rivals(model, test.images, test.labels, 2.0, doubt=1e-9, rivals=3)
    assert found.known.measured.shape == (len(test), 3)
    assert torch.equal(near.rival, few.rival)


def test_the_audit_says_how_often_its_shortlist_was_right(monkeypatch):
    monkeypatch.setattr(_likely_rivals, "LEARNT", 100)
    train, test = digits()
    audit = BoundaryDistance(norms=("2",), layers=("input", "features"), searched=10, steps=2)
    values = [
        {(m.name, m.context.get("layer"), m.context.get("class")): m for m in one(network(), train, test).measurements}
        for one in (audit, dataclasses.replace(audit, doubt=0.05))
    ]  # fmt: skip
    told = values[1].pop(("shortlist_agreement", None, None))
    assert told.value > 0.9
    assert (told.n, told.better, dict(told.context)) == (50, "higher", {"norm": "2", "doubt": 0.05})
    assert values[0].keys() == values[1].keys()
    key = ("first_order_distance", "input", "all")
    assert values[1][key].value == pytest.approx(values[0][key].value, rel=0.05)
    key = ("first_order_distance", "features", "all")
    assert values[1][key].value == values[0][key].value
    with pytest.raises(ValueError, match=r"`doubt` must lie in \[0, 1\)"):
        BoundaryDistance(doubt=1.0)
