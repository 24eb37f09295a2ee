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
_REMEDIES = {
    "checkpoint": "activations inside reentrant checkpointing have no gradient of their own; pass use_reentrant=False "
    "to torch.utils.checkpoint, which costs one more recomputation a sweep.",
    "donated buffer": "a compiled network throws away at its first backward pass what a margin's sweeps need again; "
    "set torch._functorch.config.donated_buffer = False before it is compiled, or train without torch.compile.",
    "double backward": "a compiled network cannot be differentiated twice, as denominator='full' asks; take "
    "denominator='detach', or train without torch.compile.",
}
"""What to do about an error of torch's, by a part of its words."""


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
    if not root.requires_grad:
        _check_reached(activations, [None] * len(activations))
    if together and len(starts) > 1:
        swept = _batched(root, activations, starts, create_graph=create_graph)
        if swept is not None:
            norms = [dual_norm(gradient, norm, leading=2) for gradient in swept]
            return {name: n * size for name, n in zip(activations, norms, strict=True)}
    rows = []
    for start in starts:
        found = _sweep(root, activations, start, create_graph=create_graph)
        rows.append([dual_norm(gradient, norm) for gradient in found])  # the gradients themselves can go
    stacked = [torch.stack(layer) * size for layer in zip(*rows, strict=True)]
    return dict(zip(activations, stacked, strict=True))


def _sweep(
    root: Tensor, activations: Mapping[str, Tensor], start: Tensor, *, create_graph: bool
) -> list[Tensor]:
    """The gradient at each activation of a sweep that begins at the root with `start`."""
    try:
        found = torch.autograd.grad(
            root, list(activations.values()), start,
            retain_graph=True, create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    except RuntimeError as error:
        said = next((remedy for sign, remedy in _REMEDIES.items() if sign in str(error).lower()), None)
        if said is None:
            raise
        raise ValueError(said) from error
    return _checked(activations, found, create_graph=create_graph)


def _checked(
    activations: Mapping[str, Tensor], found: Sequence[Tensor | None], *, create_graph: bool
) -> list[Tensor]:
    """Gradients, one for every activation, that can be differentiated where that is asked for."""
    _check_reached(activations, found)
    swept = [gradient for gradient in found if gradient is not None]
    if create_graph:
        _check_differentiable(swept)
    return swept


def _check_differentiable(gradients: Sequence[Tensor]) -> None:
    """Refuse a gradient that cannot be differentiated in turn, where it is made and not where somebody tries."""
    waiting = [gradient.grad_fn for gradient in gradients if gradient.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.name().endswith("NotImplemented"):
            raise ValueError(
                "an operation of the network cannot be differentiated twice, as denominator='full' asks: fused "
                "attention, for one, which torch.nn.attention.sdpa_kernel(SDPBackend.MATH) around the forward pass "
                "replaces. Or take denominator='detach'."
            )
        fresh = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= fresh
        waiting.extend(fresh)


def _batched(
    root: Tensor, activations: Mapping[str, Tensor], starts: Tensor, *, create_graph: bool
) -> list[Tensor] | None:
    """All sweeps at once, or None where an operation of the network does not allow that."""
    try:
        found = torch.autograd.grad(
            root, list(activations.values()), starts,
            retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True,
        )  # fmt: skip
    except RuntimeError:  # one by one, the same error is said again if it is not about vectorising
        return None
    return _checked(activations, found, create_graph=create_graph)


def _check_reached(activations: Mapping[str, Tensor], gradients: Sequence[Tensor | None]) -> None:
    for name, gradient in zip(activations, gradients, strict=True):
        if gradient is None:
            raise ValueError(
                f"layer {name!r} has no part in these logits, so there is no distance at it. Name a layer before "
                "the head whose output is not detached; nn.DataParallel and torch.compile hand out copies, so "
                "use them without."
            )
