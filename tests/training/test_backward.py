"""Where the gradient of a step goes: to what it may move, and not to the images."""

import copy

import pytest
import torch
from torch import nn

from clearance.heads import GradientHeads, HeadTraining
from clearance.losses import LargeMarginLoss
from clearance.training import FOCA, EndToEnd

LAYERS = ("input", "extractor.2")


class Watching(LargeMarginLoss):
    """Keeps the outputs of the last step."""

    def after_step(self, outputs, labels):
        super().after_step(outputs, labels)
        self.seen = outputs


def by_hand(model, loss, images, labels):
    """Parameters after plain SGD at 0.1, from a plain backward pass."""
    twin = copy.deepcopy(model)
    outputs = twin.outputs(images, loss.layers)
    loss(outputs, labels).total.backward()
    assert outputs.activations["input"].grad is not None
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    return list(twin.parameters())


@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_move_as_after_a_plain_pass_and_the_images_get_no_gradient(data, make_model, sgd, frozen):
    model = make_model(nn.BatchNorm1d(6), nn.ReLU())
    model.extractor[1].requires_grad_(requires_grad=not frozen)
    before = model.extractor[1].weight.clone()
    loss = Watching(LAYERS, gamma=0.5)
    expected = by_hand(model, loss, data.images, data.labels)
    way = EndToEnd(loss)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    training.step(data.images, data.labels)
    for found, wanted in zip(model.parameters(), expected, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(model.extractor[1].weight, before) is frozen
    assert loss.seen.activations["input"].grad is None


def test_under_heads_that_change_the_images_get_none_either(data, make_model, sgd):
    model, loss = make_model(nn.BatchNorm1d(6), nn.ReLU()), Watching(LAYERS, gamma=0.5)
    way = FOCA(loss, GradientHeads(HeadTraining(steps=4, lr=0.05)), per_class=2)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    head = [p.clone() for p in model.head.parameters()]
    extractor = [p.clone() for p in model.extractor.parameters()]
    training.step(data.images, data.labels)
    assert loss.seen.activations["input"].grad is None
    assert all(torch.equal(now, then) for now, then in zip(model.head.parameters(), head, strict=True))
    moved = zip(model.extractor.parameters(), extractor, strict=True)
    assert sum(not torch.equal(now, then) for now, then in moved) >= 3
