"""No verdict depends on the scale of features: the unit in which heads read them, and who absorbs it."""

import math

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadStack, HeadTraining, train_heads
from clearance.heads.weak.gradient import train_on_unit_scale
from clearance.models.cut import MapHead, TwoLogits
from clearance.research import feature_unit

TRAINING = HeadTraining(steps=20, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def test_the_unit_is_rms_times_root_of_relative_width():
    features = torch.tensor([[3.0, -4.0], [0.0, 5.0]], dtype=torch.float64)
    assert float(feature_unit(features)) == pytest.approx(
        math.sqrt((9 + 16 + 0 + 25) / 4) * math.sqrt(2 / 128)
    )


@pytest.mark.parametrize("D", [1, 64, 128, 4096])
def test_in_its_unit_a_sample_has_mean_squared_norm_128(D):
    features = 7 * torch.randn(3, 5, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 2
    normalised = features / feature_unit(features)
    assert float(normalised.square().sum(dim=-1).mean()) == pytest.approx(128.0, rel=1e-12)


@pytest.mark.parametrize("factor", [1e-18, 1e-21, 1e-22, 1e-30, 1e30])
def test_no_digit_is_lost_where_squares_leave_single_precision(factor):
    draws = torch.Generator().manual_seed(0)
    features = factor * torch.randn(50, 128, generator=draws, dtype=torch.float32)
    expected = float(feature_unit(features.double()))
    assert float(feature_unit(features)) / expected == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("factor", [1e-3, -1.0, 50.0, 1e6, 1e200, 1e-200])
def test_the_unit_scales_with_the_features(factor, cloud):
    features, _ = cloud(None, 8, 6)
    torch.testing.assert_close(feature_unit(factor * features), abs(factor) * feature_unit(features))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_unit_of_half_precision_features_does_not_overflow(dtype):
    """300^2 is infinite in float16."""
    assert float(feature_unit(torch.full((4, 128), 300.0, dtype=dtype))) == 300.0


def test_the_unit_is_detached(cloud):
    features, _ = cloud(None, 8, 6)
    assert not feature_unit(features.requires_grad_()).requires_grad


@pytest.mark.parametrize(("n", "D"), [(8, 6), (4, 12)], ids=["dense", "gram"])
@pytest.mark.parametrize("factor", [50.0, 1e-4])
def test_features_times_c_give_heads_divided_by_c(linear_relu, n, D, factor, fresh, cloud):
    features, labels = cloud(3, n, D)
    stack = fresh(linear_relu(D, 3))
    plain = train_on_unit_scale(stack, features, labels, TRAINING).stack
    scaled = train_on_unit_scale(stack, factor * features, labels, TRAINING).stack
    torch.testing.assert_close(scaled(factor * features), plain(features), rtol=1e-11, atol=1e-11)
    names = list(plain.parameters)
    torch.testing.assert_close(scaled.parameters[names[0]] * factor, plain.parameters[names[0]])
    for name in names[1:]:
        torch.testing.assert_close(scaled.parameters[name], plain.parameters[name])


def test_a_power_of_two_changes_no_bit(cloud):
    features, labels = cloud(3, 8, 6)
    stack = HeadStack.initialised(MLP((6, 5, 3)), 3, torch.Generator().manual_seed(0))
    plain, scaled = (
        train_on_unit_scale(stack, c * features.float(), labels, TRAINING).stack(c * features.float())
        for c in (1.0, 64.0)
    )
    assert torch.equal(plain, scaled)


def test_heads_are_trained_on_features_in_their_unit(fresh, cloud):
    features, labels = cloud(3, 8, 6)
    stack = fresh(nn.Linear(6, 3))
    unit = features.square().mean().sqrt() * math.sqrt(6 / 128)
    found = train_on_unit_scale(stack, features, labels, TRAINING).stack
    expected = train_heads(stack, features / unit, labels, TRAINING).stack
    torch.testing.assert_close(found(features), expected(features / unit), rtol=1e-12, atol=1e-12)


def test_minibatches_and_loss_are_handed_on(fresh, cloud):
    features, labels = cloud(3, 8, 6)
    unit = feature_unit(features)
    stack = fresh(nn.Linear(6, 3))
    training = HeadTraining(steps=5, lr=0.01, batch_size=3)

    def loss(logits, labels):
        return logits.gather(-1, labels[:, None])[:, 0].square()

    draws = [torch.Generator().manual_seed(9) for _ in range(2)]
    found = train_on_unit_scale(stack, features, labels, training, loss=loss, generator=draws[0]).stack
    expected = train_heads(stack, features / unit, labels, training, loss=loss, generator=draws[1]).stack
    torch.testing.assert_close(found(features), expected(features / unit), rtol=1e-12, atol=1e-12)


def test_a_head_that_cannot_absorb_the_scale_reads_features_as_they_are(fresh, cloud, assert_same_heads):
    features, labels = cloud(3, 8, 6)
    stack = fresh(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)).double())
    found = train_on_unit_scale(stack, 50 * features, labels, TRAINING).stack
    assert_same_heads(
        found.parameters, train_heads(stack, 50 * features, labels, TRAINING).stack.parameters, 0.0
    )


