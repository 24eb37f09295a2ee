"""LeNet: its sizes, its one ReLU, its parts' names, and what it refuses."""

import pytest
import torch
from torch import nn

from clearance.models import Classifier, lenet


def test_it_has_the_article_s_layers_and_one_relu():
    body = lenet(1, 28)
    assert list(dict(body.named_children())) == ["conv1", "pool1", "conv2", "pool2", "flat", "fc1", "relu"]
    assert sum(isinstance(part, nn.ReLU) for part in body.modules()) == 1
    shapes = [tuple(p.shape) for p in body.parameters() if p.ndim > 1]
    assert shapes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800)]
    model = Classifier(body, nn.Linear(500, 10))
    assert sum(p.numel() for p in model.parameters()) == 431_080
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)


def test_first_weights_are_he_s_with_fan_out_of_matconvnet_s_layers():
    """0.04 for Conv2 and 0.0158 for FC1, a convolution of 4 x 4 there: what the article prints at low decay."""
    torch.manual_seed(0)
    body = lenet(1, 28)
    for name, expected in (("conv1", (2 / 500) ** 0.5), ("conv2", 0.04), ("fc1", 0.0158)):
        assert float(getattr(body, name).weight.detach().std()) == pytest.approx(expected, rel=0.1)
        assert not bool(getattr(body, name).bias.detach().any())


def test_without_the_relu_it_would_be_linear_between_poolings():
    """Kernels are applied without padding: the first feature map of a bright pixel is the kernel turned round."""
    body = lenet(1, 28)
    image = torch.zeros(1, 1, 28, 28)
    image[0, 0, 10, 12] = 1.0
    with torch.no_grad():
        seen = body.get_submodule("conv1")(image)[0]  # biases begin at 0
    torch.testing.assert_close(seen[:, 6:11, 8:13], body.state_dict()["conv1.weight"][:, 0].flip((1, 2)))
    assert seen.shape == (20, 24, 24)


@pytest.mark.parametrize("size", [16, 20, 32])
def test_other_sizes_and_channels_and_batch_normalisation(size):
    assert lenet(3, size)(torch.rand(2, 3, size, size)).shape == (2, 500)
    normed = lenet(3, size, "batch")
    assert sum(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in normed.modules()) == 3
    assert normed(torch.rand(2, 3, size, size)).shape == (2, 500)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="multiple of 4 for lenet"):
        lenet(1, 30)
    with pytest.raises(ValueError, match="`size` must be a whole number of at least 16"):
        lenet(1, 8)
    with pytest.raises(ValueError, match="`norm` must be one of"):
        lenet(1, 28, "bach")  # type: ignore[arg-type]
