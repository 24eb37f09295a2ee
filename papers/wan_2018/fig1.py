"""Fig. 1 and 2: features in the plane for five losses, the likelihood that L-GM learned, and the regions of its margin.

The paper shows training images of MNIST. Every panel here is the network of seed 0; further seeds are for the claim.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon
from sklearn.metrics import roc_auc_score
from torch import Tensor

from clearance import Classifier, Exhibit, ImageSet, Measurement, load_model
from clearance.attacks import FGSM
from clearance.heads import GaussianMixture
from clearance.models import extract_features
from clearance.research import (
    GRID,
    INK,
    MUTED,
    PAPER,
    ExhibitRecord,
    Outcome,
    Record,
    Report,
    RunData,
    RunFindings,
    RunPlan,
    Scalar,
    check_non_negative,
    draw_samples,
    marker,
    plans_of,
    report_of,
    series,
    standalone_svg,
    write_bytes,
)
from papers.engine.ledger import JudgedStudy, TableRow, seeds_in_words, table
from papers.engine.study import StudyRequest, needed_data
from papers.wan_2018.fgsm import WHITE
from papers.wan_2018.protocol import BASELINE, PROTOCOLS, plane_recipe

# Features in the plane as numbers: points, how round classes are, the likelihood that was learned.

AUDIT = "plane"
POINTS = 600  # training images of a panel, class-balanced
SIDE = 90  # points of the grid along a side
ROOM = 1.15  # of what is shown, around the outermost point
SHOWN_ATTACKS = 40
FAINTEST = -12.0  # nats below the peak, from which on no difference is shown


def roundness(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""The smaller over the larger standard deviation of each class along its principal axes: 1 is round, 0 a line.

    sqrt(lambda_2 / lambda_1), the eigenvalues of the class's covariance

    Args:
        features: (N, 2).
        labels: (N,).
        classes: K.

    Shapes:
        returns (K,) float64; NaN for a class of fewer than three samples or of one point.

    It does not change with the scale of features, nor when they are turned.

    >>> cross = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(float(roundness(cross, torch.zeros(4, dtype=torch.long), 1)), 6)
    0.333333
    """
    found = torch.full((classes,), torch.nan, dtype=torch.float64)
    for k in range(classes):
        mine = features[labels == k].double()
        if len(mine) >= 3:
            low, high = torch.linalg.eigvalsh(torch.cov(mine.T))
            found[k] = (low.clamp(min=0) / high).sqrt() if high > 0 else torch.nan
    return found


def plane_numbers(model: Classifier, images: ImageSet, split: str) -> list[Measurement]:
    """Mean roundness of the classes; nothing where no class has an extent."""
    found = roundness(extract_features(model, images), images.labels, images.class_count)
    found = found[found.isfinite()]
    if not len(found):
        return []
    spread = float(found.std()) if len(found) > 1 else None
    return [
        Measurement(AUDIT, "roundness", float(found.mean()), "ratio", len(found), spread=spread, better="higher",
                    context={"split": split})
    ]  # fmt: skip


def likelihood_numbers(
    model: Classifier, train: ImageSet, test: ImageSet, epsilon: float
) -> list[Measurement]:
    """How well the likelihood of the nearest class separates test images from what FGSM makes of them (Fig. 1f).

    Once with the learned means and once with those of the training features of each class.

    Args:
        model: Of two features, ending in a Gaussian mixture.
        train: For the means of classes.
        test: The images; all of them are attacked, and all that FGSM makes are counted.
        epsilon: Largest change of a pixel, of [0, 1].
    """
    head = _mixture(model)
    with torch.enable_grad():
        attacked = FGSM(epsilon)(model, test.images, test.labels).images
    with torch.no_grad():
        features = [model.features(images) for images in (test.images, attacked)]
        fitted = copy.deepcopy(head).fit_statistics(extract_features(model, train), train.labels)
    ordinary = [1] * len(test) + [0] * len(test)
    found = []
    for means, mixture in ((LEARNED, head), (OF_CLASSES, fitted)):
        with torch.no_grad():
            scores = torch.cat([mixture.log_prob(one).amax(dim=1) for one in features])
        area = float(roc_auc_score(ordinary, scores.numpy()))
        context: dict[str, Scalar] = {"attack": "FGSM", "box": WHITE, "epsilon": epsilon, "means": means}
        found.append(
            Measurement(AUDIT, "auroc", area, "fraction", len(test), better="higher", context=context)
        )
    return found


