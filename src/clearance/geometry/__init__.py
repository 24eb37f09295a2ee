"""Geometry: a labelled cloud of features, as pure functions.

>>> import torch
>>> features = torch.tensor([[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]])
>>> cloud = class_scatter(features, torch.tensor([0, 0, 1, 1]), classes=2)
>>> within_between_ratio(cloud)      # spread 1/4 within, 16 between
0.015625
"""

from clearance.geometry.nearest import class_means as class_means
from clearance.geometry.nearest import nearest_class_mean as nearest_class_mean
from clearance.geometry.nearest import nearest_neighbour as nearest_neighbour
from clearance.geometry.scatter import ClassScatter as ClassScatter
from clearance.geometry.scatter import (
    class_distance_normalised_variances as class_distance_normalised_variances,
)
from clearance.geometry.scatter import class_scatter as class_scatter
from clearance.geometry.scatter import nc1 as nc1
from clearance.geometry.scatter import within_between_ratio as within_between_ratio

__all__ = [
    "ClassScatter",
    "class_distance_normalised_variances",
    "class_means",
    "class_scatter",
    "nc1",
    "nearest_class_mean",
    "nearest_neighbour",
    "within_between_ratio",
]
