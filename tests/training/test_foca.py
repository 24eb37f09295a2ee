"""FOCA: draws, weak heads and their reuse, what a step moves, state, what it tells, and how it fails."""

import copy
import json
import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation, ImageSet, gaussian_images
from clearance.data.synthetic import GaussianClasses
from clearance.heads import (
    MLP,
    GaussianMixture,
    GaussianMixtureHeads,
    GradientHeads,
    HeadStack,
    HeadTraining,
    RidgeHeads,
    train_heads,
)
from clearance.heads.train import TrainedHeads
from clearance.integrations._hosted import Hosted
from clearance.losses import CenterLoss, CrossEntropyLoss, Loss, SquaredErrorLoss, TrainingWarning
from clearance.models import Classifier, extract_features
from clearance.research import generator
from clearance.runs.tree import flatten, unflatten
from clearance.training import FOCA, EndToEnd, Limits, fit
from clearance.training.foca import ClassBalancedDraws, Weakness
from clearance.vocabulary import Outcome
from parallel import Parallel


class OneHead:
    """Always the same head."""

    def __init__(self, head):
        self.head = head

    def draw(self, architecture, features, labels, generator, *bounds):
        return TrainedHeads(HeadStack.of(self.head), torch.tensor([False]))


class Recorder(Loss):
    """Cross-entropy of one head at a time that notes the images it saw and the heads it met."""

    layers = ("input",)

    def __init__(self):
        super().__init__()
        self.seen = []
        self.heads = []
        self.finished = 0

    def forward(self, outputs, labels):
        assert outputs.logits.ndim == 2
        assert torch.equal(outputs.head(outputs.features), outputs.logits)
        self.seen.append(outputs.activations["input"].detach().clone())
        self.heads.append(outputs.head)
        loss = F.cross_entropy(outputs.logits, labels)
        return LossTerms({"cross_entropy": loss, "size": 0.01 * outputs.logits.square().mean()})

    def after_step(self, outputs, labels):
        self.finished += 1


def loss_of_each_head(features, labels, stack):
    """Cross-entropy and size of every head of a stack, each called as a module of its own."""
    logits = [stack[k](features) for k in range(len(stack))]
    return [F.cross_entropy(z, labels) for z in logits], [0.01 * z.square().mean() for z in logits]


def begin(way, model, data, sgd, seed=0, **how):
    return way.start(model, data, sgd(way, model, **how), way.generators(seed))


def test_a_step_moves_the_extractor_and_never_a_head(data, watched, make_model, sgd, weights):
    model, spy = make_model(), watched()
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=2, reuse=2), model, data, sgd)
    assert {id(p) for p in training.way.trainable(model)} == {id(p) for p in model.extractor.parameters()}
    before = weights(model)
    training.step(data.images, data.labels)
    heads_before = {k: v.clone() for k, v in spy.calls[0][2].stack.parameters.items()}
    training.step(data.images, data.labels)
    moved = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert moved == {"extractor.1.weight", "extractor.1.bias"}
    assert all(p.grad is None for p in model.head.parameters())
    for name, value in spy.calls[0][2].stack.parameters.items():
        assert torch.equal(value, heads_before[name])


