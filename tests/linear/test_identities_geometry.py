"""Identities of hyperplanes, distances and tilting: exact on any data, whatever the classifier."""

import math

import pytest
import torch
from torch.testing import assert_close

from clearance._first_order import dual_norm
from clearance.linear import (
    Hyperplane,
    adversarial_distance,
    error_distance,
    error_rate,
    tilting_angle,
    tilting_plane,
)
from clearance.linear.hyperplane import mirrored, scores, signed_distances
from clearance.linear.tilting import centroids
from linear.worlds import (
    as_tensor,
    clouds,
    nearest_centroid,
    projected,
    some_plane,
    turned,
)  # on pytest's path

NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)


@pytest.mark.parametrize("norm", NORMS)
def test_i01_mirror_images(norm):
    x, _ = clouds()
    plane, points = some_plane(), as_tensor(x)
    mirror = mirrored(plane, points, norm)
    distances = signed_distances(plane, points, norm)
    assert_close(scores(plane, mirror), -scores(plane, points))
    assert_close(torch.linalg.vector_norm(mirror - points, ord=norm, dim=1), 2 * distances.abs())
    assert_close(mirrored(plane, mirror, norm), points)
    assert_close(
        scores(plane, projected(plane, points, norm)), torch.zeros(len(x)).double(), atol=1e-12, rtol=0
    )
    assert_close(mirror + points, 2 * projected(plane, points, norm))


def test_i01_a_mirror_step_is_along_the_weights():
    x, _ = clouds()
    plane = some_plane()
    step = mirrored(plane, x) - as_tensor(x)
    unit = plane.weight / plane.scale
    assert_close(step, (step @ unit).unsqueeze(1) * unit)


