"""A state as plain JSON and named tensors, and back to the same bits."""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearance._describe import snapshot

_SCALARS = (type(None), bool, int, float, str)
# state_dict() of a module is an OrderedDict, that of MultiStepLR holds a Counter
_MAPPINGS: dict[str, type[dict]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}


def flatten(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a state into a tree that JSON can hold and the tensors in it.

    Tensors are copied to the CPU, detached, and named after their place. The same view in several
    places (tied weights) is one tensor here, and again one after `unflatten`.

    Args:
        tree: Any nesting of dict (keys str or int), list, tuple, None, bool, int, float, str and dense
            tensors; also OrderedDict and Counter, which the state of modules and schedules contains.

    Returns:
        The tree and the tensors, each contiguous with its own memory, as safetensors needs.

    Raises:
        ValueError: The tree contains anything else, including subclasses; the message says where.

    Lost are: the graph, `requires_grad`, the device, an OrderedDict's attributes, and that two
    *different* views share memory (their values do survive). A tensor comes back laid out in memory as its
    ``clone()`` would be, because kernels may sum a transposed tensor in another order.

    >>> tree, tensors = flatten({0: (torch.ones(2), 0.1)})
    >>> tree
    {'dict': [[0, {'tuple': [{'tensor': 'state[0][0]', 'stride': [1]}, 0.1]}]]}
    >>> unflatten(tree, tensors)
    {0: (tensor([1., 1.]), 0.1)}
    """
    encoder = _Encoder()
    return encoder.encode(tree, "state"), encoder.tensors


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `flatten`, with new tensors on the CPU.

    Args:
        tree: The first value that `flatten` returned, possibly read back from JSON.
        tensors: The second, possibly read back from safetensors.

    Raises:
        ValueError: `tree` was not made by `flatten`, or `tensors` lacks one of its names.

    >>> unflatten(*flatten([1, (2.0, None)]))
    [1, (2.0, None)]
    """
    return _decode(tree, tensors, {})


class _Encoder:
    """One walk through a tree; remembers which views it has met."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple, str] = {}

    def encode(self, node: Any, path: str) -> Any:
        if isinstance(node, np.generic):  # a learning rate that NumPy computed
            node = node.item()
        kind = type(node)
        if kind in _SCALARS:
            return node
        if kind is list:
            return self._items(node, path)
        if kind is tuple:
            return {"tuple": self._items(node, path)}
        if kind in _MAPPINGS.values():
            pairs = [[_key(key, path), self.encode(item, f"{path}[{key!r}]")] for key, item in node.items()]
            return {kind.__name__: pairs}
        if isinstance(node, Tensor):
            return self._tensor(node, path)
        raise ValueError(
            f"`{path}` must be a dict, list, tuple, None, bool, int, float, str or tensor; got "
            f"{kind.__module__}.{kind.__qualname__}. Convert it first, or leave it out."
        )

    def _items(self, items: list | tuple, path: str) -> list:
        return [self.encode(item, f"{path}[{index}]") for index, item in enumerate(items)]

    def _tensor(self, tensor: Tensor, path: str) -> dict[str, Any]:
        copy = snapshot(tensor, path)
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device)
        name = self._names.setdefault((*place, tensor.dtype, tensor.is_neg()), path)
        self.tensors.setdefault(name, copy.contiguous())
        return {"tensor": name, "stride": list(copy.stride())}


def _key(key: Any, path: str) -> str | int:
    if type(key) not in (str, int):
        raise ValueError(f"the keys of `{path}` must be str or int; got {key!r}. Convert it first.")
    return key


def _decode(node: Any, tensors: Mapping[str, Tensor], restored: dict[str, Tensor]) -> Any:
    if type(node) in _SCALARS:
        return node
    if isinstance(node, list):
        return [_decode(item, tensors, restored) for item in node]
    if "tensor" in node:
        return _restore(node["tensor"], node["stride"], tensors, restored)
    ((tag, items),) = node.items()
    if tag == "tuple":
        return tuple(_decode(item, tensors, restored) for item in items)
    if tag not in _MAPPINGS:
        raise ValueError(f"`tree` must be made by `flatten`; got a node {tag!r}. Write the state again.")
    return _MAPPINGS[tag]({key: _decode(item, tensors, restored) for key, item in items})


def _restore(
    name: str, stride: list[int], tensors: Mapping[str, Tensor], restored: dict[str, Tensor]
) -> Tensor:
    if name not in tensors:
        raise ValueError(f"`tensors` must hold every tensor of the tree; got none called {name!r}.")
    if name not in restored:
        # also moves the values into memory aligned by torch: a file's buffer can start anywhere, and some
        # kernels then sum in another order
        stored = tensors[name]
        restored[name] = torch.empty_strided(stored.shape, stride, dtype=stored.dtype).copy_(stored)
    return restored[name]
