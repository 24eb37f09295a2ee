"""Networks that are unusual inside: layout, checkpointing, dropout, mixed precision, a missing batched rule."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearance import Outputs
from clearance.geometry import first_order_distance
from clearance.losses import DistanceSettings, LargeMarginLoss, margin_distances
from clearance.losses.margins import Ruler, gaps_and_norms
from clearance.models import Classifier
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    CLASSES,
    HIDDEN,
    conv_net,
    filled,
    images,
    labels,
    measured,
    smooth_net,
)


def test_channels_last_gives_the_same_distances():
    model, x, y = conv_net(), images(4, side=6), labels(4)
    expected, _ = measured(model, x, y)
    model = model.to(memory_format=torch.channels_last)
    x = x.repeat(1, 1, 1, 1).to(memory_format=torch.channels_last)
    outputs = model.outputs(x, ("extractor.0",))
    assert outputs.activations["extractor.0"].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(measured(model, x, y)[0], expected, rtol=1e-10, atol=0.0)


class Checkpointed(nn.Module):
    """Its middle is not kept but computed again on the way back."""

    def __init__(self, inner, *, reentrant):
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


def checkpointed_net(*, reentrant):
    plain = conv_net()
    parts = list(plain.extractor)
    extractor = nn.Sequential(Checkpointed(nn.Sequential(*parts[:3]), reentrant=reentrant), *parts[3:])
    return plain, Classifier(extractor, plain.head, 0.4, 0.5).double().eval()


def test_checkpointed_activations_are_computed_again_for_every_sweep():
    plain, saving = checkpointed_net(reentrant=False)
    x, y = images(4, side=6), labels(4)
    expected, _ = measured(plain, x, y, ("input", "extractor.0", HIDDEN))
    found, _ = measured(saving, x, y, ("input", "extractor.0.inner.0", "extractor.0"))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)
    losses = []
    for model, layers in ((plain, ("input", HIDDEN)), (saving, ("input", "extractor.0"))):
        model.zero_grad()
        loss = LargeMarginLoss(layers, top_k=2)
        loss(model.outputs(x, loss.layers), y).total.backward()
        losses.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_reentrant_checkpointing_is_refused_with_the_way_out():
    _, saving = checkpointed_net(reentrant=True)
    loss = LargeMarginLoss(("input",))
    outputs = saving.outputs(images(4, side=6), ("input",))
    with pytest.raises(ValueError, match="use_reentrant=False"):
        loss(outputs, labels(4))


def test_dropout_masks_are_those_of_the_forward_pass():
    """Scores and gradients belong to one function: the distance is that of the masked network."""
    torch.manual_seed(0)
    drop = nn.Dropout(0.5)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), drop)
    model: Any = Classifier(extractor, filled(nn.Linear(8, CLASSES))).double().train()
    x, y = images(), labels()
    outputs = model.outputs(x, ("input", "extractor.1", "extractor.2"))
    mask = (outputs.activations["extractor.2"] / outputs.activations["extractor.1"]).detach()
    rivals = outputs.logits.detach().scatter(1, y[:, None], -math.inf).argmax(dim=1)[None]
    found = first_order_distance(*gaps_and_norms(outputs, y, rivals, ("input",), Ruler()), 0.0)[0, 0]
    difference = model.head.weight[y] - model.head.weight[rivals[0]]
    gradient = (difference * mask) @ model.extractor[1].weight
    gap = outputs.logits.gather(1, y[:, None]) - outputs.logits.gather(1, rivals.mT)
    torch.testing.assert_close(found, gap[:, 0] / gradient.norm(dim=1), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_scaled_loss_under_mixed_precision_trains_as_one_that_is_not(dtype):
    """GradScaler multiplies the total alone; distances are read from the graph without it."""

    def stepped(scale):
        model = smooth_net().float()
        stepper = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = LargeMarginLoss(ALL_LAYERS, top_k=2)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
        for _ in range(3):
            stepper.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                terms = loss(model.outputs(images().float(), loss.layers), labels()).total
            scaler.scale(terms).backward()
            scaler.step(stepper)
            scaler.update()
        return terms.detach(), [parameter.detach() for parameter in model.parameters()]

    (terms, weights), (other, same) = stepped(1.0), stepped(1024.0)
    torch.testing.assert_close(other, terms, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(same, weights, rtol=2e-2, atol=2e-2)
    assert any(
        (w - p).abs().max() > 1e-3 for w, p in zip(weights, smooth_net().float().parameters(), strict=True)
    )


@pytest.mark.parametrize("sweeps", ["sequential", "batched"])
def test_under_automatic_mixed_precision_distances_are_full_precision_where_the_graph_is(sweeps):
    """The loss may be called inside autocast: only the network's own rounding stays."""
    model, x, y = smooth_net().float(), images().float(), labels()
    exact = margin_distances(smooth_net(), images(), labels(), ALL_LAYERS, top_k=2).distances
    loss = LargeMarginLoss(ALL_LAYERS, top_k=2, distance=DistanceSettings(sweeps=sweeps))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model.outputs(x, loss.layers)
        assert outputs.logits.dtype == torch.bfloat16
        terms = loss(outputs, y)
        rivals = outputs.logits.detach().scatter(1, y[:, None], -math.inf).topk(2, dim=1).indices.mT
        gaps, norms = gaps_and_norms(outputs, y, rivals, ALL_LAYERS, Ruler(), sweeps=sweeps)
        found = first_order_distance(gaps, norms, 0.0)
    assert terms.total.dtype == found.dtype == torch.float32
    terms.total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    for row, name in enumerate(ALL_LAYERS):
        scale = exact[name].abs().max()
        assert ((found[row].mT.double() - exact[name]).abs().max() / scale).item() < 0.1


def test_where_sweeps_cannot_be_batched_they_are_made_one_by_one():
    """An operation without a rule for batches of gradients."""

    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            g.data_ptr()  # a batched gradient has no storage
            return 2 * g

    model, x, y = smooth_net(), images(), labels()
    z = model.outputs(x, ("input",))

    def with_features(features):
        return Outputs(features, z.head(features), z.head, z.activations)

    loss = LargeMarginLoss(
        ("input",), top_k=3, distance=DistanceSettings(sweeps="batched", eps=0.0), cross_entropy_weight=0.0
    )
    plain = LargeMarginLoss(
        ("input",), top_k=3, distance=DistanceSettings(sweeps="sequential", eps=0.0), cross_entropy_weight=0.0
    )
    expected = plain(with_features(2 * z.features), y).total.item()
    assert loss(with_features(Odd.apply(z.features)), y).total.item() == pytest.approx(expected, rel=1e-12)