@pytest.mark.parametrize("norm", NORMS)
def test_i01_no_shorter_step_reaches_the_boundary(norm):
    """Any step of p-norm below |d| keeps the side: s changes by at most ||step||_p ||w||_q."""
    plane, point = some_plane(), as_tensor(clouds()[0][:1])
    steps = torch.randn(2000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps /= torch.linalg.vector_norm(steps, ord=norm, dim=1, keepdim=True)
    distance = signed_distances(plane, point, norm)
    reached = scores(plane, point + 0.999 * distance.abs() * steps).sign()
    assert (reached == distance.sign()).all()
    assert_close(distance, scores(plane, point) / dual_norm(plane.weight.unsqueeze(0), norm))


def test_i02_adversarial_distance_is_half_the_centroids_distance_times_the_cosine():
    x, y = clouds()
    first, second = centroids(x, y)
    half = float((second - first).norm()) / 2
    for seed in range(3):
        plane = some_plane(seed=seed)
        expected = half * math.cos(tilting_angle(plane, x, y))
        assert adversarial_distance(plane, x, y) == pytest.approx(expected, rel=1e-10)


def test_i02_neither_bias_nor_scale_nor_shift_matters():
    x, y = clouds()
    plane = some_plane()
    before = adversarial_distance(plane, x, y)
    assert adversarial_distance(Hyperplane.of(plane.weight, plane.bias + 9), x, y) == pytest.approx(before)
    assert adversarial_distance(Hyperplane.of(7 * plane.weight, plane.bias), x, y) == pytest.approx(before)
    assert adversarial_distance(plane, x + 4.0, y) == pytest.approx(before)
    assert adversarial_distance(plane, 3 * x, y) == pytest.approx(3 * before)


def test_i02_unbalanced_classes_need_the_balanced_definition():
    x, y = clouds(per_class=(12, 50))
    plane = some_plane()
    moved = Hyperplane.of(plane.weight, plane.bias + 9)
    first, second = centroids(x, y)
    expected = float((second - first).norm()) / 2 * math.cos(tilting_angle(plane, x, y))
    for one in (plane, moved):
        assert adversarial_distance(one, x, y, class_balanced=True) == pytest.approx(expected)
    assert abs(adversarial_distance(plane, x, y) - adversarial_distance(moved, x, y)) > 0.1


@pytest.mark.parametrize("class_balanced", [False, True])
def test_i03_mean_distance_is_adversarial_plus_twice_the_error_distance(class_balanced):
    x, y = clouds(per_class=(20, 40))
    plane = some_plane()
    sizes = signed_distances(plane, x).abs()
    mean = sizes.mean()
    if class_balanced:
        mean = (sizes[as_tensor(y) < 0].mean() + sizes[as_tensor(y) > 0].mean()) / 2
    adversarial = adversarial_distance(plane, x, y, class_balanced=class_balanced)
    error = error_distance(plane, x, y, class_balanced=class_balanced)
    assert error > 0
    assert float(mean) == pytest.approx(adversarial + 2 * error)


def test_i03_mean_mirror_distance():
    x, y = clouds()
    plane = some_plane()
    step = torch.linalg.vector_norm(mirrored(plane, x) - as_tensor(x), dim=1).mean()
    expected = 2 * adversarial_distance(plane, x, y) + 4 * error_distance(plane, x, y)
    assert float(step) == pytest.approx(expected)


def test_i06_the_nearest_centroid_has_the_largest_adversarial_distance():
    x, y = clouds()
    first, second = centroids(x, y)
    nearest = nearest_centroid(x, y)
    most = float((second - first).norm()) / 2
    assert adversarial_distance(nearest, x, y) == pytest.approx(most)
    assert tilting_angle(nearest, x, y) == pytest.approx(0, abs=1e-12)
    for seed in range(50):
        plane = some_plane(seed=seed)
        assert adversarial_distance(plane, x, y) <= most * math.cos(tilting_angle(plane, x, y)) + 1e-12 < most


def test_i06_it_asks_which_centroid_is_nearer():
    x, y = clouds()
    first, second = centroids(x, y)
    points = as_tensor(x)
    nearer = (points - first).norm(dim=1) > (points - second).norm(dim=1)
    assert ((scores(nearest_centroid(x, y), points) > 0) == nearer).all()


def test_i07_the_tilting_plane():
    x, y = clouds()
    plane = some_plane()
    seen = tilting_plane(plane, x, y)
    axes = torch.stack([seen.z, seen.n])
    assert_close(axes @ axes.T, torch.eye(2, dtype=torch.float64))
    unit = plane.weight / plane.scale
    assert_close(unit, math.cos(seen.angle) * seen.z + math.sin(seen.angle) * seen.n)
    assert_close(seen.distances(seen.coordinates(x)), signed_distances(plane, x))
    ends = seen.coordinates(torch.stack(centroids(x, y)))
    half = seen.separation / 2
    assert_close(ends, as_tensor([[-half, 0.0], [half, 0.0]]))


def test_i07_turning_the_data_changes_no_number():
    x, y = clouds()
    plane, rotation = some_plane(), turned(5)
    other = Hyperplane.of(as_tensor(rotation.T) @ plane.weight, plane.bias)
    for number in (tilting_angle, adversarial_distance, error_distance, error_rate):
        assert number(other, x @ rotation, y) == pytest.approx(number(plane, x, y))


def test_i14_the_toy_of_two_pixels():
    x, y = [[-1.0, 0.0], [-0.2, 0.0], [0.2, 0.0], [1.0, 0.0]], [-1, -1, 1, 1]
    image = as_tensor([[-0.8, 0.0]])
    for theta in (0.0, 0.3, 1.0, 1.5):
        plane = Hyperplane.of([math.cos(theta), math.sin(theta)])
        mirror = mirrored(plane, image)
        expected = as_tensor([[0.8 * math.cos(2 * theta), 0.8 * math.sin(2 * theta)]])
        # the article's x_m stands on the side where its second pixel is as far as the line is tilted
        assert_close(mirror, expected)
        assert float((mirror - image).norm()) == pytest.approx(1.6 * math.cos(theta))
        assert float((projected(plane, image) - image).norm()) == pytest.approx(0.8 * math.cos(theta))
        assert tilting_angle(plane, x, y) == pytest.approx(theta)


def test_small_angles_keep_their_digits():
    x, y = [[-1.0, 0.0], [1.0, 0.0]], [-1, 1]
    assert tilting_angle(Hyperplane.of([1.0, 1e-9]), x, y) == pytest.approx(1e-9, rel=1e-6)
    assert tilting_angle(Hyperplane.of([-1.0, 0.0]), x, y) == pytest.approx(math.pi)


def test_an_untilted_plane_has_any_normal():
    x, y = [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [-1, 1]
    seen = tilting_plane(Hyperplane.of([2.0, 0.0, 0.0]), x, y)
    assert seen.angle == 0.0
    assert float(seen.n @ seen.z) == 0.0
    assert float(seen.n.norm()) == 1.0
