"""The Gaussian mixture: densities, derivatives, fits, conversions, against torch.distributions and what theory says."""

import copy
import io
import math
import warnings
from copy import deepcopy
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.distributions import MultivariateNormal
from torch.func import functional_call, grad, jvp, vmap

from clearance.heads import (
    GaussianMixture,
    HeadStack,
    linear_from_mixture,
    mixture_from_linear,
    mixture_groups,
)
from clearance.heads.gaussian_mixture import half_distances, mixture_statistics, own_half_distance
from clearance.losses import GaussianMixtureLoss
from heads.mixtures import COVARIANCES, SHARED, covariance_of, mixture, outputs_of, samples, terms

close = torch.testing.assert_close


@pytest.fixture(params=COVARIANCES)
def head(request):
    return mixture(request.param)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_p01_posteriors_sum_to_one_however_far_a_sample_is(head, dtype, tolerance):
    features, _ = samples(dtype=dtype)
    for size in (0.0, 1.0, 1e2, 1e4, 1e6):
        posterior = head.to(dtype).posterior(size * features)
        assert posterior.isfinite().all()
        assert head.log_density(size * features).isfinite().all()
        close(posterior.sum(dim=1), torch.ones(len(features), dtype=dtype), rtol=0, atol=tolerance)


def test_p02_class_densities_are_those_of_torch(head):
    features, _ = samples()
    for k in range(head.classes):
        normal = MultivariateNormal(head.means[k], covariance_of(head, k))
        close(head.log_prob(features)[:, k], normal.log_prob(features), rtol=1e-10, atol=1e-10)


