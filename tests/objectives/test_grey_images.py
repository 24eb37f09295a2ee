"""The short way down to images of one channel gives what autograd gives, and is taken only where it may be."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from clearance.objectives._grey_images import first_convolution
from clearance.objectives._sweeps import one_sweep

CONVOLUTIONS: dict[str, nn.Module] = {
    "plain": nn.Conv2d(1, 5, 3),
    "no bias": nn.Conv2d(1, 5, 3, bias=False),
    "as large as its images": nn.Conv2d(1, 12, (7, 8)),
    "stride that leaves pixels out": nn.Conv2d(1, 5, 3, stride=(2, 3)),
    "padded": nn.Conv2d(1, 5, 5, padding=(2, 1)),
    "dilated": nn.Conv2d(1, 5, (2, 3), dilation=(3, 2), padding=2),
    "one filter": nn.Conv2d(1, 1, 2),
}


def leaf(channels: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    stream = torch.Generator().manual_seed(3)
    return torch.rand(4, channels, 7, 8, generator=stream, dtype=dtype).requires_grad_()


def swept(root: Tensor, images: Tensor, *, create_graph: bool = False) -> Tensor:
    start = torch.linspace(-1, 2, root.numel(), dtype=root.dtype).reshape(root.shape)
    return one_sweep(root, {"input": images}, start, create_graph=create_graph)[0]


def by_autograd(root: Tensor, images: Tensor, *, create_graph: bool = False) -> Tensor:
    start = torch.linspace(-1, 2, root.numel(), dtype=root.dtype).reshape(root.shape)
    return torch.autograd.grad(root, images, start, retain_graph=True, create_graph=create_graph)[0]


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("normalised", [False, True])
def test_it_is_the_gradient_that_autograd_gives(name, normalised):
    convolution, images = CONVOLUTIONS[name].double(), leaf()
    root = convolution((images - 0.1) / 0.3 if normalised else images).tanh().flatten(1)
    assert first_convolution(root, images) is not None
    torch.testing.assert_close(swept(root, images), by_autograd(root, images), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("normalised", [False, True])
def test_all_sweeps_at_once_give_the_same(normalised):
    images = leaf()
    root = CONVOLUTIONS["padded"].double()((images - 0.1) / 0.3 if normalised else images).tanh().mean((2, 3))
    first = first_convolution(root, images)
    assert first is not None
    starts = torch.eye(5, dtype=torch.float64)[:, None].expand(5, 4, 5)
    (found,) = torch.autograd.grad(root, [first.output], starts, retain_graph=True, is_grads_batched=True)
    expected = [torch.autograd.grad(root, images, start, retain_graph=True)[0] for start in starts]
    torch.testing.assert_close(first.at_images(found), torch.stack(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("normalised", [False, True])
def test_it_can_be_differentiated_in_turn(normalised):
    convolution, images = CONVOLUTIONS["padded"].double(), leaf()
    root = convolution((images - 0.1) / 0.3 if normalised else images).tanh().flatten(1)
    wanted = [images, *convolution.parameters()]
    found, expected = (
        torch.autograd.grad(way(root, images, create_graph=True).square().sum(), wanted, retain_graph=True)
        for way in (swept, by_autograd)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_in_single_precision_it_is_as_exact_as_autograd():
    exact, images = CONVOLUTIONS["padded"].double(), leaf()
    expected = by_autograd(exact(images).tanh().flatten(1), images)
    single, pixels = nn.Conv2d(1, 5, 5, padding=(2, 1)), images.detach().float().requires_grad_()
    single.load_state_dict(exact.state_dict())
    root = single(pixels).tanh().flatten(1)
    errors = [(way(root, pixels) - expected).abs().max().item() for way in (swept, by_autograd)]
    assert errors[0] < 2 * errors[1] + 1e-7


@pytest.mark.parametrize("sweeps", [1, 3])
def test_a_checkpointed_stage_is_computed_again_once_a_sweep(sweeps):
    convolution, images, runs = CONVOLUTIONS["padded"].double(), leaf(), 0

    def stage(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return convolution(x).tanh()

    root = checkpoint(stage, images - 0.1, use_reentrant=False).flatten(1)
    assert first_convolution(root, images) is not None
    for _ in range(sweeps):
        found = swept(root, images)
    assert runs == 1 + sweeps
    torch.testing.assert_close(
        found, by_autograd(stage(images - 0.1).flatten(1), images), rtol=1e-12, atol=1e-12
    )


class TwoWays(nn.Module):
    """Images enter by two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.one(x) + self.other(x)).flatten(1)


class Beside(nn.Module):
    """They enter by one convolution, and beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.convolution(x).flatten(1), x.flatten(1)], dim=1)


class OfItself(nn.Module):
    """The images are filters as well."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, x, padding=1).flatten(1)


class Doubled(nn.Module):
    """Two channels of the same."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, 2, -1, -1)


OTHER_WAYS: dict[str, tuple[nn.Module, int]] = {
    "two convolutions": (TwoWays(), 1),
    "a skip connection": (Beside(), 1),
    "images as filters": (OfItself(), 1),
    "colours": (nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), 3),
    "no convolution": (nn.Flatten(), 1),
    "padded by mirrors": (nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 5, 3), nn.Flatten()), 1),
    "one large filter": (nn.Sequential(nn.Conv2d(1, 1, 5), nn.Flatten()), 1),
    "frozen filters": (
        nn.Sequential(nn.Conv2d(1, 5, 3).requires_grad_(requires_grad=False), nn.Flatten()),
        1,
    ),
    "filters that are computed": (nn.Sequential(spectral_norm(nn.Conv2d(1, 5, 3)), nn.Flatten()).eval(), 1),
    "images padded by their own edges": (
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten()),
        1,
    ),
    "a transposed one": (nn.Sequential(nn.ConvTranspose2d(1, 1, 3), nn.Flatten()), 1),
    "one of volumes": (nn.Sequential(nn.Unflatten(1, (1, 1)), nn.Conv3d(1, 2, (1, 3, 3)), nn.Flatten()), 1),
    "another axis than channels": (nn.Sequential(nn.Flatten(2), nn.Conv1d(1, 2, 3), nn.Flatten()), 1),
    "two copies": (nn.Sequential(Doubled(), nn.Conv2d(2, 4, 3), nn.Flatten()), 1),
    "copies in groups": (nn.Sequential(Doubled(), nn.Conv2d(2, 4, 3, groups=2), nn.Flatten()), 1),
}


@pytest.mark.parametrize("name", OTHER_WAYS)
def test_elsewhere_the_long_way_is_taken(name):
    network, channels = OTHER_WAYS[name]
    images = leaf(channels)
    root = network.double()(images)
    assert first_convolution(root, images) is None
    torch.testing.assert_close(swept(root, images), by_autograd(root, images), rtol=1e-12, atol=1e-12)


def test_half_precision_goes_the_long_way():
    images = leaf(dtype=torch.float32)
    with torch.autocast("cpu"):
        root = nn.Conv2d(1, 5, 3)(images).flatten(1).float()
    assert first_convolution(root, images) is None


def test_images_that_somebody_watches_go_the_long_way():
    images = leaf()
    images.register_hook(lambda gradient: 2 * gradient)
    root = CONVOLUTIONS["plain"].double()(images).flatten(1)
    assert first_convolution(root, images) is None
    torch.testing.assert_close(swept(root, images), by_autograd(root, images), rtol=1e-12, atol=1e-12)
