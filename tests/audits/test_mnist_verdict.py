"""The verdict and the nearest wrong images on MNIST itself, against foolbox on the same networks and images."""

import math
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from clearance.attacks import MinimumNorm
from clearance.audits import Robustness
from clearance.experiments.datasets import load_dataset
from clearance.losses import CrossEntropyLoss, LargeMarginLoss, Loss
from clearance.models import Classifier
from clearance.training import EndToEnd, fit
from digits_nets import Times

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
    foolbox = pytest.importorskip("foolbox")

pytestmark = pytest.mark.slow

LOSSES: dict[str, Callable[[], Loss]] = {
    "cross-entropy": CrossEntropyLoss,
    "margin": lambda: LargeMarginLoss(("input",), math.inf, 0.1, layer_weights=10.0),
}


@pytest.fixture(scope="module")
def mnist(data_root):
    """Some training images, and a few test images of every class."""
    train, test = (load_dataset("mnist", split, data_root) for split in ("train", "test"))
    return train.per_class(300, seed=0), test.per_class(5, seed=0)


@pytest.fixture(scope="module", params=LOSSES)
def trained(request, mnist):
    """A small convolutional network."""
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()
    )
    model = Classifier(extractor, nn.Linear(256, 10))
    fit(
        model,
        EndToEnd(LOSSES[request.param]()),
        mnist[0],
        steps=200,
        batch_size=64,
        optimizer=partial(torch.optim.Adam, lr=0.003),
    )
    return model.eval()


@pytest.fixture(scope="module")
def verdicts(trained, mnist):
    """By radius."""
    found = Robustness(epsilons={"inf": (0.1, 0.3)}, queries=200)(trained, *mnist)
    return {m.context["epsilon"]: m.value for m in found.measurements if m.name == "robust_accuracy"}


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_at_most_half_a_point_above_foolboxs_pgd_on_scaled_logits(trained, mnist, verdicts, epsilon):
    images, labels = mnist[1].images, mnist[1].labels
    with torch.no_grad():
        top = trained(images).topk(2, dim=1).values
    unit = float((top[:, 0] - top[:, 1]).median())
    wrapped = foolbox.PyTorchModel(Times(trained, 1 / unit), bounds=(0, 1), device="cpu")
    alive = trained(images).argmax(dim=1) == labels
    assert float(alive.double().mean()) > 0.85
    torch.manual_seed(0)
    for random_start in (False, True, True):
        attack = foolbox.attacks.LinfPGD(steps=40, rel_stepsize=2.5 / 40, random_start=random_start)
        _, _, success = attack(wrapped, images, labels, epsilons=epsilon)
        alive &= ~success
    assert verdicts[epsilon] <= float(alive.double().mean()) + 0.005


def test_the_median_distance_is_at_most_3_percent_above_the_best_of_foolbox(trained, mnist):
    right = trained(mnist[1].images).argmax(dim=1) == mnist[1].labels
    images, labels = mnist[1].images[right][:30], mnist[1].labels[right][:30]
    wrapped = foolbox.PyTorchModel(trained, bounds=(0, 1), device="cpu")
    best = math.inf
    for attack in (
        foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=6, steps=150, initial_const=1.0),
        foolbox.attacks.DDNAttack(steps=150),
        foolbox.attacks.L2FMNAttack(steps=150),
    ):
        torch.manual_seed(0)
        found, _, success = attack(wrapped, images, labels, epsilons=None)
        distance = (found - images).flatten(1).norm(dim=1)
        best = min(best, float(torch.where(success, distance, math.inf).median()))
    ours = MinimumNorm(2.0)(trained, images, labels)
    assert ours.success.all()
    assert float(ours.distance.median()) <= 1.03 * best
