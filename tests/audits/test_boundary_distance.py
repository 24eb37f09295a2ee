"""Distances to the boundary: exact on a linear network, in units that no constant inside the network changes."""

import math

import pytest
import torch
from torch import nn

from clearance.audits import BoundaryDistance, WeightScale
from clearance.audits.boundary_distance import layer_spreads
from clearance.data import ImageSet
from clearance.models import Classifier
from digits_nets import Times, digits, network  # on pytest's path


def linear_world(count=60):
    """Images far from their bounds and three classes, some of them misclassified."""
    draws = torch.Generator().manual_seed(0)
    images = 0.5 + 0.02 * torch.randn(count, 1, 3, 3, generator=draws)
    head = nn.Linear(9, 3)
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 9, generator=draws))
        head.bias.copy_(-head.weight.sum(1) / 2)
    labels = head(images.flatten(1)).argmax(1)
    labels[:5] = (labels[:5] + 1) % 3
    return Classifier(nn.Flatten(), head), ImageSet(images, labels, ("a", "b", "c"))


def closed_form(model, data, norm):
    weight, bias = model.head.weight.detach().double(), model.head.bias.detach().double()
    dual = {"inf": 1, "2": 2, "1": math.inf}[norm]
    rows = data.images.flatten(1).double()
    distances = torch.full((len(data), 3), math.inf, dtype=torch.float64)
    for i, (row, label) in enumerate(zip(rows, data.labels.tolist(), strict=True)):
        for rival in set(range(3)) - {label}:
            across = weight[label] - weight[rival]
            distances[i, rival] = (across @ row + bias[label] - bias[rival]) / across.norm(p=dual)
    return distances.amin(1)


def medians(findings, name, **context):
    return {
        m.context["class"]: m.value
        for m in findings.measurements
        if m.name == name and "class" in m.context and context.items() <= dict(m.context).items()
    }


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_p01_exact_on_a_linear_network(norm):
    model, data = linear_world()
    found = BoundaryDistance(norms=(norm,), steps=5)(model, data, data)
    expected = closed_form(model, data, norm)
    assert (expected < 0).sum() == 5
    chosen = {"all": slice(None)} | {name: data.labels == k for k, name in enumerate(data.classes)}
    for name, rows in chosen.items():
        first = medians(found, "first_order_distance", layer="input")[name]
        assert first == pytest.approx(float(expected[rows].median()), rel=1e-4, abs=1e-6)
        searched = medians(found, "minimum_distance")[name]
        assert searched == pytest.approx(float(expected.clamp(min=0)[rows].median()), rel=2e-3, abs=1e-6)
    # features are the pixels, measured in units of their typical deviation
    rows = data.images.flatten(1).double()
    spread = float((rows - rows.mean(0)).square().mean().sqrt()) * 9 ** (1 / float(norm))
    features = medians(found, "first_order_distance", layer="features")
    assert features["all"] == pytest.approx(float(expected.median()) / spread, rel=1e-4)


def test_p03_the_scale_of_logits_and_p07_of_features_does_not_matter():
    train, test = digits()
    model, some = network(), test.per_class(6, seed=0)
    audit = BoundaryDistance(
        norms=("2",), layers=("input", "extractor", "features", "logits"), searched=10, steps=5
    )
    loud = Classifier(model.extractor, Times(model.head, 64.0))
    wide = Classifier(Times(model.extractor, 30.0), nn.Sequential(Times(nn.Identity(), 1 / 30.0), model.head))
    values = {m.name + str(m.context): m.value for m in audit(model, train, some).measurements}
    for other, factor in ((loud, 64.0), (wide, 1.0)):
        found = {m.name + str(m.context): m.value for m in audit(other, train, some).measurements}
        scale = "local_scale{'norm': '2'}"  # gap over distance: by its meaning that of the logits
        assert found[scale] == pytest.approx(factor * values[scale], rel=1e-3)
        assert found | {scale: 0} == pytest.approx(values | {scale: 0}, rel=1e-3)


def test_searched_and_first_order_distances_agree_in_size_on_digits():
    train, test = digits()
    found = BoundaryDistance(norms=("2",), layers=("input",), searched=40, steps=30)(network(), train, test)
    first = medians(found, "first_order_distance", layer="input")["all"]
    searched = medians(found, "minimum_distance")["all"]
    assert 0.5 < first / searched < 2
    picture = found.exhibits[0]
    assert 35 <= len(picture.columns["x"]) <= 40
    assert {m.n for m in found.measurements if m.context.get("class") == "all"} == {497, 40}


@pytest.mark.parametrize("chunk", [1, 7, 30])
def test_spread_is_the_deviation_from_the_mean_image(chunk):
    torch.manual_seed(0)
    images = 100 + torch.rand(30, 1, 2, 3)  # a mean far from 0 costs no digits
    model = Classifier(nn.Flatten(), nn.Linear(6, 4)).eval()
    found = layer_spreads(model, images, ("features", "logits"), 2.0, chunk)
    with torch.no_grad():
        named = {"features": images.flatten(1).double(), "logits": model(images).double()}
    for layer, values in named.items():
        expected = (values - values.mean(0)).square().sum(1).mean().sqrt()
        assert found[layer] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("constant", [1e9, -3e38])
def test_a_unit_that_never_changes_hides_no_spread(constant):
    class Masked(nn.Module):
        def forward(self, features):
            return nn.functional.pad(features, (0, 1), value=constant)

    images = torch.rand(30, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    spread = layer_spreads(Classifier(nn.Flatten(), nn.Identity()).eval(), images, ("logits",), 2.0, 30)
    masked = layer_spreads(Classifier(nn.Flatten(), Masked()).eval(), images, ("logits",), 2.0, 30)
    assert masked == pytest.approx(spread, rel=1e-12)
    alike = images[:1].expand(30, 1, 2, 3)
    assert layer_spreads(Classifier(nn.Flatten(), Masked()).eval(), alike, ("logits",), 2.0, 7) == {
        "logits": 0
    }


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"`norms` must be one of 'inf', '2', '1'; got '3'"):
        BoundaryDistance(norms=("3",))
    assert BoundaryDistance(norms=(2, math.inf, "2")).norms == ("2", "inf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`steps` must be a whole number"):
        BoundaryDistance(steps=0)
    train, test = digits()
    with pytest.raises(ValueError, match="layers"):
        BoundaryDistance(layers=("extractr",))(network(), train, test)


def test_a_network_whose_weights_are_buffers_is_audited_like_any_other():
    """Fixed for good, as quantised and some exported networks have them."""
    model, data = linear_world()

    class Fixed(nn.Module):
        weight: torch.Tensor
        bias: torch.Tensor

        def __init__(self):
            super().__init__()
            self.register_buffer("weight", model.head.weight.detach().clone())
            self.register_buffer("bias", model.head.bias.detach().clone())

        def forward(self, features):
            return nn.functional.linear(features, self.weight, self.bias)

    fixed = Classifier(nn.Flatten(), Fixed())
    assert not list(fixed.parameters())
    audit = BoundaryDistance(norms=("2",), steps=2)
    same, found = (
        {(m.name, *m.context.values()): m.value for m in audit(net, data, data).measurements}
        for net in (model, fixed)
    )
    assert found == pytest.approx(same, rel=1e-5, abs=1e-6)
    assert {m.name for m in WeightScale()(fixed, data, data).measurements} >= {"logit_scale", "temperature"}
