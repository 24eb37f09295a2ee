"""The L-GM loss against closed forms: margins, likelihoods, gradients, and what the literal formula does."""

import copy
import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import Outputs
from clearance.data import gaussian_images
from clearance.data.digits import read_digits
from clearance.heads import GaussianMixture
from clearance.losses import CenterLoss, CrossEntropyLoss, GaussianMixtureLoss, StepUp, TrainingWarning
from clearance.losses.gaussian_mixture import CHECK_EVERY, margin_scores
from clearance.models import Classifier
from clearance.training import EndToEnd, fit
from heads.mixtures import COVARIANCES, mixture, outputs_of, samples, terms
from largest_tensor import Largest

close = torch.testing.assert_close


@pytest.fixture(params=COVARIANCES)
def head(request):
    return mixture(request.param)


def scores(head, features):
    """Scores again, sample by sample and class by class, and distances."""
    normalised = head.log_priors.log_softmax(0)
    d = torch.stack(
        [head.own_half_distance(features, torch.full((len(features),), k)) for k in range(head.classes)], 1
    )
    return normalised - head.half_log_determinant() - d, d


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_classification_is_the_papers_ratio(head, alpha):
    """-log of pi_z |Sigma_z|^-1/2 exp(-d_z - m) over the sum, m = alpha d_z in the true class's summand too."""
    features, labels = samples()
    plain, d = scores(head, features)
    expected = []
    for i, z in enumerate(labels.tolist()):
        weights = [
            math.exp(float(plain[i, k].detach()) - (alpha * float(d[i, k].detach()) if k == z else 0))
            for k in range(4)
        ]
        expected.append(-math.log(weights[z] / sum(weights)))
    found = terms(head, features, labels, alpha)["classification"]
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-10)


@pytest.mark.parametrize("priors", [[0.25] * 4, [0.1, 0.2, 0.3, 0.4]])
def test_p04_the_likelihood_at_unit_covariance_is_the_center_loss(priors):
    """Lemma 1, as a mean: L_lkd = L_C / N + (D / 2) log 2 pi; as a sum, N times that; equal gradients."""
    head = mixture("identity", priors=priors)
    features, labels = samples()
    leaves = [features.clone().requires_grad_() for _ in range(2)]
    likelihood = terms(head, leaves[0], labels, 0.0, 1.0)["likelihood"]
    center = CenterLoss(7, 4, weight=1.0, update="gradient").double()
    with torch.no_grad():
        center.centres.copy_(head.means)
    distance = center(Outputs(leaves[1], torch.zeros(20, 4), head), labels).terms["center"]
    constant = 3.5 * math.log(2 * math.pi)
    close(likelihood, distance + constant, rtol=1e-12, atol=0)
    total = 0.5 * (features - head.means[labels]).square().sum()
    close(20 * likelihood, total + 20 * constant, rtol=1e-12, atol=0)
    (likelihood + distance).backward()
    close(leaves[0].grad, leaves[1].grad, rtol=1e-12, atol=1e-15)
    close(head.means.grad, center.centres.grad, rtol=1e-12, atol=1e-15)


def test_p05_without_margin_the_loss_is_cross_entropy_of_the_heads_own_logits(head):
    features, labels = samples()
    outputs = outputs_of(head, features)
    found = GaussianMixtureLoss(0.0, 0.0)(outputs, labels).total
    close(found, CrossEntropyLoss()(outputs, labels).total, rtol=1e-12, atol=0)
    assert abs(found.item() - GaussianMixtureLoss(0.1, 0.0)(outputs, labels).total.item()) > 1e-3


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4, 1e6])
def test_p05_that_is_so_in_float32_too_however_far_features_lie(size):
    torch.manual_seed(0)
    head = GaussianMixture(64, 10)
    features, labels = size * torch.randn(50, 64), torch.arange(50) % 10
    outputs = outputs_of(head, features)
    found = GaussianMixtureLoss(0.0, 0.0)(outputs, labels).total
    close(found, CrossEntropyLoss()(outputs, labels).total, rtol=1e-6, atol=0)