def offset_number(model: Classifier, train: ImageSet) -> Measurement:
    """How far the learned means are from those of the classes, as a part of the squared distance to them."""
    offset = _mixture(model).mean_offset(extract_features(model, train), train.labels)
    return Measurement(AUDIT, "mean_offset", offset, "fraction", len(train), better="lower", context={})


def _mixture(model: Classifier) -> GaussianMixture:
    if not isinstance(model.head, GaussianMixture):
        raise TypeError(
            f"`model` must end in a GaussianMixture; got {type(model.head).__name__}. Take lgm or gm."
        )
    return model.head


def _at_most(data: ImageSet, count: int) -> ImageSet:
    """Class-balanced images, always the same ones; all if there are not more."""
    return data if len(data) <= count else draw_samples(data, count, seed=0)


def panel(model: Classifier, train: ImageSet) -> list[Exhibit]:
    """What a panel shows: points of training images, and the middle of every class.

    Args:
        model: Of two features.
        train: The training images; means are over all of them, points are a class-balanced part.
    """
    shown = _at_most(train, POINTS)
    points, everything = extract_features(model, shown), extract_features(model, train)
    present = [k for k in range(train.class_count) if bool((train.labels == k).any())]
    means = torch.stack([everything[train.labels == k].mean(dim=0) for k in present])
    found = [
        _places(
            "features",
            points,
            [train.classes[int(k)] for k in shown.labels],
            "Training images, two features.",
        ),
        _places(
            "means",
            means,
            [train.classes[k] for k in present],
            "The mean of each class over all training images.",
        ),
    ]
    if isinstance(model.head, GaussianMixture):
        learned = model.head.means.detach()
        found.append(
            _places("learned means", learned, list(train.classes), "The means that the mixture learned.")
        )
    return found


def likelihood_panel(model: Classifier, train: ImageSet, test: ImageSet, epsilon: float) -> list[Exhibit]:
    """The likelihood of the nearest class over the plane, and test images that FGSM made wrong.

    Args:
        model: Of two features, ending in a Gaussian mixture.
        train: Says how far the plane is shown.
        test: What is attacked; at most `SHOWN_ATTACKS` are kept, those that the network is fooled by.
        epsilon: Largest change of a pixel, of [0, 1].

    Raises:
        TypeError: If the head is not a mixture.
    """
    head = _mixture(model)
    with torch.enable_grad():
        hit = FGSM(epsilon)(model, test.images, test.labels)
    fooled = (hit.success & (hit.distance > 0)).nonzero().flatten()[:SHOWN_ATTACKS]
    with torch.no_grad():
        at = model.features(hit.images[fooled])
        taken = head(at).argmax(dim=1)
    names = [test.classes[int(k)] for k in test.labels[fooled]]
    columns = {**_columns(at, names), "taken for": [test.classes[int(k)] for k in taken]}
    context: dict[str, Scalar] = {"attack": "FGSM", "box": WHITE, "epsilon": epsilon}
    attacked = Exhibit(AUDIT, "attacked", "scatter", columns, "Test images that FGSM made wrong.", context)
    around = torch.cat([extract_features(model, train), at])
    return [_likelihood(head, around), attacked]


def _likelihood(head: GaussianMixture, around: Tensor) -> Exhibit:
    low, high = around.amin(dim=0), around.amax(dim=0)
    middle, half = (low + high) / 2, float((high - low).max()) / 2 * ROOM
    ticks = torch.linspace(-half, half, SIDE)
    grid = torch.cartesian_prod(ticks, ticks) + middle
    with torch.no_grad():
        peak = head.log_prob(head.means).diagonal().max()
        value = (head.log_prob(grid).amax(dim=1) - peak).clamp(min=FAINTEST)
    columns = {"x": grid[:, 0].tolist(), "y": grid[:, 1].tolist(), "value": value.tolist()}
    caption = (
        "Log-likelihood of the nearest class in nats below its peak; everything below -12 is drawn alike."
    )
    return Exhibit(AUDIT, "likelihood", "scatter", columns, caption)


def _places(name: str, at: Tensor, labels: list[str], caption: str) -> Exhibit:
    return Exhibit(AUDIT, name, "scatter", _columns(at, labels), caption)


