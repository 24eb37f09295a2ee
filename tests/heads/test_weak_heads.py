"""One list of ways to draw weak heads, and what holds for every one of them."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.data import gaussian_images
from clearance.heads import (
    MLP,
    EarlyStoppedHeads,
    GradientHeads,
    HeadTraining,
    PairHeads,
    RidgeHeads,
    pair_head,
    ridge_is_too_strong,
    solve_ridge,
)
from clearance.heads.scale import feature_unit
from clearance.heads.weak import WeakHeads
from clearance.models import Classifier
from clearance.objectives import SquaredErrorLoss
from clearance.objectives.squared_error import squared_error
from clearance.regimes import FOCA

K, D = 3, 16


@dataclass(frozen=True)
class Case:
    """A way to draw heads; `follows` is what gives the same heads for features c times as large."""

    heads: Any
    classes: int = 4
    per_class: int = 2
    fixed_penalty: bool = False

    def follows(self, c):
        return replace(self.heads, penalty=c**2 * self.heads.penalty) if self.fixed_penalty else self.heads

    def batches(self, count=K, width=D, seed=1):
        """Each head's features are the first's, turned, so that all have one unit and one scatter."""
        draws = torch.Generator().manual_seed(seed)
        labels = torch.arange(self.classes).repeat_interleave(self.per_class)
        means = torch.randn(self.classes, width, generator=draws, dtype=torch.float64)
        noise = 0.3 * torch.randn(len(labels), width, generator=draws, dtype=torch.float64)
        turns = torch.linalg.qr(torch.randn(count, width, width, generator=draws, dtype=torch.float64)).Q
        return (means[labels] + noise) @ turns, labels.expand(count, -1)

    def draw(self, features, labels, heads=None, seed=0, architecture=None, least_unit=None):
        architecture = architecture or nn.Linear(features.shape[2], self.classes)
        stream = torch.Generator().manual_seed(seed)
        return (heads or self.heads).draw(architecture, features, labels, stream, least_unit)


CASES = {
    "gradient": Case(GradientHeads()),
    # The curvature of squared error is larger than that of cross-entropy, for which the defaults were chosen.
    "gradient, squared error": Case(
        GradientHeads(HeadTraining(steps=100, lr=0.005, weight_decay=0.5), loss=squared_error)
    ),
    "early stopped": Case(EarlyStoppedHeads()),
    "ridge": Case(RidgeHeads(0.01)),
    "ridge, fixed penalty": Case(RidgeHeads(0.01, relative=False), fixed_penalty=True),
    "pair": Case(PairHeads(0.1), classes=2, per_class=1, fixed_penalty=True),
}
PROTOCOL: list[WeakHeads] = [GradientHeads(), EarlyStoppedHeads(), RidgeHeads(), PairHeads(0.1)]  # for mypy
CLOSED_FORM = ("ridge", "ridge, fixed penalty", "pair")


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=CLOSED_FORM)
def closed_form(request):
    return CASES[request.param]


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def same(first, second):
    return all(torch.equal(first.stack.parameters[n], second.stack.parameters[n]) for n in ("weight", "bias"))


def test_k_heads_come_back_detached_and_intact(case):
    features, labels = case.batches()
    drawn = case.draw(features.requires_grad_(), labels)
    assert len(drawn.stack) == K
    assert drawn.stack(features).shape == (K, features.shape[1], case.classes)
    assert drawn.diverged.tolist() == [False] * K
    assert not any(value.requires_grad for value in drawn.stack.parameters.values())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_heads_are_float64_for_float64_and_float32_for_all_others(case, dtype):
    features, labels = case.batches()
    exact = case.draw(features, labels).stack.parameters
    found = case.draw(features.to(dtype), labels).stack.parameters
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert {value.dtype for value in found.values()} == {expected}
    tolerance = {torch.float64: 0.0, torch.float32: 1e-4, torch.float16: 0.05}[dtype]
    for name, value in found.items():
        close(value.double(), exact[name].double(), tolerance)


def test_the_generator_decides_all_that_is_random(case):
    features, labels = case.batches()
    first, again, other = (case.draw(features, labels, seed=seed) for seed in (0, 0, 1))
    assert same(first, again)
    assert same(first, other) == isinstance(case.heads, RidgeHeads | PairHeads)


def test_heads_read_raw_features(case):
    """On the raw features of its own set a head is right, however large they are."""
    features, labels = case.batches()
    strong = case.heads
    if isinstance(strong, GradientHeads | EarlyStoppedHeads):  # a few steps need not be enough
        strong = replace(strong, training=replace(strong.training, steps=400))
    for c in (1.0, 7.0):
        drawn = case.draw(c * features, labels, strong)
        assert torch.equal(drawn.stack(c * features).argmax(dim=2), labels)


@pytest.mark.parametrize("c", [50.0, 1e-3])
def test_features_times_c_give_the_same_model(case, c):
    """Where the penalty is fixed: once it is multiplied by c^2, and not before."""
    features, labels = case.batches()
    expected = case.draw(features, labels).stack(features)
    close(case.draw(c * features, labels, case.follows(c)).stack(c * features), expected, 1e-8)
    if case.fixed_penalty:
        assert not torch.allclose(case.draw(c * features, labels).stack(c * features), expected, rtol=1e-2)


def test_the_least_unit_weakens_heads_of_smaller_features_and_only_those(case):
    features, labels = case.batches()
    unit = feature_unit(features)
    free, same_unit, larger = (
        case.draw(features, labels, least_unit=bound) for bound in (None, unit, 10 * unit)
    )
    close(same_unit.stack(features), free.stack(features))
    if case.fixed_penalty:
        assert same(larger, free)
    else:
        spread = [drawn.stack(features).std(dim=1).mean() for drawn in (larger, free)]
        assert spread[0] < 0.9 * spread[1]


def test_below_the_least_unit_the_penalty_of_ridge_stays():
    """Shrinking features from the least unit on is, to the heads, as under a fixed penalty."""
    case = CASES["ridge"]
    features, labels = case.batches()
    unit = feature_unit(features)
    scatter = (features - features.mean(dim=1, keepdim=True)).square().sum(dim=2).mean()
    fixed = RidgeHeads(0.01 * float(scatter), relative=False)
    shrunk = case.draw(0.1 * features, labels, least_unit=unit).stack(features)
    close(shrunk, case.draw(0.1 * features, labels, fixed).stack(features))


def test_a_batched_draw_is_a_loop_of_draws(case):
    """Each head alone gives the same, because all sets have one scale; random ones share a stream."""
    features, labels = case.batches()
    together = case.draw(features, labels).stack.parameters
    stream = torch.Generator().manual_seed(0)
    for k in range(K):
        architecture = nn.Linear(D, case.classes)
        alone = case.heads.draw(architecture, features[k : k + 1], labels[k : k + 1], stream)
        for name, value in alone.stack.parameters.items():
            close(value[0], together[name][k])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_head_with_a_set_that_is_not_finite_is_counted_and_harms_no_other(case, bad):
    features, labels = case.batches()
    features[1, 0, 0] = bad
    drawn = case.draw(features, labels)
    assert drawn.diverged.tolist() == [False, True, False]
    assert drawn.intact()(features[0]).isfinite().all()


def test_neighbours_of_a_spoilt_set_are_as_they_were(closed_form):
    features, labels = closed_form.batches()
    expected = closed_form.draw(features, labels).stack.parameters["weight"]
    features[1, 0, 0] = torch.inf
    close(closed_form.draw(features, labels).intact().parameters["weight"], expected[[0, 2]])


def test_a_class_that_is_missing_gets_no_sample(case):
    features, labels = case.batches()
    if isinstance(case.heads, PairHeads):
        with pytest.raises(ValueError, match="one sample of class 0 and one of class 1 for every head"):
            case.draw(features, torch.zeros_like(labels))
        return
    kept = labels[0] != 0
    drawn = case.draw(features[:, kept], labels[:, kept])
    assert not drawn.diverged.any()
    assert (drawn.stack(features[:, kept]).argmax(dim=2) != 0).all()


def test_one_image_a_class_is_enough(case):
    one = replace(case, per_class=1)
    features, labels = one.batches()
    assert not one.draw(features, labels).diverged.any()


@pytest.mark.filterwarnings("ignore:RidgeHeads are too strong")
def test_one_feature_is_enough(case):
    features, labels = case.batches(width=1)
    drawn = case.draw(features, labels)
    assert not drawn.diverged.any()
    assert drawn.stack(features).shape == (K, features.shape[1], case.classes)


def test_features_that_are_all_equal_give_heads_that_cannot_tell(closed_form):
    features, labels = closed_form.batches()
    drawn = closed_form.draw(torch.full_like(features, 0.1), labels)
    assert not drawn.diverged.any()
    close(drawn.stack(features), torch.full_like(drawn.stack(features), 1 / closed_form.classes))


@pytest.mark.parametrize(
    "architecture",
    [MLP((D, 8, 4)), nn.Linear(D, 4, bias=False), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 4))],
    ids=["mlp", "no bias", "layer norm"],
)
def test_closed_forms_refuse_heads_that_are_not_one_linear_layer(closed_form, architecture):
    features, labels = closed_form.batches()
    with pytest.raises(ValueError, match=r"one nn.Linear with a bias, because only that has a closed form"):
        closed_form.draw(features, labels, architecture=architecture)


def test_a_head_written_as_a_sequence_of_one_layer_is_the_same(closed_form):
    features, labels = closed_form.batches()
    drawn = closed_form.draw(features, labels, architecture=MLP((D, closed_form.classes)))
    close(drawn.stack(features), closed_form.draw(features, labels).stack(features))


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [RidgeHeads, PairHeads])
def test_a_penalty_that_is_not_above_0_is_refused(kind, penalty):
    with pytest.raises(ValueError, match="`penalty` must be a finite number above 0"):
        kind(penalty)


def test_every_way_to_draw_heads_serves_foca(case):
    """Two steps from one seed move the extractor, and never the model's own head."""
    data = gaussian_images(class_count=case.classes, per_class=4, shape=(1, 4, 4))
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, D)), nn.Linear(D, case.classes))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    regime = FOCA(SquaredErrorLoss(), case.heads, per_class=case.per_class, heads=2)
    optimizer = torch.optim.SGD(regime.trainable(model), lr=0.01)
    training = regime.start(model, data, optimizer, regime.generators(0))
    for _ in range(2):
        assert training.step(data.images, data.labels).total.isfinite()
    after = model.state_dict()
    assert not torch.equal(after["extractor.1.weight"], before["extractor.1.weight"])
    assert torch.equal(after["head.weight"], before["head.weight"])