@pytest.mark.parametrize("reuse", [1, 3])
def test_heads_are_drawn_afresh_every_reuse_steps(data, watched, make_model, sgd, reuse):
    model, spy = make_model(), watched()
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=2, reuse=reuse), model, data, sgd)
    drawn = []
    for _ in range(7):
        training.step(data.images, data.labels)
        drawn.append(len(spy.calls))
    assert drawn == [1 + step // reuse for step in range(7)]
    firsts = [trained.stack.parameters["0.weight"] for _, _, trained in spy.calls]
    assert not any(torch.equal(a, b) for i, a in enumerate(firsts) for b in firsts[:i])
    assert training.drawn_heads == 2 * len(spy.calls)
    assert training.diverged_heads == 0


def test_the_loss_is_the_mean_over_heads_and_its_gradient_that_of_constant_heads(
    data, watched, make_model, sgd
):
    model, spy = make_model().double(), watched()
    twin = copy.deepcopy(model)
    training = begin(FOCA(weak_heads=spy, per_class=2, heads=3), model, data, sgd, lr=0.5)
    loss = training.step(data.images, data.labels)
    features = twin.features(data.images)
    each, _ = loss_of_each_head(features, data.labels, spy.calls[0][2].stack)
    expected = sum(each) / 3
    torch.testing.assert_close(loss.total.detach(), expected.detach(), rtol=1e-12, atol=0)
    assert len({round(float(one.detach()), 9) for one in each}) == 3
    parameters = list(twin.extractor.parameters())
    gradients = torch.autograd.grad(expected, parameters)
    for after, before, gradient in zip(model.extractor.parameters(), parameters, gradients, strict=True):
        torch.testing.assert_close(after, before - 0.5 * gradient, rtol=1e-10, atol=1e-14)


def test_a_loss_that_reads_more_than_logits_meets_each_head_once(data, watched, make_model, sgd):
    model, spy, loss = make_model().double(), watched(), Recorder()
    features = model.features(data.images).detach()
    training = begin(FOCA(loss, spy, per_class=2, heads=3), model, data, sgd)
    terms = training.step(data.images, data.labels)
    stack = spy.calls[0][2].stack
    entropies, sizes = loss_of_each_head(features, data.labels, stack)
    assert list(terms.terms) == ["cross_entropy", "size"]
    torch.testing.assert_close(terms.terms["cross_entropy"].detach(), sum(entropies) / 3)
    torch.testing.assert_close(terms.terms["size"].detach(), sum(sizes) / 3)
    assert loss.finished == 1
    assert len(loss.heads) == 3
    for k, head in enumerate(loss.heads):
        assert torch.equal(head(features), stack[k](features))
        assert not any(p.requires_grad for p in head.parameters())


@pytest.mark.filterwarnings("error")
def test_a_batch_counts_once_however_many_heads_ask(data, make_model, sgd):
    """The means of a center loss that is told after each step are not said to stay."""
    loss = CenterLoss(6, 3, update="paper")
    training = begin(FOCA(loss, per_class=2, heads=60), make_model(), data, sgd)
    for _ in range(3):
        training.step(data.images, data.labels)


def test_features_and_heads_are_detached_from_one_another(data, watched, make_model, sgd):
    model, spy = make_model(), watched()
    begin(FOCA(weak_heads=spy, per_class=2, heads=2), model, data, sgd).step(data.images, data.labels)
    features, _, trained = spy.calls[0]
    assert features.grad_fn is None
    assert not features.requires_grad
    for value in trained.stack.parameters.values():
        assert value.grad_fn is None
        assert not value.requires_grad
        assert value.grad is None


def test_3_5_6_a_head_is_trained_on_the_current_features_of_a_class_balanced_batch(
    data, watched, make_model, sgd
):
    model, spy = make_model(), watched()
    training = begin(FOCA(weak_heads=spy, per_class=4, heads=2), model, data, sgd)
    for _ in range(2):
        with torch.no_grad():
            known = model.features(data.images)
        training.step(data.images, data.labels)
        features, labels, _ = spy.calls[-1]
        assert features.shape == (2, 12, 6)
        assert torch.equal(labels, torch.arange(3).repeat_interleave(4).expand(2, -1))
        distance = torch.cdist(features.flatten(0, 1), known)
        assert float(distance.amin(dim=1).max()) < 1e-5
        assert torch.equal(data.labels[distance.argmin(dim=1)], labels.flatten())
    assert not torch.equal(features[0], features[1])


def test_3_5_6_a_set_that_lacks_a_class_is_refused(data, make_model, sgd):
    with pytest.raises(ValueError, match=r"every class must have an image.*class \[2\]"):
        begin(FOCA(), make_model(), data.subset(torch.arange(16)), sgd)


def test_3_5_10_heads_reuse_and_their_training_leave_the_extractors_batches_alone(data, watched, make_model):
    augmented = data.augmented(Augmentation(flip=True, pad=1))
    seen = []
    for settings in ({}, {"heads": 3}, {"reuse": 2}, {"per_class": 5}, {"weak_heads": watched()}):
        loss = Recorder()
        way = FOCA(loss, **{"weak_heads": GradientHeads(), "per_class": 2, **settings})
        fit(make_model(), way, augmented, epochs=2, batch_size=7, seed=4)
        heads = settings.get("heads", 1)
        seen.append(loss.seen[::heads])
    assert len(seen[0]) == 8
    for other in seen[1:]:
        assert len(other) == 8
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_head_batches_and_first_weights_come_from_streams_of_their_own(data, make_model, sgd):
    model = make_model()
    for way, touched in (
        (FOCA(per_class=2, reuse=9), set()),
        (FOCA(per_class=2), {"head_batch", "head_init"}),
    ):
        streams = way.generators(0)
        training = way.start(model, data, sgd(way, model), streams)
        training.step(data.images, data.labels)
        before = {name: stream.get_state() for name, stream in streams.items()}
        globally = torch.get_rng_state()
        training.step(data.images, data.labels)
        moved = {
            name for name, stream in streams.items() if not torch.equal(stream.get_state(), before[name])
        }
        assert moved == touched
        assert torch.equal(torch.get_rng_state(), globally)


def test_one_head_that_is_never_redrawn_trains_the_extractor_under_that_head(data, make_model, sgd):
    torch.manual_seed(1)
    head = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double().requires_grad_(False)
    for spread, reuse in ((OneHead(head), 1), (OneHead(head), 10**6)):
        model = make_model().double()
        twin = copy.deepcopy(model.extractor)
        training = begin(FOCA(weak_heads=spread, reuse=reuse), model, data, sgd, momentum=0.9)
        by_hand = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
        for rows in torch.arange(24).split(5):
            images, labels = data.batch(rows)
            loss = F.cross_entropy(head(twin((images.double() - 0.5) / 0.25)), labels)
            by_hand.zero_grad()
            loss.backward()
            by_hand.step()
            given = training.step(images, labels)
            torch.testing.assert_close(given.total.detach(), loss.detach(), rtol=1e-12, atol=0)
        for one, other in zip(model.extractor.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["per_class", "heads", "reuse"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_that_are_none_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number of at least 1; got {value!r}"):
        FOCA(**{name: value})


def test_a_loss_that_reads_logits_only_is_asked_once_for_all_heads(data, make_model, sgd):
    shapes = []

    class Watched(CrossEntropyLoss):
        def forward(self, outputs, labels):
            shapes.append(tuple(outputs.logits.shape))
            return super().forward(outputs, labels)

    way = FOCA(Watched(), per_class=2, heads=4)
    begin(way, make_model(), data, sgd).step(data.images, data.labels)
    assert shapes == [(4, 24, 3)]


def test_generators_of_one_seed_differ_by_name():
    streams = FOCA().generators(0)
    assert set(streams) == {"head_init", "head_batch", "head_augmentation", "final_head"}
    draws = [torch.rand(4, generator=stream) for stream in streams.values()]
    assert not any(torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    assert torch.equal(
        torch.rand(4, generator=generator(0, "head_init")), draws[list(streams).index("head_init")]
    )


# Class-balanced draws: exact counts, with replacement, uniform.


LABELS = torch.tensor([2, 0, 1, 0, 2, 2, 0, 2, 1, 2])  # 3, 2 and 5 images


def test_every_class_has_its_exact_count_in_every_head():
    rows = ClassBalancedDraws(LABELS, 3).draw(7, 4, generator(0, "draws"))
    assert rows.shape == (7, 12)
    expected = torch.tensor([0] * 4 + [1] * 4 + [2] * 4)
    assert torch.equal(LABELS[rows], expected.expand(7, -1))


def test_a_class_may_have_fewer_images_than_are_drawn():
    rows = ClassBalancedDraws(LABELS, 3).draw(1, 50, generator(0, "draws"))[0]
    assert set(rows.tolist()) == set(range(10))


def test_draws_are_uniform_and_independent():
    heads, per_class = 4000, 3
    rows = ClassBalancedDraws(LABELS, 3).draw(heads, per_class, generator(1, "draws"))
    times = torch.stack([(rows == row).sum(dim=1) for row in range(10)]).double()  # (10, heads)
    sizes = torch.bincount(LABELS)[LABELS].double()
    chance = 1 / sizes
    # counts of draws with replacement are multinomial: their first and second moments
    same_class = (LABELS[:, None] == LABELS) & ~torch.eye(10, dtype=torch.bool)
    covariance = torch.diag(per_class * chance * (1 - chance)) - same_class * per_class * chance**2
    mean_error = (per_class * chance * (1 - chance) / heads).sqrt()
    assert bool(((times.mean(dim=1) - per_class * chance).abs() < 5 * mean_error).all())
    # without replacement the variance would be lower by (size - 3) / (size - 1), zero for class 0
    torch.testing.assert_close(torch.cov(times), covariance, rtol=0, atol=0.06)


def test_every_image_can_be_drawn_from_a_large_class_and_none_beyond_it():
    labels = torch.cat([torch.zeros(99_999, dtype=torch.int64), torch.ones(1, dtype=torch.int64)])
    rows = ClassBalancedDraws(labels, 2).draw(10, 200_000, generator(0, "draws"))
    first, second = rows.view(10, 2, -1).unbind(1)
    assert int(first.min()) == 0
    assert int(first.max()) == 99_998
    assert bool((second == 99_999).all())


@pytest.mark.parametrize(("classes", "missing"), [(4, r"\[3\]"), (6, r"\[3, 4, 5\]")])
def test_a_class_without_images_is_refused_by_number(classes, missing):
    with pytest.raises(ValueError, match=rf"every class must have an image.*got none of class {missing}"):
        ClassBalancedDraws(LABELS, classes)


def test_a_class_missing_in_between_is_refused():
    with pytest.raises(ValueError, match=r"got none of class \[1\]"):
        ClassBalancedDraws(torch.tensor([0, 2, 2]), 3)


# Weak heads trained on recent training features instead of a forward pass of their own.


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


# Several heads a refresh, one a step in turn; and what is refused before anything has moved.


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


@pytest.fixture
def resumed(data, make_model, weights, same):
    """What training takes 11 steps in, and what resumes after `stop` of them, which must be the same."""

    def both(way, stop, batches):
        augmented = data.augmented(Augmentation(pad=1))

        def started():
            model = make_model()
            optimizer = torch.optim.SGD(way.trainable(model), lr=0.1, momentum=0.9)
            streams = way.generators(0)
            return model, optimizer, streams, way.start(model, augmented, optimizer, streams)

        def go(training, steps):
            return torch.stack([training.step(*batches(s)).total.detach() for s in steps])

        model, optimizer, streams, training = started()
        go(training, range(stop))
        state = [dict(model.state_dict()), optimizer.state_dict(), training.state_dict()]
        state += [{name: stream.get_state() for name, stream in streams.items()}]
        tree, tensors = flatten(copy.deepcopy(state))
        losses = go(training, range(stop, 11))
        other, other_optimizer, other_streams, again = started()
        state = unflatten(tree, tensors)
        other.load_state_dict(state[0])
        other_optimizer.load_state_dict(state[1])
        again.load_state_dict(state[2])
        for name, stream in other_streams.items():
            stream.set_state(state[3][name])
        assert torch.equal(losses, go(again, range(stop, 11)))
        assert same(weights(model), weights(other))
        return training, again

    return both


@pytest.mark.parametrize("stop", [2, 4, 7])
@pytest.mark.parametrize("pool", [0, 20])
@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_state_taken_within_a_cycle_gives_the_same_next_steps(data, resumed, stop, pool):
    way = FOCA(per_class=2, heads=3, reuse=4, mode="cycle", pool=pool)
    training, again = resumed(way, stop, lambda s: data.batch(torch.arange(3 * s, 3 * s + 9) % 24))
    assert again.diagnostics() == training.diagnostics()


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


def test_a_head_in_half_precision_is_refused_at_the_start(data, make_model, sgd):
    with pytest.raises(TypeError, match=r"got a head in torch\.bfloat16.*model\.float\(\).*autocast"):
        begin(FOCA(), make_model().bfloat16(), data, sgd)


def test_layers_of_a_head_that_share_a_tensor_still_share_it_at_the_end(data):
    torch.manual_seed(0)
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    before = first.weight.detach().clone()
    head = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(6, 3))
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 6)), head)
    fit(model, FOCA(per_class=2), data, steps=2, batch_size=12)
    assert second.weight is first.weight
    assert not torch.equal(first.weight, before)


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


