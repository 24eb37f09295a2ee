"""Several heads a refresh, one a step in turn; and what is refused before anything has moved."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.data import Augmentation
from clearance.heads import MLP
from clearance.models import Classifier
from clearance.runs import flatten, unflatten
from clearance.training import FOCA


def begin(way, model, data, sgd, seed=0, **how):
    return way.start(model, data, sgd(way, model, **how), way.generators(seed))


def test_in_a_cycle_each_step_uses_the_next_head_alone(data, watched, make_model, sgd):
    model, spy = make_model().double(), watched()
    way = FOCA(weak_heads=spy, per_class=2, heads=3, reuse=5, mode="cycle")
    training = begin(way, model, data, sgd, lr=0.5)
    for turn in (0, 1, 2, 0, 1, 0, 1):  # a new refresh begins with its first head
        twin = copy.deepcopy(model)
        loss = training.step(data.images, data.labels)
        head = spy.calls[-1][2].stack[turn]
        expected = F.cross_entropy(head(twin.features(data.images)), data.labels)
        torch.testing.assert_close(loss.total.detach(), expected.detach(), rtol=1e-12, atol=0)
        gradients = torch.autograd.grad(expected, list(twin.extractor.parameters()))
        pairs = zip(model.extractor.parameters(), twin.extractor.parameters(), gradients, strict=True)
        for after, before, gradient in pairs:
            torch.testing.assert_close(after, before - 0.5 * gradient, rtol=1e-10, atol=1e-13)
    assert len(spy.calls) == 2
    assert training.drawn_heads == 6


def test_a_head_that_diverged_has_no_turn(data, watched, make_model, sgd):
    model, spy = make_model().double(), watched([[False, True, False]])
    features = model.features(data.images).detach()
    way = FOCA(weak_heads=spy, per_class=2, heads=3, reuse=3, mode="cycle")
    training = begin(way, model, data, sgd, lr=0.0)
    for turn in (0, 2, 0):
        loss = training.step(data.images, data.labels)
        expected = F.cross_entropy(spy.calls[0][2].stack[turn](features), data.labels)
        torch.testing.assert_close(loss.total.detach(), expected)


@pytest.mark.parametrize("stop", [2, 4, 7])
@pytest.mark.parametrize("pool", [0, 20])
def test_a_state_taken_within_a_cycle_gives_the_same_next_steps(data, make_model, weights, same, stop, pool):
    way = FOCA(per_class=2, heads=3, reuse=4, mode="cycle", pool=pool)
    augmented = data.augmented(Augmentation(pad=1))

    def started():
        model = make_model()
        optimizer = torch.optim.SGD(way.trainable(model), lr=0.1, momentum=0.9)
        streams = way.generators(0)
        return model, optimizer, streams, way.start(model, augmented, optimizer, streams)

    def go(training, first, last):
        batches = [data.batch(torch.arange(3 * s, 3 * s + 9) % 24) for s in range(first, last)]
        return [training.step(*batch).total.detach() for batch in batches]

    model, optimizer, streams, training = started()
    go(training, 0, stop)
    state = [dict(model.state_dict()), optimizer.state_dict(), training.state_dict()]
    state += [{name: stream.get_state() for name, stream in streams.items()}]
    tree, tensors = flatten(copy.deepcopy(state))
    losses = go(training, stop, 11)
    seen = training.diagnostics()
    other, other_optimizer, other_streams, again = started()
    state = unflatten(tree, tensors)
    other.load_state_dict(state[0])
    other_optimizer.load_state_dict(state[1])
    again.load_state_dict(state[2])
    for name, stream in other_streams.items():
        stream.set_state(state[3][name])
    assert torch.equal(torch.stack(losses), torch.stack(go(again, stop, 11)))
    assert same(weights(model), weights(other))
    assert again.diagnostics() == seen


def test_heads_that_would_never_have_a_turn_are_refused():
    with pytest.raises(ValueError, match=r"`heads` must not exceed `reuse`.*got 4 heads for 3 steps"):
        FOCA(heads=4, reuse=3, mode="cycle")
    assert FOCA(heads=4, reuse=3).mode == "average"


@pytest.mark.parametrize(("name", "wrong"), [("mode", "cicle"), ("batch_norm", "runing")])
def test_unknown_words_are_refused_with_the_nearest(name, wrong):
    with pytest.raises(ValueError, match=f"`{name}` must be one of .* Did you mean"):
        FOCA(**{name: wrong})


@pytest.mark.parametrize("wrong", [-1, 1.5])
def test_a_pool_of_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="`pool` must be a whole number of at least 0"):
        FOCA(pool=wrong)


def test_a_head_with_batch_normalisation_is_refused_at_the_start(data, sgd):
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6))
    model = Classifier(extractor, MLP((6, 5, 3), norm="batch"))
    with pytest.raises(ValueError, match=r"must not hold buffers.*Batch normalisation"):
        begin(FOCA(), model, data, sgd)


def test_more_images_than_a_class_has_are_drawn_with_replacement(data, watched, make_model, sgd):
    spy = watched()
    begin(FOCA(weak_heads=spy, per_class=20), make_model(), data, sgd).step(data.images, data.labels)
    features, labels, _ = spy.calls[0]
    assert torch.equal(torch.bincount(labels[0]), torch.tensor([20, 20, 20]))
    assert len(features[0].unique(dim=0)) <= 24  # there are 8 images of each class


def test_one_feature_is_enough(data, sgd):
    torch.manual_seed(0)
    first = nn.Linear(16, 1)
    model = Classifier(nn.Sequential(nn.Flatten(), first), MLP((1, 4, 3)))
    training = begin(FOCA(per_class=2, heads=2), model, data, sgd)
    before = first.weight.clone()
    for _ in range(3):
        assert bool(training.step(data.images, data.labels).total.isfinite())
    training.finish()
    assert not torch.equal(first.weight, before)
    assert model(data.images).shape == (24, 3)
