"""How often fresh heads disagree: against heads that are trained one by one by torch's own optimiser."""

import itertools
import statistics

import pytest
import torch
from torch import nn

from audits.draws import partial_sets, trained_alone
from clearance.audits import Churn
from clearance.audits._heads import head_training
from clearance.audits.churn import disagreements
from clearance.data.synthetic import GaussianClasses
from clearance.heads import MLP, HeadStack
from clearance.models import Classifier
from clearance.research import generator

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=1.5, noise=0.05)
TRAIN, TEST = WORLD.images(50, seed=0), WORLD.images(100, seed=1)
SEED = 3
AUDIT = Churn(per_class=(1, 5), heads=3, hidden=(8,))


def pixels():
    return Classifier(nn.Flatten(), nn.Linear(16, 3), mean=0.5, std=0.05)


@pytest.fixture(scope="module")
def found():
    """Measurements by (name, differ_in, samples)."""
    findings = AUDIT(pixels(), TRAIN, TEST, seed=SEED)
    return {(m.name, m.context["differ_in"], m.context["samples"]): m for m in findings.measurements}


def slow_answers(place, differ_in):
    """Answers of three heads, each trained alone in float64."""
    sets = partial_sets(TRAIN, (1, 5), (3, 3), SEED)[place]
    unit = ((TRAIN.images - 0.5) / 0.05).double().square().mean().sqrt() * (16 / 128) ** 0.5
    train, test = (((data.images - 0.5) / 0.05).flatten(1).double() / unit for data in (TRAIN, TEST))
    first = HeadStack.initialised(MLP((16, 8, 3)), 3, generator(SEED, "churn first weights", sets.samples))
    settings, answers = head_training(sets.samples, 0.03), []
    for k in range(3):
        same_images = differ_in == "first weights"
        rows = sets.rows[0 if same_images else k]
        head = first[k if same_images else 0].double().requires_grad_(requires_grad=True)
        stream = generator(SEED, "churn batches", sets.samples)
        order: list = []
        while len(order) < settings.steps:
            everything = sets.samples <= 128
            order += (
                [torch.arange(sets.samples)]
                if everything
                else torch.randperm(sets.samples, generator=stream).split(128)
            )
        trained_alone(head, train[rows], TRAIN.labels[rows], order[: settings.steps], settings.lr)
        answers.append(head(test).argmax(dim=1))
    return torch.stack(answers)


def pairwise(answers, mask):
    """Share of the images in `mask` on which each pair differs."""
    return [float((a != b)[mask].double().mean()) for a, b in itertools.combinations(answers, 2)]


@pytest.mark.parametrize(
    ("place", "samples", "differ_in"),
    [(0, 3, "first weights"), (0, 3, "images"), (1, 15, "images"), (2, 150, "first weights")],
)
def test_disagreement_is_that_of_heads_trained_alone(found, place, samples, differ_in):
    answers = slow_answers(place, differ_in)
    expected = pairwise(answers, torch.ones(300, dtype=torch.bool))
    m = found["disagreement", differ_in, samples]
    # float32 against float64: an image on the edge of a boundary may fall to the other side
    assert m.value == pytest.approx(statistics.mean(expected), abs=2.1 / 300)
    assert m.spread == pytest.approx(statistics.stdev(expected), abs=4 / 300)
    assert m.n == 3
    by_class = [pairwise(answers, TEST.labels == k) for k in range(3)]
    worst = found["worst_class_disagreement", differ_in, samples]
    assert worst.value == pytest.approx(max(map(statistics.mean, by_class)), abs=2.1 / 100)
    assert worst.value >= m.value > 0


def test_all_images_can_differ_in_first_weights_only(found):
    assert {key[1:] for key in found} == {
        ("first weights", 3),
        ("images", 3),
        ("first weights", 15),
        ("images", 15),
        ("first weights", 150),
    }


def test_two_heads_are_one_pair_without_a_spread():
    audit = Churn(per_class=(1,), heads=2, hidden=(4,), all_images=False)
    found = audit(pixels(), TRAIN, TEST).measurements
    assert {(m.n, m.spread, m.context["samples"]) for m in found} == {(1, None, 3)}


def test_classes_far_apart_leave_nothing_to_disagree_about():
    world = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=8.0, noise=0.02)
    audit = Churn(per_class=(5,), heads=3, hidden=(8,))
    found = audit(pixels(), world.images(20, seed=0), world.images(50, seed=1)).measurements
    assert {m.value for m in found} == {0.0}


def test_heads_that_diverge_disagree_with_everything():
    audit = Churn(per_class=(1,), heads=3, hidden=(8,), lr=1e30, all_images=False)
    assert {m.value for m in audit(pixels(), TRAIN, TEST).measurements} == {1.0}


def test_disagreements_are_those_of_a_loop():
    answers = torch.randint(-1, 3, (5, 40), generator=torch.Generator().manual_seed(0))
    found = disagreements(answers)
    pairs = itertools.combinations(answers.tolist(), 2)
    for row, (a, b) in zip(found.tolist(), pairs, strict=True):
        assert row == [float(x != y or x == -1) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 1}, "`heads` must be a whole number of at least 2"),
        ({"per_class": (10, 1)}, "must ascend"),
        ({"per_class": (0,)}, "`per_class` must be"),
        ({"lr": 0.0}, "`lr` must be"),
    ],
)
def test_settings_are_checked_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        Churn(**settings)
