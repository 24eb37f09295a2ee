"""The nearest wrong image: exact on linear models with the bounds active, as near as foolbox's on a network."""

import math
import warnings

import pytest
import torch
from torch import nn

from clearance.attacks import DeepFool, MinimumNorm
from clearance.attacks.attack import NoGradientWarning
from clearance.attacks.minimum_norm import shortest_step
from digits_nets import RoundingFront, digits, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
    foolbox = pytest.importorskip("foolbox")

NORMS = (1.0, 2.0, math.inf)
COUNT, FEW = 40, 20  # images, and those that foolbox attacks too, which takes long


def wrong(model, images, labels):
    return model(images).detach().argmax(dim=1) != labels


def length(delta, norm):
    return torch.linalg.vector_norm(delta.flatten(1), ord=norm, dim=1)


class Linear(nn.Module):
    """Ten classes on 64 pixels."""

    def __init__(self, seed=0):
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(64, 10, generator=draws))
        self.eval()

    def forward(self, images):
        return images.flatten(1) @ self.weight


def corner_images(count=30):
    """Half of the pixels at a bound, so that the box matters."""
    images = 1.6 * torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(3)) - 0.3
    return images.clamp(0, 1)


def closed_form(model, images, labels, norm):
    """The nearest of the nine hyperplanes inside the box, in float64; see test_half_space for the step."""
    weight, rows = model.weight.detach().double(), images.double()
    logits = rows.flatten(1) @ weight
    distances = torch.full_like(logits, math.inf)
    for rival in range(10):
        gradient = (weight[:, rival] - weight[:, labels].T).view_as(rows)
        rise = logits.gather(1, labels[:, None])[:, 0] - logits[:, rival]
        step = shortest_step(rows, gradient, rise, norm)
        reaches = (step * gradient).flatten(1).sum(1) >= rise - 1e-9
        distances[:, rival] = torch.where(reaches, length(step, norm), math.inf)
    return distances.scatter(1, labels[:, None], math.inf).amin(1)


@pytest.mark.parametrize("norm", NORMS)
def test_exact_on_a_linear_model_with_the_bounds_active(norm):
    model, images = Linear(), corner_images()
    labels = model(images).argmax(1)
    hit = MinimumNorm(norm, steps=5)(model, images, labels)
    expected = closed_form(model, images, labels, norm)
    unbounded = closed_form(model, images / 1000 + 0.5, labels, norm)  # far from the bounds: rises differ
    assert hit.success.all()
    torch.testing.assert_close(hit.distance.double(), expected, rtol=6e-4, atol=1e-5)
    assert not torch.allclose(expected, unbounded)


@pytest.fixture(scope="module")
def attacked():
    """Distances of the first images of the digits' test set that the network gets right, by norm."""
    model, (_, test) = network(), digits()
    right = ~wrong(model, test.images, test.labels)
    images, labels = test.images[right][:COUNT], test.labels[right][:COUNT]
    return model, images, labels, {norm: MinimumNorm(norm)(model, images, labels) for norm in NORMS}


def foolbox_medians(model, images, labels, norm):
    l2 = [
        foolbox.attacks.L2CarliniWagnerAttack(
            binary_search_steps=6, steps=150, stepsize=0.02, initial_const=1.0
        ),
        foolbox.attacks.DDNAttack(steps=100, init_epsilon=0.5),
        foolbox.attacks.L2FMNAttack(steps=150, max_stepsize=0.3),
    ]
    others = {1.0: foolbox.attacks.L1FMNAttack, math.inf: foolbox.attacks.LInfFMNAttack}
    chosen = l2 if norm == 2 else [others[norm](steps=150, max_stepsize=0.3)]
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    medians = []
    for attack in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attack(wrapped, images, labels, epsilons=None)[0]
        distance = length(found - images, norm).masked_fill(~wrong(model, found, labels), torch.inf)
        medians.append(float(distance.median()))
    return medians


@pytest.mark.parametrize("norm", NORMS)
def test_median_distance_is_at_most_3_percent_above_the_best_of_foolbox(attacked, norm):
    model, images, labels, hits = attacked
    best = min(foolbox_medians(model, images[:FEW], labels[:FEW], norm))
    assert math.isfinite(best)
    assert hits[norm].success.all()
    assert float(hits[norm].distance[:FEW].median()) <= 1.03 * best


@pytest.mark.parametrize("norm", NORMS)
def test_the_search_goes_nearer_than_deep_fool_and_lies_behind_the_boundary(attacked, norm):
    model, images, labels, hits = attacked
    start = DeepFool(norm)(model, images, labels)
    assert start.success.all()
    assert (hits[norm].distance <= start.distance).all()
    assert hits[norm].distance.median() < 0.985 * start.distance.median()
    assert wrong(model, hits[norm].images, labels).all()
    nearer = images + 0.99 * (hits[norm].images - images)
    assert not wrong(model, nearer, labels).any()


def test_norms_order_the_distances(attacked):
    """A wrong image at norm 2 is one for norm inf as well, and it is no nearer in norm 1."""
    *_, hits = attacked
    one, two, largest = (hits[norm].distance for norm in NORMS)
    slack = 1.02  # searches, not closed forms
    assert (largest <= slack * two).all()
    assert (two <= slack * one).all()
    assert (two <= slack * 8 * largest).all()


def test_an_image_almost_on_the_boundary_is_not_lost_to_rounding():
    """Bisection ends within rounding of the boundary there, and a batch of another size rounds otherwise."""
    model, images = Linear(), corner_images(30)
    labels = model(images).argmax(1)
    near = MinimumNorm(math.inf, steps=5)(model, images, labels)
    back = images + 0.9999 * (near.images - images)
    right = ~wrong(model, back, labels)
    assert right.sum() > 20
    hit = MinimumNorm(math.inf, steps=5)(model, back[right], labels[right])
    assert hit.success.all()
    assert hit.distance.max() < 1e-4


def test_wrong_images_are_at_0_and_unreachable_ones_at_infinity():
    model, images = Linear(), corner_images(4)
    labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 10
    hit = MinimumNorm()(model, images, labels)
    assert hit.distance[0] == 0
    assert torch.equal(hit.images[0], images[0])

    def constant(batch):
        return torch.tensor([[1.0, 0.0]]).expand(len(batch), 2)

    for attack in (MinimumNorm(), DeepFool()):
        with pytest.warns(
            NoGradientWarning, match="passes no gradient to its images: its logits have no graph"
        ):
            none = attack(constant, images, torch.zeros(4, dtype=torch.long))
        assert not none.success.any()
        assert none.distance.isinf().all()
        assert torch.equal(none.images, images)


def test_without_gradients_a_blend_is_found():
    _, test = digits()
    model = RoundingFront(network())
    images, labels = test.images[:20], test.labels[:20]
    hit = MinimumNorm(steps=2)(model, images, labels)
    assert not DeepFool()(model, images, labels).success.all()
    assert hit.success.all()
    assert wrong(model, hit.images, labels).all()


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`steps` must be a whole number of at least 1; got 0"):
        MinimumNorm(steps=0)
    with pytest.raises(ValueError, match="`norm` must be one of inf, 2, 1; got 3"):
        MinimumNorm(norm=3)
    with pytest.raises(ValueError, match="evaluation mode"):
        MinimumNorm()(nn.Linear(4, 2).train(), torch.zeros(1, 4), torch.tensor([0]))
