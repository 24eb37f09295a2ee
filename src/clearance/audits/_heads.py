"""Features for heads that an audit trains itself."""

import torch
from torch import Tensor

from clearance.audits._audit import Subject
from clearance.heads.scale import feature_unit


def scaled_features(subject: Subject) -> tuple[Tensor, Tensor]:
    """Training and held-out features in the unit in which every fresh head reads them."""
    unit = feature_unit(subject.train_features)
    return subject.train_features / unit, subject.test_features / unit


def are_a_cloud(*clouds: Tensor) -> bool:
    """Whether each set of features (N, D) is finite and not one single point.

    An extractor that breaks down, or sees all images alike, must not pass for one with point-like classes.
    """
    return all(bool(one.isfinite().all()) and bool((one != one[0]).any()) for one in clouds)


def evenly_spaced(count: int, shown: int) -> Tensor:
    """At most `shown` row numbers of `count` rows, evenly spaced, so that a picture stays small."""
    return torch.linspace(0, count - 1, min(shown, count)).long()
