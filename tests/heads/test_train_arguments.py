"""What train_heads does with what it is given: nothing is changed, every dtype is read, misfits are refused."""

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadStack, HeadTraining, train_heads

CARRIED = HeadTraining(steps=5, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05)


def test_no_step_leaves_heads_as_they_were(linear_relu, fresh, cloud, assert_same_heads):
    for n, D in ((8, 6), (4, 12)):
        stack = fresh(linear_relu(D, 3))
        features, labels = cloud(3, n, D)
        found = train_heads(stack, features, labels, HeadTraining(steps=0))
        assert_same_heads(found.stack.parameters, stack.parameters, 0.0)


def test_nothing_given_is_changed(any_head, fresh, cloud):
    for n in (4, 10):
        features, labels = cloud(3, n, 9, C=9)
        stack = fresh(any_head(9, 9))
        before = {name: value.clone() for name, value in stack.parameters.items()}
        own = {name: value.clone() for name, value in stack.architecture.named_parameters()}
        given = features.clone(), labels.clone()
        train_heads(stack, features, labels, CARRIED)
        assert all(torch.equal(stack.parameters[name], value) for name, value in before.items())
        assert all(torch.equal(p, own[name]) for name, p in stack.architecture.named_parameters())
        assert torch.equal(features, given[0])
        assert torch.equal(labels, given[1])


def test_the_callers_random_numbers_are_untouched(fresh, cloud):
    stack = fresh(nn.Linear(6, 3))
    before = torch.get_rng_state()
    training = HeadTraining(steps=4, batch_size=3)
    features, labels = cloud(3, 8, 6)
    train_heads(stack, features, labels, training, generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("n", "D"), [(8, 6), (4, 12)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_3_5_8_heads_read_half_precision_features_in_float32(n, D, dtype, cloud, assert_same_heads):
    features, labels = cloud(3, n, D)
    features = features.to(dtype)
    for architecture in (MLP((D, 5, 3)), nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, 3))):
        stack = HeadStack.initialised(architecture, 3, torch.Generator().manual_seed(0))
        found = train_heads(stack, features, labels, CARRIED).stack.parameters
        assert {value.dtype for value in found.values()} == {torch.float32}
        assert_same_heads(found, train_heads(stack, features.float(), labels, CARRIED).stack.parameters, 0.0)


@pytest.mark.parametrize(("n", "D"), [(8, 6), (4, 12)])
def test_float32_follows_float64(linear_relu, n, D, fresh, cloud, assert_same_heads):
    features, labels = cloud(3, n, D)
    stack = fresh(linear_relu(D, 3))
    exact = train_heads(stack, features, labels, CARRIED).stack.parameters
    found = train_heads(stack, features.float(), labels, CARRIED).stack.parameters
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert_same_heads({name: value.double() for name, value in found.items()}, exact, 1e-5)


def test_minibatches_need_a_generator(fresh, cloud):
    features, labels = cloud(3, 8, 6)
    with pytest.raises(ValueError, match="`generator` is needed, because batch_size 3 is below the 8"):
        train_heads(fresh(nn.Linear(6, 3)), features, labels, HeadTraining(batch_size=3))


@pytest.mark.parametrize(
    ("features", "labels", "rows", "mask"),
    [
        ((2, 8, 6), (2, 8), None, None),
        ((8, 6), (7,), None, None),
        ((3, 8, 6), (2, 8), None, None),
        ((6,), (6,), None, None),
        ((3, 8, 6), (3, 8), None, (3, 7)),
        ((8, 6), (8,), None, (8,)),
        ((8, 6), (8,), (2, 4), None),
        ((8, 6), (3, 8), (3, 4), None),
        ((3, 8, 6), (3, 8), (3, 4), None),
        ((8, 6), (8,), (3, 4), (3, 8)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(features, labels, rows, mask, fresh):
    with pytest.raises(ValueError, match=r"must be .*; got "):
        train_heads(
            fresh(nn.Linear(6, 3)),
            torch.zeros(features, dtype=torch.float64),
            torch.zeros(labels, dtype=torch.long),
            HeadTraining(steps=1),
            rows=None if rows is None else torch.zeros(rows, dtype=torch.long),
            mask=None if mask is None else torch.ones(mask, dtype=torch.bool),
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": -1},
        {"steps": 1.5},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"weight_decay": -1e-3},
        {"weight_decay": float("nan")},
        {"batch_size": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"`{name}` must .*; got "):
        HeadTraining(**settings)
