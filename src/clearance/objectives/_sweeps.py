"""Norms of the gradients of class-pair gaps: one backward sweep a pair, for all layers at once.

A gradient at a shallow layer passes through the deeper ones anyway, so a sweep for each layer would repeat
work; and no gradient of a parameter is computed, because only activations are asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from clearance.geometry.first_order import dual_norm
from clearance.objectives._grey_images import FirstConvolution, first_convolution

Sweeps = Literal["auto", "sequential", "batched"]
_REMEDIES = {
    "checkpoint": "activations inside reentrant checkpointing have no gradient of their own; pass use_reentrant=False "
    "to torch.utils.checkpoint, which costs one more recomputation a sweep.",
    "donated buffer": "a compiled network throws away at its first backward pass what a margin's sweeps need again; "
    "set torch._functorch.config.donated_buffer = False before it is compiled, or train without torch.compile.",
    "double backward": "a compiled network cannot be differentiated twice, as denominator='full' and shortlists by "
    "projections ask; take denominator='detach' and top_k, or train without torch.compile.",
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
    ends = _Ends(root, activations)
    if together and len(starts) > 1:
        swept = _batched(root, ends, starts, create_graph=create_graph)
        if swept is not None:
            norms = [dual_norm(gradient, norm, leading=2) for gradient in swept]
            return {name: n * size for name, n in zip(activations, norms, strict=True)}
    rows = []
    for start in starts:
        found = _sweep(root, ends, start, create_graph=create_graph)
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
    return _sweep(root, _Ends(root, activations), start, create_graph=create_graph)


class _Ends:
    """Where sweeps from the root end: at the activations, but for grey images at the convolution they enter by."""

    def __init__(self, root: Tensor, activations: Mapping[str, Tensor]) -> None:
        self.activations = activations
        if not root.requires_grad:
            _check_reached(activations, [None] * len(activations))
        self._first: dict[str, FirstConvolution] = {}
        for name, tensor in activations.items():
            first = first_convolution(root, tensor)
            if first is not None:
                self._first[name] = first

    @property
    def asked(self) -> list[Any]:
        """What autograd is asked for."""
        return [self._first[n].output if n in self._first else t for n, t in self.activations.items()]

    def finished(self, found: Sequence[Tensor | None], *, create_graph: bool) -> list[Tensor]:
        """The gradients at the activations, from those at what was asked for."""
        _check_reached(self.activations, found)
        gradients = dict(zip(self.activations, (g for g in found if g is not None), strict=True))
        ended = {n: f.at_images(gradients[n], create_graph=create_graph) for n, f in self._first.items()}
        return list((gradients | ended).values())


def _sweep(root: Tensor, ends: _Ends, start: Tensor, *, create_graph: bool) -> list[Tensor]:
    try:
        found = torch.autograd.grad(
            root, ends.asked, start, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    except RuntimeError as error:
        said = next((remedy for sign, remedy in _REMEDIES.items() if sign in str(error).lower()), None)
        if said is None:
            raise
        raise ValueError(said) from error
    swept = ends.finished(found, create_graph=create_graph)
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
                "an operation of the network cannot be differentiated twice, as denominator='full' and shortlists by "
                "projections ask: fused attention, for one, which torch.nn.attention.sdpa_kernel(SDPBackend.MATH) "
                "around the forward pass replaces. Or take denominator='detach', and top_k."
            )
        fresh = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= fresh
        waiting.extend(fresh)


def _batched(root: Tensor, ends: _Ends, starts: Tensor, *, create_graph: bool) -> list[Tensor] | None:
    """All sweeps at once, or None where an operation of the network does not allow that."""
    try:
        found = torch.autograd.grad(
            root, ends.asked, starts,
            retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True,
        )  # fmt: skip
        swept = ends.finished(found, create_graph=create_graph)
    except RuntimeError:  # one by one, the same error is said again if it is not about vectorising
        return None
    if create_graph:
        _check_differentiable(swept)
    return swept


def _check_reached(activations: Mapping[str, Tensor], gradients: Sequence[Tensor | None]) -> None:
    for name, gradient in zip(activations, gradients, strict=True):
        if gradient is None:
            raise ValueError(
                f"layer {name!r} has no part in these logits, so there is no distance at it. Name a layer before "
                "the head whose output is not detached; nn.DataParallel and torch.compile hand out copies, so "
                "use them without."
            )
