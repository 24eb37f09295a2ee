"""Which images does the classifier get wrong, and how sure is it of them?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction
from clearance.audits._audit import Audit, Findings, Subject, named_class, share_of_errors
from clearance.audits._change_sheet import picture_pixels
from clearance.audits.calibration import confidences
from clearance.vocabulary import Exhibit, Scalar


@dataclass(frozen=True)
class Mistakes(Audit):
    """The wrong held-out images: those with the highest confidence, and those of each confused pair of classes.

    Measurement ``confident_share``: of the wrong images, the share with a confidence (largest softmax probability) of
    at least `confident`, with a 95 % Wilson interval over the wrong images. 0 where none is wrong. An image whose
    logits are not finite counts as confident.

    Exhibits, of kind ``images``: ``confident``, the wrong images with the highest confidence, and ``pairs``, those of
    the pairs of classes with the most errors, both ways. Each row has the image, the name of its file (or its
    number), the given class, the predicted class and the confidence. A page that is shared leaves them out.

    Args:
        confident: From which confidence on a mistake counts as confident, in (0, 1].
        shown: Images in ``confident`` at most.
        pairs: Pairs in ``pairs`` at most.
        of_a_pair: Images of each pair at most, the most confident first.

    Raises:
        ValueError: If a setting is out of range.

    Misleads: a wrong prediction may be a wrong label. Which of the two, only a person can say.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Mistakes()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements], [e.name for e in found.exhibits]
    (['confident_share'], ['confident', 'pairs'])
    """

    name: ClassVar[str] = "mistakes"
    confident: float = 0.9
    shown: int = 60
    pairs: int = 5
    of_a_pair: int = 12

    def __post_init__(self) -> None:
        check_fraction("confident", self.confident, open_below=True)
        for name in ("shown", "pairs", "of_a_pair"):
            check_count(name, getattr(self, name))

    def examine(self, subject: Subject) -> Findings:
        """Sort the wrong images by confidence, and by pair of classes."""
        sure = confidences(subject.test_logits, subject.test.labels)[0].cpu()
        labels, answers = subject.test.labels.cpu(), subject.test_predictions.cpu()
        rows = (answers != labels).nonzero().flatten()
        rows = rows[sure[rows].argsort(descending=True, stable=True)]
        count = int((sure[rows] >= self.confident).sum())
        confidence: dict[str, Scalar] = {"confidence": self.confident}
        measured = share_of_errors(self.name, "confident_share", count, len(rows), confidence)
        if not len(rows):
            return Findings((measured,))
        first = rows[: self.shown]
        exhibits = [self._exhibit(subject, "confident", first, sure, {}, "The most confident mistakes.")]
        by_pair = list(self._by_pair(subject, rows))
        if by_pair:
            chosen = torch.cat([which for _, which in by_pair])
            named = {"pair": [pair for pair, which in by_pair for _ in which]}
            caption = "The mistakes between the classes that are confused most."
            exhibits.append(self._exhibit(subject, "pairs", chosen, sure, named, caption))
        return Findings((measured,), tuple(exhibits))

    def _by_pair(self, subject: Subject, rows: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Names of the pairs with the most errors, at least two, and rows of their images."""
        labels, answers = subject.test.labels.cpu()[rows], subject.test_predictions.cpu()[rows]
        named = (answers >= 0) & (answers < subject.classes)
        ends = torch.stack([labels, answers]).sort(dim=0).values[:, named]
        pairs, counts = ends.unique(dim=1, return_counts=True)
        often = [k for k in counts.argsort(descending=True, stable=True).tolist() if counts[k] > 1]
        for k in often[: self.pairs]:
            mine = named & (torch.stack([labels, answers]).sort(dim=0).values == pairs[:, [k]]).all(dim=0)
            first, second = (subject.test.classes[int(end)] for end in pairs[:, k])
            yield f"{first} and {second}", rows[mine][: self.of_a_pair]

    def _exhibit(
        self,
        subject: Subject,
        name: str,
        rows: Tensor,
        sure: Tensor,
        more: dict[str, list[str]],
        caption: str,
    ) -> Exhibit:
        test, answers = subject.test, subject.test_predictions
        images, labels = test.batch(rows)
        columns: dict[str, list[Any]] = {
            **more,
            "image": picture_pixels(images.cpu()),
            "file": [test.name_of(row) for row in rows.tolist()],
            "given": [test.classes[int(label)] for label in labels],
            "predicted": [named_class(test.classes, int(answers[row])) for row in rows],
            "confidence": sure[rows].tolist(),
        }
        return Exhibit(self.name, name, "images", columns, caption)
