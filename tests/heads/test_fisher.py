"""Fisher distances along a path of heads: against the slow truth, unchanged by what must not matter, exact cases."""

import itertools
import math

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadStack
from clearance.heads.fisher import path_distance, segment_distances
from heads.slow_fisher import CLASSES, SEGMENTS, slow_distances


@pytest.fixture
def path_of(fresh):
    """Start and tangent of a random path of heads of one architecture."""

    def drawn(architecture, seed=0, length=0.3):
        start = fresh(architecture, count=1, seed=seed)
        end = fresh(architecture, count=1, seed=seed + 1, std=length)
        return start, {name: value[0] / SEGMENTS for name, value in end.parameters.items()}

    return drawn


def assert_equal(found, expected):
    assert set(found.layers) == set(expected["empirical"])
    assert len(found.layers) == len(set(found.layers))
    for row, layer in enumerate(found.layers):
        for kind in ("empirical", "model"):
            truth = torch.tensor(expected[kind][layer], dtype=torch.float64)
            torch.testing.assert_close(getattr(found, kind)[row], truth, rtol=1e-10, atol=1e-12)


def test_4_6_fisher_distances_equal_those_of_the_explicit_matrices(linear_relu, path_of, cloud):
    start, tangent = path_of(linear_relu(4, CLASSES))
    features, labels = cloud(None, 9, 4)
    found = segment_distances(start, tangent, features, labels, SEGMENTS)
    assert found.empirical.dtype == torch.float64
    assert_equal(found, slow_distances(start, tangent, features, labels))
    assert found.layers[-1] == "all"
    assert bool((found.empirical[-1] > 1e-3).all())


def test_layers_are_named_in_order_and_euclidean_is_the_tangents_norm(path_of, cloud):
    start, tangent = path_of(MLP((4, 5, 6, CLASSES)).double())
    features, labels = cloud(None, 3, 4)
    found = segment_distances(start, tangent, features, labels, SEGMENTS)
    assert found.layers == ("0", "2", "4", "all")
    for layer, row in zip("024", found.euclidean[:-1], strict=True):
        both = tangent[f"{layer}.weight"].square().sum() + tangent[f"{layer}.bias"].square().sum()
        torch.testing.assert_close(row, both.sqrt().expand(SEGMENTS))
    torch.testing.assert_close(found.euclidean[-1], found.euclidean[:-1].square().sum(dim=0).sqrt())


@pytest.fixture
def case(path_of, cloud):
    start, tangent = path_of(MLP((4, 5, 6, CLASSES)).double())
    return start, tangent, *cloud(None, 30, 4)


def assert_same(found, expected, tolerance=1e-11):
    for kind in ("empirical", "model"):
        torch.testing.assert_close(getattr(found, kind), getattr(expected, kind), rtol=tolerance, atol=0)


def test_samples_may_be_shuffled_repeated_and_taken_in_parts(case):
    start, tangent, features, labels = case
    expected = segment_distances(start, tangent, features, labels, SEGMENTS)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2)).repeat(2)
    assert_same(segment_distances(start, tangent, features[order], labels[order], SEGMENTS), expected)
    many = order.repeat(400)  # more than are looked at together
    assert_same(segment_distances(start, tangent, features[many], labels[many], SEGMENTS), expected, 1e-9)


def test_classes_may_be_renamed(case):
    start, tangent, features, labels = case
    expected = segment_distances(start, tangent, features, labels, SEGMENTS)
    names = torch.tensor([2, 0, 1])
    renamed = {n: v[:, names] if n.startswith("4.") else v for n, v in start.parameters.items()}
    moved = {n: v[names] if n.startswith("4.") else v for n, v in tangent.items()}
    found = segment_distances(start.holding(renamed), moved, features, names.argsort()[labels], SEGMENTS)
    assert_same(found, expected)


def test_the_unit_of_features_does_not_matter_where_the_first_weight_absorbs_it(case):
    start, tangent, features, labels = case
    expected = segment_distances(start, tangent, features, labels, SEGMENTS)
    scaled = {n: v / 50 if n == "0.weight" else v for n, v in start.parameters.items()}
    moved = {n: v / 50 if n == "0.weight" else v for n, v in tangent.items()}
    assert_same(segment_distances(start.holding(scaled), moved, 50 * features, labels, SEGMENTS), expected)


