"""Settings in words that can be compared: the fingerprint of a run that was configured in Python."""

import dataclasses
import hashlib
from functools import partial
from typing import Any

import torch
from torch import nn


def describe(thing: Any) -> Any:
    """A tree of JSON values that changes when a setting changes.

    Functions are known by name and byte code, modules by their form and plain attributes (their tensors are
    compared apart), partial functions and dataclasses by their parts.

    >>> describe(partial(torch.optim.SGD, lr=0.1))
    {'function': 'torch.optim.sgd.SGD', 'keywords': {'lr': 0.1}}
    """
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if isinstance(thing, dict):
        return {str(key): describe(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [describe(value) for value in thing]
    if isinstance(thing, nn.Module):
        return {"module": _name(type(thing)), "form": repr(thing), **_plain_attributes(thing)}
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {f.name: describe(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
        return {"type": _name(type(thing)), **fields}
    if isinstance(thing, partial):
        described = {"function": _name(thing.func), "keywords": describe(thing.keywords)}
        return described | ({"arguments": describe(thing.args)} if thing.args else {})
    if callable(thing):
        return _described_function(thing)
    return repr(thing)


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _described_function(thing: Any) -> Any:
    code = getattr(thing, "__code__", None)
    if code is None:
        return _name(thing) if hasattr(thing, "__qualname__") else repr(type(thing))
    content = code.co_code + repr([c for c in code.co_consts if not hasattr(c, "co_code")]).encode()
    return {"function": _name(thing), "code": hashlib.sha256(content).hexdigest()[:16]}


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    # "training" is a mode, not a setting.
    plain = {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
    return {k: describe(v) for k, v in plain.items() if isinstance(v, str | int | float | bool | tuple)}
