"""Heads that an audit trains itself, and features for them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearance._precision import at_least_float32
from clearance.audits._audit import Subject
from clearance.data import ImageSet
from clearance.heads import MLP, HeadStack, HeadTraining
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


def fresh_heads(
    features: Tensor,
    hidden: Sequence[int],
    classes: int,
    count: int,
    stream: torch.Generator,
    std: float = 0.1,
) -> HeadStack:
    """K fresh heads for features (N, D), linear without hidden layers; weights N(0, std^2) from `stream` alone."""
    with torch.random.fork_rng(devices=[]):  # an MLP draws weights of its own, which nobody uses
        architecture = MLP((features.shape[1], *hidden, classes)).to(features)
    return HeadStack.initialised(architecture, count, stream, std)


def head_training(
    samples: int, lr: float, least_steps: int = 200, passes: int = 20, most_steps: int = 3000
) -> HeadTraining:
    """The one rule by which every fresh head is trained: all images a step up to 128, then batches of 128.

    By default 200 steps, or 20 passes where that is more, at most 3,000. Chosen between trials with 100 and
    300 steps on a split of the digits' training set, whose errors differed by about half a point at most; a
    step of 0.1 was no better.
    """
    steps = min(max(least_steps, passes * samples // 128), most_steps)
    return HeadTraining(steps=steps, lr=lr, momentum=0.9, nesterov=True, batch_size=128)


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
