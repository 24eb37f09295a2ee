"""How far are images from the decision boundary, to first order and as a search finds it?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_fraction
from clearance.attacks.minimum_norm import MinimumNorm
from clearance.attacks.queries import Model
from clearance.attacks.straight_through import has_steps, straight_through
from clearance.audits._attacked import checked_logits
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._boundary_numbers import angle_numbers, dataset_distances, mirror_sheet, way_numbers
from clearance.audits._layer_spread import layer_spreads
from clearance.audits._likely_rivals import CHUNK
from clearance.audits._nearest_rival import NearestRival, likely_nearest_rivals, nearest_rivals
from clearance.audits._samples import fixed_images, fixed_rows
from clearance.data import ImageSet
from clearance.models._channels_last import filters_channels_last
from clearance.models._observe import evaluating
from clearance.models._pools_first import pools_before_rectifiers
from clearance.models.classifier import Classifier
from clearance.objectives.margins import margin_distances
from clearance.vocabulary import Exhibit, Measurement, Scalar

NORMS = ("inf", "2", "1")
PIXELS = "pixel units"
ALL = "all"


@dataclass(frozen=True)
class BoundaryDistance(Audit):
    r"""Distances of held-out images to the nearest boundary: linearised at any layer, and searched for at the input.

    first_order_distance = min_i (z_y - z_i) / ||grad_h (z_y - z_i)||_q, 1/p + 1/q = 1

    Positive on the right side, negative where the image is misclassified. At the input it is in pixel units.
    At every other layer it is in units of that layer's typical deviation from its mean over these images (in
    the same norm), so that features times a constant, undone by the next layer, give the same number.

    ``minimum_distance``, at the input: the nearest wrong image that
    :class:`~clearance.attacks.MinimumNorm` finds, past rounding as well where the network rounds; 0 where the image is
    misclassified, infinite where none was found.

    At the input, under the names of the linear case, and equal to :mod:`clearance.linear` on a linear network:
    ``adversarial_distance``, the mean signed first-order distance d, each class counting alike; ``error_distance``,
    that of max(-d, 0); ``local_scale``, the median slope ||grad (z_y - z_k)||_q towards the nearest rival k.
    ``tilting_angle``, between the way to a mistake, -grad, and the way to the rival class: between the centroids of
    training images, or to the nearest of them (``direction``).

    Along the steepest step: ``bisected_distance``, where a rival wins; ``mirror_share`` and ``mirror_stretch``, whether
    and how much further than 2 |d| the mirror image lies, which is as sure of the rival as the image was of its class;
    ``unreliable_share``, images without a gradient or where first order and bisection differ by a factor above 2.

    Source: Elsayed et al. (2018), section 3, for the first-order distance; Moosavi-Dezfooli et al. (2016) for
    robustness as the median of the smallest perturbation; Tanay and Griffin (2018) for the linear case's names.

    Measurements: the median over images, for each ``norm``, ``class`` (and ``all``), and for first-order distances
    each ``layer``. Medians are of values that occur, the lower of two. A layer on which all images agree has
    distance 0. Exhibits ``distances`` for each norm, found against first order, image by image, and ``mirror_images``.

    Args:
        norms: ``"inf"``, ``"2"``, ``"1"``.
        layers: ``"input"``, names of submodules as in ``named_modules()``, ``"features"``, ``"logits"``.
        images: At most, for first-order distances; a class-balanced choice by the seed where there are more.
        searched: At most, of these, for minimum distances, and for what lies along the gradient.
        steps: Of the search.
        rivals: Rival classes that are looked at to first order, those with the highest logits; None is all. Two cost a
            third, and miss the nearest: a small network on MNIST had it among them for 85 % of images, among three
            for 93 %.
        doubt: Chance allowed, for each image, that a rival not looked at is nearer at the input; 0 looks at all. How
            long gradients are is learnt from 256 of the images, all of whose rivals are looked at; of the others
            those are looked at that are likely nearest. ``shortlist_agreement`` is how often, on half of the 256 with
            what the other half taught, that found the nearest of all.

    Misleads: the first-order distance is no bound of the true one, and infinite where a gradient is zero; the
    minimum distance is an upper bound, far too long for a network that hides its gradients otherwise than by rounding
    (see the audit `robustness`).

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> audit = BoundaryDistance(norms=("2",), layers=("input",), steps=5)
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.context.get("class")) for m in found.measurements][:4:3]
    [('first_order_distance', 'all'), ('first_order_distance', '2')]
    """

    name: ClassVar[str] = "boundary_distance"
    question: ClassVar[str] = "How far are images from the decision boundary?"
    norms: tuple[str, ...] = ("inf", "2")
    layers: tuple[str, ...] = ("input", "features", "logits")
    images: int = 1000
    searched: int = 200
    steps: int = 100
    rivals: int | None = None
    doubt: float = 0.0

    def __post_init__(self) -> None:
        for norm in self.norms:
            check_choice("norms", norm, NORMS)
        for name in ("images", "searched", "steps"):
            check_count(name, getattr(self, name))
        if self.rivals is not None:
            check_count("rivals", self.rivals)
        check_fraction("doubt", self.doubt, open_above=True)

    def examine(self, subject: Subject) -> Findings:
        """Every norm, first to first order at every layer, then by search."""
        data = fixed_images(subject.test, self.images, subject.seed)
        rows = fixed_rows(data, self.searched, subject.seed)
        some = data.subset(rows)
        found: list[Measurement] = []
        exhibits = []
        with evaluating(subject.model), filters_channels_last(subject.model):
            checked_logits(subject.model, data.images)
            models: list[Model] = [subject.model]
            if has_steps(subject.model, data.images):
                models.append(straight_through(subject.model))  # the same but for its gradient
            looked_at = self._looked_at(subject.model, data)
            for norm in self.norms:
                search = MinimumNorm(float(norm), steps=self.steps)
                with pools_before_rectifiers(subject.model):  # asks for no layer by its name
                    every = self._nearest(subject.model, data, norm, looked_at, found)
                    found_by = [search(model, some.images, some.labels).distance for model in models]
                    distance = torch.stack(found_by).amin(dim=0)
                found.extend(self._first_order(subject.model, data, norm, looked_at, every))
                found.extend(_medians("minimum_distance", distance, some, {"norm": norm}, PIXELS))
                found.extend(dataset_distances(every, norm))
                near = every.rows(rows)
                numbers, mirrors = way_numbers(subject.model, near, norm)
                found.extend(numbers)
                exhibits.append(_picture(norm, distance, _signed(near), some))
                exhibits.append(mirror_sheet(near, mirrors, data.classes, norm))
            near = nearest_rivals(subject.model, some.images, some.labels, 2.0, looked_at)
            found.extend(angle_numbers(subject.train, near))
        return Findings(tuple(found), tuple(exhibits))

    def _nearest(
        self,
        model: Classifier,
        data: ImageSet,
        norm: str,
        looked_at: int | None,
        numbers: list[Measurement],
    ) -> NearestRival:
        """Of all images; what a shortlist missed is added to the numbers."""
        if self.doubt == 0:
            return nearest_rivals(model, data.images, data.labels, float(norm), looked_at)
        near, found = likely_nearest_rivals(
            model, data.images, data.labels, float(norm), self.doubt, looked_at
        )
        if found.agreement is not None:
            numbers.append(_agreement(found.agreement, found.checked, {"norm": norm, "doubt": self.doubt}))
        return near

    def _looked_at(self, model: Classifier, data: ImageSet) -> int | None:
        """No more rivals than the network has."""
        if self.rivals is None:
            return None
        with torch.no_grad():
            return min(self.rivals, model(data.images[:1]).shape[1] - 1)

    def _first_order(
        self, model: Classifier, data: ImageSet, norm: str, looked_at: int | None, near: NearestRival
    ) -> Iterator[Measurement]:
        others = tuple(layer for layer in self.layers if layer != "input")
        spreads = layer_spreads(model, data.images, others, float(norm), CHUNK)
        elsewhere = _distances(model, data, others, norm, looked_at) if others else {}
        for layer in self.layers:
            context: dict[str, Scalar] = {"norm": norm, "layer": layer}
            if layer == "input":
                yield from _medians("first_order_distance", _signed(near), data, context, PIXELS)
                continue
            values = elsewhere[layer].double() / spreads[layer]
            if spreads[layer] == 0:  # all images in one point: there is no length to measure by
                values = torch.zeros_like(values)
            values = torch.where(values.isnan(), -torch.inf, values)
            yield from _medians("first_order_distance", values, data, context, "ratio")


def _agreement(share: float, checked: int, context: dict[str, Scalar]) -> Measurement:
    return Measurement(
        BoundaryDistance.name, "shortlist_agreement", share, "fraction", checked, better="higher", context=context
    )  # fmt: skip


def _signed(near: NearestRival) -> Tensor:
    """First-order distances; -inf where it is not a number."""
    return torch.where(near.distance.isnan(), -torch.inf, near.distance)


def _distances(
    model: Classifier, data: ImageSet, layers: tuple[str, ...], norm: str, rivals: int | None
) -> dict[str, Tensor]:
    """Signed distance of each image to its nearest boundary, by layer; -inf where it is not a number."""
    parts = [
        margin_distances(model, images, labels, layers, norm=float(norm), top_k=rivals).nearest()
        for images, labels in zip(data.images.split(CHUNK), data.labels.split(CHUNK), strict=True)
    ]
    joined = {layer: torch.cat([part[layer] for part in parts]) for layer in layers}
    return {layer: torch.where(values.isnan(), -torch.inf, values) for layer, values in joined.items()}


def _medians(
    name: str, values: Tensor, data: ImageSet, context: dict[str, Scalar], unit: str
) -> Iterator[Measurement]:
    """Over all images, then class by class; a class without images among them has no median."""
    everything = torch.ones_like(data.labels, dtype=torch.bool)
    chosen = {ALL: everything} | {title: data.labels == k for k, title in enumerate(data.classes)}
    for title, rows in chosen.items():
        part = values[rows]
        if len(part):
            yield Measurement(
                BoundaryDistance.name,
                name,
                float(part.median()),
                unit,
                len(part),
                better="higher",
                context={**context, "class": title},
            )


def _picture(norm: str, found: Tensor, linear: Tensor, data: ImageSet) -> Exhibit:
    shown = (found.isfinite() & linear.isfinite()).cpu()
    columns = {
        "x": linear.cpu()[shown].tolist(),
        "y": found.cpu()[shown].tolist(),
        "label": [data.classes[k] for k in data.labels.cpu()[shown].tolist()],
    }
    caption = (
        f"Distance to the nearest wrong image found (up) against the first-order distance (right), norm {norm}, "
        f"in pixel units; {int(shown.sum())} of {len(shown)} images, those where both are finite."
    )
    return Exhibit(BoundaryDistance.name, "distances", "scatter", columns, caption, {"norm": norm})
