"""What the paths of heads that :class:`~clearance.audits.geodesic.Geodesic` walked look like in a record."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.heads.fisher import path_distance
from clearance.vocabulary import Exhibit, Measurement, Scalar

NAME = "geodesic"
METRICS = ("empirical", "model", "euclidean")


@dataclass(frozen=True)
class Paths:
    """What was found on r paths of heads.

    Args:
        features: How heads read them.
        temperature: Whether heads are as they were trained.
        segments: (r, 3 metrics, L + 1, P), infinite where an end is broken.
        errors: Test errors (r, P + 1), not a number where an end is broken; None where not measured.
        diverged: How many of the r paths have an end whose training diverged.
    """

    features: str
    temperature: str
    segments: Tensor
    errors: Tensor | None = None
    diverged: int = 0


def measurements(paths: Paths, chance: float) -> Iterator[Measurement]:
    """Means over the draws; a draw whose test errors are not numbers counts as risen by `chance`."""
    context: dict[str, Scalar] = {"features": paths.features, "temperature": paths.temperature}
    layers = paths.segments.shape[2]
    names = [*(str(number) for number in range(1, layers)), "all"]
    for name, values in (("distance", path_distance(paths.segments)), ("length", paths.segments.sum(dim=-1))):
        for m, metric in enumerate(METRICS):
            unit = "ratio" if metric == "euclidean" else "nats"
            for row, layer in enumerate(names):
                yield _mean(name, values[:, m, row], unit, {"metric": metric, "layer": layer, **context})
    if paths.errors is not None:
        rises = paths.errors - paths.errors[:, :1]
        yield _mean("path_error_rise", rises[:, -1].nan_to_num(chance), "fraction", context)
        yield _mean("worst_path_error", rises.amax(dim=1).nan_to_num(chance), "fraction", context)
        counted = {"features": paths.features}
        yield Measurement(
            NAME,
            "diverged_heads",
            paths.diverged,
            "count",
            len(rises),
            better="lower",
            context=counted,
        )


def _mean(name: str, values: Tensor, unit: str, context: dict[str, Scalar]) -> Measurement:
    spread = float(values.std()) if len(values) > 1 and bool(values.isfinite().all()) else None
    mean = float(values.mean())
    return Measurement(NAME, name, mean, unit, len(values), spread, better="lower", context=dict(context))


def exhibits(paths: Paths, chance: float) -> Iterator[Exhibit]:
    """Test error at each point and the paper's distance of each segment, means over the draws."""
    if paths.errors is None:
        return
    context: dict[str, Scalar] = {"features": paths.features, "temperature": paths.temperature}
    errors = paths.errors.nan_to_num(chance).mean(dim=0).tolist()
    yield Exhibit(
        NAME,
        "path_error",
        "curve",
        {"position": list(range(len(errors))), "error": errors},
        f"Test error on the way from the head of all images (0) to one of an image a class ({len(errors) - 1}).",
        context,
    )
    rows = paths.segments[:, 0, :-1].mean(dim=0).tolist()
    columns = {
        f"layer {number}": [d if d < torch.inf else None for d in row] for number, row in enumerate(rows, 1)
    }
    yield Exhibit(
        NAME,
        "segments",
        "curve",
        {"segment": list(range(1, len(rows[0]) + 1)), **columns},
        "Empirical Fisher distance of each segment of that way, layer by layer.",
        context,
    )
