"""Weak heads that diverge, and the head that a model keeps in the end."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.data import ImageSet
from clearance.heads import GradientHeads, HeadTraining
from clearance.training import FOCA, fit
from clearance.vocabulary import Outcome


def begin(way, model, data, sgd, seed=0, **how):
    return way.start(model, data, sgd(way, model, **how), way.generators(seed))


def accuracy(model, data):
    return float((model(data.images).argmax(dim=1) == data.labels).double().mean())


def test_a_diverged_head_is_left_out_and_counted(data, watched, make_model, sgd):
    model, spy = make_model().double(), watched([[False, True, False]])
    features = model.features(data.images).detach()
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=3), model, data, sgd)
    loss = training.step(data.images, data.labels)
    stack = spy.calls[0][2].stack
    left = [F.cross_entropy(stack[k](features), data.labels) for k in (0, 2)]
    torch.testing.assert_close(loss.total.detach(), sum(left) / 2, rtol=1e-12, atol=0)
    assert (training.drawn_heads, training.diverged_heads, len(spy.calls)) == (3, 1, 1)


def test_when_all_heads_diverge_others_are_drawn_on_another_batch(data, watched, make_model, sgd):
    model, spy = make_model(), watched([[True, True]] * 3 + [[False, False]] * 2)
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=2), model, data, sgd)
    loss = training.step(data.images, data.labels)
    assert bool(loss.total.isfinite())
    assert len(spy.calls) == 4
    assert (training.drawn_heads, training.diverged_heads) == (8, 6)
    batches = [features for features, _, _ in spy.calls]
    assert not any(torch.equal(a, b) for i, a in enumerate(batches) for b in batches[:i])
    training.step(data.images, data.labels)
    assert len(spy.calls) == 5


def test_where_every_redraw_diverges_the_run_has_diverged(data, watched, make_model):
    good, bad = [[False, False]] * 2, [[True, True]] * 4
    spy, model = watched(good + bad), make_model()
    extractors = []
    result = fit(
        model,
        FOCA(weak_heads=spy, per_class=2, heads=2, reuse=2),
        data,
        epochs=3,
        batch_size=6,
        on_step=lambda progress: extractors.append(copy.deepcopy(model.extractor.state_dict())),
    )
    assert str(result.status) == "diverged at step 5: term weak_heads is not finite"
    assert len(spy.calls) == 6
    for name, value in model.extractor.state_dict().items():
        assert torch.equal(value, extractors[3][name])  # nothing moved without a head


def test_heads_trained_with_a_huge_step_really_count_as_diverged(data, make_model):
    model = make_model(widths=(6, 3))
    wild = GradientHeads(HeadTraining(steps=5, lr=1e30, weight_decay=1.0))
    result = fit(model, FOCA(weak_heads=wild, per_class=2, heads=2), data, epochs=1, batch_size=6)
    assert str(result.status) == "diverged at step 1: term weak_heads is not finite"


def test_finish_trains_the_head_and_only_the_head(data, make_model, sgd, weights):
    model = make_model(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU())
    training = begin(FOCA(per_class=2), model, data, sgd)
    model.train()
    for _ in range(3):
        training.step(data.images, data.labels)
    before = weights(model)
    training.finish()
    after = weights(model)
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("head.")}
    assert accuracy(model.eval(), data) > 0.75
    assert all(p.requires_grad for p in model.parameters())


def test_finish_starts_a_fresh_head_from_its_own_stream(data, make_model, sgd, weights, same):
    finished = []
    way = FOCA(final_head=HeadTraining(steps=5, lr=0.03, batch_size=10))
    for spoil, seed in ((False, 0), (True, 0), (False, 1)):
        model = make_model()
        if spoil:
            nn.init.constant_(model.head[0].weight, 9.0)
        streams = way.generators(seed)
        before = {name: stream.get_state() for name, stream in streams.items()}
        way.start(model, data, sgd(way, model), streams).finish()
        finished.append(weights(model.head))
        moved = {name for name in streams if not torch.equal(streams[name].get_state(), before[name])}
        assert moved == {"final_head"}
    assert same(finished[0], finished[1])
    assert not same(finished[0], finished[2])


@pytest.mark.parametrize("i", [0, 11, 23])
def test_finish_reads_every_image(data, make_model, sgd, weights, same, i):
    labels = data.labels.clone()
    labels[i] = (labels[i] + 1) % 3
    changed = ImageSet(data.images, labels, data.classes)
    heads = []
    for each in (data, changed):
        model = make_model()
        begin(FOCA(final_head=HeadTraining(steps=3, lr=0.03)), model, each, sgd).finish()
        heads.append(weights(model.head))
    assert not same(*heads)


def test_finish_reads_features_in_evaluation_mode_and_without_augmentation(
    data, make_model, sgd, weights, same
):
    def refuse(images, generator):
        raise AssertionError("the last head is trained on the images as they are")

    model = make_model(nn.BatchNorm1d(6), nn.Dropout(0.9)).train()
    way = FOCA(final_head=HeadTraining(steps=3, lr=0.03))
    begin(way, model, data.augmented(refuse), sgd).finish()
    twin = make_model(nn.BatchNorm1d(6), nn.Identity()).eval()
    begin(way, twin, data, sgd).finish()
    assert same(weights(model.head), weights(twin.head))


def test_the_last_head_is_trained_for_long_enough(data, make_model, sgd):
    model = make_model(widths=(6, 3))
    begin(FOCA(), model, data, sgd).finish()
    loss = F.cross_entropy(model(data.images), data.labels)
    assert float(loss.detach()) < 0.2 * math.log(3)  # log 3 is that of a head that knows nothing


def test_after_fit_the_model_classifies(data, make_model):
    result = fit(make_model(), FOCA(per_class=2), data, epochs=2, batch_size=8, validation=data)
    assert result.status.outcome is Outcome.FINISHED
    assert not result.model.training
    assert accuracy(result.model, data) > 0.75
    # there is no head to validate with before the end
    assert all("validation_error" not in row for row in result.history)


def test_a_stopped_run_has_a_trained_head_too(data, make_model):
    model = make_model(widths=(6, 3))
    result = fit(model, FOCA(per_class=2), data, epochs=2, batch_size=8, on_step=lambda progress: "stop")
    assert str(result.status) == "stopped at step 1: asked to"
    assert accuracy(result.model, data) > 0.75
