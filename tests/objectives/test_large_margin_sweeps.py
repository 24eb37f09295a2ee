"""One sweep against loops, and what a batch, a precision or a layout may not change (properties 10, 11, 14, 15, 18)."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearance.models import Classifier
from clearance.objectives import LargeMarginLoss, margin_distances
from clearance.objectives.margins import Ruler, pair_distances
from clearance.tensors import Outputs
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    CLASSES,
    HIDDEN,
    conv_net,
    filled,
    images,
    labels,
    slow_distance,
    smooth_net,
    wrong_classes,
)

NORMS = [1.0, 2.0, 3.0, math.inf]
CONV_LAYERS = ("input", "extractor.0", HIDDEN, "features", "logits")


def measured(model, x, y, layers=CONV_LAYERS, norm=2.0, sweeps="sequential", score="logits"):
    """(L, k, B) to all rivals, highest logit first, in whatever mode the model is."""
    outputs = model.outputs(x, tuple(name for name in layers if name not in ("features", "logits")))
    masked = outputs.logits.detach().scatter(1, y[:, None], -math.inf)
    rivals = masked.argsort(dim=1, descending=True)[:, :-1].mT
    return pair_distances(outputs, y, rivals, layers, Ruler(norm, score), sweeps=sweeps).detach(), rivals


def looped(model, x, y, rivals, layers, norm, score):
    return torch.tensor(
        [
            [
                [
                    slow_distance(model, x[b], int(y[b]), int(i), layer, norm=norm, score=score)
                    for b, i in enumerate(row)
                ]
                for row in rivals
            ]
            for layer in layers
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("sweeps", ["sequential", "batched"])
@pytest.mark.parametrize("norm", NORMS)
def test_p10_one_sweep_equals_loops_over_samples_classes_and_layers(norm, sweeps):
    model, x, y = conv_net(nn.GroupNorm(2, 4)), images(4, side=6), labels(4)
    score = "softmax" if norm == 3.0 else "logits"
    found, rivals = measured(model, x, y, norm=norm, sweeps=sweeps, score=score)
    torch.testing.assert_close(
        found, looped(model, x, y, rivals, CONV_LAYERS, norm, score), rtol=1e-10, atol=0.0
    )


@pytest.mark.parametrize("sweeps", ["sequential", "batched"])
def test_p10_so_it_does_with_batch_normalisation_in_evaluation_mode(sweeps):
    norm: Any = nn.BatchNorm2d(4)
    model, x, y = conv_net(norm), images(4, side=6), labels(4)
    norm.running_mean += 0.1
    norm.running_var += 0.5
    found, rivals = measured(model, x, y, sweeps=sweeps)
    torch.testing.assert_close(
        found, looped(model, x, y, rivals, CONV_LAYERS, 2.0, "logits"), rtol=1e-10, atol=0.0
    )


def test_p10_batch_statistics_couple_samples():
    """In training mode the sweep's gradient at one sample holds something of the others' gaps, as documented.

    Behind the normalisation, where statistics are no longer taken, the two agree again.
    """
    model, x, y = conv_net(nn.BatchNorm2d(4)), images(4, side=6), labels(4)
    model.train()
    found, rivals = measured(model, x, y, ("extractor.0", HIDDEN))
    alone = []
    for layer in ("extractor.0", HIDDEN):
        outputs = model.outputs(x, (layer,))  # the same batch, but one sample's gap at a time
        rows = []
        for b in range(4):
            gap = outputs.logits[b, y[b]] - outputs.logits[b, rivals[0, b]]
            (gradient,) = torch.autograd.grad(gap, outputs.activations[layer], retain_graph=True)
            rows.append((gap / gradient[b].norm()).item())
        alone.append(rows)
    expected = torch.tensor(alone, dtype=torch.float64)
    assert ((found[0, 0] - expected[0]).abs() > 1e-4 * expected[0].abs()).all()
    torch.testing.assert_close(found[1, 0], expected[1], rtol=1e-10, atol=0.0)


def test_p11_the_order_and_number_of_samples_does_not_matter():
    model, x, y = conv_net(), images(6, side=5), labels(6)
    whole, _ = measured(model, x, y)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    permuted, _ = measured(model, x[order], y[order])
    torch.testing.assert_close(permuted, whole[:, :, order], rtol=1e-12, atol=0.0)
    parts = [measured(model, x[s], y[s])[0] for s in (slice(0, 1), slice(1, 4), slice(4, 6))]
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-12, atol=0.0)


def test_p11_the_names_of_classes_do_not_matter():
    model, x, y = smooth_net(), images(), labels()
    expected = margin_distances(model, x, y, ALL_LAYERS)
    new_name = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        for tensor in (model.head.weight, model.head.bias):
            tensor[new_name] = tensor.clone()
    found = margin_distances(model, x, new_name[y], ALL_LAYERS)
    assert torch.equal(found.rivals, new_name[expected.rivals])
    for name in ALL_LAYERS:
        torch.testing.assert_close(found.distances[name], expected.distances[name], rtol=1e-12, atol=0.0)


def test_p11_a_second_call_gives_the_same_bits():
    model, x, y = conv_net(), images(6, side=5), labels(6)
    assert torch.equal(measured(model, x, y)[0], measured(model, x, y)[0])


@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_p14_the_maximum_over_all_rivals_is_brute_force(gamma):
    model, x, y = smooth_net(), images(8), labels(8)

    def loss(aggregate, k):
        objective = LargeMarginLoss(
            ("input",), gamma=gamma, top_k=k, aggregate=aggregate, eps=0.0, cross_entropy_weight=0.0
        )
        return objective(model.outputs(x, ("input",)), y).total.item()

    brute = []
    for image, label in zip(x, y.tolist(), strict=True):
        distances = [slow_distance(model, image, label, i, "input") for i in range(CLASSES) if i != label]
        brute.append(max(max(0.0, gamma - d) for d in distances))
    assert loss("max", CLASSES - 1) == pytest.approx(sum(brute) / 8, rel=1e-10)
    assert loss("max", None) == loss("max", CLASSES - 1)
    assert loss("sum", 3) >= loss("max", 3) >= loss("max", 1)
    assert loss("sum", 3) > loss("max", 3)
    assert loss("max", 3) > loss("max", 1)  # the highest logit is not the nearest boundary everywhere


def test_p14_rivals_are_the_highest_wrong_logits():
    model, x, y = smooth_net(), images(8), labels(8)
    found = margin_distances(model, x, y, top_k=2).rivals
    assert found.tolist() == [
        wrong_classes(model, i, label)[:2] for i, label in zip(x, y.tolist(), strict=True)
    ]


@pytest.mark.parametrize("k", [4, 100])
def test_p15_more_rivals_than_wrong_classes_are_refused(k):
    """The published code takes k = C, which lets the true class in at a masked probability of 0."""
    model = smooth_net()
    objective = LargeMarginLoss(("logits",), top_k=k)
    with pytest.raises(ValueError, match=r"at most 3 rivals exist for 4 classes.*got \d+\. Take fewer"):
        objective(model.outputs(images()), labels())
    with pytest.raises(ValueError, match="at most 3 rivals"):
        margin_distances(model, images(), labels(), top_k=k)


def test_p15_two_classes_have_one_rival():
    model, x, y = smooth_net(classes=2), images(), labels(classes=2)
    found = margin_distances(model, x, y)
    assert torch.equal(found.rivals[:, 0], 1 - y)
    slow = slow_distance(model, x[3], 1, 0, "input")
    assert found.distances["input"][3, 0].item() == pytest.approx(slow, rel=1e-10)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)]
)
def test_p18_shorter_floats_lose_no_more_than_their_digits(dtype, tolerance):
    """Relative to the largest distance: near a boundary the gap itself has no digits left."""
    exact, x, y = smooth_net(), images(), labels()
    short = smooth_net().to(dtype)
    for norm in (1.0, 2.0, math.inf):
        expected = margin_distances(exact, x, y, ALL_LAYERS, norm=norm, top_k=1).distances
        found = margin_distances(short, x.to(dtype), y, ALL_LAYERS, norm=norm, top_k=1).distances
        for name in ALL_LAYERS:
            assert found[name].dtype == torch.float32
            scale = expected[name].abs().max()
            assert ((found[name].double() - expected[name]).abs().max() / scale).item() < tolerance


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_p18_saturated_half_precision_is_finite_and_in_the_right_order(dtype):
    """Logit gaps up to 20: there a probability's gradient is 2e-9, which float16 rounds to 0."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False))
    model: Any = Classifier(extractor, nn.Linear(1, 3)).eval()
    with torch.no_grad():
        model.extractor[1].weight.fill_(1.0)
        model.head.weight.copy_(torch.tensor([[20.0], [0.0], [-5.0]]))
        model.head.bias.zero_()
    model = model.to(dtype)
    x = torch.tensor([0.2, 0.4, 0.6, 0.8, 1.0], dtype=dtype).view(5, 1, 1, 1)
    found = margin_distances(
        model, x, torch.zeros(5, dtype=torch.long), ("input", "logits"), score="softmax", top_k=1
    )
    for values in found.distances.values():
        assert values.isfinite().all()
        assert (values[1:] > values[:-1]).all()
    z = 20 * x.double().flatten()
    p = torch.stack([z, torch.zeros(5), -z / 4], dim=1).double().softmax(dim=1)
    steep = p[:, 0] * (20 - (20 * p[:, 0] - 5 * p[:, 2])) - p[:, 1] * (0 - (20 * p[:, 0] - 5 * p[:, 2]))
    expected = (p[:, 0] - p[:, 1]) / steep
    tolerance = 0.02 if dtype == torch.float16 else 0.05  # the logits themselves are rounded
    torch.testing.assert_close(found.distances["input"][:, 0].double(), expected, rtol=tolerance, atol=0.0)


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
        objective = LargeMarginLoss(layers, top_k=2)
        objective(model.outputs(x, objective.layers), y).total.backward()
        losses.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_reentrant_checkpointing_is_refused_with_the_way_out():
    _, saving = checkpointed_net(reentrant=True)
    objective = LargeMarginLoss(("input",))
    outputs = saving.outputs(images(4, side=6), ("input",))
    with pytest.raises(ValueError, match="use_reentrant=False"):
        objective(outputs, labels(4))


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
    found = pair_distances(outputs, y, rivals, ("input",), Ruler())[0, 0]
    difference = model.head.weight[y] - model.head.weight[rivals[0]]
    gradient = (difference * mask) @ model.extractor[1].weight
    gap = outputs.logits.gather(1, y[:, None]) - outputs.logits.gather(1, rivals.mT)
    torch.testing.assert_close(found, gap[:, 0] / gradient.norm(dim=1), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("sweeps", ["sequential", "batched"])
def test_under_automatic_mixed_precision_distances_are_full_precision_where_the_graph_is(sweeps):
    """The loss may be called inside autocast: only the network's own rounding stays."""
    model, x, y = smooth_net().float(), images().float(), labels()
    exact = margin_distances(smooth_net(), images(), labels(), ALL_LAYERS, top_k=2).distances
    objective = LargeMarginLoss(ALL_LAYERS, top_k=2, sweeps=sweeps)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model.outputs(x, objective.layers)
        assert outputs.logits.dtype == torch.bfloat16
        loss = objective(outputs, y)
        rivals = outputs.logits.detach().scatter(1, y[:, None], -math.inf).topk(2, dim=1).indices.mT
        found = pair_distances(outputs, y, rivals, ALL_LAYERS, Ruler(), sweeps=sweeps)
    assert loss.total.dtype == found.dtype == torch.float32
    loss.total.backward()
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
            assert g.is_contiguous()
            g.data_ptr()  # a batched gradient has no storage
            return 2 * g

    model, x, y = smooth_net(), images(), labels()
    z = model.outputs(x, ("input",))
    odd = Outputs(z.features, Odd.apply(z.logits), z.head, z.activations)
    objective = LargeMarginLoss(("input",), top_k=3, sweeps="batched", eps=0.0, cross_entropy_weight=0.0)
    plain = LargeMarginLoss(("input",), top_k=3, sweeps="sequential", eps=0.0, cross_entropy_weight=0.0)
    expected = plain(z, y).total.item()
    assert objective(odd, y).total.item() == pytest.approx(expected, rel=1e-12)
