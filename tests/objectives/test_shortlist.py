"""Shortlists: stable laws, slopes against the Jacobian, and how often the true nearest rival is in the list."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from clearance._rng import generator
from clearance.models import Classifier
from clearance.objectives import LargeMarginLoss, Projections, margin_distances
from clearance.objectives.shortlist import (
    directional_slopes,
    projected_rivals,
    stable_draws,
    stable_scale,
    top_rivals,
)
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    HIDDEN,
    filled,
    images,
    labels,
    slow_distance,
    smooth_net,
)


@pytest.mark.parametrize(("exponent", "law"), [(1.0, stats.cauchy()), (2.0, stats.norm(scale=math.sqrt(2)))])
def test_draws_follow_the_law(exponent, law):
    """Kolmogorov-Smirnov; a wrong scale of 10 % would have p below 1e-20."""
    drawn = stable_draws(exponent, (20_000,), generator(0, "test"))
    assert stats.kstest(drawn.numpy(), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_a_weighted_sum_of_draws_is_one_draw_times_the_norm_of_the_weights(exponent):
    """What makes a law stable: |a|_q is what a.u can be measured by."""
    a = torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    drawn = stable_draws(exponent, (20_000, 4), generator(1, "test"))
    size = a.abs().pow(exponent).sum().pow(1 / exponent)
    one = stable_draws(exponent, (20_000,), generator(2, "test"))
    assert stats.ks_2samp((drawn @ a).numpy(), (size * one).numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("exponent", "probes", "spread"), [(2.0, 8, 0.25), (2.0, 128, 0.0625), (1.0, 128, 0.14)]
)
def test_the_scale_is_estimated_as_well_as_theory_says(exponent, probes, spread):
    """The mean square of m normal slopes has relative sd sqrt(2/m), its root 1/sqrt(2m); Cauchy: pi/2 / sqrt(m)."""
    drawn = stable_draws(exponent, (probes, 4000), generator(3, "test"))
    found = stable_scale(drawn, exponent)
    assert found.median().item() == pytest.approx(1.0, rel=0.05)
    assert found.std().item() == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("exponent", [1.0, 1.3, 2.0])
def test_draws_are_finite_even_from_the_ends_of_the_unit_interval(exponent):
    drawn = stable_draws(exponent, (200_000,), generator(4, "test"))
    assert drawn.isfinite().all()


def test_slopes_are_the_jacobian_times_the_direction():
    model, x = smooth_net(), images(3)
    outputs = model.outputs(x, (HIDDEN,))
    hidden = outputs.activations[HIDDEN]
    directions = torch.randn(2, 7, dtype=torch.float64, generator=generator(0))
    found = directional_slopes(outputs.logits, hidden, directions)

    def rest(h):
        return model.head(model.extractor[4](model.extractor[3](h)))

    for b in range(3):
        jacobian = torch.autograd.functional.jacobian(rest, hidden[b].detach()[None])[0, :, 0]
        torch.testing.assert_close(found[:, b], directions @ jacobian.mT, rtol=1e-12, atol=1e-15)


class Plain(nn.Linear):
    """A head whose linearity cannot be known."""

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("layer", ["input", HIDDEN, "features"])
@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_through_a_linear_head_the_same_classes_are_chosen(layer, norm):
    """Slopes of features times the weight are slopes of logits."""
    model, x = wide_net(classes=12), images(40)
    outputs = model.outputs(x, ("input", HIDDEN))
    y = outputs.logits.argmax(dim=1)
    head = Plain(64, 12).double()
    head.load_state_dict(model.head.state_dict())
    settings = Projections(layer, probes=4, size=3)
    found = projected_rivals(outputs, y, norm, settings)
    assert torch.equal(found, projected_rivals(outputs.with_head(head), y, norm, settings))


def wide_net(classes=50, seed=0):
    """Many classes whose gaps are steep to different degrees, so that the highest logit is often not the nearest."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    model: Any = Classifier(extractor, nn.Linear(64, classes), 0.4, 0.5)
    filled(model, seed, 0.3)
    with torch.no_grad():
        model.head.weight *= torch.linspace(0.2, 2.0, classes, dtype=torch.float64)[:, None]
    return model.eval()


