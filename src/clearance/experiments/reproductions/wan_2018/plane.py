"""Features in the plane as numbers: points, how round classes are, the likelihood that was learned."""

from typing import Any

import torch
from torch import Tensor

from clearance.attacks.gradient import FGSM
from clearance.data import ImageSet
from clearance.data.subsets import draw_at_most
from clearance.experiments.reproductions.wan_2018.fgsm_attacks import WHITE
from clearance.heads import GaussianMixture
from clearance.models import Classifier
from clearance.models.features import extract_features
from clearance.vocabulary import Exhibit, Measurement, Scalar

AUDIT = "plane"
POINTS = 600  # training images of a panel, class-balanced
SIDE = 90  # points of the grid along a side
ROOM = 1.15  # of what is shown, around the outermost point
SHOWN_ATTACKS = 40
FAINTEST = -12.0  # nats below the peak, from which on nothing is told apart


def roundness(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    r"""The smaller over the larger standard deviation of each class along its principal axes: 1 is round, 0 a line.

    sqrt(lambda_2 / lambda_1), the eigenvalues of the class's covariance

    Args:
        features: (N, 2).
        labels: (N,).
        classes: K.

    Shapes:
        returns (K,) float64; NaN for a class of fewer than three samples or of one point.

    It does not change with the scale of features, nor when they are turned.

    >>> cross = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(float(roundness(cross, torch.zeros(4, dtype=torch.long), 1)), 6)
    0.333333
    """
    found = torch.full((classes,), torch.nan, dtype=torch.float64)
    for k in range(classes):
        mine = features[labels == k].double()
        if len(mine) >= 3:
            low, high = torch.linalg.eigvalsh(torch.cov(mine.T))
            found[k] = (low.clamp(min=0) / high).sqrt() if high > 0 else torch.nan
    return found


def plane_numbers(model: Classifier, images: ImageSet, split: str) -> list[Measurement]:
    """Mean roundness of the classes; nothing where no class has an extent."""
    found = roundness(extract_features(model, images), images.labels, images.class_count)
    found = found[found.isfinite()]
    if not len(found):
        return []
    spread = float(found.std()) if len(found) > 1 else None
    return [
        Measurement(AUDIT, "roundness", float(found.mean()), "ratio", len(found), spread=spread, better="higher",
                    context={"split": split})
    ]  # fmt: skip


def panel(model: Classifier, train: ImageSet) -> list[Exhibit]:
    """What a panel shows: points of training images, and the middle of every class.

    Args:
        model: Of two features.
        train: The training images; means are over all of them, points are a class-balanced part.
    """
    shown = draw_at_most(train, POINTS)
    points, everything = extract_features(model, shown), extract_features(model, train)
    present = [k for k in range(train.class_count) if bool((train.labels == k).any())]
    means = torch.stack([everything[train.labels == k].mean(dim=0) for k in present])
    found = [
        _places(
            "features",
            points,
            [train.classes[int(k)] for k in shown.labels],
            "Training images, two features.",
        ),
        _places(
            "means",
            means,
            [train.classes[k] for k in present],
            "The mean of each class over all training images.",
        ),
    ]
    if isinstance(model.head, GaussianMixture):
        learned = model.head.means.detach()
        found.append(
            _places("learned means", learned, list(train.classes), "The means that the mixture learned.")
        )
    return found


def likelihood_panel(model: Classifier, train: ImageSet, test: ImageSet, epsilon: float) -> list[Exhibit]:
    """The likelihood of the nearest class over the plane, and test images that FGSM made wrong.

    Args:
        model: Of two features, ending in a Gaussian mixture.
        train: Says how far the plane is shown.
        test: What is attacked; at most `SHOWN_ATTACKS` are kept, those that the network is fooled by.
        epsilon: Largest change of a pixel, of [0, 1].

    Raises:
        TypeError: If the head is no mixture.
    """
    if not isinstance(model.head, GaussianMixture):
        raise TypeError(
            f"`model` must end in a GaussianMixture; got {type(model.head).__name__}. Take lgm or gm."
        )
    with torch.enable_grad():
        hit = FGSM(epsilon)(model, test.images, test.labels)
    fooled = (hit.success & (hit.distance > 0)).nonzero().flatten()[:SHOWN_ATTACKS]
    with torch.no_grad():
        at = model.features(hit.images[fooled])
        taken = model.head(at).argmax(dim=1)
    names = [test.classes[int(k)] for k in test.labels[fooled]]
    columns = {**_columns(at, names), "taken for": [test.classes[int(k)] for k in taken]}
    context: dict[str, Scalar] = {"attack": "FGSM", "box": WHITE, "epsilon": epsilon}
    attacked = Exhibit(AUDIT, "attacked", "scatter", columns, "Test images that FGSM made wrong.", context)
    around = torch.cat([extract_features(model, train), at])
    return [_likelihood(model.head, around), attacked]


def _likelihood(head: GaussianMixture, around: Tensor) -> Exhibit:
    low, high = around.amin(dim=0), around.amax(dim=0)
    middle, half = (low + high) / 2, float((high - low).max()) / 2 * ROOM
    ticks = torch.linspace(-half, half, SIDE)
    grid = torch.cartesian_prod(ticks, ticks) + middle
    with torch.no_grad():
        peak = head.log_prob(head.means).diagonal().max()
        value = (head.log_prob(grid).amax(dim=1) - peak).clamp(min=FAINTEST)
    columns = {"x": grid[:, 0].tolist(), "y": grid[:, 1].tolist(), "value": value.tolist()}
    caption = "Log-likelihood of the nearest class in nats below its peak; nothing below -12 is told apart."
    return Exhibit(AUDIT, "likelihood", "scatter", columns, caption)


def _places(name: str, at: Tensor, labels: list[str], caption: str) -> Exhibit:
    return Exhibit(AUDIT, name, "scatter", _columns(at, labels), caption)


def _columns(at: Tensor, labels: list[str]) -> dict[str, list[Any]]:
    return {"x": at[:, 0].tolist(), "y": at[:, 1].tolist(), "label": labels}
