"""Heads that are no plain linear layer, though they look like one or write into what they read."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from clearance.losses import LargeMarginLoss, margin_distances
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    images,
    labels,
    smooth_net,
)

LAYERS = ("input", "features")


def by_definition(model, x, y):
    """Signed distances at the input and at the features, to every rival, one gradient at a time."""
    found: dict[str, list] = {name: [] for name in LAYERS}
    moving = x.clone().requires_grad_()
    features = model.features(moving)
    logits = model.head(features.clone())
    for row, label in enumerate(y.tolist()):
        for rival in (k for k in range(logits.shape[1]) if k != label):
            gap = logits[row, label] - logits[row, rival]
            for name, at in zip(LAYERS, (moving, features), strict=True):
                (slope,) = torch.autograd.grad(gap, at, retain_graph=True)
                found[name].append((gap / slope[row].norm()).detach())
    return {name: torch.stack(values).sort().values for name, values in found.items()}


def in_one_pass(model, x, y):
    found = margin_distances(model, x, y, LAYERS, eps=0.0).distances
    return {name: found[name].flatten().sort().values for name in LAYERS}


def bent(head):
    """Its forward is no longer that of its class."""
    original = head.forward
    head.forward = lambda features: torch.tanh(original(features))
    return head


@pytest.mark.parametrize(
    "change",
    [
        bent,
        lambda head: nn.Sequential(nn.ReLU(inplace=True), head),
        lambda head: nn.Sequential(nn.Dropout(0.5, inplace=True), head),  # as in EfficientNet
        spectral_norm,
    ],
    ids=["replaced forward", "in-place ReLU", "in-place dropout", "spectral norm"],
)
def test_distances_are_those_of_what_the_head_computes(change):
    model, x, y = smooth_net(), images(), labels()
    model.head = change(model.head)
    model.eval()
    expected, found = by_definition(model, x, y), in_one_pass(model, x, y)
    for name in LAYERS:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12)


def test_features_stay_what_entered_a_head_that_works_in_place():
    model, x = smooth_net(), images()
    outputs = model.outputs(x)
    expected = model.features(x)
    assert bool((expected < 0).any())
    in_place = nn.Sequential(nn.ReLU(inplace=True), model.head)
    torch.testing.assert_close(outputs.with_head(in_place).features, expected)
    model.head = in_place
    torch.testing.assert_close(model.outputs(x).features, expected)


def test_a_head_that_changes_features_by_itself_is_refused():
    model, x = smooth_net(), images()
    with pytest.raises(ValueError, match="the head must leave its features as they are"):
        model.outputs(x, head=lambda features: features.mul_(2))


def test_a_loss_leaves_a_normalised_head_as_its_forward_pass_left_it():
    """Every look at its weight while it trains is a step of the power iteration in it."""
    model, x, y = smooth_net(), images(), labels()
    model.head = spectral_norm(model.head)
    model.train()
    loss = LargeMarginLoss(LAYERS, gamma=0.7)
    outputs = model.outputs(x, loss.layers)
    before = copy.deepcopy(model.head.state_dict())
    loss(outputs, y).total.backward()
    for name, one in model.head.state_dict().items():
        assert torch.equal(one, before[name]), name
