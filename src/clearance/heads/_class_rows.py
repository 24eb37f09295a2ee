"""Rows of a table of classes whose gradients join one that is written anyway, in place of a table of their own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from clearance.heads._transforms import in_place


def joined_rows(table: Tensor, labels: Tensor) -> Tensor:
    """The row of each label, (B, D), of a table that went through a pass: its gradient is B rows."""
    found: Tensor = _Rows.apply(table, labels)
    return found


class _Rows(Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(labels)
        ctx.shape = table.shape
        return table[labels]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (labels,) = ctx.saved_tensors
        if in_place([gradient]):
            return sparse_rows(gradient, labels, ctx.shape), None
        return gradient.new_zeros(ctx.shape).index_add(0, labels, gradient), None


def sparse_rows(rows: Tensor, labels: Tensor, shape: torch.Size) -> Tensor:
    """A table with these rows and zeros elsewhere."""
    return torch.sparse_coo_tensor(labels[None], rows, shape, check_invariants=False)


def with_rows(found: Tensor | None, rows: Tensor | None) -> Tensor | None:
    """A gradient and that of rows of it, which may be sparse, added in place; None where there is none."""
    if found is None or rows is None:
        return found
    if not rows.is_sparse:
        return found.add_(rows)
    labels = rows._indices()[0]
    if found.is_cuda:  # there index_add_ sums in no fixed order
        return found.index_put_((labels,), rows._values(), accumulate=True)
    return found.index_add_(0, labels, rows._values())
