"""Geometry of labelled features, as pure functions.

>>> import torch
>>> features = torch.tensor([[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]])
>>> cloud = class_scatter(features, torch.tensor([0, 0, 1, 1]), classes=2)
>>> within_between_ratio(cloud)      # spread 1/4 within, 16 between
0.015625
"""

from clearance.geometry.neural_collapse import nc2_equiangle, nc2_equinorm, nc2_simplex, nc3, nc4
from clearance.geometry.scatter import class_scatter, nc1, within_between_ratio

__all__ = [
    "class_scatter",
    "nc1",
    "nc2_equiangle",
    "nc2_equinorm",
    "nc2_simplex",
    "nc3",
    "nc4",
    "within_between_ratio",
]
