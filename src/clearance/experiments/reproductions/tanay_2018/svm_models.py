"""The exact hinge machines of one pair of classes at 81 lambdas, and what the article reads off each of them."""

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearance.data import ImageSet
from clearance.experiments.datasets import load_dataset
from clearance.linear import LinearFit, svm_path, tilting_plane

COLUMNS = 81
PER_CLASS = 3000  # of each class, the first in the order of the training set
TOLERANCE = 1e-6
FIELDS = (
    "log10_lambda", "theta_rad", "b_mid", "margin", "d_adv", "d_err", "n_err_train", "n_err_test",
    "hinge_risk", "objective", "relative_gap",
)  # fmt: skip
Array = NDArray[np.float64]


def lambdas() -> Array:
    """10^(2 - c / 10) for the columns c = 0 ... 80: from 10^2 to 10^-6, the factor of ||w||^2 for pixels in [0, 1].

    The article's prose prints numbers 10^5 times as large; its data obey these.

    >>> lambdas()[[0, 40, 80]].round(9).tolist()
    [100.0, 0.01, 1e-06]
    """
    powers: Array = 10 ** (2 - 0.1 * np.arange(COLUMNS, dtype=np.float64))
    return powers


@functools.lru_cache(maxsize=2)
def _split(dataset: str, split: str, root: str | None) -> ImageSet:
    return load_dataset(dataset, split, root)


def pair_points(dataset: str, pair: Sequence[int], split: str, root: str | None) -> tuple[Array, Array]:
    """Points (n, d) of a pair in [0, 1], the first class as -1, the second as +1.

    Args:
        dataset: A name of the catalogue.
        pair: Two classes; the article's class I is the smaller.
        split: ``"train"``: the first 3,000 of each class, or as many of each as the smaller has. ``"test"``: all.
        root: Where the dataset's files are.

    >>> x, y = pair_points("digits", (2, 3), "train", None)
    >>> x.shape[1], int(y.sum())
    (64, 0)
    """
    data = _split(dataset, split, root)
    parts = [data.images[data.labels == k].flatten(1).double().numpy() for k in pair]
    if split == "train":
        most = min(PER_CLASS, *(len(part) for part in parts))
        parts = [part[:most] for part in parts]
    return np.concatenate(parts), np.repeat([-1.0, 1.0], [len(part) for part in parts])


def solved_pair(task: dict[str, Any], root: str | None = None) -> dict[str, Any]:
    """All models of one pair.

    Args:
        task: ``dataset``, ``pair``, and ``tolerance``, the relative duality gap to reach.
        root: Where the dataset's files are.

    Returns:
        ``models``, a column of 81 numbers for each of `FIELDS`; how many images there were; ``cpu_seconds``.
    """
    began = time.process_time()
    x, y = pair_points(task["dataset"], task["pair"], "train", root)
    held_out, classes = pair_points(task["dataset"], task["pair"], "test", root)
    fits = svm_path(x, y, lambdas(), tolerance=task["tolerance"])
    return {
        "models": readings(fits, x, y, held_out, classes),
        "n_train": len(y),
        "n_test": len(classes),
        "cpu_seconds": time.process_time() - began,
    }


def readings(
    fits: Sequence[LinearFit], x: Array, y: Array, held_out: Array, classes: Array
) -> dict[str, list[float]]:
    """What the article prints of each model, by name; distances are in units of [0, 1] pixels.

    The same numbers as `clearance.linear` gives one model at a time; here the data are read once for all models.

    Args:
        fits: One machine for each lambda.
        x: Training points, (n, d).
        y: Their classes, -1 and +1.
        held_out: Test points, (m, d).
        classes: Their classes.
    """
    weights, biases = np.stack([fit.w for fit in fits], axis=1), np.array([fit.b for fit in fits])
    scales = np.linalg.norm(weights, axis=0)
    signed = y[:, None] * (x @ weights + biases)
    # two points, the centroids, have the centroids of all
    means = np.stack([x[y < 0].mean(axis=0), x[y > 0].mean(axis=0)])
    seen = [tilting_plane(fit.plane, means, torch.tensor([-1.0, 1.0])) for fit in fits]
    wrong = classes[:, None] * (held_out @ weights + biases) <= 0
    columns = (
        [np.log10(fit.lam) for fit in fits],
        [one.angle for one in seen],
        [one.offset for one in seen],
        1 / scales,
        signed.mean(axis=0) / scales,
        np.maximum(-signed, 0).mean(axis=0) / scales,
        (signed <= 0).sum(axis=0),
        wrong.sum(axis=0),
        [fit.risk for fit in fits],
        [fit.objective for fit in fits],
        [fit.relative_gap for fit in fits],
    )
    return {
        name: np.asarray(column, dtype=np.float64).tolist()
        for name, column in zip(FIELDS, columns, strict=True)
    }
