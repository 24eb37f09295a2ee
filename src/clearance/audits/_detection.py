"""How well a score tells abnormal images from normal ones, and a threshold that rejects few normal ones.

Everywhere a higher score means more normal. Only the order of scores counts: no number changes when a score is
measured in another unit.
"""

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

REJECTED = 0.05  # share of normal images that a threshold may reject
KEPT = 1 - REJECTED


def detection(normal: Tensor, abnormal: Tensor) -> dict[str, float]:
    """AUROC, AUPR and FPR95 of a score, by name.

    ``auroc``: the chance that an abnormal image scores below a normal one, ties counting half. ``aupr``: average
    precision, abnormal images being what is looked for; a score that knows nothing has their share. ``fpr95``: the
    share of abnormal images that pass where the threshold lets 95 % of the normal ones pass.

    Args:
        normal: (n,), at least one. What is not a number counts as the lowest score there is.
        abnormal: (m,), at least one, likewise.

    >>> detection(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]))
    {'auroc': 1.0, 'aupr': 1.0, 'fpr95': 0.0}
    """
    ranks = rankdata(lowest_for_nan(torch.cat([normal, abnormal])).cpu().numpy(), method="dense")
    is_abnormal = np.arange(len(ranks)) >= len(normal)
    passed, let_through, _ = roc_curve(~is_abnormal, ranks, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(is_abnormal, -ranks)),
        "aupr": float(average_precision_score(is_abnormal, -ranks)),
        "fpr95": float(passed[np.argmax(let_through >= KEPT)]),
    }


def lowest_for_nan(scores: Tensor) -> Tensor:
    """Scores with minus infinity for what is not a number.

    >>> lowest_for_nan(torch.tensor([float("nan"), 1.0]))
    tensor([-inf, 1.])
    """
    return torch.where(scores.isnan(), -torch.inf, scores)


def threshold(held_out: Tensor) -> float:
    """Below this a score is rejected: with the k-th smallest of n held-out ones, k = floor(0.05 (n + 1)).

    A new normal image then falls below it with a probability of at most 5 %, whatever the scores' distribution, as
    long as it is drawn like the held-out ones (a conformal p-value). With fewer than 19 there is no such threshold,
    and nothing is rejected.

    Source: Vovk, Gammerman, Shafer, *Algorithmic Learning in a Random World* (2005), chapter 2.

    >>> threshold(torch.arange(39.0)), threshold(torch.arange(18.0))
    (1.0, -inf)
    """
    number = int(REJECTED * (len(held_out) + 1) + 1e-9)
    if number == 0:
        return -torch.inf
    return float(lowest_for_nan(held_out).sort().values[number - 1])


def p_values(held_out: Tensor, scores: Tensor) -> Tensor:
    """The share of held-out images that score no higher, the image itself among them; (m,), float64.

    At most 0.05 exactly where the score is below :func:`threshold`.

    >>> p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.5]))
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    order = lowest_for_nan(held_out).sort().values
    below = torch.searchsorted(order, lowest_for_nan(scores).to(order.dtype), right=True)
    return (1 + below.double()) / (1 + len(order))
