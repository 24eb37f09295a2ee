"""What the ledger of the support vector machines shows besides its verdicts: landmarks, differences, models."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clearance.experiments.reproductions.cells import markdown_table
from clearance.experiments.reproductions.tanay_2018.svm_models import FIELDS
from clearance.experiments.reproductions.tanay_2018.svm_truth import (
    EXACT,
    TOLERANCES,
    differences,
    exact_differences,
    numbers_to_meet,
)

MIDDLE = 40  # the column of lambda = 10^-2
Found = Mapping[str, Mapping[str, Any]]


def landmarks(pairs: Found, titles: Mapping[str, str]) -> str:
    """A row for each pair: the ends and the middle of its path, its best test error, its worst gap.

    Args:
        pairs: What was found of each pair.
        titles: What a table calls it.
    """
    head = (
        "pair", "theta at 10⁻⁶", "d_adv at 10² / 10⁻² / 10⁻⁶", "d_err at 10² / 10⁻⁶ (×10³)", "train error %",
        "test error %", "best test error % (lambda)", "worst gap", "CPU s",
    )  # fmt: skip
    return markdown_table([head, *(_landmark_row(titles[name], pair) for name, pair in pairs.items())])


def _landmark_row(title: str, pair: Mapping[str, Any]) -> Sequence[str]:
    models = pair["models"]
    train, test = (
        100 * np.array(models[f"n_err_{split}"]) / pair[f"n_{split}"] for split in ("train", "test")
    )
    distance, wrong = models["d_adv"], models["d_err"]
    return (
        title,
        f"{models['theta_rad'][-1]:.3f}",
        " / ".join(f"{distance[c]:.3f}" for c in (0, MIDDLE, -1)),
        " / ".join(f"{1e3 * wrong[c]:.2f}" for c in (0, -1)),
        " / ".join(f"{train[c]:.2f}" for c in (0, MIDDLE, -1)),
        " / ".join(f"{test[c]:.2f}" for c in (0, MIDDLE, -1)),
        f"{test.min():.3f} ({best_lambdas(models)})",
        f"{max(models['relative_gap']):.0e}",
        f"{pair['cpu_seconds']:.1f}",
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
    """The largest differences from the article's numbers and from an exact solution; empty where there are none."""
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
    told = "; ".join(f"{key} {strong:g} / {weak:g}" for key, (strong, weak) in TOLERANCES.items())
    return "\n\n".join(
        (
            "## Against the article's numbers",
            "Largest difference over the models with lambda of at least 10⁻² / below it, and in brackets how many "
            f"of 81 miss the tolerance ({told}; margins may miss by 1 %). Right of these the largest difference from "
            f"an independent exact solution, to which {max(EXACT.values()):g} is allowed.",
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
