"""What every attack promises; the list of them is in attack_cases.py."""

import inspect
import math
import warnings

import pytest
import torch
from torch import nn

import clearance.attacks
from attack_cases import ATTACKS, COUNT, batch
from clearance.attacks import FGSM, PGD, SquareSearch
from clearance.attacks.attack import NoGradientWarning
from digits_nets import RoundingFront, Times, network


def distance(found, images, norm):
    """In float64, and with none of the library's code."""
    delta = (found.double() - images.double()).flatten(1)
    return torch.linalg.vector_norm(delta, ord=norm, dim=1)


def same(one, other):
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("images", "success", "distance")
    )


def is_an_attack(kind):
    """Something that can be made and called; bases are neither."""
    called = isinstance(kind, type) and "__call__" in {name for part in kind.__mro__ for name in vars(part)}
    return called and not inspect.isabstract(kind)


def test_every_public_attack_is_in_the_list():
    public = [getattr(clearance.attacks, name) for name in clearance.attacks.__all__]
    listed = {type(case.make()) for case in ATTACKS.values()}
    assert {FGSM, PGD} <= listed
    assert {kind for kind in public if is_an_attack(kind)} <= listed


def test_images_stay_within_bounds_and_ball(case):
    images, labels = batch()
    hit = case.make()(network(), images, labels)
    assert hit.images.shape == images.shape
    assert hit.images.dtype == images.dtype
    assert hit.images.min() >= 0
    assert hit.images.max() <= 1
    assert hit.success.dtype == torch.bool
    assert hit.success.shape == hit.distance.shape == (COUNT,)
    if case.epsilon is not None:
        assert distance(hit.images, images, case.norm).max() <= case.epsilon * (1 + 1e-6)


def test_success_and_distance_are_what_a_fresh_look_finds(case):
    images, labels = batch()
    hit = case.make()(network(), images, labels)
    with torch.no_grad():
        named = network()(hit.images).argmax(dim=1)
    if case.own_goal:
        assert (named[hit.success] != labels[hit.success]).all()
    else:
        assert torch.equal(hit.success, named != labels)
    assert 2 < hit.success.sum() <= COUNT - (case.epsilon is not None)  # or the others would be about nothing
    known = hit.distance.isfinite()
    assert known[hit.success].all()
    found = distance(hit.images, images, case.norm)
    torch.testing.assert_close(hit.distance[known].double(), found[known], rtol=1e-5, atol=1e-7)


def test_an_image_that_was_wrong_before_is_left_alone(case):
    if case.own_goal:
        pytest.skip("its goal is another one")
    images, labels = batch()
    hit = case.make()(network(), images, labels)
    assert torch.equal(hit.images[:2], images[:2])
    assert hit.success[:2].all()
    assert (hit.distance[:2] == 0).all()


def test_radius_0_changes_nothing(in_a_ball):
    images, labels = batch()
    hit = in_a_ball.at_radius(0.0)(network(), images, labels)
    assert torch.equal(hit.images, images)
    assert torch.equal(hit.success, network()(images).argmax(dim=1) != labels)


def test_a_larger_radius_breaks_more(in_a_ball):
    images, labels = batch()
    small, large = (
        in_a_ball.at_radius(scale * in_a_ball.epsilon)(network(), images, labels).success_rate
        for scale in (0.5, 2.0)
    )
    assert small < large


def test_batch_size_and_order_change_no_bit(case):
    images, labels = batch()
    attack, model = case.make(), network()
    whole = attack(model, images, labels)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
    mixed = attack(model, images[order], labels[order])
    assert torch.equal(mixed.images, whole.images[order])
    assert torch.equal(mixed.success, whole.success[order])
    for rows in (slice(5, 6), slice(7, 10), slice(10, 27)):
        part = attack(model, images[rows], labels[rows])
        assert torch.equal(part.images, whole.images[rows])
        assert torch.equal(part.distance, whole.distance[rows])


def test_logits_times_64_change_no_bit(scale_free):
    images, labels = batch()
    attack = scale_free.make()
    assert same(attack(Times(network(), 64.0), images, labels), attack(network(), images, labels))


@pytest.mark.parametrize("factor", [50.0, 1e-3])
def test_logits_times_a_number_that_rounds_change_no_verdict_here(scale_free, factor):
    images, labels = batch()
    attack = scale_free.make()
    loud = attack(Times(network(), factor), images, labels)
    assert torch.equal(loud.success, attack(network(), images, labels).success)


def test_gradients_arguments_and_modes_are_left_as_they_were(case):
    images, labels = batch()
    model = network()
    images.requires_grad_()
    given = images.detach().clone(), labels.clone()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    try:
        hit = case.make()(model, images, labels)
        if not case.foreign:
            assert all(bool((parameter.grad == 3.0).all()) for parameter in model.parameters())
    finally:
        model.zero_grad()
    assert images.grad is None
    assert images.requires_grad
    assert torch.equal(images, given[0])
    assert torch.equal(labels, given[1])
    assert not hit.images.requires_grad
    assert not any(part.training for part in model.modules())


def test_the_callers_gradient_mode_and_random_numbers_do_not_matter(case):
    images, labels = batch()
    attack, model = case.make(), network()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    usual = attack(model, images, labels)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    with torch.no_grad():
        assert same(attack(model, images, labels), usual)
    if not case.foreign:
        with torch.inference_mode():
            assert same(attack(model, images, labels), usual)


def test_a_plain_callable_is_a_model(case):
    images, labels = batch()
    model = network()
    assert same(case.make()(lambda x: model(x), images, labels), case.make()(model, images, labels))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_of_another_precision_is_attacked_on_images_that_keep_theirs(case, dtype):
    if case.source:
        pytest.skip("its source has a type of its own")
    images, labels = batch(dtype=torch.promote_types(dtype, torch.float32))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(dtype).eval()
    hit = case.make()(lambda x: model(x.to(dtype)), images, labels)
    assert hit.images.dtype == images.dtype
    assert hit.images.isfinite().all()
    assert hit.images.min() >= 0
    assert hit.images.max() <= 1


BLIND = ("constant", "detached", "detached first")


@pytest.mark.parametrize("kind", ["rounds", "constant", "detached", "detached first", "nan"])
def test_a_model_without_gradients_gives_finite_images(case, kind):
    images, labels = batch()
    trained = network().requires_grad_()
    models = {
        "rounds": RoundingFront(network()),
        "constant": lambda x: torch.ones(len(x), 10) * torch.arange(10.0),
        "detached": lambda x: network()(x).detach(),
        "detached first": lambda x: trained(x.detach()),  # the graph ends at the parameters
        "nan": lambda x: network()(x) * math.nan,
    }
    if case.foreign and kind in BLIND:
        pytest.skip("it differentiates for itself")
    attack = case.make()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", NoGradientWarning)
        hit = attack(models[kind], images, labels)
    blind = kind in BLIND and not (isinstance(attack, SquareSearch) or case.source or case.foreign)
    assert any(issubclass(one.category, NoGradientWarning) for one in said) == blind
    assert hit.images.isfinite().all()
    if case.epsilon is not None:
        assert distance(hit.images, images, case.norm).max() <= case.epsilon * (1 + 1e-6)


def test_no_images_are_an_empty_answer(case):
    images, labels = batch()
    hit = case.make()(network(), images[:0], labels[:0])
    assert hit.images.shape == images[:0].shape
    assert hit.success.shape == hit.distance.shape == (0,)
