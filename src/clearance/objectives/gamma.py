"""The margin that is asked for at each layer: given, or taken from the distances that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_fraction, check_positive

LEAST = 1e-12  # a margin is above 0, even where every distance is 0


@dataclass(frozen=True)
class GammaQuantile:
    """A margin from data: a quantile of the distances' sizes, averaged over the first batches.

    Units of hidden layers mean nothing in themselves; a quantile asks of every layer for what a part of the
    samples has there already. Absolute values are taken, to the nearest rival, because an untrained network
    has most samples on the wrong side. Our addition; Elsayed et al. (2018) search one gamma for all layers.

    Args:
        quantile: In (0, 1): the share of distances that are smaller. 0.5 is their median.
        batches: Steps over which it is averaged, at least 1; then it stays.

    >>> GammaQuantile(0.9).batches
    20
    """

    quantile: float = 0.5
    batches: int = 20

    def __post_init__(self) -> None:
        check_fraction("quantile", self.quantile, open_below=True, open_above=True)
        check_count("batches", self.batches)


Gamma = float | Mapping[str, float | GammaQuantile] | GammaQuantile


def gamma_of_layers(gamma: Any, layers: Sequence[str]) -> list[float | GammaQuantile]:
    """The setting for each layer; plain mappings of GammaQuantile's own settings are taken for one.

    >>> gamma_of_layers({"input": 0.5, "logits": {"quantile": 0.9}}, ("input", "logits"))
    [0.5, GammaQuantile(quantile=0.9, batches=20)]
    """
    if isinstance(gamma, Mapping) and "quantile" not in gamma:
        for name in gamma:
            check_choice("gamma", name, layers)
        missing = [name for name in layers if name not in gamma]
        if missing:
            raise ValueError(f"`gamma` must name every layer or be one number; it lacks {missing}.")
        return [_one(gamma[name]) for name in layers]
    return [_one(gamma) for _ in layers]


def _one(gamma: Any) -> float | GammaQuantile:
    if isinstance(gamma, Mapping):
        for name in gamma:
            check_choice("gamma", name, ("quantile", "batches"))
        return GammaQuantile(**gamma)
    if isinstance(gamma, GammaQuantile):
        return gamma
    check_positive("gamma", gamma)
    return float(gamma)


class LayerMargins(nn.Module):
    """Gamma of every layer; where it comes from data, what was seen is kept in buffers.

    Args:
        layers: One setting for each layer.
    """

    total: Tensor
    batches: Tensor

    def __init__(self, layers: Sequence[float | GammaQuantile]) -> None:
        super().__init__()
        self._layers = tuple(layers)
        self._seen: list[Tensor] = []
        if self.from_data:
            self.register_buffer("total", torch.zeros(len(layers)))
            self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @property
    def from_data(self) -> bool:
        """Whether any layer's margin is a quantile."""
        return any(isinstance(layer, GammaQuantile) for layer in self._layers)

    def forward(self, distances: Tensor) -> Tensor:
        """Gamma, (L,), for distances (L, k, B).

        This batch counts for the margins that are not settled yet, with all others until ``after_step``, as gradients
        that are accumulated do; one that is looked at without gradients or in evaluation mode does not.
        """
        given = [0.0 if isinstance(layer, GammaQuantile) else layer for layer in self._layers]
        gammas = distances.new_tensor(given)
        if not self.from_data:
            return gammas
        nearest = distances.detach().amin(dim=1).abs()
        seen, done = torch.zeros_like(gammas), int(self.batches)
        for place, layer in enumerate(self._layers):
            if isinstance(layer, GammaQuantile):
                finite = nearest[place][nearest[place].isfinite()]  # others know no boundary, near or far
                seen[place] = finite.quantile(layer.quantile) if len(finite) else LEAST
                before = self.total[place].to(gammas)
                settled = before / layer.batches
                now = (before + seen[place]) / (done + 1)
                gammas[place] = torch.clamp(settled if done >= layer.batches else now, min=LEAST)
        if torch.is_grad_enabled() and self.training:
            self._seen.append(seen)
        return gammas

    @torch.no_grad()
    def after_step(self) -> None:
        """Count the mean of what was seen since the last step, in all processes alike."""
        if not self._seen:
            return
        seen = torch.stack(self._seen).mean(dim=0).to(self.total)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(seen)
            seen /= dist.get_world_size()
        for place, layer in enumerate(self._layers):
            if isinstance(layer, GammaQuantile) and int(self.batches) < layer.batches:
                self.total[place] += seen[place]
        self.batches += 1
        self._seen.clear()
