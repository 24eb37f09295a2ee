"""What the loss pulls at: coefficients, identities, finite differences, flat places (5, 6, 12, 13, 16)."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance.losses import DistanceSettings, LargeMarginLoss, margin_distances
from clearance.losses.large_margin import margin_violation
from clearance.models import Classifier
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    CLASSES,
    HIDDEN,
    images,
    labels,
    smooth_net,
)

EVERY_NORM = [1.0, 1.5, 2.0, 3.0, math.inf]


def total(loss, model, x, y):
    return loss(model.outputs(x, loss.layers), y).total


def gradients(loss, model, x, y):
    return torch.autograd.grad(total(loss, model, x, y), list(model.parameters()))


def gradient_of_logits(loss, model, x, y):
    outputs = model.outputs(x, loss.layers)
    return torch.autograd.grad(loss(outputs, y).total, outputs.logits)[0]


def margin_only(*arguments, **settings):
    """Without cross-entropy; how distances are measured may stand among the settings."""
    measured = {"eps": 0.0} | {
        name: settings.pop(name) for name in ("unit", "eps", "denominator") if name in settings
    }
    return LargeMarginLoss(
        *arguments, **{"cross_entropy_weight": 0.0, **settings}, distance=DistanceSettings(**measured)
    )


def test_p05_for_two_classes_the_score_does_not_change_the_gradient():
    """grad phi(z) / ||grad phi(z)|| is the same for every increasing phi; only who is active may differ."""
    model, x, y = smooth_net(classes=2), images(), labels(classes=2)
    of_logits, of_probabilities = (
        gradients(margin_only(ALL_LAYERS[:3], gamma=1e6, score=score), model, x, y)
        for score in ("logits", "softmax")
    )
    for one, other in zip(of_logits, of_probabilities, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_p06_eulers_identity_in_the_last_layer(eps):
    """The loss is gamma minus a function of degree one in (W, b), its denominator a constant."""
    model, x, y = smooth_net(), images(), labels()
    loss = margin_only(("input", HIDDEN), gamma=1.5, eps=eps, layer_weights=1.0)
    terms = total(loss, model, x, y)
    head = model.head
    of_weight, of_bias = torch.autograd.grad(terms, [head.weight, head.bias])
    found = ((head.weight * of_weight).sum() + (head.bias * of_bias).sum()).item()
    active = 0.0
    for layer in ("input", HIDDEN):
        short = (1.5 - distances(model, x, y, layer, eps)).clamp(min=0)
        active += ((short > 0) * (short - 1.5)).mean().item()
    assert abs(active) > 0.1
    assert found == pytest.approx(active, rel=1e-10)


def test_p06_with_the_denominator_in_the_gradient_the_identity_gives_zero():
    """A distance is of degree zero in (W, b)."""
    model, x, y = smooth_net(), images(), labels()
    loss = total(margin_only(("input", HIDDEN), gamma=1.5, denominator="full"), model, x, y)
    head = model.head
    of_weight, of_bias = torch.autograd.grad(loss, [head.weight, head.bias])
    assert of_weight.abs().max() > 1e-2
    assert abs(((head.weight * of_weight).sum() + (head.bias * of_bias).sum()).item()) < 1e-12


def distances(model, x, y, layer, eps):
    """To the strongest rival."""
    return margin_distances(model, x, y, (layer,), top_k=1, eps=eps).distances[layer][:, 0]


@pytest.mark.parametrize("k", [1, 3])
def test_p12_the_gradient_of_logits_is_plus_and_minus_one_coefficient(k):
    """-c at the sample's class, +c at its rivals, in all 0; none beyond gamma or below the lower clip."""
    model, x, y = smooth_net(), images(12), labels(12)
    gamma, clip = 0.4, 1.8
    loss = margin_only(("input",), gamma=gamma, top_k=k, lower_clip=clip, aggregate="sum")
    found = gradient_of_logits(loss, model, x, y)
    torch.testing.assert_close(found.sum(dim=1), torch.zeros(12, dtype=torch.float64), rtol=0.0, atol=1e-15)
    measured = margin_distances(model, x, y, top_k=k)
    d = measured.distances["input"]
    z = model(x)
    gaps = z.gather(1, y[:, None]) - z.gather(1, measured.rivals)
    inside = (d < gamma) & (d > gamma * (1 - clip))
    assert {(d >= gamma).any().item(), (d <= gamma * (1 - clip)).any().item(), inside.any().item()} == {True}
    c = inside * d / gaps / 12  # 1 / norm
    expected = torch.zeros_like(z).scatter(1, measured.rivals, c)
    expected = expected.scatter_add(1, y[:, None], -c.sum(dim=1, keepdim=True))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def test_p12_window_edges():
    """0 and alpha gamma; less gamma in reference mode: -gamma and (alpha - 1) gamma."""
    gamma, clip = 2.0, 4.0
    d = torch.tensor([2.0, 9.0, -6.0, -50.0, 0.5])
    assert margin_violation(d, gamma, clip).tolist() == [0.0, 0.0, 8.0, 8.0, 1.5]
    assert (margin_violation(d, gamma, clip) - gamma).tolist() == (
        -d.clamp(gamma * (1 - clip), gamma)
    ).tolist()


