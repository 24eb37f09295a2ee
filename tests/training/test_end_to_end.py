"""EndToEnd against descent written by hand."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from clearance import LossTerms
from clearance.losses import CrossEntropyLoss, Loss
from clearance.research import generator
from clearance.training import EndToEnd


class PullToPoint(Loss):
    """Cross-entropy plus the distance of features to a learned point; notes how it is called."""

    def __init__(self, width=6):
        super().__init__()
        self.point = nn.Parameter(torch.ones(width))
        self.notes = []

    def forward(self, outputs, labels):
        pull = 0.1 * (outputs.features - self.point).square().sum(dim=1).mean()
        return LossTerms({"cross_entropy": F.cross_entropy(outputs.logits, labels), "pull": pull})

    def after_step(self, outputs, labels):
        self.notes.append((torch.is_grad_enabled(), self.point.detach().clone(), len(labels)))


def plain_loss(model, images, labels):
    """The loss of Eq. 1, from the two parts of the model alone."""
    logits = model.head(model.extractor((images - 0.5) / 0.25))
    return F.cross_entropy(logits, labels, reduction="none").mean()


def test_steps_are_those_of_sgd_with_momentum_by_hand(data, make_model, sgd, weights, same):
    model = make_model()
    twin = copy.deepcopy(model)
    way = EndToEnd()
    training = way.start(model, data, sgd(way, model, 0.1, 0.9), way.generators(0))
    parameters = list(twin.parameters())
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    for rows in (torch.arange(10), torch.arange(7, 20), torch.arange(3)):
        images, labels = data.batch(rows)
        expected = plain_loss(twin, images, labels)
        gradients = torch.autograd.grad(expected, parameters)
        with torch.no_grad():
            for parameter, speed, gradient in zip(parameters, velocity, gradients, strict=True):
                speed.mul_(0.9).add_(gradient)
                parameter.add_(speed, alpha=-0.1)
        loss = training.step(images, labels)
        assert torch.equal(loss.total.detach(), expected.detach())
        assert same(weights(model), weights(twin))


def test_the_gradient_is_taken_at_the_noisy_head_and_moves_the_clean_one(data, make_model, sgd):
    model = make_model().double()
    twin = copy.deepcopy(model)
    way = EndToEnd(head_noise=0.3)
    training = way.start(model, data, sgd(way, model), way.generators(5))
    stream = generator(5, "head_noise")
    names = [name for name, _ in twin.named_parameters()]
    for _ in range(2):  # the noise is fresh in every step
        clean = dict(twin.named_parameters())
        noisy = {name: value.detach().clone().requires_grad_() for name, value in clean.items()}
        with torch.no_grad():
            for name in names:
                if name.startswith("head."):
                    noisy[name] += 0.3 * torch.randn(noisy[name].shape, generator=stream).double()
        logits = functional_call(twin, noisy, (data.images,))
        gradients = torch.autograd.grad(F.cross_entropy(logits, data.labels), [noisy[n] for n in names])
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                clean[name] -= 0.1 * gradient
        training.step(data.images, data.labels)
        for name, value in model.named_parameters():
            torch.testing.assert_close(value, clean[name], rtol=1e-12, atol=1e-14)


def test_head_noise_has_the_stated_deviation_on_every_parameter(data, make_model, sgd):
    model = make_model(widths=(6, 400, 3))
    clean = {name: value.detach().clone() for name, value in model.head.named_parameters()}
    seen = []
    model.head.register_forward_pre_hook(
        lambda head, _: seen.append({name: value.detach().clone() for name, value in head.named_parameters()})
    )
    way = EndToEnd(head_noise=0.2)
    training = way.start(model, data, sgd(way, model, lr=0.0), way.generators(0))
    for _ in range(20):
        training.step(data.images, data.labels)
    for name, value in clean.items():
        noise = torch.stack([head[name] - value for head in seen])
        # five standard errors of a standard deviation and of a mean
        assert abs(float(noise.std()) - 0.2) < 5 * 0.2 / (2 * noise.numel()) ** 0.5
        assert abs(float(noise.mean())) < 5 * 0.2 / noise.numel() ** 0.5
    one, two = (torch.cat([(h[n] - clean[n]).flatten() for n in clean]) for h in seen[:2])
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 5 / len(one) ** 0.5


def test_without_noise_the_stream_is_untouched_and_with_noise_only_that_one(data, make_model, sgd):
    for sigma in (0.0, 0.1):
        model, way = make_model(), EndToEnd(head_noise=sigma)
        streams = way.generators(0)
        before, globally = streams["head_noise"].get_state(), torch.get_rng_state()
        way.start(model, data, sgd(way, model), streams).step(data.images, data.labels)
        assert torch.equal(streams["head_noise"].get_state(), before) is (sigma == 0)
        assert torch.equal(torch.get_rng_state(), globally)


def test_noise_is_taken_off_again_even_where_the_loss_fails(data, make_model, sgd, weights, same):
    class Failing(CrossEntropyLoss):
        def forward(self, outputs, labels):
            raise RuntimeError("no loss today")

    for loss, lr in ((Failing(), 0.1), (CrossEntropyLoss(), 0.0)):
        model, way = make_model(), EndToEnd(loss, head_noise=0.5)
        before = weights(model)
        training = way.start(model, data, sgd(way, model, lr), way.generators(0))
        if isinstance(loss, Failing):
            with pytest.raises(RuntimeError, match="no loss today"):
                training.step(data.images, data.labels)
        else:
            training.step(data.images, data.labels)
        assert same(weights(model), before)


def test_the_losses_parameters_are_trained_too(data, make_model, sgd):
    model, loss = make_model(), PullToPoint()
    way = EndToEnd(loss)
    declared = list(way.trainable(model))
    assert {id(p) for p in declared} == {id(p) for p in (*model.parameters(), loss.point)}
    assert len(declared) == len({id(p) for p in declared})
    features = model.features(data.images).detach()
    way.start(model, data, sgd(way, model), way.generators(0)).step(data.images, data.labels)
    expected = 1 + 0.1 * 0.1 * 2 * (features.mean(dim=0) - 1)
    torch.testing.assert_close(loss.point.detach(), expected)


def test_after_step_is_called_once_without_gradient_when_the_optimiser_has_moved(data, make_model, sgd):
    model, loss = make_model(), PullToPoint()
    way = EndToEnd(loss)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    for count in (9, 4):
        before = loss.point.detach().clone()
        training.step(*data.batch(torch.arange(count)))
        enabled, point, size = loss.notes[-1]
        assert not enabled
        assert size == count
        assert torch.equal(point, loss.point)
        assert not torch.equal(point, before)
    assert len(loss.notes) == 2


def test_a_step_moves_the_declared_parameters_and_nothing_else(data, make_model, sgd, weights):
    model = make_model(nn.BatchNorm1d(6))
    images = data.images.clone().requires_grad_()
    before = weights(model)
    way = EndToEnd()
    way.start(model, data, sgd(way, model), way.generators(0)).step(images, data.labels)
    declared = {id(p) for p in way.trainable(model)}
    named = dict(model.named_parameters())
    moved = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    statistics = {f"extractor.2.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    # a bias before batch normalisation has no gradient but rounding
    assert moved - {"extractor.1.bias"} == set(named) - {"extractor.1.bias"} | statistics
    assert all(id(named[name]) in declared for name in moved - statistics)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_no_deviation_is_refused(sigma):
    with pytest.raises(ValueError, match="`head_noise` must be a finite number of at least 0; got"):
        EndToEnd(head_noise=sigma)