# FOCA's state, taken anywhere in a cycle of reuse, gives the same next steps.


@pytest.mark.parametrize("stop", [1, 4, 6])  # at the end of a cycle, within one, before its last step
@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_state_taken_anywhere_in_a_cycle_gives_the_same_next_steps(data, resumed, stop):
    way = FOCA(per_class=2, heads=2, reuse=4)
    training, again = resumed(way, stop, lambda s: data.batch(torch.arange(s, s + 9)))
    assert (again.steps, again.drawn_heads) == (training.steps, training.drawn_heads) == (11, 6)


# How strong the weak heads were: logged once an epoch, from logits that the step has anyway.


def test_3_5_3_accuracy_and_chance_by_hand():
    labels = torch.tensor([0, 1, 2, 0])
    said = torch.tensor([[0, 1, 2, 0], [0, 0, 0, 1], [1, 2, 0, 1]])  # 4, 1 and 0 of 4 right; chance is 1 / 3
    weakness = Weakness()
    weakness.note(torch.nn.functional.one_hot(said[:2], 3).float(), labels)
    weakness.note(torch.nn.functional.one_hot(said[2:], 3).float(), labels)
    assert weakness.take() == pytest.approx(
        {"weak_head_accuracy": (1 + 1 / 4 + 0) / 3, "weak_heads_at_chance": 2 / 3}
    )
    assert weakness.take() == {}