def test_the_mixtures_density_is_the_sum_over_classes(head):
    features, _ = samples()
    priors = head.log_priors.softmax(0)
    normals = [MultivariateNormal(head.means[k], covariance_of(head, k)) for k in range(head.classes)]
    joint = [priors[k] * normal.log_prob(features).exp() for k, normal in enumerate(normals)]
    close(head.log_density(features), torch.stack(joint).sum(dim=0).log(), rtol=1e-10, atol=1e-10)
    close(head.posterior(features), (torch.stack(joint) / sum(joint)).T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("covariance", SHARED)
def test_p03_a_shared_covariance_is_a_linear_head(covariance):
    head = mixture(covariance)
    features, _ = samples()
    inverse = covariance_of(head, 0).inverse()
    weight = head.means @ inverse
    bias = head.log_priors - 0.5 * (head.means @ inverse * head.means).sum(dim=1)
    expected = (features @ weight.T + bias).log_softmax(dim=1)
    close(head(features).log_softmax(dim=1), expected, rtol=1e-10, atol=1e-10)
    linear = linear_from_mixture(head)
    close(linear(features).log_softmax(dim=1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_head_becomes_a_mixture_with_its_posteriors(bias):
    linear = nn.Linear(7, 4, bias=bias).double()
    features, _ = samples()
    found = mixture_from_linear(linear)
    close(found.posterior(features), linear(features).softmax(dim=1), rtol=1e-10, atol=1e-12)
    back = linear_from_mixture(found)
    close(back.weight, linear.weight - linear.weight.mean(dim=0))
    assert back.weight.dtype == torch.float64


@pytest.mark.parametrize("covariance", ["class_scalar", "class_diagonal"])
def test_a_mixture_with_quadratic_boundaries_is_no_linear_head(covariance):
    with pytest.raises(ValueError, match="quadratic boundaries; got covariance 'class_"):
        linear_from_mixture(mixture(covariance))


def test_p09_shifts_change_nothing(head):
    features, _ = samples()
    before, shift = head.log_prob(features), 3 * torch.arange(7.0, dtype=torch.float64)
    with torch.no_grad():
        head.means.add_(shift)
    close(head.log_prob(features + shift), before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("covariance", ["identity", "scalar", "class_scalar"])
def test_p09_turns_change_nothing_where_spheres_stay_spheres(covariance):
    head = mixture(covariance)
    features, _ = samples()
    turn = torch.linalg.qr(samples(7, seed=5)[0]).Q
    before = head.log_prob(features)
    with torch.no_grad():
        head.means.copy_(head.means @ turn)
    close(head.log_prob(features @ turn), before, rtol=1e-12, atol=1e-12)


def test_p09_renaming_classes_renames_the_answers(head):
    features, _ = samples()
    before, order = head(features), torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        for parameter in head.parameters():
            if len(parameter) == head.classes:
                parameter.copy_(parameter[order].clone())
    close(head(features), before[:, order], rtol=1e-12, atol=1e-12)


def test_p11_a_constant_on_all_log_priors_changes_nothing(head):
    features, _ = samples()
    before = head(features)
    with torch.no_grad():
        head.log_priors.add_(5.0)
    close(head(features), before, rtol=1e-12, atol=1e-12)


def direct(features, means, log_variance):
    return 0.5 * ((features[:, None] - means).square() * (-log_variance).exp()).sum(dim=2)


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 7), (4, 7)])
def test_p12_products_give_the_direct_distances(shape):
    features, labels = samples()
    means, v = 2 * samples(4, seed=3)[0], samples(shape[0], shape[1], seed=4)[0]
    expected = direct(features, means, v)
    close(half_distances(features, means, v), expected, rtol=1e-12, atol=1e-12)
    own = own_half_distance(features, means, labels, v)
    close(own, expected[torch.arange(20), labels], rtol=1e-12, atol=1e-12)
    if shape == (1, 1):
        expected = direct(features, means, torch.zeros(1, 1))
        close(half_distances(features, means), expected, rtol=1e-12, atol=1e-12)
        own = own_half_distance(features, means, labels)
        close(own, expected[torch.arange(20), labels], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("offset", "spread", "sigma"), [(0.0, 3.0, 1.0), (10.0, 1.0, 0.1), (0.0, 1.0, 0.01)])
def test_p12_in_float32_products_are_within_their_bound_and_the_own_distance_is_exact(offset, spread, sigma):
    """The bound of the sheet's section 3.3, once a common offset is taken off."""
    draws = torch.Generator().manual_seed(0)
    means = (offset + spread * torch.randn(50, 384, generator=draws, dtype=torch.float64)).float()
    labels = torch.randint(50, (128,), generator=draws)
    features = means[labels] + sigma * torch.randn(128, 384, generator=draws)
    v = torch.full((1, 384), 2 * math.log(sigma))
    exact = direct(features.double(), means.double(), v.double())
    found = half_distances(features, means, v)
    centre = means.double().mean(dim=0)
    size = 0.5 / sigma**2 * ((features - centre).square().sum(1)[:, None] + (means - centre).square().sum(1))
    assert ((found - exact).abs() <= 20 * 6e-8 * size).all()
    assert (found >= 0).all()
    own, truth = own_half_distance(features, means, labels, v), exact.gather(1, labels[:, None])[:, 0]
    assert ((own - truth).abs() <= 1e-6 * truth).all()
    assert (found.argmin(dim=1) == labels).all()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_p12_nor_does_float32_round_what_all_features_have_in_common(covariance):
    mix = torch.eye(64) + torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) / 16
    features, labels = samples(2000, 64, dtype=torch.float32)
    features = (1e4 + features @ mix).float()
    head = GaussianMixture(64, 4, covariance)
    exact = deepcopy(head).double().fit_statistics(features.double(), labels)
    head.load_state_dict({name: value.float() for name, value in exact.state_dict().items()})
    exact.load_state_dict({name: value.double() for name, value in head.state_dict().items()})
    own, truth = head.own_half_distance(features, labels), exact.own_half_distance(features.double(), labels)
    close(own.double(), truth, rtol=3e-6 if covariance == "full" else 1e-6, atol=0)
    close(head(features).double(), exact(features.double()), rtol=1e-4, atol=1e-2)


