"""Geometry of labelled features, as pure functions.

>>> import torch
>>> features = torch.tensor([[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]])
>>> cloud = class_scatter(features, torch.tensor([0, 0, 1, 1]), classes=2)
>>> within_between_ratio(cloud)      # spread 1/4 within, 16 between
0.015625
"""

from clearance.geometry.discriminant import pooled_scatter as pooled_scatter
from clearance.geometry.discriminant import scatter_ratio as scatter_ratio
from clearance.geometry.discriminant import versus_rest as versus_rest
from clearance.geometry.first_order import dual_exponent as dual_exponent
from clearance.geometry.first_order import dual_norm as dual_norm
from clearance.geometry.first_order import first_order_distance as first_order_distance
from clearance.geometry.nearest import class_means as class_means
from clearance.geometry.nearest import nearest_class_mean as nearest_class_mean
from clearance.geometry.nearest import nearest_neighbour as nearest_neighbour
from clearance.geometry.neural_collapse import nc2_equiangle as nc2_equiangle
from clearance.geometry.neural_collapse import nc2_equinorm as nc2_equinorm
from clearance.geometry.neural_collapse import nc2_simplex as nc2_simplex
from clearance.geometry.neural_collapse import nc3 as nc3
from clearance.geometry.neural_collapse import nc4 as nc4
from clearance.geometry.scatter import ClassScatter as ClassScatter
from clearance.geometry.scatter import (
    class_distance_normalised_variances as class_distance_normalised_variances,
)
from clearance.geometry.scatter import class_scatter as class_scatter
from clearance.geometry.scatter import nc1 as nc1
from clearance.geometry.scatter import within_between_ratio as within_between_ratio
from clearance.geometry.spectrum import covariance_spectrum as covariance_spectrum
from clearance.geometry.spectrum import effective_rank as effective_rank
from clearance.geometry.spectrum import first_axis_share as first_axis_share
from clearance.geometry.spectrum import principal_axes as principal_axes
from clearance.geometry.threshold import best_threshold as best_threshold

__all__ = [
    "ClassScatter",
    "best_threshold",
    "class_distance_normalised_variances",
    "class_means",
    "class_scatter",
    "covariance_spectrum",
    "dual_exponent",
    "dual_norm",
    "effective_rank",
    "first_axis_share",
    "first_order_distance",
    "nc1",
    "nc2_equiangle",
    "nc2_equinorm",
    "nc2_simplex",
    "nc3",
    "nc4",
    "nearest_class_mean",
    "nearest_neighbour",
    "pooled_scatter",
    "principal_axes",
    "scatter_ratio",
    "versus_rest",
    "within_between_ratio",
]
