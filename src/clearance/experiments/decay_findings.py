"""Which parameters of a run were let decay, and how: what a page on the size of weights says beside them."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer

from clearance.audits import Findings, WeightScale
from clearance.audits.weight_scale import decayed_parameters
from clearance.models import Classifier
from clearance.regimes import Regime
from clearance.vocabulary import Exhibit


def decay_findings(model: Classifier, regime: Regime, build: Callable[..., Optimizer]) -> Findings:
    """A row for each parameter of the network: what the optimiser of the run does to it.

    Args:
        model: The network.
        regime: Says which parameters are moved.
        build: Makes the optimiser from them, as it was made for training.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> from clearance.objectives import CrossEntropyLoss
    >>> from clearance.regimes import EndToEnd
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> build = lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1)
    >>> decay_findings(model, EndToEnd(CrossEntropyLoss()), build).exhibits[0].columns["how"]
    ['decoupled', 'decoupled']
    """
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    rows = decayed_parameters(model, build(list(regime.trainable(model))))
    columns: dict[str, Sequence[Any]] = {
        "name": [row.name for row in rows],
        "role": [row.role for row in rows],
        "numbers": [sizes[row.name] for row in rows],
        "weight_decay": [row.weight_decay for row in rows],
        "how": [row.how for row in rows],
    }
    caption = "What weight decay did to each parameter of the network while it was trained."
    return Findings((), (Exhibit(WeightScale.name, "decay", "curve", columns, caption),))
