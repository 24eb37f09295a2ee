"""Which two classes are confused most?"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject, share_of_errors
from clearance.vocabulary import Exhibit


@dataclass(frozen=True)
class Confusions(Audit):
    """The pair of classes with the most errors between them.

    share = (images of a called b + images of b called a) / all errors,   for the pair with the largest share

    Measurement, on held-out images: ``worst_share`` with a 95 % Wilson interval over the errors; 0 where nothing is
    wrong. The exhibit names the pairs, worst first. How near the classes' features lie is what
    :class:`~clearance.audits.ClassScatter` measures.

    Errors of no pair have their own shares of all errors, measured only where there are any, and their own last rows in
    the exhibit: ``outside_share``, answers of an output beyond the classes, and ``unanswered_share``, logits that are
    not finite.

    Args:
        shown: Pairs that the exhibit names at most.

    Raises:
        ValueError: If a setting is out of range.

    Misleads: the pair is picked by its own count, so its share on new images will on average be smaller.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Confusions()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements]
    ['worst_share']
    """

    name: ClassVar[str] = "confusions"
    shown: int = 20

    def __post_init__(self) -> None:
        check_count("shown", self.shown)

    def examine(self, subject: Subject) -> Findings:
        """Count errors by pair, and name the worst."""
        errors, of_no_pair = pair_errors(subject.test_predictions, subject.test.labels, subject.classes)
        total = int(errors.sum()) + sum(of_no_pair.values())
        order = errors.argsort(descending=True, stable=True).tolist()
        shares = {"worst": int(errors[order[0]]), **of_no_pair}
        return Findings(
            tuple(
                share_of_errors(self.name, f"{kind}_share", count, total, {"split": "test"})
                for kind, count in shares.items()
            ),
            (self._named(subject, errors, order[: self.shown], of_no_pair),),
        )

    def _named(
        self, subject: Subject, errors: Tensor, order: list[int], of_no_pair: Mapping[str, int]
    ) -> Exhibit:
        pairs = list(itertools.combinations(subject.test.classes, 2))
        columns: dict[str, list[Any]] = {
            "pair": [*(" and ".join(pairs[k]) for k in order), *(OF_NO_PAIR[kind] for kind in of_no_pair)],
            "errors": [*(int(errors[k]) for k in order), *of_no_pair.values()],
        }
        caption = "Errors between two classes, most first."
        return Exhibit(self.name, "pairs", "histogram", columns, caption, {"pairs": len(pairs)})


OF_NO_PAIR = {"outside": "an output beyond the classes", "unanswered": "logits that are not finite"}


def pair_errors(answers: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, dict[str, int]]:
    """Errors between each two classes, both ways, and how many there are of each kind of `OF_NO_PAIR`.

    `answers` are the classes given, (N,): `classes` or above for an output beyond the classes, -1 for no finite
    logits. `labels` are the true classes, (N,), of C = `classes`.

    Shapes:
        returns (C (C - 1) / 2,) in the order of itertools.combinations, and the kinds that occur.

    >>> pair_errors(torch.tensor([1, 0, 2, -1, 3, 3]), torch.tensor([0, 1, 2, 2, 0, 0]), 3)
    (tensor([2, 0, 0]), {'outside': 2, 'unanswered': 1})
    """
    named = (answers >= 0) & (answers < classes)
    flat = torch.bincount(labels[named] * classes + answers[named], minlength=classes**2)
    counts = flat.reshape(classes, classes).cpu()
    first, second = torch.triu_indices(classes, classes, offset=1)
    others = {"outside": int((answers >= classes).sum()), "unanswered": int((answers < 0).sum())}
    return counts[first, second] + counts[second, first], {kind: n for kind, n in others.items() if n}
