"""train_heads moves each head exactly as torch.optim.SGD moves it alone; divergence, misfits."""

import dataclasses

import pytest
import torch
from torch import nn

from clearance.heads import MLP, GaussianMixture, HeadStack, HeadTraining, train_heads
from largest_tensor import Largest

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


@pytest.mark.parametrize("priors", ["uniform", [0.8, 0.1, 0.1], "learned"])
def test_priors_that_are_not_learned_stay(priors, fresh, cloud):
    features, labels = cloud(2, 6, 4)
    stack = fresh(GaussianMixture(4, 3, priors=priors).double(), count=2)
    before = stack.parameters["log_priors"].clone()
    found = train_heads(stack, features, labels, HeadTraining(steps=5, lr=0.1)).stack.parameters["log_priors"]
    assert torch.equal(found, before) is (priors != "learned")


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


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_loss_that_takes_the_mean_is_refused(any_head, batch_size, fresh, cloud):
    """Its steps would be n times too short."""
    features, labels = cloud(2, 8, 6, C=6)
    settings = HeadTraining(steps=1, lr=0.1, batch_size=batch_size)
    with pytest.raises(ValueError, match=r"`loss` must give a number for each sample.*got \(\).*reduction"):
        train_heads(
            fresh(any_head(6, 6), count=2), features, labels, settings, loss=torch.nn.functional.cross_entropy,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip


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
    """Five heads in chunks of every size."""
    pool, labels = cloud(None, 30, 14, C=14)
    rows = torch.randint(30, (5, 6), generator=torch.Generator().manual_seed(4))
    head = nn.Sequential(nn.LayerNorm(14) if norm else nn.Identity(), MLP((14, 6, 14)))
    stack = fresh(head.double() if norm else head[1].double(), count=5, std=0.2)
    monkeypatch.setattr("clearance.heads.train._heads_at_once", lambda rows, features: at_once)
    training = HeadTraining(steps=3, lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=batch_size)
    draws = [torch.Generator().manual_seed(3) for _ in range(2)]
    found = train_heads(stack, pool, labels, training, rows=rows, generator=draws[0])
    expected = loop_of_modules(stack, pool[rows], labels[rows], training, generator=draws[1])
    assert_same_heads(found.stack.parameters, expected)
    assert found.diverged.shape == (5,)


# A head whose numbers left the finite is named, left out, and harms no other.


TRAINING = HeadTraining(steps=40, lr=0.05, momentum=0.9, weight_decay=0.01)


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


# What train_heads does with what it is given: nothing is changed, every dtype is read, misfits are refused.


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
    ("features", "labels", "rows"),
    [
        ((2, 8, 6), (2, 8), None),
        ((8, 6), (7,), None),
        ((3, 8, 6), (2, 8), None),
        ((6,), (6,), None),
        ((0, 6), (0,), None),
        ((8, 6), (8,), (2, 4)),
        ((8, 6), (8,), (3, 0)),
        ((8, 6), (3, 8), (3, 4)),
        ((3, 8, 6), (3, 8), (3, 4)),
        ((8, 5), (8,), None),
    ],
)
def test_shapes_that_do_not_fit_are_refused(features, labels, rows, fresh):
    with pytest.raises(ValueError, match=r"must (be|have) .*; got "):
        train_heads(
            fresh(nn.Linear(6, 3)),
            torch.zeros(features, dtype=torch.float64),
            torch.zeros(labels, dtype=torch.long),
            HeadTraining(steps=1),
            rows=None if rows is None else torch.zeros(rows, dtype=torch.long),
        )


@pytest.mark.parametrize("head", [nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3))])
def test_samples_without_a_class_are_refused_whatever_the_head(head, fresh):
    """torch's cross-entropy ignores -100 and takes the mean over the others."""
    labels = torch.tensor([0, 1, -100])
    with pytest.raises(ValueError, match=r"`labels` must be at least 0; got -100. Leave out samples"):
        train_heads(fresh(head), torch.zeros(3, 6, dtype=torch.float64), labels, HeadTraining(steps=1))


def test_labels_of_another_type_are_refused(fresh):
    with pytest.raises(ValueError, match=r"`labels` must be .* int64; got torch\.int32"):
        train_heads(
            fresh(nn.Linear(6, 3)),
            torch.zeros(8, 6),
            torch.zeros(8, dtype=torch.int32),
            HeadTraining(steps=1),
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


def test_heads_that_end_in_a_1x1_convolution_are_trained():
    head = nn.Sequential(
        nn.Unflatten(1, (4, 2, 2)), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    stack = HeadStack.initialised(head, 2, torch.Generator().manual_seed(0))
    trained = train_heads(stack, torch.rand(8, 16), torch.arange(8) % 3, HeadTraining(steps=2))
    assert trained.stack(torch.rand(8, 16)).shape == (2, 8, 3)


def test_the_caller_s_autocast_changes_nothing():
    features, labels = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    stack = HeadStack.initialised(nn.Linear(4, 3), 2, torch.Generator().manual_seed(0))
    plain = train_heads(stack, features, labels, HeadTraining(steps=5, lr=0.5)).stack.parameters["weight"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = train_heads(stack, features, labels, HeadTraining(steps=5, lr=0.5)).stack.parameters["weight"]
    assert torch.equal(found, plain)


def test_minibatches_of_many_classes_need_no_one_hot_labels_of_all_samples():
    features, labels = torch.randn(600, 8, generator=torch.Generator().manual_seed(0)), torch.arange(600)
    stack = HeadStack.initialised(nn.Linear(8, 600), 1, torch.Generator().manual_seed(0))
    with Largest() as seen:
        train_heads(
            stack, features, labels, HeadTraining(steps=2, batch_size=10),
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
    assert seen.elements <= 600 * 10
