"""Settings as JSON values and weights as a digest, so that what was measured has a name."""

import ast
import dataclasses
import hashlib
import inspect
import json
from argparse import Namespace
from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from textwrap import dedent
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter

_LIBRARIES = {"torch", "clearance", "builtins", "abc", "typing", "functools"}
_NO_SOURCE = "no source"
"""Replaces the hash of a function whose source Python cannot find; such functions cannot be compared."""
_OTHER, _DEEPEST = object(), 8
_SCALAR = (type(None), str, int, float, bool)
_DTYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


def describe(thing: Any) -> Any:
    """A tree of JSON values that changes when a setting changes, and is the same in every process.

    A function is described by its name, its source, its defaults, its closure and the plain values of its module
    that it reads: numbers and text, also in a tuple, dictionary, namespace or dataclass (a list is often a record).
    Functions that it calls are described by source and such values if they are not from torch, Clearance or the
    standard library; functions that those call are not followed. A module is described by its repr and the public
    attributes of every part and its class (private ones are often caches); parameters and buffers are compared
    separately (`digest`). Everything else is described by its parts, or by its repr if its class writes one. Comments
    and layout of a source do not count. A function without source (made by ``exec``, for example) has ``"no source"``
    in its place.

    >>> import torch
    >>> describe(partial(torch.optim.SGD, lr=0.1))
    {'function': 'torch.optim.sgd.SGD', 'keywords': {'lr': 0.1}}
    >>> describe(lambda x: x + 1) == describe(lambda x: x + 2)
    False
    """
    return _described(thing, frozenset())


def digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, dtypes, shapes and values of `tensors`: equal for equal weights only.

    Args:
        tensors: Pairs such as ``module.state_dict().items()``; their order, device and layout in memory
            make no difference.

    Returns:
        64 hexadecimal digits, the same on every machine with the usual (little-endian) byte order.

    Raises:
        ValueError: A name occurs twice, or a tensor is sparse, quantised or complex.

    Values are compared as bits: 0.0 and -0.0 differ, and weights computed on another machine are
    rarely equal.

    >>> first = digest([("weight", torch.ones(2)), ("bias", torch.zeros(1))])
    >>> first == digest([("bias", torch.zeros(1)), ("weight", torch.ones(2))])
    True
    >>> first == digest([("weight", torch.ones(1, 2)), ("bias", torch.zeros(1))])
    False
    """
    pairs = list(tensors)
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the names in `tensors` must differ; got {', '.join(twice)} more than once.")
    found = hashlib.sha256()
    for name in sorted(by_name):
        tensor = snapshot(by_name[name], name)
        # the header fixes how many bytes follow, so that no two lists of tensors give the same bytes
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def snapshot(tensor: Tensor, name: str) -> Tensor:
    """A copy of `tensor` on the CPU, in the memory order of ``tensor.clone()``.

    Raises:
        ValueError: safetensors cannot store its class, layout or dtype.
    """
    if (
        type(tensor) not in (Tensor, Parameter)
        or tensor.layout != torch.strided
        or tensor.dtype not in _DTYPES
        or tensor.is_meta
    ):
        got = type(tensor).__name__
        if isinstance(tensor, Tensor):
            got += f" of {tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise ValueError(
            f"`{name}` must be a dense tensor of a real dtype of at least 8 bits that holds "
            f"data; got {got}. Convert it first, or leave it out."
        )
    return tensor.detach().to("cpu", copy=True)


def unsourced(description: Any, name: str = "") -> list[str]:
    """Dotted paths in a description where a source is missing.

    >>> unsourced({"way": {"function": "mine.build", "code": "no source"}, "seed": 0})
    ['way.code']
    """
    if isinstance(description, dict):
        below = [unsourced(value, f"{name}.{key}" if name else key) for key, value in description.items()]
        return [place for part in below for place in part]
    if isinstance(description, list):
        return [
            place for index, value in enumerate(description) for place in unsourced(value, f"{name}[{index}]")
        ]
    return [name] if description == _NO_SOURCE else []


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def code_of(thing: Any) -> dict[str, Any]:
    """The code of every method that a class outside torch and Clearance defines, as hashes: editing it is a change.

    >>> code_of(torch.nn.Linear(2, 2))
    {}
    """
    classes = [kind for kind in type(thing).__mro__ if not _is_library(kind.__module__)]
    written, constants = {}, {}
    for kind in classes:
        fields = vars(kind).get("__dataclass_fields__", {})  # their values are the instance's
        for name, value in vars(kind).items():
            where, function = f"{kind.__qualname__}.{name}", _function_of(value)
            if function is not None and not _is_generated(kind, function):
                written[where] = function
            elif name.startswith("_") or name in fields or isinstance(value, list | set | dict):
                continue  # private, of the instance, or a record that runs write into
            elif (plain := _plain(value)) is not _OTHER:
                constants[where] = plain
    methods = {name: _code(value) for name, value in written.items()}
    read = {name: found for name, value in written.items() if (found := _read(value))}
    found = {"methods": methods, "read": read, "constants": constants}
    return {name: value for name, value in found.items() if value}


def _function_of(attribute: Any) -> FunctionType | None:
    """The function behind what a class holds: a method of any kind, or a property."""
    for name in ("__func__", "fget", "func"):
        attribute = getattr(attribute, name, attribute)
    return attribute if isinstance(attribute, FunctionType) else None


def _plain(value: Any, wanted: frozenset[str] = frozenset(), depth: int = 0) -> Any:
    """`value` without all that is neither a number nor text; `_OTHER` if nothing is left.

    Of a dictionary, namespace or dataclass, only the entries that are `wanted`, if any of them is.
    """
    if isinstance(value, _SCALAR):
        return value
    if depth == _DEEPEST:  # it may contain itself
        return _OTHER
    if isinstance(value, PurePath | np.generic):
        return str(value)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        parts = [plain for one in value if (plain := _plain(one, wanted, depth + 1)) is not _OTHER]
        return parts or _OTHER
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, Namespace | SimpleNamespace):
        value = vars(value)
    if not isinstance(value, dict):
        return _OTHER
    chosen = {key: one for key, one in value.items() if key in wanted} or value
    entries = {
        str(key): plain
        for key, one in chosen.items()
        if (plain := _plain(one, wanted, depth + 1)) is not _OTHER
    }
    return entries or _OTHER


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


def _parts(thing: Any) -> dict[str, Any] | list[Any] | str:
    """The parts of `thing`, one level down; a string if it has none."""
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


def _object_parts(thing: Any) -> dict[str, Any] | str:
    if hasattr(thing, "__qualname__"):  # a class, or a function that is not written in Python
        return _name(thing)
    if dataclasses.is_dataclass(thing):
        fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        return {"type": _name(type(thing))} | code_of(thing) | fields
    if type(thing).__repr__ is object.__repr__:  # it would show an address, different in every process
        return {"type": _name(type(thing))} | code_of(thing) | getattr(thing, "__dict__", {})
    return repr(thing)


def _module_parts(module: nn.Module) -> dict[str, Any]:
    own = {"module": _name(type(module)), "form": repr(module), **code_of(module), **_attributes(module)}
    # the repr of torch's own layers shows their settings
    written = [(name, part) for name, part in module.named_modules() if name and not _is_torchs(part)]
    parts = {n: {"module": _name(type(part)), **code_of(part), **_attributes(part)} for n, part in written}
    return own | ({"parts": parts} if parts else {})


def _attributes(module: nn.Module) -> dict[str, Any]:
    # "training" is a mode, not a setting.
    return {name: v for name, v in vars(module).items() if not name.startswith("_") and name != "training"}


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _function_parts(thing: partial[Any] | FunctionType | MethodType) -> dict[str, Any]:
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


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _is_generated(kind: type, method: FunctionType) -> bool:
    """Whether a dataclass generated the method from its fields, which are compared themselves."""
    made = inspect.unwrap(method).__code__.co_filename == "<string>"
    return made and method.__name__.startswith("__") and "__dataclass_fields__" in vars(kind)


def _code(function: FunctionType) -> str:
    """A hash of the source, without comments and layout."""
    try:
        source = _lambda_source(function) if function.__name__ == "<lambda>" else inspect.getsource(function)
    except (OSError, TypeError):
        return _NO_SOURCE
    try:
        source = ast.unparse(ast.parse(dedent(source)))
    except SyntaxError:  # a fragment, such as a lambda that ends in a parenthesis
        source = dedent(source)
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _lambda_source(function: FunctionType) -> str:
    """Only the expression of a lambda; its line may hold others.

    Raises:
        OSError: If there is no source.
    """
    lines = [line.encode() for line in inspect.findsource(function)[0]]
    known = [place for place in function.__code__.co_positions() if None not in place]
    places: list[Any] = [place for place in known if place[2:3] < place[3:4]]  # the entry has no width
    if not places:
        raise OSError(f"no positions in the code of {function.__qualname__}")
    first, start = min((line, column) for line, _, column, _ in places)
    last, end = max((line, column) for _, line, _, column in places)
    if last > len(lines):
        raise OSError(f"the source of {function.__qualname__} has changed")
    within = lines[first - 1 : last]
    within[-1] = within[-1][:end]
    within[0] = within[0][start:]
    return f"({b''.join(within).decode()})"


def _read(function: FunctionType, *, deeper: bool = True) -> dict[str, Any]:
    """What a function reads from its module: plain constants, and the code of helpers with their constants."""
    known = {
        name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__
    }
    own = {
        name: value
        for name, value in known.items()
        if isinstance(value, FunctionType) and not _is_library(value.__module__ or "")
    }
    helpers = {
        name: {"code": _code(value), **_read(value, deeper=False)} for name, value in own.items() if deeper
    }
    wanted = frozenset(word for one in (function, *own.values()) for word in _words(one.__code__))
    constants = {
        name: plain
        for name, value in known.items()
        if not isinstance(value, list | set | None) and (plain := _plain(value, wanted)) is not _OTHER
    }
    return {key: value for key, value in (("constants", constants), ("helpers", helpers)) if value}


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)


def _words(code: CodeType) -> Iterable[str]:
    """The names and texts in it: which entries of a dictionary or namespace it reads."""
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _words(value)
        elif isinstance(value, str):
            yield value


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