def test_p06_the_loss_grows_with_alpha_by_no_more_than_the_margin(head):
    features, labels = samples()
    with torch.no_grad():
        for i in range(20):
            x, y = features[i : i + 1], labels[i : i + 1]
            values = [terms(head, x, y, a, 0.0)["classification"].item() for a in (0.0, 0.1, 0.5, 1.0, 4.0)]
            d = head.own_half_distance(x, y).item()
            assert values == sorted(values)
            for alpha, value in zip((0.1, 0.5, 1.0, 4.0), values[1:], strict=True):
                assert 0 <= value - values[0] <= alpha * d * (1 + 1e-12)


def test_p06_its_slope_in_alpha_is_the_closed_form(head):
    features, labels = samples()
    with torch.no_grad():
        alpha, h = 0.3, 1e-5
        rise = [terms(head, features, labels, alpha + e, 0.0)["classification"].item() for e in (-h, h)]
        plain, d = scores(head, features)
        own = d.gather(1, labels[:, None])
        q = plain.scatter_add(1, labels[:, None], -alpha * own).softmax(1).gather(1, labels[:, None])
        expected = ((1 - q) * own).mean().item()
    assert (rise[1] - rise[0]) / (2 * h) == pytest.approx(expected, rel=1e-7)


def test_p07_the_margin_is_in_the_true_column_alone_and_the_head_never_has_one(head):
    features, labels = samples()
    plain, d = (value.detach() for value in scores(head, features))
    own = torch.arange(20), labels
    found = margin_scores(plain, d[own], labels, 0.7)
    others = torch.ones_like(plain, dtype=torch.bool)
    others[own] = False
    assert torch.equal(found[others], plain[others])
    assert torch.equal(found[own], plain[own] - 0.7 * d[own])
    before = head.train()(features)
    loss = GaussianMixtureLoss(0.7)
    loss(outputs_of(head, features), labels)
    loss(outputs_of(head, features), (labels + 1) % 4)
    assert torch.equal(head(features), before)
    assert torch.equal(head.eval()(features), before)


def test_p08_gradients_equal_finite_differences(head):
    features, labels = samples(6)
    leaf = features.requires_grad_()
    inputs = (leaf, *(value for value in head.parameters() if value.requires_grad))
    for part in ("classification", "likelihood", "variance_prior"):
        if part in terms(head, leaf, labels):
            assert torch.autograd.gradcheck(
                lambda *_, part=part: terms(head, leaf, labels, 0.3)[part], inputs
            )


