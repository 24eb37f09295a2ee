"""How many backward passes there are, what they touch, and what several rivals come to (property 19)."""

import math

import pytest
import torch
from torch import nn

from clearance import Outputs
from clearance.losses import DistanceSettings, LargeMarginLoss
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    images,
    labels,
    smooth_net,
)


@pytest.mark.parametrize(
    ("layers", "k", "sweeps"), [(ALL_LAYERS, 1, 1), (ALL_LAYERS, 3, 3), (("features", "logits"), 3, 0)]
)
def test_p19_one_sweep_a_rival_serves_all_layers(layers, k, sweeps):
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss(layers, top_k=k, distance=DistanceSettings(sweeps="sequential"))
    outputs = model.outputs(x, loss.layers)
    passes: list[int] = []
    outputs.features.register_hook(lambda _: passes.append(1))
    loss(outputs, y)
    assert len(passes) == sweeps


def test_p19_nothing_else_gets_a_gradient_before_the_final_backward():
    """And the caller's images never."""
    model, x, y = smooth_net(), images().requires_grad_(), labels()
    loss = LargeMarginLoss(ALL_LAYERS, top_k=3)
    outputs = model.outputs(x, loss.layers)
    terms = loss(outputs, y).total
    assert all(parameter.grad is None for parameter in model.parameters())
    assert outputs.activations["input"].grad is None
    terms.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert x.grad is None


def test_the_total_is_a_function_of_logits_with_constant_coefficients():
    """So one backward serves all layers and cross-entropy: cut off behind the logits, the loss has no other path."""
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss(ALL_LAYERS, gamma=1.0, top_k=2)
    outputs = model.outputs(x, loss.layers)
    terms = loss(outputs, y).total
    (of_logits,) = torch.autograd.grad(terms, outputs.logits, retain_graph=True)
    through = torch.autograd.grad(terms, list(model.parameters()), retain_graph=True)
    again = torch.autograd.grad(outputs.logits, list(model.parameters()), of_logits)
    for one, other in zip(through, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0.0)


def over_rivals(distances, gamma):
    """The margin of one sample with these distances to its rivals, by every way to make one loss of them."""
    logits = torch.tensor([[0.0, *(-math.sqrt(2) * d for d in distances)]], dtype=torch.float64)
    return {
        name: LargeMarginLoss(
            ("logits",),
            gamma=gamma,
            top_k=None,
            aggregate=name,
            cross_entropy_weight=0.0,
            distance=DistanceSettings(eps=0.0),
        )(Outputs(torch.zeros(1, 2), logits, nn.Identity()), torch.tensor([0])).total.item()
        for name in ("mean", "smooth_max", "max", "sum")
    }


@pytest.mark.parametrize("aggregate", ["max", "sum", "mean", "smooth_max"])
def test_what_rivals_come_to(aggregate):
    """Against plain Python, and in order: mean <= smooth maximum <= max <= sum."""
    v = [0.0, 0.7, 2.0]
    gamma = 0.5
    found = over_rivals([gamma - u for u in v], gamma)
    smooth = gamma / 10 * math.log(sum(math.exp(10 * u / gamma) for u in v) / 3)
    expected = {"max": 2.0, "sum": 2.7, "mean": 0.9, "smooth_max": smooth}
    assert found[aggregate] == pytest.approx(expected[aggregate], rel=1e-12)
    assert list(found.values()) == sorted(found.values())


def test_without_violation_the_smooth_maximum_is_zero():
    assert over_rivals([2.0, 2.5, 3.0], 1.0)["smooth_max"] == pytest.approx(0.0, abs=1e-15)


def test_logits_alone_carry_an_analytic_margin():
    """No activation, no sweep, features without a graph."""
    z = torch.tensor([[2.0, 0.0, 1.0]], requires_grad=True)
    loss = LargeMarginLoss(
        ("logits",), gamma=1.0, cross_entropy_weight=0.0, distance=DistanceSettings(eps=0.0)
    )
    terms = loss(Outputs(torch.zeros(1, 2), z, nn.Identity()), torch.tensor([0])).total
    assert terms.item() == pytest.approx(1 - 1 / math.sqrt(2))
    terms.backward()
    assert z.grad is not None
    assert z.grad.tolist()[0] == pytest.approx([-1 / math.sqrt(2), 0.0, 1 / math.sqrt(2)])
