"""How often is the classifier right on each class and on each slice of the images?"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.special import ndtri
from torch import Tensor

from clearance.audits._audit import Audit, Findings, Subject, named_class, share_of, wilson_interval
from clearance.data import ImageSet
from clearance.data.slices import Slices
from clearance.vocabulary import Exhibit, Measurement, Scalar

TOGETHER = "Newcombe 95 %, all {} together"
Group = tuple[str, Tensor, Tensor]  # its name, which images it has, and among which images they are


@dataclass(frozen=True)
class Performance(Audit):
    """Precision and recall of each class, accuracy of each slice, and how far each lies behind the other images.

    recall of k = images of k that are called k / images of k
    precision of k = images of k that are called k / images that are called k
    behind = accuracy of the other images - accuracy of these; of a slice, the others that have a value in its column

    Measurements, on held-out images, with ``class`` or ``slice`` in the context: ``recall`` and ``accuracy`` (of a
    slice) with 95 % Wilson intervals, over its images; ``precision``, over the images that are called so, and not
    measured where none is; ``behind``, with Newcombe's hybrid interval at the level 1 - 0.05 / groups, so that the
    intervals of all classes, or of all slices, hold together with 95 %. A group of all images has no ``behind``.

    Exhibits: ``confusion_matrix``, a row for each class given and a column for each answer; ``answers``, the name, the
    class given and the class predicted of each image; ``recall`` and
    ``accuracy`` of kind ``per_image``, so that two models can be compared class by class.

    Args:
        slices: What is known of each held-out image, as :func:`clearance.audit` reads it from a CSV file.

    Source of the interval: Newcombe, *Interval estimation for the difference between independent proportions* (1998),
    method 10.

    Raises:
        ValueError: If `slices` are of another number of images.

    Misleads where a slice follows the class: then it lies behind because its class does.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Performance()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> sorted({m.name for m in found.measurements} - {"precision"}), found.exhibits[0].name
    (['behind', 'recall'], 'confusion_matrix')
    """

    name: ClassVar[str] = "performance"
    slices: Slices | None = None

    def __post_init__(self) -> None:
        if self.slices is not None and not isinstance(self.slices, Slices):
            raise ValueError(
                f"`slices` must be made by clearance.data.slices.read_slices; got {type(self.slices).__name__}. Give "
                "the file to clearance.audit(slices=...) or --slices."
            )

    def examine(self, subject: Subject) -> Findings:
        """Count by class, then by slice."""
        labels, answers = subject.test.labels.cpu(), subject.test_predictions.cpu()
        right = answers == labels
        everything = torch.ones(len(right), dtype=torch.bool)
        classes = [(name, labels == k, everything) for k, name in enumerate(subject.test.classes)]
        slices = list(self._slices(len(right)))
        found = [
            *self._groups("class", "recall", classes, right),
            *self._precisions(subject.test.classes, labels, answers),
            *self._groups("slice", "accuracy", slices, right),
        ]
        digest = subject.test.digest()[:16]
        exhibits = [
            _matrix(subject.test, answers),
            _answers(subject, answers, right, digest),
            *(_each("recall", "class", group, right, digest) for group in classes),
            *(_each("accuracy", "slice", group, right, digest) for group in slices),
        ]
        return Findings(tuple(found), tuple(exhibits))

    def _slices(self, images: int) -> Iterator[Group]:
        for column, values in {} if self.slices is None else self.slices.columns.items():
            if len(values) != images:
                raise ValueError(
                    f"`slices` must have a value for each of the {images} held-out images; got {len(values)} in "
                    f"{column!r}. Read them for these images."
                )
        for group, rows, known in () if self.slices is None else self.slices.named():
            yield group, _mask(rows, images), _mask(known, images)

    def _groups(self, kind: str, name: str, groups: list[Group], right: Tensor) -> Iterator[Measurement]:
        compared = sum(0 < int(mask.sum()) < int(among.sum()) for _, mask, among in groups)
        for group, mask, among in groups:
            n, hits = int(mask.sum()), int(right[mask].sum())
            if n == 0:
                continue
            context: dict[str, Scalar] = {kind: group, "split": "test"}
            yield _share(name, hits, n, context)
            others = int(among.sum()) - n
            if others:
                behind = (int(right[among].sum()) - hits, others), (hits, n)
                low, high = difference_interval(*behind, level=1 - 0.05 / compared)
                yield Measurement(
                    self.name, "behind", behind[0][0] / others - hits / n, "fraction", n, low=low, high=high,
                    better="lower", context={**context, "interval": TOGETHER.format(compared)},
                )  # fmt: skip

    def _precisions(self, classes: tuple[str, ...], labels: Tensor, answers: Tensor) -> Iterator[Measurement]:
        for k, name in enumerate(classes):
            called = answers == k
            if n := int(called.sum()):
                context: dict[str, Scalar] = {"class": name, "split": "test"}
                yield _share("precision", int((labels[called] == k).sum()), n, context)


def _mask(rows: list[int], images: int) -> Tensor:
    mask = torch.zeros(images, dtype=torch.bool)
    mask[rows] = True
    return mask


def _share(name: str, hits: int, n: int, context: dict[str, Scalar]) -> Measurement:
    return share_of(Performance.name, name, hits, n, "higher", context)


def difference_interval(
    first: tuple[int, int], second: tuple[int, int], level: float = 0.95
) -> tuple[float, float]:
    """Newcombe's hybrid interval of the difference of two independent fractions, first - second.

    With Wilson intervals (l, u) of both at this level:
    d - sqrt((p1 - l1)^2 + (u2 - p2)^2)  to  d + sqrt((u1 - p1)^2 + (p2 - l2)^2)

    Source: Newcombe, Statistics in Medicine 17 (1998), 873-890, method 10.

    Each fraction is how many, of how many; `level` is in (0, 1).

    >>> low, high = difference_interval((56, 70), (48, 80))       # Newcombe's table II, example (a)
    >>> round(low, 4), round(high, 4)
    (0.0524, 0.3339)
    """
    z = float(ndtri(0.5 + level / 2))
    p1, p2 = first[0] / first[1], second[0] / second[1]
    (l1, u1), (l2, u2) = wilson_interval(*first, z=z), wilson_interval(*second, z=z)
    gap = p1 - p2
    return gap - math.hypot(p1 - l1, u2 - p2), gap + math.hypot(u1 - p1, p2 - l2)


def _matrix(test: ImageSet, answers: Tensor) -> Exhibit:
    """Counts of answers by the class given; those beyond the classes, and without finite logits, together."""
    classes = test.class_count
    kept = torch.where((answers >= 0) & (answers < classes), answers, classes)
    counts = torch.bincount(test.labels.cpu() * (classes + 1) + kept, minlength=classes * (classes + 1))
    table = counts.reshape(classes, classes + 1).T.tolist()
    columns = dict(zip([*test.classes, OTHER], table, strict=True))
    if not any(columns[OTHER]):
        del columns[OTHER]
    caption = "How often images of each class, in the order of the columns, are given each answer."
    return Exhibit(Performance.name, "confusion_matrix", "heatmap", columns, caption)


OTHER = "no class"


def _answers(subject: Subject, answers: Tensor, right: Tensor, digest: str) -> Exhibit:
    """What is asked of and answered to every image, so that two models can be compared image by image."""
    test = subject.test
    columns: dict[str, list[Any]] = {
        "value": right.int().tolist(),
        "file": [test.name_of(row) for row in range(len(test))],
        "given": [test.classes[k] for k in test.labels.tolist()],
        "predicted": [named_class(test.classes, k) for k in answers.tolist()],
    }
    caption = "The class given and the class predicted of every held-out image, and whether it is right (1), in order."
    context: dict[str, Scalar] = {"split": "test", "images": digest}
    return Exhibit(Performance.name, "answers", "per_image", columns, caption, context)


def _each(name: str, kind: str, group: Group, right: Tensor, digest: str) -> Exhibit:
    if kind == "slice":  # a class follows from the labels, which the digest covers; a slice does not
        digest = hashlib.sha256(f"{digest}{group[1].nonzero().flatten().tolist()}".encode()).hexdigest()[:16]
    caption = "Which images of this group are right (1) and wrong (0), in their order."
    context: dict[str, Scalar] = {kind: group[0], "split": "test", "images": digest}
    return Exhibit(
        Performance.name, name, "per_image", {"value": right[group[1]].int().tolist()}, caption, context
    )
