"""Filters lie with their channels last for as long as distances are measured."""

import pytest
import torch
from torch import nn

from clearance.audits import BoundaryDistance
from clearance.data import ImageSet
from clearance.models import Classifier, small_cnn


class Viewing(nn.Module):
    """Flattens as a user may: fails on what lies otherwise than usual."""

    def forward(self, inputs):
        return inputs.view(len(inputs), -1)


def network(flatten):
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), flatten), nn.Linear(216, 4)).eval()


@pytest.fixture
def data():
    images = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return ImageSet(images, torch.arange(12) % 4, tuple("abcd"))


def audited(model, data):
    found = BoundaryDistance(norms=("2",), searched=3, steps=2)(model, data, data)
    return {(m.name, *m.context.values()): m.value for m in found.measurements}


def places(model):
    return [(one.data_ptr(), one.stride()) for one in model.parameters()]


def test_filters_are_laid_out_and_then_the_same_tensors_again(data):
    model = Classifier(small_cnn(3, 8), nn.LazyLinear(4)).eval()
    model(data.images)
    before, seen = places(model), []
    filters = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
    for part in filters:
        part.register_forward_pre_hook(
            lambda part, _: seen.append(part.weight.is_contiguous(memory_format=torch.channels_last))
        )
    audited(model, data)
    assert any(seen)
    assert places(model) == before


def test_they_are_back_after_an_error(data):
    model = network(nn.Flatten())
    before = places(model)
    with pytest.raises(ValueError, match="layers"):
        BoundaryDistance(layers=("extractr",))(model, data, data)
    assert places(model) == before


def test_a_layer_of_ones_own_is_left_alone_and_only_rounding_differs(data):
    laid_out, left_alone = audited(network(nn.Flatten()), data), audited(network(Viewing()), data)
    assert left_alone == pytest.approx(laid_out, rel=1e-3, abs=1e-6)
