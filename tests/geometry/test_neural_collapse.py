"""Neural collapse: the simplex exactly, and every number from its definition."""

import itertools
import math

import pytest
import torch

from clearance.geometry import (
    class_scatter,
    nc2_equiangle,
    nc2_equinorm,
    nc2_simplex,
    nc3,
    nc4,
)
from clearance.geometry.neural_collapse import mean_cosines

NUMBERS = (nc2_equinorm, nc2_equiangle, nc2_simplex)


def scatter_of(means):
    """The scatter of classes of one point each."""
    return class_scatter(means, torch.arange(len(means)), len(means))


def rotated(means, seed=0):
    draws = torch.Generator().manual_seed(seed)
    D = means.shape[1]
    return means @ torch.linalg.qr(torch.randn(D, D, generator=draws, dtype=torch.float64)).Q


def simplex(classes, D=12):
    """A regular simplex, turned and shifted."""
    return 7 * rotated(torch.eye(classes, D, dtype=torch.float64)) + 3.0


def uneven(seed=0):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("classes", [2, 3, 10, 12])
def test_4_6_a_simplex_has_collapsed(classes):
    cloud = scatter_of(simplex(classes))
    for number in NUMBERS:
        assert number(cloud) == pytest.approx(0.0, abs=1e-12)
    assert mean_cosines(cloud).tolist() == pytest.approx(
        [-1 / (classes - 1)] * (classes * (classes - 1) // 2)
    )
    assert nc3(0.01 * cloud.centred_means, cloud) == pytest.approx(0.0, abs=1e-12)


def test_4_6_numbers_are_their_definitions():
    means = uneven()
    centred = means - means.mean(dim=0)
    lengths = [float(m.norm()) for m in centred]
    average = sum(lengths) / 5
    cosines = [float(a @ b / a.norm() / b.norm()) for a, b in itertools.combinations(centred, 2)]
    mean_cosine = sum(cosines) / 10
    cloud = scatter_of(means)
    expected = math.sqrt(sum((x - average) ** 2 for x in lengths) / 5) / average
    assert nc2_equinorm(cloud) == pytest.approx(expected, rel=1e-12)
    expected = math.sqrt(sum((x - mean_cosine) ** 2 for x in cosines) / 10)
    assert nc2_equiangle(cloud) == pytest.approx(expected, rel=1e-12)
    assert nc2_simplex(cloud) == pytest.approx(sum(abs(x + 1 / 4) for x in cosines) / 10, rel=1e-12)
    assert mean_cosines(cloud).tolist() == pytest.approx(cosines, rel=1e-12)


def test_4_6_a_cross_has_equal_lengths_and_unequal_angles():
    """Means +-e1, +-e2: cosines are 0 four times and -1 twice."""
    cloud = scatter_of(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    assert nc2_equinorm(cloud) == 0.0
    assert nc2_equiangle(cloud) == pytest.approx(math.sqrt(2) / 3)
    assert nc2_simplex(cloud) == pytest.approx((4 * (1 / 3) + 2 * (2 / 3)) / 6)


def test_4_6_rotation_scale_and_shift_do_not_matter():
    means = uneven()
    head = torch.randn(5, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    before = [*(number(scatter_of(means)) for number in NUMBERS), nc3(head, scatter_of(means))]
    for changed, weight in (
        (rotated(means), rotated(head)),
        (50 * means, head / 50),
        (1e-6 * means, head),
        (means + 1e3, head),
    ):
        cloud = scatter_of(changed)
        assert [*(n(cloud) for n in NUMBERS), nc3(weight, cloud)] == pytest.approx(before, rel=1e-8)


def test_4_6_a_head_against_the_means_is_2_away_and_across_them_root_2():
    cloud = scatter_of(uneven())
    assert nc3(-3 * cloud.centred_means, cloud) == pytest.approx(2.0, rel=1e-12)
    across = uneven(seed=9)
    across -= (across * cloud.centred_means).sum() / cloud.centred_means.square().sum() * cloud.centred_means
    assert nc3(across, cloud) == pytest.approx(math.sqrt(2), rel=1e-12)


def test_means_in_one_point_are_not_collapse():
    cloud = scatter_of(torch.full((4, 3), 0.5))
    assert [number(cloud) for number in NUMBERS] == [math.inf] * 3
    assert nc3(uneven()[:4, :3], cloud) == math.inf


def test_one_mean_in_the_centre_has_no_angle():
    cloud = scatter_of(torch.tensor([[-1.0], [0.0], [1.0]]))
    assert nc2_equiangle(cloud) == nc2_simplex(cloud) == math.inf
    assert nc2_equinorm(cloud) == pytest.approx(math.sqrt(2) / 2)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_head_of_nothing_is_infinitely_far(value):
    assert nc3(torch.full((5, 4), value), scatter_of(uneven())) == math.inf


def test_a_head_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"shape of the class means \(5, 4\).*got \(4, 5\)"):
        nc3(torch.ones(4, 5), scatter_of(uneven()))


def test_4_6_disagreement_with_the_nearest_mean_is_counted():
    draws = torch.Generator().manual_seed(0)
    features, means = torch.randn(60, 4, generator=draws), uneven()
    predicted = torch.randint(-1, 5, (60,), generator=draws)
    nearest = [min(range(5), key=lambda k: float((x - means[k]).norm())) for x in features.double()]
    wrong = sum(p != n for p, n in zip(predicted.tolist(), nearest, strict=True))
    assert nc4(predicted, features, means) == pytest.approx(wrong / 60)
    assert nc4(torch.tensor(nearest), features, means) == 0.0


def test_one_class_has_no_angle():
    for number in (nc2_equiangle, nc2_simplex, mean_cosines):
        with pytest.raises(
            ValueError, match="at least two classes, because angles are between class means; got 1"
        ):
            number(scatter_of(torch.ones(1, 3)))