def test_p08_gradients_are_the_closed_forms():
    head = mixture("class_diagonal")
    features, labels = samples()
    leaf, alpha = features.clone().requires_grad_(), 0.3
    v = head.log_variance().detach()
    slope_of_v = 1 - head.floor / v.exp()  # by the parameter, because v = log(floor + exp(parameter))
    found = terms(head, leaf, labels, alpha, 0.0)["classification"] * 20
    found.backward()
    with torch.no_grad():
        plain, d = scores(head, features)
        hot = F.one_hot(labels, 4).double()
        q = (plain - alpha * hot * d).softmax(dim=1)
        c = ((hot - q) * (1 + alpha * hot))[..., None]
        offset = features[:, None] - head.means
        precision = (-v).exp()
        close(leaf.grad, (c * precision * offset).sum(dim=1), rtol=1e-10, atol=1e-12)
        close(head.means.grad, -(c * precision * offset).sum(dim=0), rtol=1e-10, atol=1e-12)
        slope = -0.5 * c * precision * offset.square() + 0.5 * (hot - q)[..., None]
        close(head.raw_log_variance.grad / slope_of_v, slope.sum(dim=0), rtol=1e-10, atol=1e-12)
        close(head.log_priors.grad, (q - hot).sum(dim=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("s", [0.1, 50.0])
@pytest.mark.parametrize("covariance", COVARIANCES[1:])
def test_p10_the_scale_law_and_what_holds_against_it(covariance, s):
    """(s x, s mu, s^2 Sigma) leaves L_cls alone and adds D log s to the likelihood: without end as s falls to 0."""
    head, grown = mixture(covariance), mixture(covariance)
    for one in (head, grown):
        one.floor = 1e-30
    with torch.no_grad():
        grown.means.mul_(s)
        if covariance == "full":
            grown.covariance_root.mul_(s)
        else:
            grown.raw_log_variance.add_(2 * math.log(s))
    features, labels = samples()
    before, after = terms(head, features, labels, 0.3, 1.0), terms(grown, s * features, labels, 0.3, 1.0)
    close(after["classification"], before["classification"], rtol=1e-10, atol=1e-12)
    close(after["likelihood"], before["likelihood"] + 7 * math.log(s), rtol=1e-10, atol=1e-10)
    drop = [one["likelihood"].item() for one in (before, after)]
    assert (drop[1] < drop[0]) == (s < 1)


def test_p11_one_class_has_nothing_to_classify():
    head = mixture("class_diagonal", classes=1)
    features, _ = samples()
    found = terms(head, features, torch.zeros(20, dtype=torch.long), 0.5)
    assert found["classification"].item() == 0.0
    assert found["likelihood"].isfinite()


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 1.0])
def test_p13_the_margins_boundary_is_the_sphere_of_apollonius(alpha):
    """Centre mu_1 + (mu_1 - mu_2) / alpha, radius |mu_1 - mu_2| sqrt(1 + alpha) / alpha; the loss there is log 2."""
    head = mixture("identity", classes=2, priors="uniform")
    with torch.no_grad():
        head.log_priors.zero_()
        first, second = head.means
        delta = (first - second).norm()
        directions = F.normalize(samples(50, seed=8)[0], dim=1)
        sphere = first + (first - second) / alpha + directions * delta * math.sqrt(1 + alpha) / alpha
        found = [terms(head, x[None], torch.tensor([0]), alpha, 0.0)["classification"].item() for x in sphere]
        assert found == pytest.approx([math.log(2)] * 50, abs=max(1e-12, 1e-14 / alpha**2))
        near = first + (second - first) / (1 + math.sqrt(1 + alpha))
        assert terms(head, near[None], torch.tensor([0]), alpha, 0.0)[
            "classification"
        ].item() == pytest.approx(math.log(2), abs=1e-12)


@pytest.mark.parametrize(
    "covariance", ["identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full"]
)
def test_p21_no_tensor_has_as_many_elements_as_pairs_have_dimensions(covariance):
    head = GaussianMixture(256, 125, covariance, priors="learned")
    features = torch.randn(64, 256, requires_grad=True)
    labels = torch.arange(64)
    with Largest() as seen:
        GaussianMixtureLoss()(outputs_of(head, features), labels).total.backward()
        head.log_density(features)
    # means, or two of them side by side; one matrix of a full covariance
    # of a full covariance the root and the floor's, one over the other: whatever the batch and the classes
    assert 125 * 256 <= seen.elements <= 256 * max(2 * 125, 2 * 256 if covariance == "full" else 0)


def test_p21_the_hook_sees_a_broadcast():
    with Largest() as seen:
        (torch.zeros(64, 1, 8) - torch.zeros(50, 8)).square().sum(dim=2)
    assert seen.elements == 64 * 50 * 8


def test_p22_the_state_holds_schedule_and_priors():
    loss, head = GaussianMixtureLoss(StepUp(0.1, 2.0, 2, 0.3)), mixture(priors=[0.1, 0.2, 0.3, 0.4])
    features, labels = samples()
    alphas = []
    for _ in range(6):
        alphas.append(loss.current_alpha)
        loss.after_step(outputs_of(head, features), labels)
    assert alphas == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    again, fresh = (
        GaussianMixtureLoss(StepUp(0.1, 2.0, 2, 0.3)),
        GaussianMixture(7, 4, "class_diagonal").double(),
    )
    again.load_state_dict(loss.state_dict())
    fresh.load_state_dict(head.state_dict())
    assert again.current_alpha == 0.3
    assert torch.equal(fresh.log_prior(), head.log_prior())
    found, expected = (o(outputs_of(h, features), labels).total for o, h in ((again, fresh), (loss, head)))
    assert torch.equal(found, expected)