def test_early_stopped_heads_are_gradient_heads_of_twenty_steps():
    case = CASES["early stopped"]
    features, labels = case.batches()
    twenty = GradientHeads(replace(GradientHeads().training, steps=20))
    assert same(case.draw(features, labels), case.draw(features, labels, twenty))
    own = (HeadTraining(steps=7, lr=0.02), 0.3, squared_error)
    stopped, gradient = (
        case.draw(features, labels, heads, least_unit=torch.tensor(9.0))
        for heads in (EarlyStoppedHeads(*own), GradientHeads(*own))
    )
    assert same(stopped, gradient)
    assert not same(stopped, case.draw(features, labels))


def test_early_stopped_heads_share_the_checks_of_gradient_heads():
    with pytest.raises(ValueError, match="`init_std` must be a finite number above 0"):
        EarlyStoppedHeads(init_std=0.0)


@pytest.mark.parametrize("wrong", [4, -1])
def test_labels_that_are_no_classes_are_refused(wrong):
    features, labels = CASES["ridge"].batches()
    labels = labels.clone()
    labels[0, 0] = wrong
    with pytest.raises(ValueError, match=r"`labels` must lie in 0 .. 3, because the head has 4 outputs"):
        CASES["ridge"].draw(features, labels)


def test_pairs_of_more_than_two_classes_or_samples_are_refused():
    case = CASES["pair"]
    features, labels = case.batches()
    with pytest.raises(ValueError, match="a head with 2 outputs, one for each class; got 3"):
        case.draw(features, labels, architecture=nn.Linear(D, 3))
    with pytest.raises(ValueError, match=r"Set per_class=1"):
        case.draw(features.repeat(1, 2, 1), labels.repeat(1, 2))


