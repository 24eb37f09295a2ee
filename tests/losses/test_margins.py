"""Distances to decision boundaries at any layer: closed forms, loops, invariances, unusual networks (p01 to p18)."""

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from clearance import Outputs
from clearance._first_order import dual_exponent, first_order_distance
from clearance.losses import DistanceSettings, LargeMarginLoss, margin_distances
from clearance.losses.margins import Ruler, gaps_and_norms
from clearance.models import Classifier
from margin_cases import (
    ALL_LAYERS,
    CLASSES,
    CONV_LAYERS,
    HIDDEN,
    conv_net,
    filled,
    images,
    labels,
    measured,
    relu_net,
    slow_distance,
    smooth_net,
    wrong_classes,
)

NORMS = [1.0, 2.0, math.inf]


class Scaled(nn.Module):
    """A head with its logits changed afterwards."""

    def __init__(self, head, factor=1.0, shift=None):
        super().__init__()
        self.head, self.factor, self.shift = head, factor, shift

    def forward(self, features):
        logits = self.factor * self.head(features)
        return logits if self.shift is None else logits + self.shift(features)


def linear_model(seed=0):
    torch.manual_seed(seed)
    return Classifier(nn.Flatten(), nn.Linear(9, CLASSES)).double().eval()


def norming_direction(gradient, norm):
    """The displacement of p-norm 1 along which a linear function falls fastest."""
    q = dual_exponent(norm)
    if math.isinf(q):
        best = torch.zeros_like(gradient)
        best[gradient.abs().argmax()] = gradient[gradient.abs().argmax()].sign()
    else:
        best = gradient.sign() * gradient.abs() ** (q - 1)
    return -best / torch.linalg.vector_norm(best, ord=norm)


@pytest.mark.parametrize("norm", [*NORMS, 1.5, 3.0])
def test_p01_a_linear_classifiers_distance_is_exact(norm):
    """The closed form; moving by it ties the two scores; no shorter displacement does."""
    model, x, y = linear_model(), images(), labels()
    found = margin_distances(model, x, y, norm=norm)
    weight, bias = model.head.weight.detach(), model.head.bias.detach()
    for row in range(len(x)):
        for place, rival in enumerate(found.rivals[row].tolist()):
            difference = weight[y[row]] - weight[rival]
            gap = difference @ x[row].flatten() + bias[y[row]] - bias[rival]
            distance = found.distances["input"][row, place]
            dual = torch.linalg.vector_norm(difference, ord=dual_exponent(norm))
            torch.testing.assert_close(distance, gap / dual, rtol=1e-12, atol=1e-14)
            step = distance * norming_direction(difference, norm)
            moved = model((x[row] + step.view_as(x[row]))[None])[0]
            assert abs((moved[y[row]] - moved[rival]).item()) < 1e-12
            assert torch.linalg.vector_norm(step, ord=norm).item() == pytest.approx(
                abs(distance.item()), rel=1e-12
            )
            others = torch.randn(50, 9, dtype=torch.float64)
            tying = others * (gap / (others @ difference)).unsqueeze(1)  # each ties the scores too
            assert (torch.linalg.vector_norm(tying, ord=norm, dim=1) >= abs(distance) - 1e-12).all()


def test_p02_norms_of_any_order_and_how_they_lie_to_each_other():
    model, x, y = smooth_net(), images(), labels()
    found = {p: margin_distances(model, x, y, ("input",), norm=p).nearest()["input"].abs()
             for p in (1.0, 1.5, 2.0, 3.0, math.inf)}  # fmt: skip
    order = [found[p] for p in (math.inf, 3.0, 2.0, 1.5, 1.0)]
    assert all((small <= large + 1e-12).all() for small, large in itertools.pairwise(order))
    assert (found[1.0] <= 9 * found[math.inf]).all()
    assert (found[2.0] <= 3 * found[math.inf]).all()
    for p in (1.5, 3.0):  # 1.5 <-> 3 and 3 <-> 1.5
        whole = margin_distances(model, x, y, ("input",), norm=p)
        slow = slow_distance(model, x[0], 0, int(whole.rivals[0, 0]), "input", norm=p)
        assert whole.distances["input"][0, 0].item() == pytest.approx(slow, rel=1e-10)


