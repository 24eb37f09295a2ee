"""Numbers of published formulas on fixed inputs, in one place: a deliberate change of a number touches this file alone.

That a formula is right is tested beside it. These numbers tell that it has not changed: they were taken on 2026-11-23
with torch 2.13 on a CPU. Inputs are waves, so that no random numbers are needed.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from clearance import Outputs
from clearance.attacks import FGSM, IFGSM, PGD, DeepFool, MinimumNorm
from clearance.data.digits import read_digits
from clearance.heads import GaussianMixture, GradientHeads, HeadTraining
from clearance.linear import svm_path
from clearance.losses import (
    CenterLoss,
    ContrastiveLoss,
    CrossEntropyLoss,
    DistanceSettings,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    LargeMarginSoftmaxLoss,
    SquaredErrorLoss,
    StepUp,
    TripletLoss,
)
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit

CLASSES, FEATURES, INPUTS, BATCH = 4, 5, 6, 7
LABELS = torch.tensor([0, 1, 2, 3, 3, 0, 1])


def waves(*shape, start):
    """A tensor in float64 whose entries are sines of steps that do not repeat."""
    steps = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(start + 1.3 * steps + 0.07 * steps.square()).reshape(shape)


def filled(module, start=0.0):
    """The module in float64 with waves for parameters."""
    module.double()
    with torch.no_grad():
        for k, (_, parameter) in enumerate(sorted(module.named_parameters())):
            parameter.copy_(waves(*parameter.shape, start=start + k) / 2)
    return module


class Network(nn.Module):
    """Input, a hidden layer, features and a head; smooth."""

    def __init__(self, head=None):
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, 8), nn.Linear(8, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES) if head is None else head

    def outputs(self, images):
        hidden = torch.tanh(self.first(images))
        features = torch.tanh(self.second(hidden))
        return Outputs(features, self.head(features), self.head, {"input": images, "hidden": hidden})


def mixture(covariance):
    return GaussianMixture(FEATURES, CLASSES, covariance, priors="learned", floor=1e-4)


def margin(norm=2.0, *, layers=("hidden", "features"), denominator="detach", unit="layer", **more):
    settings: dict[str, Any] = {
        "gamma": 2.0,
        "top_k": 2,
        "layer_weights": 0.5,
        "cross_entropy_weight": 1.0,
    } | more
    distance = DistanceSettings(unit=unit, eps=1e-6, denominator=denominator)
    return LargeMarginLoss.paper(layers, norm, distance=distance, **settings)


# Loss, head, then the total and the norms of its gradients at the images and at all parameters, in the third step.
LOSSES = {
    "cross-entropy": (CrossEntropyLoss, None, (1.31303967, 0.1758314239, 0.5221160162)),
    "squared error": (SquaredErrorLoss, None, (1.650667386, 0.5685771607, 3.477347143)),
    "hinge": (partial(HingeLoss, 1.0), None, (1.232007096, 0.2670716898, 1.084560453)),
    "hinge, sum": (partial(HingeLoss, 0.5, "sum"), None, (1.452857733, 0.55836624, 1.808039352)),
    "center": (
        partial(CenterLoss, FEATURES, CLASSES, 0.5, 0.5, "paper"),
        None,
        (1.532527364, 0.1962346552, 0.6174305581),
    ),
    "large-margin softmax": (
        partial(LargeMarginSoftmaxLoss, 4, 0.5),
        None,
        (2.656110039, 0.5063544134, 1.9578518),
    ),
    "contrastive": (partial(ContrastiveLoss, 1.0, 0.5), None, (1.371365417, 0.1835728742, 0.5217446284)),
    "triplet": (partial(TripletLoss, 0.2, "semi_hard", 1.0), None, (1.374120266, 1.569734592, 2.769441152)),
    "large margin, 2": (margin, None, (3.521504034, 0.4241103773, 1.583887541)),
    "large margin, inf": (partial(margin, math.inf), None, (3.411911618, 0.2887344762, 0.9940348645)),
    "large margin, 1": (partial(margin, 1.0), None, (3.646697977, 0.554984365, 2.090178623)),
    "large margin, full, sum": (
        partial(margin, denominator="full", aggregate="sum", top_k=3),
        None,
        (6.481173653, 0.8583250106, 2.238995651),
    ),
    "large margin, softmax": (
        partial(margin, score="softmax", gamma=50.0),
        None,
        (51.49172765, 0.4020398877, 1.489263527),
    ),
    "large margin, element": (
        partial(margin, unit="element", lower_clip=2.0),
        None,
        (3.715624812, 0.6160767699, 2.01719408),
    ),
    "gaussian mixture, identity": (
        partial(GaussianMixtureLoss, 0.3, 0.1, 0.01, bounded=False),
        "identity",
        (2.06164004, 0.2503498287, 0.8341356361),
    ),
    "gaussian mixture, diagonal": (
        partial(GaussianMixtureLoss, 0.3, 0.1, 0.01, bounded=False),
        "class_diagonal",
        (2.268188723, 0.2293224558, 1.028376714),
    ),
    "gaussian mixture, full": (
        partial(GaussianMixtureLoss, StepUp(0.1, 2.0, 2, 0.3), 0.1, 0.1, bounded=False),
        "full",
        (522.0417276, 368.1150427, 53088.7682),
    ),
}


def values_of_loss(make, covariance):
    loss, network = make(), filled(Network(covariance and mixture(covariance)))
    for step in range(3):
        images = waves(BATCH, INPUTS, start=10.0 + step).requires_grad_()
        outputs = network.outputs(images)
        for module in (loss, network):
            module.zero_grad()
        total = loss(outputs, LABELS).total
        total.backward()
        with torch.no_grad():
            loss.after_step(outputs, LABELS)
    parameters = [*network.parameters(), *loss.parameters()]
    squares = sum(float(one.grad.square().sum()) for one in parameters if one.grad is not None)
    return total.item(), float(images.grad.norm()), math.sqrt(squares)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    make, covariance, expected = LOSSES[name]
    assert values_of_loss(make, covariance) == pytest.approx(expected, rel=1e-7)


# Means of logits, log-likelihoods and log-densities, each with waves for weights, and the norm of their gradient.
MIXTURES = {
    "identity": (0.4502533909, 2.837204893, 2.29272048, 9.640965454),
    "scalar": (-0.5920853723, 1.79486613, 2.224385049, 13.98307202),
    "class_scalar": (-2.530364501, -0.1434129994, 1.405775819, 11.77386463),
    "diagonal": (-0.8170974109, 1.569854091, 2.302330149, 12.68291823),
    "class_diagonal": (-0.1083955898, 2.278555912, 2.398406484, 12.19368955),
    "full": (-381.1751035, -380.6060554, 2307.392271, 17581.40804),
}


def values_of_mixture(covariance):
    head = filled(mixture(covariance), start=2.0)
    features = waves(BATCH, FEATURES, start=3.0).requires_grad_()
    found = [head(features), head.log_prob(features), head.log_density(features)]
    sums = [(one * waves(*one.shape, start=4.0)).sum() for one in found]
    sum(sums).backward()
    return *(one.item() for one in sums), float(features.grad.norm())


@pytest.mark.parametrize("covariance", MIXTURES)
def test_mixtures(covariance):
    assert values_of_mixture(covariance) == pytest.approx(MIXTURES[covariance], rel=1e-7)


# Attack, then the mean cross-entropy of its images and their mean distance.
ATTACKS = {
    "FGSM, inf": (partial(FGSM, 0.1, math.inf, loss="cross_entropy"), math.inf, (0.8218587847, 0.1)),
    "FGSM, 2": (partial(FGSM, 0.2, 2.0, loss="cross_entropy"), 2.0, (0.751513347, 0.2)),
    "FGSM, 1": (partial(FGSM, 0.3, 1.0, loss="cross_entropy"), 1.0, (0.7224355685, 0.3)),
    "I-FGSM, inf": (
        partial(IFGSM, 0.1, math.inf, loss="cross_entropy", steps=4),
        math.inf,
        (0.7834575479, 0.0825),
    ),
    "PGD, 2": (partial(PGD, 0.2, 2.0, loss="cross_entropy", steps=20), 2.0, (0.724657336, 0.1630908002)),
    "DeepFool, 2": (partial(DeepFool, 2.0, steps=20), 2.0, (0.8326404166, 0.3807194481)),
    "minimum norm, 2": (partial(MinimumNorm, 2.0, steps=50), 2.0, (0.8461111081, 0.3578060725)),
    "minimum norm, inf": (partial(MinimumNorm, math.inf, steps=50), math.inf, (0.8426539297, 0.118827907)),
}


def values_of_attack(make, norm):
    first, second = nn.Linear(16, 12), nn.Linear(12, CLASSES)
    network = filled(nn.Sequential(nn.Flatten(), first, nn.Tanh(), second)).eval()
    images = (waves(20, 1, 4, 4, start=5.0) + 1) / 2
    labels = network(images).argmax(dim=1)
    found = make()(network, images, labels).images
    moved = torch.linalg.vector_norm((found - images).flatten(1), ord=norm, dim=1)
    return F.cross_entropy(network(found), labels).item(), moved.mean().item()


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name):
    """Searches in several steps may end a little elsewhere on another machine: 0.1 %."""
    make, norm, expected = ATTACKS[name]
    assert values_of_attack(make, norm) == pytest.approx(expected, rel=1e-3)


# Lambda, objective, length of w, hinge risk.
MACHINES = [
    (10, 0.9547858546, 0.03900590252, 0.9395712503),
    (1, 0.8178578857, 0.3900539889, 0.6657157715),
    (0.1, 0.290878093, 1.298892138, 0.1221660145),
    (0.01, 0.06869447047, 2.240129977, 0.01851264731),
    (0.001, 0.008025457267, 2.832923802, 0),
    (0.0001, 0.0008025457267, 2.832923802, 0),
    (1e-05, 8.025457267e-05, 2.832923802, 0),
    (1e-06, 8.025457267e-06, 2.832923802, 0),
]  # fmt: skip


def values_of_machines():
    digits = load_digits()
    rows = np.isin(digits.target, (3, 8))
    x, y = digits.data[rows][:200] / 16, np.where(digits.target[rows][:200] == 3, -1, 1)
    fits = svm_path(x, y, np.logspace(1, -6, 8))
    return [(fit.lam, fit.objective, float(np.linalg.norm(fit.w)), fit.risk) for fit in fits]


def test_machines():
    """The length of w follows from the objective to the root of the solver's gap."""
    found, expected = np.array(values_of_machines()), np.array(MACHINES)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], rtol=1e-6)
    np.testing.assert_allclose(found[:, 2:], expected[:, 2:], rtol=1e-3, atol=1e-6)


