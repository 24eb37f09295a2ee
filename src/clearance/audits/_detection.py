"""How well a score tells abnormal images from normal ones.

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
