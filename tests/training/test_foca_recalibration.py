"""Running statistics recomputed from the training images."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.models import Classifier
from clearance.training import FOCA
from clearance.training.batch_norm import recalibrate_batch_norm


@pytest.fixture
def model(make_model):
    return make_model(
        nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 6), nn.BatchNorm1d(6)
    ).train()


def spoil(model):
    for layer in (model.extractor[2], model.extractor[6]):
        layer.running_mean.fill_(7.0)
        layer.running_var.fill_(5.0)
        layer.num_batches_tracked.fill_(3)


def test_one_batch_gives_the_exact_moments_of_every_layer(data, model):
    spoil(model)
    recalibrate_batch_norm(model, data)
    first, second = model.extractor[2], model.extractor[6]
    with torch.no_grad():
        entered = model.extractor[:2]((data.images - 0.5) / 0.25)
        mean, var = entered.mean(dim=0), entered.var(dim=0, correction=0)
        normal = (entered - mean) / (var + first.eps).sqrt()
        later = model.extractor[5](torch.relu(normal * first.weight + first.bias))  # without dropout
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


def test_it_changes_statistics_and_nothing_else(data, model, weights):
    spoil(model)
    modes = [part.training for part in model.modules()]
    momentum = [model.extractor[2].momentum, model.extractor[6].momentum]
    before, globally = weights(model), torch.get_rng_state()
    recalibrate_batch_norm(model, data, batch_size=7)
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    kinds = ("running_mean", "running_var", "num_batches_tracked")
    assert changed == {f"extractor.{i}.{kind}" for i in (2, 6) for kind in kinds}
    assert [part.training for part in model.modules()] == modes
    assert [model.extractor[2].momentum, model.extractor[6].momentum] == momentum
    assert torch.equal(torch.get_rng_state(), globally)


def test_what_came_before_and_when_it_is_done_do_not_matter(data, model, weights, same):
    recalibrate_batch_norm(model, data, batch_size=7)
    first = weights(model)
    spoil(model)
    recalibrate_batch_norm(model.eval(), data, batch_size=7)
    assert same(first, weights(model))


def test_no_batch_is_a_single_image(data, model):
    recalibrate_batch_norm(model, data.subset(torch.arange(5)), batch_size=2)
    assert int(model.extractor[2].num_batches_tracked) == 2
    assert bool(model.extractor[2].running_var.isfinite().all())


def test_too_few_images_are_refused(data, model, make_model, weights, same):
    with pytest.raises(ValueError, match="`data` must hold at least 2 images"):
        recalibrate_batch_norm(model, data.subset(torch.arange(1)))
    with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 2; got 1"):
        recalibrate_batch_norm(model, data, batch_size=1)
    plain = make_model()
    before = weights(plain)
    recalibrate_batch_norm(plain, data.subset(torch.arange(1)))  # nothing to do
    assert same(before, weights(plain))


@pytest.mark.parametrize("recalibrate", [False, True])
def test_3_5_5_finish_does_it_where_asked(data, model, sgd, weights, same, recalibrate):
    way = FOCA(per_class=2, recalibrate=recalibrate)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    training.step(data.images, data.labels)
    twin = copy.deepcopy(model)
    training.finish()
    recalibrate_batch_norm(twin, data)
    assert same(weights(model.extractor), weights(twin.extractor)) == recalibrate
