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

from clearance.linear.hyperplane import Hyperplane, adversarial_distance, error_distance, error_rate
from clearance.linear.svm_path import LinearFit, svm_path
from clearance.linear.tilting import tilting_angle, tilting_plane

__all__ = [
    "Hyperplane",
    "LinearFit",
    "adversarial_distance",
    "error_distance",
    "error_rate",
    "svm_path",
    "tilting_angle",
    "tilting_plane",
]
