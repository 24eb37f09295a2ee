"""Weak heads in closed form: what each is, what it refuses, and when it is too strong."""

import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.heads import MLP, RidgeHeads
from clearance.heads.ridge import pair_head, solve_ridge
from clearance.heads.weak.ridge import ridge_is_too_strong
from clearance.losses.squared_error import squared_error
from clearance.research import feature_unit
from heads.numbers import close
from heads.weak_cases import CASES, D, K

CLOSED_FORM = ("ridge", "ridge, fixed penalty", "pair")


@pytest.fixture(params=CLOSED_FORM)
def closed_form(request):
    return CASES[request.param]


def test_below_the_least_unit_the_penalty_of_ridge_stays():
    """Shrinking features from the least unit on is, to the heads, as under a fixed penalty."""
    case = CASES["ridge"]
    features, labels = case.batches()
    unit = feature_unit(features)
    scatter = (features - features.mean(dim=1, keepdim=True)).square().sum(dim=2).mean()
    fixed = RidgeHeads(0.01 * float(scatter), relative=False)
    shrunk = case.draw(0.1 * features, labels, least_unit=unit).stack(features)
    close(shrunk, case.draw(0.1 * features, labels, fixed).stack(features))


def test_neighbours_of_a_spoilt_set_are_as_they_were(closed_form):
    features, labels = closed_form.batches()
    expected = closed_form.draw(features, labels).stack.parameters["weight"]
    features[1, 0, 0] = torch.inf
    close(closed_form.draw(features, labels).intact().parameters["weight"], expected[[0, 2]])


def test_features_that_are_all_equal_give_heads_that_cannot_tell(closed_form):
    features, labels = closed_form.batches()
    drawn = closed_form.draw(torch.full_like(features, 0.1), labels)
    assert not drawn.diverged.any()
    close(drawn.stack(features), torch.full_like(drawn.stack(features), 1 / closed_form.classes))


@pytest.mark.parametrize(
    "architecture",
    [MLP((D, 8, 4)), nn.Linear(D, 4, bias=False), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 4))],
    ids=["mlp", "no bias", "layer norm"],
)
def test_closed_forms_refuse_heads_that_are_not_one_linear_layer(closed_form, architecture):
    features, labels = closed_form.batches()
    with pytest.raises(ValueError, match=r"one nn.Linear with a bias, because only that has a closed form"):
        closed_form.draw(features, labels, architecture=architecture)


def test_a_head_written_as_a_sequence_of_one_layer_is_the_same(closed_form):
    features, labels = closed_form.batches()
    drawn = closed_form.draw(features, labels, architecture=MLP((D, closed_form.classes)))
    close(drawn.stack(features), closed_form.draw(features, labels).stack(features))


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_not_above_0_is_refused(penalty):
    with pytest.raises(ValueError, match="`penalty` must be a finite number above 0"):
        RidgeHeads(penalty)


@pytest.mark.parametrize("wrong", [4, -1])
def test_labels_that_are_no_classes_are_refused(wrong):
    features, labels = CASES["ridge"].batches()
    labels = labels.clone()
    labels[0, 0] = wrong
    with pytest.raises(ValueError, match=r"`labels` must lie in 0 .. 3, because the head has 4 outputs"):
        CASES["ridge"].draw(features, labels)


def test_ridge_heads_are_the_ridge_regression_of_one_hot_targets():
    features, labels = CASES["ridge"].batches()
    drawn = CASES["ridge, fixed penalty"].draw(features, labels).stack
    weight, bias = solve_ridge(features, F.one_hot(labels, 4), 0.01)
    close(drawn.parameters["weight"], weight)
    close(drawn.parameters["bias"], bias)


def test_ridge_heads_of_a_pair_are_the_scalar_head_of_the_proof_with_two_logits():
    """z = ((1 - s) / 2, (1 + s) / 2), whichever sample comes first; the loss is half of that of s."""
    features, _ = CASES["pair"].batches()
    labels = torch.tensor([[0, 1], [1, 0], [0, 1]])
    logits = CASES["pair"].draw(features, labels).stack(features)
    for k in range(K):
        zero, one = features[k][labels[k].argsort()]
        weight, bias = pair_head(one, zero, 1.0, -1.0, 0.1)
        s = features[k] @ weight + bias
        close(logits[k], torch.stack([(1 - s) / 2, (1 + s) / 2], dim=1))
        close(squared_error(logits[k], labels[k]), (s - (2 * labels[k] - 1)).square() / 2)


@pytest.mark.parametrize(("relative", "power"), [(True, 1), (False, 3)])
def test_3_5_1_what_moves_two_points_apart_falls_with_their_distance(relative, power):
    """As 1 / D under a penalty that follows the scale, as 1 / D^3 under a fixed one."""
    sizes = []
    for distance in (100.0, 200.0):
        points = torch.tensor([[[0.0, 0.0], [distance, 0.0]]], dtype=torch.float64)
        labels = torch.tensor([[0, 1]])
        heads = RidgeHeads(0.01, relative).draw(nn.Linear(2, 2), points, labels, torch.Generator()).stack
        leaf = points[0].requires_grad_()
        squared_error(heads(leaf), labels[0]).sum().backward()
        assert leaf.grad is not None
        sizes.append(float(leaf.grad[1].norm()))
        assert float(leaf.grad[1, 0]) < 0  # descending moves it away from the other
    assert sizes[0] / sizes[1] == pytest.approx(2**power, rel=1e-3)


@pytest.mark.parametrize(("samples", "strong"), [(16, False), (17, True), (100, True)])
def test_3_5_3_heads_with_as_many_samples_as_features_are_called_strong(samples, strong):
    assert ridge_is_too_strong(samples, width=16) is strong


def test_3_5_3_strong_ridge_heads_warn_once():
    case = replace(CASES["ridge"], per_class=5)  # 20 samples, 16 features
    features, labels = case.batches()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            case.heads.draw(nn.Linear(D, 4), features, labels, torch.Generator())
    assert [str(w.message)[:43] for w in caught] == ["RidgeHeads are too strong with 20 samples f"]