@pytest.mark.parametrize("least", [0.01, 100.0])
def test_features_are_never_divided_by_less_than_the_least_unit(least, fresh, cloud):
    features, labels = cloud(3, 8, 6)
    stack = fresh(nn.Linear(6, 3))
    unit = max(float(feature_unit(features)), least)
    least_unit = torch.tensor(least, dtype=torch.float64)
    found = train_on_unit_scale(stack, features, labels, TRAINING, least_unit=least_unit).stack
    expected = train_heads(stack, features / unit, labels, TRAINING).stack
    torch.testing.assert_close(found(features), expected(features / unit), rtol=1e-12, atol=1e-12)


def test_vanished_features_do_not_break_heads(fresh):
    features, labels = torch.zeros(3, 6, 4, dtype=torch.float64), torch.arange(6).remainder(3).expand(3, 6)
    found = train_on_unit_scale(fresh(nn.Linear(4, 3)), features, labels, TRAINING)
    assert not found.diverged.any()
    assert found.stack(features).isfinite().all()


def test_flags_of_diverged_heads_are_kept(fresh, cloud):
    stack = fresh(nn.Linear(6, 3))
    stack.parameters["bias"][2, 0] = torch.nan
    features, labels = cloud(3, 8, 6)
    assert train_on_unit_scale(stack, features, labels, TRAINING).diverged.tolist() == [False, False, True]


ABSORBING = {
    "linear": lambda: nn.Linear(6, 3),
    "mlp": lambda: MLP((6, 5, 3)),
    "nested": lambda: nn.Sequential(
        nn.Identity(), nn.Sequential(nn.Linear(6, 4), nn.Tanh()), nn.Linear(4, 3)
    ),
    "dropout first": lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).eval(),
    "layer norm later": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "one logit": lambda: TwoLogits(nn.Linear(6, 1)),
    "maps": lambda: MapHead(nn.Sequential(nn.Conv2d(6, 4, 1), nn.ReLU(), nn.Conv2d(4, 3, 1)), (6, 1, 1)),
}


@pytest.mark.parametrize("make", ABSORBING.values(), ids=ABSORBING)
def test_absorbing_is_exact_where_a_linear_layer_comes_first(make, fresh, cloud):
    features, _ = cloud(None, 8, 6)
    stack = fresh(make().double())
    before = {name: value.clone() for name, value in stack.parameters.items()}
    scale = torch.tensor(3.7, dtype=torch.float64, requires_grad=True)
    absorbed = stack.absorbing_scale(scale)
    scale = scale.detach()
    assert not any(value.requires_grad for value in absorbed.parameters.values())
    torch.testing.assert_close(absorbed(features), stack(features / scale), rtol=1e-13, atol=1e-13)
    assert all(torch.equal(stack.parameters[name], value) for name, value in before.items())


class Doubling(nn.Sequential):
    """Its first layer is linear, and it is not the first to meet the features."""

    def forward(self, features):
        return super().forward(features.square())


class Cosine(nn.Linear):
    """Reads the direction of features only."""

    def forward(self, features):
        return super().forward(nn.functional.normalize(features, dim=-1))


def tied():
    head = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    head[2].weight = head[0].weight
    return head


NOT_ABSORBING = {
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)),
    "tanh": lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, 3)),
    "own sequential": lambda: Doubling(nn.Linear(6, 3)),
    "own linear": lambda: Cosine(6, 3),
    "tied": tied,
}


@pytest.mark.parametrize("make", NOT_ABSORBING.values(), ids=NOT_ABSORBING)
def test_absorbing_is_refused_where_it_is_not_exact(make, fresh):
    assert fresh(make().double()).absorbing_scale(torch.tensor(3.7, dtype=torch.float64)) is None
