"""The gradient at images of one channel: one product with the first convolution's weight, and a sum of patches.

Kernels for gradients of a convolution's input work on blocks of eight channels or more, so that one channel costs as
much as eight. It can be half of what a sweep down to MNIST's images costs, and plain training never asks for it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn.functional import fold

NORMALISING = {f"{name}Backward0" for name in ("Sub", "Add", "Mul", "Div", "Clone")}
"""What may lie between images and their first convolution: it leaves their size as it is."""
LARGEST = 5
"""Pixels of a filter, to the number of filters: patches take so many times the memory of what the convolution gives."""


class FirstConvolution(NamedTuple):
    """Where a backward pass to the images may stop early, and how to go on from there.

    Nothing that the graph has saved is read: under checkpointing that would compute the whole stage again. So a weight
    that was changed in place after the forward pass is not noticed, as autograd would.
    """

    node: Any
    weight: Tensor
    images: Tensor

    @property
    def output(self) -> GradientEdge:
        """Where to ask for a gradient, (..., B, C, H, W), that `at_images` takes."""
        return GradientEdge(self.node, 0)

    def at_images(self, gradient: Tensor, *, create_graph: bool = False) -> Tensor:
        """The gradient at the images, (..., B, 1, H, W), from that at the convolution's output."""
        with torch.set_grad_enabled(create_graph):
            slope = self._at_entered(gradient)
        entered = GradientEdge(*self.node.next_functions[0])
        if entered.node is get_gradient_edge(self.images).node:
            return slope
        (found,) = torch.autograd.grad(
            [entered], self.images, slope,
            retain_graph=True, create_graph=create_graph, is_grads_batched=slope.ndim > 4,
        )  # fmt: skip
        return found

    def _at_entered(self, gradient: Tensor) -> Tensor:
        """The gradient at what the convolution reads."""
        many, size = gradient.flatten(end_dim=-4).flatten(2), self.images.shape[1:]
        # `weight @ many` would copy all of `many` for the sake of a weight that requires a gradient.
        products = torch.bmm(self.weight.flatten(1).mT.expand(len(many), -1, -1), many)
        patches = fold(
            products, size[1:], self.weight.shape[2:],
            dilation=self.node._saved_dilation, padding=self.node._saved_padding, stride=self.node._saved_stride,
        )  # fmt: skip
        return patches.reshape(*gradient.shape[:-3], *size)


def first_convolution(root: Tensor, images: Tensor) -> FirstConvolution | None:
    """The one convolution through which these images enter, where its gradient is worth a way of its own.

    None for images that are no leaf of one channel on the CPU, that enter at several places or through more than a
    normalisation, in half precision, or for filters that are frozen or computed.
    """
    grey = images.is_leaf and images.requires_grad and images.ndim == 4 and images.shape[1] == 1
    if not grey or images.device.type != "cpu" or images._backward_hooks or root.grad_fn is None:
        return None
    node: Node = get_gradient_edge(images).node
    readers = _readers(root.grad_fn)
    while len(readers.get(node, ())) == 1:
        below, node = node, readers[node][0]
        if node.name() == "ConvolutionBackward0":
            weight = _plain_weight(node, below) if _size_of(below) in (None, tuple(images.shape)) else None
            return None if weight is None else FirstConvolution(node, weight, images)
        if node.name() not in NORMALISING:
            return None
    return None


def _size_of(node: Any) -> tuple[int, ...] | None:
    """The shape of what a node gives, where torch tells it: what is added to images may have made them larger."""
    known = getattr(node, "_input_metadata", ())
    return tuple(known[0].shape) if known else None


def _readers(root: Node) -> dict[Node, list[Node]]:
    """Of every node behind the root: who asks it for its value."""
    readers: dict[Node, list[Node]] = {}
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        for child in {child for child, _ in node.next_functions if child is not None}:
            readers.setdefault(child, []).append(node)
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return readers


def _plain_weight(node: Any, below: Node) -> Tensor | None:
    """The filters of a convolution of images of one channel in full precision, as `fold` can undo it."""
    entering = [place for place, (child, _) in enumerate(node.next_functions) if child is below]
    unusual = node._saved_transposed or node._saved_groups != 1 or len(node._saved_stride) != 2
    filters = node.next_functions[1][0]
    if entering != [0] or unusual or filters is None or not hasattr(filters, "variable"):
        return None
    weight: Tensor = filters.variable
    fits = weight.shape[1] == 1 and weight.dtype in (torch.float32, torch.float64)
    return weight if fits and weight[0].numel() <= LARGEST * len(weight) else None
