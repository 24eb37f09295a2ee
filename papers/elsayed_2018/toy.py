"""The toy of Fig. 1b: two classes in the plane, cross-entropy against a large margin, and exact distances.

What the paper says of it: two-dimensional data, a network of four layers, 10,000 steps of each loss; both come to
100 % on the training points, and the margin's boundary is the better shaped and has less error on test points. All else
is ours: the data (two moons with little noise to train on, more to test on), widths, optimiser, margin.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor, nn

from clearance import Card, Classifier, Exhibit, ImageSet, Measurement
from clearance.heads import MLP
from clearance.losses import CrossEntropyLoss, GammaQuantile, LargeMarginLoss, Loss
from clearance.research import (
    MARKERS,
    SERIES,
    ExhibitRecord,
    Record,
    Report,
    RunFindings,
    check_count,
    check_positive,
    compare_seeds,
    derived_seed,
    markdown_table,
    report_with,
    summarise,
    write_bytes,
)
from clearance.training import EndToEnd
from papers.engine.figures import INK, as_png, style_plane
from papers.engine.ledger import TableRow, mean_and_spread, provenance, report_in, save
from papers.engine.study import StudyRequest

# The boundary of two classes in the plane, and exact distances to it.

HALVINGS = 40  # of a grid's edge: past the precision of float64


def boundary_points(
    score: Callable[[Tensor], Tensor], low: float, high: float, resolution: int = 400
) -> Tensor:
    """Points of the curve score = 0 in a square: its crossings with a grid's edges, each found by bisection.

    Args:
        score: Takes points (N, 2), gives (N,); positive on one side, negative on the other.
        low: Where both coordinates begin.
        high: Where they end; above `low`.
        resolution: Cells along a side, at least 2. An edge that the curve crosses twice is not seen, so that
            details smaller than a cell are lost.

    Shapes:
        returns (P, 2) float64, each within float rounding of the curve; P is 0 where there is none.

    Raises:
        ValueError: If `resolution` is below 2 or `high` is not above `low`.

    >>> circle = boundary_points(lambda at: at.square().sum(dim=1) - 0.25, -1.0, 1.0, resolution=50)
    >>> bool(((circle.norm(dim=1) - 0.5).abs() < 1e-9).all())
    True
    """
    check_count("resolution", resolution, minimum=2)
    if not low < high:
        raise ValueError(f"`low` must be below `high`; got {low} and {high}.")
    ticks = torch.linspace(low, high, resolution + 1, dtype=torch.float64)
    grid = torch.cartesian_prod(ticks, ticks).reshape(resolution + 1, resolution + 1, 2)
    inside = (score(grid.reshape(-1, 2)) > 0).reshape(resolution + 1, resolution + 1)
    starts, ends = [], []
    for first, second in (
        ((slice(None, -1), slice(None)), (slice(1, None), slice(None))),
        ((slice(None), slice(None, -1)), (slice(None), slice(1, None))),
    ):
        crossed = inside[first] != inside[second]
        starts.append(grid[first][crossed])
        ends.append(grid[second][crossed])
    return _bisected(score, torch.cat(starts), torch.cat(ends))


def distances_to(points: Tensor, curve: Tensor) -> Tensor:
    """Distance of every point to the nearest point of a curve that is given by closely spaced points.

    Never too small; too large by at most h^2 / 8d for points of the curve h apart at distance d.

    Shapes:
        points (N, 2); curve (P, 2), P at least 1; returns (N,) float64.

    >>> distances_to(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
    tensor([5.], dtype=torch.float64)
    """
    return torch.cdist(points.double(), curve.double()).amin(dim=1)


def _bisected(score: Callable[[Tensor], Tensor], start: Tensor, end: Tensor) -> Tensor:
    if not len(start):
        return start
    side = score(start) > 0
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        before = (score(middle) > 0) == side
        start = torch.where(before[:, None], middle, start)
        end = torch.where(before[:, None], end, middle)
    return (start + end) / 2


# Fig. 1b redrawn: the boundaries of both losses on the same training points, a panel for every seed.

BOUNDARY = "boundary"
STYLES: tuple[Literal["solid", "dashed"], ...] = ("solid", "dashed")  # distinct without colour, too
WIDTH = 1.8
COLUMNS_OF_PANELS = 3
POINT = "#8a8a8a"
Columns = Mapping[str, Sequence[Any]]


def picture(report: Report) -> Figure:
    """A panel for every seed, so that none is picked by its looks.

    Args:
        report: Of all runs; each has a ``boundary`` exhibit, the curve's points in their order along the curve.
    """
    panels = {
        (record.seed, record.method): record.exhibit.columns
        for record in report.exhibits
        if record.exhibit.name == BOUNDARY and record.seed is not None
    }
    seeds = sorted({seed for seed, _ in panels})
    rows = -(-len(seeds) // COLUMNS_OF_PANELS)
    figure = Figure(figsize=(9.6, 3.4 * rows + 0.5), layout="constrained")
    cells = figure.subplots(rows, COLUMNS_OF_PANELS, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, seed in zip(cells, seeds, strict=False):
        _points(axes, panels[seed, LOSSES[0]])
        for index, loss in enumerate(LOSSES):
            _boundary(axes, panels[seed, loss], index)
        axes.set_title(f"seed {seed}", fontsize=10, color=INK)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        style_plane(axes)
    for axes in cells[len(seeds) :]:
        axes.set_visible(False)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, labelcolor=INK)
    return figure


def along_curve(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Points of a curve in the order in which one walks it: from an end always to the nearest that is left.

    A gap of more than four times the median step is kept open by a NaN, since a boundary may have several parts.

    >>> [float(v) for v in along_curve([0.0, 2.0, 1.0], [0.0, 0.0, 0.0])[0]]
    [0.0, 1.0, 2.0]
    """
    left = np.column_stack([np.asarray(x, float), np.asarray(y, float)])
    at = int(np.argmax(((left - left.mean(axis=0)) ** 2).sum(axis=1)))  # the outermost point is an end
    walked = [left[at]]
    left = np.delete(left, at, axis=0)
    steps = []
    while len(left):
        distances = np.linalg.norm(left - walked[-1], axis=1)
        nearest = int(distances.argmin())
        steps.append(distances[nearest])
        walked.append(left[nearest])
        left = np.delete(left, nearest, axis=0)
    path = np.asarray(walked)
    if steps:
        path = np.insert(path, 1 + np.flatnonzero(np.asarray(steps) > 4 * np.median(steps)), np.nan, axis=0)
    return path[:, 0], path[:, 1]


def _boundary(axes: Axes, columns: Columns, index: int) -> None:
    shown = [k for k, label in enumerate(columns["label"]) if label == BOUNDARY]
    if not shown:
        return
    x, y = along_curve([columns["x"][k] for k in shown], [columns["y"][k] for k in shown])
    axes.plot(x, y, color=SERIES[index], linestyle=STYLES[index], linewidth=WIDTH)


def _points(axes: Axes, columns: Columns) -> None:
    places, labels = np.array([columns["x"], columns["y"]], float), np.array(columns["label"])
    for index, name in enumerate(CLASSES):
        mine = places[:, labels == name]
        axes.scatter(mine[0], mine[1], s=22, marker=MARKERS[2 * index], **_look(index))


def _look(index: int) -> dict[str, Any]:
    return {"facecolor": "white" if index else POINT, "edgecolor": POINT, "linewidth": 1.0, "zorder": 3}


def _legend() -> list[Line2D]:
    lines = [
        Line2D([], [], color=SERIES[k], linestyle=STYLES[k], linewidth=WIDTH, label=f"boundary, {loss}")
        for k, loss in enumerate(LOSSES)
    ]
    dots = [
        Line2D([], [], color=POINT, marker=MARKERS[2 * k], linestyle="none", label=f"training points, {name}",
               markerfacecolor="white" if k else POINT)
        for k, name in enumerate(CLASSES)
    ]  # fmt: skip
    return [*lines, *dots]


# The ledger of the toy of Fig. 1b: errors and exact distances, and whether the margin's are better.

NAME = "toy"
ERRORS = (
    TableRow("training error", NAME, "train_error"),
    TableRow("test error", NAME, "test_error"),
)
DISTANCES = (
    TableRow("smallest distance", NAME, "smallest_distance", "pixel units", better="higher"),
    TableRow("median distance", NAME, "median_distance", "pixel units", better="higher"),
)
BASELINE, MARGIN = "cross-entropy", "margin-l2"


def ledger(report: Report) -> str:
    """What both losses came to, and whether the margin's distances and test errors are better, seed by seed."""
    rows = [["", *(one.label for one in (*ERRORS, *DISTANCES))]]
    rows += [[loss, *_cells(report, loss)] for loss in LOSSES]
    lines = [
        "# elsayed_2018: the toy of Fig. 1b",
        provenance(report),
        "Ours: two moons, widths, optimiser and margin; the paper says two-dimensional data, four layers, 10,000 "
        "steps. Distances are exact (the boundary is found on a grid and by bisection), in the picture's unit, whose "
        "side is 1; below 0 a point is on the wrong side. Mean ± sd over seeds.",
        markdown_table(rows),
        _compared(report),
        f"![The boundaries of both losses under every seed, with the training points]({PICTURE})",
    ]
    return "\n\n".join(lines)


def passages_in(tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """The verdicts of a committed ledger, from its values."""
    return [_compared(report_in(tree, NAME))]


def _compared(report: Report) -> str:
    verdicts = "; ".join(f"{one.label} {_verdict(report, one)}" for one in (ERRORS[1], *DISTANCES))
    return f"Margin against cross-entropy, paired over seeds: {verdicts}."


def _cells(report: Report, loss: str) -> list[str]:
    return [_cell(report, loss, one, "fraction") for one in ERRORS] + [
        _cell(report, loss, one, "ratio")  # in the picture's unit, as the text says
        for one in DISTANCES
    ]


def _cell(report: Report, loss: str, quantity: TableRow, unit: str) -> str:
    over = summarise(quantity.of(report, loss))
    return mean_and_spread(over.mean, over.spread, unit)


def _verdict(report: Report, quantity: TableRow) -> str:
    sides = [quantity.of(report, loss) for loss in (MARGIN, BASELINE)]
    return str(compare_seeds(*sides, better=quantity.better).verdict)


LossName = Literal["cross-entropy", "margin-l2"]
LOSSES: tuple[LossName, ...] = ("cross-entropy", "margin-l2")
HIDDEN = ("extractor.2", "extractor.4", "extractor.6")
SEEDS = 5
CLASSES = ("upper", "lower")
COMMAND = "python -m papers elsayed_2018 --only toy"
PICTURE = "toy.png"
CURVE_POINTS = 400  # of a boundary that are drawn


@dataclass(frozen=True)
class ToySettings:
    """What can be changed about the toy; the defaults are those of the ledger.

    Args:
        per_class: Training points of each class, at least 2.
        test_per_class: Test points of each class.
        noise: Standard deviation of a training point around its moon, whose radius is 1; above 0.
        test_noise: The same for test points.
        steps: Updates, each on all training points; 10,000 in the paper.
        lr: Adam's step size, the same for both losses.
        gamma: Margin that is asked for at the input, in the unit of the picture, whose side is 1. At the three
            hidden layers it is the 0.9 quantile of the distances in the first 500 steps.
        resolution: Cells along a side of the grid on which the boundary is found.

    >>> ToySettings(steps=0)
    Traceback (most recent call last):
    ValueError: `steps` must be a whole number of at least 1; got 0.
    """

    per_class: int = 20
    test_per_class: int = 500
    noise: float = 0.1
    test_noise: float = 0.2
    steps: int = 10_000
    lr: float = 1e-3
    gamma: float = 0.05
    resolution: int = 400

    def __post_init__(self) -> None:
        for name in ("steps", "resolution", "test_per_class"):
            check_count(name, getattr(self, name))
        check_count("per_class", self.per_class, minimum=2)
        for name in ("noise", "test_noise", "lr", "gamma"):
            check_positive(name, getattr(self, name))


def moons(per_class: int, noise: float, seed: int) -> ImageSet:
    """Two moons as images of two channels and one pixel, brought into [0, 1] by the same map for every draw.

    >>> moons(10, 0.1, seed=0)
    ImageSet('two moons', 20 images of shape (2, 1, 1), 2 classes)
    """
    from sklearn.datasets import make_moons  # slow to import, and only toys need it

    drawn = derived_seed(seed, "moons") % 2**32
    places, labels = make_moons(2 * per_class, noise=noise, random_state=drawn)
    images = ((torch.tensor(places) + torch.tensor([1.5, 2.0])) / 4.5).float().clamp(0, 1)
    return ImageSet(images[:, :, None, None], torch.tensor(labels), CLASSES, name="two moons")


def toy_classifier(seed: int) -> Classifier:
    """The untrained network of four layers, 2-64-64-64-2 with softplus; first weights after He et al. (2015).

    Softplus, because a first-order distance is nearer to the true one where nothing has a kink.

    Shapes:
        images (B, 2, 1, 1) to logits (B, 2).

    >>> toy_classifier(0)(torch.zeros(3, 2, 1, 1)).shape
    torch.Size([3, 2])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "toy"))
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs in (2, 64, 64):
            layer = nn.Linear(inputs, 64)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.Softplus()]
        head = MLP((64, 2))
    return Classifier(nn.Sequential(*layers), head, mean=0.5, std=0.25)


def trained(loss: LossName, train: ImageSet, settings: ToySettings, seed: int) -> Classifier:
    """A network trained on all points in every step, from the same first weights for both losses."""
    model = toy_classifier(seed)
    way = EndToEnd(_loss_of(loss, settings))
    optimizer = torch.optim.Adam(list(way.trainable(model)), lr=settings.lr)
    training = way.start(model, train, optimizer, way.generators(seed))
    model.train()
    for _ in range(settings.steps):
        training.step(train.images, train.labels)
    training.finish()
    return model.eval()


def _loss_of(loss: LossName, settings: ToySettings) -> Loss:
    if loss == "cross-entropy":
        return CrossEntropyLoss()
    hidden = dict.fromkeys(HIDDEN, GammaQuantile(0.9, batches=500))
    return LargeMarginLoss(("input", *HIDDEN), 2, {"input": settings.gamma, **hidden}, max_slope=None)


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger; it keeps nothing in between.

    Args:
        request: The request. Seeds are networks of each loss, each with its own data, 5 by default; the networks
            are too small for several processes, and there are no progress events.
    """
    count = request.seeds_or(SEEDS)
    settings = ToySettings()
    found = [run_toy(loss, settings, seed) for seed in range(count) for loss in LOSSES]
    report = report_with(
        {"dataset": NAME, "seeds": count, **dataclasses.asdict(settings)}, found, request.command(COMMAND)
    )
    Card(report).save_folder(request.out)
    write_bytes(request.out / PICTURE, as_png(picture(report)))
    return save(report, ledger(report), (*ERRORS, *DISTANCES), (BASELINE,), request.out)


def run_toy(loss: LossName, settings: ToySettings, seed: int) -> RunFindings:
    """One network: its errors, exact distances of the training points to its boundary, and the picture.

    Distances are signed: below 0 for a point on the wrong side.
    """
    train = moons(settings.per_class, settings.noise, seed)
    test = moons(settings.test_per_class, settings.test_noise, derived_seed(seed, "test"))
    model = trained(loss, train, settings, seed)
    curve = boundary_points(_score_of(model), 0.0, 1.0, settings.resolution)
    wrong = _wrong(model, train)
    distances = distances_to(train.images.flatten(1), curve) if len(curve) else torch.full((len(train),), 1.5)
    distances = torch.where(wrong, -distances, distances)
    values = {
        "train_error": float(wrong.double().mean()),
        "test_error": float(_wrong(model, test).double().mean()),
        "smallest_distance": float(distances.min()),
        "median_distance": float(distances.median()),
    }
    where = (NAME, loss, seed)
    records = tuple(
        Record(*where, _measured(name, value, len(test if name == "test_error" else train)))
        for name, value in values.items()
    )
    return RunFindings(None, records, (ExhibitRecord(*where, _picture(train, curve)),))


def _measured(name: str, value: float, count: int) -> Measurement:
    if name.endswith("error"):
        return Measurement(NAME, name, value, "fraction", count, better="lower")
    return Measurement(NAME, name, value, "pixel units", count, better="higher")


def _score_of(model: Classifier):  # type: ignore[no-untyped-def]
    """The network's logit gap as a function of points in float64."""
    network = toy_classifier(0).double()
    network.load_state_dict(model.state_dict())
    network.eval()

    @torch.no_grad()
    def score(points: Tensor) -> Tensor:
        logits = network(points[:, :, None, None])
        return logits[:, 1] - logits[:, 0]

    return score


@torch.no_grad()
def _wrong(model: Classifier, data: ImageSet) -> Tensor:
    return model(data.images).argmax(dim=1) != data.labels


def _picture(train: ImageSet, curve: Tensor) -> Exhibit:
    points = train.images.flatten(1)
    shown = curve[:: max(1, len(curve) // CURVE_POINTS)]
    columns = {
        "x": [*points[:, 0].tolist(), *shown[:, 0].tolist()],
        "y": [*points[:, 1].tolist(), *shown[:, 1].tolist()],
        "label": [*(train.classes[k] for k in train.labels), *["boundary"] * len(shown)],
    }
    return Exhibit(
        NAME, "boundary", "scatter", columns, "Training points and the boundary between the classes."
    )
