"""Heads that need no training, on features or on raw pixels: the nearest class mean and the nearest neighbour."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from clearance.audits._audit import Subject
from clearance.geometry import class_means, nearest_class_mean, nearest_neighbour


@dataclass(frozen=True)
class Cloud:
    """Training and test points with their labels, (N, D) and (M, D); features of a model, or pixels."""

    train: Tensor
    test: Tensor
    labels: Tensor
    test_labels: Tensor
    classes: int

    def normalised(self) -> "Cloud":
        """The same with every point at unit length."""
        return replace(self, train=normalize(self.train), test=normalize(self.test))

    def errors(self, named: Tensor) -> Tensor:
        """The test error of each of r rows of answers, (r, M); that of guessing where a point is not finite."""
        wrong = (named != self.test_labels).double().mean(dim=1)
        finite = bool(self.train.isfinite().all() and self.test.isfinite().all())
        return wrong if finite else torch.full_like(wrong, 1 - 1 / self.classes)


def features_of(subject: Subject) -> Cloud:
    """What enters the model's head."""
    train, test = subject.train, subject.test
    return Cloud(subject.train_features, subject.test_features, train.labels, test.labels, subject.classes)


def pixels_of(subject: Subject) -> Cloud:
    """The images themselves."""
    train, test = subject.train, subject.test
    return Cloud(train.images.flatten(1), test.images.flatten(1), train.labels, test.labels, subject.classes)


def class_mean_errors(cloud: Cloud, rows: Tensor) -> Tensor:
    """Errors of the nearest class mean of each of r partial sets, row numbers (r, n); shape (r,)."""
    means = [class_means(cloud.train[r][None], cloud.labels[r][None], cloud.classes)[0] for r in rows]
    return cloud.errors(torch.stack([nearest_class_mean(m, cloud.test) for m in means]))


def nearest_neighbour_errors(cloud: Cloud, rows: Tensor) -> Tensor:
    """Errors of the nearest point of each of r partial sets, row numbers (r, n); shape (r,)."""
    return cloud.errors(
        torch.stack([nearest_neighbour(cloud.train[r], cloud.labels[r], cloud.test) for r in rows])
    )
