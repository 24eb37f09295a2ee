"""One sweep against loops, and what a batch, a precision or a layout may not change (properties 10, 11, 14, 15, 18)."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance.losses import DistanceSettings, LargeMarginLoss, margin_distances
from clearance.models import Classifier
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    CLASSES,
    CONV_LAYERS,
    HIDDEN,
    conv_net,
    images,
    labels,
    measured,
    slow_distance,
    smooth_net,
    wrong_classes,
)

NORMS = [1.0, 2.0, 3.0, math.inf]


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

    def terms(aggregate, k):
        loss = LargeMarginLoss(
            ("input",),
            gamma=gamma,
            top_k=k,
            aggregate=aggregate,
            distance=DistanceSettings(eps=0.0),
            cross_entropy_weight=0.0,
        )
        return loss(model.outputs(x, ("input",)), y).total.item()

    brute = []
    for image, label in zip(x, y.tolist(), strict=True):
        distances = [slow_distance(model, image, label, i, "input") for i in range(CLASSES) if i != label]
        brute.append(max(max(0.0, gamma - d) for d in distances))
    assert terms("max", CLASSES - 1) == pytest.approx(sum(brute) / 8, rel=1e-10)
    assert terms("max", None) == terms("max", CLASSES - 1)
    assert terms("sum", 3) >= terms("max", 3) >= terms("max", 1)
    assert terms("sum", 3) > terms("max", 3)
    assert terms("max", 3) > terms("max", 1)  # the highest logit is not the nearest boundary everywhere


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
    loss = LargeMarginLoss(("logits",), top_k=k)
    with pytest.raises(ValueError, match=r"`top_k` must be at most 3 for 4 classes.*got \d+\. Use fewer"):
        loss(model.outputs(images()), labels())
    with pytest.raises(ValueError, match="`top_k` must be at most 3"):
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
@pytest.mark.parametrize("score", ["logits", "softmax"])
@pytest.mark.parametrize("gap", [20.0, 2000.0])
def test_p18_the_loss_of_saturated_half_precision_logits_is_finite_and_so_is_its_gradient(dtype, score, gap):
    torch.manual_seed(0)
    model: Any = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 4)), nn.Linear(4, 3))
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]) * gap)
        model.extractor[1].weight.copy_(torch.eye(4))
        model.extractor[1].bias.zero_()
        model.head.bias.zero_()
    model = model.to(dtype).train()
    x = torch.eye(4, dtype=dtype)[:3].view(3, 1, 2, 2)
    y = torch.tensor([0, 1, 0])  # right, right, wrong: by the whole gap
    # a softmax score stretches distances as sinh does: beyond the clip gradients would leave float16
    settings: dict[str, Any] = {
        "top_k": None,
        "score": score,
        "lower_clip": 4.0 if score == "softmax" else None,
    }
    for detached in ("detach", "full"):
        loss = LargeMarginLoss(
            ("input", "features", "logits"), distance=DistanceSettings(denominator=detached), **settings
        )
        model.zero_grad()
        terms = loss(model.outputs(x, loss.layers), y).total
        terms.backward()
        assert terms.isfinite()
        assert terms.item() > 0
        slopes = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(slope.isfinite().all() for slope in slopes)
        assert any(slope.any() for slope in slopes)


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
