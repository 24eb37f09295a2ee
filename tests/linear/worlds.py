"""Two classes of points on which the identities of linear theory are tried."""

import numpy as np
import torch

from clearance.linear import Hyperplane
from clearance.linear.hyperplane import signed_distances, steepest


def clouds(per_class=(30, 30), features=5, apart=1.5, seed=0):
    """Gaussian clouds that overlap, far from the origin: points (n, d) and labels -1, +1."""
    rng = np.random.default_rng(seed)
    y = np.repeat([-1.0, 1.0], per_class)
    spread = np.linspace(0.5, 1.5, features)
    x = rng.normal(size=(len(y), features)) * spread + 3.0
    x[:, 0] += apart * y / 2
    return x, y


def separable(seed=0):
    """Clouds with a gap of at least 1 between them along the first feature."""
    x, y = clouds(seed=seed)
    x[:, 0] = y * (0.5 + np.abs(x[:, 0] - 3.0))
    return x, y


def some_plane(features=5, seed=1):
    rng = np.random.default_rng(seed)
    return Hyperplane.of(rng.normal(size=features), float(rng.normal()) - 3.0)


def turned(features, seed=2):
    """An orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(features, features)))[0]


def as_tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def projected(plane, x, norm=2.0):
    """The nearest point of the boundary."""
    return as_tensor(x) - signed_distances(plane, x, norm).unsqueeze(1) * steepest(plane.weight, norm)


def nearest_centroid(x, y):
    """The classifier that asks which class mean is nearer, with weights of length 1."""
    first, second = (as_tensor(x[y == sign]).mean(dim=0) for sign in (-1, 1))
    direction = (second - first) / (second - first).norm()
    return Hyperplane.of(direction, -float(direction @ (first + second)) / 2)
