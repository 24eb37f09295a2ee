"""Norms of the gradients of class-pair gaps: one backward sweep a pair, for all layers at once.

A gradient at a shallow layer passes through the deeper ones anyway, so a sweep for each layer would repeat
work; and no gradient of a parameter is computed, because only activations are asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from clearance.geometry.first_order import dual_norm

Sweeps = Literal["auto", "sequential", "batched"]


def swept_norms(
    root: Tensor,
    activations: Mapping[str, Tensor],
    gradients: Tensor,
    norm: float,
    *,
    sweeps: Sweeps = "auto",
    create_graph: bool = False,
) -> dict[str, Tensor]:
    """The dual norm of each gap's gradient at each activation, (k, B) by name.

    Args:
        root: The logits, or the features: (B, C), with the graph from the activations to it.
        activations: By name, (B, ...).
        gradients: Of the k gaps at the root, (k, B, C).
        norm: p; the gradients' norms are dual to it.
        sweeps: ``"sequential"``, ``"batched"`` (all k in one vectorised sweep, with k times the memory for
            gradients), or ``"auto"``: batched on CUDA, where small networks are bound by kernel launches.
        create_graph: Whether the norms can be differentiated in turn.

    Samples must not interact between activations and root: with batch statistics the gradient at one sample
    holds something of every other sample's gap.

    Raises:
        ValueError: If an activation has no part in the logits, or the graph refuses such a sweep.
    """
    # A sweep is linear in what it starts from. Saturated probabilities start it at 1e-9, which float16 on the
    # way down cannot hold, so each sample starts at 1 and its norm is scaled back.
    size = gradients.detach().abs().amax(dim=2)
    size = torch.where(size > 0, size, torch.ones_like(size))
    starts = (gradients / size.unsqueeze(-1)).to(root.dtype)
    together = sweeps == "batched" or (sweeps == "auto" and root.is_cuda)
    if together and len(starts) > 1:
        swept = _batched(root, list(activations.values()), starts, create_graph=create_graph)
        if swept is not None:
            _check_reached(activations, swept)
            norms = [dual_norm(g, norm, leading=2) for g in swept if g is not None]
            return {name: n * size for name, n in zip(activations, norms, strict=True)}
    rows = []
    for start in starts:
        found = one_sweep(root, activations, start, create_graph=create_graph)
        rows.append([dual_norm(gradient, norm) for gradient in found])  # the gradients themselves can go
    stacked = [torch.stack(layer) * size for layer in zip(*rows, strict=True)]
    return dict(zip(activations, stacked, strict=True))


def one_sweep(
    root: Tensor, activations: Mapping[str, Tensor], start: Tensor, *, create_graph: bool
) -> list[Tensor]:
    """The gradient at each activation of a sweep that begins at the root with `start`.

    Raises:
        ValueError: If an activation has no part in the root, or the graph refuses such a sweep.
    """
    if not root.requires_grad:
        _check_reached(activations, [None] * len(activations))
    try:
        found = torch.autograd.grad(
            root, list(activations.values()), start,
            retain_graph=True, create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        raise ValueError(
            "activations inside reentrant checkpointing have no gradient of their own; pass "
            "use_reentrant=False to torch.utils.checkpoint, which costs one more recomputation a sweep."
        ) from error
    _check_reached(activations, found)
    return [gradient for gradient in found if gradient is not None]


def _batched(
    root: Tensor, activations: list[Tensor], starts: Tensor, *, create_graph: bool
) -> tuple[Tensor | None, ...] | None:
    """All sweeps at once, or None where an operation of the network does not allow that."""
    try:
        return torch.autograd.grad(
            root, activations, starts,
            retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True,
        )  # fmt: skip
    except RuntimeError:  # one by one, the same error is said again if it is not about vectorising
        return None


def _check_reached(activations: Mapping[str, Tensor], gradients: Sequence[Tensor | None]) -> None:
    for name, gradient in zip(activations, gradients, strict=True):
        if gradient is None:
            raise ValueError(
                f"layer {name!r} has no part in these logits, so there is no distance at it. Name a layer before "
                "the head whose output is not detached; nn.DataParallel and torch.compile hand out copies, so "
                "use them without."
            )
