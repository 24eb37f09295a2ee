"""How likely a classifier finds an image: its own density or logit, and scores fitted to its features afterwards.

| score | of an image x with features f |
|---|---|
| likelihood | log p(f, predicted class given) of a Gaussian-mixture head; of any other its logit, Wan et al. (2018) |
| density | log p(f) of the mixture, where the head is one |
| class mean | -1/2 squared distance to the training mean of the predicted class, Wan et al.'s for the center loss |
| mahalanobis | the same to the nearest class, with one covariance for all, Lee et al. (2018) |
| max softmax | log of the largest probability, Hendrycks and Gimpel (2017) |
| energy | log sum exp of the logits, Liu et al. (2020) |
| neighbours | -1/2 squared distance to the k-th nearest training features, all of unit length, Sun et al. (2022) |

Everywhere a higher score means more normal. None is comparable between two classifiers: units differ.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.audits._audit import Subject
from clearance.audits._fitted_gaussians import FittedGaussians, fitted_gaussians
from clearance.audits._fixed_images import balanced_rows
from clearance.audits._neighbour_score import neighbour_score, unit_length
from clearance.geometry.scatter import class_scatter
from clearance.heads.gaussian_mixture import GaussianMixture, half_distances
from clearance.models.classifier import Classifier

LIKELIHOOD, DENSITY, CLASS_MEAN, MAHALANOBIS = "likelihood", "density", "class mean", "mahalanobis"
MAX_SOFTMAX, ENERGY, NEIGHBOURS = "max softmax", "energy", "neighbours"
NETWORK_SCORES = (LIKELIHOOD, DENSITY, CLASS_MEAN, MAHALANOBIS, MAX_SOFTMAX, ENERGY, NEIGHBOURS)

CHUNK = 256
Columns = Callable[[Tensor, Tensor], Tensor]
"""(features (B, D), logits (B, C), both float64) to (B, C), a score for each class, or (B, 1)."""


@dataclass(frozen=True)
class Scorer:
    """All scores of one classifier, fitted to its training features; every one is differentiable.

    Args:
        model: In evaluation mode while it is asked.
        means: Class means of training features, (K, D).
        gaussians: Fitted with one covariance.
        known: Training features of unit length, (n, D).
        neighbours: k.
    """

    model: Classifier
    means: Tensor
    gaussians: FittedGaussians
    known: Tensor
    neighbours: int

    @classmethod
    def fitted(cls, subject: Subject, reference: int, neighbours: int) -> "Scorer":
        """Fit to a subject's training features; `reference` images at most for the neighbours.

        Raises:
            ValueError: If no training image of a class has features that are numbers, and one of another has.

        Warns:
            UserWarning: If some have none, which are left out.
        """
        features, labels = _finite(subject.train_features.double(), subject.train.labels)
        gaussians = fitted_gaussians(features, labels, subject.classes, "full")
        means = class_scatter(features, labels, subject.classes).means
        rows = balanced_rows(labels, reference, subject.seed, subject.classes)
        return cls(subject.model, means, gaussians, unit_length(features[rows]), neighbours)

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that this classifier has."""
        own = isinstance(self.model.head, GaussianMixture)
        return tuple(name for name in NETWORK_SCORES if own or name != DENSITY)

    @staticmethod
    def is_shared(name: str) -> bool:
        """Whether a score is one number an image, and not one for each class."""
        return name not in (LIKELIHOOD, CLASS_MEAN, MAHALANOBIS)

    @staticmethod
    def reading(name: str, columns: Tensor, predicted: Tensor) -> Tensor:
        """What a detector sees of a score's columns: that of the predicted, or of the likeliest class, (B,)."""
        return columns.amax(dim=1) if name == MAHALANOBIS else at_classes(columns, predicted)

    def columns(self, name: str, features: Tensor, logits: Tensor) -> Tensor:
        """A score for every class, (B, C), or one for all of them, (B, 1)."""
        makers: dict[str, Columns] = {
            LIKELIHOOD: self._likelihood,
            DENSITY: self._density,
            CLASS_MEAN: self._class_mean,
            MAHALANOBIS: self._mahalanobis,
            MAX_SOFTMAX: lambda _, logits: logits.log_softmax(dim=1).amax(dim=1, keepdim=True),
            ENERGY: lambda _, logits: logits.logsumexp(dim=1, keepdim=True),
            NEIGHBOURS: self._neighbours,
        }
        return makers[name](features, logits)

    def read(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of images, float64, with their graph where gradients are on."""
        features = self.model.features(images)
        return features.double(), self.model.head(features).double()

    @torch.no_grad()
    def scores(self, images: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Every score, read at the predicted class, and the logits; (B,) each and (B, C), float64."""
        found: dict[str, list[Tensor]] = {name: [] for name in self.names}
        answers = []
        for part in images.split(CHUNK):
            features, logits = self.read(part)
            answers.append(logits)
            for name, parts in found.items():
                columns = self.columns(name, features, logits)
                parts.append(self.reading(name, columns, logits.argmax(dim=1)))
        return {name: torch.cat(parts) for name, parts in found.items()}, torch.cat(answers)

    def _likelihood(self, features: Tensor, logits: Tensor) -> Tensor:
        head = self.model.head
        return head.log_prob(features) if isinstance(head, GaussianMixture) else logits

    def _density(self, features: Tensor, logits: Tensor) -> Tensor:
        del logits
        head = self.model.head
        assert isinstance(head, GaussianMixture)
        return head.log_density(features)[:, None]

    def _class_mean(self, features: Tensor, logits: Tensor) -> Tensor:
        return _filled(-half_distances(features, self.means), logits)

    def _mahalanobis(self, features: Tensor, logits: Tensor) -> Tensor:
        return _filled(-0.5 * self.gaussians.squared(features), logits)

    def _neighbours(self, features: Tensor, logits: Tensor) -> Tensor:
        del logits
        return neighbour_score(features, self.known, self.neighbours)[:, None]


def _finite(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that are numbers, and their labels; zeros where none is, since then no image has a score at all."""
    kept = features.isfinite().all(dim=1)
    if bool(kept.all()) or not bool(kept.any()):
        return features.nan_to_num(0.0, 0.0, 0.0), labels
    lost = sorted(set(labels.tolist()) - set(labels[kept].tolist()))
    if lost:
        raise ValueError(
            "training features must be numbers, because scores are fitted to them; got NaN or infinity for every "
            f"image of class {', '.join(map(str, lost))}. Look for the layer that makes them."
        )
    warnings.warn(
        f"{int((~kept).sum())} of {len(kept)} training images have features that are NaN or infinite; scores that are "
        "fitted to features leave them out.",
        stacklevel=2,
    )
    return features[kept], labels[kept]


def at_classes(columns: Tensor, classes: Tensor) -> Tensor:
    """The score at one class of each image, or the one that all classes share, (B,).

    >>> at_classes(torch.tensor([[1.0, 2.0]]), torch.tensor([1])), at_classes(torch.tensor([[3.0]]), torch.tensor([1]))
    (tensor([2.]), tensor([3.]))
    """
    if columns.shape[1] == 1:
        return columns[:, 0]
    return columns.gather(1, classes[:, None])[:, 0]


def named_class(classes: tuple[str, ...], k: int) -> str:
    """The name of a class that a classifier answers, which may have more outputs than there are names.

    >>> named_class(("a", "b"), 1), named_class(("a", "b"), 2)
    ('b', 'output 2')
    """
    return classes[k] if k < len(classes) else f"output {k}"


def _filled(columns: Tensor, logits: Tensor) -> Tensor:
    """A column for each logit: those that stand for no class of the training images are never likely."""
    return torch.nn.functional.pad(columns, (0, logits.shape[1] - columns.shape[1]), value=-torch.inf)