def _columns(at: Tensor, labels: list[str]) -> dict[str, list[Any]]:
    return {"x": at[:, 0].tolist(), "y": at[:, 1].tolist(), "label": labels}


# Fig. 1 redrawn: a panel of features for each loss, and the learned likelihood with attacked images over it.

Columns = Mapping[str, Sequence[Any]]
TITLES = {
    "softmax": "softmax", "center": "softmax + center loss", "l-softmax": "L-Softmax", "gm": "GM, alpha 0",
    "lgm": "L-GM, alpha 1",
}  # fmt: skip
LEVELS = np.linspace(0.0, 1.0, 21)
HEAT = "cividis"  # brighter is likelier, and the same to every kind of eye
BRIGHT, DARK = "#ffffff", "#000000"
CROSS: dict[str, Any] = {
    "s": 34,
    "color": BRIGHT,
    "edgecolor": DARK,
    "marker": "X",
    "linewidth": 0.7,
    "zorder": 4,
}
COLUMNS = 3


def embedding_picture(
    panels: Mapping[str, Mapping[str, Exhibit]],
    methods: Sequence[str],
    with_likelihood: str,
    errors: Mapping[str, float],
) -> Figure:
    """The figure.

    Args:
        panels: For each method the exhibits ``features``, ``means`` and perhaps ``learned means``, ``likelihood`` and
            ``attacked``; a method without any has a panel that says so.
        methods: In the order of panels.
        with_likelihood: The method whose likelihood is the last panel.
        errors: Test error by method.
    """
    count = len(methods) + 1
    figure = Figure(figsize=(11, 3.75 * -(-count // COLUMNS) + 0.3), layout="constrained")
    cells = figure.subplots(-(-count // COLUMNS), COLUMNS, squeeze=False).ravel()
    for axes, method in zip(cells, methods, strict=False):
        _style(axes)
        error = f", test error {100 * errors[method]:.1f} %" if method in errors else ""
        axes.set_title(f"{TITLES.get(method, method)}{error}", fontsize=11, color=INK)
        if method in panels:
            _panel(axes, panels[method])
        else:
            axes.text(0.5, 0.5, "did not finish", transform=axes.transAxes, ha="center", color=INK)
    last = cells[len(methods)]
    _style(last)
    if "likelihood" in panels.get(with_likelihood, {}):
        _draw_likelihood(figure, last, panels[with_likelihood])
    for axes in cells[count:]:
        axes.set_visible(False)
    attacked = panels.get(with_likelihood, {}).get("attacked")
    _legend(figure, None if attacked is None else attacked.context["epsilon"])
    return figure


def _panel(axes: Axes, shown: Mapping[str, Exhibit]) -> None:
    points, classes = shown["features"].columns, list(dict.fromkeys(shown["means"].columns["label"]))
    x, y, labels = np.array(points["x"], float), np.array(points["y"], float), list(points["label"])
    for index, name in enumerate(classes):
        mine = np.array([label == name for label in labels])
        axes.scatter(x[mine], y[mine], s=9, color=series(index), marker=marker(index), linewidths=0)
    if "learned means" in shown:
        learned = shown["learned means"].columns
        axes.scatter(
            learned["x"], learned["y"], s=190, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=4
        )
    _digits(axes, shown["means"].columns)


def _digits(axes: Axes, means: Columns) -> None:
    for index, (x, y, name) in enumerate(zip(means["x"], means["y"], means["label"], strict=True)):
        text = axes.text(
            x, y, str(name)[:6], fontsize=9.5, fontweight="bold", color=INK, ha="center", va="center", zorder=5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": series(index), "linewidth": 1.0},
        )  # fmt: skip
        text.set_parse_math(False)


def _draw_likelihood(figure: Figure, axes: Axes, shown: Mapping[str, Exhibit]) -> None:
    grid, attacked = shown["likelihood"].columns, shown["attacked"]
    side = round(len(grid["x"]) ** 0.5)
    x, y, nats = (np.reshape(np.array(grid[key], float), (side, side)) for key in ("x", "y", "value"))
    filled = axes.contourf(x, y, np.exp(nats), LEVELS, cmap=HEAT)
    filled.set_edgecolor("face")  # no seams between bands
    axes.scatter(attacked.columns["x"], attacked.columns["y"], **CROSS)
    learned = shown["learned means"].columns
    for place in zip(learned["x"], learned["y"], learned["label"], strict=True):
        axes.text(*place, fontsize=9.5, fontweight="bold", color=DARK, ha="center", va="center", zorder=5)
    axes.set(aspect="equal", adjustable="box", xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    axes.set_title("likelihood that L-GM learned", fontsize=11, color=INK)
    bar = figure.colorbar(filled, ax=axes, shrink=0.8, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("exp(-d) of the nearest class", color=INK, fontsize=9.5)
    bar.ax.tick_params(colors=INK, labelsize=9)
    bar.outline.set_edgecolor(GRID)


def _legend(figure: Figure, epsilon: object) -> None:
    """What digits, rings and crosses are."""
    ring: dict[str, Any] = {
        "markersize": 12,
        "markerfacecolor": "none",
        "markeredgecolor": INK,
        "markeredgewidth": 0.9,
    }
    cross: dict[str, Any] = {
        "markersize": 7,
        "markerfacecolor": BRIGHT,
        "markeredgecolor": DARK,
        "markeredgewidth": 0.7,
    }
    signs = [
        Line2D([], [], linestyle="none", marker="$1$", color=INK, label="mean of a class"),
        Line2D([], [], linestyle="none", marker="o", label="mean that the mixture learned", **ring),
    ]
    if epsilon is not None:
        label = f"made wrong by FGSM, epsilon {epsilon}"
        signs.append(Line2D([], [], linestyle="none", marker="X", label=label, **cross))
    figure.legend(
        handles=signs, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK, fontsize=9.5
    )


def _style(axes: Axes) -> None:
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(colors=INK, color=GRID, labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(GRID)


# Where a margin of L-GM lets a sample count as right: the regions of the paper's figure 2, in closed form.
#
# Two classes, variances 1, means at distance Delta: a sample is on its own side in training where
# d_other > (1 + alpha) d_own. For alpha = 0 that is a half-plane. For alpha > 0 it is a ball, the Apollonius ball of
# the two means: every class has its own room even without a likelihood, and a gap lies between the two.

ALPHAS = (0.0, 0.1, 0.3, 1.0)
TABLED = (0.01, 0.1, 0.2, 0.3, 1.0)


@dataclass(frozen=True)
class Ball:
    """A region in which a sample counts as right, for means at distance 1.

    Args:
        beyond: How far its centre lies behind the own mean, seen from the other.
        radius: Its radius; infinite for a half-plane.
    """

    beyond: float
    radius: float


def boundary(alpha: float) -> float:
    r"""How far from the own mean the boundary lies, between the means, in units of their distance.

    t / Delta = 1 / (1 + sqrt(1 + alpha))

    Args:
        alpha: At least 0.

    Raises:
        ValueError: If it is below 0.

    >>> boundary(0.0), round(boundary(1.0), 4)
    (0.5, 0.4142)
    """
    check_non_negative("alpha", alpha)
    return 1 / (1 + math.sqrt(1 + alpha))


def gap(alpha: float) -> float:
    r"""How far apart the boundaries of the two classes are, in units of the means' distance: 1 - 2 boundary(alpha).

    (sqrt(1 + alpha) - 1) / (sqrt(1 + alpha) + 1)

    Args:
        alpha: At least 0.

    Raises:
        ValueError: If it is below 0.

    >>> gap(0.0), round(gap(1.0), 4)
    (0.0, 0.1716)
    """
    check_non_negative("alpha", alpha)
    root = math.sqrt(1 + alpha)
    return (root - 1) / (root + 1)


def region(alpha: float) -> Ball:
    r"""The ball of samples that count as right: centre mu_1 + (mu_1 - mu_2) / alpha, radius sqrt(1 + alpha) / alpha.

    Args:
        alpha: At least 0; at 0 the ball is a half-plane.

    Raises:
        ValueError: If it is below 0.

    >>> region(1.0)
    Ball(beyond=1.0, radius=1.4142135623730951)
    """
    check_non_negative("alpha", alpha)
    if alpha == 0:
        return Ball(math.inf, math.inf)
    return Ball(1 / alpha, math.sqrt(1 + alpha) / alpha)


def gap_table() -> str:
    """Boundary and gap for the alphas of the paper, as Markdown.

    >>> gap_table().splitlines()[2]
    '| 0.01 | 0.4988 | 0.0025 | 200.998 |'
    """
    lines = [
        "| alpha | boundary, from the own mean | gap between the classes | diameter of a class's region |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {alpha:g} | {boundary(alpha):.4f} | {gap(alpha):.4f} | {2 * region(alpha).radius:.6g} |"
        for alpha in TABLED
    ]
    return "\n".join(lines)


# Fig. 2 redrawn: for four margins, where a sample of each of two classes counts as right in training.

HALF_WIDTH, HALF_HEIGHT = 1.15, 0.95  # of a panel, in units of the means' distance
SHOWN_GAP = 0.05  # below it an arrow has no room
ARROW: dict[str, Any] = {"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0}
NAMES = ("1", "2")
HATCHES = ("////", "\\\\\\\\")  # so that the two are distinct without colour


def margin_picture() -> Figure:
    """A panel for each alpha: the two regions, the means, the boundaries between them and the gap.

    >>> len(margin_picture().axes)
    4
    """
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    for axes, alpha in zip(figure.subplots(1, len(ALPHAS)), ALPHAS, strict=True):
        _margin_panel(axes, alpha)
    return figure


def _margin_panel(axes: Axes, alpha: float) -> None:
    for index, side in enumerate((-1, 1)):
        _region(axes, alpha, side, index)
        axes.plot(
            [side / 2], [0], color=series(index), marker=marker(index), markersize=8, markeredgecolor=PAPER
        )
        axes.text(side / 2, -0.24, f"mean {NAMES[index]}", color=INK, fontsize=9, ha="center", va="center",
                  bbox={"boxstyle": "round,pad=0.1", "facecolor": PAPER, "edgecolor": "none"})  # fmt: skip
    if gap(alpha) >= SHOWN_GAP:
        edge = 0.5 - boundary(alpha)
        axes.annotate("", (-edge, 0), (edge, 0), arrowprops={**ARROW, "color": INK})
    shown = f", gap {gap(alpha):.3g}" if alpha > 0 else ", no gap"
    axes.set_title(f"alpha {alpha:g}{shown}", fontsize=11, color=INK)
    axes.set(
        xlim=(-HALF_WIDTH, HALF_WIDTH), ylim=(-HALF_HEIGHT, HALF_HEIGHT), aspect="equal", xticks=[], yticks=[]
    )
    for spine in axes.spines.values():
        spine.set_color(MUTED)


def _region(axes: Axes, alpha: float, side: int, index: int) -> None:
    """The ball, or the half-plane, of the class whose mean is at side / 2."""
    looks = {"facecolor": series(index), "alpha": 0.18, "linewidth": 0}
    lines = {"facecolor": "none", "edgecolor": series(index), "linewidth": 1.4, "hatch": HATCHES[index]}
    for look in (looks, lines):
        axes.add_patch(_outline(alpha, side, look))


def _outline(alpha: float, side: int, look: Mapping[str, Any]) -> Circle | Polygon:
    ball = region(alpha)
    if math.isinf(ball.radius):
        far = side * 3.0
        corners = np.array([[0, -3], [far, -3], [far, 3], [0, 3]])
        return Polygon(corners, closed=True, **look)
    return Circle((side * (0.5 + ball.beyond), 0), ball.radius, **look)


STUDY, EMBEDDING, MARGINS = "fig1", "fig1.svg", "fig2.svg"
WITH_LIKELIHOOD = "lgm"
LEARNED, OF_CLASSES = "learned means", "class means"
SHOWN_SEED = 0
ROUNDNESS_IMAGES = 10_000  # of the training images, at most; as many as MNIST's test set has
ROWS = [
    TableRow("test error, two features", "accuracy", context={"split": "test"}),
    TableRow(
        "roundness of classes, training images", AUDIT, "roundness", "ratio", {"split": "train"}, "higher"
    ),
    TableRow("roundness of classes, test images", AUDIT, "roundness", "ratio", {"split": "test"}, "higher"),
    TableRow("offset of the learned means", AUDIT, "mean_offset"),
    *(
        TableRow(
            f"FGSM images told from test images by the likelihood, {means} (AUROC)",
            AUDIT,
            "auroc",
            context={"means": means},
            better="higher",
        )
        for means in (LEARNED, OF_CLASSES)
    ),
]


def run(request: StudyRequest) -> Path:
    """Train networks of two features, draw both pictures, and write the ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, 1 by default: the pictures show the first, but a
            verdict needs five.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    dataset = request.dataset
    recipe = plane_recipe(dataset, request.root, request.seeds)
    data = needed_data(recipe)
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    measured = [_measured(plan, one, data, request.runs) for plan, one in zip(plans, found, strict=True)]
    report = report_of(recipe, measured, _study(dataset).command(request.seeds))
    report.save(request.out)
    return write_ledger(report, dataset, request.out)


def write_ledger(report: Report, dataset: str, out: Path) -> Path:
    """Both pictures, ``ledger.md`` and ``ledger.json`` of a report of this study; the path of ``ledger.md``."""
    shown = panels_of(report)
    drawn = embedding_picture(shown, report.methods, WITH_LIKELIHOOD, errors_of(report))
    about = "Features of training images in the plane, one panel for each loss, and the likelihood that L-GM learned."
    write_bytes(out / EMBEDDING, standalone_svg(drawn, STUDY, about).encode())
    regions = "Where a margin of L-GM lets a sample count as right, for alpha 0, 0.1, 0.3 and 1."
    write_bytes(out / MARGINS, standalone_svg(margin_picture(), "fig2", regions).encode())
    count = len({record.seed for record in report.records})
    sections = [
        "## Features in the plane (Fig. 1)",
        f"![{about}]({EMBEDDING})",
        f"Every panel is seed {SHOWN_SEED}. Digits stand at the mean of each class over all training images, rings at "
        "the means that a mixture learned. Points are a class-balanced part of the training images.",
        f"Mean over {seeds_in_words(count)} with the 95 % t interval, in brackets the verdict against softmax. "
        f"Roundness is measured on at most {ROUNDNESS_IMAGES:,} training images, class-balanced, and all test images.",
        table(report, ROWS, report.methods, BASELINE),
        "## The margin's regions (Fig. 2)",
        f"![{regions}]({MARGINS})",
        "Two classes with variances of 1, in closed form; all lengths in units of the distance between their means. "
        "For alpha above 0 each class's region is a ball: training holds it together without a likelihood, too.",
        gap_table(),
    ]
    return _study(dataset).write_ledger(report, sections, out)


def passages_in(_tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """The table of the margin's regions, which is the same in every ledger."""
    return [gap_table()]


def _study(dataset: str) -> JudgedStudy:
    return JudgedStudy("wan_2018", (STUDY,), dataset)


def panels_of(report: Report) -> Mapping[str, Mapping[str, Exhibit]]:
    """For each method that has a panel its exhibits by name."""
    found: dict[str, dict[str, Exhibit]] = {}
    for record in report.exhibits:
        if record.exhibit.audit == AUDIT:
            found.setdefault(record.method, {})[record.exhibit.name] = record.exhibit
    return found


def errors_of(report: Report) -> Mapping[str, float]:
    """The test error of every shown network."""
    return {
        method: values[SHOWN_SEED]
        for method in report.methods
        if SHOWN_SEED in (values := ROWS[0].of(report, method))
    }


def _measured(plan: RunPlan, found: RunFindings, data: RunData, runs: Path) -> RunFindings:
    """The findings of a run with roundness and, for the seed that is shown, its panel."""
    if found.note is None or found.note.outcome not in (Outcome.FINISHED, Outcome.COLLAPSED):
        return found
    model = load_model(runs / plan.folder)
    train = _at_most(data.train, ROUNDNESS_IMAGES)
    numbers = [*plane_numbers(model, train, "train"), *plane_numbers(model, data.test, "test")]
    radii = PROTOCOLS[plan.recipe.dataset].epsilons
    middle = radii[len(radii) // 2]
    if isinstance(model.head, GaussianMixture):
        numbers.append(offset_number(model, train))
    if plan.method == WITH_LIKELIHOOD:
        numbers += likelihood_numbers(model, train, data.test, middle)
    records = tuple(Record(data.train.name, plan.method, plan.seed, number) for number in numbers)
    exhibits: list[Exhibit] = []
    if plan.seed == SHOWN_SEED:
        exhibits += panel(model, data.train)
        if plan.method == WITH_LIKELIHOOD:
            exhibits += likelihood_panel(model, data.train, data.test, middle)
    shown = tuple(ExhibitRecord(data.train.name, plan.method, plan.seed, exhibit) for exhibit in exhibits)
    return dataclasses.replace(found, records=(*found.records, *records), exhibits=(*found.exhibits, *shown))
