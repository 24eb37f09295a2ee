"""The paths of all pairs as curves: test error, tilting angle and adversarial distance over lambda."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.drawing import empty, legend, logarithmic
from clearance.report.svg import GRID, INK, MUTED, series

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
    figure, axes = empty((6.4, 3.8))
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
    logarithmic(axes.xaxis)
    axes.set_xlabel("lambda, from strong to weak regularisation", color=INK)
    axes.set_ylabel(label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    legend(axes)
    return figure


def _lambdas(pair: Mapping[str, Any]) -> np.ndarray:
    return 10 ** np.array(pair["models"]["log10_lambda"])