def test_a_large_offset_that_float32_rounds_out_of_the_means_is_told():
    features, labels = samples(4000, 8, 2)
    for covariance in COVARIANCES:
        head = GaussianMixture(8, 2, covariance)
        with pytest.warns(UserWarning, match="rounds the means of features so far from 0"):
            head.fit_statistics((1e6 + 0.03 + features).float(), labels)
        head.fit_statistics(features.float(), labels)
        found = head.double().fit_statistics(1e6 + 0.03 + features, labels)
        if covariance != "identity":
            mean = 2 * found.own_half_distance(1e6 + 0.03 + features, labels).mean().item() / 8
            assert mean == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("labels", [[-1, 0], [0, 3], [0], [0.0, 1.0]])
def test_labels_that_are_no_classes_are_refused(labels):
    head, features = GaussianMixture(2, 3), torch.zeros(2, 2)
    with pytest.raises((TypeError, ValueError), match=r"`labels` must"):
        head.own_half_distance(features, torch.tensor(labels))
    with pytest.raises((TypeError, ValueError), match=r"`labels` must"):
        own_half_distance(features, head.means, torch.tensor(labels))


@pytest.mark.parametrize("priors", ["uniform", None, ["a", "b", "c"], [0.5, 0.5], [0.5, 0.6, -0.1], [[1.0]]])
def test_priors_that_are_no_probabilities_are_refused(priors):
    with pytest.raises(ValueError, match=r"`priors` must be 3 probabilities above 0 that sum to one; got"):
        GaussianMixture(2, 3).set_priors(priors)


