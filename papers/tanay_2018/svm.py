"""All pairs of classes at 81 lambdas: the exact machines behind the article's interactive figures."""

import csv
import dataclasses
import functools
import io
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clearance import load_dataset
from clearance.linear import LinearFit, svm_path, tilting_plane
from clearance.research import (
    GRID,
    INK,
    MUTED,
    Recipe,
    as_svg,
    draw_legend,
    label_logarithmic,
    markdown_table,
    page_figure,
    report_with,
    series,
    write_bytes,
)
from papers.engine.catalogue import paper_claims
from papers.engine.claims import Claim, ClaimReading
from papers.engine.judging import ClaimVerdict, JudgedReading, Judgement, judge, ordering_in_words
from papers.engine.ledger import Ledger, command_line
from papers.engine.study import StudyRequest, needed_data
from papers.engine.tasks import each
from papers.tanay_2018.networks import PAPER

# The exact hinge machines of one pair of classes at 81 lambdas, and what the article reads off each of them.

COLUMNS = 81
PER_CLASS = 3000  # of each class, the first in the order of the training set
TOLERANCE = 1e-6
FIELDS = (
    "log10_lambda", "theta_rad", "b_mid", "margin", "d_adv", "d_err", "n_err_train", "n_err_test",
    "hinge_risk", "objective", "relative_gap", "low_variance_share",
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


_split = functools.lru_cache(maxsize=2)(load_dataset)


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
        low_variance_shares(x, weights),
    )
    return {
        name: np.asarray(column, dtype=np.float64).tolist()
        for name, column in zip(FIELDS, columns, strict=True)
    }


MOST = 0.9  # of the variance of training images


def low_variance_shares(x: Array, weights: Array) -> Array:
    """The share of each weight vector's energy in the directions of low variance.

    Those are the principal axes of the points after the first ones that together hold nine tenths of the variance:
    ||V^T w||^2 / ||w||^2.

    Args:
        x: Points, (n, d).
        weights: A weight vector in each column, (d, k).

    >>> x = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.5], [0.0, -0.5]])
    >>> low_variance_shares(x, np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 4.0]])).round(9).tolist()
    [0.0, 1.0, 0.64]
    """
    variances, axes = np.linalg.eigh(np.cov(x, rowvar=False))
    # ascending: an axis is one of low variance if it and all smaller ones hold at most a tenth
    low = axes[:, np.cumsum(variances) <= (1 - MOST) * variances.sum()]
    found: Array = ((low.T @ weights) ** 2).sum(axis=0) / (weights**2).sum(axis=0)
    return found


# The article's own numbers, where a folder of them is named, and how far those found here are from them.

Models = Mapping[str, Sequence[float]]

# For lambda of at least 10^-2, and below: the article's own solver stopped early there, and rounds to three decimals.
TOLERANCES = {
    "theta_rad": (1e-3, 2e-3),
    "d_adv": (1e-3, 4e-3),
    "b_mid": (5e-3, 1e-2),
    "margin": (1e-3, 1e-3),
    "n_err_train": (1.0, 4.0),
    "n_err_test": (1.0, 4.0),
}
MARGIN_SHARE = 0.01  # or this part of the margin, where that is more
EXACT = {"theta_rad": 5e-4, "d_adv": 5e-4, "d_err": 5e-4}
STRONG = 40  # the last column with lambda of at least 10^-2


