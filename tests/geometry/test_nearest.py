"""Classifiers without training, against scikit-learn and brute force."""

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from clearance.geometry.nearest import class_means, nearest_class_mean, nearest_neighbour, squared_distances


@pytest.fixture
def world():
    """Sets (K, n, D) with labels (K, n), each of every class, unbalanced, and queries (B, D)."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.arange(4).expand(3, 4), torch.randint(4, (3, 11), generator=draws)], dim=1)
    features = torch.randn(3, 15, 5, generator=draws, dtype=torch.float64)
    return features + labels[..., None] / 2, labels, torch.randn(200, 5, generator=draws, dtype=torch.float64)


def test_class_means_equal_a_loop(world):
    features, labels, _ = world
    found = class_means(features, labels, 4)
    for k in range(3):
        for c in range(4):
            torch.testing.assert_close(found[k, c], features[k][labels[k] == c].mean(dim=0))


def test_nearest_class_mean_equals_sklearns_centroid(world):
    features, labels, queries = world
    found = nearest_class_mean(class_means(features, labels, 4), queries)
    assert found.shape == (3, 200)
    for k in range(3):
        fitted = NearestCentroid().fit(features[k].numpy(), labels[k].numpy())
        assert found[k].tolist() == fitted.predict(queries.numpy()).tolist()
        assert nearest_class_mean(class_means(features, labels, 4)[k], queries).tolist() == found[k].tolist()


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_nearest_neighbour_equals_sklearns(world, chunk):
    features, labels, queries = world
    names = torch.tensor([40, 10, 30, 20])[labels[0]]
    fitted = KNeighborsClassifier(n_neighbors=1, algorithm="brute").fit(features[0].numpy(), names.numpy())
    found = nearest_neighbour(features[0], names, queries, chunk=chunk)
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
    moved = nearest_class_mean(class_means(change(features), labels, 4), change(queries))
    assert torch.equal(moved, nearest_class_mean(class_means(features, labels, 4), queries))
    moved = nearest_neighbour(change(features[0]), labels[0], change(queries))
    assert torch.equal(moved, nearest_neighbour(features[0], labels[0], queries))


def test_float32_keeps_its_digits_far_from_the_origin(world):
    """At 1e4 a squared norm has errors of about 10 in float32; the points are about 1 apart."""
    features, labels, queries = (part.float() if part.is_floating_point() else part for part in world)
    features, queries = features + 1e4, queries + 1e4
    fitted = KNeighborsClassifier(n_neighbors=1, algorithm="brute")
    fitted.fit(features[0].double().numpy(), labels[0].numpy())
    expected = torch.from_numpy(fitted.predict(queries.double().numpy()))
    assert (nearest_neighbour(features[0], labels[0], queries) == expected).double().mean() > 0.99
