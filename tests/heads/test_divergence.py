"""A head whose numbers left the finite is named, left out, and harms no other."""

import pytest
import torch
from torch import nn

from clearance.heads import HeadTraining, train_heads

TRAINING = HeadTraining(steps=40, lr=0.05, momentum=0.9, weight_decay=0.01)


def squared(logits, labels):
    return (logits - torch.eye(logits.shape[-1], dtype=logits.dtype)[labels]).square().sum(dim=-1)


@pytest.mark.parametrize("n", [3, 8], ids=["gram", "dense"])
def test_3_5_9_exactly_the_heads_that_broke_are_flagged(n, linear_relu, fresh, cloud, assert_same_heads):
    """The step is far too long for the features of head 1 and only for those."""
    features, labels = cloud(3, n, 9, C=9)
    features[1] *= 1e100
    stack = fresh(linear_relu(9, 9), std=0.1)
    small_step = HeadTraining(steps=40, lr=0.01, momentum=0.5)
    found = train_heads(stack, features, labels, small_step, loss=squared)
    assert found.diverged.tolist() == [False, True, False]
    others = torch.tensor([0, 2])
    assert len(found.intact()) == 2
    assert_same_heads(found.intact().parameters, found.stack.select(others).parameters, 0.0)
    alone = train_heads(stack.select(others), features[others], labels[others], small_step, loss=squared)
    assert_same_heads(found.intact().parameters, alone.stack.parameters, 1e-12)


@pytest.mark.parametrize("n", [3, 8], ids=["gram", "dense"])
def test_3_5_9_a_broken_neighbour_on_the_same_features_harms_nobody(
    n, any_head, fresh, cloud, assert_same_heads
):
    features, labels = cloud(None, n, 9, C=9)
    stack = fresh(any_head(9, 9), std=0.1)
    for value in stack.parameters.values():
        value[2] = torch.nan
    found = train_heads(stack, features, labels, TRAINING)
    assert found.diverged.tolist() == [False, False, True]
    others = torch.tensor([0, 1])
    alone = train_heads(stack.select(others), features, labels, TRAINING)
    assert_same_heads(found.intact().parameters, alone.stack.parameters, 1e-12)


@pytest.mark.parametrize("n", [3, 8], ids=["gram", "dense"])
def test_3_5_9_a_huge_step_breaks_every_head(n, linear_relu, fresh, cloud):
    features, labels = cloud(3, n, 9)
    found = train_heads(
        fresh(linear_relu(9, 3)), features, labels, HeadTraining(steps=200, lr=1e4), loss=squared
    )
    assert found.diverged.all()
    assert len(found.intact()) == 0


def test_one_number_that_is_not_finite_is_enough(fresh, cloud):
    stack = fresh(nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 3)))
    stack.parameters["2.bias"][1, 2] = torch.inf
    features, labels = cloud(3, 8, 9)
    found = train_heads(stack, features, labels, HeadTraining(steps=0))
    assert found.diverged.tolist() == [False, True, False]


def test_intact_is_the_stack_itself_where_nothing_broke(fresh, cloud):
    features, labels = cloud(3, 8, 9)
    found = train_heads(fresh(nn.Linear(9, 3)), features, labels, TRAINING)
    assert found.intact() is found.stack


def test_flags_keep_the_order_of_heads_across_chunks(fresh, cloud, monkeypatch):
    pool, labels = cloud(None, 20, 6)
    pool[7] = torch.nan
    rows = torch.arange(20).view(5, 4)
    monkeypatch.setattr("clearance.heads.train._heads_at_once", lambda rows, features: 2)
    found = train_heads(fresh(nn.Linear(6, 3), count=5), pool, labels, TRAINING, rows=rows)
    assert found.diverged.tolist() == [False, True, False, False, False]
