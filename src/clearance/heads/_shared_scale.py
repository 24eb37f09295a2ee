"""Distances to all classes under one scale of each dimension, in one pass over the means and one back."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from clearance.heads._class_blocks import shared_scale, shared_scale_backward
from clearance.heads._class_rows import with_rows
from clearance.heads._remembered import Pass
from clearance.heads._transforms import as_in_forward, by_blocks, gradients_of, in_place
from clearance.heads.mahalanobis import half_distances


def shared_scale_pass(x: Tensor, means: Tensor, root: Tensor | None) -> Pass:
    """1/2 sum_d (root_d (x_d - mu_kd))^2 of samples (B, D) to classes (K, D); root (D,), or None where it is 1."""
    if not by_blocks(x, means, root):
        return Pass(_written_out(x, means, root), means)
    distances, means = _SharedScale.apply(x, means, root)
    return Pass(distances, means, joined=True)


class _SharedScale(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, means: Tensor, root: Tensor | None) -> tuple[Tensor, Tensor]:
        shift = means.mean(dim=0)
        distances = shared_scale(x, means, root, shift)
        ctx.save_for_backward(x, means, root, shift, distances)
        ctx.set_materialize_grads(False)
        return distances, means.view_as(means)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, shift, distances = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if not in_place(gradients):
            with as_in_forward(distances) as again:
                x, means = (one.view_as(one) for one in inputs[:2])
                root = None if inputs[2] is None else inputs[2].view_as(inputs[2])
                made = (_written_out(x, means, root), means)
                return tuple(gradients_of(made, (x, means, root), needed, gradients, again))
        of_distances = gradients[0]
        if of_distances is None:
            of_distances, needed = torch.zeros_like(distances), (False, *needed[1:])
        else:
            of_distances = of_distances.masked_fill(distances == 0, 0)
        of_x, of_means, of_root = shared_scale_backward(inputs, shift, needed, of_distances)
        return of_x, with_rows(of_means, gradients[1]), of_root


def _written_out(x: Tensor, means: Tensor, root: Tensor | None) -> Tensor:
    """The same by single operations."""
    if root is None:
        return half_distances(x, means)
    shift = means.detach().mean(dim=0)
    return half_distances((x - shift) * root, (means - shift) * root)
