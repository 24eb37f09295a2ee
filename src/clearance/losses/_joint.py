"""The batch of all processes that train together, for losses that compare samples with each other."""

import torch
import torch.distributed as dist
from torch import Tensor

from clearance._processes import process_count


def check_features(features: Tensor, labels: Tensor) -> None:
    """Raise ValueError unless features are (B, D), a row for each label."""
    if features.ndim != 2 or len(features) != len(labels):
        raise ValueError(
            f"features must be (B, D), with one row for each of the {len(labels)} labels; got {tuple(features.shape)}. "
            "Flatten them, or give the labels of the same batch."
        )


def joint_batch(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, float]:
    """Features and labels of every process, and the weight of this process's gradient.

    Gradients flow to the process's own features alone. With the weight N / n (N samples in all, n here), the mean of
    gradients over processes, weighted by their samples, is the gradient of the loss of the joint batch.

    Features are (B, D), labels (B,).

    Where no gradient is wanted, or one process trains alone, this is the batch itself, and 1.

    >>> joint_batch(torch.ones(2, 1), torch.tensor([0, 1]))[2]
    1.0
    """
    count = process_count()
    if count == 1 or not (torch.is_grad_enabled() and features.requires_grad):
        return features, labels, 1.0
    rank = dist.get_rank()
    sizes = [labels.new_zeros(1) for _ in range(count)]
    dist.all_gather(sizes, labels.new_full((1,), len(labels)))
    shares = [int(size) for size in sizes]
    every, classes = _from_all(features.detach(), max(shares)), _from_all(labels, max(shares))
    parts = [part[:share] for part, share in zip(every, shares, strict=True)]
    parts[rank] = features
    joint = torch.cat([part[:share] for part, share in zip(classes, shares, strict=True)])
    return torch.cat(parts), joint, sum(shares) / len(labels)


def weighted_gradient(value: Tensor, weight: float) -> Tensor:
    """The same value, whose gradient is `weight` times as large.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> weighted_gradient(x, 2.0).backward()
    >>> x.grad
    tensor(2.)
    """
    return value if weight == 1.0 else value.detach() + weight * (value - value.detach())


def _from_all(rows: Tensor, most: int) -> list[Tensor]:
    """The rows of every process, filled up to one length: shapes must be equal."""
    full = rows.new_zeros(most, *rows.shape[1:])
    full[: len(rows)] = rows
    found = [torch.empty_like(full) for _ in range(dist.get_world_size())]
    dist.all_gather(found, full)
    return found
