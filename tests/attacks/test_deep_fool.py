"""A step of DeepFool: the shortest to any rival's linear boundary, and what need not be looked at for it."""

import math

import pytest
import torch

from clearance.attacks import minimum_norm
from clearance.attacks.attack import norm_of
from clearance.attacks.minimum_norm import MinimumNorm, Slopes, shortest_step
from clearance.vocabulary import Bounds

NORMS = (1.0, 2.0, math.inf)
BOUNDS = Bounds()


def world(count=50, pixels=20, rivals=6):
    """Points of which every pixel may be at a bound; rises that every rival's boundary allows inside the bounds."""
    draws = torch.Generator().manual_seed(0)
    points = (1.4 * torch.rand(count, pixels, generator=draws, dtype=torch.float64) - 0.2).clamp(0, 1)
    gradients = torch.randn(rivals, count, pixels, generator=draws, dtype=torch.float64)
    room = torch.where(gradients > 0, 1 - points, points)
    share = 0.02 + 0.3 * torch.rand(rivals, count, generator=draws, dtype=torch.float64)
    gaps = -(share * (gradients.abs() * room).sum(dim=2))
    gradients[0, :4] = 0.0  # a rival that no step brings nearer
    return points, Slopes(torch.zeros(count, dtype=torch.bool), gaps, gradients)


@pytest.mark.parametrize("norm", NORMS)
def test_the_step_is_the_shortest_of_all(norm):
    points, slopes = world()
    found = minimum_norm._nearest(slopes, points, norm, BOUNDS, factor=1.02)
    all_steps = [
        shortest_step(points, gradient, -1.02 * gap, norm, BOUNDS)
        for gap, gradient in zip(slopes.gaps, slopes.gradients, strict=True)
    ]
    lengths = torch.stack([norm_of(step, norm) for step in all_steps])
    lengths[lengths == 0] = math.inf
    nearest = lengths.argmin(dim=0)
    assert len(nearest.unique()) > 3
    assert torch.equal(found, torch.stack(all_steps)[nearest, torch.arange(len(points))])


def test_rivals_that_are_farther_to_first_order_are_not_looked_at(monkeypatch):
    points, slopes = world()
    looked = []

    def watched(rows, *rest):
        looked.append(len(rows))
        return shortest_step(rows, *rest)

    monkeypatch.setattr(minimum_norm, "shortest_step", watched)
    minimum_norm._nearest(slopes, points, 2.0, BOUNDS, factor=1.0)
    assert looked[0] == len(points) - 4
    assert sum(looked) < 0.6 * slopes.gaps.numel()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", [minimum_norm.DeepFool, MinimumNorm])
def test_an_image_on_a_boundary_is_next_to_it(attack, norm):
    """It is right by the order of classes alone."""
    model = torch.nn.Identity().eval()
    tied = torch.tensor([[0.5, 0.5, 0.2], [0.5, 0.3, 0.5], [0.0, 0.0, 0.0]])
    hit = attack(norm=norm)(model, tied, torch.zeros(3, dtype=torch.long))
    assert hit.success.all()
    assert (hit.distance < 1e-4).all()
