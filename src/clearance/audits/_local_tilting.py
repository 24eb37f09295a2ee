"""How far the way to a mistake is turned from the way to the other class."""

import torch
from torch import Tensor

from clearance.audits._nearest_rival import NearestRival
from clearance.data import ImageSet
from clearance.geometry.nearest import squared_distances

CHUNK = 256


def tilting_angles(rivals: NearestRival, ways: Tensor) -> Tensor:
    """The angle between the steepest descent of the gap and a direction in the data, (B,), in [0, pi] radians.

    atan2(||n||, w.z) with w = -grad m, the unit vector z of `ways`, and n = w - (w.z) z, which keeps the digits of
    small angles. Not a number where there is no gradient or no way.

    Args:
        rivals: Of the images.
        ways: From each image's class to its rival's, (B, C, H, W).
    """
    w, way = -rivals.gradient.flatten(1), ways.flatten(1).to(rivals.gradient.dtype)
    length = way.norm(dim=1, keepdim=True)
    z = way / torch.where(length > 0, length, 1.0)
    along = (w * z).sum(dim=1)
    across = w - along.unsqueeze(1) * z
    angle = torch.atan2(across.norm(dim=1), along)
    return torch.where(rivals.usable & (length.squeeze(1) > 0), angle, torch.nan)


def centroid_ways(train: ImageSet, rivals: NearestRival) -> Tensor:
    """From the mean training image of each image's class to that of its rival, (B, C, H, W); no way without either."""
    exact = train.images.to(rivals.images.dtype)
    # a network may have outputs for more classes than the images have
    outputs = max(train.class_count, int(rivals.rival.max()) + 1)
    means = torch.zeros(outputs, *train.shape, dtype=exact.dtype, device=exact.device)
    means.index_add_(0, train.labels, exact)
    counts = torch.bincount(train.labels, minlength=outputs)
    means /= counts.clamp(min=1).view(-1, 1, 1, 1)
    there = (counts[rivals.rival] > 0) & (counts[rivals.labels] > 0)
    return (means[rivals.rival] - means[rivals.labels]) * there.view(-1, 1, 1, 1)


def nearest_sample_ways(train: ImageSet, rivals: NearestRival) -> Tensor:
    """From each image to the nearest training image of its rival's class, (B, C, H, W); none of it is no way."""
    ways = torch.zeros_like(rivals.images)
    for rival in rivals.rival.unique().tolist():
        rows = (rivals.rival == rival).nonzero().flatten()
        others = train.images[train.labels == rival].to(rivals.images.dtype)
        for some in rows.split(CHUNK) if len(others) else ():
            points = rivals.images[some].flatten(1)
            nearest = squared_distances(points, others.flatten(1)).argmin(dim=-1)
            ways[some] = others[nearest] - rivals.images[some]
    return ways
