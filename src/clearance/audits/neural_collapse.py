"""How close are features and head to neural collapse?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import (
    are_a_cloud,
    check_every_class,
    check_spread,
    fresh_heads,
    head_training,
    scaled_features,
)
from clearance.geometry.neural_collapse import nc2_equiangle, nc2_equinorm, nc2_simplex, nc3, nc4
from clearance.geometry.scatter import ClassStatistics, class_scatter, nc1
from clearance.geometry.spectrum import covariance_spectrum, effective_rank
from clearance.heads import train_heads
from clearance.heads.stack import linear_layers
from clearance.models._running import evaluating
from clearance.vocabulary import Measurement, Scalar

FARTHEST = 2.0  # the largest value of NC3
CLOUD_RATIOS = ("nc1", "nc2_equinorm", "nc2_equiangle", "nc2_simplex")


@dataclass(frozen=True)
class NeuralCollapse(Audit):
    """The four signs of neural collapse, each 0 where it is complete, and how many axes the features fill.

    ``nc1``: tr(S_W S_B^+) / C. ``nc2_equinorm``: std / mean of the lengths of centred class means.
    ``nc2_equiangle``: std of their pairwise cosines. ``nc2_simplex``: mean abs(cosine + 1 / (C - 1)).
    ``nc3``: distance between a linear head and the class means of training features, both of norm 1.
    ``nc4``: share of images to which the model gives another class than that of the nearest training class
    mean. ``effective_rank``: exp(entropy) of the covariance's eigenvalues; complete collapse leaves C - 1 axes.

    Source: Papyan, Han, Donoho, "Prevalence of neural collapse", PNAS 2020; Roy and Vetterli (2007) for the rank.

    All but ``nc3`` are given for training and held-out images. Where all features are equal or one is not
    finite, every number is the worst there is: infinity, all images for ``nc4``, all axes for the rank.

    ``nc3`` is that of the model's own head where it is one linear layer; otherwise the mean over fresh linear
    heads trained as in :class:`clearance.audits.CoAdaptation` on all training images, except that their first
    weights are 0: random ones stay where features do not vary, and would be all that the number shows.
    A fresh head that diverged counts as the farthest, 2.

    Args:
        heads: Fresh linear heads for ``nc3``, at least 1; they differ in the order of their minibatches only,
            and not at all where all images fit in one.
        lr: Step size of fresh heads, above 0.

    Raises:
        ValueError: If the test or training set has no class with two images, which would all pass for points.

    Misleads: two classes always have ``nc2_equiangle`` and ``nc2_simplex`` 0. An effective rank below C - 1
    is not a better collapse, it means that classes share directions. The number ``nc3`` of the model's own head
    depends on weight decay; that of fresh heads on how far they are trained. Of a class with few images ``nc1`` is too
    small, as in :class:`ClassScatter`.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = NeuralCollapse()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.context for m in found.measurements if m.name == "nc3"]
    [{'split': 'train', 'head': 'own'}]
    """

    name: ClassVar[str] = "neural_collapse"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    heads: int = 5
    lr: float = 0.03

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        check_positive("lr", self.lr)

    def examine(self, subject: Subject) -> Findings:
        """Ratios on both sets, then the head."""
        check_every_class(subject.train, "train")
        whole = are_a_cloud(subject.train_features, subject.test_features)
        found: list[Measurement] = []
        for split in ("test", "train"):
            found.extend(_of_split(subject, split, whole=whole))
        found.append(self._head(subject, whole=whole))
        return Findings(tuple(found))

    def _head(self, subject: Subject, *, whole: bool) -> Measurement:
        head = subject.model.head
        with evaluating(subject.model):  # in training dropout is no linear layer's neighbour
            layers = linear_layers(head) or []
        own = head.get_parameter(layers[0][0]).detach() if len(layers) == 1 else None
        distances = [float("inf")] * (self.heads if own is None else 1)
        if whole:
            cloud = class_scatter(subject.train_features, subject.train.labels, subject.classes)
            # outputs beyond the classes have no class mean to be compared with
            distances = self._fresh(subject, cloud) if own is None else [nc3(own[: subject.classes], cloud)]
        values = torch.tensor(distances, dtype=torch.float64)
        context = {"split": "train", "head": "fresh linear" if own is None else "own"}
        return mean_of(self.name, "nc3", values, "ratio", "lower", context)

    def _fresh(self, subject: Subject, cloud: ClassStatistics) -> list[float]:
        """NC3 of fresh linear heads."""
        features, _ = scaled_features(subject)
        training = head_training(len(features), self.lr)
        distances = []
        for k in range(self.heads):  # one by one, because heads of a stack share the order of minibatches
            stream = generator(subject.seed, "neural collapse heads", k)
            stack = fresh_heads(features, (), subject.classes, 1, stream, std=0.0)
            trained = train_heads(stack, features, subject.train.labels, training, generator=stream)
            weight, _ = trained.stack.parameters.values()
            distances.append(FARTHEST if bool(trained.diverged[0]) else nc3(weight[0], cloud))
        return distances


def _of_split(subject: Subject, split: str, *, whole: bool) -> list[Measurement]:
    features = subject.test_features if split == "test" else subject.train_features
    data = subject.test if split == "test" else subject.train
    check_spread(data, split)
    context = {"split": split}
    if whole:
        values = _values(subject, features, data.labels)
        predicted = subject.test_predictions if split == "test" else subject.train_predictions
        means = class_scatter(subject.train_features, subject.train.labels, subject.classes).means
        values["nc4"] = nc4(predicted, features, means)
    else:
        worst = {"nc4": 1.0, "effective_rank": float(features.shape[1])}
        values = {**dict.fromkeys(CLOUD_RATIOS, float("inf")), **worst}
    return [_measured(name, value, len(data), context) for name, value in values.items()]


def _values(subject: Subject, features: Tensor, labels: Tensor) -> dict[str, float]:
    cloud = class_scatter(features, labels, subject.classes)
    return {
        "nc1": nc1(features, labels, subject.classes),
        "nc2_equinorm": nc2_equinorm(cloud),
        "nc2_equiangle": nc2_equiangle(cloud),
        "nc2_simplex": nc2_simplex(cloud),
        "effective_rank": effective_rank(covariance_spectrum(features)),
    }


def _measured(name: str, value: float, n: int, context: Mapping[str, Scalar]) -> Measurement:
    unit = {"nc4": "fraction", "effective_rank": "count"}.get(name, "ratio")
    return Measurement(NeuralCollapse.name, name, value, unit, n, better="lower", context=dict(context))
