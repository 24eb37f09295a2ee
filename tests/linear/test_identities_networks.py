"""What of the linear theory holds for networks: local planes, and ascent to equal confidence."""

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearance.attacks import TargetedAscent
from clearance.linear import Hyperplane
from clearance.linear.hyperplane import scores, signed_distances
from linear.worlds import projected  # on pytest's path

GREY = 1 / 255


@pytest.fixture
def network():
    """s(x) = W2 relu(W1 x + b1) + b2 on 6 inputs."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 1)).double()


def local_plane(network, x):
    """The plane of the linear piece that x lies in: W2 W1^x and W2 b1^x + b2."""
    first, _, last = network
    active = (first(x) > 0).double()
    weight = last.weight[0] * active @ first.weight
    return Hyperplane.of(weight, last.weight[0] * active @ first.bias + last.bias), active


def test_i16_the_local_plane_is_the_gradient_s(network):
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    plane, active = local_plane(network, x)
    (gradient,) = torch.autograd.grad(network(x).sum(), x)
    assert 0 < float(active.sum()) < 9
    assert_close(plane.weight, gradient)
    point = x.detach().unsqueeze(0)
    assert_close(scores(plane, point), network(point).detach()[0])
    assert_close(signed_distances(plane, point), network(point).detach()[0] / gradient.norm())


def test_i16_in_one_piece_the_projection_is_on_the_true_boundary(network):
    landed = 0
    for seed in range(30):
        point = torch.randn(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) / 2
        plane, active = local_plane(network, point[0])
        there = projected(plane, point)
        if bool(((network[0](there[0]) > 0).double() == active).all()):
            landed += 1
            assert_close(network(there).detach(), torch.zeros(1, 1).double(), atol=1e-12, rtol=0)
    assert landed >= 3


def test_i16_the_local_scale_is_at_most_the_product_of_norms(network):
    first, _, last = network
    spectral = torch.linalg.matrix_norm(first.weight, ord=2).detach()
    frobenius = torch.linalg.matrix_norm(first.weight).detach()
    for seed in range(10):
        x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        plane, _ = local_plane(network, x)
        assert plane.scale <= float(last.weight.detach().norm() * spectral) + 1e-12
    assert spectral < frobenius


@pytest.fixture
def softmax_model():
    torch.manual_seed(1)
    last = nn.Linear(16, 3).requires_grad_(False)
    last.weight *= 20
    return nn.Sequential(nn.Flatten(), last).double().eval()


def after(model, start, label, steps):
    """The image after so many steps, and how sure the model is of the target then."""
    image = TargetedAscent(steps=steps)(model, start, label).images
    return image, float(model(image).softmax(dim=1)[0, (label + 1) % 3])


def test_i19_ascent_goes_in_steps_of_one_grey_level(softmax_model):
    start = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    label = softmax_model(start).argmax(dim=1)
    path = [start, *(after(softmax_model, start, label, steps)[0] for steps in range(1, 6))]
    steps = [float((later - before).norm()) for before, later in itertools.pairwise(path)]
    assert steps == pytest.approx([GREY] * 5)


def test_i19_pixels_stop_at_black_and_white(softmax_model):
    """Every step by hand: along the gradient of the target's log probability, one grey level long, then clipped."""
    start = (
        torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64) > 0.5
    ).double()
    label = softmax_model(start).argmax(dim=1)
    target, image, stopped = int((label + 1) % 3), start, 0
    for steps in range(1, 4):
        moving = image.clone().requires_grad_()
        (slope,) = torch.autograd.grad(softmax_model(moving).log_softmax(dim=1)[0, target], moving)
        wanted = image + GREY * slope / slope.norm()
        stopped += int(((wanted < 0) | (wanted > 1)).sum())
        image = wanted.clamp(0, 1)
        assert_close(after(softmax_model, start, label, steps)[0], image)
    assert stopped > 5


def test_i19_ascent_stops_at_the_first_image_that_is_sure(softmax_model):
    start = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    label = softmax_model(start).argmax(dim=1)
    hit = TargetedAscent()(softmax_model, start, label)
    assert bool(hit.success)
    assert float(hit.images.min()) >= 0
    assert float(hit.images.max()) <= 1
    low, high = 0, 512  # steps after which it is not sure, and is
    while high - low > 1:
        middle = (low + high) // 2
        sure = after(softmax_model, start, label, middle)[1] >= 0.95
        low, high = (low, middle) if sure else (middle, high)
    image, sure = after(softmax_model, start, label, high)
    assert sure >= 0.95 > after(softmax_model, start, label, low)[1]
    assert torch.equal(hit.images, image)
