"""A diagonal covariance for every class: one pass and one back say what single operations say."""

import copy
import io
import math
import warnings
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, jvp, vmap

from clearance.heads import GaussianMixture, _class_blocks, half_distances
from clearance.heads._class_diagonal import class_diagonal, own_class_diagonal
from clearance.objectives import GaussianMixtureLoss
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    mixture,
    outputs_of,
    samples,
)

FLOOR = 0.05


@pytest.fixture(params=[1, 3 * 7 * 8, 2**21], ids=["one row a block", "three rows", "one block"])
def blocks(request, monkeypatch):
    """Blocks so small that several of them make a table, and one that holds all."""
    monkeypatch.setattr(_class_blocks, "CPU_BLOCK", request.param)


def tables(width=7, classes=4, count=11):
    """Samples, means and raw variances in float64, and labels."""
    draws = torch.Generator().manual_seed(3)
    x, means, raw = (
        torch.randn(rows, width, generator=draws, dtype=torch.float64).requires_grad_()
        for rows in (count, classes, classes)
    )
    return [x, means, raw], torch.randint(classes, (count,), generator=draws)


def by_hand(inputs, labels):
    """Everything from its definition."""
    x, means, raw = inputs
    v = (FLOOR + raw.exp()).log()
    d = 0.5 * ((x[:, None] - means).square() / v.exp()).sum(dim=2)
    volumes = 0.5 * v.sum(dim=1)
    excess = 0.5 * (v + v.neg().exp() - 1).sum(dim=1)
    return d, volumes, excess, d.gather(1, labels[:, None])[:, 0], volumes[labels]


def in_one_pass(inputs, labels):
    x, means, raw = inputs
    made = class_diagonal(x, means, raw, FLOOR)
    found = (made.half_distances, made.half_log_determinants, made.excess_log_variances)
    return *found, *own_class_diagonal(made, x, labels, FLOOR)


def weighted(found, draws_seed=5):
    """A number of which all that was found is a part."""
    draws = torch.Generator().manual_seed(draws_seed)
    return sum((one * torch.randn(one.shape, generator=draws, dtype=one.dtype)).sum() for one in found)