@pytest.mark.parametrize("factor", [1e-3, 50.0, 1e6])
def test_p03_the_scale_of_logits_changes_no_distance(factor):
    model = smooth_net()
    other = Classifier(model.extractor, Scaled(model.head, factor), 0.4, 0.5).double().eval()
    layers = ("input", HIDDEN, "features")
    for norm in NORMS:
        expected = margin_distances(model, images(), labels(), layers, norm=norm)
        found = margin_distances(other, images(), labels(), layers, norm=norm)
        for name in layers:
            torch.testing.assert_close(found.distances[name], expected.distances[name], rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("score", ["logits", "softmax"])
def test_p03_a_shift_common_to_all_logits_changes_nothing(score):
    """Even one that depends on the image."""
    model = smooth_net()

    def shift(features):
        return features.square().sum(dim=1, keepdim=True) - 3

    other = Classifier(model.extractor, Scaled(model.head, shift=shift), 0.4, 0.5).double().eval()
    layers = ("input", HIDDEN, "features", "logits")
    expected = margin_distances(model, images(), labels(), layers, score=score)
    found = margin_distances(other, images(), labels(), layers, score=score)
    for name in layers:
        torch.testing.assert_close(found.distances[name], expected.distances[name], rtol=1e-10, atol=0.0)


def test_p04_softmax_stretches_two_classes_by_sinh():
    """d_prob = sinh(z) / ||grad z||, and d_logit = z / ||grad z||."""
    model, x, y = smooth_net(classes=2), images(), labels(classes=2)
    layers = ("input", HIDDEN)
    logit = margin_distances(model, x, y, layers)
    probability = margin_distances(model, x, y, layers, score="softmax")
    z = model(x)
    gap = z.gather(1, y[:, None]) - z.gather(1, 1 - y[:, None])
    assert gap.abs().max() > 0.5  # else sinh(z) = z would do
    for name in layers:
        stretched = logit.distances[name] * gap.sinh() / gap
        torch.testing.assert_close(probability.distances[name], stretched, rtol=1e-12, atol=0.0)


def test_p04_near_a_tie_the_two_scores_agree():
    """The bias is moved so that image 0 lies all but on the boundary of classes 0 and 1."""
    model, x = smooth_net(classes=2), images(1)
    with torch.no_grad():
        z = model(x)[0]
        model.head.bias[1] += z[0] - z[1] - 1e-5
    y = torch.tensor([0])
    logit, probability = (
        margin_distances(model, x, y, score=s).distances["input"] for s in ("logits", "softmax")
    )
    assert abs((probability / logit).item() - 1) < 1e-9


def rescaled(model, factor):
    """Hidden layer times c, next layer over c: the same function of a ReLU network."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.extractor[1].weight *= factor
        other.extractor[1].bias *= factor
        other.extractor[3].weight /= factor
    return other


def test_p07_hidden_distances_follow_the_scale_of_a_layer_and_the_spread_unit_does_not():
    model, x, y = relu_net(), images(), labels()
    other = rescaled(model, 10.0)
    torch.testing.assert_close(other(x), model(x))
    for norm in (*NORMS, 3.0):
        plain, moved = (
            margin_distances(m, x, y, ("input", HIDDEN), norm=norm).distances for m in (model, other)
        )
        torch.testing.assert_close(moved["input"], plain["input"], rtol=1e-10, atol=0.0)
        torch.testing.assert_close(moved[HIDDEN], 10 * plain[HIDDEN], rtol=1e-10, atol=0.0)
        plain, moved = (
            margin_distances(m, x, y, ("input", HIDDEN), norm=norm, unit="spread").distances
            for m in (model, other)
        )
        torch.testing.assert_close(moved[HIDDEN], plain[HIDDEN], rtol=1e-10, atol=0.0)


def test_the_spread_unit_is_the_root_of_the_total_variance_for_norm_2():
    model, x, y = relu_net(), images(), labels()
    hidden = model.outputs(x, (HIDDEN,)).activations[HIDDEN]
    total = hidden.var(dim=0, correction=0).sum().sqrt()
    plain, scaled = (
        margin_distances(model, x, y, (HIDDEN,), unit=u).distances[HIDDEN] for u in ("layer", "spread")
    )
    torch.testing.assert_close(scaled * total, plain, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("norm", NORMS)
def test_p08_inside_one_piece_of_a_relu_network_the_distance_is_true(norm):
    """Bisection along the norming direction finds the tie where the first order said it is."""
    model = relu_net(seed=3)
    x = images(60)
    y = model(x).argmax(dim=1)  # two highest logits: many ties are near
    found = margin_distances(model, x, y, norm=norm, top_k=1)
    checked = 0
    for row in range(len(x)):
        rival, distance = int(found.rivals[row, 0]), found.distances["input"][row, 0].item()
        outputs = model.outputs(x[row : row + 1], ("input",))
        gap = outputs.logits[0, y[row]] - outputs.logits[0, rival]
        (gradient,) = torch.autograd.grad(gap, outputs.activations["input"])
        direction = norming_direction(gradient.flatten(), norm).view_as(gradient)
        if pattern(model, x[row : row + 1]) != pattern(model, x[row : row + 1] + 1.01 * distance * direction):
            continue
        low, high = 0.0, 1.01 * distance
        for _ in range(60):
            middle = (low + high) / 2
            z = model(x[row : row + 1] + middle * direction)[0]
            on_this_side = (z[y[row]] - z[rival]).item() * gap.item() > 0
            low, high = (middle, high) if on_this_side else (low, middle)
        assert low == pytest.approx(distance, rel=1e-10)
        checked += 1
    assert checked >= 5


def pattern(model, image):
    """Which units are on: of a path inside one cell both ends agree, and cells are convex."""
    activations = model.outputs(image, ("extractor.2", "extractor.4")).activations
    return [(value > 0).tolist() for value in activations.values()]


# Layers whose gradients are known without a sweep, and distances by element (properties 9, 17).


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("score", ["logits", "softmax"])
def test_p09_analytic_layers_equal_autograd(norm, score):
    model, x, y = smooth_net(), images(), labels()
    found = margin_distances(model, x, y, ALL_LAYERS, norm=norm, score=score)
    for layer in ("features", "logits"):
        for row in range(len(x)):
            for place, rival in enumerate(found.rivals[row].tolist()):
                slow = slow_distance(model, x[row], int(y[row]), rival, layer, norm=norm, score=score)
                assert found.distances[layer][row, place].item() == pytest.approx(slow, rel=1e-10)


@pytest.mark.parametrize(
    ("norm", "constant"), [(math.inf, 2.0), (2.0, math.sqrt(2)), (1.5, 2 ** (1 / 3)), (1.0, 1.0)]
)
def test_p09_norms_at_logits_and_features_are_constants_of_the_head(norm, constant):
    model, x, y = smooth_net(), images(), labels()
    found = margin_distances(model, x, y, ("features", "logits"), norm=norm)
    z, weight = model(x), model.head.weight
    gap = z.gather(1, y[:, None]) - z.gather(1, found.rivals)
    torch.testing.assert_close(gap / found.distances["logits"], torch.full_like(gap, constant))
    rows = torch.linalg.vector_norm(weight[y][:, None] - weight[found.rivals], ord=dual_exponent(norm), dim=2)
    torch.testing.assert_close(gap / found.distances["features"], rows)


def test_p09_features_under_a_deep_head_are_swept():
    model, x, y = smooth_net(), images(), labels()
    head = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()
    deep = Classifier(model.extractor, head, 0.4, 0.5).double().eval()
    found = margin_distances(deep, x, y, ("features",))
    slow = slow_distance(deep, x[2], 2, int(found.rivals[2, 1]), "features")
    assert found.distances["features"][2, 1].item() == pytest.approx(slow, rel=1e-10)


def test_p09_a_head_that_only_looks_linear_is_swept():
    """A hook doubles the logits after the layer; the rows of W know nothing of it."""
    model, x, y = smooth_net(), images(), labels()
    model.head.register_forward_hook(lambda _m, _i, z: torch.tanh(z))
    found = margin_distances(model, x, y, ("features",))
    slow = slow_distance(model, x[2], 2, int(found.rivals[2, 1]), "features")
    assert found.distances["features"][2, 1].item() == pytest.approx(slow, rel=1e-10)


def test_p17_by_element_the_distance_is_the_gap_over_the_mean_gradient():
    model, x, y = smooth_net(), images(), labels()
    found = margin_distances(model, x, y, (HIDDEN,), norm=math.inf, unit="element").distances[HIDDEN]
    plain = margin_distances(model, x, y, (HIDDEN,), norm=math.inf)
    torch.testing.assert_close(found, 7 * plain.distances[HIDDEN], rtol=1e-12, atol=0.0)
    outputs = model.outputs(x[:1], (HIDDEN,))
    gap = outputs.logits[0, 0] - outputs.logits[0, int(plain.rivals[0, 0])]
    (gradient,) = torch.autograd.grad(gap, outputs.activations[HIDDEN])
    assert found[0, 0].item() == pytest.approx((gap / gradient.abs().mean()).item(), rel=1e-12)


def test_p17_copies_of_a_feature_change_the_distance_by_element_alone():
    """Each hidden unit three times, with the next layer's weights over three: the same function."""
    model, x, y = relu_net(), images(), labels()
    first, second = nn.Linear(9, 21).double(), nn.Linear(21, 5).double()
    with torch.no_grad():
        first.weight.copy_(model.extractor[1].weight.repeat_interleave(3, dim=0))
        first.bias.copy_(model.extractor[1].bias.repeat_interleave(3))
        second.weight.copy_(model.extractor[3].weight.repeat_interleave(3, dim=1) / 3)
        second.bias.copy_(model.extractor[3].bias)
    extractor = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())
    other = Classifier(extractor, model.head, 0.4, 0.5).double().eval()
    torch.testing.assert_close(other(x), model(x))
    units: Any = (("layer", 1), ("element", 3))
    for unit, factor in units:
        plain, copied = (
            margin_distances(m, x, y, (HIDDEN,), norm=math.inf, unit=unit).distances[HIDDEN]
            for m in (model, other)
        )
        torch.testing.assert_close(copied, factor * plain, rtol=1e-10, atol=0.0)


# One sweep against loops, and what a batch, a precision or a layout may not change (properties 10, 11, 14, 15, 18).


LOOPED_NORMS = [1.0, 2.0, 3.0, math.inf]


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
@pytest.mark.parametrize("norm", LOOPED_NORMS)
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
            max_slope=None,
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
    with pytest.raises(ValueError, match=r"must be at most 3 for 4 classes.*got \d+\. Use fewer"):
        loss(model.outputs(images()), labels())
    with pytest.raises(ValueError, match="at most 3 for 4 classes"):
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


# Networks that are unusual inside: layout, checkpointing, dropout, mixed precision, a missing batched rule.


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
    found = first_order_distance(*gaps_and_norms(outputs, y, rivals, ("input",), Ruler()))[0, 0]
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
        found = first_order_distance(gaps, norms)
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


# Heads that are no plain linear layer, though they look like one or write into what they read.


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


def test_labels_of_a_loader_inside_inference_mode_are_taken():
    model, images = linear_model(), torch.rand(4, 1, 3, 3, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 0])
    expected = margin_distances(model, images, labels).distances["input"]
    with torch.inference_mode():
        found = margin_distances(model, images.clone(), labels.clone()).distances["input"]
    assert torch.equal(found, expected)
