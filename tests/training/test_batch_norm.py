"""Batch normalisation under FOCA, and running statistics recomputed from the training images."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.losses import TrainingWarning
from clearance.models import Classifier
from clearance.training import FOCA
from clearance.training.batch_norm import frozen_layers, recalibrate_batch_norm
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
    with pytest.warns(TrainingWarning, match="in evaluation mode"):
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
    assert tracked.num_batches_tracked == 0
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


# Running statistics recomputed from the training images.


@pytest.fixture
def normalised(make_model):
    return make_model(
        nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 6), nn.BatchNorm1d(6)
    ).train()


def spoil(model):
    for layer in (model.extractor[2], model.extractor[6]):
        layer.running_mean.fill_(7.0)
        layer.running_var.fill_(5.0)
        layer.num_batches_tracked.fill_(3)


def test_one_batch_gives_the_exact_moments_of_every_layer(data, normalised):
    spoil(normalised)
    recalibrate_batch_norm(normalised, data)
    first, second = normalised.extractor[2], normalised.extractor[6]
    with torch.no_grad():
        entered = normalised.extractor[:2]((data.images - 0.5) / 0.25)
        mean, var = entered.mean(dim=0), entered.var(dim=0, correction=0)
        normal = (entered - mean) / (var + first.eps).sqrt()
        later = normalised.extractor[5](torch.relu(normal * first.weight + first.bias))  # without dropout
    torch.testing.assert_close(first.running_mean, mean)
    torch.testing.assert_close(first.running_var, entered.var(dim=0))
    torch.testing.assert_close(second.running_mean, later.mean(dim=0))
    torch.testing.assert_close(second.running_var, later.var(dim=0))


def test_batches_count_alike_and_mix_the_classes():
    data = gaussian_images(class_count=4, per_class=16, shape=(1, 4, 4))  # class after class
    layer: Any = nn.BatchNorm1d(16)
    model = Classifier(nn.Sequential(nn.Flatten(), layer), nn.Linear(16, 4))
    recalibrate_batch_norm(model, data, batch_size=16)
    pixels = data.images.flatten(1)
    torch.testing.assert_close(layer.running_mean, pixels.mean(dim=0))  # equal batches: exact
    assert int(layer.num_batches_tracked) == 4
    one_class = torch.stack([part.var(dim=0) for part in pixels.split(16)]).mean(dim=0)
    whole = pixels.var(dim=0)
    ratio = float((layer.running_var / whole).mean())
    assert 0.9 < ratio < 1.1
    assert float((one_class / whole).mean()) < 0.6  # what batches of one class would have given


def test_it_changes_statistics_and_nothing_else(data, normalised, weights):
    spoil(normalised)
    modes = [part.training for part in normalised.modules()]
    momentum = [normalised.extractor[2].momentum, normalised.extractor[6].momentum]
    before, globally = weights(normalised), torch.get_rng_state()
    recalibrate_batch_norm(normalised, data, batch_size=7)
    changed = {name for name, value in weights(normalised).items() if not torch.equal(value, before[name])}
    kinds = ("running_mean", "running_var", "num_batches_tracked")
    assert changed == {f"extractor.{i}.{kind}" for i in (2, 6) for kind in kinds}
    assert [part.training for part in normalised.modules()] == modes
    assert [normalised.extractor[2].momentum, normalised.extractor[6].momentum] == momentum
    assert torch.equal(torch.get_rng_state(), globally)


def test_what_came_before_and_when_it_is_done_do_not_matter(data, normalised, weights, same):
    recalibrate_batch_norm(normalised, data, batch_size=7)
    first = weights(normalised)
    spoil(normalised)
    recalibrate_batch_norm(normalised.eval(), data, batch_size=7)
    assert same(first, weights(normalised))


def test_frozen_layers_keep_their_statistics(data, normalised, weights, same):
    before = weights(normalised)
    normalised.extractor.requires_grad_(False)
    recalibrate_batch_norm(normalised, data)
    assert same(before, weights(normalised))


def test_frozen_layers_without_weights_keep_theirs_too():
    layer = nn.BatchNorm1d(4, affine=False)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), layer)
    assert frozen_layers(extractor) == []
    assert frozen_layers(extractor.requires_grad_(False)) == [layer]
    assert frozen_layers(nn.Sequential(nn.Flatten(), layer)) == [], "nothing there is frozen"


def test_no_batch_is_a_single_image(data, normalised):
    recalibrate_batch_norm(normalised, data.subset(torch.arange(5)), batch_size=2)
    assert int(normalised.extractor[2].num_batches_tracked) == 2
    assert bool(normalised.extractor[2].running_var.isfinite().all())


def test_too_few_images_are_refused(data, normalised, make_model, weights, same):
    with pytest.raises(ValueError, match="`data` must hold at least 2 images"):
        recalibrate_batch_norm(normalised, data.subset(torch.arange(1)))
    with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 2; got 1"):
        recalibrate_batch_norm(normalised, data, batch_size=1)
    plain = make_model()
    before = weights(plain)
    recalibrate_batch_norm(plain, data.subset(torch.arange(1)))  # nothing to do
    assert same(before, weights(plain))


@pytest.mark.parametrize("recalibrate", [False, True])
def test_3_5_5_finish_does_it_where_asked(data, normalised, sgd, weights, same, recalibrate):
    way = FOCA(per_class=2, recalibrate=recalibrate)
    training = way.start(normalised, data, sgd(way, normalised), way.generators(0))
    training.step(data.images, data.labels)
    twin = copy.deepcopy(normalised)
    training.finish()
    recalibrate_batch_norm(twin, data)
    assert same(weights(normalised.extractor), weights(twin.extractor)) == recalibrate


class Branched(nn.Module):
    """A body, and a branch with batch normalisation that features do not run through."""

    def __init__(self, width):
        super().__init__()
        self.last: Any = nn.BatchNorm1d(6)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(width, 6), self.last)
        self.other: Any = nn.BatchNorm1d(6)
        self.fails = False

    def forward(self, images):
        if self.fails:
            raise RuntimeError("out of memory")
        return self.body(images)


def test_layers_that_do_not_run_or_were_interrupted_keep_their_statistics(data):
    extractor = Branched(data.images[0].numel())
    model = Classifier(extractor, nn.Linear(6, 3))
    extractor.other.running_mean.fill_(7.0)
    recalibrate_batch_norm(model, data)
    assert bool((extractor.other.running_mean == 7).all())
    kept = extractor.last.running_mean.clone()
    assert not bool((kept == 0).any())
    extractor.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        recalibrate_batch_norm(model, data)
    assert torch.equal(extractor.last.running_mean, kept)