def test_p14_samples_of_the_model_are_where_theory_puts_them():
    """2 d is chi-square with D degrees of freedom: d has mean D / 2 and deviation sqrt(D / 2)."""
    head = mixture("class_diagonal", width=100)
    _, labels = samples(20_000, 100)
    draws = torch.randn(20_000, 100, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with torch.no_grad():
        features = head.means[labels] + (0.5 * head.log_variance()).exp()[labels] * draws
        d = head.own_half_distance(features, labels)
    assert float(d.mean()) == pytest.approx(50, abs=5 * math.sqrt(50 / 20_000))
    assert float(d.std()) == pytest.approx(math.sqrt(50), rel=0.03)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_p16_autocast_changes_nothing_inside_the_head(head, dtype):
    head, (features, labels) = head.float(), samples(dtype=torch.float32)
    plain = (head(features), head.log_density(features), head.own_half_distance(features, labels))
    with torch.autocast("cpu", dtype=dtype):
        inside = (head(features), head.log_density(features), head.own_half_distance(features, labels))
    for before, after in zip(plain, inside, strict=True):
        assert torch.equal(before, after)
        assert after.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_p16_narrow_features_are_read_at_float32_and_parameters_keep_their_dtype(head, dtype):
    features, _ = samples(dtype=dtype)
    for parameters in (torch.float32, dtype):
        head = head.to(parameters)
        assert head(features).dtype == torch.float32
        close(head(features), head(features.float()), rtol=0, atol=0)
        assert {value.dtype for value in head.parameters()} == {parameters}


def test_a_stack_of_mixtures_is_a_loop_over_them(head):
    features, _ = samples()
    heads = [head, *(mixture(head.covariance, seed=s) for s in (1, 2))]
    names = dict(head.named_parameters())
    stack = HeadStack(head, {n: torch.stack([h.get_parameter(n) for h in heads]) for n in names})
    close(stack(features), torch.stack([h(features) for h in heads]), rtol=1e-12, atol=1e-12)
    assert torch.equal(stack[1](features), heads[1](features))


def test_one_class_and_one_feature_are_enough():
    head = GaussianMixture(1, 1, "class_diagonal")
    assert head.posterior(torch.tensor([[3.0], [1e6]])).tolist() == [[1.0], [1.0]]
    assert head.log_density(torch.zeros(2, 1)).isfinite().all()


def test_first_means_keep_their_distances_at_every_width():
    torch.manual_seed(0)
    for width in (4, 400):
        distances = torch.pdist(GaussianMixture(width, 60, initial_spread=3.0).means.detach()).square()
        assert float(distances.mean()) == pytest.approx(6.0, rel=0.25)


def test_fixed_covariances_and_priors_are_not_moved():
    moved = {name for name, value in GaussianMixture(3, 2).named_parameters() if value.requires_grad}
    assert moved == {"means"}
    assert GaussianMixture(3, 2, priors=[0.2, 0.8]).log_prior().exp().tolist() == pytest.approx([0.2, 0.8])


@pytest.mark.parametrize("start", [0.5, -40.0])
def test_no_variance_is_below_the_floor_and_its_gradient_does_not_end_there(start):
    head: Any = GaussianMixture(3, 2, "diagonal", floor=1e-3)
    nn.init.constant_(head.raw_log_variance, start)
    variance = head.log_variance().exp()
    close(variance, torch.full_like(variance, 1e-3 + math.exp(start)))
    variance.sum().backward()
    assert (head.raw_log_variance.grad > 0).all()


@pytest.mark.parametrize("size", [1.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_classes_that_rounding_picks_far_away_are_told_once(covariance, size):
    head = mixture(covariance, dtype=torch.float32).eval()
    features = size * samples(dtype=torch.float32)[0]
    exact = deepcopy(head).double()(features.double()).argmax(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong = head(features).argmax(1) != exact
        head(features)
    assert len(caught) <= 1
    assert caught or not wrong.any()
    assert all("rounding may decide the class of" in str(one.message) for one in caught)
    if covariance in SHARED and size in (1.0, 1e8):
        assert bool(caught) == bool(wrong.any()) == (size > 1)


def test_where_values_cannot_be_checked_nothing_is_refused():
    head = mixture("identity", dtype=torch.float32).eval()
    features = 1e8 * samples(dtype=torch.float32)[0]
    stack = HeadStack(head, {name: torch.stack([value, value]) for name, value in head.named_parameters()})
    assert stack(features).isfinite().all()
    compiled = torch.compile(head, backend="eager", fullgraph=True)
    close(compiled(features), stack(features)[0])
    assert head(features[:0]).shape == (0, head.classes)
    with pytest.warns(UserWarning, match="rounding may decide"):
        head(features)


def test_far_samples_of_sure_classes_are_no_reason_to_warn():
    head = GaussianMixture(1, 2).eval()
    with torch.no_grad():
        head.means.copy_(torch.tensor([[-1e3], [1e3]]))
    assert head(torch.tensor([[5e3], [-5e3]])).argmax(1).tolist() == [1, 0]


# Values and derivatives of a mixture, by whatever way torch takes them, against their definition.


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


# Mixtures fitted to labelled features; step sizes of their own; and what is refused.


LEARNED = COVARIANCES[1:]


def cloud(count=400, width=5, classes=3, dtype=torch.float64, offset=2.0):
    """Classes of different shapes, with correlated dimensions."""
    features, labels = samples(count, width, classes)
    turn = samples(width, width, seed=9)[0]
    return (((labels[:, None] + 1.0) * features) @ turn + 5 * labels[:, None] + offset).to(dtype), labels


@pytest.mark.parametrize("covariance", LEARNED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_mean_of_2d_over_the_fitted_features_is_their_width(covariance, dtype):
    features, labels = cloud(dtype=dtype)
    head = GaussianMixture(5, 3, covariance).to(dtype).fit_statistics(features, labels)
    assert 2 * head.own_half_distance(features, labels).mean().item() == pytest.approx(5, rel=1e-5)


def likelihood(head, features, labels):
    return head.log_prob(features).gather(1, labels[:, None]).sum()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_fit_is_where_the_likelihood_has_no_slope(covariance):
    features, labels = cloud()
    head = GaussianMixture(5, 3, covariance).double().fit_statistics(features, labels)
    likelihood(head, features, labels).backward()
    for name, value in head.named_parameters():
        if value.requires_grad:
            assert value.grad is not None
            assert float(value.grad.abs().max()) < 1e-8 * len(features), name


def test_statistics_of_a_class_are_those_of_its_samples():
    features, labels = cloud()
    means, variance, shares = mixture_statistics(features, labels, 3, "class_diagonal")
    for k in range(3):
        own = features[labels == k]
        torch.testing.assert_close(means[k], own.mean(dim=0))
        torch.testing.assert_close(variance[k], own.var(dim=0, correction=0))
        assert float(shares[k]) == pytest.approx(len(own) / len(features))


def test_a_large_common_offset_does_not_spoil_the_fit():
    near, far = (mixture_statistics(cloud(offset=o)[0], cloud()[1], 3, "diagonal") for o in (0.0, 1e6))
    torch.testing.assert_close(far.variance, near.variance, rtol=1e-7, atol=0.0)


def test_priors_follow_the_labels_only_where_asked():
    features, labels = cloud()
    head = GaussianMixture(5, 3, "diagonal", priors=[0.2, 0.3, 0.5])
    assert head.fit_statistics(features, labels).log_prior().exp().tolist() == pytest.approx([0.2, 0.3, 0.5])
    head.fit_statistics(features, labels, priors=True)
    shares = (labels.bincount() / len(labels)).tolist()
    assert head.log_prior().exp().tolist() == pytest.approx(shares)


def test_priors_move_the_posterior_as_bayes_says():
    head, (features, _) = mixture(priors=[0.25] * 4), samples()
    with torch.no_grad():
        head.log_priors.zero_()
    before, new = head.posterior(features), torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)
    expected = before * new
    torch.testing.assert_close(
        head.set_priors(new).posterior(features), expected / expected.sum(dim=1, keepdim=True)
    )


@pytest.mark.parametrize("covariance", LEARNED)
def test_a_collapsed_variance_is_kept_at_the_floor_and_told(covariance):
    labels = torch.arange(3).repeat(4)
    features = torch.eye(3, 5)[labels]
    head = GaussianMixture(5, 3, covariance, floor=1e-3)
    with pytest.warns(UserWarning, match="100 % of the mixture's variances lie on their floor of 0.001"):
        head.fit_statistics(features, labels)
    assert head.share_at_floor() == 1.0
    assert head.log_density(features).isfinite().all()
    assert head.log_variance().exp().min().item() == pytest.approx(1e-3, rel=2e-3)


def test_a_variance_above_the_floor_is_not_told():
    features, labels = cloud()
    assert GaussianMixture(5, 3, "class_diagonal").fit_statistics(features, labels).share_at_floor() == 0.0


def test_a_class_with_one_sample_needs_a_shared_variance():
    features, labels = cloud(classes=2)
    labels = torch.where(torch.arange(len(labels)) == 0, 2, labels)
    assert GaussianMixture(5, 3, "diagonal").fit_statistics(features, labels).share_at_floor() == 0.0
    with pytest.warns(UserWarning, match="34 % of the mixture's variances"):
        GaussianMixture(5, 3, "class_scalar").fit_statistics(features, labels)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_features_that_are_not_finite_are_refused(bad):
    features, labels = cloud()
    features[3, 1] = bad
    with pytest.raises(ValueError, match="must be finite; got 1 of 400 samples with NaN or infinity"):
        GaussianMixture(5, 3).fit_statistics(features, labels)


def test_nan_features_spoil_their_own_row_alone():
    head, (features, _) = mixture(), samples()
    before = head(features)
    features[3, 1] = math.nan
    after = head(features)
    assert after[3].isnan().all()
    kept = torch.arange(20) != 3
    assert torch.equal(after[kept], before[kept])


def test_features_at_a_million_are_finite_in_float32():
    head, (features, labels) = mixture(dtype=torch.float32), samples(dtype=torch.float32)
    assert head(1e6 * features).isfinite().all()
    head.fit_statistics(1e6 * features, labels)
    assert 2 * head.own_half_distance(1e6 * features, labels).mean().item() == pytest.approx(7, rel=1e-5)


def test_a_class_without_samples_is_refused():
    features, labels = cloud(classes=2)
    with pytest.raises(ValueError, match=r"must hold every class.*got none of \[2, 3\]"):
        GaussianMixture(5, 4).fit_statistics(features, labels)


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (torch.zeros(4, 6), torch.zeros(4, dtype=torch.long), r"must be \(N, 5\); got \(4, 6\)"),
        (
            torch.zeros(4, 5),
            torch.zeros(3, dtype=torch.long),
            r"`labels` must have shape \(4,\), one for each sample",
        ),
        (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), "N at least 1"),
        (
            torch.zeros(2, 5),
            torch.tensor([0, 3]),
            r"must lie in 0 .. 2, because there are 3 classes; got 0 .. 3",
        ),
        (
            torch.zeros(2, 5),
            torch.tensor([-1, 1]),
            r"must lie in 0 .. 2, because there are 3 classes; got -1 .. 1",
        ),
    ],
)
def test_shapes_and_labels_that_do_not_fit_are_refused(features, labels, words):
    with pytest.raises(ValueError, match=words):
        GaussianMixture(5, 3).fit_statistics(features, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.int32])
