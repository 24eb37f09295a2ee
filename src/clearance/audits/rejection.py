"""How well a score separates abnormal images from normal ones, and the threshold at which an image is rejected."""

import numpy as np
import torch
from torch import Tensor

from clearance._checks import check_fraction

REJECTED = 0.05  # share of normal images that a threshold may reject
KEPT = 1 - REJECTED


def detection(normal: Tensor, abnormal: Tensor) -> dict[str, float]:
    """AUROC, AUPR and FPR95 of a score, by name.

    ``auroc``: the chance that an abnormal image scores below a normal one, ties counting half. ``aupr``: average
    precision with abnormal images as positives; an uninformative score has their share. ``fpr95``: the
    share of abnormal images that pass where the threshold lets 95 % of the normal ones pass.

    Scores are (n,) and (m,), at least one each; NaN counts as the lowest.

    >>> detection(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]))
    {'auroc': 1.0, 'aupr': 1.0, 'fpr95': 0.0}
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve  # slow to import

    scores = lowest_for_nan(torch.cat([normal, abnormal])).cpu().numpy()
    ranks = np.unique(scores, return_inverse=True)[1]
    is_abnormal = np.arange(len(ranks)) >= len(normal)
    passed, let_through, _ = roc_curve(~is_abnormal, ranks, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(is_abnormal, -ranks)),
        "aupr": float(average_precision_score(is_abnormal, -ranks)),
        "fpr95": float(passed[np.argmax(let_through >= KEPT)]),
    }


def lowest_for_nan(scores: Tensor) -> Tensor:
    """Scores with minus infinity in place of NaN.

    >>> lowest_for_nan(torch.tensor([float("nan"), 1.0]))
    tensor([-inf, 1.])
    """
    return torch.where(scores.isnan(), -torch.inf, scores)


LEAST = 19  # images that a threshold for 5 % needs


def rejection_threshold(held_out: Tensor, rejected: float = REJECTED) -> float:
    """Below this a score is rejected: with the k-th smallest of n held-out ones, k = floor(rejected (n + 1)).

    A new normal image then falls below it with a probability of at most `rejected`, for every distribution of scores,
    as long as it is drawn like the held-out ones (a conformal p-value).

    Source: Vovk, Gammerman, Shafer, *Algorithmic Learning in a Random World* (2005), chapter 2.

    Args:
        held_out: Scores of normal images, higher being more normal, (n,), n at least 1; of images that neither the
            network nor the score was fitted to. NaN counts as the lowest score.
        rejected: Share of normal images that may be lost, in (0, 1); 0.05 is the share of every audit here.

    Returns:
        A number in the unit of the scores; minus infinity, so that nothing is rejected, where n is too small for the
        share (below 19 for 0.05).

    Raises:
        ValueError: If scores are not (n,), there are none, or the share is out of range.

    Misleads about what is rejected: it promises how many normal images are kept, and nothing of how many others are
    found out, or of images that were made to pass.

    >>> rejection_threshold(torch.arange(39.0)), rejection_threshold(torch.arange(18.0))
    (1.0, -inf)
    """
    check_fraction("rejected", rejected, open_below=True, open_above=True)
    if held_out.ndim != 1 or not len(held_out):
        raise ValueError(
            f"`held_out` must be the scores of at least one image, (n,); got {tuple(held_out.shape)}. Take one number "
            "for each image, such as head.log_density(features)."
        )
    number = min(int(rejected * (len(held_out) + 1) + 1e-9), len(held_out))
    if number == 0:
        return -torch.inf
    return float(lowest_for_nan(held_out).sort().values[number - 1])


def p_values(held_out: Tensor, scores: Tensor) -> Tensor:
    """The share of held-out images that score no higher, the image itself among them; (m,), float64.

    At most 0.05 exactly where the score is below :func:`rejection_threshold`.

    >>> p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.5]))
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    order = lowest_for_nan(held_out).sort().values
    below = torch.searchsorted(order, lowest_for_nan(scores).to(order.dtype), right=True)
    return (1 + below.double()) / (1 + len(order))


def check_enough(images: int) -> None:
    """Raise ValueError unless a threshold can be chosen on this number of test images."""
    if images < LEAST:
        raise ValueError(
            f"`test` must have at least {LEAST} images for a threshold that keeps 95 %, after half of every class was "
            f"set aside (of classes of one image, half of them); got {images}. Give more, or leave the audit out."
        )