def test_p22_accumulated_gradients_are_those_of_the_whole_batch(head):
    features, labels = samples()

    def gradients(parts):
        head.zero_grad()
        for rows in parts:
            loss = GaussianMixtureLoss(0.3)
            (loss(outputs_of(head, features[rows]), labels[rows]).total / len(parts)).backward()
        return [value.grad.clone() for value in head.parameters() if value.requires_grad]

    whole, halves = gradients([slice(0, 20)]), gradients([slice(0, 10), slice(10, 20)])
    close(halves, whole, rtol=1e-12, atol=1e-14)


def test_the_half_distance_to_other_means_is_that_of_a_loop(head):
    labels = torch.tensor([3, 1, 1, 0, 2])
    with torch.no_grad():
        for found, k in zip(head.half_distance_to_other_means(labels), labels, strict=True):
            apart = head.own_half_distance(head.means.detach(), torch.full((4,), int(k)))
            assert float(found) == pytest.approx(float(apart.sum()) / 3, rel=1e-9)
    assert torch.isinf(GaussianMixture(7, 1).half_distance_to_other_means(torch.tensor([0])))


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0, 1e6])
def test_the_pull_to_the_mean_is_bounded_and_grows_with_the_posterior(head, scale):
    """(alpha (1 - q_y) + lambda) Sigma_y^-1 (x - mu_y) times p_y min(1, R_y / r); all other gradients are published."""
    features, labels = samples()
    features, alpha, weight = features * scale, 0.3, 0.7
    found = {}
    for bounded in (True, False):
        leaf = features.clone().requires_grad_()
        loss = GaussianMixtureLoss(alpha, weight, bounded=bounded)(outputs_of(head, leaf), labels).total
        moved = [leaf, *(value for value in head.parameters() if value.requires_grad)]
        found[bounded] = loss.detach(), torch.autograd.grad(loss, moved)
    close(found[True][0], found[False][0], rtol=0, atol=0)
    for ours, published in zip(found[True][1][1:], found[False][1][1:], strict=True):
        close(ours, published, rtol=0, atol=0)

    leaf = features.clone().requires_grad_()
    distance = head.own_half_distance(leaf, labels)
    (direction,) = torch.autograd.grad(distance.sum(), leaf)  # Sigma_y^-1 (x - mu_y)
    with torch.no_grad():
        logits, own = head(features), F.one_hot(labels, 4)
        with_margin = (logits - alpha * own * distance[:, None]).softmax(dim=1)[own.bool()]
        posterior = logits.softmax(dim=1)[own.bool()]
        radius = (head.half_distance_to_other_means(labels) / 4).sqrt()  # R_y / sqrt 2
        share = posterior * (radius / distance.sqrt()).clamp(max=1)
        pull = ((alpha * (1 - with_margin) + weight) / len(labels))[:, None] * direction
    close(found[False][1][0] - found[True][1][0], (1 - share[:, None]) * pull, rtol=1e-6, atol=1e-12 * scale)


def test_wide_features_part_and_are_not_drawn_together():
    """300 steps on digits through a wide normalised layer; the published loss first draws features to one point."""
    train, test = read_digits("train"), read_digits("test")
    right = {}
    for bounded in (True, False):
        torch.manual_seed(0)
        extractor = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(1, 8), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        model = Classifier(extractor, GaussianMixture(128, 10), 0.3, 0.4)
        loss = GaussianMixtureLoss(bounded=bounded)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        with nullcontext() if bounded else pytest.warns(TrainingWarning, match="collapsed"):
            for rows in torch.randperm(len(train)).repeat(10).split(64):
                x, y = train.batch(rows)
                optimizer.zero_grad()
                loss(model.outputs(x), y).total.backward()
                optimizer.step()
        with torch.no_grad():
            right[bounded] = float((model(test.images).argmax(dim=1) == test.labels).double().mean())
    assert right[False] < 0.7
    assert right[True] > 0.85


def test_autocast_leaves_the_loss_as_it_is():
    head, (features, labels) = mixture().float(), samples(dtype=torch.float32)
    plain = GaussianMixtureLoss()(outputs_of(head, features), labels).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = GaussianMixtureLoss()(outputs_of(head, features), labels).total
    assert torch.equal(plain, inside)


def test_other_heads_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"head is a GaussianMixture.*got Linear.*heads.mixture_from_linear"):
        GaussianMixtureLoss()(
            outputs_of(torch.nn.Linear(7, 4), samples(dtype=torch.float32)[0]), samples()[1]
        )


