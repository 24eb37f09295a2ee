"""Distances at any layer: closed forms, invariances, and where they are exact (properties 1-4, 7, 8)."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from clearance.geometry.first_order import dual_exponent
from clearance.losses import margin_distances
from clearance.models import Classifier
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    CLASSES,
    HIDDEN,
    images,
    labels,
    relu_net,
    slow_distance,
    smooth_net,
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


def test_p04_at_a_tie_of_several_classes_the_gradients_are_parallel():
    """By the factor p_i, the probability of either."""
    model, x = smooth_net(), images(1)
    with torch.no_grad():
        z = model(x)[0]
        model.head.bias[1] += z[0] - z[1]
    outputs = model.outputs(x, ("input",))
    p = outputs.logits.softmax(dim=1)[0]
    of_logits, of_probabilities = (
        torch.autograd.grad(s[0] - s[1], outputs.activations["input"], retain_graph=True)[0]
        for s in (outputs.logits[0], p)
    )
    torch.testing.assert_close(of_probabilities, p[0].detach() * of_logits, rtol=1e-10, atol=1e-14)


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
