"""Free features of two classes, and what all heads of one sample of each do to them.

Two clouds of 16 points, targets +1 and -1, and all 256 heads that one point of each gives. With the heads
theta, theta_0 fixed, the gradient of the loss with respect to a feature f with target t is

    g(f) = 2 (A f - v_t),    A = mean theta theta^T,    v_t = mean theta (t - theta_0).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.heads.ridge import pair_head

N = 16


@dataclass
class Pull:
    """All heads of two clouds, and what they do to them."""

    theta: Tensor
    A: Tensor
    v: tuple[Tensor, Tensor]

    def gradients(self, f, g):
        return 2 * (f @ self.A - self.v[0]), 2 * (g @ self.A - self.v[1])


def pull(f, g, lambda_):
    weight, bias = pair_head(f[:, None], g[None], 1.0, -1.0, lambda_)
    theta, theta_0 = weight.flatten(0, 1), bias.flatten()
    v = tuple(((t - theta_0)[:, None] * theta).mean(dim=0) for t in (1.0, -1.0))
    return Pull(theta, theta.T @ theta / len(theta), (v[0], v[1]))


def clouds(d, n=N, seed=0, std=0.5, distance=2.0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    axis = torch.eye(d, dtype=torch.float64)[0] * distance / 2
    plus, minus = (std * torch.randn(n, d, generator=draws, dtype=torch.float64) for _ in range(2))
    return plus + axis, minus - axis


def descend(f, g, lambda_, steps, size=None) -> tuple[Tensor, Tensor]:
    """Heads made anew at every step; its size is 1 / (2 largest eigenvalue of A) unless it is given."""
    for _ in range(steps):
        pulled = pull(f, g, lambda_)
        step = 0.5 / float(torch.linalg.eigvalsh(pulled.A)[-1]) if size is None else size
        of_f, of_g = pulled.gradients(f, g)
        f, g = f - step * of_f, g - step * of_g
    return f, g


@dataclass
class Spread:
    """Distance D of the centroids, and rms scatter along that axis and off it."""

    D: float
    along: float
    off: float


def spread(f, g):
    axis = f.mean(dim=0) - g.mean(dim=0)
    D = axis.norm()
    deviations = torch.cat([f - f.mean(dim=0), g - g.mean(dim=0)])
    along = deviations @ (axis / D)
    off = deviations - along[:, None] * axis / D
    return Spread(float(D), float(along.square().mean().sqrt()), float(off.square().sum(1).mean().sqrt()))
