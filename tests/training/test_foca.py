"""A step of FOCA: which head it uses, what it moves, and on which images."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation
from clearance.heads import GradientHeads, HeadStack, TrainedHeads
from clearance.losses import CrossEntropyLoss, Loss
from clearance.research import generator
from clearance.training import FOCA, fit


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
