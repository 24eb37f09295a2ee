"""Models that round, with a gradient: the same values bit for bit, and what lies behind found."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearance.attacks import APGD, FGSM, straight_through, transferred
from clearance.attacks.attack import NoGradientWarning, gradients_of
from clearance.attacks.balls import random_starts
from clearance.attacks.transfer import has_steps


@torch.no_grad()
def without_graph(x):
    scaled = 8 * x
    return scaled.round() / 8


STEPS = {
    "round": lambda x: torch.round(8 * x) / 8,
    "method": lambda x: (8 * x).round() / 8,
    "digits of round": lambda x: torch.round(x, decimals=1),
    "floor": lambda x: (8 * x).floor() / 8,
    "ceil": lambda x: torch.ceil(8 * x) / 8,
    "trunc": lambda x: (8 * x).trunc() / 8,
    "fix": lambda x: torch.fix(8 * x) / 8,
    "in place": lambda x: (8 * x).round_() / 8,
    "a function in place": lambda x: torch.floor_(8 * x) / 8,
    "digits of round in place": lambda x: (1.0 * x).round_(decimals=1),
    "division": lambda x: torch.div(8 * x, 1, rounding_mode="floor") / 8,
    "division by a method": lambda x: (8 * x).div(1, rounding_mode="trunc") / 8,
    "whole division": lambda x: (8 * x) // 1 / 8,
    "whole division by name": lambda x: torch.floor_divide(8 * x, 1) / 8,
    "a remainder": lambda x: x - x % 0.125,
    "a remainder by name": lambda x: x - torch.remainder(x, 0.125),
    "what is left of a division": lambda x: x - torch.fmod(x, 0.125),
    "what is left of a whole number": lambda x: (8 * x - (8 * x).frac()) / 8,
    "a name for the images": lambda x: torch.floor(input=8 * x) / 8,
    "a whole number": lambda x: (8 * x).int() / 8,
    "a whole number of a type": lambda x: (8 * x).to(torch.int64) / 8,
    "there and back": lambda x: (8 * x).byte().float() / 8,
    "behind detach": lambda x: (8 * x.detach()).round() / 8,
    "of its data": lambda x: (8 * x.data).round_() / 8,
    "without a graph": without_graph,
}


def images(count=6):
    return torch.rand(count, 1, 3, 3, generator=torch.Generator().manual_seed(0))


def slope(model, given):
    leaf = given.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(leaf).sum(), leaf, materialize_grads=True)
    return found


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_values_are_the_models_bit_for_bit_and_gradients_pass(step):
    given = images()
    past = straight_through(step)
    assert torch.equal(past(given), step(given))
    assert torch.equal(past(given.clone().requires_grad_()), step(given))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoGradientWarning)  # of steps that have no derivative at all
        plain = gradients_of(lambda x: step(x).flatten(1), given, lambda logits, _: logits.sum(1))[1]
    assert not plain.any()
    torch.testing.assert_close(slope(past, given), torch.ones_like(given))
    assert has_steps(step, given)


def test_where_there_can_be_no_gradient_the_model_stays_as_it_is():
    """NumPy takes no tensor that needs one; what rounds before it is still passed by those who ask for less."""

    def model(x):
        return torch.from_numpy(x.detach().numpy().round())

    given = images()
    assert torch.equal(straight_through(model)(given), model(given))
    assert torch.equal(straight_through(model)(given.clone().requires_grad_()), model(given))
    assert not has_steps(model, given)


class Doubled(torch.autograd.Function):
    """With a derivative of its own; autograd runs its forward without gradients."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope


class Noting(nn.Module):
    """Keeps what it saw, and a running mean of it, as people do to look at activations."""

    def __init__(self):
        super().__init__()
        self.last, self.seen = torch.zeros(1), torch.zeros(1)

    def forward(self, x):
        self.last = x.detach()
        self.seen = 0.9 * self.seen + 0.1 * x.detach().mean()
        return 2 * x


