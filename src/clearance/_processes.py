"""Several processes, one extractor: gradients are averaged, weak heads are not shared.

Everything here does nothing unless torch.distributed is initialised with more than one process.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def process_count() -> int:
    """How many processes train together; 1 without torch.distributed.

    >>> process_count()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if process_count() > 1 else 0


def own_stream(name: str) -> tuple[str | int, ...]:
    """The name of a random stream that differs from process to process; the first keeps the plain name.

    >>> own_stream("head_init")
    ('head_init',)
    """
    rank = process_rank()
    return (name,) if rank == 0 else (name, "rank", rank)


@torch.no_grad()
def copy_from_first(*modules: nn.Module) -> None:
    """Give every process the parameters and buffers of the first."""
    if process_count() == 1:
        return
    for module in modules:
        for value in [*module.parameters(), *module.buffers()]:
            dist.broadcast(value, src=0)


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter], samples: int) -> None:
    """Replace each gradient by its mean over processes, weighted by the samples it was taken over.

    g = sum_r n_r g_r / sum_r n_r

    That is the gradient of the mean loss over all samples, where the loss is a mean over samples. The same
    parameters must have received a gradient in every process.

    Not by DistributedDataParallel, which arranges gradients anew after its first step: a sum over three or more
    processes depends on that order, so a resumed run would end in other bits.
    """
    if process_count() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    counted = gradients[0].new_full((1,), samples)
    # One message for all: most of the cost of a small message is its start.
    flat = torch.cat([*[gradient.flatten() * samples for gradient in gradients], counted])
    dist.all_reduce(flat)
    flat /= flat[-1].clone()
    pieces = flat[:-1].split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


def mean_over_processes(values: Sequence[float], samples: int, device: torch.device) -> list[float]:
    """The mean of each value over processes, weighted by samples; not finite where any of them is not."""
    if process_count() == 1:
        return list(values)
    weighted = torch.tensor([value * samples for value in values] + [samples], dtype=torch.float64)
    weighted = weighted.to(device)
    dist.all_reduce(weighted)
    return (weighted[:-1] / weighted[-1]).tolist()


def from_first(thing: Any) -> Any:
    """What the first process has, in every process.

    >>> from_first([1, 2])
    [1, 2]
    """
    if process_count() == 1:
        return thing
    held = [thing]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def from_all(thing: Any) -> list[Any]:
    """What each process has, in their order, in every process.

    >>> from_all("mine")
    ['mine']
    """
    if process_count() == 1:
        return [thing]
    held: list[Any] = [None] * process_count()
    dist.all_gather_object(held, thing)
    return held


def in_any_process(flag: bool, device: torch.device) -> bool:
    """Whether `flag` holds in any process, so that all of them do the same and none waits for the others."""
    if process_count() == 1:
        return flag
    held = torch.tensor([float(flag)], device=device)
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    return bool(held)
