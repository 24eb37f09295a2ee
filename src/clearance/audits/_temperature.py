"""The temperature that makes a head as sure as it is right."""

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

LOG_LIMIT = 12.0  # temperatures from 6e-6 to 160,000


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T above 0 that minimises the cross-entropy of softmax(logits / T) (Guo et al., 2017).

    Where no image is wrong the minimum would be at T = 0, and a head would be called surer the longer it was trained:
    there one more image is imagined that belongs to all classes alike. (Platt, 1999, section 2.2, does so for two
    classes.) It weighs the more the sharper logits are, which is why it is not imagined elsewhere.

    Args:
        logits: (n, C), finite, n at least 1.
        labels: Class indices, (n,).

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> 1.2 < fitted_temperature(logits, torch.tensor([0, 0, 1, 1])) < 3.0      # three of four are right
    True
    """
    best_wrong = logits.scatter(1, labels[:, None], -math.inf).amax(dim=1)
    none_wrong = bool((logits.gather(1, labels[:, None])[:, 0] >= best_wrong).all())  # a tie bounds nothing
    share = 1 / (len(labels) + 1) if none_wrong else 0.0
    targets = torch.nn.functional.one_hot(labels, logits.shape[1]).double()
    targets = (1 - share) * targets + share / logits.shape[1]
    exact = logits.double()

    def cross_entropy(log_temperature: float) -> float:
        log_p = torch.log_softmax(exact * math.exp(-log_temperature), dim=1)
        return float(-(targets * log_p).sum(dim=1).mean())

    # convex in 1 / T, so that log T has one valley
    found = minimize_scalar(
        cross_entropy, bounds=(-LOG_LIMIT, LOG_LIMIT), method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x)