class Weighted(nn.Module):
    """A detach of nothing but a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x):
        return x * self.weight / self.weight.detach().norm()


def kept_for_later(x):
    return checkpoint(lambda y: y * torch.sigmoid(y.detach()), x, use_reentrant=False)


@pytest.mark.parametrize("model", [Doubled.apply, Noting().eval(), Weighted().eval(), kept_for_later])
def test_gradients_that_are_all_there_or_cannot_be_passed_stay_the_models_own(model):
    given = images()
    assert not has_steps(model, given)
    assert torch.equal(slope(straight_through(model), given), slope(model, given))


def test_what_a_model_keeps_of_its_images_has_no_graph_afterwards():
    model = Noting()
    has_steps(model, images())
    assert not model.last.requires_grad
    assert not model.seen.requires_grad
    copy.deepcopy(model)


def test_a_change_in_place_is_seen_by_all_who_hold_the_tensor():
    def model(x):
        scaled = 8 * x
        other = scaled[:, :, 0]
        scaled.round_()
        return torch.cat([scaled.flatten(1), other.flatten(1)], dim=1)

    given = images()
    past = straight_through(model)
    assert torch.equal(past(given.clone().requires_grad_()), model(given))
    rows = torch.tensor([16.0, 8.0, 8.0])[:, None].expand(3, 3)
    torch.testing.assert_close(slope(past, given), rows.expand_as(given))


def test_whole_numbers_that_a_model_needs_as_such_stay():
    table = torch.arange(9.0)
    model = lambda x: table[(8 * x).long()] + x.round()  # noqa: E731
    given = images()
    past = straight_through(model)
    assert torch.equal(past(given.clone().requires_grad_()), model(given))
    torch.testing.assert_close(slope(past, given), torch.ones_like(given))


def test_an_error_of_the_model_is_its_own():
    with pytest.raises(RuntimeError, match="shape"):
        straight_through(lambda x: x.round() @ torch.ones(2, 2))(images().requires_grad_())


def test_the_sign_counts_as_its_argument():
    torch.testing.assert_close(
        slope(straight_through(lambda x: (3 * x).sign()), images()), 3 * torch.ones_like(images())
    )


def test_behind_a_front_the_gradient_is_that_of_the_network_at_the_rounded_image():
    network = nn.Sequential(nn.Flatten(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)).eval()
    given = images()
    hidden = straight_through(lambda x: network(STEPS["round"](x)))
    torch.testing.assert_close(slope(hidden, given), slope(network, STEPS["round"](given)))


def test_a_model_without_steps_stays_as_it_is():
    network = nn.Sequential(nn.Flatten(), nn.Linear(9, 3)).eval()
    assert not has_steps(network, images())
    assert torch.equal(slope(straight_through(network), images()), slope(network, images()))


def test_outside_the_call_nothing_is_changed():
    straight_through(torch.round)(images().requires_grad_())
    assert not slope(torch.round, images()).any()


def test_a_module_in_training_mode_is_refused():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"evaluation mode.*call `model.eval\(\)` first"):
        straight_through(module)(torch.rand(2, 4))
    straight_through(module.eval())(torch.rand(2, 4))


def test_has_steps_leaves_no_gradient_anywhere():
    given = images().requires_grad_()
    network = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    with torch.inference_mode():
        assert has_steps(lambda x: network(x.round()), given)
    assert given.grad is None
    assert all(parameter.grad is None for parameter in network.parameters())


def test_an_attack_that_is_blind_finds_its_way():
    weight = torch.tensor([[1.0, -1.0]])
    model = lambda x: torch.cat([t := STEPS["round"](x) @ weight.T, -t], dim=1)  # noqa: E731
    given, labels = torch.tensor([[0.625, 0.375], [0.75, 0.5]]), torch.tensor([0, 0])
    assert not FGSM(0.25)(model, given, labels).success.any()
    assert transferred(straight_through(model), FGSM(0.25))(model, given, labels).success.all()


@pytest.mark.parametrize("norm", [math.inf, 2.0])
def test_an_attack_that_sees_no_gradient_asks_once_at_each_start(norm):
    asked = []

    def model(x):
        asked.append(len(x))
        score = (8 * x).round().flatten(1).sum(dim=1) - 36
        return torch.stack([score, -score], dim=1)

    given = images(40)
    labels = model(given).argmax(dim=1)
    asked.clear()
    attack = APGD(0.3, norm, steps=20, restarts=3, seed=0, chunk=40)
    hit = attack(model, given, labels)
    assert len(asked) <= 1 + 3 + 2  # before, at the starts, and what was found once more
    starts = [random_starts(given, 0.3, norm, seed=0, stream=number) for number in (1, 2)]
    broken = torch.stack([model(given + start).argmax(dim=1) != labels for start in starts])
    assert 0 < int(broken.any(dim=0).sum()) < 40
    assert torch.equal(hit.success, broken.any(dim=0))


def test_one_image_without_a_gradient_does_not_decide_for_all():
    """A black image meets dead units, and what stops gradients would never be passed."""
    torch.manual_seed(0)
    first, last = nn.Linear(4, 8, bias=False), nn.Linear(8, 3)

    def stopped(images):
        return last(first(images.flatten(1).detach()).relu())

    images = torch.rand(6, 1, 2, 2)
    images[0] = 0
    assert has_steps(stopped, images)
    passing, leaf = straight_through(stopped), images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(passing(leaf).sum(), leaf)
    assert bool(slope[1:].any())
