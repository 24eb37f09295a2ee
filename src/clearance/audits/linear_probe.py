"""How accurate is a linear layer trained on the frozen features?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import are_a_cloud, fresh_heads, head_training, scaled_features
from clearance.heads import train_heads
from clearance.records.summary import adjusted_wald
from clearance.vocabulary import Measurement, Scalar


@dataclass(frozen=True)
class LinearProbe(Audit):
    """The held-out error of one linear layer trained from scratch on the features of all training images.

    gain = error of the model's own head - mean error of the fresh linear layers

    on the same held-out images, so that the interval is one of paired differences:

    the adjusted Wald interval over images of (own head wrong - share of fresh ones wrong), which always has a width

    Above 0 the model's last layer leaves accuracy unused: it was damaged, trained too short, or on other data.
    Near 0 there is nothing to gain. Below 0 the own head is better than a linear layer, which is ordinary where
    it has several layers, and where features of training images are much cleaner than those of held-out ones.

    Measurements: ``error`` of the fresh layers (mean over heads), ``gain`` (over images) and ``diverged_heads``,
    each counted as chance-level error. Where all features are equal or one is not finite, fresh layers are at
    chance.

    Args:
        heads: Fresh linear layers, at least 1; they differ in first weights and in the order of minibatches.
        lr: Step size, above 0; trained as in :class:`clearance.audits.CoAdaptation`.

    Raises:
        ValueError: If a setting is out of range.

    Source of the interval: Bonett and Price, J. Educ. Behav. Stat. 37 (2012).

    Misleads: it says what a linear layer gains, not what training the whole network further would.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> model = Classifier(nn.Flatten(), nn.Linear(64, 3))  # never trained
    >>> next(m.value > 0.3 for m in LinearProbe()(model, train, test).measurements if m.name == "gain")
    True
    """

    name: ClassVar[str] = "linear_probe"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    heads: int = 5
    lr: float = 0.03

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        check_positive("lr", self.lr)

    def examine(self, subject: Subject) -> Findings:
        """Train the layers, and compare image by image."""
        wrong, diverged = self._wrong(subject)
        own = (subject.test_predictions != subject.test.labels).double()
        gained = own - wrong.mean(dim=0)
        gain, low, high = paired_interval(gained)
        context: dict[str, Scalar] = {"head": "linear", "samples": len(subject.train)}
        return Findings(
            (
                mean_of(self.name, "error", wrong.mean(dim=1), "fraction", "lower", context),
                Measurement(
                    self.name, "gain", gain, "fraction", len(gained), low=low, high=high, better="lower",
                    context={**context, "interval": PAIRED},
                ),
                Measurement(
                    self.name, "diverged_heads", diverged, "count", self.heads, better="lower", context=context
                ),
            )
        )  # fmt: skip

    def _wrong(self, subject: Subject) -> tuple[Tensor, int]:
        """How wrong each fresh layer is on each held-out image, (heads, N) in [0, 1]; and how many diverged."""
        chance = 1 - 1 / subject.classes
        if not are_a_cloud(subject.train_features, subject.test_features):
            labels = subject.test.labels
            return torch.full((self.heads, len(labels)), chance, dtype=torch.float64, device=labels.device), 0
        train, test = scaled_features(subject)
        trained = train_heads(
            fresh_heads(train, (), subject.classes, self.heads, generator(subject.seed, "refit")),
            train,
            subject.train.labels,
            head_training(len(subject.train), self.lr),
            generator=generator(subject.seed, "refit batches"),
        )
        wrong = (trained.stack.predictions(test) != subject.test.labels).double()
        wrong[trained.diverged] = chance
        return wrong, int(trained.diverged.sum())


PAIRED = "paired over images, adjusted Wald 95 %"


def paired_interval(gained: Tensor) -> tuple[float, float, float]:
    """The mean of differences in [-1, 1] with its :func:`~clearance.records.summary.adjusted_wald`, cut to [-1, 1].

    It leaves out 0 from six images on, all on one side, where the sign test does, too.

    `gained`, (N,), is for example whether one way is wrong on an image less whether another is.

    >>> import torch
    >>> [round(x, 3) for x in paired_interval(torch.tensor([1.0, 0.0, 0.0, 0.0]))]
    [0.25, -0.383, 0.717]
    """
    low, high = adjusted_wald(float(gained.sum()), float(gained.square().sum()), len(gained))
    return float(gained.mean()), max(-1.0, low), min(1.0, high)
