"""Mixtures fitted to labelled features; step sizes of their own; and what is refused."""

import math

import pytest
import torch

from clearance.heads import GaussianMixture, mixture_groups
from clearance.heads.gaussian_mixture import mixture_statistics
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    COVARIANCES,
    mixture,
    samples,
)

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
