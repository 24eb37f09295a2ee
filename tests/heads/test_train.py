"""train_heads moves each head exactly as torch.optim.SGD moves it alone (float64, 1e-10)."""

import dataclasses

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadTraining, train_heads

SETTINGS = {
    "plain": (0.0, False, 0.0),
    "decay": (0.0, False, 0.2),
    "momentum": (0.9, False, 0.0),
    "momentum, decay": (0.9, False, 0.2),
    "nesterov": (0.9, True, 0.0),
    "nesterov, decay": (0.9, True, 0.2),
    "nesterov without momentum": (0.0, True, 0.2),
}


@pytest.fixture(params=list(SETTINGS))
def training(request):
    momentum, nesterov, weight_decay = SETTINGS[request.param]
    return HeadTraining(steps=5, lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)


CARRIED = HeadTraining(steps=5, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05)


def squared(logits, labels):
    return (logits - torch.eye(logits.shape[-1], dtype=logits.dtype)[labels]).square().sum(dim=-1)


def hinge(logits, labels):
    """Zero gradient on a part of the space, unlike the smooth losses."""
    true = logits.gather(-1, labels[:, None])
    return (1 + logits - true).clamp(min=0).sum(dim=-1)


@pytest.mark.parametrize("own", [True, False], ids=["own features", "shared features"])
@pytest.mark.parametrize(("n", "D"), [(8, 6), (3, 5), (3, 6), (4, 12)], ids=str)
def test_full_batch_equals_modules(
    linear_relu, training, n, D, own, fresh, cloud, loop_of_modules, assert_same_heads
):
    features, labels = cloud(3 if own else None, n, D)
    stack = fresh(linear_relu(D, 3))
    found = train_heads(stack, features, labels, training)
    assert_same_heads(found.stack.parameters, loop_of_modules(stack, features, labels, training))
    assert not found.diverged.any()


@pytest.mark.parametrize("own", [True, False], ids=["own features", "shared features"])
def test_minibatches_equal_modules(
    linear_relu, training, own, fresh, cloud, loop_of_modules, assert_same_heads
):
    """8 samples in batches of 3: epochs of 3, 3 and 2, and a last epoch that is cut short."""
    features, labels = cloud(3 if own else None, 8, 20)
    stack = fresh(linear_relu(20, 3))
    training = dataclasses.replace(training, batch_size=3, steps=8)
    found = train_heads(stack, features, labels, training, generator=torch.Generator().manual_seed(3))
    expected = loop_of_modules(stack, features, labels, training, generator=torch.Generator().manual_seed(3))
    assert_same_heads(found.stack.parameters, expected)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("own", [True, False], ids=["own features", "shared features"])
def test_any_other_head_equals_modules(
    other_head, batch_size, own, fresh, cloud, loop_of_modules, assert_same_heads
):
    """D = C, so that heads which keep the width are classifiers too; 2n <= D, where Gram space tempts."""
    features, labels = cloud(2 if own else None, 4, 9, C=9)
    stack = fresh(other_head(9, 9), count=2)
    training = dataclasses.replace(CARRIED, batch_size=batch_size)
    found = train_heads(stack, features, labels, training, generator=torch.Generator().manual_seed(3))
    expected = loop_of_modules(stack, features, labels, training, generator=torch.Generator().manual_seed(3))
    assert_same_heads(found.stack.parameters, expected)


@pytest.mark.parametrize("loss", [squared, hinge])
@pytest.mark.parametrize(("batch_size", "D"), [(None, 20), (3, 6)], ids=["gram", "minibatches"])
def test_another_loss_equals_modules(
    any_head, loss, batch_size, D, fresh, cloud, loop_of_modules, assert_same_heads
):
    features, labels = cloud(2, 8, D, C=D)
    stack = fresh(any_head(D, D), count=2, std=0.1)
    training = HeadTraining(steps=4, lr=0.005, momentum=0.9, weight_decay=0.1, batch_size=batch_size)
    found = train_heads(
        stack, features, labels, training, loss=loss, generator=torch.Generator().manual_seed(3)
    )
    expected = loop_of_modules(
        stack, features, labels, training, loss=loss, generator=torch.Generator().manual_seed(3)
    )
    assert_same_heads(found.stack.parameters, expected)


def test_a_batch_size_that_takes_all_is_no_batch_size(fresh, cloud, assert_same_heads):
    features, labels = cloud(3, 4, 12)
    stack = fresh(nn.Linear(12, 3))
    whole = train_heads(stack, features, labels, CARRIED).stack.parameters
    found = train_heads(stack, features, labels, dataclasses.replace(CARRIED, batch_size=4)).stack.parameters
    assert_same_heads(found, whole, 0)


def test_labels_of_all_heads_or_of_each(fresh, cloud, assert_same_heads):
    features, labels = cloud(None, 8, 6)
    stack = fresh(nn.Linear(6, 3))
    shared = train_heads(stack, features, labels, CARRIED).stack.parameters
    for other_features in (features, features.expand(3, 8, 6)):
        each = train_heads(stack, other_features, labels.expand(3, 8), CARRIED).stack.parameters
        assert_same_heads(each, shared, 1e-13)


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize("norm", [False, True], ids=["gram or dense", "torch.func"])
def test_rows_into_a_pool_equal_gathered_sets(
    norm, batch_size, at_once, fresh, cloud, loop_of_modules, monkeypatch, assert_same_heads
):
    """Five heads in chunks of every size; ragged by a mask, which must follow its head into the chunk."""
    pool, labels = cloud(None, 30, 14, C=14)
    rows = torch.randint(30, (5, 6), generator=torch.Generator().manual_seed(4))
    mask = torch.rand(5, 6, generator=torch.Generator().manual_seed(5)) < 0.7
    mask[:, 2] = True
    head = nn.Sequential(nn.LayerNorm(14) if norm else nn.Identity(), MLP((14, 6, 14)))
    stack = fresh(head.double() if norm else head[1].double(), count=5, std=0.2)
    monkeypatch.setattr("clearance.heads.train._heads_at_once", lambda rows, features: at_once)
    training = HeadTraining(steps=3, lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=batch_size)
    draws = [torch.Generator().manual_seed(3) for _ in range(2)]
    found = train_heads(stack, pool, labels, training, rows=rows, mask=mask, generator=draws[0])
    expected = loop_of_modules(stack, pool[rows], labels[rows], training, mask=mask, generator=draws[1])
    assert_same_heads(found.stack.parameters, expected)
    assert found.diverged.shape == (5,)
