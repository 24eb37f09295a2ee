"""What is known so far of first-order distances at the input, and what is worth knowing next."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearance.audits._pair_norms import PairNorms, chance_nearer
from clearance.geometry.first_order import first_order_distance


@dataclass(frozen=True)
class KnownRivals:
    """A row for each image, a column for each of its rivals; filled in place as sweeps go on.

    Args:
        labels: y, (N,).
        rivals: Class of each column, (N, k).
        gaps: z_y - z_j, (N, k).
        anchors: Something that goes along with the norms and costs no sweep, above 0, (N, k).
        norms: Dual norm of the gradient of each gap, (N, k), where it is measured.
        measured: Where that is, (N, k).
        classes: C.
    """

    labels: Tensor
    rivals: Tensor
    gaps: Tensor
    anchors: Tensor
    norms: Tensor
    measured: Tensor
    classes: int

    @classmethod
    def nothing(cls, labels: Tensor, columns: int, classes: int) -> "KnownRivals":
        """Room for so many rivals of each image."""
        shape = (len(labels), columns)
        gaps, anchors, norms = (labels.new_zeros(shape, dtype=torch.float64) for _ in range(3))
        measured = labels.new_zeros(shape, dtype=torch.bool)
        return cls(labels, labels.new_zeros(shape), gaps, anchors, norms, measured, classes)

    def rows(self, rows: Tensor) -> "KnownRivals":
        """A copy of some rows."""
        return KnownRivals(
            self.labels[rows],
            self.rivals[rows],
            self.gaps[rows],
            self.anchors[rows],
            self.norms[rows],
            self.measured[rows],
            self.classes,
        )

    def forgotten(self) -> "KnownRivals":
        """The same without any norm."""
        return replace(self, measured=torch.zeros_like(self.measured))

    @property
    def ratios(self) -> Tensor:
        """Log n - log a where n is measured, a number and not 0; NaN elsewhere."""
        ratios = self.norms.log() - self.anchors.log()
        return torch.where(self.measured & ratios.isfinite(), ratios, math.nan)

    @property
    def distances(self) -> Tensor:
        """Signed; infinite where nothing is measured, and where it is no number, which is no distance."""
        found = first_order_distance(self.gaps, self.norms).nan_to_num(math.inf, math.inf, -math.inf)
        return torch.where(self.measured, found, math.inf)

    def fitted(self) -> PairNorms | None:
        """A forecast for other images from these, all of them measured; None where a norm is 0 or no number."""
        if bool(self.ratios.isnan().any()):
            return None
        return PairNorms.fit(self.ratios, self.labels, self.rivals, self.classes)

    def promising(self, forecast: PairNorms, count: int) -> Tensor:
        """The columns not measured that are nearest by expectation, (N, count)."""
        mean, _ = forecast.forecast(self.ratios, self.labels, self.rivals)
        expected = (self.gaps / (self.anchors * mean.exp())).nan_to_num(-math.inf)
        return expected.masked_fill(self.measured, math.inf).topk(count, dim=1, largest=False).indices

    def doubts(self, forecast: PairNorms) -> Tensor:
        """The chance that a rival not measured is nearer than all that are, at most: summed over them, (N,)."""
        mean, deviation = forecast.forecast(self.ratios, self.labels, self.rivals)
        best = self.distances.amin(dim=1)
        chances = chance_nearer(self.gaps, self.anchors.log() + mean, deviation, best).nan_to_num(1.0)
        return chances.masked_fill(self.measured, 0.0).sum(dim=1)
