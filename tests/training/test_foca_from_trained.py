"""FOCA on a network that was trained before, features that drift, and bounded weights."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import GaussianClasses
from clearance.heads import MLP, HeadStack, HeadTraining, train_heads
from clearance.models import Classifier, extract_features
from clearance.training import FOCA, EndToEnd, fit

WORLD = GaussianClasses(class_count=4, shape=(1, 6, 6), separation=4.0, noise=0.05)


def one_image_error(model, train, test, repeats=30):
    """Mean error of fresh linear heads, each trained on one image of every class."""
    features, held_out = extract_features(model, train), extract_features(model, test)
    size = features.square().mean().sqrt()
    stream = torch.Generator().manual_seed(5)
    rows = torch.stack(
        [
            torch.stack([pool[torch.randint(len(pool), (), generator=stream)] for pool in pools])
            for pools in [[(train.labels == c).nonzero().flatten() for c in range(4)]] * repeats
        ]
    )
    heads = HeadStack.initialised(nn.Linear(features.shape[1], 4), repeats, stream)
    trained = train_heads(heads, features / size, train.labels, HeadTraining(steps=100, lr=0.05), rows=rows)
    return float((trained.stack.predictions(held_out / size) != test.labels).double().mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fine_tuning_makes_one_image_enough(seed):
    train, test = WORLD.images(per_class=30, seed=seed), WORLD.images(per_class=50, seed=seed + 100)
    torch.manual_seed(seed)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
    model = Classifier(extractor, MLP((16, 16, 4)), mean=0.5, std=0.1)
    plain = fit(model, EndToEnd(), train, epochs=15, batch_size=30, seed=seed)
    assert plain.status.good
    before = one_image_error(model, train, test)
    tuned = fit(
        model, FOCA(per_class=1, heads=4, final_head=QUICK), train, epochs=25, batch_size=30, seed=seed
    )
    assert tuned.status.good
    assert one_image_error(model, train, test) < 0.7 * before


QUICK = HeadTraining(steps=200, lr=0.03, momentum=0.9)


def test_the_first_unit_is_that_of_the_features_at_the_start(data, watched, make_model, sgd):
    units = []
    for scale in (1.0, 8.0):
        model, spy = make_model(), watched()
        with torch.no_grad():
            model.extractor[1].weight.mul_(scale)
            model.extractor[1].bias.mul_(scale)
        way = FOCA(weak_heads=spy, per_class=2)
        training: Any = way.start(model, data, sgd(way, model), way.generators(0))
        training.step(data.images, data.labels)
        rms = spy.calls[0][0].square().mean().sqrt()
        torch.testing.assert_close(training.first_unit, rms * (6 / 128) ** 0.5)
        units.append(training.first_unit)
    torch.testing.assert_close(units[1], 8 * units[0])


def test_3_5_1_features_that_drift_a_thousandfold_get_heads_that_fit_as_well(data, watched, make_model, sgd):
    logits = []
    for drift in (1.0, 1024.0):
        model, spy = make_model(), watched()
        way = FOCA(weak_heads=spy, per_class=2, heads=3)
        streams = way.generators(0)
        at_first = {name: stream.get_state() for name, stream in streams.items()}
        training = way.start(model, data, sgd(way, model, lr=0.0), streams)
        training.step(data.images, data.labels)
        with torch.no_grad():
            model.extractor[1].weight.mul_(drift)
            model.extractor[1].bias.mul_(drift)
        for name, stream in streams.items():
            stream.set_state(at_first[name])  # the same images and first weights again
        training.step(data.images, data.labels)
        features, _, trained = spy.calls[1]
        logits.append(trained.stack(features))
        torch.testing.assert_close(features, drift * spy.calls[0][0])
    torch.testing.assert_close(logits[0], logits[1])
    assert float(logits[0].std()) > 0.01


def test_3_5_1_max_norm_bounds_the_extractor_and_no_head(data, make_model, watched):
    model, spy = make_model(), watched()
    with torch.no_grad():
        model.head[0].weight.fill_(50.0)
    kept = model.head[0].weight.clone()
    heads = []

    def look(progress):
        heads.append(torch.equal(model.head[0].weight, kept))
        assert float(model.extractor[1].weight.detach().norm(dim=1).max()) <= 0.01 * (1 + 1e-5)

    final = HeadTraining(steps=100, lr=0.1)
    way = FOCA(weak_heads=spy, per_class=2, final_head=final)
    fit(model, way, data, epochs=2, batch_size=8, max_norm=0.01, on_step=look)
    assert all(heads)
    assert len(heads) == 6
    drawn = [trained.stack.parameters["0.weight"].norm(dim=-1).max() for _, _, trained in spy.calls]
    assert min(map(float, drawn)) > 0.01
    assert float(model.head[0].weight.detach().norm(dim=1).max()) > 0.01
