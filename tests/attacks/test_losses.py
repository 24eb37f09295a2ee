"""The losses of attacks against slow formulas, and what scaling logits does to them: nothing."""

import math

import pytest
import torch

from clearance.attacks import FGSM, PGD, SCALE_FREE
from clearance.attacks.attack import Batch
from clearance.attacks.losses import LOSSES, SPREAD_IN_UNITS, targeted_dlr
from digits_nets import Times, digits, network

LABELS, TARGETS = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([3, 0, 4, 1, 2])


def logits(dtype=torch.float64):
    return (4 * torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).to(dtype)


def slow(name, z, y, t=None):
    """The formula in plain Python; z is a list."""
    up = sorted(z, reverse=True)
    if name == "logit_margin":
        goal = y if t is None else t
        margin = max(v for k, v in enumerate(z) if k != goal) - z[goal]
        return margin if t is None else -margin
    if name == "dlr" and t is None:
        return -(z[y] - max(v for k, v in enumerate(z) if k != y)) / (up[0] - up[2])
    if name == "dlr":
        return -(z[y] - z[t]) / (up[0] - (up[2] + up[3]) / 2)
    unit = (up[0] - up[-1]) / SPREAD_IN_UNITS if name == "scaled_cross_entropy" else 1.0
    goal = y if t is None else t
    terms = [math.exp((v - z[goal]) / unit) for k, v in enumerate(z) if k != goal or unit == 1]
    loss = math.log(sum(terms))  # in units of their own as log odds: without the term of the goal itself
    return loss if t is None else -loss


def towards_targets(name, z):
    """As an attack steers them."""
    return Batch(lambda images: images, z, LABELS, TARGETS, z.detach()).loss(z, name)


@pytest.mark.parametrize("name", list(LOSSES))
def test_values_are_the_formulas(name):
    away = [slow(name, z, y) for z, y in zip(logits().tolist(), LABELS.tolist(), strict=True)]
    torch.testing.assert_close(LOSSES[name](logits(), LABELS), torch.tensor(away, dtype=torch.float64))
    rows = zip(logits().tolist(), LABELS.tolist(), TARGETS.tolist(), strict=True)
    towards = [slow(name, z, y, t) for z, y, t in rows]
    found = towards_targets(name, logits())
    torch.testing.assert_close(found, torch.tensor(towards, dtype=torch.float64))


def gradient(name, z, targeted):
    leaf = z.clone().requires_grad_()
    loss = towards_targets(name, leaf) if targeted else LOSSES[name](leaf, LABELS)
    return torch.autograd.grad(loss.sum(), leaf)[0]


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("name", list(SCALE_FREE))
def test_a_power_of_two_changes_no_bit_of_the_direction(name, targeted):
    z = logits(torch.float32)
    plain = gradient(name, z, targeted)
    for power in (2.0**-40, 64.0, 2.0**40):
        loud = gradient(name, power * z, targeted)
        scale = 1.0 if name == "logit_margin" else power
        assert torch.equal(scale * loud, plain)


@pytest.mark.parametrize("name", list(SCALE_FREE))
@pytest.mark.parametrize("factor", [1e-6, 50.0, 1e9])
def test_any_other_factor_changes_rounding_alone(name, factor):
    plain, loud = gradient(name, logits(), False), gradient(name, factor * logits(), False)
    torch.testing.assert_close(loud / loud.norm(), plain / plain.norm(), rtol=1e-9, atol=1e-12)


def test_plain_cross_entropy_is_not_scale_free():
    """Or the two tests before would say nothing; the sign method then stands still."""
    z = logits(torch.float32)
    assert not torch.equal(gradient("cross_entropy", 64 * z, False) / 64, gradient("cross_entropy", z, False))
    _, test = digits()
    images, labels = test.batch(torch.arange(100))
    quiet, loud = network(), Times(network(), 1000.0)
    assert FGSM(0.3)(quiet, images, labels).success_rate > 0.9
    assert FGSM(0.3)(loud, images, labels).success_rate < 0.5
    for name in SCALE_FREE:
        heard = FGSM(0.3, loss=name)(quiet, images, labels).success_rate
        assert FGSM(0.3, loss=name)(loud, images, labels).success_rate == pytest.approx(heard, abs=0.02)


@pytest.mark.parametrize("classes", [2, 10])
def test_in_units_of_their_own_logits_keep_a_gradient_however_sure_they_are(classes):
    """The label leads by the whole spread: its probability is 1 to the last digit in single precision."""
    z = torch.full((1, classes), -1.0)
    z[0, 0] = 9.0
    leaf = z.requires_grad_()
    (own,) = torch.autograd.grad(LOSSES["scaled_cross_entropy"](leaf, torch.tensor([0])).sum(), leaf)
    assert own[0, 0] < 0 < own[0, 1]
    assert float(own.sum()) == pytest.approx(0, abs=1e-6)
    wide = z.detach().double().requires_grad_()
    unit = 10 / SPREAD_IN_UNITS
    plain = torch.nn.functional.cross_entropy(wide / unit, torch.tensor([0]))
    (expected,) = torch.autograd.grad(plain, wide)
    torch.testing.assert_close((own / own.norm()).double(), expected / expected.norm(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("mask", [-1e5, -1e9, -3.4e38])
def test_a_class_that_is_masked_changes_nothing(name, mask):
    z = logits(torch.float32)
    masked = torch.cat([z, torch.full((5, 1), mask)], dim=1)
    torch.testing.assert_close(LOSSES[name](masked, LABELS), LOSSES[name](z, LABELS))


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_common_shift_changes_nothing(name):
    shifted = LOSSES[name](logits() + 7.0, LABELS)
    torch.testing.assert_close(shifted, LOSSES[name](logits(), LABELS))


@pytest.mark.parametrize("name", list(LOSSES))
def test_ties_and_equal_logits_have_finite_values_and_gradients(name):
    for z in (
        torch.zeros(5, 6),
        torch.tensor([[1.0, 1, 1, 0, 0, 0]]).repeat(5, 1),
        1e30 * logits(torch.float32),
    ):
        for targeted in (False, True):
            assert gradient(name, z, targeted).isfinite().all()
        assert LOSSES[name](z, LABELS).isfinite().all()


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_widened(name, dtype):
    z = logits(dtype)
    found = LOSSES[name](z, LABELS)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double(), LOSSES[name](z.double(), LABELS), rtol=1e-5, atol=1e-6)


def test_two_classes_have_no_third_logit():
    z, y = torch.randn(3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match=r"at least 3 classes because .* got 2; use 'logit_margin'"):
        LOSSES["dlr"](z, y)
    with pytest.raises(ValueError, match=r"at least 3 classes"):
        targeted_dlr(z, y, 1 - y)
    with pytest.raises(ValueError, match=r"at least 3 classes"):
        PGD(0.1, loss="dlr")(lambda x: x.flatten(1)[:, :2], torch.rand(3, 1, 2, 2), y)


def test_three_classes_have_no_fourth():
    z, y, t = torch.tensor([[4.0, 1.0, 2.0]]), torch.tensor([0]), torch.tensor([2])
    assert float(targeted_dlr(z, y, t)) == pytest.approx(-2 / 3)


def test_an_unknown_loss_is_refused_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"`loss` must be one of .* got 'logit_margins'. Did you mean 'logit_margin'"
    ):
        FGSM(0.1, loss="logit_margins")