def test_labels_that_are_not_int64_are_refused(dtype):
    features, labels = cloud(classes=2)
    with pytest.raises(
        TypeError, match=rf"`labels` must be int64 class numbers; got {dtype}. Write labels.long\(\)"
    ):
        mixture_statistics(features, labels.to(dtype), 2, "diagonal")


def test_empirical_priors_are_explained():
    with pytest.raises(ValueError, match=r"got 'empirical'.*labels.bincount\(\) / len\(labels\)"):
        GaussianMixture(3, 2, priors="empirical")  # type: ignore[arg-type]


@pytest.mark.parametrize("priors", [[0.5, 0.4], [0.5, 0.5, 0.0], [1.2, -0.2], [0.5, 0.0], [math.nan, 1.0]])
def test_priors_that_are_none_are_refused(priors):
    with pytest.raises(ValueError, match="must be 2 probabilities above 0 that sum to one; got"):
        GaussianMixture(3, 2, priors=priors)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"in_features": 0}, "`in_features` must be a whole number of at least 1; got 0"),
        ({"classes": 0}, "`classes` must be"),
        ({"covariance": "diagnal"}, "Did you mean 'diagonal'"),
        ({"priors": "empirical"}, "`priors` must be 'uniform', 'learned' or probabilities"),
        ({"priors": "lerned"}, "Did you mean 'learned'"),
        ({"initial_spread": 0.0}, "`initial_spread` must be a finite number above 0"),
        ({"floor": 0.0}, "`floor` must be a finite number above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        GaussianMixture(**{"in_features": 3, "classes": 2, **settings})


def test_features_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"`features` must be \(B, 7\); got \(20, 5\)"):
        mixture()(samples(width=5)[0])


