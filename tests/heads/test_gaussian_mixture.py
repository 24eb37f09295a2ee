"""The mixture's densities against torch.distributions, linear heads, and what theory says."""

import math
import warnings
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

from clearance.heads import GaussianMixture, HeadStack, linear_from_mixture, mixture_from_linear
from clearance.heads.gaussian_mixture import half_distances, own_half_distance
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    COVARIANCES,
    SHARED,
    covariance_of,
    mixture,
    samples,
)

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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrong = head(features).argmax(1) != exact
        head(features)
    assert len(told) <= 1
    assert told or not wrong.any()
    assert all("rounding may decide the class of" in str(one.message) for one in told)
    if covariance in SHARED and size in (1.0, 1e8):
        assert bool(told) == bool(wrong.any()) == (size > 1)


def test_where_values_cannot_be_looked_at_nothing_is_told():
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
