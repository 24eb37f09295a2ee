"""Classifiers without training, against scikit-learn and brute force."""

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from clearance.geometry.nearest import class_means, nearest_class_mean, nearest_neighbour, squared_distances


@pytest.fixture
def world():
    """A set (n, D) with labels (n,), unbalanced, without one of five classes, and queries (B, D)."""
    draws = torch.Generator().manual_seed(0)
    there = torch.tensor([0, 1, 3, 4])
    labels = torch.cat([there, there[torch.randint(4, (11,), generator=draws)]])
    features = torch.randn(15, 5, generator=draws, dtype=torch.float64)
    return features + labels[:, None] / 2, labels, torch.randn(200, 5, generator=draws, dtype=torch.float64)


def test_class_means_equal_a_loop(world):
    features, labels, _ = world
    classes, means = class_means(features, labels)
    assert classes.tolist() == [0, 1, 3, 4]
    for c, mean in zip(classes, means, strict=True):
        torch.testing.assert_close(mean, features[labels == c].mean(dim=0))


def test_nearest_class_mean_equals_sklearns_centroid(world):
    features, labels, queries = world
    classes, means = class_means(features, labels)
    fitted = NearestCentroid().fit(features.numpy(), labels.numpy())
    found = classes[nearest_class_mean(means, queries)]
    assert found.tolist() == fitted.predict(queries.numpy()).tolist()


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_nearest_neighbour_equals_sklearns(world, chunk):
    features, labels, queries = world
    names = torch.tensor([40, 10, 50, 30, 20])[labels]
    fitted = KNeighborsClassifier(n_neighbors=1, algorithm="brute").fit(features.numpy(), names.numpy())
    found = nearest_neighbour(features, names, queries, chunk=chunk)
    assert found.tolist() == fitted.predict(queries.numpy()).tolist()


def test_distances_differ_from_true_ones_by_a_constant_for_each_point(world):
    features, _, queries = world
    difference = squared_distances(queries, features) - torch.cdist(queries, features).square()
    torch.testing.assert_close(difference, difference[..., :1].expand_as(difference))


@pytest.mark.parametrize(
    "change", [lambda z: 50 * z, lambda z: z.flip(-1), lambda z: z + 64.0], ids=["scale", "flip", "shift"]
)
def test_nothing_changes_under_scale_reflection_and_shift(world, change):
    features, labels, queries = world
    moved = nearest_class_mean(class_means(change(features), labels)[1], change(queries))
    assert torch.equal(moved, nearest_class_mean(class_means(features, labels)[1], queries))
    moved = nearest_neighbour(change(features), labels, change(queries))
    assert torch.equal(moved, nearest_neighbour(features, labels, queries))


def test_float32_keeps_its_digits_far_from_the_origin(world):
    """At 1e4 a squared norm has errors of about 10 in float32; the points are about 1 apart."""
    features, labels, queries = (part.float() if part.is_floating_point() else part for part in world)
    features, queries = features + 1e4, queries + 1e4
    fitted = KNeighborsClassifier(n_neighbors=1, algorithm="brute")
    fitted.fit(features.double().numpy(), labels.numpy())
    expected = torch.from_numpy(fitted.predict(queries.double().numpy()))
    assert (nearest_neighbour(features, labels, queries) == expected).double().mean() > 0.99
