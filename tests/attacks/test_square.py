"""The square search: inside the ball, the same whatever the batch, and blind to what hides gradients."""

import math

import pytest
import torch
from torch import nn

from clearance.attacks import FGSM, PGD, SquareSearch
from clearance.attacks.square import Window, patches, pyramid, split_pyramid
from digits_nets import RoundingFront, Times, digits, network

COUNT, QUERIES = 40, 200
RADIUS = {math.inf: 0.12, 2.0: 0.6, 1.0: 2.5}


@pytest.fixture(scope="module")
def right():
    """Images of the digits' test set that the network gets right."""
    _, test = digits()
    chosen = network()(test.images).argmax(dim=1) == test.labels
    return test.images[chosen][:COUNT], test.labels[chosen][:COUNT]


@pytest.mark.parametrize("norm", RADIUS)
def test_finds_most_of_what_gradients_find_and_stays_in_the_ball(right, norm):
    images, labels = right
    ours = SquareSearch(RADIUS[norm], norm, queries=300)(network(), images, labels)
    gradient = PGD(RADIUS[norm], norm)(network(), images, labels)
    assert ours.distance.max() <= RADIUS[norm] * (1 + 1e-6)
    assert gradient.success_rate > 0.5
    assert ours.success_rate >= {math.inf: 0.75, 2.0: 0.4, 1.0: 0.4}[norm] * gradient.success_rate
    # and far more than noise of the same size
    noise = SquareSearch(RADIUS[norm], norm, queries=1)(network(), images, labels)
    assert noise.success_rate < 0.5 * ours.success_rate


@pytest.mark.parametrize("norm", RADIUS)
def test_a_rounding_front_hides_nothing_from_it(right, norm):
    images, labels = right
    hidden = RoundingFront(network())
    assert FGSM(RADIUS[norm], norm, loss="logit_margin")(hidden, images, labels).success_rate < 0.2
    assert SquareSearch(RADIUS[norm], norm, queries=400)(hidden, images, labels).success_rate > 0.4


@pytest.mark.parametrize("norm", RADIUS)
def test_the_seed_matters(right, norm):
    one, other = (
        SquareSearch(RADIUS[norm], norm, queries=QUERIES, seed=seed)(network(), *right) for seed in (0, 1)
    )
    assert not torch.equal(one.images, other.images)


def test_more_queries_only_add_successes_of_one_schedule(right):
    """Margins never fall from query to query: the search keeps only what helps."""
    images, labels = right
    seen = []

    def watched(batch):
        logits = network()(batch)
        others = logits.scatter(1, labels[:1].expand(len(batch), 1), -math.inf).amax(1)
        seen.append(float((others - logits[:, labels[0]])[0]))
        return logits

    hit = SquareSearch(0.02, queries=60)(watched, images[:1], labels[:1])
    assert not hit.success.any()
    tried = seen[1:61]  # the first call is the image itself, the last ones score the result
    final = seen[-1]
    assert final == pytest.approx(max(tried), abs=1e-5)
    assert final > tried[0]


def test_in_norm_1_few_pixels_go_far_and_all_of_epsilon_is_spent(right):
    images, labels = right
    hit = SquareSearch(1.5, 1.0, queries=QUERIES)(network(), images, labels)
    moved = (hit.images - images).abs().flatten(1)
    held = hit.success & (hit.distance > 0)
    assert held.sum() > 5
    assert ((moved[held] > 1e-6).sum(dim=1) <= 8).all()  # of 64 pixels
    assert moved.max() > 0.9
    assert hit.distance[held].median() > 0.9 * 1.5


@pytest.mark.parametrize(
    ("search", "few"),
    [
        (SquareSearch(0.1, queries=30), 31),  # the check before, the queries, the score after
        (SquareSearch(0.1, queries=2000, patience=100.0), 251),  # the boundary is far
    ],
)
def test_it_takes_as_many_queries_as_it_may_and_its_patience_allows(search, few):
    calls = []

    def constant(batch):
        calls.append(len(batch))
        return torch.tensor([[1.0, 0.0]]).expand(len(batch), 2)

    search(constant, torch.rand(2, 3, 6, 5), torch.zeros(2, dtype=torch.long))
    assert few <= len(calls) <= few + 2
    with pytest.raises(ValueError, match="`patience` must be a finite number above 0"):
        SquareSearch(0.1, patience=0.0)


def test_with_patience_an_image_gets_the_same_whatever_the_others(right):
    """Also after those queries from which several patches are tried at once."""
    images, labels = (part[:12] for part in right)
    attack = SquareSearch(0.07, queries=700, patience=300.0)
    whole = attack(network(), images, labels)
    assert 0 < int(whole.success.sum()) < 12
    rows = [*[i for i in range(12) if not whole.success[i]][:2], 0, 1]
    for row in rows:
        alone = attack(network(), images[row : row + 1], labels[row : row + 1])
        assert torch.equal(alone.images[0], whole.images[row])
    loud = attack(Times(network(), 64.0), images, labels)
    assert torch.equal(loud.images, whole.images)


@pytest.mark.parametrize("shape", [(64,), (3, 5, 9), (1, 1, 1), (2, 4, 4)])
@pytest.mark.parametrize("norm", RADIUS)
def test_any_shape_of_image_will_do(shape, norm):
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3)).eval()
    images = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    labels = model(images).argmax(1)
    hit = SquareSearch(0.3, norm, queries=20)(model, images, labels)
    assert hit.images.shape == images.shape
    assert not torch.equal(hit.images, images)


def test_patches_lie_wholly_inside_and_everywhere():
    draws = torch.linspace(0, 1 - 1e-6, 50)
    across, down = (part.flatten() for part in torch.meshgrid(draws, draws, indexing="ij"))
    found = patches(Window(3, 2), 7, 5, down, across)
    assert (found.inside.sum(dim=(1, 2, 3)) == 6).all()
    assert found.inside.any(dim=0).all()
    values = torch.arange(6.0).view(3, 2) + 1
    laid = found.filled(values, torch.zeros(2500, dtype=torch.bool))
    assert torch.equal(laid[found.inside].view(2500, 3, 2), values.expand(2500, 3, 2))


def test_bumps_have_the_heights_of_the_paper():
    bump = pyramid(5, 5)  # n = 2: heights 1/9, 1/9 + 1/4, 1/9 + 1/4 + 1
    assert bump[0, 3] == pytest.approx(1 / 9)
    assert bump[1, 2] == pytest.approx(1 / 9 + 1 / 4)
    assert bump[2, 2] == pytest.approx(1 / 9 + 1 / 4 + 1)
    halves = split_pyramid(6, 6)
    assert (halves[:, :3] > 0).all()
    assert torch.equal(halves[:, :3], -halves[:, 3:])


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`norm` must be one of inf, 2, 1; got 3"):
        SquareSearch(0.1, 3)
    with pytest.raises(ValueError, match="`queries` must be a whole number of at least 1; got 0"):
        SquareSearch(0.1, queries=0)
    with pytest.raises(ValueError, match=r"`share` must lie in \(0, 1\]; got 0"):
        SquareSearch(0.1, share=0.0)