def test_means_and_variances_get_step_sizes_of_their_own():
    head, layer = GaussianMixture(4, 3, "class_scalar", priors="learned"), torch.nn.Linear(6, 4)
    groups = mixture_groups(
        [*layer.parameters(), *head.parameters()],
        head, 0.1, means=3.0, variances=0.5, weight_decay=0.01, means_decay=2.0,
    )  # fmt: skip
    found = [({id(p) for p in g["params"]}, g["lr"], g["weight_decay"]) for g in groups]
    assert found == [
        ({id(p) for p in layer.parameters()}, 0.1, 0.01),
        ({id(head.means)}, pytest.approx(0.3), 0.02),
        ({id(head.raw_log_variance), id(head.log_priors)}, 0.05, 0.0),
    ]


def test_groups_hold_what_may_be_moved_and_no_other():
    head, layer = GaussianMixture(4, 3), torch.nn.Linear(6, 4)
    assert [
        len(g["params"]) for g in mixture_groups([*layer.parameters(), *head.parameters()], head, 0.1)
    ] == [2, 1]
    assert [len(g["params"]) for g in mixture_groups(layer.parameters(), head, 0.1)] == [2]
    with pytest.raises(ValueError, match="`variances` must be a finite number above 0"):
        mixture_groups(layer.parameters(), head, 0.1, variances=0.0)
    network: Any = nn.Sequential(layer, head)
    with pytest.raises(
        TypeError, match=r"`head` must be a GaussianMixture; got Sequential\. Give model\.head"
    ):
        mixture_groups(network.parameters(), network, 0.1)
    with pytest.raises(TypeError, match=r"Give model\.parameters"):
        mixture_groups(network.named_parameters(), head, 0.1)


