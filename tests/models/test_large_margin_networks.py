"""ResNet-20 and the networks of the large-margin experiments: published sizes, work, layers by name."""

import pytest
import torch
from torch import nn

from clearance import Method
from clearance.experiments.catalogue import MODELS, resolve
from clearance.experiments.saved import empty_model
from clearance.heads import MLP
from clearance.models import Classifier, large_margin_cnn, resnet20, small_cnn
from models.sizes import multiply_adds, parameters

STAGES = ("extractor.stem", "extractor.stage1", "extractor.stage2", "extractor.stage3")


def with_linear(extractor, features):
    return Classifier(extractor, nn.Linear(features, 10))


class TestResNet20:
    def test_it_has_the_published_number_of_parameters(self):
        """He et al. (2016), table 6: 0.27 M. Nineteen convolutions, their batch normalisation, one linear layer."""
        widths = [(3, 16), *[(16, 16)] * 6, (16, 32), *[(32, 32)] * 5, (32, 64), *[(64, 64)] * 5]
        expected = sum(9 * before * after + 2 * after for before, after in widths) + 64 * 10 + 10
        assert expected == 269_722
        assert parameters(with_linear(resnet20(), 64)) == expected
        layers = [m for m in resnet20().modules() if isinstance(m, nn.Conv2d)]
        assert len(layers) + 1 == 20

    def test_its_work_is_what_is_stated(self):
        assert multiply_adds(with_linear(resnet20(), 64), (3, 32, 32)) == pytest.approx(40.6e6, rel=0.005)

    @pytest.mark.parametrize("norm", ["none", "batch", "group"])
    def test_stages_can_be_asked_for_by_name(self, norm):
        torch.manual_seed(0)
        model = with_linear(resnet20(1, 32, norm), 64)
        outputs = model.outputs(torch.rand(2, 1, 32, 32), ("input", *STAGES))
        shapes = [tuple(outputs.activations[name].shape) for name in STAGES]
        assert shapes == [(2, 16, 32, 32), (2, 16, 32, 32), (2, 32, 16, 16), (2, 64, 8, 8)]
        assert outputs.features.shape == (2, 64)
        wanted = [outputs.activations[name] for name in ("input", *STAGES)]
        slopes = torch.autograd.grad(outputs.logits[:, 0].sum(), wanted)
        assert all(bool(slope.any()) for slope in slopes)

    def test_a_shortcut_is_every_second_pixel_and_maps_of_zeros(self):
        torch.manual_seed(0)
        block = resnet20()[2][0].eval()  # type: ignore[index]
        block.residual[-1].weight.data.zero_()  # nothing but the shortcut is left
        maps = torch.rand(2, 16, 8, 8)
        found = block(maps)
        assert torch.equal(found[:, 8:24], maps[:, :, ::2, ::2])
        assert not found[:, :8].any()
        assert not found[:, 24:].any()

    def test_the_features_are_averages_over_pixels(self):
        torch.manual_seed(0)
        model = with_linear(resnet20(), 64).eval()
        outputs = model.outputs(torch.rand(3, 3, 32, 32), STAGES)
        torch.testing.assert_close(outputs.features, outputs.activations["extractor.stage3"].mean(dim=(2, 3)))

    def test_without_batch_normalisation_images_do_not_see_each_other(self):
        torch.manual_seed(0)
        images = torch.rand(3, 3, 32, 32)
        for norm, alone in (("group", True), ("none", True), ("batch", False)):
            extractor = resnet20(norm=norm).train()  # type: ignore[arg-type]
            same = torch.allclose(extractor(images)[:1], extractor(images[:1]), atol=1e-5)
            assert same is alone

    def test_without_normalisation_activations_neither_vanish_nor_explode(self):
        torch.manual_seed(0)
        model = with_linear(resnet20(norm="none"), 64)
        outputs = model.outputs(torch.randn(4, 3, 32, 32), STAGES)
        sizes = [float(outputs.activations[name].detach().square().mean().sqrt()) for name in STAGES]
        assert 0.1 < min(sizes) <= max(sizes) < 3

    def test_what_it_cannot_do_is_refused(self):
        with pytest.raises(ValueError, match=r"`size` must be 32 for resnet20.*got 28\. .*small_cnn"):
            resnet20(1, 28)
        with pytest.raises(ValueError, match="`norm` must be one of 'none', 'batch', 'group'"):
            resnet20(norm="layer")  # type: ignore[arg-type]


class TestLargeMarginCNN:
    def test_it_is_the_network_of_the_published_code(self):
        model = with_linear(large_margin_cnn(1, 28), 512)
        assert parameters(model) == 1_663_466
        assert multiply_adds(model, (1, 28, 28)) == pytest.approx(12.3e6, rel=0.005)
        names = ("extractor.block1", "extractor.block2", "extractor.dense")
        seen = model.outputs(torch.rand(2, 1, 28, 28), names).activations
        assert [tuple(seen[name].shape) for name in names] == [(2, 32, 14, 14), (2, 64, 7, 7), (2, 512)]
        kinds = [type(layer) for layer in model.extractor.block1]
        assert kinds == [nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d]

    def test_other_sizes_and_norms(self):
        assert large_margin_cnn(3, 32, "none")(torch.rand(2, 3, 32, 32)).shape == (2, 512)
        assert not [m for m in large_margin_cnn(1, 8, "none").modules() if isinstance(m, nn.BatchNorm2d)]
        with pytest.raises(ValueError, match=r"`size` must be a multiple of 4 .*got 30"):
            large_margin_cnn(1, 30)
        with pytest.raises(ValueError, match="`norm`"):
            large_margin_cnn(1, 28, "bach")  # type: ignore[arg-type]


def test_the_network_of_the_cpu_ledgers_needs_at_most_three_million_multiply_adds():
    extractor = small_cnn(1, 28)
    assert multiply_adds(extractor, (1, 28, 28)) == 1_919_232
    model = Classifier(extractor, MLP((576, 128, 128, 10)))
    assert multiply_adds(model, (1, 28, 28)) == pytest.approx(2.01e6, rel=0.005)


@pytest.mark.parametrize(("name", "made"), [("resnet20", resnet20), ("large-margin-cnn", large_margin_cnn)])
def test_recipes_build_them_by_name(name, made):
    assert resolve("model", name, MODELS) is made
    model = empty_model(name, Method(norm="batch", hidden=()), (3, 32, 32), 10)
    assert model.head.widths == ({"resnet20": 64, "large-margin-cnn": 512}[name], 10)