def test_hidden_units_may_change_places(case):
    start, tangent, features, labels = case
    expected = segment_distances(start, tangent, features, labels, SEGMENTS)
    order = torch.tensor([3, 0, 4, 2, 1])

    def moved(parameters, dim):
        first = {n: v.index_select(dim, order) for n, v in parameters.items() if n.startswith("0.")}
        return {**parameters, **first, "2.weight": parameters["2.weight"].index_select(dim + 1, order)}

    found = segment_distances(
        start.holding(moved(start.parameters, 1)), moved(tangent, 0), features, labels, SEGMENTS
    )
    assert_same(found, expected)


def test_float32_heads_and_features_are_measured_in_float64(case):
    start, tangent, features, labels = case
    single = start.holding({name: value.float() for name, value in start.parameters.items()})
    along = {name: value.float() for name, value in tangent.items()}
    found = segment_distances(single, along, features.float(), labels, SEGMENTS)
    exact = segment_distances(
        start.holding({name: value.double() for name, value in single.parameters.items()}),
        {name: value.double() for name, value in along.items()},
        features.float().double(),
        labels,
        SEGMENTS,
    )
    assert_same(found, exact)


@pytest.mark.parametrize("margin", [5.0, 40.0, 300.0, 700.0])
def test_a_confident_heads_distance_is_small_and_right_not_zero(margin):
    """Two classes, one sample x = 1, logits (m, 0), tangent (s, 0): u = -s / (1 + e^m), Var = s^2 p (1 - p)."""
    architecture = nn.Linear(1, 2, bias=False).double()
    start = HeadStack(architecture, {"weight": torch.tensor([[[margin], [0.0]]], dtype=torch.float64)})
    tangent = {"weight": torch.tensor([[0.5], [0.0]], dtype=torch.float64)}
    found = segment_distances(start, tangent, torch.ones(1, 1), torch.tensor([0]), 2)
    for a, m in enumerate((margin, margin + 0.5)):
        wrong = 1 / (1 + math.exp(m))
        assert float(found.empirical[0, a]) == pytest.approx(0.5 * wrong, rel=1e-12, abs=0)
        assert float(found.model[0, a]) == pytest.approx(
            0.5 * math.sqrt(wrong * (1 - wrong)), rel=1e-12, abs=0
        )
    assert float(path_distance(found.empirical[0])) > 0


def test_4_6_eq_15_falls_by_the_root_of_two_when_segments_double_and_the_length_stays(case):
    start, tangent, features, labels = case
    near = {name: 1e-4 * value for name, value in tangent.items()}  # so near that the metric is constant
    once = segment_distances(start, near, features, labels, 5)
    twice = segment_distances(start, {n: v / 2 for n, v in near.items()}, features, labels, 10)
    for kind in ("empirical", "model", "euclidean"):
        few, many = getattr(once, kind), getattr(twice, kind)
        torch.testing.assert_close(
            path_distance(few) / path_distance(many), few.new_tensor(2.0).sqrt().expand(4), rtol=1e-3, atol=0
        )
        torch.testing.assert_close(few.sum(dim=-1), many.sum(dim=-1), rtol=1e-3, atol=0)


def test_the_length_of_the_same_path_settles_when_segments_double(case):
    """Left ends only: the error of the sum falls by half each time, as that of any left Riemann sum."""
    start, tangent, features, labels = case
    lengths = []
    for segments in (64, 128, 256):
        short = {name: value * SEGMENTS / segments for name, value in tangent.items()}
        lengths.append(segment_distances(start, short, features, labels, segments).model[-1].sum())
    first, second = (float(b - a) for a, b in itertools.pairwise(lengths))
    assert first / second == pytest.approx(2.0, rel=0.1)


def test_path_distance_is_eq_15_however_small_the_segments():
    rows = [[3.0, 4.0], [0.0, 0.0], [3e-200, 4e-200], [3e200, 4e200], [1.0, math.inf]]
    segments = torch.tensor(rows, dtype=torch.float64)
    expected = torch.tensor([5.0, 0.0, 5e-200, 5e200, math.inf], dtype=torch.float64)
    torch.testing.assert_close(path_distance(segments), expected, rtol=1e-14, atol=0)


def test_a_path_that_goes_nowhere_has_no_length(case):
    start, tangent, features, labels = case
    still = {name: torch.zeros_like(value) for name, value in tangent.items()}
    found = segment_distances(start, still, features, labels, SEGMENTS)
    assert not any(bool(values.any()) for values in (found.empirical, found.model, found.euclidean))