WEAK = GradientHeads(HeadTraining(steps=32, lr=0.1, momentum=0.9, weight_decay=1e-2))

# Accuracy on the digits' test images after two epochs. Other seeds of the order move it by up to 0.02.
TRAININGS = {
    "end to end": (EndToEnd(CrossEntropyLoss()), 0.853),
    "FOCA": (
        FOCA(
            weak_heads=WEAK, per_class=10, heads=1, final_head=HeadTraining(steps=100, lr=0.1, batch_size=64)
        ),
        0.944,
    ),
}
BAND = 0.03


def accuracy_after(way, seed=0):
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16, affine=False)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 16), norm, nn.ReLU())
    model = Classifier(extractor, nn.Linear(16, 10), 0.3, 0.38)
    optimizer = partial(torch.optim.SGD, lr=0.02, momentum=0.9)
    fit(model, way, read_digits("train"), epochs=2, batch_size=64, optimizer=optimizer, seed=seed)
    test = read_digits("test")
    with torch.no_grad():
        return float((model(test.images).argmax(dim=1) == test.labels).float().mean())


@pytest.mark.parametrize("name", TRAININGS)
def test_two_epochs_on_digits(name):
    way, expected = TRAININGS[name]
    assert accuracy_after(way) == pytest.approx(expected, abs=BAND)
