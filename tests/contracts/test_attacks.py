"""What every attack promises; the list of them is in attack_cases.py."""

import inspect
import math

import pytest
import torch
from torch import nn

import clearance.attacks
from attack_cases import ATTACKS  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
from clearance.attacks import FGSM, PGD
from digits_nets import RoundingFront, Times, digits, network  # type: ignore[import-not-found]

COUNT = 40


@pytest.fixture(params=list(ATTACKS))
def case(request):
    return ATTACKS[request.param]


@pytest.fixture(params=[name for name, case in ATTACKS.items() if case.scale_free])
def scale_free(request):
    return ATTACKS[request.param]


@pytest.fixture(params=[name for name, case in ATTACKS.items() if case.at_radius])
def in_a_ball(request):
    return ATTACKS[request.param]


def batch(count=COUNT, dtype=torch.float32):
    """Test digits, two of them with a wrong label, so that the model is wrong before any attack."""
    _, test = digits()
    images, labels = test.batch(torch.arange(count))
    labels = labels.clone()
    labels[:2] = (labels[:2] + 1) % 10
    return images.to(dtype), labels


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
def test_other_types_of_numbers_keep_theirs(case, dtype):
    if case.source:
        pytest.skip("its source has a type of its own")
    images, labels = batch(dtype=dtype)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(dtype).eval()
    hit = case.make()(lambda x: model(x.to(dtype)), images, labels)
    assert hit.images.dtype == dtype
    assert hit.images.isfinite().all()
    assert hit.images.min() >= 0
    assert hit.images.max() <= 1


@pytest.mark.parametrize("kind", ["rounds", "constant", "detached", "nan"])
def test_a_model_without_gradients_gives_finite_images(case, kind):
    images, labels = batch()
    models = {
        "rounds": RoundingFront(network()),
        "constant": lambda x: torch.ones(len(x), 10) * torch.arange(10.0),
        "detached": lambda x: network()(x).detach(),
        "nan": lambda x: network()(x) * math.nan,
    }
    if case.foreign and kind in ("constant", "detached"):
        pytest.skip("it differentiates for itself")
    hit = case.make()(models[kind], images, labels)
    assert hit.images.isfinite().all()
    if case.epsilon is not None:
        assert distance(hit.images, images, case.norm).max() <= case.epsilon * (1 + 1e-6)


def test_no_images_are_an_empty_answer(case):
    images, labels = batch()
    hit = case.make()(network(), images[:0], labels[:0])
    assert hit.images.shape == images[:0].shape
    assert hit.success.shape == hit.distance.shape == (0,)


def in_training():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def partly_in_training():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)).eval()
    model[1].train()
    return model


REFUSED = {
    "training": (lambda m, x, y: (in_training(), x, y), "evaluation mode .* call `model.eval\\(\\)` first"),
    "above": (
        lambda m, x, y: (m, 2 * x, y),
        r"`images` must lie in \[0, 1\]; got values from 0 to 2; normalise",
    ),
    "below": (lambda m, x, y: (m, x - 0.5, y), r"`images` must lie in \[0, 1\]; got values from -0.5 to 0.5"),
    "not a number": (
        lambda m, x, y: (m, x * math.nan, y),
        r"`images` must lie in \[0, 1\]; got values from nan",
    ),
    "flat": (lambda m, x, y: (m, x[0, 0, 0], y), r"`images` must be of shape \(B, ...\); got \(8,\)"),
    "few labels": (
        lambda m, x, y: (m, x, y[1:]),
        r"`labels` must be of shape \(40,\), one for each image; got \(39,\)",
    ),
    "label too large": (lambda m, x, y: (m, x, y + 1), r"`labels` must lie in 0 ... 9 .* 10 logits; got 10"),
    "label below 0": (lambda m, x, y: (m, x, y - 1), r"`labels` must lie in 0 ... 9 .* 10 logits; got -1"),
    "logits": (lambda m, x, y: (lambda x: x, x, y), r"`model` must return logits of shape \(B, C\)"),
    "one class": (
        lambda m, x, y: (lambda x: m(x)[:, :1], x, y),
        "`model` must return logits .* at least 2 classes",
    ),
}


@pytest.mark.parametrize("reason", list(REFUSED))
def test_bad_arguments_are_refused_with_a_reason(case, reason):
    change, message = REFUSED[reason]
    with pytest.raises(ValueError, match=message):
        case.make()(*change(network(), *batch()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: ((255 * x).to(torch.uint8), y), "floating point numbers; got torch.uint8"),
        (lambda x, y: (x.numpy(), y), "floating point numbers; got ndarray"),
        (lambda x, y: (x, y.float()), "`labels` must be a tensor of whole numbers; got torch.float32"),
        (lambda x, y: (x, y.tolist()), "`labels` must be a tensor of whole numbers; got list"),
    ],
)
def test_what_is_no_batch_is_refused(case, change, message):
    with pytest.raises(TypeError, match=message):
        case.make()(network(), *change(*batch()))


def test_one_part_in_training_mode_is_enough(case):
    with pytest.raises(ValueError, match="its '1' is in training mode"):
        case.make()(partly_in_training(), *batch())


@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (-0.1, "`epsilon` must be a finite number of at least 0; got -0.1"),
        (math.nan, "`epsilon` must be a finite"),
    ],
)
def test_a_radius_that_is_none_is_refused(in_a_ball, radius, message):
    with pytest.raises(ValueError, match=message):
        in_a_ball.at_radius(radius)
