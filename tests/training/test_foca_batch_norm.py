"""Batch normalisation under FOCA: what a head's batch may touch."""

import copy

import pytest
import torch
from torch import nn

from clearance.training import FOCA
from clearance.training.foca import ClassBalancedDraws


@pytest.fixture
def model(make_model):
    return make_model(nn.BatchNorm1d(6), nn.ReLU()).train()


def begin(way, model, data, sgd):
    return way.start(model, data, sgd(way, model, lr=0.3), way.generators(0))


def test_3_5_5_running_statistics_are_those_of_the_extractors_batches_alone(data, watched, model, sgd):
    spy = watched([[True]] * 2 + [[False]] * 4)  # redraws are head batches too
    training = begin(FOCA(weak_heads=spy, per_class=2), model, data, sgd)
    for count, rows in enumerate(torch.arange(24).split(8), start=1):
        images, labels = data.batch(rows)
        twin = copy.deepcopy(model)
        twin.features(images)
        before = model.extractor[2].running_mean.clone()
        training.step(images, labels)
        assert torch.equal(model.extractor[2].running_mean, twin.extractor[2].running_mean)
        assert torch.equal(model.extractor[2].running_var, twin.extractor[2].running_var)
        assert int(model.extractor[2].num_batches_tracked) == count
        assert not torch.equal(model.extractor[2].running_mean, before)
    assert len(spy.calls) == 5


def test_a_head_batch_is_normalised_by_itself(data, watched, model, sgd):
    spy, twin = watched(), copy.deepcopy(model)
    way = FOCA(weak_heads=spy, per_class=3)
    rows = ClassBalancedDraws(data.labels, 3).draw(1, 3, way.generators(0)["head_batch"])
    begin(way, model, data, sgd).step(data.images, data.labels)
    torch.testing.assert_close(spy.calls[0][0][0], twin.features(data.images[rows[0]]).detach())


def test_in_evaluation_mode_it_is_normalised_by_the_running_statistics(data, watched, model, sgd):
    spy, twin = watched(), copy.deepcopy(model).eval()
    way = FOCA(weak_heads=spy, per_class=3)
    rows = ClassBalancedDraws(data.labels, 3).draw(1, 3, way.generators(0)["head_batch"])
    begin(way, model.eval(), data, sgd).step(data.images, data.labels)
    torch.testing.assert_close(spy.calls[0][0][0], twin.features(data.images[rows[0]]).detach())
    assert int(model.extractor[2].num_batches_tracked) == 0


def test_layers_track_again_even_where_the_head_batchs_forward_pass_fails(data, make_model, sgd):
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("no features")

    tracked, untracked = nn.BatchNorm1d(6), nn.BatchNorm1d(6, track_running_stats=False)
    model = make_model(tracked, untracked, Failing()).train()
    with pytest.raises(RuntimeError, match="no features"):
        begin(FOCA(per_class=2), model, data, sgd).step(data.images, data.labels)
    assert tracked.track_running_stats
    assert int(tracked.num_batches_tracked) == 0
    assert not untracked.track_running_stats


def test_3_5_5_by_running_statistics_a_head_batch_is_normalised_as_in_evaluation(data, watched, model, sgd):
    spy, twin = watched(), copy.deepcopy(model).eval()
    way = FOCA(weak_heads=spy, per_class=3, batch_norm="running")
    rows = ClassBalancedDraws(data.labels, 3).draw(1, 3, way.generators(0)["head_batch"])
    begin(way, model, data, sgd).step(data.images, data.labels)
    torch.testing.assert_close(spy.calls[0][0][0], twin.features(data.images[rows[0]]).detach())
    assert int(model.extractor[2].num_batches_tracked) == 1  # the extractor's own batch
    assert model.extractor[2].training


def test_3_5_5_by_update_a_head_batch_enters_the_running_statistics(data, watched, model, sgd):
    spy, twin = watched(), copy.deepcopy(model)
    way = FOCA(weak_heads=spy, per_class=3, batch_norm="update")
    rows = ClassBalancedDraws(data.labels, 3).draw(1, 3, way.generators(0)["head_batch"])
    begin(way, model, data, sgd).step(data.images, data.labels)
    torch.testing.assert_close(spy.calls[0][0][0], twin.features(data.images[rows[0]]).detach())
    twin.features(data.images)
    assert int(model.extractor[2].num_batches_tracked) == 2
    torch.testing.assert_close(model.extractor[2].running_mean, twin.extractor[2].running_mean)
    torch.testing.assert_close(model.extractor[2].running_var, twin.extractor[2].running_var)
