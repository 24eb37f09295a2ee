"""Features for heads that an audit trains itself."""

import torch
from torch import Tensor

from clearance._precision import at_least_float32
from clearance.audits._audit import Subject
from clearance.data import ImageSet
from clearance.heads.scale import feature_unit


def scaled_features(subject: Subject) -> tuple[Tensor, Tensor]:
    """Training and held-out features in the unit in which every fresh head reads them."""
    train, test = at_least_float32(subject.train_features), at_least_float32(subject.test_features)
    unit = feature_unit(train)
    return train / unit, test / unit


def are_a_cloud(*clouds: Tensor) -> bool:
    """Whether each set of features (N, D) is finite and not one single point.

    An extractor that breaks down, or sees all images alike, must not pass for one with point-like classes.
    """
    return all(bool(one.isfinite().all()) and bool((one != one[0]).any()) for one in clouds)


def check_every_class(data: ImageSet, split: str) -> None:
    """Raise ValueError unless every class has an image."""
    counts = torch.bincount(data.labels, minlength=data.class_count)
    if absent := [name for name, count in zip(data.classes, counts.tolist(), strict=True) if not count]:
        raise ValueError(
            f"`{split}` must have an image of every class; got none of {', '.join(absent[:5])}. Give some, or leave "
            "the audit out."
        )


def check_spread(data: ImageSet, split: str) -> None:
    """Raise ValueError unless every class has an image, and some class two: else every class would pass for a point."""
    check_every_class(data, split)
    if int(torch.bincount(data.labels).max()) < 2:
        raise ValueError(
            f"`{split}` must have at least two images of a class, for a spread within classes; got one of each. Give "
            "more, or leave the audit out."
        )
