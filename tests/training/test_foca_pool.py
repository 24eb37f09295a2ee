"""Weak heads trained on recent training features instead of a forward pass of their own."""

import pytest
import torch

from clearance.training import FOCA


def begin(way, model, data, sgd, seed=0, **how):
    return way.start(model, data, sgd(way, model, **how), way.generators(seed))


def mixed(data, step, size=9):
    """A batch that holds every class, another in every step."""
    return data.batch(torch.arange(step, step + 3 * size, 3) % len(data))


def passes(model):
    """A list that grows by the size of every batch that the extractor meets."""
    sizes = []
    model.extractor.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    return sizes


def test_after_the_first_step_heads_cost_no_forward_pass(data, watched, make_model, sgd):
    model, spy = make_model(), watched()
    sizes = passes(model)
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=2, pool=18), model, data, sgd)
    for step in range(4):
        training.step(*mixed(data, step))
    assert sizes == [12, 9, 9, 9, 9]
    assert len(spy.calls) == 4


@pytest.mark.parametrize("size", [15, 7])  # more than a batch, and less
def test_pooled_features_are_those_of_the_last_batches_as_they_were_then(
    data, watched, make_model, sgd, size
):
    model, spy, seen = make_model(), watched(), []
    training = begin(FOCA(weak_heads=spy, per_class=5, heads=3, pool=size), model, data, sgd)
    for step in range(6):
        images, labels = mixed(data, step)
        with torch.no_grad():
            seen.append((model.features(images), labels))  # before the step moves the extractor
        training.step(images, labels)
        if step == 0:
            continue
        features, drawn_labels, _ = spy.calls[-1]
        recent = torch.cat([f for f, _ in seen[:-1]])[-size:]
        its_labels = torch.cat([y for _, y in seen[:-1]])[-size:]
        assert torch.equal(drawn_labels, torch.arange(3).repeat_interleave(5).expand(3, -1))
        distance = torch.cdist(features.flatten(0, 1), recent, compute_mode="donot_use_mm_for_euclid_dist")
        assert float(distance.amin(dim=1).max()) < 1e-5
        assert torch.equal(its_labels[distance.argmin(dim=1)], drawn_labels.flatten())
        assert features.grad_fn is None
        assert not torch.equal(features[0], features[1])


def test_while_a_class_is_missing_heads_get_a_forward_pass(data, watched, make_model, sgd):
    model, spy = make_model(), watched()
    sizes = passes(model)
    training = begin(FOCA(weak_heads=spy, per_class=2, pool=24), model, data, sgd)
    for first in (0, 8, 16, 0):  # one class after the other
        training.step(*data.batch(torch.arange(first, first + 8)))
    assert sizes == [6, 8, 6, 8, 6, 8, 8]


def test_without_a_pool_nothing_is_kept(data, make_model, sgd):
    training = begin(FOCA(per_class=2), make_model(), data, sgd)
    training.step(data.images, data.labels)
    assert training.state_dict()["pool"] == {"features": None, "labels": None}


def test_a_pool_that_can_never_hold_all_classes_is_refused(data, make_model, sgd):
    with pytest.raises(ValueError, match=r"`pool` must be 0 or at least the number of classes, 3.*got 2"):
        begin(FOCA(pool=2), make_model(), data, sgd)
