"""The 81 exact machines of a pair of classes, in the form that a page computes with."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearance.explore.scene import Scene
from clearance.linear.hyperplane import Hyperplane
from clearance.linear.svm_path import svm_path

STRAIGHT = 1e-6  # radians below which an angle is what float32 leaves of weights along z
LOG_LAMBDAS = np.round(-6 + 0.1 * np.arange(81), 1)
"""The slider: lambda = 10^-6 ... 10^2, as in the article's data (its prose has another unit)."""

Progress = Callable[[int, int, str], None]
"""Reported before each pair: how many are done, how many in all, and which pair it is."""


@dataclass(frozen=True)
class Machines:
    """The hinge machines of two classes at every step of the slider, from weak to strong regularisation.

    d(x) = directions . x + offsets;  s(x) = scales d(x).

    Args:
        first: Number of class I (y = -1) within the scene.
        second: Number of class J (y = +1).
        directions: w / ||w||, shape (81, d); float32, because a page holds them.
        offsets: b / ||w||, shape (81,).
        scales: ||w||, shape (81,).
        gaps: Relative duality gaps, shape (81,).
    """

    first: int
    second: int
    directions: NDArray[np.float32]
    offsets: NDArray[np.float64]
    scales: NDArray[np.float64]
    gaps: NDArray[np.float64]

    def plane(self, step: int) -> Hyperplane:
        """The machine at a step of the slider, for `clearance.linear`."""
        scale = float(self.scales[step])
        return Hyperplane.of(
            scale * self.directions[step].astype(np.float64), scale * float(self.offsets[step])
        )


def machines_of(scene: Scene, first: int, second: int) -> Machines:
    """Fit a pair's machines to the scene's training samples.

    Raises:
        ValueError: If the means of both classes coincide: then no direction lies between them, and no angle is defined;
            or samples are single numbers.

    >>> from clearance.explore.scene import scene_of
    >>> scene = scene_of(([[0.0, 0.0], [1.0, 1.0]], [0, 1]), ([[0.0, 0.0]], [0]), ("a", "b"))
    >>> found = machines_of(scene, 0, 1)
    >>> found.directions[0].tolist(), found.offsets[0].round(6).item()
    ([0.7071067690849304, 0.7071067690849304], -0.707107)
    """
    if scene.width < 2:
        raise ValueError(
            "samples must have at least 2 numbers, because one number gives no direction to tilt in; got 1."
        )
    x, y = scene.pair(first, second)
    means = [x[y == side].mean(axis=0) for side in (-1, 1)]
    if np.linalg.norm(means[1] - means[0]) <= 1e-12 * (1 + np.abs(means).max()):
        names = [scene.classes[index].name for index in (first, second)]
        raise ValueError(
            f"classes {names[0]!r} and {names[1]!r} have the same mean, so that no angle against the direction between "
            "the means exists; choose another pair."
        )
    fits = svm_path(x, y, 10.0**LOG_LAMBDAS)
    weights = np.stack([fit.w for fit in fits])
    scales = np.linalg.norm(weights, axis=1)
    if not scales.all():
        names = [scene.classes[index].name for index in (first, second)]
        raise ValueError(
            f"classes {names[0]!r} and {names[1]!r} have no boundary at "
            f"10^{LOG_LAMBDAS[int(scales.argmin())]:g}: the best SVM there predicts one class for everything; "
            "choose another pair."
        )
    return Machines(
        first,
        second,
        (weights / scales[:, None]).astype(np.float32),
        np.array([fit.b for fit in fits]) / scales,
        scales,
        np.array([fit.relative_gap for fit in fits]),
    )


def all_machines(scene: Scene, progress: Progress | None = None) -> list[Machines]:
    """Fit every pair of the scene's classes, in order."""
    pairs = list(itertools.combinations(range(len(scene.classes)), 2))
    found = []
    for done, (first, second) in enumerate(pairs):
        if progress is not None:
            progress(done, len(pairs), f"{scene.classes[first].name} against {scene.classes[second].name}")
        found.append(machines_of(scene, first, second))
    return found
