"""A multi-layer head: linear layers with ReLU between them."""

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from clearance._checks import check_choice, check_count, check_fraction

Norm = Literal["none", "batch"]


class MLP(nn.Sequential):
    """Linear layers with ReLU between them, from features to logits.

    logits = W_L relu(... relu(W_1 features + b_1) ...) + b_L

    Args:
        widths: Feature width, hidden widths, number of classes; at least two. The heads of Sato et al.
            (2019), section 4, are ``(D, 128, 128, C)``.
        dropout: Probability in [0, 1) of dropping a hidden unit, after each ReLU.
        norm: ``"batch"`` puts batch normalisation between each hidden linear layer and its ReLU.

    Shapes:
        features (B, widths[0]); logits (B, widths[-1]).

    Raises:
        ValueError: If there are fewer than two widths, or a setting is out of range.

    >>> import torch
    >>> MLP((16, 8, 3))(torch.zeros(5, 16)).shape
    torch.Size([5, 3])
    """

    def __init__(self, widths: Sequence[int], dropout: float = 0.0, norm: Norm = "none") -> None:
        if len(widths) < 2:
            raise ValueError(
                f"`widths` must be at least two numbers, features and classes; got {tuple(widths)}."
            )
        for width in widths:
            check_count("widths", width)
        check_fraction("dropout", dropout, open_above=True)
        check_choice("norm", norm, ("none", "batch"))
        layers: list[nn.Module] = []
        for width_in, width_out in itertools.pairwise(widths[:-1]):
            layers.append(nn.Linear(width_in, width_out))
            if norm == "batch":
                layers.append(nn.BatchNorm1d(width_out))
            layers.append(nn.ReLU())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(widths[-2], widths[-1]))
        super().__init__(*layers)
        self.widths = tuple(widths)

    def __getitem__(self, idx: slice | int) -> Any:
        """One layer, or some of them as an ordinary `nn.Sequential`."""
        chosen = list(self._modules.items())[idx] if isinstance(idx, slice) else None
        return super().__getitem__(idx) if chosen is None else nn.Sequential(OrderedDict(chosen))
