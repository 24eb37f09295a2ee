"""The same attacks as foolbox: the sign method to the bit, its iteration to rounding."""

import math
import warnings

import pytest
import torch

from clearance.attacks import FGSM, IFGSM, PGD, SCALE_FREE, as_attack
from digits_nets import digits, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
    foolbox = pytest.importorskip("foolbox")

COUNT = 200


def batch():
    _, test = digits()
    return test.batch(torch.arange(COUNT))


def theirs(attack, images, criterion, epsilon):
    """What foolbox returns, clipped to its ball."""
    model = foolbox.PyTorchModel(network(), bounds=(0, 1))
    return attack(model, images, criterion, epsilons=epsilon)[1]


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.3])
def test_fgsm_is_foolboxs_bit_for_bit(epsilon):
    images, labels = batch()
    expected = theirs(foolbox.attacks.LinfFastGradientAttack(), images, labels, epsilon)
    assert torch.equal(FGSM(epsilon).perturbed(network(), images, labels), expected)
    # and so is what a call returns for the images that the model gets right
    hit = FGSM(epsilon)(network(), images, labels)
    right = network()(images).argmax(dim=1) == labels
    assert torch.equal(hit.images[right], expected[right])


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.3])
def test_ifgsm_is_foolboxs_to_rounding(epsilon):
    images, labels = batch()
    expected = theirs(foolbox.attacks.LinfBasicIterativeAttack(), images, labels, epsilon)
    found = IFGSM(epsilon).perturbed(network(), images, labels)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_pgd_on_cross_entropy_from_the_image_is_foolboxs_to_rounding():
    images, labels = batch()
    attack = foolbox.attacks.LinfPGD(abs_stepsize=0.01, steps=40, random_start=False)
    expected = theirs(attack, images, labels, 0.1)
    found = PGD(0.1, loss="cross_entropy", step=0.01).perturbed(network(), images, labels)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_targeted_ifgsm_is_foolboxs_to_rounding():
    images, labels = batch()
    targets = (labels + 1) % 10
    criterion = foolbox.criteria.TargetedMisclassification(targets)
    expected = theirs(foolbox.attacks.LinfBasicIterativeAttack(), images, criterion, 0.1)
    found = IFGSM(0.1).perturbed(network(), images, labels, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_steps_of_norm_2_are_foolboxs_away_from_the_bounds():
    """At the bounds ours goes to the nearest point of ball and box together, foolbox clips one after the other."""
    images, labels = batch()
    images = 0.4 + 0.2 * images
    attack = foolbox.attacks.L2BasicIterativeAttack(rel_stepsize=0.2, steps=10)
    expected = theirs(attack, images, labels, 0.3)
    assert expected.min() > 0
    assert expected.max() < 1
    found = IFGSM(0.3, norm=2).perturbed(network(), images, labels)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("norm", "epsilon"), [(math.inf, 0.1), (2, 0.6), (1, 2.0)])
def test_nothing_is_lost_against_foolboxs_pgd(norm, epsilon):
    """Same ball, forty steps: the scale-free losses together break at least as many images, but for one."""
    images, labels = batch()
    kinds = {
        math.inf: foolbox.attacks.LinfPGD,
        2: foolbox.attacks.L2PGD,
        1: foolbox.attacks.SparseL1DescentAttack,
    }
    attack = kinds[norm](steps=40, random_start=False)
    shown = theirs(attack, images, labels, epsilon)
    with torch.no_grad():
        broken = int((network()(shown).argmax(dim=1) != labels).sum())
    assert broken > 20
    ours = [PGD(epsilon, norm, loss)(network(), images, labels).success for loss in SCALE_FREE]
    assert int(torch.stack(ours).any(dim=0).sum()) >= broken - 1


def test_foolboxs_attack_is_an_attack_here():
    images, labels = batch()

    def fast(model, x, y):
        return foolbox.attacks.LinfFastGradientAttack()(
            foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=0.1
        )[1]

    theirs_here = as_attack(fast, epsilon=0.1)(network(), images, labels)
    ours = FGSM(0.1)(network(), images, labels)
    assert torch.equal(theirs_here.images, ours.images)
    assert torch.equal(theirs_here.success, ours.success)
