r"""Where a margin of L-GM lets a sample count as right: the regions of the paper's figure 2, in closed form.

Two classes, variances 1, means at distance Delta: a sample is on its own side in training where
d_other > (1 + alpha) d_own. For alpha = 0 that is a half-plane. For alpha > 0 it is a ball, the Apollonius ball of the
two means: every class has room of its own even without a likelihood, and a gap lies between the two.
"""

import math
from dataclasses import dataclass

from clearance._checks import check_non_negative
from clearance.records.markdown import markdown_table

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
    head = ("alpha", "boundary, from the own mean", "gap between the classes", "diameter of a class's region")
    rows = [
        (f"{alpha:g}", f"{boundary(alpha):.4f}", f"{gap(alpha):.4f}", f"{2 * region(alpha).radius:.6g}")
        for alpha in TABLED
    ]
    return markdown_table([head, *rows])