@pytest.mark.parametrize(("norm", "least"), [(2.0, 0.9), (math.inf, 0.75)])
def test_how_often_the_shortlist_of_8_probes_holds_the_true_nearest(norm, least):
    """Measured over 200 images and 50 classes; far more often than the one highest logit does."""
    model, x = wide_net(), images(200)
    y = model(x).argmax(dim=1)
    exact = margin_distances(model, x, y, (HIDDEN,), norm=norm)
    nearest = exact.rivals.gather(1, exact.distances[HIDDEN].argmin(dim=1, keepdim=True))
    outputs = model.outputs(x, (HIDDEN,))
    hits = []
    for seed in range(5):
        settings = Projections(HIDDEN, probes=8, size=5, seed=seed)
        listed = projected_rivals(outputs, y, norm, settings)
        hits.append((listed.mT == nearest).any(dim=1).double().mean().item())
    rate = sum(hits) / len(hits)
    top_one = (top_rivals(outputs.logits, y, 1).mT == nearest).double().mean().item()
    assert rate >= least
    assert rate > top_one + 0.1


def test_a_shortlist_never_holds_the_label_nor_a_class_twice():
    model, x = wide_net(classes=7), images(50)
    y = labels(50, 7)
    outputs = model.outputs(x, ("input",))
    settings = Projections("input", probes=1, size=6)
    listed = projected_rivals(outputs, y, 2.0, settings)
    for row, label in zip(listed.mT.tolist(), y.tolist(), strict=True):
        assert sorted([*row, label]) == list(range(7))


def test_it_only_chooses_and_distances_in_the_loss_stay_exact():
    """With a shortlist as long as there are rivals the loss is that of all classes."""
    model, x, y = smooth_net(), images(), labels()
    settings: dict[str, Any] = {"gamma": 2.0, "cross_entropy_weight": 0.0}
    outputs = model.outputs(x, ("input", HIDDEN))
    every = LargeMarginLoss(("input", HIDDEN), top_k=None, **settings)(outputs, y).total
    listed = LargeMarginLoss(("input", HIDDEN), shortlist=Projections(HIDDEN, size=3), **settings)(
        outputs, y
    ).total
    assert listed.item() == pytest.approx(every.item(), rel=1e-12)


def test_of_a_short_list_the_loss_is_made_of_exact_distances_to_those_on_it():
    """Two of three rivals: the sum of what their distances, measured one by one, are short of gamma."""
    model, x, y = smooth_net(), images(), labels()
    chosen = Projections(HIDDEN, probes=1, size=2)
    settings: dict[str, Any] = {"gamma": 2.0, "cross_entropy_weight": 0.0, "eps": 0.0, "layer_weights": 1.0}
    outputs = model.outputs(x, ("input", HIDDEN))
    loss = LargeMarginLoss(("input", HIDDEN), aggregate="sum", shortlist=chosen, **settings)(outputs, y).total
    listed = projected_rivals(outputs, y, 2.0, chosen).mT
    expected = 0.0
    for b in range(len(x)):
        for layer in ("input", HIDDEN):
            distances = [slow_distance(model, x[b], int(y[b]), rival, layer) for rival in listed[b].tolist()]
            expected += sum(max(0.0, 2.0 - d) for d in distances) / len(x)
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    every = margin_distances(model, x, y).rivals  # all three; the list leaves one out of each
    assert listed.shape[1] == every.shape[1] - 1


def test_directions_change_from_step_to_step_and_come_back_with_the_checkpoint():
    model, x = wide_net(), images(50)
    y = model(x).argmax(dim=1)

    def make():
        return LargeMarginLoss((HIDDEN,), shortlist={"layer": HIDDEN, "probes": 1, "size": 1}, gamma=9.0)

    objective = make()
    outputs = model.outputs(x, (HIDDEN,))
    first, same = (objective(outputs, y).total.item() for _ in range(2))
    objective.after_step(outputs, y)
    second = objective(outputs, y).total.item()
    assert first == same != second
    resumed = make()
    resumed.load_state_dict(objective.state_dict())
    assert resumed(outputs, y).total.item() == second


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": 1.5}, "`shortlist` needs `norm` of at least 2.*got 1.5. Use top_k"),
        ({"shortlist": Projections("extractor.3")}, "`shortlist.layer` must be one of 'input'"),
        ({"layers": ("input", "logits"), "shortlist": Projections("logits")}, "must lie before the logits"),
        ({"shortlist": {"layer": "input", "probes": 0}}, "`probes` must be a whole number of at least 1"),
        ({"shortlist": {"layer": "input", "size": 0}}, "`size` must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_shortlisted_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LargeMarginLoss(**{"layers": ("input",), "shortlist": Projections("input"), **settings})


def test_a_shortlist_longer_than_the_rivals_is_all_of_them():
    longer, whole = (
        LargeMarginLoss(("input",), shortlist=Projections("input", size=size), gamma=1.0) for size in (9, 3)
    )
    values = [one(smooth_net().outputs(images(), ("input",)), labels()).total for one in (longer, whole)]
    torch.testing.assert_close(*values, rtol=0, atol=0)