# What each closed form is.


def test_ridge_heads_are_the_ridge_regression_of_one_hot_targets():
    features, labels = CASES["ridge"].batches()
    drawn = CASES["ridge, fixed penalty"].draw(features, labels).stack
    weight, bias = solve_ridge(features, F.one_hot(labels, 4), 0.01)
    close(drawn.parameters["weight"], weight)
    close(drawn.parameters["bias"], bias)


def test_pair_heads_are_the_scalar_head_of_the_proof_with_two_logits():
    """z = ((1 - s) / 2, (1 + s) / 2), whichever sample comes first; the loss is half of that of s."""
    features, _ = CASES["pair"].batches()
    labels = torch.tensor([[0, 1], [1, 0], [0, 1]])
    logits = CASES["pair"].draw(features, labels).stack(features)
    for k in range(K):
        zero, one = features[k][labels[k].argsort()]
        weight, bias = pair_head(one, zero, 1.0, -1.0, 0.1)
        s = features[k] @ weight + bias
        close(logits[k], torch.stack([(1 - s) / 2, (1 + s) / 2], dim=1))
        close(squared_error(logits[k], labels[k]), (s - (2 * labels[k] - 1)).square() / 2)


def test_pair_heads_are_ridge_heads_with_a_quarter_of_the_penalty():
    features, labels = CASES["pair"].batches()
    ridge = CASES["pair"].draw(features, labels, RidgeHeads(0.1 / 4, relative=False))
    close(CASES["pair"].draw(features, labels).stack(features), ridge.stack(features), 1e-9)