# One covariance matrix for all classes where features do not fill their space, and where they hardly do.


def flat(scale, rank=8, width=32, count=400):
    """Features of a lower rank than their width, with labels."""
    features, labels = samples(count, rank, 3)
    turn = samples(rank, width, seed=9)[0]
    return scale * (features @ turn + labels[:, None]), labels


def twice(scale):
    """Every feature stored twice."""
    features, labels = samples(400, 16, 3)
    return scale * torch.cat([features, features], dim=1), labels


CASES = [(flat, scale) for scale in (1.0, 10.0, 30.0, 100.0, 1e3, 1e6)] + [(twice, 30.0), (twice, 100.0)]


@pytest.mark.parametrize(("build", "scale"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_of_a_lower_rank_are_fitted_told_and_trained_on(build, scale, dtype):
    features, labels = (given.to(dtype) if given.is_floating_point() else given for given in build(scale))
    head: Any = GaussianMixture(32, 3, "full").to(dtype)
    with pytest.warns(UserWarning, match="% of the mixture's variances lie on their floor"):
        head.fit_statistics(features, labels)
    assert {value.dtype for value in head.parameters()} == {dtype}
    for found in (head(features), head.log_density(features), head.own_half_distance(features, labels)):
        assert found.dtype == dtype
        assert found.isfinite().all()
    (head.log_prob(features).gather(1, labels[:, None]).mean() - head.excess_log_variance().sum()).backward()
    assert head.covariance_root.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_the_floor_is_kept_below_large_variances(scale):
    """log|Sigma| has a closed form: floor in 24 directions, floor + s^2 in those of the 8 singular values s."""
    root = scale * samples(32, 8, seed=2)[0]
    square = torch.cat([root, torch.zeros(32, 24, dtype=root.dtype)], dim=1)
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-6)):
        head: Any = GaussianMixture(32, 3, "full").to(dtype)
        with torch.no_grad():
            head.covariance_root.copy_(square)
        s = torch.linalg.svdvals(square.to(dtype).double()[:, :8])
        expected = 24 * math.log(1e-4) + (s.square() + 1e-4).log().sum()
        found = 2 * head.half_log_determinant()[0].detach()
        assert found.dtype == dtype
        assert float(found) == pytest.approx(float(expected), rel=tolerance)