@pytest.mark.parametrize("name", ["alpha", "likelihood_weight", "variance_prior"])
@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number of at least 0; got {value}"):
        GaussianMixtureLoss(**{name: value})


def test_terms_with_no_weight_are_left_out():
    features, labels = samples()
    assert list(terms(mixture(), features, labels, 0.1, 0.0)) == ["classification"]
    assert list(terms(mixture(), features, labels, 0.1, 1.0, 0.0)) == ["classification", "likelihood"]
    assert list(terms(mixture("identity"), features, labels)) == ["classification", "likelihood"]
    full, half = (terms(mixture(), features, labels, 0.1, w)["likelihood"] for w in (1.0, 0.5))
    close(half, full / 2)


def test_without_a_margin_distances_that_overflow_change_nothing():
    scores = torch.tensor([[0.0, -1.0]])
    assert torch.equal(margin_scores(scores, torch.tensor([torch.inf]), torch.tensor([1]), 0.0), scores)


# What the likelihood of the L-GM loss finds, and what keeps it from falling without end.


@pytest.mark.parametrize("covariance", [one for one in COVARIANCES if one != "identity"])
def test_p15_the_likelihood_alone_finds_means_and_variances(covariance):
    """On frozen features; a distance that forgets the variance would push it to 0."""
    features, labels = samples(300)
    features = features * torch.linspace(0.5, 2.0, 7, dtype=torch.float64) + labels[:, None]
    head = mixture(covariance, priors="uniform")
    optimizer = torch.optim.LBFGS(
        [p for p in head.parameters() if p.requires_grad], max_iter=200, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = terms(head, features, labels, 0.0, 1.0, 0.0)["likelihood"]
        loss.backward()
        return loss

    optimizer.step(closure)
    exact = copy.deepcopy(head).fit_statistics(features, labels)
    close(head.means, exact.means, rtol=0, atol=1e-3)
    close(head.log_variance().exp(), exact.log_variance().exp(), rtol=1e-3, atol=0)


def collapsible(floor, variance_prior, steps, lr=0.02):
    """Two classes whose features are free: nothing but the loss says where they lie."""
    draws = torch.Generator().manual_seed(0)
    head = GaussianMixture(2, 2, "class_diagonal", floor=floor)
    features = torch.nn.Parameter(torch.randn(8, 2, generator=draws))
    labels = torch.arange(2).repeat(4)
    with torch.no_grad():
        head.means.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    loss = GaussianMixtureLoss(0.1, 1.0, variance_prior, bounded=False)
    optimizer = torch.optim.SGD([features, *head.parameters()], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        terms = loss(outputs_of(head, features), labels)
        terms.total.backward()
        optimizer.step()
    return head, terms.total.item()


@pytest.mark.filterwarnings("ignore:.*lie on their floor")
def test_p17_without_protection_the_likelihood_falls_without_end_and_with_it_it_does_not():
    """Points that move onto their mean let variances vanish."""
    values = [collapsible(1e-30, 0.0, steps) for steps in (300, 600)]
    lowest = [head.log_variance().min().item() for head, _ in values]
    assert values[1][1] < values[0][1] - 1
    assert lowest[1] < lowest[0] - 1 < -2
    held, loss = collapsible(1e-4, 0.1, 600)
    assert math.isfinite(loss)
    assert held.share_at_floor() == 0.0
    assert held.log_variance().exp().min().item() > 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lie on their floor")
def test_p17_the_floor_alone_holds_as_well():
    head, loss = collapsible(1e-2, 0.0, 10_000)
    assert math.isfinite(loss)
    assert head.log_variance().exp().min().item() >= 0.999e-2
    assert head.share_at_floor() > 0


@pytest.mark.long
def test_p17_a_learned_diagonal_trains_long_on_digits_without_touching_its_floor():
    """10,000 steps at the default settings."""
    train = read_digits("train")
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    model: Any = Classifier(extractor, GaussianMixture(16, 10, "diagonal"), 0.3, 0.38)
    shares = []
    result = fit(
        model, EndToEnd(GaussianMixtureLoss()), train, steps=10_000, batch_size=64,
        on_step=lambda _: shares.append(model.head.share_at_floor()),
    )  # fmt: skip
    assert result.status.good
    assert max(shares) == 0.0
    assert model.head.log_variance().exp().min().item() > 0.01
    assert result.history[-1]["classification"] < 0.05


def test_the_prior_holds_collapsed_variances_at_its_share():
    """With no scatter the likelihood and the prior balance at tau / (1 + tau)."""
    head: Any = GaussianMixture(3, 2, "diagonal").double()
    optimizer = torch.optim.LBFGS([head.raw_log_variance], max_iter=100, line_search_fn="strong_wolfe")
    features, labels = head.means.detach().repeat(3, 1), torch.arange(2).repeat(3)

    def closure():
        optimizer.zero_grad()
        found = terms(head, features, labels, 0.0, 1.0, 0.25)
        loss = found["likelihood"] + found["variance_prior"]
        loss.backward()
        return loss

    optimizer.step(closure)
    close(head.log_variance().exp(), torch.full((1, 3), 0.2, dtype=torch.float64), rtol=1e-4, atol=0)


def test_a_variance_on_its_floor_is_told_once():
    head: Any = GaussianMixture(7, 4, "diagonal")
    features, labels = samples(dtype=torch.float32)
    loss = GaussianMixtureLoss()
    for _ in range(CHECK_EVERY):
        loss.after_step(outputs_of(head, features), labels)
    torch.nn.init.constant_(head.raw_log_variance, -30.0)
    with pytest.warns(UserWarning, match="100 % of the mixture's variances lie on their floor") as caught:
        loss.after_step(outputs_of(head, features), labels)
    for _ in range(2 * CHECK_EVERY):
        loss.after_step(
            outputs_of(head, features.mean() + 0 * features), labels
        )  # a warning would be an error
    assert len(caught) == 1


def test_features_too_far_away_for_float32_are_told_once():
    head: Any = GaussianMixture(7, 4)
    features, labels = samples(dtype=torch.float32)
    loss = GaussianMixtureLoss()
    with pytest.warns(UserWarning, match="loses about .* nats of every class's score to rounding") as caught:
        loss.after_step(outputs_of(head, 1e6 * features), labels)
    assert len(caught) == 1
    for _ in range(2 * CHECK_EVERY):
        loss.after_step(outputs_of(head, 1e6 * features), labels)
    GaussianMixtureLoss().after_step(outputs_of(head.double(), 1e6 * features.double()), labels)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_one_class_and_one_feature_are_enough_to_train(covariance):
    head = GaussianMixture(1, 1, covariance, priors="learned")
    features = torch.tensor([[0.5], [1.5], [4.0]], requires_grad=True)
    labels = torch.zeros(3, dtype=torch.long)
    found = GaussianMixtureLoss(0.3)(outputs_of(head, features), labels)
    assert found.terms["classification"].item() == 0.0
    found.total.backward()
    slopes = [features.grad, *(value.grad for value in head.parameters() if value.requires_grad)]
    assert all(slope is not None and bool(slope.isfinite().all()) for slope in slopes)
    head.fit_statistics(features.detach(), labels)
    assert head.means.item() == pytest.approx(2.0)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_at_a_million_loss_and_gradient_are_finite_in_float32(covariance):
    head = mixture(covariance, dtype=torch.float32)
    features, labels = samples(dtype=torch.float32)
    leaf = (1e6 * features).requires_grad_()
    loss = GaussianMixtureLoss()(outputs_of(head, leaf), labels).total
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    exact = GaussianMixtureLoss()(outputs_of(head.double(), leaf.detach().double()), labels).total
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_features_that_are_no_numbers_stop_a_run_and_the_term_is_named():
    class Broken(nn.Linear):
        def forward(self, x):
            return super().forward(x) * math.nan

    train = gaussian_images(per_class=8)
    model = Classifier(nn.Sequential(nn.Flatten(), Broken(64, 4)), GaussianMixture(4, 3, "diagonal"))
    status = fit(model, EndToEnd(GaussianMixtureLoss()), train, epochs=1, batch_size=8).status
    assert (status.good, status.step, status.reason) == (False, 1, "term classification is not finite")
