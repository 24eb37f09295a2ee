"""Explore: a page on which a person tilts boundaries by hand, in one HTML file that opens offline.

It carries the interactive figures of Tanay and Griffin, "A New Angle on L2 Regularization" (2018), for their toy of two
pixels and for any two classes of samples: `linear` fits 81 exact machines when the page is made, and the browser
computes everything else from the samples themselves, so that no number on the page can contradict another.

>>> import numpy as np
>>> from clearance.explore.page import render_explorer
>>> images, labels = np.eye(4), np.array([0, 0, 1, 1])
>>> scene = scene_of((images, labels), (images, labels), ("ape", "bee"), shape=(1, 2, 2))
>>> "ape against bee" in render_explorer(scene)
True
"""

from clearance.explore.page import write_explorer
from clearance.explore.scene import scene_of

__all__ = [
    "scene_of",
    "write_explorer",
]
