"""A linear head as one hyperplane for each pair of its classes: what audits of a linear model must find."""

import torch

from clearance.linear import Hyperplane
from clearance.linear.hyperplane import signed_distances


def class_plane(head, first, second):
    """The boundary between two classes, positive on the side of `second`."""
    weight, bias = head.weight.detach().double(), head.bias.detach().double()
    return Hyperplane.of(weight[second] - weight[first], bias[second] - bias[first])


def nearest_distances(head, x, labels, norm):
    """Signed distance of each point to the nearest boundary of its class; negative where a rival wins."""
    return torch.cat(
        [
            torch.cat(
                [
                    signed_distances(class_plane(head, rival, own), point.unsqueeze(0), norm)
                    for rival in range(len(head.weight))
                    if rival != own
                ]
            ).amin(0, keepdim=True)
            for point, own in zip(x, labels.tolist(), strict=True)
        ]
    )
