"""Values and derivatives of a mixture, by whatever way torch takes them, against their definition."""

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

from clearance.heads import GaussianMixture
from clearance.heads.gaussian_mixture import half_distances
from clearance.losses import GaussianMixtureLoss
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    COVARIANCES,
    covariance_of,
    mixture,
    outputs_of,
    samples,
    terms,
)


@pytest.fixture(params=COVARIANCES)
def head(request):
    return mixture(request.param)


def moved(head):
    """The parameters that training moves."""
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


def by_hand(head, features, labels):
    """Logits, own distances, own and all half log-determinants, and excess, each from its definition."""
    matrices = torch.stack([covariance_of(head, k) for k in range(head.classes)])
    offsets = features[:, None] - head.means
    d = 0.5 * torch.einsum("bki,kij,bkj->bk", offsets, matrices.inverse(), offsets)
    volumes = 0.5 * matrices.logdet()
    excess = volumes + 0.5 * (torch.einsum("kii->k", matrices.inverse()) - head.in_features)
    logits = head.log_priors.log_softmax(0) - volumes - d
    return logits, d.gather(1, labels[:, None])[:, 0], volumes[labels], volumes, excess


def by_the_head(head, features, labels):
    excess = head.excess_log_variance().double().expand(head.classes)
    return head(features), *head.own_terms(features, labels), head.half_log_determinant(), excess


def weighted(found):
    """A number of which all that was found is a part."""
    draws = torch.Generator().manual_seed(5)
    return sum((one * torch.randn(one.shape, generator=draws, dtype=one.dtype)).sum() for one in found)


def test_values_and_gradients_are_those_of_the_definition(head):
    features, labels = samples()
    x = features.requires_grad_()
    expected, found = by_hand(head, x, labels), by_the_head(head, x, labels)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    for parts in (range(5), (0,), (1,), (0, 1, 4)):
        ours, theirs = (
            torch.autograd.grad(
                weighted([way[k] for k in parts]),
                [x, *moved(head)],
                retain_graph=True,
                materialize_grads=True,
            )
            for way in (found, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_first_and_second_derivatives_agree_with_differences(head):
    head = mixture(head.covariance, width=3, classes=2)
    features, labels = samples(3, 3, 2)
    named = {name: value for name, value in head.named_parameters() if value.requires_grad}

    def found(x, *values):
        given = dict(zip(named, values, strict=True))
        return functional_call(
            _All(head), {f"head.{name}": value for name, value in given.items()}, (x, labels)
        )

    inputs = (features.requires_grad_(), *named.values())
    assert gradcheck(found, inputs)
    assert gradgradcheck(found, inputs)


class _All(torch.nn.Module):
    """All that a head gives, for functional calls."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, features, labels):
        return by_the_head(self.head, features, labels)


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


def test_batched_gradients_and_traces_are_those_of_the_head():
    head, (features, _) = mixture(), samples(count=3)
    features.requires_grad_()
    batched = torch.autograd.functional.jacobian(head, features, vectorize=True)
    torch.testing.assert_close(batched, torch.autograd.functional.jacobian(head, features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of tracing and of its end
        traced = torch.jit.trace(head, features.detach())
        torch.jit.save(traced, io.BytesIO())
    torch.testing.assert_close(traced(features), head(features))


def test_compiled_whole_it_says_the_same():
    head, (features, _) = mixture(), samples()
    compiled = torch.compile(head, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), head(features))


def test_distances_that_rounding_makes_negative_are_0_and_pull_at_nothing():
    draws = torch.Generator().manual_seed(0)
    means = 1e3 * torch.randn(60, 41, generator=draws)
    x = (means + 0.01 * torch.randn(60, 41, generator=draws)).requires_grad_()
    for log_variance in (None, torch.zeros(1, 41), torch.zeros(60, 41)):
        x.grad = None
        distances = half_distances(x, means, log_variance)
        own = distances.diagonal()
        assert bool((distances >= 0).all())
        assert 0 < int((own == 0).sum()) < 60  # rounding went to both sides
        own.sum().backward()
        assert x.grad is not None
        assert torch.equal((x.grad == 0).all(dim=1), own == 0)


@pytest.mark.parametrize("floor", [1e-4, 1e-8])
def test_own_distances_are_exact_in_float32(floor):
    """P12's bound, where rounding has most to take: far means, small variances."""
    head = GaussianMixture(64, 5, "class_diagonal", floor=floor)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head.means.copy_(10 * torch.randn(5, 64, generator=draws))
        cast("Tensor", head.raw_log_variance).copy_(3 * torch.randn(5, 64, generator=draws) - 4)
    labels = torch.arange(200) % 5
    features = head.means.detach()[labels] + 0.1 * torch.randn(200, 64, generator=draws)
    truth = copy.deepcopy(head).double().own_terms(features.double(), labels)
    for one, other in zip(head.own_terms(features, labels), truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-6)


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


def test_gradients_of_a_loss_under_autocast_are_those_of_float32(head):
    head, (features, labels) = head.float(), samples(dtype=torch.float32)
    found = []
    for enabled in (False, True):
        head.zero_grad()
        x = features.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = GaussianMixtureLoss()(outputs_of(head, x), labels).total
        loss.backward()
        found.append([x.grad, *(parameter.grad for parameter in moved(head))])
    for one, other in zip(*found, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


def test_gradients_are_dense_whatever_part_of_the_loss_is_asked_for(head):
    """Optimizers with momentum take no sparse ones."""
    features, labels = samples()
    terms(head, features, labels)["likelihood"].backward()
    found = [one.grad for one in head.parameters() if one.grad is not None]
    assert len(found) == (1 if head.covariance == "identity" else 2)
    assert not any(one.is_sparse for one in found)


def test_features_that_were_made_in_inference_mode(head):
    features, labels = samples()
    with torch.inference_mode():
        made = features + 0
    GaussianMixtureLoss(0.3)(outputs_of(head, made), labels).total.backward()
    found = head.means.grad.clone()
    head.zero_grad()
    GaussianMixtureLoss(0.3)(outputs_of(head, features), labels).total.backward()
    torch.testing.assert_close(found, head.means.grad)


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
    head = GaussianMixture(16384, 4, "class_diagonal")
    with torch.no_grad():
        raw = cast("Tensor", head.raw_log_variance)
        raw.copy_(1e-2 * torch.randn(raw.shape, generator=torch.Generator().manual_seed(0)))
    exact = copy.deepcopy(head).double().excess_log_variance()
    torch.testing.assert_close(head.excess_log_variance().double(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("above", [-12.0, -3.0, 0.5, 4.0])
def test_gradients_of_variances_are_exact_in_float32_on_both_sides_of_the_floor(above):
    """Their slope is all but 0 below it and all but 1 above: neither may come of a difference that rounding takes."""
    head = GaussianMixture(40, 4, "class_diagonal", floor=0.05)
    with torch.no_grad():
        raw = cast("Tensor", head.raw_log_variance)
        raw.normal_(0, 0.1, generator=torch.Generator().manual_seed(3)).add_(math.log(0.05) + above)
    exact = copy.deepcopy(head).double()
    for one in (head, exact):
        one.half_log_determinant().sum().backward()
    found, expected = (cast("Tensor", cast("Tensor", one.raw_log_variance).grad) for one in (head, exact))
    torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=0)
