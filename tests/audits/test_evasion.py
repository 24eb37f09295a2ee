"""The attack that knows the detector, where a grid of all images there are says how far it can get."""

import math

import pytest
import torch
from torch import nn

from clearance.attacks.attack import logits_of
from clearance.audits import Subject
from clearance.audits.likelihood import Evasion, NormalImages, Scorer
from clearance.data import ImageSet
from clearance.models import Classifier

INF = math.inf


def plane(count=6, seed=0):
    """Images of two pixels around three points, and the classifier that takes them for the nearest."""
    draws = torch.Generator().manual_seed(seed)
    middles = torch.tensor([[0.25, 0.3], [0.7, 0.35], [0.45, 0.75]])
    labels = torch.arange(3).repeat_interleave(count)
    pixels = (middles[labels] + 0.05 * torch.randn(len(labels), 2, generator=draws)).clamp(0, 1)
    head = nn.Linear(2, 3)
    with torch.no_grad():
        head.weight.copy_(20 * middles)
        head.bias.copy_(-10 * middles.square().sum(dim=1))
    return Classifier(nn.Flatten(), head).eval(), ImageSet(pixels.view(-1, 1, 1, 2), labels, ("a", "b", "c"))


def attack(score="class mean", betas=(0.01, 0.1, 1.0, 10.0, 100.0), steps=60, targets=0):
    """With the units that the audit takes."""
    model, data = plane()
    scorer = Scorer.fitted(Subject(model, data, data), 5000, 1)
    with torch.no_grad():
        normal = NormalImages(scorer, data, data)
        return Evasion(scorer, score, normal.margin(), normal.spread(score), betas, steps, targets), data


def on_a_grid(evasion, image, label, epsilon, points=41):
    """The highest score of all misclassified images of a fine grid in the ball."""
    steps = torch.linspace(-epsilon, epsilon, points)
    moves = torch.cartesian_prod(steps, steps).view(-1, 1, 1, 2)
    images = (image + moves).clamp(0, 1)
    with torch.no_grad():
        features, logits = evasion.scorer.read(images)
        columns = evasion.scorer.columns(evasion.score, features, logits)
        scores = evasion.scorer.reading(evasion.score, columns, logits.argmax(dim=1))
    wrong = logits.argmax(dim=1) != label
    return float(scores[wrong].max()) if bool(wrong.any()) else -INF


@pytest.mark.parametrize("score", ["class mean", "mahalanobis", "likelihood"])
@pytest.mark.parametrize("epsilon", [0.2, 0.35])
def test_it_comes_near_the_best_that_there_is(score, epsilon):
    evasion, data = attack(score, steps=40, targets=2)
    found = evasion(data.images, data.labels, epsilon)
    best = [on_a_grid(evasion, *one, epsilon) for one in zip(data.images, data.labels, strict=True)]
    reached = torch.tensor([value > -INF for value in best])
    assert reached.any()
    assert torch.equal(found.scores > -INF, reached)
    short = torch.tensor(best)[reached] - found.scores[reached]
    assert (short < 0.1 * evasion.score_unit).double().mean() > 0.9


def test_what_it_returns_is_in_the_ball_misclassified_and_has_the_score_it_says():
    evasion, data = attack("mahalanobis")
    found = evasion(data.images, data.labels, 0.2)
    hit = found.scores > -INF
    assert 0 < int(hit.sum()) < len(data)
    assert (found.images - data.images).abs().max() <= 0.2 + 1e-6
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    assert torch.equal(found.images[~hit], data.images[~hit])
    assert (logits_of(evasion.scorer.model, found.images[hit]).argmax(dim=1) != data.labels[hit]).all()
    again = evasion.scorer.scores(found.images)[0]["mahalanobis"]
    torch.testing.assert_close(found.scores[hit], again[hit], rtol=1e-5, atol=1e-5)


def test_a_larger_radius_keeps_what_a_smaller_one_found():
    evasion, data = attack(steps=10, betas=(1.0,))
    small = evasion(data.images, data.labels, 0.2)
    large = evasion(data.images, data.labels, 0.4, known=small)
    assert (large.scores >= small.scores).all()
    none = evasion(data.images, data.labels, 1e-4, known=small)
    assert torch.equal(none.scores, small.scores)
    assert torch.equal(none.images, small.images)


def test_beyond_a_threshold_means_misclassified_and_not_rejected():
    evasion, data = attack(steps=10, betas=(1.0,))
    found = evasion(data.images, data.labels, 0.2)
    assert torch.equal(found.beyond(-INF), found.scores > -INF)
    limit = float(found.scores[found.scores > -INF].median())
    assert torch.equal(found.beyond(limit), found.scores >= limit)


def test_no_unit_of_logits_or_score_matters():
    """Features times 4, logits times 8: with units that follow, the very same steps."""
    evasion, data = attack(steps=15, betas=(0.1, 1.0))
    head = nn.Linear(2, 3)
    with torch.no_grad():
        head.weight.copy_(2 * evasion.scorer.model.head.weight)
        head.bias.copy_(8 * evasion.scorer.model.head.bias)

    class Four(nn.Module):
        def forward(self, images):
            return 4 * images.flatten(1)

    other = Classifier(Four(), head).eval()
    scorer = Scorer.fitted(Subject(other, data, data), 5000, 1)
    scaled = Evasion(scorer, "class mean", 8 * evasion.margin_unit, 16 * evasion.score_unit, (0.1, 1.0), 15)
    mine = evasion(data.images, data.labels, 0.3)
    theirs = scaled(data.images, data.labels, 0.3)
    torch.testing.assert_close(theirs.images, mine.images)
    torch.testing.assert_close(theirs.scores, 16 * mine.scores)
