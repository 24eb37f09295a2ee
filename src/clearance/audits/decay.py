"""Which parameters an optimiser lets decay, how strongly, and in which of the two ways."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

# older torches lack some
DECOUPLED = tuple(
    kind for name in ("AdamW", "Adafactor", "Muon") if (kind := getattr(torch.optim, name, None)) is not None
)
How = Literal["coupled", "decoupled", "none"]


@dataclass(frozen=True)
class Decay:
    """Of one parameter.

    Args:
        name: As in ``named_parameters()``.
        weight_decay: The optimiser's factor; 0 where the parameter does not decay or is not the optimiser's.
        how: ``"coupled"``: the penalty's gradient is added to the loss's, and goes through momentum and step sizes.
            ``"decoupled"``: the parameter shrinks by itself, by step size times factor. ``"none"``: neither.
        role: ``"weight"`` (two axes or more), or ``"bias or gain"``.
    """

    name: str
    weight_decay: float
    how: How
    role: Literal["weight", "bias or gain"]


def decayed_parameters(model: nn.Module, optimizer: Optimizer) -> tuple[Decay, ...]:
    """What weight decay does to every parameter of a network.

    Without momentum and with one step size both ways are the same, (1 - lr decay) W; with momentum, or step sizes of
    each parameter's own, they are not (Loshchilov and Hutter, 2019). Torch's ``weight_decay`` is coupled, but in AdamW,
    Adafactor and Muon, and where a group says ``decoupled_weight_decay``; other libraries' is taken for coupled unless
    a group says so. What a penalty within the loss does is not seen here.

    Args:
        model: Whose parameters.
        optimizer: Of torch; of its groups ``weight_decay`` is read.

    >>> import torch
    >>> found = decayed_parameters(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters(), weight_decay=0.1))
    >>> [(one.name, one.how) for one in found]                                # another network's optimiser
    [('weight', 'none'), ('bias', 'none')]
    """
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    found = []
    for name, parameter in model.named_parameters():
        group = groups.get(id(parameter))
        factor = (
            0.0 if group is None or not parameter.requires_grad else float(group.get("weight_decay", 0.0))
        )
        decoupled = group is not None and bool(
            group.get("decoupled_weight_decay", isinstance(optimizer, DECOUPLED))
        )
        how: How = "none" if factor == 0 else "decoupled" if decoupled else "coupled"
        found.append(Decay(name, factor, how, "weight" if parameter.ndim >= 2 else "bias or gain"))
    return tuple(found)
