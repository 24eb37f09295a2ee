"""What comes back from any attack is clipped, checked and scored afresh; transfer and foreign attacks among them."""

import math

import pytest
import torch

from clearance.attacks import (
    FGSM,
    IFGSM,
    PGD,
    DeepFool,
    MinimumNorm,
    SquareSearch,
    TargetedAscent,
    as_attack,
    transferred,
)  # fmt: skip
from digits_nets import RoundingFront, digits, network


def batch(count=60):
    _, test = digits()
    return test.batch(torch.arange(count))


def moved_by(step):
    return lambda model, images, labels: images + step


def test_images_are_clipped_and_repaired_up_to_rounding():
    images, labels = batch()
    hit = as_attack(moved_by(0.1 * (1 + 1e-5)), 0.1)(network(), images, labels)
    assert hit.images.max() <= 1
    assert (hit.images - images).abs().max() <= 0.1 + 1e-7
    hit = as_attack(moved_by(0.01 * (1 + 1e-5)), 0.01 * 8, norm=2)(network(), images, labels)
    assert (hit.images - images).flatten(1).norm(dim=1).max() <= 0.08 * (1 + 1e-6)


@pytest.mark.parametrize(("norm", "length"), [(math.inf, 0.11), (2, 0.02), (1, 0.01)])
def test_images_outside_the_ball_are_refused(norm, length):
    images, labels = batch()
    images = 0.1 + 0.8 * images
    with pytest.raises(
        ValueError, match=r"an attack must stay within `epsilon` 0.1 in norm .* give it the same radius"
    ):
        as_attack(moved_by(length), 0.1, norm)(network(), images, labels)


def test_another_shape_is_refused_and_arrays_are_taken():
    images, labels = batch()
    with pytest.raises(
        ValueError, match=r"an attack must return images of shape \(\d+, 1, 8, 8\), as it got"
    ):
        as_attack(lambda model, x, y: x[1:], 0.1)(network(), images, labels)
    found = as_attack(lambda model, x, y: (x + 0.1).numpy(), 0.1)(network(), images, labels)
    assert torch.equal(found.images, as_attack(moved_by(0.1), 0.1)(network(), images, labels).images)


def test_pixels_that_are_no_numbers_are_put_back():
    images, labels = batch()
    hit = as_attack(lambda model, x, y: x * math.nan, 0.1)(network(), images, labels)
    assert torch.equal(hit.images, images)


def test_a_foreign_attack_is_not_given_the_callers_images_nor_those_that_are_wrong():
    images, labels = batch()
    kept = images.clone()
    labels[3] = (labels[3] + 1) % 10
    seen = []

    def spoil(model, x, y):
        seen.append(len(x))
        return x.zero_()

    hit = as_attack(spoil, 1.0)(network(), images, labels)
    assert torch.equal(images, kept)
    right = int((network()(images).argmax(dim=1) == labels).sum())
    assert seen == [right]
    assert torch.equal(hit.images[3], images[3])
    with pytest.raises(ValueError, match="takes no targets"):
        as_attack(spoil, 1.0)(network(), images, labels, (labels + 1) % 10)


@pytest.mark.parametrize(
    "ask", [PGD(0.1), PGD(0.1).perturbed, TargetedAscent()], ids=["attack", "perturbed", "ascent"]
)
def test_an_image_s_own_label_is_no_target(ask):
    images, labels = batch()
    targets = (labels + 1) % 10
    targets[5] = labels[5]
    with pytest.raises(
        ValueError, match=r"`targets` must be other classes.*got the label itself.*1 of \d+ images.*5"
    ):
        ask(network(), images, labels, targets)


@pytest.mark.parametrize("kind", [FGSM, PGD, DeepFool, MinimumNorm, TargetedAscent])
def test_norms_may_be_words_as_in_recipes(kind):
    first = (0.1,) if kind in (FGSM, PGD) else ()
    assert [kind(*first, norm=word).norm for word in ("inf", "2", "1")] == [math.inf, 2.0, 1.0]
    with pytest.raises(ValueError, match="`norm` must be one of inf, 2, 1; got 'max'"):
        kind(*first, norm="max")


def test_targets_of_attack_and_call_do_not_go_together():
    images, labels = batch()
    with pytest.raises(ValueError, match="`targets` must be given to the attack or to its call, not to both"):
        PGD(0.1, targets=2)(network(), images, labels, (labels + 1) % 10)
    with pytest.raises(ValueError, match=r"`targets` must lie in 0 ... 9"):
        PGD(0.1)(network(), images, labels, labels + 10)


def test_a_radius_in_grey_levels_is_refused():
    with pytest.raises(
        ValueError, match=r"`epsilon` must be at most 1, .* got 8.0; .* divide grey levels by 255"
    ):
        FGSM(8.0)
    assert FGSM(8.0, norm=2).epsilon == 8.0