def test_exactly_chance_is_no_better_than_chance():
    weakness = Weakness()
    weakness.note(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
    assert weakness.take() == {"weak_head_accuracy": 0.5, "weak_heads_at_chance": 1.0}


@pytest.mark.parametrize("mode", ["average", "cycle"])
def test_an_epoch_tells_the_mean_over_its_steps(data, watched, make_model, mode):
    model, spy, expected = make_model(), watched(), []

    class Remembering(FOCA):
        def start(self, *arguments):
            training: Any = super().start(*arguments)
            step = training.step

            def watching(images, labels):
                with torch.no_grad():
                    features = model.features(images)
                loss = step(images, labels)
                heads = spy.calls[-1][2].stack
                place = (training.steps - 1) % self.reuse
                used = range(len(heads)) if mode == "average" else [place % len(heads)]
                hits = [(heads[k](features).argmax(dim=1) == labels).double().mean() for k in used]
                expected.append([float(hit) for hit in hits])
                return loss

            training.step = watching
            return training

    way = Remembering(weak_heads=spy, per_class=1, heads=2, reuse=2, mode=mode)
    result = fit(model, way, data, epochs=2, batch_size=8, limits=Limits(max_norm=3.0))
    assert [(row["epoch"], row["step"]) for row in result.diagnostics] == [(1, 3), (2, 6)]
    for row, steps in zip(result.diagnostics, (expected[:3], expected[3:]), strict=True):
        hits = [hit for step in steps for hit in step]
        assert row["weak_head_accuracy"] == pytest.approx(sum(hits) / len(hits))
        assert row["weak_heads_at_chance"] == pytest.approx(sum(h <= 1 / 3 for h in hits) / len(hits))
    assert all("weak_head_accuracy" not in row for row in result.history)  # whose rows hold losses


def test_an_epochs_logged_row_holds_it_and_a_run_read_back_too(data, make_model, tmp_path):
    def run():
        return fit(make_model(), FOCA(per_class=2), data, epochs=2, batch_size=8, run_dir=tmp_path / "run")

    first, again = run(), run()
    assert len(first.diagnostics) == 2
    assert again.diagnostics == first.diagnostics
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for row, history, seen in zip(logged, first.history, first.diagnostics, strict=True):
        assert row == history | seen


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_resumed_run_tells_the_same(data, make_model, tmp_path):
    def run(where, **how):
        way = FOCA(per_class=2, pool=12)
        return fit(make_model(), way, data, epochs=3, batch_size=8, run_dir=where, checkpoint_every=2, **how)

    whole = run(tmp_path / "whole")
    run(tmp_path / "cut", on_step=lambda progress: "stop" if progress.step == 5 else None)
    assert run(tmp_path / "cut").diagnostics == whole.diagnostics
    assert len(whole.diagnostics) == 3


def test_a_way_of_training_without_weak_heads_tells_nothing(data, make_model):
    assert fit(make_model(), EndToEnd(), data, epochs=1, batch_size=8).diagnostics == []


# Weak heads that diverge, and the head that a model keeps in the end.


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


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
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


@pytest.mark.parametrize("mode", ["average", "cycle"])
def test_a_host_that_steps_itself_gets_the_same_bits(data, make_model, sgd, weights, same, mode):
    """`loss` and `after_step` around the host's own backward pass and step are `step`."""
    way = FOCA(Recorder(), per_class=2, heads=2, reuse=2, mode=mode, pool=12)
    whole, parts = make_model(nn.Dropout(0.5)), make_model(nn.Dropout(0.5))
    one, optimizer = begin(way, whole, data, sgd, lr=0.01), sgd(way, parts, lr=0.01)
    other = way.start(parts, data, generators=way.generators(0))
    for seed in range(5):
        torch.manual_seed(seed)
        expected = one.step(data.images, data.labels)
        torch.manual_seed(seed)
        optimizer.zero_grad()
        terms = other.loss(data.images, data.labels)
        terms.total.backward()
        optimizer.step()
        other.after_step()
        assert torch.equal(terms.total, expected.total)
    assert same(weights(whole), weights(parts))
    assert one.diagnostics() == other.diagnostics()
    assert one.steps == other.steps == 5
    assert way.loss.finished == 10


def test_batches_of_one_step_meet_the_same_heads(data, watched, make_model):
    """Accumulated gradients: heads are drawn once in `reuse` steps of the optimiser, not of the batches."""
    model, spy, loss = make_model(), watched(), Recorder()
    training = FOCA(loss, weak_heads=spy, per_class=2, reuse=2, heads=2, pool=24).start(model, data)
    for _ in range(4):
        for half in (slice(0, 12), slice(12, 24)):
            (training.loss(data.images[half], data.labels[half]).total / 2).backward()
        training.after_step()
    assert (len(spy.calls), training.steps, loss.finished) == (2, 4, 4)
    assert training.batches.pool.features is not None
    assert len(training.batches.pool.features) == 24
    training.after_step()
    assert training.steps == 4  # no batch since the last one


def test_without_a_usable_head_a_host_gets_a_loss_that_moves_nothing(data, watched, make_model):
    model, spy = make_model(), watched(diverged=[[True]] * 4)
    training = FOCA(weak_heads=spy, per_class=2).start(model, data)
    with pytest.warns(TrainingWarning, match="stopped at step 1: no weak head of 4 draws"):
        terms = training.loss(data.images, data.labels)
    terms.total.backward()
    assert float(terms.total.detach()) == 0
    assert all(not bool(p.grad.any()) for p in model.extractor.parameters() if p.grad is not None)


def test_what_stands_around_the_model_is_called(data, make_model):
    model = make_model()
    seen = []

    def around(*images, **options):
        seen.append(options["layers"])
        return model(*images, **options)

    FOCA(Recorder(), per_class=2).start(model, data).loss(data.images, data.labels, around).total.backward()
    assert seen == [("input",)]


def test_a_step_needs_an_optimiser(data, make_model):
    with pytest.raises(ValueError, match="`step` needs an optimiser; got none at the start"):
        FOCA().start(make_model(), data).step(data.images, data.labels)


def test_heads_trained_with_a_huge_step_really_count_as_diverged(data, make_model):
    model = make_model(widths=(6, 3))
    wild = GradientHeads(HeadTraining(steps=5, lr=1e30, weight_decay=1.0))
    with pytest.warns(
        TrainingWarning, match="stopped at step 1: no weak head of 4 draws could be trained.*HeadTraining"
    ):
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


# FOCA says so when features have grown out of all proportion since it began.


@pytest.mark.parametrize("heads", [GradientHeads(), GaussianMixtureHeads()])
@pytest.mark.parametrize(("factor", "warned"), [(50.0, False), (200.0, True)])
def test_features_that_have_run_away_are_told_at_the_end(data, make_model, heads, factor, warned):
    model, final = make_model(widths=(6, 3)), HeadTraining(steps=2)
    way = FOCA(weak_heads=heads, per_class=2, final_head=final)
    optimizer = torch.optim.SGD(way.trainable(model), lr=1e-6)
    training = way.start(model, data, optimizer, way.generators(0))
    training.step(data.images[:20], data.labels[:20])
    inner = model.extractor.forward
    model.extractor.forward = lambda x: factor * inner(x)
    if warned:
        with pytest.warns(UserWarning, match=r"features are \d+ times as large as when FOCA began"):
            training.finish()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            training.finish()


# FOCA on a network that was trained before, features that drift, and bounded weights.


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
    fit(model, way, data, epochs=2, batch_size=8, limits=Limits(max_norm=0.01), on_step=look)
    assert all(heads)
    assert len(heads) == 6
    drawn = [trained.stack.parameters["0.weight"].norm(dim=-1).max() for _, _, trained in spy.calls]
    assert min(map(float, drawn)) > 0.01
    assert float(model.head[0].weight.detach().norm(dim=1).max()) > 0.01


def test_a_loop_that_never_redraws_its_heads_is_said(data, make_model):
    way = FOCA(per_class=5)
    training = way.start(make_model(), data, None, way.generators(0))
    images, labels = data.batch(torch.arange(8))
    for _ in range(49):
        training.loss(images, labels)
    with pytest.warns(TrainingWarning, match=r"the same for 50 batches.*call after_step\(\)") as caught:
        training.loss(images, labels)
    assert caught[0].filename == __file__
    training.after_step()
    for _ in range(49):
        training.loss(images, labels)


def test_an_extractor_with_batch_normalisation_in_evaluation_mode_is_said_once(data):
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(data[0][0].numel(), 8), nn.BatchNorm1d(8))
    model, way = Classifier(extractor, MLP((8, data.class_count))), FOCA(per_class=2)
    training = way.start(model, data)
    batch = data.batch(torch.arange(8))
    training.loss(*batch)
    model.eval()
    with pytest.warns(TrainingWarning, match=r"evaluation mode.*call model.train\(\)"):
        training.loss(*batch)
    training.loss(*batch)


