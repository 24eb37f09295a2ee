"""Linear classifiers of two classes, in closed form or exact: the reference for the audits.

A linear classifier's score is its distance to the boundary times the norm of its weights, so a penalty on the
weights rescales the loss: a strong one makes the loss depend on all samples, a weak one on the errors. This changes
the angle between the weights and the line through the class centroids (Tanay and Griffin, "A New Angle on L2
Regularization", 2018).

>>> x = [[-2.0, 0.0], [-1.0, 0.3], [1.0, 0.4], [2.0, 0.0], [-0.2, -0.2], [0.2, 0.2]]
>>> y = [-1, -1, 1, 1, -1, 1]
>>> for fit in svm_path(x, y, [1.0, 1e-1, 1e-3]):
...     angle, distance = tilting_angle(fit.plane, x, y), adversarial_distance(fit.plane, x, y)
...     print(f"{angle:.2f} {distance:.2f}")
0.01 1.07
0.28 1.03
0.71 0.81
"""

from clearance.linear.class_planes import class_plane as class_plane
from clearance.linear.class_planes import rival_distances as rival_distances
from clearance.linear.hyperplane import Hyperplane as Hyperplane
from clearance.linear.hyperplane import adversarial_distance as adversarial_distance
from clearance.linear.hyperplane import error_distance as error_distance
from clearance.linear.hyperplane import error_rate as error_rate
from clearance.linear.hyperplane import mirrored as mirrored
from clearance.linear.hyperplane import projected as projected
from clearance.linear.hyperplane import scores as scores
from clearance.linear.hyperplane import signed_distances as signed_distances
from clearance.linear.loss_scaling import large_scale_limit as large_scale_limit
from clearance.linear.loss_scaling import scaled_loss as scaled_loss
from clearance.linear.loss_scaling import small_scale_limit as small_scale_limit
from clearance.linear.svm_path import LinearFit as LinearFit
from clearance.linear.svm_path import svm_path as svm_path
from clearance.linear.temperature import calibrated_temperature as calibrated_temperature
from clearance.linear.tilting import TiltingPlane as TiltingPlane
from clearance.linear.tilting import centroids as centroids
from clearance.linear.tilting import nearest_centroid as nearest_centroid
from clearance.linear.tilting import tilting_angle as tilting_angle
from clearance.linear.tilting import tilting_plane as tilting_plane

__all__ = [
    "Hyperplane",
    "LinearFit",
    "TiltingPlane",
    "adversarial_distance",
    "calibrated_temperature",
    "centroids",
    "class_plane",
    "error_distance",
    "error_rate",
    "large_scale_limit",
    "mirrored",
    "nearest_centroid",
    "projected",
    "rival_distances",
    "scaled_loss",
    "scores",
    "signed_distances",
    "small_scale_limit",
    "svm_path",
    "tilting_angle",
    "tilting_plane",
]