@pytest.mark.usefixtures("blocks")
def test_values_and_gradients_are_those_of_the_definition():
    inputs, labels = tables()
    expected, found = by_hand(inputs, labels), in_one_pass(inputs, labels)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(weighted(found), inputs)
    theirs = torch.autograd.grad(weighted(expected), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("parts", [(0,), (1,), (2,), (3,), (4,), (1, 3), (2, 4), (0, 3)])
def test_gradients_of_a_part_of_what_was_found(parts):
    inputs, labels = tables()
    expected, found = by_hand(inputs, labels), in_one_pass(inputs, labels)
    ours = torch.autograd.grad(weighted([found[k] for k in parts]), inputs, materialize_grads=True)
    theirs = torch.autograd.grad(weighted([expected[k] for k in parts]), inputs, materialize_grads=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_gradients_of_what_is_wanted_alone(wanted):
    inputs, labels = tables()
    for k, tensor in enumerate(inputs):
        tensor.requires_grad_(k in wanted)
    chosen = [inputs[k] for k in wanted]
    ours = torch.autograd.grad(weighted(in_one_pass(inputs, labels)), chosen)
    theirs = torch.autograd.grad(weighted(by_hand(inputs, labels)), chosen)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("blocks")
def test_first_and_second_derivatives_agree_with_differences():
    inputs, labels = tables(width=3, classes=2, count=3)
    assert gradcheck(lambda *given: in_one_pass(given, labels), inputs)
    assert gradgradcheck(lambda *given: in_one_pass(given, labels), inputs)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own first jvp
def test_torch_func_and_forward_differentiation_see_the_same_head():
    head, (features, labels) = mixture(), samples()
    parameters = dict(head.named_parameters())

    def loss(given, x, y):
        return functional_call(head, given, (x[None],)).gather(1, y[None, None]).sum()

    each = vmap(grad(loss), (None, 0, 0))(parameters, features, labels)
    head(features).gather(1, labels[:, None]).sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(each[name].sum(dim=0), parameter.grad)
    direction = torch.ones_like(features)
    pushed: Tensor = jvp(head, (features,), (direction,))[1]
    with forward_ad.dual_level():
        dual = head(forward_ad.make_dual(features, direction))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, pushed)
    step = 1e-6
    with torch.no_grad():
        slope = (head(features + step * direction) - head(features - step * direction)) / (2 * step)
    torch.testing.assert_close(pushed.detach(), slope, rtol=1e-6, atol=1e-6)


def test_distances_that_rounding_makes_negative_are_0_and_pull_at_nothing():
    draws = torch.Generator().manual_seed(0)
    means = 1e3 * torch.randn(6, 40, generator=draws)
    x = (means + 0.01 * torch.randn(6, 40, generator=draws)).requires_grad_()
    distances = class_diagonal(x, means, torch.zeros(6, 40), FLOOR).half_distances
    own = distances.diagonal()
    assert bool((distances >= 0).all())
    assert 0 < int((own == 0).sum()) < 6  # rounding went to both sides
    own.sum().backward()
    assert x.grad is not None
    assert torch.equal((x.grad == 0).all(dim=1), own == 0)


@pytest.mark.parametrize("floor", [1e-4, 1e-8])
def test_own_distances_that_join_the_pass_are_exact_in_float32(floor):
    """P12's bound, where rounding has most to take: far means, small variances."""
    head = GaussianMixture(64, 5, "class_diagonal", floor=floor)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head.means.copy_(10 * torch.randn(5, 64, generator=draws))
        cast("Tensor", head.raw_log_variance).copy_(3 * torch.randn(5, 64, generator=draws) - 4)
    labels = torch.arange(200) % 5
    features = head.means.detach()[labels] + 0.1 * torch.randn(200, 64, generator=draws)
    exact = copy.deepcopy(head).double()
    truth = exact.own_terms(features.double(), labels)
    for found in (head.own_terms(features, labels, head(features)), head.own_terms(features, labels)):
        for one, other in zip(found, truth, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-6)


def test_batched_gradients_and_tracing_take_the_long_way():
    head, (features, _) = mixture(), samples(count=3)
    features.requires_grad_()
    batched = torch.autograd.functional.jacobian(head, features, vectorize=True)
    torch.testing.assert_close(batched, torch.autograd.functional.jacobian(head, features))
    logits = head(features)
    every = torch.eye(logits.numel(), dtype=torch.float64).view(-1, *logits.shape)
    (slopes,) = torch.autograd.grad(logits, features, every, is_grads_batched=True)
    assert not slopes.requires_grad
    x, labels = features[:2], torch.tensor([0, 1])

    def own(x):
        return torch.stack(head.own_terms(x, labels, head(x)))

    batched = torch.autograd.functional.jacobian(own, x, vectorize=True)
    torch.testing.assert_close(batched, torch.autograd.functional.jacobian(own, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of tracing and of its end
        traced = torch.jit.trace(head, features.detach())
        torch.jit.save(traced, io.BytesIO())
    torch.testing.assert_close(traced(features), head(features))


@pytest.mark.parametrize("raw", [-200.0, -20.0, 60.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_variances_at_their_floor_and_far_from_one_stay_finite(raw, dtype):
    head = GaussianMixture(3, 2, "class_diagonal").to(dtype)
    with torch.no_grad():
        cast("Tensor", head.raw_log_variance).fill_(raw)
    features = torch.randn(5, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    logits = head(features)
    log_variance = math.log(head.floor + math.exp(raw)) if raw > -50 else math.log(head.floor)
    expected = half_distances(features, head.means, torch.full((2, 3), log_variance, dtype=dtype))
    torch.testing.assert_close(logits, -1.5 * log_variance - expected - math.log(2), check_dtype=False)
    logits.square().sum().backward()
    for tensor in (features, *head.parameters()):
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())


def test_backward_under_autocast_keeps_float32():
    """Also where it can be differentiated again, through single operations."""
    head, (features, labels) = mixture(dtype=torch.float32), samples(dtype=torch.float32)
    found = []
    for enabled in (False, True):
        head.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            GaussianMixtureLoss()(outputs_of(head, features), labels).total.backward()
            x = features.clone().requires_grad_()
            (slope,) = torch.autograd.grad(head(x).square().sum(), x, create_graph=True)
        found.append([*(parameter.grad for parameter in head.parameters()), slope])
    for one, other in zip(*found, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_compiled_whole_it_says_the_same():
    head, (features, _) = mixture(), samples()
    compiled = torch.compile(head, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), head(features))


def test_no_sample_at_all():
    head = mixture()
    features = torch.zeros(0, 7, dtype=torch.float64, requires_grad=True)
    logits = head(features)
    assert logits.shape == (0, 4)
    logits.sum().backward()
    assert features.grad is not None
    assert features.grad.shape == (0, 7)
    assert bool((head.means.grad == 0).all())


def test_variances_near_one_have_an_excess_to_all_digits():
    """A sum of large parts, log variances, precisions and the width, would lose what is left of them."""
    raw = 1e-2 * torch.randn(4, 16384, generator=torch.Generator().manual_seed(0))
    x, means = torch.zeros(2, 16384), torch.zeros(4, 16384)
    found = class_diagonal(x, means, raw, 1e-4).excess_log_variances
    exact = class_diagonal(x.double(), means.double(), raw.double(), 1e-4).excess_log_variances
    assert found is not None
    assert exact is not None
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("above", [-12.0, -3.0, 0.5, 4.0])
def test_gradients_of_variances_are_exact_in_float32_on_both_sides_of_the_floor(above):
    """Their slope is all but 0 below it and all but 1 above: neither may come of a difference that rounding takes."""
    (x, means, raw), labels = tables(width=40)
    with torch.no_grad():
        raw.mul_(0.1).add_(math.log(FLOOR) + above)
    narrow = [one.detach().float().requires_grad_() for one in (x, means, raw)]
    found = torch.autograd.grad(in_one_pass(narrow, labels)[1].sum(), narrow[2])[0]
    exact = [one.detach().double().requires_grad_() for one in narrow]
    expected = torch.autograd.grad(by_hand(exact, labels)[1].sum(), exact[2])[0]
    torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=0)