def test_a_head_that_is_not_trained_yet_is_said_in_an_audit():
    from clearance import audit

    train, test = (gaussian_images(per_class=10, shape=(1, 4, 4), seed=seed) for seed in (0, 1))
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 16)), MLP((16, train.class_count)))
    training = FOCA(per_class=2, final_head=HeadTraining(steps=5, lr=0.1)).start(model, train)
    audit(model, train=train, test=test, audits=["accuracy"])
    training.loss(*train.batch(torch.arange(8)))
    with pytest.warns(UserWarning, match=r"not trained yet: FOCA.*finish"):
        audit(model, train=train, test=test, audits=["accuracy"])
    training.finish()
    audit(model, train=train, test=test, audits=["accuracy"])


def test_an_optimiser_without_the_extractor_and_a_bare_module_are_refused(data, make_model):
    way, model = FOCA(per_class=2), make_model()
    with pytest.raises(
        ValueError, match=r"must hold the parameters that a step moves.*way.trainable\(model\)"
    ):
        way.start(model, data, torch.optim.SGD(model.head.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="Classifier"):
        way.start(model.extractor, data)


def test_nothing_to_train_and_optimisers_with_closures_are_refused(data, make_model):
    for way in (FOCA(per_class=2), EndToEnd()):
        model = make_model()
        with pytest.raises(TypeError, match="steps after one backward pass; got LBFGS"):
            way.start(model, data, torch.optim.LBFGS(way.trainable(model)), way.generators(0))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.requires_grad_(requires_grad=False)
        with pytest.raises(ValueError, match="nothing to train"):
            way.start(model, data, optimizer, way.generators(0))
    with pytest.raises(ValueError, match="must hold the parameters that a step moves"):
        EndToEnd().start(make_model(), data, torch.optim.SGD(make_model().parameters(), lr=0.1), {})


def test_a_model_that_is_moved_after_the_start_is_refused(data, make_model):
    model = make_model()
    training = FOCA(per_class=2).start(model, data)
    model.to("meta")
    with pytest.raises(ValueError, match=r"started on cpu and is on meta\. Move the model first"):
        training.loss(*data.batch(torch.arange(8)))


def test_a_parallel_model_must_have_been_made_with_a_frozen_head(data, make_model):
    model = make_model()
    training, (images, labels) = FOCA(per_class=2).start(model, data), data.batch(torch.arange(8))
    with pytest.raises(ValueError, match="the head must be frozen before DistributedDataParallel"):
        training.loss(images, labels, Parallel(model))
    model.head.requires_grad_(requires_grad=False)
    for _ in range(2):
        training.loss(images, labels, Parallel(model)).total.backward()
        training.after_step()


def test_in_a_host_the_seed_of_torch_decides_the_weak_heads():
    data = gaussian_images()

    def drawn(seed):
        torch.manual_seed(0)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU()), nn.Linear(8, 3))
        torch.manual_seed(seed)
        hosted = Hosted(FOCA(per_class=2), model, data)
        hosted.begin()
        hosted.training_loss(data.images[:20], data.labels[:20])
        assert hosted.session is not None
        assert hosted.session.heads is not None
        return hosted.session.heads.parameters["weight"]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_mixture_whose_features_are_not_finite_has_diverged_too():
    data = gaussian_images(per_class=10, shape=(1, 4, 4))
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8))
    model, way = (
        Classifier(extractor, GaussianMixture(8, 3, "scalar")),
        FOCA(per_class=2, weak_heads=GaussianMixtureHeads()),
    )
    result = fit(model, way, data, steps=1, batch_size=10, optimizer=partial(torch.optim.SGD, lr=1e36))
    assert result.status.outcome in (Outcome.DIVERGED, Outcome.COLLAPSED)


