"""Heads of several classes as hyperplanes between pairs, and what none of the functions accept."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from clearance.linear import (
    Hyperplane,
    adversarial_distance,
    nearest_centroid,
    svm_path,
    tilting_angle,
    tilting_plane,
)
from clearance.linear.class_planes import class_plane, rival_distances
from clearance.linear.hyperplane import margins, scores, signed_distances, steepest
from clearance.linear.tilting import centroids
from linear.plateau import plateau  # type: ignore[import-not-found]  # on pytest's path

NAN = float("nan")


@pytest.fixture
def head():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    return weight, torch.randn(4, generator=generator, dtype=torch.float64)


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(40) % 4
    return x + 2 * torch.eye(4, 6, dtype=torch.float64)[labels], labels


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_the_distance_to_a_rival_is_that_of_the_pair_s_plane(head, points, norm):
    weight, bias = head
    x, labels = points
    found = rival_distances(weight, bias, x, labels, norm)
    for row, (point, own) in enumerate(zip(x, labels.tolist(), strict=True)):
        for rival in range(4):
            expected = math.inf
            if rival != own:
                plane = class_plane(weight, bias, rival, own)
                expected = float(signed_distances(plane, point.unsqueeze(0), norm))
            assert float(found[row, rival]) == pytest.approx(expected)


def test_the_nearest_rival_is_as_far_as_the_nearest_other_decision(head, points):
    """At that distance along the pair's normal the two classes tie, and nowhere nearer does the decision change."""
    weight, bias = head
    x, _ = points
    predicted = (x @ weight.T + bias).argmax(dim=1)
    distance, rival = rival_distances(weight, bias, x, predicted).min(dim=1)
    step = weight[rival] - weight[predicted]
    step /= step.norm(dim=1, keepdim=True)
    for factor, moved in ((0.999, False), (1.001, True)):
        there = (x + factor * distance.unsqueeze(1) * step) @ weight.T + bias
        assert ((there.argmax(dim=1) == rival) == moved).all()


def test_every_pair_of_a_head(head):
    weight, bias = head
    for first, second in itertools.combinations(range(4), 2):
        plane = class_plane(weight, bias, first, second)
        assert_close(plane.weight, weight[second] - weight[first])
        assert plane.bias == pytest.approx(float(bias[second] - bias[first]))


def refused(message, call, *arguments, **settings):
    with pytest.raises(ValueError, match=message):
        call(*arguments, **settings)


def test_refusals_of_planes():
    plane = Hyperplane.of([1.0, 0.0])
    refused("must not be all 0, because then no boundary exists", Hyperplane.of, [0.0, 0.0])
    refused("`weight` must be finite; got nan", Hyperplane.of, [1.0, NAN])
    refused("`bias` must be finite; got nan", Hyperplane.of, [1.0], NAN)
    refused(r"`weight` must have shape \(d,\); got \(2, 2\)", Hyperplane.of, [[1.0, 0.0], [0.0, 1.0]])
    refused(r"`bias` must be one number; got shape \(2,\)", Hyperplane.of, [1.0], torch.zeros(2))
    refused(
        "`x` must have 2 columns, as many as the plane has weights; got 3", scores, plane, [[1.0, 2.0, 3.0]]
    )
    refused("`x` must be finite; got nan", scores, plane, [[1.0, NAN]])
    refused(r"shape \(n, d\); got \(2,\)", scores, plane, [1.0, 2.0])
    refused("`norm` must be at least 1", signed_distances, plane, [[1.0, 2.0]], 0.5)


def test_refusals_of_labels_and_classes():
    plane, x = Hyperplane.of([1.0, 0.0]), [[1.0, 0.0], [2.0, 1.0]]
    refused(r"`y` must hold -1 and \+1; got 0", margins, plane, x, [0, 1])
    refused("one label for each of 2 points", margins, plane, x, [1])
    refused("at least one point", margins, plane, torch.zeros(0, 2), [])
    refused(r"got none of \+1: one class has no boundary", centroids, x, [-1, -1])
    refused("got none of -1", adversarial_distance, plane, x, [1, 1], class_balanced=True)


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, math.inf])
def test_nothing_is_steepest_without_a_direction(norm):
    refused("must not be all 0, because it then has no direction", steepest, torch.zeros(2), norm)
    refused("`weight` must be finite; got nan", steepest, [NAN, 1.0], norm)
    assert steepest([0.0, -3.0], norm).tolist() == [0.0, -1.0]


@pytest.mark.parametrize("size", [1e160, 1e-160])
def test_planes_whose_lengths_are_no_numbers_are_refused(size):
    refused("squares within float64; got a largest weight of 1e", Hyperplane.of, [size, 0.0])


@pytest.mark.parametrize(("count", "width"), [(30, 150_528), (3000, 784)])
def test_classes_that_coincide_at_the_size_of_images_are_refused(count, width):
    """Equal means of another order of rows differ by rounding in every entry."""
    draws = np.random.default_rng(0)
    images = draws.random((count, width))
    both, labels = np.concatenate([images, draws.permutation(images)]), np.repeat([-1.0, 1.0], count)
    assert np.abs(both[:count].mean(0) - both[count:].mean(0)).any()
    refused("the class centroids coincide", nearest_centroid, both, labels)
    refused("the class centroids coincide", tilting_angle, Hyperplane.of(np.ones(width)), both, labels)
    assert plateau(both, labels).lam == 0


def test_refusals_of_data_without_a_direction():
    plane, same = Hyperplane.of([1.0, 0.0]), [[0.3, 0.7], [0.3, 0.7]]
    for call in (tilting_angle, tilting_plane):
        refused("the class centroids coincide", call, plane, same, [-1, 1])
    refused("the class centroids coincide", nearest_centroid, [[0.1], [0.3], [0.2]], [-1, -1, 1])
    refused("at least 2 features", tilting_plane, Hyperplane.of([1.0]), [[0.0], [1.0]], [-1, 1])
    refused("as many as the plane has weights; got 1", tilting_angle, plane, [[0.0], [1.0]], [-1, 1])
    along = torch.tensor([2.0, 0.0])
    refused("must not lie along", tilting_plane, plane, [[0.0, 0.0], [1.0, 0.0]], [-1, 1], across=along)
    (fit,) = svm_path(same, [-1, 1], [1.0])
    with pytest.raises(ValueError, match="no boundary exists"):
        _ = fit.plane


def test_refusals_of_heads(head, points):
    weight, bias = head
    x, labels = points
    refused(r"in 0 .. 3; got 4", class_plane, weight, bias, 0, 4)
    refused("two classes; got 2 twice", class_plane, weight, bias, 2, 2)
    refused(r"`bias` \(K,\) with K at least 2", class_plane, weight, bias[:2], 0, 1)
    refused("must have 6 columns", rival_distances, weight, bias, x[:, :2], labels)
    refused("whole numbers in 0 .. 3", rival_distances, weight, bias, x, labels + 1)
    refused("no boundary exists", class_plane, torch.ones(2, 3), torch.zeros(2), 0, 1)
