"""The two presets against slow versions of their own: loops over samples, classes and layers in float64."""

import math

import pytest
import torch

from clearance.losses import LargeMarginLoss, margin_distances
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    HIDDEN,
    conv_net,
    images,
    labels,
    slow_distance,
    smooth_net,
    wrong_classes,
)

LAYERS = ("input", HIDDEN)


def slow_paper(model, x, y, norm, gamma, aggregate):
    """sum over layers, mean over samples, max or sum over i != y of max(0, gamma - d)."""
    total = 0.0
    for layer in LAYERS:
        for image, label in zip(x, y.tolist(), strict=True):
            terms = []
            for rival in wrong_classes(model, image, label):
                d = slow_distance(model, image, label, rival, layer, norm=norm, eps=1e-6)
                terms.append(max(0.0, gamma - d))
            total += (max(terms) if aggregate == "max" else sum(terms)) / len(x)
    return total


def slow_reference(model, x, y, norm, gamma, k, aggregate="max"):
    """mean over layers and samples of -clip(d, gamma (1 - 4), gamma), on probabilities.

    Of the nearest of the top k, or summed over all of those. With p = inf the gradient's norm is divided by the
    number of elements, and eps is added after that.
    """
    total = 0.0
    for layer in LAYERS:
        elements = model.outputs(x, LAYERS).activations[layer][0].numel() if math.isinf(norm) else 1
        for image, label in zip(x, y.tolist(), strict=True):
            distances = [
                slow_distance(
                    model,
                    image,
                    label,
                    rival,
                    layer,
                    norm=norm,
                    score="softmax",
                    eps=1e-6,
                    divided_by=elements,
                )
                for rival in wrong_classes(model, image, label)[:k]
            ]
            counted = distances if aggregate == "sum" else [min(distances)]
            clipped = sum(min(max(d, gamma * (1 - 4)), gamma) for d in counted)
            total -= clipped / (len(x) * len(LAYERS))
    return total


NETS = {"dense": (smooth_net, 3), "convolutional": (conv_net, 6)}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("aggregate", ["max", "sum"])
@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_the_paper_preset_is_the_formula(net, aggregate, norm):
    make, side = NETS[net]
    model, x, y = make(), images(5, side), labels(5)
    loss = LargeMarginLoss.paper(LAYERS, norm, gamma=0.7, aggregate=aggregate)
    terms = loss(model.outputs(x, loss.layers), y)
    assert terms.total.item() == pytest.approx(slow_paper(model, x, y, norm, 0.7, aggregate), rel=1e-10)
    assert list(terms.terms) == ["margin"]


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("aggregate", ["max", "sum"])
@pytest.mark.parametrize(("norm", "gamma"), [(1.0, 0.5), (2.0, 0.5), (math.inf, 1.2)])
def test_the_reference_preset_is_what_the_published_code_computes(net, k, aggregate, norm, gamma):
    make, side = NETS[net]
    model, x, y = make(), images(5, side), labels(5)
    loss = LargeMarginLoss.reference(LAYERS, norm, gamma, top_k=k, aggregate=aggregate)
    terms = loss(model.outputs(x, loss.layers), y)
    expected = slow_reference(model, x, y, norm, gamma, k, aggregate)
    assert terms.total.item() == pytest.approx(expected, rel=1e-10)


def test_presets_are_those_of_the_sources_and_any_setting_may_be_changed():
    paper, reference = LargeMarginLoss.paper(), LargeMarginLoss.reference()
    assert (paper.score, paper.top_k, paper.lower_clip, paper.layer_weights) == ("logits", None, None, 1.0)
    assert (reference.norm, reference.gamma, reference.top_k, reference.distance.eps) == (
        math.inf,
        1e4,
        1,
        1e-6,
    )
    assert (reference.score, reference.lower_clip, reference.distance.unit) == ("softmax", 4.0, "element")
    assert LargeMarginLoss.reference(norm=2).distance.unit == "layer"
    assert LargeMarginLoss.paper(cross_entropy_weight=0.5, top_k=2).top_k == 2


def test_the_default_gamma_of_the_reference_is_far_beyond_every_distance():
    """10,000: nothing is clipped, so that the loss is minus the mean distance and every sample pulls."""
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss.reference(("input",))
    value = loss(model.outputs(x, ("input",)), y).total.item()
    nearest = margin_distances(
        model, x, y, ("input",), norm=math.inf, score="softmax", unit="element", top_k=1, eps=1e-6
    ).nearest()["input"]
    assert 0 < float(nearest.abs().max()) < 100
    assert value == pytest.approx(-float(nearest.mean()), rel=1e-9)


@pytest.mark.parametrize("weights", [None, 2.0, {"input": 3.0, HIDDEN: 0.5}])
def test_layer_weights_and_cross_entropy_add_up(weights):
    model, x, y = smooth_net(), images(), labels()
    each = {
        layer: LargeMarginLoss((layer,), 2.0, 0.8, cross_entropy_weight=0.0)(
            model.outputs(x, LAYERS), y
        ).total.item()
        for layer in LAYERS
    }
    loss = LargeMarginLoss(
        LAYERS, 2.0, {"input": 0.8, HIDDEN: 0.8}, layer_weights=weights, cross_entropy_weight=0.25
    )
    terms = loss(model.outputs(x, LAYERS), y).terms
    values = {None: dict.fromkeys(LAYERS, 0.5), 2.0: dict.fromkeys(LAYERS, 2.0)}
    chosen = weights if isinstance(weights, dict) else values[weights]
    expected = sum(chosen[layer] * each[layer] for layer in LAYERS)
    assert terms["margin"].item() == pytest.approx(expected, rel=1e-12)
    plain = torch.nn.functional.cross_entropy(model(x), y).item()
    assert terms["cross_entropy"].item() == pytest.approx(0.25 * plain, rel=1e-12)


def test_every_layer_may_have_a_gamma_of_its_own():
    model, x, y = smooth_net(), images(), labels()
    both = LargeMarginLoss(LAYERS, gamma={HIDDEN: 3.0, "input": 0.4}, cross_entropy_weight=0.0)
    alone = [
        LargeMarginLoss((layer,), gamma=gamma, cross_entropy_weight=0.0)
        for layer, gamma in (("input", 0.4), (HIDDEN, 3.0))
    ]
    outputs = model.outputs(x, LAYERS)
    expected = sum(loss(outputs, y).total.item() for loss in alone) / 2
    assert both(outputs, y).total.item() == pytest.approx(expected, rel=1e-12)