def test_frozen_batch_normalisation_is_no_mode_that_was_left_wrong():
    data = gaussian_images(per_class=10, shape=(1, 4, 4))
    extractor = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 6))
    extractor[1].requires_grad_(False)
    fit(
        Classifier(extractor, nn.Linear(6, 3)), FOCA(per_class=2), data, steps=2, batch_size=10
    )  # warnings are errors


def test_weak_heads_may_be_trained_in_batches():
    data = gaussian_images(per_class=10, shape=(1, 4, 4))
    way = FOCA(per_class=2, weak_heads=GradientHeads(HeadTraining(steps=5, batch_size=3)))
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 6)), nn.Linear(6, 3))
    assert fit(model, way, data, steps=2, batch_size=10).status.outcome is Outcome.FINISHED


def test_a_final_head_that_diverges_begins_again_at_half_the_learning_rate(data, make_model, sgd):
    model = make_model()
    way = FOCA(SquaredErrorLoss(), RidgeHeads(), final_head=HeadTraining(steps=300, lr=0.2))
    training = begin(way, model, data, sgd)
    training.finish()
    assert all(bool(value.isfinite().all()) for value in model.head.parameters())
    way = FOCA(SquaredErrorLoss(), RidgeHeads(), final_head=HeadTraining(steps=300, lr=1e6))
    hopeless = begin(way, model, data, sgd)
    with pytest.warns(TrainingWarning, match=r"diverged at every learning rate from 1e\+06 down to 3906"):
        hopeless.finish()


