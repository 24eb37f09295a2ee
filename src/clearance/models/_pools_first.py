"""Maps that are pooled before they are rectified, where a network does it the other way round: the same numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from torch import nn

from clearance.models._channels_last import only_known_parts


@contextmanager
def pools_before_rectifiers(module: nn.Module) -> Iterator[None]:
    """The largest of some values, rectified, is the largest of the rectified: exactly, and so are all gradients.

    A rectifier behind a pool of 2 x 2 has a quarter of the values to look at, forward and backward: of a sweep down to
    the images of a small network a tenth. Names of layers point elsewhere meanwhile, so no layer may be asked for.
    Nothing changes in a network with parts of the user's own, which might reach for one of these layers, nor around a
    layer with a hook.
    """
    swapped = [
        (parts, *pair)
        for parts in _chains(module)
        for pair in pairwise(parts)
        if _is_rectified_then_pooled(*(parts[name] for name in pair))
    ]
    for parts, first, second in swapped:
        parts[first], parts[second] = parts[second], parts[first]
    try:
        yield
    finally:
        for parts, first, second in swapped:
            parts[first], parts[second] = parts[second], parts[first]


def _chains(module: nn.Module) -> list[dict[str, nn.Module]]:
    """What runs one after the other."""
    parts = list(module.modules())
    compiled = any(part._compiled_call_impl is not None for part in parts)
    if compiled or not only_known_parts(module):
        return []
    return [part._modules for part in parts if type(part) is nn.Sequential]


def _is_rectified_then_pooled(first: nn.Module, second: nn.Module) -> bool:
    usual = type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices
    return usual and not (_has_hooks(first) or _has_hooks(second))


def _has_hooks(part: nn.Module) -> bool:
    return any((part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks))
