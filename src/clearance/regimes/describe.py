"""Settings as JSON values that can be compared: the fingerprint of a run that was configured in Python."""

import dataclasses
import hashlib
from collections.abc import Iterable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

from clearance.runs import digest

LIBRARIES = ("torch.", "clearance.", "builtins", "abc", "typing", "functools")
_SCALAR = (type(None), str, int, float, bool)


def describe(thing: Any) -> Any:
    """A tree of JSON values that changes when a setting changes, and is the same in every process.

    Functions are known by name, byte code and the values they were made with (defaults, what they close over,
    plain module constants), modules by their form and the attributes of every part (parameters and buffers
    are compared apart), everything else by its parts. What a function or method of the caller's own calls is known
    by code and constants, too, where it is a function outside the libraries; what that calls in turn by name only.

    >>> import torch
    >>> describe(partial(torch.optim.SGD, lr=0.1))
    {'function': 'torch.optim.sgd.SGD', 'keywords': {'lr': 0.1}}
    >>> describe(lambda x: x + 1) == describe(lambda x: x + 2)
    False
    """
    return _described(thing, frozenset())


def _described(thing: Any, above: frozenset[int]) -> Any:
    if isinstance(thing, _SCALAR):
        return thing
    if id(thing) in above:
        return f"{_name(type(thing))} that holds this"
    parts = _parts(thing)
    below = above | {id(thing)}
    if isinstance(parts, dict):
        return {str(key): _described(value, below) for key, value in parts.items()}
    if isinstance(parts, list):
        return [_described(value, below) for value in parts]
    return parts


def _parts(thing: Any) -> dict | list | str:
    """What `thing` consists of, one level down; a word where it has no parts."""
    if isinstance(thing, dict):
        return thing
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, set | frozenset):
        return sorted(map(repr, thing))  # their own order changes from process to process
    if isinstance(thing, Tensor):
        return {"tensor": digest([("", thing)])}
    if isinstance(thing, np.ndarray):
        return {
            "array": hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest(),
            "shape": thing.shape,
        }
    if isinstance(thing, nn.Module):
        return _module_parts(thing)
    if isinstance(thing, partial | FunctionType | MethodType):
        return _function_parts(thing)
    return _object_parts(thing)


def _object_parts(thing: Any) -> dict | str:
    if hasattr(thing, "__qualname__"):  # a class, or a function that is not written in Python
        return _name(thing)
    if dataclasses.is_dataclass(thing):
        fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        return {"type": _name(type(thing))} | _written(thing) | fields
    if type(thing).__repr__ is object.__repr__:  # which would show an address, different in every process
        return {"type": _name(type(thing))} | _written(thing) | getattr(thing, "__dict__", {})
    return repr(thing)


def _module_parts(module: nn.Module) -> dict[str, Any]:
    own = {"module": _name(type(module)), "form": repr(module), **_written(module), **_attributes(module)}
    # torch's own layers show their settings in the form
    written = [(name, part) for name, part in module.named_modules() if name and not _is_torchs(part)]
    parts = {n: {"module": _name(type(part)), **_written(part), **_attributes(part)} for n, part in written}
    return own | ({"parts": parts} if parts else {})


def _written(thing: Any) -> dict[str, Any]:
    """The code of every method that a class outside torch and Clearance brings: editing it is a change."""
    classes = [kind for kind in type(thing).__mro__ if not kind.__module__.startswith(LIBRARIES)]
    written = {
        f"{kind.__qualname__}.{name}": value
        for kind in classes
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType)
    }
    methods = {name: _code(value) for name, value in written.items()}
    read = {name: found for name, value in written.items() if (found := _read(value))}
    return ({"methods": methods} if methods else {}) | ({"read": read} if read else {})


def _code(function: FunctionType) -> str:
    return hashlib.sha256(_text(function.__code__).encode()).hexdigest()[:16]


def _read(function: FunctionType, *, deeper: bool = True) -> dict[str, Any]:
    """What a function reads of its module: plain constants, and the code of its own helpers with their constants."""
    known = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    constants = {name: value for name, value in known.items() if type(value) in _SCALAR[1:]}
    own = {
        name: value
        for name, value in known.items()
        if isinstance(value, FunctionType) and not (value.__module__ or "").startswith(LIBRARIES)
    }
    helpers = {
        name: {"code": _code(value), **_read(value, deeper=False)} for name, value in own.items() if deeper
    }
    return {key: value for key, value in (("constants", constants), ("helpers", helpers)) if value}


def _attributes(module: nn.Module) -> dict[str, Any]:
    # "training" is a mode, not a setting.
    return {name: v for name, v in vars(module).items() if not name.startswith("_") and name != "training"}


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _function_parts(thing: partial | FunctionType | MethodType) -> dict[str, Any]:
    if isinstance(thing, partial):
        positional = {"arguments": thing.args} if thing.args else {}
        return {"function": thing.func, "keywords": thing.keywords} | positional
    function = thing.__func__ if isinstance(thing, MethodType) else thing
    assert isinstance(function, FunctionType)
    code = function.__code__
    made_with = {
        "of": thing.__self__ if isinstance(thing, MethodType) else None,
        "defaults": [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()],
        "closure": dict(zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True)),
        **_read(function),
    }
    return {"function": _name(function), "code": _code(function)} | {k: v for k, v in made_with.items() if v}


def _text(code: CodeType) -> str:
    """Byte code with the names and constants that its numbers stand for."""
    return repr((code.co_code.hex(), code.co_names, [_constant(value) for value in code.co_consts]))


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _text(value)
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
