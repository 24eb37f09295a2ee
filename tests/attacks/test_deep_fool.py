"""DeepFool: on a linear model its first step is the shortest to any rival's boundary inside the bounds."""

import math

import pytest
import torch
from torch import nn

from clearance.attacks import DeepFool, MinimumNorm
from clearance.attacks.minimum_norm import shortest_step

NORMS = (1.0, 2.0, math.inf)


class Planes(nn.Module):
    """Seven classes on 20 pixels; the logit of class 1 is that of class 0 less a constant: no step brings it nearer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.randn(20, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        self.bias = -0.5 * self.weight.sum(dim=0)
        self.weight[:, 1] = self.weight[:, 0]
        self.bias[1] = self.bias[0] - 0.01

    def forward(self, x):
        return x @ self.weight + self.bias


@pytest.mark.parametrize("norm", NORMS)
def test_the_step_is_the_shortest_of_all(norm):
    model = Planes().eval()
    draws = torch.Generator().manual_seed(1)
    points = (1.4 * torch.rand(60, 20, generator=draws, dtype=torch.float64) - 0.2).clamp(0, 1)
    logits = model(points)
    labels = logits.argmax(dim=1)
    steps, lengths = [], []
    for rival in range(7):
        gradient = (model.weight[:, rival] - model.weight[:, labels].T).contiguous()
        rise = 1.02 * (logits.gather(1, labels[:, None])[:, 0] - logits[:, rival])
        steps.append(shortest_step(points, gradient, rise, norm))
        arrives = (rise > 0) & ((gradient * steps[-1]).sum(dim=1) >= rise * (1 - 1e-9))
        length = torch.linalg.vector_norm(steps[-1], ord=norm, dim=1)
        lengths.append(torch.where(arrives, length, math.inf))
    nearest = torch.stack(lengths).argmin(dim=0)
    assert len(nearest.unique()) > 3
    assert bool((labels == 0).any())
    hit = DeepFool(norm, steps=1)(model, points, labels)
    expected = points + torch.stack(steps)[nearest, torch.arange(60)]
    torch.testing.assert_close(hit.images, expected, rtol=0, atol=1e-12)
    assert hit.success.all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", [DeepFool, MinimumNorm])
def test_an_image_on_a_boundary_is_next_to_it(attack, norm):
    """It is right by the order of classes alone."""
    model = torch.nn.Identity().eval()
    tied = torch.tensor([[0.5, 0.5, 0.2], [0.5, 0.3, 0.5], [0.0, 0.0, 0.0]])
    hit = attack(norm=norm)(model, tied, torch.zeros(3, dtype=torch.long))
    assert hit.success.all()
    assert (hit.distance < 1e-4).all()
