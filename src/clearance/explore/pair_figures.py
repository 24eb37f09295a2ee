"""What the page draws of a pair at one step of its slider, for people who read on paper: columns of exhibits."""

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearance.explore.machines import STRAIGHT, Machines
from clearance.explore.scene import Scene
from clearance.linear.hyperplane import mirrored, signed_distances
from clearance.linear.tilting import TiltingPlane, centroids, tilting_plane
from clearance.vocabulary import Exhibit, Scalar

AUDIT = "tilting"
LEANING = 1e-3  # radians from which on what is left of w across z points somewhere for certain
POINTS = 250  # samples of a class that are drawn, the first ones
CHOSEN_AMONG = 1500  # samples of a class, the first ones: those that the page draws and lets one choose
BINS = 40
DIGITS = 4


def figures_at(scene: Scene, machines: Machines, step: int) -> list[Exhibit]:
    """The tilting plane, the histogram of distances and, of images, the pictures at a step of the slider.

    Args:
        scene: The samples.
        machines: Of one of its pairs.
        step: Of 81, from weak to strong regularisation.
    """
    seen = _seen(scene, machines, step)
    found = [_plane(scene, machines, seen), _distances(scene, machines, step)]
    return [*found, _pictures(scene, machines, step)] if scene.shape is not None else found


def _seen(scene: Scene, machines: Machines, step: int) -> TiltingPlane:
    """The tilting plane of a machine; of one that does not lean n is that of the next one that does, as on the page."""
    pair = scene.pair(machines.first, machines.second)
    own = tilting_plane(machines.plane(step), *pair)
    if own.angle >= STRAIGHT:
        return own
    weaker = (tilting_plane(machines.plane(k), *pair) for k in range(step - 1, -1, -1))
    leaning = next((one for one in weaker if one.angle >= LEANING), own)
    return dataclasses.replace(own, n=leaning.n, angle=0.0)


def _plane(scene: Scene, machines: Machines, seen: TiltingPlane) -> Exhibit:
    """Places of the first samples, with the boundary's angle and offset as settings."""
    parts, names = [], []
    for index in (machines.first, machines.second):
        own = scene.classes[index]
        some = scene.values(own.train[:POINTS])
        parts.append(seen.coordinates(some))
        names += [own.name] * len(some)
    places = torch.cat(parts)
    columns: dict[str, list[Any]] = {
        "x": _rounded(places[:, 0]),
        "y": _rounded(places[:, 1]),
        "label": list(names),
    }
    told = {"angle": seen.angle, "offset": seen.offset, "separation": seen.separation}
    return Exhibit(AUDIT, "plane", "scatter", columns, "Training samples in the tilting plane.", told)


def _distances(scene: Scene, machines: Machines, step: int) -> Exhibit:
    """How many training samples of each class lie how far, positive on the side of the second class."""
    x, y = scene.pair(machines.first, machines.second)
    distances = signed_distances(machines.plane(step), x).numpy()
    reach = float(np.abs(distances).max()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    columns = {
        "centre": ((edges[:-1] + edges[1:]) / 2).tolist(),
        "first": np.histogram(distances[y < 0], edges)[0].tolist(),
        "second": np.histogram(distances[y > 0], edges)[0].tolist(),
    }
    names = [scene.classes[index].name for index in (machines.first, machines.second)]
    told: dict[str, Scalar] = {"first": names[0], "second": names[1], "scale": float(machines.scales[step])}
    return Exhibit(AUDIT, "margins", "histogram", columns, "Signed distances of training samples.", told)


def _pictures(scene: Scene, machines: Machines, step: int) -> Exhibit:
    """Both class means, the weights over their largest, and a typical sample of each class with its mirror image.

    Mirror images are not clipped.
    """
    plane = machines.plane(step)
    means = centroids(*scene.pair(machines.first, machines.second))
    images, labels = [mean.numpy() for mean in means], []
    names = [scene.classes[index].name for index in (machines.first, machines.second)]
    labels = [*(f"mean of {name}" for name in names), "weights"]
    # over the largest, or few digits would round small ones away
    images.append((plane.weight / plane.weight.abs().max()).numpy())
    for index, mean, name in zip((machines.first, machines.second), means, names, strict=True):
        sample = _typical(scene.values(scene.classes[index].train), mean.numpy())
        images += [sample, mirrored(plane, sample[None])[0].numpy()]
        labels += [name, f"mirror image of {name}"]
    pixels = np.round(np.stack(images), DIGITS).reshape(len(images), *(scene.shape or ()))
    columns = {"image": pixels.tolist(), "label": labels}
    return Exhibit(AUDIT, "pictures", "images", columns, "Means, weights, and mirror images.")


def _typical(rows: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sample nearest to the mean, among those that the page chooses it from."""
    nearest: NDArray[np.float64] = rows[((rows[:CHOSEN_AMONG] - mean) ** 2).sum(axis=1).argmin()]
    return nearest


def _rounded(values: torch.Tensor) -> list[float]:
    found: list[float] = torch.round(values, decimals=DIGITS).tolist()
    return found