def test_p12_reference_plus_gamma_is_the_clipped_formula():
    model, x, y = smooth_net(), images(), labels()
    settings: dict[str, Any] = {"norm": 2.0, "gamma": 0.8, "lower_clip": 2.0, "score": "softmax"}
    shifted = LargeMarginLoss.reference(("input", HIDDEN), **settings)
    plain = margin_only(("input", HIDDEN), **settings, eps=1e-6)
    assert total(shifted, model, x, y).item() + 0.8 == pytest.approx(
        total(plain, model, x, y).item(), rel=1e-12
    )


@pytest.mark.parametrize("norm", EVERY_NORM)
@pytest.mark.parametrize("score", ["logits", "softmax"])
def test_p13_the_full_gradient_equals_finite_differences(norm, score):
    model, x, y = smooth_net(), images(3), labels(3)
    loss = margin_only(
        ALL_LAYERS, norm, gamma=3.0, top_k=2, aggregate="sum", score=score, denominator="full", eps=1e-3
    )

    def terms(*_):
        return total(loss, model, x, y)

    assert torch.autograd.gradcheck(terms, tuple(model.parameters()), fast_mode=True)


@pytest.mark.parametrize("unit", ["element", "spread"])
def test_p13_the_full_gradient_equals_finite_differences_in_every_unit(unit):
    model, x, y = smooth_net(), images(3), labels(3)
    loss = margin_only(("input", HIDDEN, "features"), gamma=30.0, denominator="full", unit=unit, eps=1e-3)

    def terms(*_):
        return total(loss, model, x, y)

    assert torch.autograd.gradcheck(terms, tuple(model.parameters()), fast_mode=True)


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_p13_the_detached_gradient_equals_finite_differences_with_norms_held(norm):
    """The norms are measured at the start, and only gaps move."""
    model, x, y = smooth_net(), images(4), labels(4)
    loss = margin_only(("input", HIDDEN), norm, gamma=3.0)
    z = model(x)
    rivals = z.detach().scatter(1, y[:, None], -math.inf).argmax(dim=1)
    norms = [gap_of(z, y, rivals).detach() / d for d in held_distances(model, x, y, norm)]

    def frozen():
        gap = gap_of(model(x), y, rivals)
        return sum((3.0 - gap / n).clamp(min=0).mean() for n in norms) / 2

    found = gradients(loss, model, x, y)
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        for place in (0, parameter.numel() - 1):
            flat, step = parameter.data.view(-1), 1e-6
            start = flat[place].item()
            values = []
            for sign in (1, -1):
                flat[place] = start + sign * step
                values.append(frozen().item())
            flat[place] = start
            difference = (values[0] - values[1]) / (2 * step)
            assert gradient.view(-1)[place].item() == pytest.approx(difference, rel=1e-6, abs=1e-9)


def gap_of(z, y, rivals):
    return z.gather(1, y[:, None])[:, 0] - z.gather(1, rivals[:, None])[:, 0]


def held_distances(model, x, y, norm):
    found = margin_distances(model, x, y, ("input", HIDDEN), norm=norm, top_k=1).distances
    return [values[:, 0] for values in found.values()]


def dead_net():
    """Every ReLU is off: the logits are the head's bias, whatever the image."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU())
    model: Any = Classifier(extractor, nn.Linear(5, CLASSES)).double().eval()
    with torch.no_grad():
        model.extractor[1].bias.fill_(-100.0)
        model.head.bias.copy_(torch.tensor([0.3, 0.1, 0.0, -0.2], dtype=torch.float64))
    return model


@pytest.mark.parametrize("denominator", ["detach", "full"])
@pytest.mark.parametrize("norm", EVERY_NORM)
def test_p16_where_all_gradients_are_zero_eps_caps_the_distance(denominator, norm):
    """d = gap / eps, and loss and gradient are finite."""
    model, y = dead_net(), torch.tensor([1])
    loss = margin_only(("input",), norm, gamma=1.0, denominator=denominator, eps=0.5)
    terms = total(loss, model, images(1), y)
    assert terms.item() == pytest.approx(1.0 - (0.1 - 0.3) / 0.5, rel=1e-12)
    terms.backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
    assert model.head.bias.grad.tolist() == [2.0, -2.0, 0.0, 0.0]


@pytest.mark.parametrize("denominator", ["detach", "full"])
@pytest.mark.parametrize("sign", [1, -1])
def test_p16_saturated_probabilities_give_a_finite_loss(denominator, sign):
    """At a logit gap of 2,000 both the probabilities' difference and its gradient are 1 and 0 to the last bit."""
    model = smooth_net()
    with torch.no_grad():
        model.head.bias[0] += sign * 2000.0
    loss = LargeMarginLoss.reference(
        ("input", HIDDEN), distance=DistanceSettings("element", denominator=denominator)
    )
    terms = total(loss, model, images(2), torch.tensor([0, 0]))
    terms.backward()
    assert terms.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