def numbers_to_meet(name: str) -> dict[tuple[int, int], dict[str, Array]]:
    """The columns of ``l2/NAME.csv`` for each pair, from the folder that CLEARANCE_TRUTH names; none without one.

    Args:
        name: ``"l2_truth"``, the article's numbers, or ``"l2_resolved"``, an exact solution of the same problem.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, clear=True):
    ...     numbers_to_meet("l2_truth")
    {}
    """
    folder = os.environ.get("CLEARANCE_TRUTH")
    path = Path(folder or "", "l2", f"{name}.csv")
    if not folder or not path.exists():
        return {}
    with path.open(encoding="utf-8") as text:
        rows = [{key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(text)]
    pairs = dict.fromkeys((int(row["i"]), int(row["j"])) for row in rows)
    return {pair: _columns([r for r in rows if (r["i"], r["j"]) == pair]) for pair in pairs}


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    ordered = sorted(rows, key=lambda row: row["col"])
    return {name: np.array([row[name] for row in ordered]) for name in ordered[0]}


def differences(models: Models, truth: Mapping[str, Array]) -> dict[str, tuple[float, float, int]]:
    """For each quantity the largest difference at strong and at weak lambda, and how many models miss its tolerance.

    Args:
        models: Columns of numbers found here, one for each lambda.
        truth: Columns of the article's numbers, likewise.
    """
    strong = np.arange(len(truth["theta_rad"])) <= STRONG
    found = {}
    for name, (tight, loose) in TOLERANCES.items():
        apart = np.abs(np.asarray(models[name]) - truth[name])
        allowed = np.where(strong, tight, loose)
        if name == "margin":
            allowed = np.maximum(allowed, MARGIN_SHARE * truth[name])
        # the article's numbers are decimals: a tolerance is not missed by the last bit of a difference
        missed = int((apart > allowed + 1e-9).sum())
        found[name] = (float(apart[strong].max()), float(apart[~strong].max()), missed)
    return found


def exact_differences(models: Models, exact: Mapping[str, Array]) -> dict[str, float]:
    """The largest difference from an exact solution, in angle and distances."""
    return {name: float(np.abs(np.asarray(models[name]) - exact[name]).max()) for name in EXACT}


# The paths of all pairs as curves: test error, tilting angle and adversarial distance over lambda.

SHOWN = ("2-3", "0-1", "7-9", "1-8")  # by name; every other pair is a thin line
Found = Mapping[str, Mapping[str, Any]]


def _test_error(pair: Mapping[str, Any]) -> np.ndarray:
    return 100 * np.array(pair["models"]["n_err_test"]) / float(pair["n_test"])


CURVES = {
    "error": ("wrong on test images, %", _test_error),
    "angle": ("tilting angle, radians", lambda pair: np.array(pair["models"]["theta_rad"])),
    "distance": ("adversarial distance, pixel units", lambda pair: np.array(pair["models"]["d_adv"])),
}


def curves(pairs: Found, titles: Mapping[str, str], name: str) -> Figure:
    """One quantity over lambda, from strong to weak regularisation as one reads; a line for each pair.

    Args:
        pairs: What was found of each pair.
        titles: What the legend calls it.
        name: ``"error"``, ``"angle"`` or ``"distance"``.
    """
    label, values = CURVES[name]
    figure, axes = page_figure((6.4, 3.8))
    shown = [one for one in SHOWN if one in pairs] or list(pairs)[: len(SHOWN)]
    for one, pair in pairs.items():
        if one not in shown:
            axes.plot(_lambdas(pair), values(pair), color=MUTED, linewidth=0.5, alpha=0.5, zorder=1)
    for index, one in enumerate(shown):
        axes.plot(
            _lambdas(pairs[one]), values(pairs[one]), color=series(index), linewidth=1.8, label=titles[one]
        )
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    label_logarithmic(axes.xaxis)
    axes.set_xlabel("lambda, from strong to weak regularisation", color=INK)
    axes.set_ylabel(label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    draw_legend(axes)
    return figure


def _lambdas(pair: Mapping[str, Any]) -> np.ndarray:
    return 10 ** np.array(pair["models"]["log10_lambda"])


# The tables of the ledger in addition to verdicts: landmarks, differences, models.


def landmarks(pairs: Found, titles: Mapping[str, str]) -> str:
    """A row for each pair: the ends and the middle of its path, its best test error, its worst gap.

    Args:
        pairs: What was found of each pair.
        titles: What a table calls it.
    """
    head = (
        "pair", "theta at 10⁻⁶", "d_adv at 10² / 10⁻² / 10⁻⁶", "d_err at 10² / 10⁻⁶ (×10³)", "train error %",
        "test error %", "best test error % (lambda)", "energy in low variance %", "worst gap", "CPU s",
    )  # fmt: skip
    rows = (
        (titles[name], *_landmark_cells(pair), f"{pair['cpu_seconds']:.1f}") for name, pair in pairs.items()
    )
    return markdown_table([head, *rows])


def _landmark_cells(pair: Mapping[str, Any]) -> Sequence[str]:
    models = pair["models"]
    train, test = (
        100 * np.array(models[f"n_err_{split}"]) / pair[f"n_{split}"] for split in ("train", "test")
    )
    distance, wrong = models["d_adv"], models["d_err"]
    return (
        f"{models['theta_rad'][-1]:.3f}",
        " / ".join(f"{distance[c]:.3f}" for c in (0, STRONG, -1)),
        " / ".join(f"{1e3 * wrong[c]:.2f}" for c in (0, -1)),
        " / ".join(f"{train[c]:.2f}" for c in (0, STRONG, -1)),
        " / ".join(f"{test[c]:.2f}" for c in (0, STRONG, -1)),
        f"{test.min():.3f} ({best_lambdas(models)})",
        " / ".join(f"{100 * models['low_variance_share'][c]:.0f}" for c in (0, STRONG, -1)),
        f"{max(models['relative_gap']):.0e}",
    )


def best_lambdas(models: Mapping[str, Sequence[float]]) -> str:
    """The lambdas of the lowest test error: the largest and the smallest of them.

    >>> best_lambdas({"n_err_test": [3, 1, 1, 2], "log10_lambda": [2.0, 1.9, 1.8, 1.7]})
    '10^1.9 to 10^1.8'
    """
    best = np.flatnonzero(np.array(models["n_err_test"]) == min(models["n_err_test"]))
    ends = [f"10^{models['log10_lambda'][c]:.1f}" for c in (best[0], best[-1])]
    return " to ".join(dict.fromkeys(ends))


def against_truth(pairs: Found) -> str:
    """The largest differences from the article's numbers and from an exact solution; empty without such numbers."""
    truth, exact = numbers_to_meet("l2_truth"), numbers_to_meet("l2_resolved")
    rows = []
    for name, pair in pairs.items():
        numbers = tuple(int(digit) for digit in name.split("-")) if name.count("-") == 1 else ()
        if numbers in truth and numbers in exact:
            article = differences(pair["models"], truth[numbers])
            solved = exact_differences(pair["models"], exact[numbers])
            cells = [f"{strong:.2g} / {weak:.2g} ({missed})" for strong, weak, missed in article.values()]
            rows.append((name, *cells, *(f"{solved[key]:.1e}" for key in EXACT)))
    if not rows:
        return ""
    head = ("pair", *TOLERANCES, *(f"exact {key}" for key in EXACT))
    allowed = "; ".join(f"{key} {strong:g} / {weak:g}" for key, (strong, weak) in TOLERANCES.items())
    return "\n\n".join(
        (
            "## Against the article's numbers",
            "Largest difference over the models with lambda of at least 10⁻² / below it, and in brackets how many "
            f"of 81 miss the tolerance ({allowed}; margins may miss by 1 %). Right of these the largest difference "
            f"from an independent exact solution, to which {max(EXACT.values()):g} is allowed.",
            markdown_table([head, *rows]),
        )
    )


def as_csv(pairs: Found) -> bytes:
    """Every model of every pair, a row each, with its duality gap."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("pair", "column", *FIELDS))
    for name, pair in pairs.items():
        for column, row in enumerate(zip(*(pair["models"][key] for key in FIELDS), strict=True)):
            writer.writerow((name, column, *(f"{value:.9g}" for value in row)))
    return text.getvalue().encode()


# The article's claims about its support vector machines, judged: machines have no seeds, only tolerances.

STUDY = "svm"
ROUNDING = {"err_train_pct": 5e-3, "err_test_pct": 5e-3, "best_test_pct": 5e-4}  # of percentages as printed
NOT_SEPARABLE = ("3-5", "3-8", "4-9", "5-8", "7-9")
ORDERINGS = ("S1", "S3", "S5")  # along lambda, without a number
FLAT_END = "0-1"  # the article's own numbers are least at the weak end there
FLAT = 1e-6  # radians, and units of distance, that a step may go the other way in any case


def svm_judgements(pairs: Found, dataset: str) -> tuple[Judgement, ...]:
    """Every claim of the article: those about these machines judged, every other one "not run".

    Args:
        pairs: What `solved_pair` found, by the pair's name, for example ``"2-3"``.
        dataset: What the machines separate.
    """
    claims = paper_claims(PAPER)
    rest = judge(claims, [], dataset)
    return tuple(
        _comparable(_judged(claim, pairs), dataset) if _about(claim, dataset) else other
        for claim, other in zip(claims.claims, rest, strict=True)
    )


def _comparable(judgement: Judgement, dataset: str) -> Judgement:
    """On another dataset than the article's only the ordering is looked at, and of some claims on any."""
    if judgement.verdict == "not run":
        return judgement
    if dataset in judgement.claim.datasets:
        only_ordering = judgement.verdict == "holds" and judgement.claim.id in ORDERINGS
        return dataclasses.replace(judgement, verdict="ordering holds") if only_ordering else judgement
    ordering = ordering_in_words(judgement.verdict)
    return dataclasses.replace(judgement, verdict="not comparable", ordering=ordering)


def judgements_in(tree: Mapping[str, Any], folder: Path) -> tuple[Judgement, ...]:
    """The claims of a committed ledger, judged again from the models in its folder."""
    return svm_judgements(_pairs_in(tree, folder), tree["dataset"])


def passages_in(tree: Mapping[str, Any], folder: Path) -> list[str]:
    """The landmarks of every pair as a committed ledger has them, without the pair's name and the time it took."""
    return [" | ".join(_landmark_cells(pair)) for pair in _pairs_in(tree, folder).values()]


def _pairs_in(tree: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    pairs: dict[str, dict[str, Any]] = {}
    with (folder / MODELS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            train, test = tree["images"][row["pair"]]
            empty: dict[str, Any] = {"models": {key: [] for key in FIELDS}, "n_train": train, "n_test": test}
            models = pairs.setdefault(row["pair"], empty)["models"]
            for key in FIELDS:
                models[key].append(float(row[key]))
    return pairs


def _about(claim: Claim, dataset: str) -> bool:
    numbers = any(reading.value is not None for reading in claim.readings)
    known = claim.datasets if numbers else (*claim.datasets, *claim.also)
    return claim.study == STUDY and dataset in known


def _judged(claim: Claim, pairs: Found) -> Judgement:
    if claim.readings:
        return _landmarks(claim, pairs)
    verdict, reason = RULES[claim.id](pairs)
    return Judgement(claim, verdict, reason)


def _landmarks(claim: Claim, pairs: Found) -> Judgement:
    """Every number of one pair within the article's rounding and the tolerance of its solver."""
    name = str(claim.readings[0].context["pair"])
    if name not in pairs:
        return Judgement(claim, "not run", f"pair {name} was not solved")
    judged, worst = [], []
    for reading in claim.readings:
        found, allowed = landmark(reading, pairs[name]), tolerance(reading, pairs[name])
        assert reading.value is not None
        good = abs(found - reading.value) <= allowed
        reason = f"{reading.measure} {found:.4g}, the article {reading.value:g}"
        judged.append(
            JudgedReading(reading, "holds" if good else "refuted", reason, "holds" if good else "refuted")
        )
        worst += [] if good else [reason]
    if worst:
        return Judgement(claim, "refuted", "; ".join(worst), "", tuple(judged))
    return Judgement(claim, "holds", f"all {len(judged)} numbers", "", tuple(judged))


def landmark(reading: ClaimReading, pair: Mapping[str, Any]) -> float:
    """The number that a reading is about."""
    models, split = pair["models"], "train" if reading.measure == "err_train_pct" else "test"
    if reading.measure == "best_test_pct":
        return 100 * min(models["n_err_test"]) / pair["n_test"]
    column = _column(reading)
    if reading.measure.endswith("_pct"):
        return 100 * float(models[f"n_err_{split}"][column]) / float(pair[f"n_{split}"])
    return float(models[reading.measure][column])


def tolerance(reading: ClaimReading, pair: Mapping[str, Any]) -> float:
    """How far a number may be from the article's, which is rounded and whose solver stopped early."""
    weak = "log10_lambda" not in reading.context or _column(reading) > STRONG
    if reading.measure.endswith("_pct"):
        split = "train" if reading.measure == "err_train_pct" else "test"
        images = TOLERANCES[f"n_err_{split}"][weak]
        return 100 * images / float(pair[f"n_{split}"]) + ROUNDING[reading.measure]
    return TOLERANCES[reading.measure][weak]


def _column(reading: ClaimReading) -> int:
    return round(10 * (2 - float(reading.context["log10_lambda"])))


def _tilts(pairs: Found) -> tuple[ClaimVerdict, str]:
    """Theta never falls and d_adv never grows to the next weaker lambda.

    A step the other way by more than both gaps leave open refutes it; a smaller one leaves it open.
    """
    against = unsure = steps = 0
    for pair in pairs.values():
        models = pair["models"]
        theta, distance = np.diff(models["theta_rad"]), np.diff(models["d_adv"])
        error = angle_errors(models)
        left = error[1:] + error[:-1] + FLAT
        # the centroids' half distance, which d_adv has where nothing leans, turns with w
        back, up = -theta - left, distance - left * max(1.0, abs(models["d_adv"][0]))
        steps += len(theta)
        wrong = (back > 0) | (up > 0)
        against += int(wrong.sum())
        unsure += int((((theta < -FLAT) | (distance > FLAT)) & ~wrong).sum())
    reason = f"{against} of {steps} steps go the other way"
    if unsure:
        reason += f"; {unsure} more do by less than the gaps leave open"
    return ("refuted" if against else "cannot tell" if unsure else "holds"), reason


def angle_errors(models: Mapping[str, Sequence[float]]) -> NDArray[np.float64]:
    """How far each machine's direction may be from the exact one's, in radians: sqrt(gap / lambda) / ||w|| at most.

    The objective grows by lambda ||w - w*||^2 at least, because its penalty does.
    """
    gap = np.array(models["relative_gap"]) * np.array(models["objective"])
    relative = np.sqrt(gap / 10 ** np.array(models["log10_lambda"])) * np.array(models["margin"])
    found: NDArray[np.float64] = np.arcsin(np.minimum(relative, 1.0))
    return found


def _holds(good: bool) -> ClaimVerdict:
    return "holds" if good else "refuted"


def _nearest_centroid(pairs: Found) -> tuple[ClaimVerdict, str]:
    largest = max(float(pair["models"]["theta_rad"][0]) for pair in pairs.values())
    return _holds(largest < FLAT), f"largest theta {largest:.1g} over {len(pairs)} pairs"


def _u_shaped(pairs: Found) -> tuple[ClaimVerdict, str]:
    """The least test error is lower than at lambda 10^2 and at 10^-6, but for the article's own exception."""
    inside = [name for name, pair in pairs.items() if _between(pair["models"]["n_err_test"])]
    outside = [name for name in pairs if name not in inside]
    reason = f"{len(inside)} of {len(pairs)} pairs"
    return _holds(set(outside) <= {FLAT_END}), reason + (f"; not {', '.join(outside)}" if outside else "")


def _between(errors: Sequence[float]) -> bool:
    return min(errors) < min(errors[0], errors[-1])


def _separable(pairs: Found) -> tuple[ClaimVerdict, str]:
    never = [name for name, pair in pairs.items() if min(pair["models"]["n_err_train"]) > 0]
    wanted = [name for name in NOT_SEPARABLE if name in pairs]
    return (
        _holds(never == wanted),
        f"{len(pairs) - len(never)} of {len(pairs)} pairs reach 0; not {', '.join(never) or 'none'}",
    )


def _to_low_variance(pairs: Found) -> tuple[ClaimVerdict, str]:
    """The share of the weights' energy in directions of low variance is larger at the weak end than at the strong."""
    ends = [
        (one["models"]["low_variance_share"][0], one["models"]["low_variance_share"][-1])
        for one in pairs.values()
    ]
    strong, weak = (100 * float(np.median(column)) for column in zip(*ends, strict=True))
    more = sum(last > first for first, last in ends)
    reason = f"more at the weak end for {more} of {len(ends)} pairs, median {strong:.0f} and {weak:.0f} %"
    return _holds(more == len(ends)), reason


RULES: Mapping[str, Callable[[Found], tuple[ClaimVerdict, str]]] = {
    "S1": _tilts,
    "S2": _nearest_centroid,
    "S3": _u_shaped,
    "S4": _separable,
    "S5": _to_low_variance,
}


MODELS = "models.csv"
ABOUT = {
    "error": "Wrong on test images",
    "angle": "Angle between the boundary and that of the nearest centroid",
    "distance": "Mean signed distance of the training images to the boundary",
}


def run(request: StudyRequest) -> Path:
    """Solve every pair at every lambda and write the ledger; what is finished is read back.

    Args:
        request: What was asked for. Nothing is drawn, so that seeds change nothing.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    needed_data(Recipe(dataset=request.dataset, root=request.root))
    classes = load_dataset(request.dataset, "train", request.root).classes
    return study(classes, list(itertools.combinations(range(len(classes)), 2)), request)


def study(classes: tuple[str, ...], chosen: list[tuple[int, int]], request: StudyRequest) -> Path:
    """The same for some pairs of classes only; the path of ``ledger.md``."""
    dataset, out = request.dataset, request.out
    tasks: dict[str, dict[str, Any]] = {
        f"{first}-{second}": {"dataset": dataset, "pair": [first, second], "tolerance": TOLERANCE}
        for first, second in chosen
    }
    work = partial(solved_pair, root=request.root)
    pairs = each(work, tasks, out / "pairs", request.engine, request.listener)
    titles = {f"{a}-{b}": f"{classes[a]} against {classes[b]}" for a, b in chosen}
    write_bytes(out / MODELS, as_csv(pairs))
    for name in CURVES:
        drawn = as_svg(curves(pairs, titles, name), f"svm-{name}", ABOUT[name])
        write_bytes(out / f"{name}.svg", str(drawn).encode())
    settings = {
        "dataset": dataset,
        "lambdas": "10^2 to 10^-6, 81",
        "per_class": PER_CLASS,
        "tolerance": TOLERANCE,
    }
    report = report_with(settings, [], command_line(PAPER, dataset, only=STUDY))
    images = {name: [pair["n_train"], pair["n_test"]] for name, pair in pairs.items()}
    judgements = svm_judgements(pairs, dataset)
    ledger = Ledger(paper_claims(PAPER), dataset, judgements, report, (STUDY,), {"images": images})
    return ledger.save(out, _text(ledger, pairs, titles))


def _text(ledger: Ledger, pairs: Found, titles: Mapping[str, str]) -> str:
    seconds = sum(float(pair["cpu_seconds"]) for pair in pairs.values())
    worst = max(max(pair["models"]["relative_gap"]) for pair in pairs.values())
    about = (
        f"{len(pairs)} pairs, 81 machines each, in {seconds:.0f} s of processor time ({seconds / len(pairs):.1f} s a "
        f"pair). The largest relative duality gap of all machines is {worst:.1e}; each one's is in "
        f"[{MODELS}]({MODELS}). "
        "Distances are in units of [0, 1] pixels; lambda is the factor of ||w||². "
        "Errors and energies are at lambda 10² / 10⁻² / 10⁻⁶; directions of low variance are the principal axes of a "
        "pair's training images after those that hold nine tenths of the variance."
    )
    pictures = [f"![{ABOUT[name]}, over lambda.]({name}.svg)" for name in CURVES]
    parts = [ledger.to_markdown().rstrip(), "## Landmarks of every pair", about, landmarks(pairs, titles)]
    # the article's pairs are of MNIST's digits, whatever another dataset's classes are numbered
    compared = against_truth(pairs) if ledger.dataset == "mnist" else ""
    return "\n\n".join(part for part in (*parts, *pictures, compared) if part) + "\n"
