"""The extractors for 32 x 32 images: sizes, first weights, and what they refuse."""

import itertools

import pytest
import torch
from torch import nn

from clearance import Method
from clearance.experiments.catalogue import MODELS, resolve
from clearance.experiments.saved import empty_model
from clearance.models import convnet32, vgg16
from clearance.models.extractors.convnet32 import averaged_convnet32, small_convnet32

CONVNET32 = ((64, 64), (128, 128), (256, 256))
SMALL_CONVNET32 = ((32,), (64, 64), (128,))
VGG16 = ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)

EXTRACTORS = {
    "convnet32": (convnet32, CONVNET32, 4096),
    "small-convnet32": (small_convnet32, SMALL_CONVNET32, 2048),
    "averaged-convnet32": (averaged_convnet32, SMALL_CONVNET32, 128),
    "vgg16": (vgg16, VGG16, 512),
}


@pytest.fixture(params=EXTRACTORS)
def case(request):
    return EXTRACTORS[request.param]


def parameters_of(stages, channels, norm):
    """(9 maps_in + 1) maps_out a convolution, and 2 maps_out for its batch normalisation."""
    widths = [channels, *itertools.chain(*stages)]
    pairs = list(itertools.pairwise(widths))
    extra = 2 if norm == "batch" else 0
    return sum((9 * before + 1 + extra) * after for before, after in pairs)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sizes_are_those_of_the_architecture(case, channels, norm):
    make, stages, features = case
    extractor = make(channels, 32, norm)
    assert extractor(torch.rand(2, channels, 32, 32)).shape == (2, features)
    assert sum(p.numel() for p in extractor.parameters()) == parameters_of(stages, channels, norm)
    kinds = [type(layer) for layer in extractor]
    convolutions = sum(len(stage) for stage in stages)
    assert kinds.count(nn.Conv2d) == kinds.count(nn.ReLU) == convolutions
    assert kinds.count(nn.BatchNorm2d) == (convolutions if norm == "batch" else 0)
    assert kinds.count(nn.MaxPool2d) + kinds.count(nn.AdaptiveAvgPool2d) == len(stages)


def test_vgg16_has_the_published_number_of_parameters():
    """14,714,688: the 13 convolutions of configuration D, three channels, with biases."""
    assert sum(p.numel() for p in vgg16(3, 32).parameters()) == 14_714_688


def test_features_of_the_convnet_are_maps_of_4_by_4():
    """A stage halves the image; moving one pixel of the last corner cannot reach the first map's far corner."""
    torch.manual_seed(0)
    extractor = convnet32(1, 32)
    images = torch.rand(1, 1, 32, 32)
    changed = images.clone()
    changed[..., -1, -1] += 1
    moved = (extractor(images) != extractor(changed)).reshape(256, 4, 4)
    assert moved[:, -1, -1].any()
    assert not moved[:, 0, 0].any()


def rms_of_activations(extractor):
    """Root mean square of what each ReLU hands on, for images of mean square 1."""
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found, value = [], images
    with torch.no_grad():
        for layer in extractor:
            value = layer(value)
            if isinstance(layer, nn.ReLU):
                found.append(float(value.square().mean().sqrt()))
    return found


def test_activations_neither_vanish_nor_explode_without_normalisation(case):
    """He's rule keeps the mean square in open maps; pooling raises it, zeros at the border lower it."""
    torch.manual_seed(0)
    found = rms_of_activations(case[0](3, 32))
    assert min(found) > 0.4
    assert max(found) < 2.5


def test_the_default_weights_of_torch_would_vanish():
    """So that the test above is known to tell the two apart."""
    torch.manual_seed(0)
    extractor = vgg16(3, 32)
    for layer in extractor:
        if isinstance(layer, nn.Conv2d):
            layer.reset_parameters()
    assert rms_of_activations(extractor)[-1] < 0.05


def test_weights_start_as_he_and_biases_at_zero(case):
    torch.manual_seed(0)
    for layer in case[0](3, 32):
        if isinstance(layer, nn.Conv2d):
            assert float(layer.weight.detach().std()) == pytest.approx(
                (2 / (9 * layer.in_channels)) ** 0.5, rel=0.1
            )
            assert layer.bias is not None
            assert not layer.bias.any()


@pytest.mark.parametrize("size", [28, 31, 64, 32.5])
def test_other_sizes_are_refused_with_a_way_out(case, size):
    with pytest.raises(
        ValueError, match=rf"`size` must be 32 for {case[0].__name__}.*got {size}\. .*small_cnn"
    ):
        case[0](3, size)


def test_other_arguments_are_checked(case):
    with pytest.raises(ValueError, match="`channels`"):
        case[0](0, 32)
    with pytest.raises(ValueError, match=r"`norm` must be one of 'none', 'batch'; got 'batc'"):
        case[0](3, 32, "batc")


@pytest.mark.parametrize("name", EXTRACTORS)
def test_recipes_build_them_by_name(name):
    assert resolve("model", name, MODELS) is EXTRACTORS[name][0]
    model = empty_model(name, Method(), (3, 32, 32), 10)
    assert model.head.widths == (EXTRACTORS[name][2], *Method().hidden, 10)
    with pytest.raises(ValueError, match="`size` must be 32"):
        empty_model(name, Method(), (1, 28, 28), 10)
