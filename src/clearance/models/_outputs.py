"""Logits inside what a module returns: the tensor itself, an object's `.logits`, one entry of several."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def logits_entries(output: Any) -> dict[str, Tensor]:
    """The tensors of an output that may be its logits, by name; one where it is clear which.

    A tensor is itself. An attribute or key `logits` is taken alone, as the libraries that return objects call it
    (whatever else they return: a loss, hidden states, an auxiliary head's logits). Of anything else, every tensor.

    >>> import torch
    >>> list(logits_entries({"logits": torch.zeros(2, 3), "aux": torch.zeros(2, 3)}))
    ['logits']
    >>> list(logits_entries((torch.zeros(2, 3), torch.zeros(2, 4))))
    ['0', '1']
    """
    if isinstance(output, Tensor):
        return {"": output}
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return {"logits": named}
    if isinstance(output, Mapping):
        entries = {str(name): value for name, value in output.items()}
    elif isinstance(output, (tuple, list)):
        entries = dict(zip(getattr(output, "_fields", map(str, range(len(output)))), output, strict=True))
    else:
        entries = {}
    return {name: value for name, value in entries.items() if isinstance(value, Tensor)}


def entry_made_by(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor | None:
    """The one entry that the head made, to the bit; None where there is none or more than one.

    >>> one, two = torch.zeros(2, 3), torch.ones(2, 3)
    >>> entry_made_by(torch.ones(2, 3), {"0": one, "1": two}) is two
    True
    """
    equal = [each for each in entries.values() if each.shape == logits.shape and torch.equal(each, logits)]
    return equal[0] if len(equal) == 1 else None