def test_heads_of_cross_entropy_are_refused_under_squared_error():
    with pytest.raises(ValueError, match=r"trained on squared error .*RidgeHeads\(\)"):
        FOCA(SquaredErrorLoss())
    FOCA(SquaredErrorLoss(), GradientHeads(loss=SquaredErrorLoss.sample_loss))


def test_a_final_head_with_dropout_is_trained_on_squared_error(data, sgd):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(data.images[0].numel(), 6))
    model = Classifier(extractor, nn.Sequential(nn.Dropout(0.2), nn.Linear(6, data.class_count)))
    heads = GradientHeads(HeadTraining(steps=5, lr=0.01), loss=SquaredErrorLoss.sample_loss)
    way = FOCA(SquaredErrorLoss(), heads, per_class=2, final_head=HeadTraining(steps=20, lr=0.01))
    training = begin(way, model, data, sgd)
    training.step(data.images, data.labels)
    training.finish()
    assert all(bool(value.isfinite().all()) for value in model.head.parameters())


def test_a_final_head_that_tells_no_classes_apart_is_said():
    data = gaussian_images(per_class=10)
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
    model = Classifier(extractor, MLP((64, 32, 3)), float(data.images.mean()), float(data.images.std()))
    way = FOCA(per_class=3, final_head=HeadTraining(steps=300, lr=3.0, batch_size=16))
    training = way.start(model, data, torch.optim.SGD(way.trainable(model), lr=0.05), way.generators(0))
    model.train()
    for _ in range(25):
        training.step(data.images, data.labels)
    with pytest.warns(TrainingWarning, match=r"right on 3\d% .*weak heads were right on 9\d%"):
        training.finish()


@pytest.mark.parametrize("mode", [True, False])
def test_the_final_head_does_not_depend_on_the_mode_that_the_model_is_in(mode, sgd, weights, same):
    """Whether somebody evaluated last: dropout in the head is a part of its training."""
    data, heads = gaussian_images(per_class=8, shape=(1, 4, 4)), []
    for training_mode in (True, mode):
        torch.manual_seed(0)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 16)), MLP((16, 8, 3), dropout=0.5))
        way = FOCA(final_head=HeadTraining(steps=20, lr=0.1))
        training = begin(way, model, data, sgd)
        model.train(training_mode)
        torch.manual_seed(0)
        training.finish()
        assert model.head.training is training_mode
        heads.append(weights(model.head))
    assert same(*heads)


def test_a_head_whose_training_broke_is_not_called_trained(data, make_model, sgd, monkeypatch):
    def failing(model, images):
        raise RuntimeError("out of memory")

    model, way = make_model(), FOCA(per_class=2)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    training.step(data.images, data.labels)
    monkeypatch.setattr("clearance.training.foca.extract_features", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        training.finish()
    assert model.unfinished == "FOCA"
