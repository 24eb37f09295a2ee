"""The nearest boundary without a backward sweep for every rival: sweeps go where a nearer one is still likely."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.audits._known_rivals import KnownRivals
from clearance.audits._pair_norms import PairNorms, alive_norms
from clearance.models.classifier import Classifier
from clearance.objectives._class_pairs import class_gaps
from clearance.objectives._gap_gradients import GapGradients
from clearance.objectives._margin_layers import check_pairs, full_precision, margin_tensors
from clearance.objectives._sweeps import swept_norms
from clearance.objectives.shortlist import top_rivals
from clearance.tensors import Outputs

CHUNK = 64  # activations of so many 28 x 28 images stay in a processor's cache: two thirds of the time of 256 at once
AT_ONCE = 2  # sweeps of one forward pass
OF_FEW = 4  # the same where less than one chunk is left, and a forward pass costs more than a sweep too many
LEARNT = 256  # images of which all rivals are measured


@dataclass(frozen=True)
class LikelyRivals:
    """What was found.

    Args:
        known: Distances of all images, as far as they were measured.
        agreement: The share of images with all rivals measured whose nearest the same search finds too, with a
            forecast from others of them; None where all rivals of all images were measured.
        checked: Of how many.
    """

    known: KnownRivals
    agreement: float | None = None
    checked: int = 0


@dataclass(frozen=True)
class Sweeper:
    """Measures distances at the input.

    Args:
        model: In evaluation mode.
        images: In the model's precision, (N, C, H, W).
        norm: p.
        known: Filled, row by row.
    """

    model: Classifier
    images: Tensor
    norm: float
    known: KnownRivals

    @classmethod
    def of(
        cls, model: Classifier, images: Tensor, labels: Tensor, norm: float, rivals: int | None
    ) -> "Sweeper":
        """Nothing measured yet; `rivals` candidates of each image, those with the highest logits, or all."""
        with torch.no_grad():
            logits = model(images[:1])
        columns = check_pairs(logits, rivals)
        return cls(model, images, norm, KnownRivals.nothing(labels, columns, logits.shape[1]))

    def measure(self, rows: Tensor, forecast: PairNorms | None) -> None:
        """The most promising rivals of these images; all of them without a forecast."""
        for some in rows.split(CHUNK):
            with torch.enable_grad():
                outputs = self.model.outputs(self.images[some], ("input",))
            self._look(outputs, some)
            columns = _all_or_promising(self.known.rows(some), forecast, len(rows))
            self.known.norms[some.unsqueeze(1), columns] = self._norms(outputs, some, columns).double()
            self.known.measured[some.unsqueeze(1), columns] = True

    def search(self, rows: Tensor, forecast: PairNorms, doubt: float) -> None:
        """Measure rivals of these images until the chance that another is nearer is at most `doubt` for each."""
        _search(self.known, rows, forecast, doubt, self.measure)

    def _look(self, outputs: Outputs, rows: Tensor) -> None:
        """What the forward pass alone says of images that are seen for the first time."""
        known, new = self.known, ~self.known.measured[rows].any(dim=1)
        if not bool(new.any()):
            return
        labels = known.labels[rows]
        rivals = top_rivals(outputs.logits, labels, known.rivals.shape[1])
        gaps = class_gaps(outputs.logits.detach(), labels, rivals, "logits").mT
        known.rivals[rows], known.gaps[rows] = rivals.mT, gaps.double()
        known.anchors[rows] = alive_norms(outputs.head, outputs.features, labels, rivals.mT).double()

    def _norms(self, outputs: Outputs, rows: Tensor, columns: Tensor) -> Tensor:
        """(B, columns)."""
        rivals = self.known.rivals[rows].gather(1, columns).mT
        tensors = margin_tensors(outputs, ("input",))
        with full_precision(outputs.logits), torch.enable_grad():
            gradients = GapGradients(outputs, self.known.labels[rows], rivals, "logits")
            root, starts = gradients.nearest_to(("input",))
            return swept_norms(root, tensors, starts, self.norm)["input"].detach().mT


def likely_rivals(
    model: Classifier, images: Tensor, labels: Tensor, norm: float, doubt: float, rivals: int | None = None
) -> LikelyRivals:
    """Learn how long gradients are from some of the images, then measure the others until little doubt is left.

    Args:
        model: In evaluation mode.
        images: In the model's precision, (N, C, H, W).
        labels: (N,).
        norm: p.
        doubt: Chance allowed, for each image, that a rival not measured is nearer; in [0, 1).
        rivals: Looked at, at most: those with the highest logits; None is all.
    """
    sweeper = Sweeper.of(model, images, labels, norm, rivals)
    known = sweeper.known
    learnt = torch.linspace(0, len(labels) - 1, min(LEARNT, len(labels)), device=labels.device).long()
    others = torch.ones_like(labels, dtype=torch.bool).index_fill_(0, learnt, False).nonzero().flatten()
    sweeper.measure(learnt, None)
    if not len(others):
        return LikelyRivals(known)
    whole = known.rows(learnt).fitted()
    if whole is None:  # no gradient, or no number: nothing to learn from
        sweeper.measure(others, None)
        return LikelyRivals(known)
    sweeper.search(others, whole, doubt)
    held_out = known.rows(learnt[1::2])
    forecast = known.rows(learnt[::2]).fitted()
    assert forecast is not None  # half of what was fitted
    return LikelyRivals(known, agreement(held_out, forecast, doubt), len(held_out.labels))


def agreement(exact: KnownRivals, forecast: PairNorms, doubt: float) -> float:
    """The share of images, all of whose rivals are known, whose nearest the search would have found."""
    seen = exact.forgotten()

    def reveal(rows: Tensor, by: PairNorms | None) -> None:
        columns = _all_or_promising(seen.rows(rows), by, CHUNK)  # no more at once than of many images
        seen.measured[rows.unsqueeze(1), columns] = True

    _search(seen, torch.arange(len(exact.labels), device=exact.labels.device), forecast, doubt, reveal)
    same = seen.distances.amin(dim=1) == exact.distances.amin(dim=1)
    return float(same.double().mean())


def _search(
    known: KnownRivals,
    rows: Tensor,
    forecast: PairNorms,
    doubt: float,
    measure: Callable[[Tensor, PairNorms | None], None],
) -> None:
    while len(rows):
        measure(rows, forecast)
        rows = rows[known.rows(rows).doubts(forecast) > doubt]


def _all_or_promising(known: KnownRivals, forecast: PairNorms | None, left: int) -> Tensor:
    """Columns to measure next, where so many images are `left`."""
    columns = known.rivals.shape[1]
    if forecast is None:
        return torch.arange(columns, device=known.rivals.device).expand(len(known.labels), -1)
    return known.promising(forecast, min(OF_FEW if left < CHUNK else AT_ONCE, columns))
