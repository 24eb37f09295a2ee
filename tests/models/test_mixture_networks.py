"""The networks of Wan et al. (2018): published sizes and work, in closed form, and what they refuse."""

import itertools

import pytest
import torch
from torch import nn

from clearance import Method
from clearance.experiments.saved import empty_model
from clearance.heads import GaussianMixture
from clearance.models import Classifier, convnet13, lenet_plus
from clearance.models.extractors.lenet_plus import tiny_lenet_plus
from models.sizes import multiply_adds, parameters


def lenet_parameters(width, channels=1, batch=False):
    """Convolutions with biases, a slope for each map, the linear layer."""
    convolutions = (25 * channels + 1) * 32 + (9 * 32 + 1) * 32
    convolutions += (9 * 32 + 1) * 64 + (9 * 64 + 1) * 64 + (9 * 64 + 1) * 128
    return convolutions + (32 + 64 + 128) * (3 if batch else 1) + (128 * 3 * 3 + 1) * width


class TestLenetPlus:
    @pytest.mark.parametrize("width", [2, 3, 100, 200])
    @pytest.mark.parametrize("norm", ["none", "batch"])
    def test_its_parameters_in_closed_form(self, width, norm):
        assert parameters(lenet_plus(1, 28, norm, width)) == lenet_parameters(width, batch=norm == "batch")

    def test_it_has_the_number_of_parameters_of_the_released_file(self):
        """255,884 with ten means at a width of 100."""
        model = Classifier(lenet_plus(1, 28), GaussianMixture(100, 10))
        assert parameters(model) == lenet_parameters(100) + 10 * 100 == 255_884

    def test_pairs_are_linear_and_features_have_no_activation(self):
        kinds = [type(layer).__name__ for layer in lenet_plus(1, 28)]
        pooled = ["MaxPool2d", "PReLU"]
        pair = ["Conv2d", "Conv2d", *pooled]
        assert kinds == [*pair, *pair, "Conv2d", *pooled, "Flatten", "Linear"]
        torch.manual_seed(0)
        features = lenet_plus(1, 28)(torch.rand(50, 1, 28, 28))
        assert float((features < 0).float().mean()) == pytest.approx(0.5, abs=0.25)

    def test_features_are_neither_vanishing_nor_huge_at_first(self):
        """Of inputs of mean square 1; poolings take maxima, so they grow a little."""
        torch.manual_seed(0)
        for make, size in ((lenet_plus, 28), (tiny_lenet_plus, 8)):
            features = make(1, size)(torch.randn(64, 1, size, size))
            assert 0.5 < float(features.detach().square().mean().sqrt()) < 4

    @pytest.mark.parametrize("size", [13, 16, 32])
    def test_sizes_that_do_not_fit_are_refused(self, size):
        with pytest.raises(ValueError, match=rf"`size` must be 4 more than a multiple of 8.*got {size}\."):
            lenet_plus(1, size)

    def test_other_sizes_fit(self):
        assert lenet_plus(3, 36, width=5)(torch.rand(2, 3, 36, 36)).shape == (2, 5)

    @pytest.mark.parametrize(("make", "size"), [(lenet_plus, 28), (tiny_lenet_plus, 8)])
    def test_other_arguments_are_checked(self, make, size):
        with pytest.raises(ValueError, match="`width`"):
            make(1, size, width=0)
        with pytest.raises(ValueError, match="`channels`"):
            make(0, size)
        with pytest.raises(ValueError, match=r"`norm` must be one of 'none', 'batch'; got 'batc'"):
            make(1, size, "batc")


class TestTinyLenetPlus:
    @pytest.mark.parametrize("width", [2, 100])
    def test_its_parameters_in_closed_form(self, width):
        convolutions = 10 * 16 + (9 * 16 + 1) * 16 + (9 * 16 + 1) * 32 + (9 * 32 + 1) * 32
        expected = convolutions + 16 + 32 + (32 * 2 * 2 + 1) * width
        assert parameters(tiny_lenet_plus(1, 8, width=width)) == expected
        if width == 100:
            assert expected + 1000 == 30_316

    def test_a_size_that_cannot_be_halved_twice_is_refused(self):
        with pytest.raises(ValueError, match=r"`size` must be a multiple of 4.*got 10\."):
            tiny_lenet_plus(1, 10)


class TestConvnet13:
    def test_its_parameters_in_closed_form(self):
        """6.18 M with a hundred means: 9 weights a pair of maps, 2 numbers of batch normalisation a map."""
        widths = [3, *[96] * 5, *[192] * 4, *[384] * 4]
        expected = sum(9 * before * after + 2 * after for before, after in itertools.pairwise(widths))
        model = Classifier(convnet13(3, 32), GaussianMixture(384, 100))
        assert parameters(model) == expected + 384 * 100 == 6_184_416

    def test_without_normalisation_convolutions_have_a_bias(self):
        assert parameters(convnet13(3, 32, "none")) == parameters(convnet13(3, 32)) - 2784

    def test_its_work_is_what_the_sheet_says(self):
        work = multiply_adds(convnet13(3, 32), (3, 32, 32))
        by_hand = 1024 * 9 * (3 * 96 + 4 * 96**2) + 256 * 9 * (96 * 192 + 3 * 192**2)
        by_hand += 64 * 9 * (192 * 384 + 3 * 384**2)
        assert work == by_hand == pytest.approx(0.94e9, rel=0.005)

    def test_features_are_averages_of_what_relu_lets_through(self):
        torch.manual_seed(0)
        network = convnet13(1, 8).eval()
        images = torch.rand(3, 1, 8, 8)
        features = network(images)
        assert torch.equal(features, network[:-2](images).mean(dim=(2, 3)))
        assert features.shape == (3, 384)
        assert bool((features >= 0).all())

    def test_running_statistics_move_by_three_hundredths(self):
        found = [layer for layer in convnet13(1, 8) if isinstance(layer, nn.BatchNorm2d)]
        assert len(found) == 13
        assert {layer.momentum for layer in found} == {0.03}

    def test_a_size_that_cannot_be_halved_twice_is_refused(self):
        with pytest.raises(ValueError, match=r"`size` must be a multiple of 4 for convnet13.*got 30\."):
            convnet13(3, 30)


class TestInARecipe:
    @pytest.mark.parametrize("mixture", ["none", "identity"])
    def test_the_width_of_features_is_a_setting_of_the_method(self, mixture):
        method = Method(features=2, hidden=(), mixture=mixture)
        model = empty_model("tiny-lenet-plus", method, (1, 8, 8), 10)
        assert model.features(torch.rand(4, 1, 8, 8)).shape == (4, 2)
        assert model(torch.rand(4, 1, 8, 8)).shape == (4, 10)

    def test_without_it_the_network_has_its_own(self):
        model = empty_model("lenet-plus", Method(hidden=()), (1, 28, 28), 10)
        assert model.features(torch.rand(1, 1, 28, 28)).shape == (1, 100)

    def test_a_network_of_fixed_width_says_so(self):
        with pytest.raises(
            ValueError, match=r"`features` must be 0 for model 'lenet'.*got 2.*small-cnn or lenet-plus"
        ):
            empty_model("lenet", Method(features=2), (1, 28, 28), 10)
