"""Class-balanced draws: exact counts, with replacement, uniform."""

import pytest
import torch

from clearance.research import generator
from clearance.training.foca import ClassBalancedDraws

LABELS = torch.tensor([2, 0, 1, 0, 2, 2, 0, 2, 1, 2])  # 3, 2 and 5 images


def test_every_class_has_its_exact_count_in_every_head():
    rows = ClassBalancedDraws(LABELS, 3).draw(7, 4, generator(0, "draws"))
    assert rows.shape == (7, 12)
    expected = torch.tensor([0] * 4 + [1] * 4 + [2] * 4)
    assert torch.equal(LABELS[rows], expected.expand(7, -1))


def test_a_class_may_have_fewer_images_than_are_drawn():
    rows = ClassBalancedDraws(LABELS, 3).draw(1, 50, generator(0, "draws"))[0]
    assert set(rows.tolist()) == set(range(10))


def test_draws_are_uniform_and_independent():
    heads, per_class = 4000, 3
    rows = ClassBalancedDraws(LABELS, 3).draw(heads, per_class, generator(1, "draws"))
    times = torch.stack([(rows == row).sum(dim=1) for row in range(10)]).double()  # (10, heads)
    sizes = torch.bincount(LABELS)[LABELS].double()
    chance = 1 / sizes
    # counts of draws with replacement are multinomial: their first and second moments
    same_class = (LABELS[:, None] == LABELS) & ~torch.eye(10, dtype=torch.bool)
    covariance = torch.diag(per_class * chance * (1 - chance)) - same_class * per_class * chance**2
    mean_error = (per_class * chance * (1 - chance) / heads).sqrt()
    assert bool(((times.mean(dim=1) - per_class * chance).abs() < 5 * mean_error).all())
    # without replacement the variance would be lower by (size - 3) / (size - 1), zero for class 0
    torch.testing.assert_close(torch.cov(times), covariance, rtol=0, atol=0.06)


def test_every_image_can_be_drawn_from_a_large_class_and_none_beyond_it():
    labels = torch.cat([torch.zeros(99_999, dtype=torch.int64), torch.ones(1, dtype=torch.int64)])
    rows = ClassBalancedDraws(labels, 2).draw(10, 200_000, generator(0, "draws"))
    first, second = rows.view(10, 2, -1).unbind(1)
    assert int(first.min()) == 0
    assert int(first.max()) == 99_998
    assert bool((second == 99_999).all())


@pytest.mark.parametrize(("classes", "missing"), [(4, r"\[3\]"), (6, r"\[3, 4, 5\]")])
def test_a_class_without_images_is_refused_by_number(classes, missing):
    with pytest.raises(ValueError, match=rf"every class must have an image.*got none of class {missing}"):
        ClassBalancedDraws(LABELS, classes)


def test_a_class_missing_in_between_is_refused():
    with pytest.raises(ValueError, match=r"got none of class \[1\]"):
        ClassBalancedDraws(torch.tensor([0, 2, 2]), 3)
