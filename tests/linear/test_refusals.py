"""What no function of linear theory accepts."""

import math

import numpy as np
import pytest
import torch

from clearance.linear import Hyperplane, adversarial_distance, svm_path, tilting_angle, tilting_plane
from clearance.linear.hyperplane import margins, scores, signed_distances, steepest
from clearance.linear.tilting import centroids
from linear.plateau import plateau  # on pytest's path

NAN = float("nan")


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
    refused("the class centroids coincide", tilting_angle, Hyperplane.of(np.ones(width)), both, labels)
    assert plateau(both, labels).lam == 0


def test_refusals_of_data_without_a_direction():
    plane, same = Hyperplane.of([1.0, 0.0]), [[0.3, 0.7], [0.3, 0.7]]
    for call in (tilting_angle, tilting_plane):
        refused("the class centroids coincide", call, plane, same, [-1, 1])
    point = Hyperplane.of([1.0])
    refused("the class centroids coincide", tilting_angle, point, [[0.1], [0.3], [0.2]], [-1, -1, 1])
    refused("at least 2 features", tilting_plane, point, [[0.0], [1.0]], [-1, 1])
    refused("as many as the plane has weights; got 1", tilting_angle, plane, [[0.0], [1.0]], [-1, 1])
    (fit,) = svm_path(same, [-1, 1], [1.0])
    with pytest.raises(ValueError, match="no boundary exists"):
        _ = fit.plane


@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray])
def test_a_plane_is_of_the_numbers_it_was_made_from_whatever_becomes_of_them(kind):
    weight = kind([1.0, 2.0])
    weight = weight.double() if isinstance(weight, torch.Tensor) else weight
    plane = Hyperplane.of(weight)
    weight *= 0
    assert plane.weight.tolist() == [1.0, 2.0]
