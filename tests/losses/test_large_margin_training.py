"""The loss at work: margins grow, steps are counted, and loops of every kind agree (property 20)."""

import copy
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.heads import MLP
from clearance.losses import (
    CrossEntropyLoss,
    DistanceSettings,
    GammaQuantile,
    LargeMarginLoss,
    margin_distances,
)
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ALL_LAYERS,
    HIDDEN,
    conv_net,
    images,
    labels,
    smooth_net,
)

LAYERS = ("input", HIDDEN)
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def plane():
    """Two far squares, and one sample of each class near the other: separable, and CE leans towards the squares."""
    stream = torch.Generator().manual_seed(0)
    low, high = (
        torch.tensor(corner) + 0.3 * torch.rand(100, 2, generator=stream)
        for corner in ([0.05, 0.1], [0.65, 0.6])
    )
    points = torch.cat([low, torch.tensor([[0.42, 0.95]]), high, torch.tensor([[0.58, 0.05]])])
    return points.view(-1, 1, 1, 2), torch.arange(2).repeat_interleave(101)


@cache
def trained_on_the_plane(gamma, seed):
    """By a margin at the input beside cross-entropy, or by cross-entropy alone where gamma is None."""
    loss = (
        CrossEntropyLoss() if gamma is None else LargeMarginLoss(("input",), gamma=gamma, layer_weights=10.0)
    )
    points, y = plane()
    torch.manual_seed(seed)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(2, 16), nn.Tanh())
    model = Classifier(extractor, nn.Linear(16, 2), mean=0.5, std=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    for _ in range(200):
        optimizer.zero_grad()
        outputs = model.outputs(points, loss.layers)
        loss(outputs, y).total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def least_distance(model):
    """From any sample to the nearest point of another verdict on a grid of 1/150: exact to the grid."""
    points, y = plane()
    line = torch.linspace(-0.2, 1.2, 211)
    grid = torch.cartesian_prod(line, line)
    verdict = model(grid.view(-1, 1, 1, 2)).argmax(dim=1)
    return min(torch.cdist(points[y == c].flatten(1), grid[verdict != c]).min().item() for c in (0, 1))


def test_p20_training_for_a_margin_raises_the_least_exact_distance():
    """At equal training accuracy, in pairs of one seed; measured 0.12 against 0.08 to 0.10."""
    points, y = plane()
    for seed in range(2):
        plain, wide = (trained_on_the_plane(gamma, seed) for gamma in (None, 0.15))
        assert (plain(points).argmax(dim=1) == y).all()
        assert (wide(points).argmax(dim=1) == y).all()
        assert least_distance(wide) > 1.1 * least_distance(plain)


def test_p20_a_margin_that_cannot_be_had_is_bought_with_the_least_distance():
    """Beyond what the two single samples leave the mean over samples counts, and they are given up for the others."""
    wide, wider = (trained_on_the_plane(gamma, 0) for gamma in (0.15, 0.4))
    assert least_distance(wider) < 0.7 * least_distance(wide)


def test_lazy_steps_carry_the_margin_of_the_steps_between():
    model, x, y = smooth_net(), images(), labels()
    outputs = model.outputs(x, LAYERS)
    plain = LargeMarginLoss(LAYERS, gamma=2.0)(outputs, y).terms
    loss = LargeMarginLoss(LAYERS, gamma=2.0, every=3)
    seen = []
    for _ in range(7):
        terms = loss(outputs, y).terms
        assert terms["cross_entropy"].item() == plain["cross_entropy"].item()
        seen.append(terms["margin"].item())
        loss.after_step(outputs, y)
    m = 3 * plain["margin"].item()
    assert seen == pytest.approx([m, 0.0, 0.0, m, 0.0, 0.0, m], rel=1e-12)


def test_gamma_from_data_is_the_mean_quantile_of_the_first_batches_and_then_stays():
    model, y = smooth_net(), labels()
    loss = LargeMarginLoss(
        LAYERS,
        gamma={"input": GammaQuantile(0.25, batches=2), HIDDEN: 0.7},
        cross_entropy_weight=0.0,
        distance=DistanceSettings(eps=0.0),
    )
    batches = [images(seed=seed) for seed in range(4)]
    quantiles = []
    for step, x in enumerate(batches):
        nearest = margin_distances(model, x, y, LAYERS, top_k=1).nearest()
        quantiles.append(nearest["input"].abs().quantile(0.25).item())
        used = quantiles[: max(1, min(step + 1, 2))]
        gamma = sum(used) / len(used)
        expected = LargeMarginLoss(
            LAYERS,
            gamma={"input": gamma, HIDDEN: 0.7},
            cross_entropy_weight=0.0,
            distance=DistanceSettings(eps=0.0),
        )
        outputs = model.outputs(x, LAYERS)
        found = loss(outputs, y).total.item()
        assert found == pytest.approx(expected(outputs, y).total.item(), rel=1e-6)  # kept in float32
        loss.after_step(outputs, y)
    assert len({round(q, 9) for q in quantiles}) == 4


def test_all_parts_of_an_accumulated_step_count_for_gamma_and_a_look_without_gradients_does_not():
    model, y = smooth_net(), labels()
    loss = LargeMarginLoss(LAYERS, gamma={"input": GammaQuantile(0.5), HIDDEN: 0.7})
    quantiles = []
    for seed in range(3):
        x = images(seed=seed)
        outputs = model.outputs(x, LAYERS)
        loss(outputs, y)
        nearest = margin_distances(model, x, y, LAYERS, top_k=1).nearest()
        quantiles.append(nearest["input"].abs().quantile(0.5).item())
    looked_at = model.outputs(10 * images(seed=9), LAYERS)
    with torch.no_grad():
        loss(looked_at, y)
    loss.after_step(outputs, y)
    learnt = loss.state_dict()
    assert learnt["margins.total"][0].item() == pytest.approx(sum(quantiles) / 3, rel=1e-5)
    assert int(learnt["margins.batches"]) == 1


def test_what_is_known_of_gamma_is_in_the_checkpoint():
    model, x, y = smooth_net(), images(), labels()
    used, fresh = (LargeMarginLoss(LAYERS, gamma=GammaQuantile(batches=1)) for _ in range(2))
    outputs = model.outputs(x, LAYERS)
    used(outputs, y)
    used.after_step(outputs, y)
    other = model.outputs(images(seed=9), LAYERS)
    expected = used(other, y).total.item()
    assert fresh(other, y).total.item() != expected
    fresh.load_state_dict(copy.deepcopy(used.state_dict()))
    assert fresh(other, y).total.item() == expected


def test_a_plain_loss_has_no_state():
    assert LargeMarginLoss(ALL_LAYERS).state_dict() == {}
    assert set(LargeMarginLoss(("input",), gamma=GammaQuantile(), every=2).state_dict()) == {
        "steps",
        "margins.total",
        "margins.batches",
    }


def test_gradients_of_parts_of_a_batch_add_up():
    """Accumulation: two halves, each with half the weight, and one step counted."""
    model, x, y = smooth_net(), images(6), labels(6)
    loss = LargeMarginLoss(ALL_LAYERS, gamma=1.5, top_k=2, every=2)

    def gradient(parts):
        model.zero_grad()
        for part in parts:
            outputs = model.outputs(x[part], loss.layers)
            (loss(outputs, y[part]).total * len(x[part]) / 6).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    for one, other in zip(gradient([slice(0, 6)]), gradient([slice(0, 4), slice(4, 6)]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


DATA = gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lazy, from data": {"every": 2, "gamma": {"input": 0.5, "features": {"quantile": 0.5, "batches": 3}}},
    "all rivals, smooth": {"top_k": None, "aggregate": "smooth_max", "distance": DistanceSettings("spread")},
}


def small_model(seed=0):
    torch.manual_seed(seed)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
    return Classifier(extractor, MLP((8, 6, 3)), 0.5, 0.25)


@pytest.mark.parametrize("name", SETTINGS)
def test_fit_trains_with_it_and_the_same_seed_gives_the_same_weights(name):
    def run():
        loss = LargeMarginLoss(("input", "features"), **SETTINGS[name])
        result = fit(small_model(), EndToEnd(loss), DATA, epochs=6, batch_size=12, optimizer=SGD)
        assert result.status.good, str(result.status)
        return result

    first, second = run(), run()
    assert first.history[-1]["cross_entropy"] < first.history[0]["cross_entropy"]
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    def run(folder, on_step=None):
        loss = LargeMarginLoss(("input", "features"), **SETTINGS["lazy, from data"])
        return fit(small_model(), EndToEnd(loss), DATA, epochs=4, batch_size=12, optimizer=SGD,
                   run_dir=folder, checkpoint_every=1, on_step=on_step)  # fmt: skip

    whole = run(tmp_path / "whole")

    class Killed(BaseException):
        pass

    def kill(progress):
        if progress.step == 3:
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "parts", kill)
    resumed = run(tmp_path / "parts")
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_foca_moves_the_extractor_by_it_under_heads_that_change():
    """The heads are frozen, some linear: features are analytic, the input is swept, once for every head."""
    for head in (nn.Linear(8, 3), MLP((8, 6, 3))):
        torch.manual_seed(0)
        model: Any = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), head, 0.5, 0.25)
        before = model.extractor[1].weight.detach().clone()
        way = FOCA(LargeMarginLoss(("input", "features")), per_class=2, heads=2)
        training = way.start(model, DATA, SGD(way.trainable(model)), way.generators(0))
        loss = training.step(*DATA.batch(torch.arange(12)))
        assert list(loss.terms) == ["margin", "cross_entropy"]
        assert loss.total.isfinite()
        assert not torch.equal(model.extractor[1].weight, before)


def test_batch_normalisation_in_training_mode_is_accepted_and_its_statistics_move_once():
    """One forward pass: however many sweeps, running statistics count one batch."""
    norm: Any = nn.BatchNorm2d(4)
    model = conv_net(norm).train()
    loss = LargeMarginLoss(("input", HIDDEN), top_k=3)
    terms = loss(model.outputs(images(4, side=6), loss.layers), labels(4)).total
    terms.backward()
    assert int(norm.num_batches_tracked) == 1
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
