"""Geometry of labelled features, as pure functions.

>>> import torch
>>> features = torch.tensor([[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]])
>>> cloud = class_scatter(features, torch.tensor([0, 0, 1, 1]), classes=2)
>>> within_between_ratio(cloud)      # spread 1/4 within, 16 between
0.015625
"""

from clearance.geometry.first_order import first_order_distance as first_order_distance
from clearance.geometry.neural_collapse import nc2_equiangle as nc2_equiangle
from clearance.geometry.neural_collapse import nc2_equinorm as nc2_equinorm
from clearance.geometry.neural_collapse import nc2_simplex as nc2_simplex
from clearance.geometry.neural_collapse import nc3 as nc3
from clearance.geometry.neural_collapse import nc4 as nc4
from clearance.geometry.scatter import ClassStatistics as ClassStatistics
from clearance.geometry.scatter import (
    class_distance_normalised_variances as class_distance_normalised_variances,
)
from clearance.geometry.scatter import class_scatter as class_scatter
from clearance.geometry.scatter import nc1 as nc1
from clearance.geometry.scatter import within_between_ratio as within_between_ratio
from clearance.geometry.spectrum import effective_rank as effective_rank
from clearance.geometry.spectrum import first_axis_share as first_axis_share

__all__ = [
    "ClassStatistics",
    "class_distance_normalised_variances",
    "class_scatter",
    "effective_rank",
    "first_axis_share",
    "first_order_distance",
    "nc1",
    "nc2_equiangle",
    "nc2_equinorm",
    "nc2_simplex",
    "nc3",
    "nc4",
    "within_between_ratio",
]
