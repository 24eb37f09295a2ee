"""What is measured on a trained panel of Fig. 1: how point-like its classes are, and what one pair teaches."""

import math

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.audits import Findings
from clearance.experiments.reproductions.sato_2019.fig1_runs import ToyRun
from clearance.geometry import class_scatter
from clearance.heads.ridge import pair_head
from clearance.models.features import extract_features, predictions
from clearance.vocabulary import Measurement

AUDIT = "toy"
HEADS = 256  # as many as the paper averages in its figure


def toy_findings(run: ToyRun) -> Findings:
    """Ratio, distance, pair accuracy and own error of a trained panel, on the points it was trained on."""
    features, labels = extract_features(run.result.model, run.data).double(), run.data.labels
    accuracies = pair_accuracies(features, labels, run.seed)
    wrong = float((predictions(run.result.model, run.data) != labels).double().mean())
    return Findings(
        (
            Measurement(
                AUDIT,
                "within_between",
                within_between(features, labels),
                "ratio",
                len(labels),
                better="lower",
            ),
            Measurement(AUDIT, "distance", centre_distance(features, labels), "feature units", len(labels)),
            Measurement(
                AUDIT,
                "pair_accuracy",
                float(accuracies.mean()),
                "fraction",
                HEADS,
                spread=float(accuracies.std()),
                better="higher",
            ),
            Measurement(
                AUDIT, "worst_pair_accuracy", float(accuracies.min()), "fraction", HEADS, better="higher"
            ),
            Measurement(AUDIT, "own_error", wrong, "fraction", len(labels), better="lower"),
        )
    )


def centre_distance(features: Tensor, labels: Tensor) -> float:
    """D, the distance between the means of the two classes, in the unit of the features."""
    means = class_scatter(features, labels, 2).means
    return float((means[1] - means[0]).norm())


def within_between(features: Tensor, labels: Tensor) -> float:
    r"""sqrt(tr S_W) / D: the extent of a class over the distance between the two class means.

    tr S_W is the squared distance of a sample from its class mean, averaged within each class and then over
    both. Unchanged by rotation, shift and scale of the features; 0 where each class is one point, infinite
    where the means coincide.

    Args:
        features: Of two classes.
        labels: 0 or 1, each at least once.

    Shapes:
        features (N, D); labels (N,).

    >>> within_between(torch.tensor([[0.0], [2.0], [9.0], [11.0]]), torch.tensor([0, 0, 1, 1])).hex()
    '0x1.c71c71c71c71cp-4'
    """
    extent = float(class_scatter(features, labels, 2).variances.mean().sqrt())
    distance = centre_distance(features, labels)
    return math.inf if distance == 0 else extent / distance


def random_pairs(labels: Tensor, count: int, seed: int) -> Tensor:
    """Rows of `count` random pairs, one sample of class 0 and one of class 1, shape (count, 2)."""
    stream = generator(seed, "toy_pairs")
    columns = []
    for label in (0, 1):
        rows = (labels == label).nonzero()[:, 0]
        columns.append(rows[torch.randint(len(rows), (count,), generator=stream)])
    return torch.stack(columns, dim=1)


def pair_accuracies(features: Tensor, labels: Tensor, seed: int, count: int = HEADS) -> Tensor:
    """How many of all samples a linear head gets right that was fitted on one random pair, for each of `count`.

    The boundary of such a head lies halfway between the two samples whatever the penalty, so there is none to
    choose. A pair whose features coincide teaches nothing: it gets no sample right.

    Args:
        features: Of two classes.
        labels: 0 or 1.
        seed: Decides the pairs.
        count: How many heads.

    Shapes:
        features (N, D); labels (N,). Returns (count,), float64.

    >>> pair_accuracies(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([0, 0, 1, 1]), seed=0, count=3)
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    kept, pairs = features.double(), random_pairs(labels, count, seed)
    weight, bias = pair_head(kept[pairs[:, 1]], kept[pairs[:, 0]], 1.0, -1.0, penalty=1.0)
    output = kept @ weight.T + bias
    return (output * (2.0 * labels - 1.0)[:, None] > 0).double().mean(dim=0)
