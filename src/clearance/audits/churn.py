"""How much do independently trained heads disagree on the same features?"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import are_a_cloud, fresh_heads, head_training, scaled_features
from clearance.audits._samples import PartialSets, partial_sets
from clearance.heads import train_heads
from clearance.vocabulary import Measurement, Scalar

FIRST_WEIGHTS, IMAGES = "first weights", "images"


@dataclass(frozen=True)
class Churn(Audit):
    """On how many held-out images fresh heads give different answers, though trained alike on the same features.

    disagreement = mean over pairs of heads and held-out images of [answer of one != answer of the other]

    ``differ_in`` says what the heads do not share: ``first weights`` (one partial set of training images,
    different first weights) or ``images`` (the same first weights, different partial sets). Heads and their
    training are those that :class:`clearance.audits.CoAdaptation` calls retrained. On features whose classes
    are points every head gives the same answers.

    Measurements: ``disagreement``, and ``worst_class_disagreement``, the same for the class of held-out
    images on which it is largest. Both count pairs of heads, and spread is over pairs. A head without an
    answer (diverged, or its logits are not finite) disagrees with every other. Where all features are equal or
    one is not finite, both are 1.

    Source: Milani Fard, Cormier, Canini, Gupta, "Launch and iterate: reducing prediction churn", NeurIPS 2016,
    for the quantity, there between two whole models.

    Args:
        per_class: Images of every class in a partial set, ascending; sizes that the training set does not
            allow are left out.
        heads: Heads of each kind, at least 2.
        hidden: Hidden widths of a head.
        lr: Step size, above 0.
        all_images: Whether all training images are the last size; only first weights can differ there.

    Raises:
        ValueError: If a setting is out of range.

    Misleads: heads that all predict one class agree; compare it with the error of such heads. Pairs
    share heads, so their spread is not that of independent ones.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Churn(per_class=(1,), all_images=False)(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.context["differ_in"], m.n) for m in found.measurements if m.name == "disagreement"]
    [('disagreement', 'first weights', 10), ('disagreement', 'images', 10)]
    """

    name: ClassVar[str] = "churn"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    per_class: tuple[int, ...] = (1, 10)
    heads: int = 5
    hidden: tuple[int, ...] = (128, 128)
    lr: float = 0.03
    all_images: bool = True

    def __post_init__(self) -> None:
        for count in self.per_class:
            check_count("per_class", count)
        if any(first >= second for first, second in itertools.pairwise(self.per_class)):
            raise ValueError(f"`per_class` must ascend, each size once; got {self.per_class}.")
        check_count("heads", self.heads, minimum=2)
        check_positive("lr", self.lr)

    def examine(self, subject: Subject) -> Findings:
        """Every kind of difference on every size."""
        draws = (self.heads,) * len(self.per_class)
        found: list[Measurement] = []
        for sets in partial_sets(subject.train, self.per_class, draws, subject.seed, whole=self.all_images):
            found.extend(self._measured(subject, sets, FIRST_WEIGHTS))
            if len(sets.rows) > 1:  # of all images there is one set
                found.extend(self._measured(subject, sets, IMAGES))
        return Findings(tuple(found))

    def _measured(self, subject: Subject, sets: PartialSets, differ_in: str) -> Iterator[Measurement]:
        labels = subject.test.labels
        if are_a_cloud(subject.train_features, subject.test_features):
            differ = disagreements(self._answers(subject, sets, differ_in))
        else:
            pairs = self.heads * (self.heads - 1) // 2
            differ = torch.ones(pairs, len(labels), dtype=torch.float64, device=labels.device)
        by_class = torch.stack([differ[:, labels == k].mean(dim=1) for k in labels.unique()])
        worst = by_class[by_class.mean(dim=1).argmax()]
        context: dict[str, Scalar] = {"samples": sets.samples, "differ_in": differ_in}
        for name, pairwise in (("disagreement", differ.mean(dim=1)), ("worst_class_disagreement", worst)):
            yield mean_of(self.name, name, pairwise, "fraction", "lower", context)

    def _answers(self, subject: Subject, sets: PartialSets, differ_in: str) -> Tensor:
        """The class that each head gives each held-out image, shape (heads, N); -1 for none."""
        train, test = scaled_features(subject)
        labels = subject.train.labels
        first = generator(subject.seed, "churn first weights", sets.samples)
        stack = fresh_heads(train, self.hidden, subject.classes, self.heads, first)
        rows: Tensor | None = None
        if differ_in == IMAGES:
            stack, rows = stack.select(torch.zeros(self.heads, dtype=torch.long)), sets.rows
        else:
            train, labels = train[sets.rows[0]], labels[sets.rows[0]]
        trained = train_heads(
            stack,
            train,
            labels,
            head_training(sets.samples, self.lr),
            rows=rows,
            generator=generator(subject.seed, "churn batches", sets.samples),
        )
        answers = trained.stack.predictions(test)
        answers[trained.diverged] = -1
        return answers


def disagreements(answers: Tensor) -> Tensor:
    """Whether each pair of heads differs on each image, 1 or 0, shape (K (K - 1) / 2, N), float64.

    Args:
        answers: Classes, (K, N); below 0 is a missing prediction, which differs from everything.

    >>> disagreements(torch.tensor([[0, 1, -1], [0, 2, -1]])).tolist()
    [[0.0, 1.0, 1.0]]
    """
    first, second = torch.triu_indices(len(answers), len(answers), offset=1)
    return ((answers[first] != answers[second]) | (answers[first] < 0)).double()