def test_densities_and_their_slope_are_those_of_cholesky():
    head: Any = GaussianMixture(6, 3, "full", floor=0.1).double()
    with torch.no_grad():
        head.covariance_root.copy_(samples(6, 6, seed=4)[0])
    features, _ = samples(5, 6)
    covariance = head.covariance_root @ head.covariance_root.T + 0.1 * torch.eye(6, dtype=torch.float64)
    normals = torch.distributions.MultivariateNormal(head.means, covariance)
    expected, found = normals.log_prob(features[:, None]), head.log_prob(features)
    close(found, expected, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(one.square().sum(), head.covariance_root)[0] for one in (found, expected)]
    close(*slopes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("width", [8, 64])
def test_a_direction_without_variance_is_told_though_no_single_feature_lacks_it(width):
    features, labels = samples(400, width, 3)
    features = features - features.mean(dim=1, keepdim=True)
    head: Any = GaussianMixture(width, 3, "full")
    with pytest.warns(UserWarning, match=f"{math.ceil(100 / width)} % of the mixture's variances lie"):
        head.fit_statistics(features, labels)
    assert head.share_at_floor() == pytest.approx(1 / width)


def test_full_rank_features_are_not_told_however_they_correlate():
    features, labels = samples(400, 8, 3)
    turn = torch.eye(8, dtype=torch.float64) + 0.9
    head = GaussianMixture(8, 3, "full").fit_statistics(100 * features @ turn, labels)
    assert head.share_at_floor() == 0.0


def test_a_root_that_diverged_gives_nan_and_no_error():
    head: Any = GaussianMixture(4, 3, "full")
    torch.nn.init.constant_(head.covariance_root, math.nan)
    assert head(torch.zeros(2, 4)).isnan().all()
    assert head.share_at_floor() == 0.0


@pytest.mark.parametrize("floor", [0.4, 0.5, 0.7, 2.0, 3.3])
def test_a_head_that_has_just_been_made_is_not_at_its_floor(floor):
    """It begins at twice a floor above 1/2, which rounding of a root must not call the floor."""
    for width in (3, 16):
        assert GaussianMixture(width, 2, "full", floor=floor).share_at_floor() == 0


# Mixtures as linear heads and back, where rounding bites and where the argument is another.


@torch.no_grad()
@pytest.mark.parametrize("covariance", ["scalar", "diagonal", "full"])
@pytest.mark.parametrize(("offset", "bound"), [(0.0, 2e-5), (10.0, 1e-3), (100.0, 1e-2)])
def test_an_offset_that_all_features_share_hardly_moves_the_posteriors(covariance, offset, bound):
    """In float32, against the same mixture in float64; features have deviation 0.1 around their class."""
    noise, labels = samples(1000, 64, 5)
    features = (offset + 0.03 * samples(5, 64, 5, seed=3)[0][labels] + 0.1 * noise).float()
    head = GaussianMixture(64, 5, covariance).fit_statistics(features, labels)
    found = linear_from_mixture(head)(features).double().log_softmax(dim=1)
    expected = head.double()(features.double()).log_softmax(dim=1)
    assert float((found - expected).abs().max()) < bound
    assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


def test_a_linear_head_has_no_part_that_all_classes_share():
    """And a class that is as good as never does not push the others' biases out of float32."""
    head: Any = mixture("diagonal", priors=[0.5, 0.3, 0.2 - 1e-30, 1e-30])
    with torch.no_grad():
        head.log_priors.copy_(torch.tensor([0.0, 0.1, 0.2, -1e6]))
    features, _ = samples()
    linear = linear_from_mixture(head)
    close(linear.weight.sum(dim=0), torch.zeros(7, dtype=torch.float64), rtol=0, atol=1e-12)
    narrow = linear_from_mixture(head.float())
    close(
        narrow(features.float()).softmax(dim=1), linear(features).softmax(dim=1).float(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_priors_of_a_narrow_layer_are_wide(dtype):
    """A float32 copy of the layer is the truth: its weights and biases are the same numbers."""
    linear = nn.Linear(64, 5).to(dtype)
    with torch.no_grad():
        linear.weight.mul_(20)
    found: Any = mixture_from_linear(linear)
    assert {value.dtype for value in found.parameters()} == {torch.float32}
    features = 0.1 * samples(20, 64)[0].to(dtype).float()
    truth = linear.double()(features.double()).softmax(dim=1)
    close(found.posterior(features).double(), truth, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("convert", "given", "words"),
    [
        (
            mixture_from_linear,
            nn.Sequential(nn.Linear(2, 3)),
            r"`linear` must be a torch.nn.Linear; got Sequential\. With several",
        ),
        (mixture_from_linear, None, r"`linear` must be a torch.nn.Linear; got NoneType\."),
        (linear_from_mixture, nn.Linear(2, 3), r"`head` must be a GaussianMixture; got Linear\."),
    ],
)
def test_another_kind_of_head_is_refused(convert, given, words):
    with pytest.raises(TypeError, match=words):
        convert(given)


def test_fixed_priors_stay_fixed_when_all_is_unfrozen():
    head = GaussianMixture(3, 2, priors=[0.2, 0.8]).requires_grad_(True)
    head(torch.randn(4, 3))[:, 0].sum().backward()
    assert head.log_priors.grad is None
    assert head.means.grad is not None


def test_a_conversion_draws_no_random_numbers():
    linear = torch.nn.Linear(4, 3)
    before = torch.get_rng_state()
    linear_from_mixture(mixture_from_linear(linear))
    assert torch.equal(torch.get_rng_state(), before)