@pytest.mark.parametrize(("relative", "power"), [(True, 1), (False, 3)])
def test_3_5_1_what_moves_two_points_apart_falls_with_their_distance(relative, power):
    """As 1 / D under a penalty that follows the scale, as 1 / D^3 under a fixed one."""
    sizes = []
    for D in (100.0, 200.0):
        points = torch.tensor([[[0.0, 0.0], [D, 0.0]]], dtype=torch.float64)
        labels = torch.tensor([[0, 1]])
        heads = RidgeHeads(0.01, relative).draw(nn.Linear(2, 2), points, labels, torch.Generator()).stack
        leaf = points[0].requires_grad_()
        squared_error(heads(leaf), labels[0]).sum().backward()
        assert leaf.grad is not None
        sizes.append(float(leaf.grad[1].norm()))
        assert float(leaf.grad[1, 0]) < 0  # descending moves it away from the other
    assert sizes[0] / sizes[1] == pytest.approx(2**power, rel=1e-3)


# 3.5.3: weakness matters.


@pytest.mark.parametrize(("samples", "strong"), [(16, False), (17, True), (100, True)])
def test_3_5_3_heads_with_as_many_samples_as_features_are_called_strong(samples, strong):
    assert ridge_is_too_strong(samples, width=16) is strong


def test_3_5_3_strong_ridge_heads_warn_once():
    case = replace(CASES["ridge"], per_class=5)  # 20 samples, 16 features
    features, labels = case.batches()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            case.heads.draw(nn.Linear(D, 4), features, labels, torch.Generator())
    assert [str(w.message)[:43] for w in caught] == ["RidgeHeads are too strong with 20 samples f"]
