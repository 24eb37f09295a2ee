"""The precision in which losses, heads and attacks compute."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is that: sums and exponentials leave the range of half precision.

    >>> at_least_float32(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
