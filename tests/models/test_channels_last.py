"""Filters that lie with their channels last for as long as a network is looked at."""

import pytest
import torch
from torch import Tensor, nn

from clearance.models import Classifier, resnet20, small_cnn
from clearance.models._running import filters_channels_last


class Viewing(nn.Module):
    """A layer of a user's own that asks how its input lies in memory."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.view(len(inputs), -1)


def _network() -> Classifier:
    torch.manual_seed(0)
    return Classifier(small_cnn(3, 32), nn.LazyLinear(4)).eval()


def _strides(model: nn.Module) -> list[tuple[int, ...]]:
    return [one.stride() for one in model.parameters()]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_filters_are_laid_out_and_then_the_same_tensors_again(images: Tensor) -> None:
    model = _network()
    model(images)
    before = [one.data_ptr() for one in model.parameters()]
    strides = _strides(model)
    with filters_channels_last(model):
        assert all(
            part.weight.is_contiguous(memory_format=torch.channels_last)
            for part in model.modules()
            if isinstance(part, nn.Conv2d)
        )
        assert _strides(model) != strides
    assert _strides(model) == strides
    assert [one.data_ptr() for one in model.parameters()] == before


def test_what_filters_of_one_channel_give_lies_so_too() -> None:
    """Their own layout is ambiguous; if they kept it, every layer after them would copy."""
    model = Classifier(small_cnn(1, 16), nn.LazyLinear(4)).eval()
    images = torch.rand(5, 1, 16, 16)
    model(images)
    with filters_channels_last(model):
        maps = next(part for part in model.modules() if isinstance(part, nn.Conv2d))(images)
    assert maps.is_contiguous(memory_format=torch.channels_last)


def test_they_are_back_after_an_error(images: Tensor) -> None:
    model = _network()
    model(images)
    strides = _strides(model)
    with pytest.raises(RuntimeError), filters_channels_last(model):
        model(images[:, :1])
    assert _strides(model) == strides


@pytest.mark.parametrize("extractor", [small_cnn, resnet20])
def test_only_rounding_differs(extractor, images: Tensor) -> None:
    model = Classifier(extractor(3, 32), nn.LazyLinear(4)).eval()
    moving = images.clone().requires_grad_()
    plain = model(moving)
    (gradient,) = torch.autograd.grad(plain[:, 0].sum(), moving)
    with filters_channels_last(model):
        laid_out = model(moving)
        (same,) = torch.autograd.grad(laid_out[:, 0].sum(), moving)
    torch.testing.assert_close(laid_out, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(same, gradient, rtol=1e-4, atol=1e-5)


def test_layers_of_ones_own_are_left_alone(images: Tensor) -> None:
    model = Classifier(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), Viewing()), nn.LazyLinear(4)).eval()
    plain = model(images)
    with filters_channels_last(model):
        torch.testing.assert_close(model(images), plain, rtol=0, atol=0)


def test_other_precisions_are_left_alone(images: Tensor) -> None:
    model = _network()
    model(images)
    strides = _strides(model.double())
    with filters_channels_last(model):
        assert _strides(model) == strides
