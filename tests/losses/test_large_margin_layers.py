"""Layers whose gradients are known without a sweep, and distances by element (properties 9, 17)."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance.geometry import dual_exponent
from clearance.losses import margin_distances
from clearance.models import Classifier
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    CLASSES,
    HIDDEN,
    images,
    labels,
    relu_net,
    slow_distance,
    smooth_net,
)

NORMS = [1.0, 2.0, math.inf]


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