@pytest.mark.parametrize(
    "settings", [{"steps": 0}, {"step": 0.0}, {"restarts": 0}, {"targets": 0}, {"seed": -1}, {"chunk": 0}]
)
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"`{name}` must be a"):
        PGD(0.1, **settings)


def test_the_model_sees_batches_of_one_size():
    images, labels = batch()
    sizes = []

    def model(x):
        sizes.append(len(x))
        return network()(x)

    PGD(0.1, steps=5, restarts=2, chunk=16)(model, images, labels)
    assert set(sizes) == {16}
    assert len(sizes) > 10


def test_broken_images_cost_nothing_more():
    """At a radius where all break at once, forty steps ask no more than one does."""
    images, labels = batch(20)
    asked = []

    def model(x):
        asked.append(1)
        return network()(x)

    PGD(1.0, step=1.0, restarts=5)(model, images, labels)
    assert len(asked) <= 6


def test_in_chunks_the_gradient_is_that_of_the_plain_model():
    images, _ = batch(30)
    images = 0.3 + 0.4 * images  # no bound is met
    labels = network()(images).argmax(dim=1)
    leaf = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(network()(leaf), labels), leaf)
    expected = images + 0.05 * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    hit = FGSM(0.05, norm=2, chunk=7)(network(), images, labels)
    torch.testing.assert_close(hit.images, expected)


def answering(rows):
    """A model that answers to an image of one pixel, k tenths, with row k; and as many images."""
    images = torch.arange(len(rows)).view(-1, 1) / 10
    return lambda x: torch.tensor(rows)[(10 * x[:, 0]).round().long()], images


def test_success_is_a_wrong_class_or_the_target_and_logits_that_are_not_finite_name_no_class():
    rows = [
        [1.0, 2.0, 0.0],
        [3.0, 2.0, 0.0],
        [math.nan, 2.0, 0.0],
        [math.inf, 0.0, 0.0],
        [1.0, 0.0, -math.inf],
    ]
    model, images = answering(rows)
    look = SquareSearch(0.0, queries=1)
    assert look(model, images, torch.tensor([1, 1, 0, 0, 0])).success.tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    targets = look(model, images, torch.tensor([0, 1, 1, 1, 1]), torch.tensor([1, 2, 0, 0, 0]))
    assert targets.success.tolist() == [True, False, False, False, False]


def test_transfer_uses_the_sources_gradients_alone():
    """A rounding front hides the target's gradient; images made on the network behind it find their way."""
    images, labels = batch()
    hidden = RoundingFront(network())
    white = PGD(0.2, steps=10)(hidden, images, labels)
    black = transferred(network(), PGD(0.2, steps=10))(hidden, images, labels)
    assert white.success_rate < 0.3
    assert black.success_rate > 0.8


def test_a_transferred_attack_is_scored_as_a_slow_look_and_weaker_than_a_white_box():
    images, labels = batch()
    attack, source, target = IFGSM(0.1, steps=4), network(0), network(1)
    hit = transferred(source, attack)(target, images, labels)
    shown = attack.perturbed(source, images, labels)
    before, after = (target(x).argmax(dim=1) != labels for x in (images, shown))
    assert torch.equal(hit.success, before | after)
    assert hit.success_rate < attack(target, images, labels).success_rate


def test_a_source_that_is_wrong_still_makes_images():
    """Left alone, they would reach the target unattacked."""
    images, labels = batch()
    attack = FGSM(0.2)
    made = attack.perturbed(network(), images, (labels + 1) % 10)  # wrong about all of them
    assert (made != images).flatten(1).any(dim=1).all()


def test_images_for_transfer_are_verified_as_those_of_a_call():
    images, labels = batch()
    with pytest.raises(ValueError, match=r"an attack must stay within `epsilon` 0\.01"):
        transferred(network(), as_attack(lambda model, x, y: 1 - x, 0.01))(network(1), images, labels)
    nothing = as_attack(lambda model, x, y: x * math.nan, 0.1)
    assert torch.equal(transferred(network(), nothing)(network(1), images, labels).images, images)


def test_a_foreign_attack_leaves_the_model_as_it_was():
    images, labels = batch()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10)).eval()
    last = model[2]
    assert isinstance(last, torch.nn.Linear)
    kept = torch.ones_like(last.weight)
    last.weight.grad = kept

    def careless(model, x, y):
        model.train()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        return x

    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert "1.running_mean" in before
    as_attack(careless, 0.1)(model, images, labels)
    assert not any(module.training for module in model.modules())
    assert last.weight.grad is kept
    assert bool((kept == 1).all())
    assert last.bias.grad is None
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
