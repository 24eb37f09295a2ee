"""L-Softmax against angles taken one by one, softmax, and pytorch-metric-learning."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import LargeMarginSoftmaxLoss as OtherLoss
from torch import nn

from clearance import Outputs
from clearance.heads import MLP
from clearance.losses import CrossEntropyLoss, InverseDecay, LargeMarginSoftmaxLoss
from clearance.losses.large_margin_softmax import angular_margin

MULTIPLIERS = (1, 2, 3, 4)


def world(bias=False, count=9, width=5, classes=4):
    draws = torch.Generator().manual_seed(0)
    head = nn.Linear(width, classes, bias=bias).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    features = torch.randn(count, width, generator=draws, dtype=torch.float64)
    features[0] = 2 * head.weight[0].detach()  # theta = 0
    features[1] = -head.weight[1].detach()  # theta = pi
    return head, features, torch.arange(count) % classes


def loss_of(head, features, labels, *settings):
    return LargeMarginSoftmaxLoss(*settings)(Outputs(features, head(features), head), labels).total


def psi(theta, m):
    k = min(math.floor(m * theta / math.pi), m - 1)
    return (-1) ** k * math.cos(m * theta) - 2 * k


@pytest.mark.parametrize("m", MULTIPLIERS)
def test_p18_psi_is_the_papers_continuous_and_decreasing(m):
    angles = torch.linspace(0, math.pi, 4001, dtype=torch.float64)
    found = angular_margin(angles.cos(), m)
    expected = torch.tensor([psi(float(a), m) for a in angles], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-9)
    steps = found.diff()
    assert (steps < 0).all()
    assert float(steps.abs().max()) <= m * math.pi / 4000 + 1e-9
    assert found[[0, -1]].tolist() == pytest.approx([1, (-1) ** (m - 1) * (-1) ** m - 2 * (m - 1)])


@pytest.mark.parametrize("m", MULTIPLIERS)
@pytest.mark.parametrize("weight", [0.0, 3.0])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_is_that_of_angles_taken_one_by_one(m, weight, bias):
    head, features, labels = world(bias)
    total = 0.0
    with torch.no_grad():
        for x, y in zip(features, labels.tolist(), strict=True):
            logits = head(x)
            size = float(x.norm() * head.weight[y].norm())
            theta = math.acos(max(-1.0, min(1.0, float(x @ head.weight[y]) / size)))
            lowered = size * (psi(theta, m) + weight * math.cos(theta)) / (1 + weight)
            logits[y] = lowered + (float(head.bias[y]) if bias else 0)
            total -= logits.log_softmax(0)[y].item()
    assert loss_of(head, features, labels, m, weight).item() == pytest.approx(total / len(labels), rel=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_p18_a_multiplier_of_one_is_softmax(bias):
    head, features, labels = world(bias)
    plain = F.cross_entropy(head(features), labels)
    torch.testing.assert_close(loss_of(head, features, labels, 1, 0.0), plain, rtol=1e-12, atol=0.0)


def test_p18_much_softmax_is_softmax():
    head, features, labels = world()
    plain = F.cross_entropy(head(features), labels)
    distances = [abs((loss_of(head, features, labels, 4, w) - plain).item()) for w in (0.0, 1e3, 1e9)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


@pytest.mark.parametrize("m", MULTIPLIERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_p18_gradients_are_finite_at_both_ends_and_at_zero(m, dtype):
    head, features, labels = world()
    features[2] = 0.0
    head, leaf = head.to(dtype), features.to(dtype).requires_grad_()
    loss_of(head, leaf, labels, m, 0.0).backward()
    assert leaf.grad.isfinite().all()
    assert head.weight.grad.isfinite().all()
    assert float(leaf.grad.abs().max()) < 1e3


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # of that library
@pytest.mark.parametrize("m", MULTIPLIERS)
def test_pytorch_metric_learning_agrees(m):
    head, features, labels = world()
    other = OtherLoss(num_classes=4, embedding_size=5, margin=m).double()
    with torch.no_grad():
        other.W.copy_(head.weight.T)
    leaves = [features.clone().requires_grad_() for _ in range(2)]
    found, expected = loss_of(head, leaves[0], labels, m, 0.0), other(leaves[1], labels)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)
    (found + expected).backward()
    inner = slice(2, None)  # at theta = 0 and pi derivatives of an angle are whatever one says
    torch.testing.assert_close(leaves[0].grad[inner], leaves[1].grad[inner], rtol=1e-7, atol=1e-10)


def test_softmax_fades_by_the_step_and_the_step_is_in_the_state():
    loss = LargeMarginSoftmaxLoss(2, InverseDecay(10.0, 0.5, 2.0, 1.5))
    head, features, labels = world()
    outputs, seen = Outputs(features, head(features), head), []
    for _ in range(5):
        seen.append(loss.current_softmax_weight)
        loss.after_step(outputs, labels)
    assert seen == pytest.approx([10.0, 10 / 1.5**2, 10 / 4, 10 / 2.5**2, 1.5])
    again = LargeMarginSoftmaxLoss(2, InverseDecay(10.0, 0.5, 2.0, 1.5))
    again.load_state_dict(loss.state_dict())
    assert int(again.steps) == 5
    assert torch.equal(again(outputs, labels).total, loss(outputs, labels).total)


def test_a_sequence_of_one_linear_layer_will_do_and_no_other_head():
    head, features, labels = world(bias=True)
    outer = nn.Sequential(nn.Identity(), head)
    assert torch.equal(loss_of(outer, features, labels, 2, 0.0), loss_of(head, features, labels, 2, 0.0))
    with pytest.raises(TypeError, match=r"a head that is one linear layer.*got MLP"):
        loss_of(MLP((5, 3, 4)).double(), features, labels)


@pytest.mark.parametrize("m", [0, 5, 1.5, 2.0, True, "2"])
def test_multipliers_out_of_range_are_refused(m):
    with pytest.raises(ValueError, match="`multiplier` must be a whole number, 1, 2, 3 or 4; got"):
        LargeMarginSoftmaxLoss(m)


def test_a_softmax_weight_below_zero_is_refused():
    with pytest.raises(ValueError, match="`softmax_weight` must be a finite number of at least 0; got -1"):
        LargeMarginSoftmaxLoss(2, -1.0)


def test_it_is_harder_than_softmax():
    head, features, labels = world()
    outputs = Outputs(features, head(features), head)
    plain = CrossEntropyLoss()(outputs, labels).total.item()
    values = [LargeMarginSoftmaxLoss(m, 0.0)(outputs, labels).total.item() for m in MULTIPLIERS]
    assert values == sorted(values)
    assert values[1] > plain
