"""The large-margin loss: gradients, passes, training, presets, loops of one's own, refusals (p05 to p20)."""

import copy
import math
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from clearance import Outputs
from clearance.data import gaussian_images
from clearance.data.digits import read_digits
from clearance.heads import MLP
from clearance.losses import (
    CrossEntropyLoss,
    DistanceSettings,
    GammaQuantile,
    LargeMarginLoss,
    margin_distances,
)
from clearance.losses.large_margin import margin_violation
from clearance.losses.margins import class_gaps
from clearance.models import Classifier, wrap
from clearance.training import FOCA, EndToEnd, Execution, fit
from margin_cases import (
    ALL_LAYERS,
    CLASSES,
    HIDDEN,
    conv_net,
    images,
    labels,
    slow_distance,
    smooth_net,
    wrong_classes,
)
from parallel import Parallel

EVERY_NORM = [1.0, 1.5, 2.0, 3.0, math.inf]


def total(loss, model, x, y):
    return loss(model.outputs(x, loss.layers), y).total


def gradients(loss, model, x, y):
    return torch.autograd.grad(total(loss, model, x, y), list(model.parameters()))


def gradient_of_logits(loss, model, x, y):
    outputs = model.outputs(x, loss.layers)
    return torch.autograd.grad(loss(outputs, y).total, outputs.logits)[0]


def margin_only(*arguments, **settings):
    """Without cross-entropy; how distances are measured may stand among the settings."""
    measured = {"eps": 0.0} | {
        name: settings.pop(name) for name in ("unit", "eps", "denominator") if name in settings
    }
    return LargeMarginLoss(
        *arguments,
        **{"cross_entropy_weight": 0.0, "max_slope": None, **settings},
        distance=DistanceSettings(**measured),
    )


def test_p05_for_two_classes_the_score_does_not_change_the_gradient():
    """grad phi(z) / ||grad phi(z)|| is the same for every increasing phi; only who is active may differ."""
    model, x, y = smooth_net(classes=2), images(), labels(classes=2)
    of_logits, of_probabilities = (
        gradients(margin_only(ALL_LAYERS[:3], gamma=1e6, score=score), model, x, y)
        for score in ("logits", "softmax")
    )
    for one, other in zip(of_logits, of_probabilities, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_p06_eulers_identity_in_the_last_layer(eps):
    """The loss is gamma minus a function of degree one in (W, b), its denominator a constant."""
    model, x, y = smooth_net(), images(), labels()
    loss = margin_only(("input", HIDDEN), gamma=1.5, eps=eps, layer_weights=1.0)
    terms = total(loss, model, x, y)
    head = model.head
    of_weight, of_bias = torch.autograd.grad(terms, [head.weight, head.bias])
    found = ((head.weight * of_weight).sum() + (head.bias * of_bias).sum()).item()
    active = 0.0
    for layer in ("input", HIDDEN):
        short = (1.5 - distances(model, x, y, layer, eps)).clamp(min=0)
        active += ((short > 0) * (short - 1.5)).mean().item()
    assert abs(active) > 0.1
    assert found == pytest.approx(active, rel=1e-10)


def test_p06_with_the_denominator_in_the_gradient_the_identity_gives_zero():
    """A distance is of degree zero in (W, b)."""
    model, x, y = smooth_net(), images(), labels()
    loss = total(margin_only(("input", HIDDEN), gamma=1.5, denominator="full"), model, x, y)
    head = model.head
    of_weight, of_bias = torch.autograd.grad(loss, [head.weight, head.bias])
    assert of_weight.abs().max() > 1e-2
    assert abs(((head.weight * of_weight).sum() + (head.bias * of_bias).sum()).item()) < 1e-12


def distances(model, x, y, layer, eps):
    """To the strongest rival."""
    return margin_distances(model, x, y, (layer,), top_k=1, eps=eps).distances[layer][:, 0]


@pytest.mark.parametrize("k", [1, 3])
def test_p12_the_gradient_of_logits_is_plus_and_minus_one_coefficient(k):
    """-c at the sample's class, +c at its rivals, in all 0; none beyond gamma or below the lower clip."""
    model, x, y = smooth_net(), images(12), labels(12)
    gamma, clip = 0.4, 1.8
    loss = margin_only(("input",), gamma=gamma, top_k=k, lower_clip=clip, aggregate="sum")
    found = gradient_of_logits(loss, model, x, y)
    torch.testing.assert_close(found.sum(dim=1), torch.zeros(12, dtype=torch.float64), rtol=0.0, atol=1e-15)
    measured = margin_distances(model, x, y, top_k=k)
    d = measured.distances["input"]
    z = model(x)
    gaps = z.gather(1, y[:, None]) - z.gather(1, measured.rivals)
    inside = (d < gamma) & (d > gamma * (1 - clip))
    assert {(d >= gamma).any().item(), (d <= gamma * (1 - clip)).any().item(), inside.any().item()} == {True}
    c = inside * d / gaps / 12  # 1 / norm
    expected = torch.zeros_like(z).scatter(1, measured.rivals, c)
    expected = expected.scatter_add(1, y[:, None], -c.sum(dim=1, keepdim=True))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def test_p12_window_edges():
    """0 and alpha gamma; less gamma in reference mode: -gamma and (alpha - 1) gamma."""
    gamma, clip = 2.0, 4.0
    d = torch.tensor([2.0, 9.0, -6.0, -50.0, 0.5])
    assert margin_violation(d, gamma, clip).tolist() == [0.0, 0.0, 8.0, 8.0, 1.5]
    assert (margin_violation(d, gamma, clip) - gamma).tolist() == (
        -d.clamp(gamma * (1 - clip), gamma)
    ).tolist()


def test_p12_reference_plus_gamma_is_the_clipped_formula():
    model, x, y = smooth_net(), images(), labels()
    settings: dict[str, Any] = {"norm": 2.0, "gamma": 0.8, "lower_clip": 2.0, "score": "softmax"}
    shifted = LargeMarginLoss.reference(("input", HIDDEN), **settings)
    plain = margin_only(("input", HIDDEN), **settings, eps=1e-6)
    assert total(shifted, model, x, y).item() + 0.8 == pytest.approx(
        total(plain, model, x, y).item(), rel=1e-12
    )


def check_gradient(loss):
    """The gradient in the parameters is that of finite differences."""
    model, x, y = smooth_net(), images(3), labels(3)
    assert torch.autograd.gradcheck(
        lambda *_: total(loss, model, x, y), tuple(model.parameters()), fast_mode=True
    )


@pytest.mark.parametrize("norm", EVERY_NORM)
@pytest.mark.parametrize("score", ["logits", "softmax"])
def test_p13_the_full_gradient_equals_finite_differences(norm, score):
    loss = margin_only(
        ALL_LAYERS, norm, gamma=3.0, top_k=2, aggregate="sum", score=score, denominator="full", eps=1e-3
    )

    check_gradient(loss)


@pytest.mark.parametrize("norm", [2.0, math.inf])
@pytest.mark.parametrize("score", ["logits", "softmax"])
def test_p13_with_a_largest_slope_too(norm, score):
    loss = margin_only(
        ALL_LAYERS, norm, gamma=30.0, aggregate="sum", score=score, denominator="full", max_slope=1.0
    )
    check_gradient(loss)


@pytest.mark.parametrize("unit", ["element", "spread"])
def test_p13_the_full_gradient_equals_finite_differences_in_every_unit(unit):
    check_gradient(
        margin_only(("input", HIDDEN, "features"), gamma=30.0, denominator="full", unit=unit, eps=1e-3)
    )


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_p13_the_detached_gradient_equals_finite_differences_with_norms_held(norm):
    """The norms are measured at the start, and only gaps move."""
    model, x, y = smooth_net(), images(4), labels(4)
    loss = margin_only(("input", HIDDEN), norm, gamma=3.0)
    z = model(x)
    rivals = z.detach().scatter(1, y[:, None], -math.inf).argmax(dim=1)
    norms = [gap_of(z, y, rivals).detach() / d for d in held_distances(model, x, y, norm)]

    def frozen():
        gap = gap_of(model(x), y, rivals)
        return sum((3.0 - gap / n).clamp(min=0).mean() for n in norms) / 2

    found = gradients(loss, model, x, y)
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        for place in (0, parameter.numel() - 1):
            flat, step = parameter.data.view(-1), 1e-6
            start = flat[place].item()
            values = []
            for sign in (1, -1):
                flat[place] = start + sign * step
                values.append(frozen().item())
            flat[place] = start
            difference = (values[0] - values[1]) / (2 * step)
            assert gradient.view(-1)[place].item() == pytest.approx(difference, rel=1e-6, abs=1e-9)


def gap_of(z, y, rivals):
    return z.gather(1, y[:, None])[:, 0] - z.gather(1, rivals[:, None])[:, 0]


def held_distances(model, x, y, norm):
    found = margin_distances(model, x, y, ("input", HIDDEN), norm=norm, top_k=1).distances
    return [values[:, 0] for values in found.values()]


def dead_net():
    """Every ReLU is off: the logits are the head's bias, whatever the image."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU())
    model: Any = Classifier(extractor, nn.Linear(5, CLASSES)).double().eval()
    with torch.no_grad():
        model.extractor[1].bias.fill_(-100.0)
        model.head.bias.copy_(torch.tensor([0.3, 0.1, 0.0, -0.2], dtype=torch.float64))
    return model


@pytest.mark.parametrize("denominator", ["detach", "full"])
@pytest.mark.parametrize("norm", EVERY_NORM)
def test_p16_where_all_gradients_are_zero_eps_caps_the_distance(denominator, norm):
    """d = gap / eps, and loss and gradient are finite."""
    model, y = dead_net(), torch.tensor([1])
    loss = margin_only(("input",), norm, gamma=1.0, denominator=denominator, eps=0.5)
    terms = total(loss, model, images(1), y)
    assert terms.item() == pytest.approx(1.0 - (0.1 - 0.3) / 0.5, rel=1e-12)
    terms.backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
    assert model.head.bias.grad.tolist() == [2.0, -2.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [60, 80, 110])
def test_full_gradients_are_finite_where_batch_statistics_couple_nearly_sure_samples(scale):
    """Probabilities of 1e-40, whose inverse float32 cannot hold, meet those of other samples in the batch."""
    torch.manual_seed(1)
    extractor = nn.Sequential(
        nn.Flatten(), nn.Linear(9, 16), nn.ReLU(), nn.BatchNorm1d(16),
        nn.Linear(16, 16), nn.ReLU(), nn.BatchNorm1d(16),
    )  # fmt: skip
    model = Classifier(extractor, nn.Linear(16, 10))
    with torch.no_grad():
        model.head.weight *= scale
    loss = LargeMarginLoss.reference(
        ("input",), top_k=None, distance=DistanceSettings("element", denominator="full")
    )
    total(loss, model, torch.rand(64, 1, 3, 3), torch.arange(64) % 10).backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(one is not None and bool(one.isfinite().all()) for one in found)


@pytest.mark.parametrize("denominator", ["detach", "full"])
@pytest.mark.parametrize("sign", [1, -1])
def test_p16_saturated_probabilities_give_a_finite_loss(denominator, sign):
    """At a logit gap of 2,000 both the probabilities' difference and its gradient are 1 and 0 to the last bit."""
    model = smooth_net()
    with torch.no_grad():
        model.head.bias[0] += sign * 2000.0
    loss = LargeMarginLoss.reference(
        ("input", HIDDEN), distance=DistanceSettings("element", denominator=denominator)
    )
    terms = total(loss, model, images(2), torch.tensor([0, 0]))
    terms.backward()
    assert terms.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# How many backward passes there are, what they touch, and what several rivals come to (property 19).


@pytest.mark.parametrize(
    ("layers", "k", "sweeps"), [(ALL_LAYERS, 1, 1), (ALL_LAYERS, 3, 3), (("features", "logits"), 3, 0)]
)
def test_p19_one_sweep_a_rival_serves_all_layers(layers, k, sweeps):
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss(layers, top_k=k, distance=DistanceSettings(sweeps="sequential"))
    outputs = model.outputs(x, loss.layers)
    passes: list[int] = []
    outputs.features.register_hook(lambda _: passes.append(1))
    loss(outputs, y)
    assert len(passes) == sweeps


def test_p19_nothing_else_gets_a_gradient_before_the_final_backward():
    """And the caller's images never."""
    model, x, y = smooth_net(), images().requires_grad_(), labels()
    loss = LargeMarginLoss(ALL_LAYERS, top_k=3)
    outputs = model.outputs(x, loss.layers)
    terms = loss(outputs, y).total
    assert all(parameter.grad is None for parameter in model.parameters())
    assert outputs.activations["input"].grad is None
    terms.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert x.grad is None


def test_the_total_is_a_function_of_logits_with_constant_coefficients():
    """So one backward serves all layers and cross-entropy: cut off behind the logits, the loss has no other path."""
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss(ALL_LAYERS, gamma=1.0, top_k=2)
    outputs = model.outputs(x, loss.layers)
    terms = loss(outputs, y).total
    (of_logits,) = torch.autograd.grad(terms, outputs.logits, retain_graph=True)
    through = torch.autograd.grad(terms, list(model.parameters()), retain_graph=True)
    again = torch.autograd.grad(outputs.logits, list(model.parameters()), of_logits)
    for one, other in zip(through, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("aggregate", "expected"), [("max", 2.0), ("sum", 2.7)])
def test_what_rivals_come_to(aggregate, expected):
    """One sample whose margin is violated by 0, 0.7 and 2."""
    logits = torch.tensor([[0.0, *(math.sqrt(2) * (v - 0.5) for v in (0.0, 0.7, 2.0))]], dtype=torch.float64)
    loss = margin_only(("logits",), gamma=0.5, top_k=None, aggregate=aggregate)
    found = loss(Outputs(torch.zeros(1, 2), logits, nn.Identity()), torch.tensor([0])).total.item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_logits_alone_carry_an_analytic_margin():
    """No activation, no sweep, features without a graph."""
    z = torch.tensor([[2.0, 0.0, 1.0]], requires_grad=True)
    loss = margin_only(("logits",), gamma=1.0)
    terms = loss(Outputs(torch.zeros(1, 2), z, nn.Identity()), torch.tensor([0])).total
    assert terms.item() == pytest.approx(1 - 1 / math.sqrt(2))
    terms.backward()
    assert z.grad is not None
    assert z.grad.tolist()[0] == pytest.approx([-1 / math.sqrt(2), 0.0, 1 / math.sqrt(2)])


# The bound on an image's pull: exact where gradients are large, and never above it (properties of `max_slope`).


def scaled(model, factor):
    """The same network with this many times the logits: gaps and gradients grow together."""
    made = copy.deepcopy(model)
    with torch.no_grad():
        made.head.weight *= factor
        made.head.bias *= factor
    return made


def norms_at(model, x, y, layers, rivals):
    """||grad_h (s_y - s_i)||_2 by a loop over samples, for the highest wrong logits, (L, k, B)."""
    outputs = model.outputs(x, layers)
    rows = []
    for layer in layers:
        tensor = outputs.activations[layer]
        each = torch.zeros(rivals, len(x), dtype=x.dtype)
        for b in range(len(x)):
            for k, i in enumerate(wrong_classes(model, x[b], int(y[b]))[:rivals]):
                gap = outputs.logits[b, y[b]] - outputs.logits[b, i]
                each[k, b] = torch.autograd.grad(gap, tensor, retain_graph=True)[0][b].norm()
        rows.append(each)
    return torch.stack(rows)


BOUNDED: dict[str, dict[str, Any]] = {
    "one rival": {"top_k": 1},
    "maximum": {"top_k": None},
    "sum": {"top_k": None, "aggregate": "sum"},
    "probabilities": {"score": "softmax", "gamma": 1e4},
    "probabilities, sum": {"score": "softmax", "gamma": 1e4, "top_k": None, "aggregate": "sum"},
    "heavy layers": {"layer_weights": 30.0},
    "weighed layers": {"layer_weights": {"input": 0.0, HIDDEN: 7.0}},
    "infinity": {"norm": math.inf},
    "spread": {"distance": DistanceSettings(unit="spread")},
    "element": {"distance": DistanceSettings(unit="element")},
    "no eps": {"distance": DistanceSettings(eps=0.0)},
    "clipped": {"lower_clip": 4.0},
}


def asked(name):
    """The settings of this case; a gamma that most images miss."""
    return {"gamma": 3.0, **BOUNDED[name]}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("factor", [0.0, 1e-12, 1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("bound", [0.25, 2.0])
def test_no_image_pulls_its_logits_harder_than_the_bound(name, factor, bound):
    """Where gradients vanish, too: without the bound the slope is w / g, here up to 1e13."""
    model, x, y = scaled(smooth_net(), factor), images(8), labels(8)
    loss = LargeMarginLoss(LAYERS, cross_entropy_weight=0.0, max_slope=bound, **asked(name))
    pull = gradient_of_logits(loss, model, x, y)
    assert pull.isfinite().all()
    assert pull.abs().max().item() * len(x) <= bound * (1 + 1e-9)


def test_the_published_formula_has_no_bound():
    model, x, y = scaled(smooth_net(), 1e-3), images(8), labels(8)
    loss = LargeMarginLoss(LAYERS, gamma=3.0, cross_entropy_weight=0.0, max_slope=None)
    assert gradient_of_logits(loss, model, x, y).abs().max().item() * 8 > 100


@pytest.mark.parametrize("name", BOUNDED)
def test_where_gradients_are_large_the_bounded_loss_is_the_published_one_to_the_bit(name):
    model, x, y = scaled(smooth_net(), 3.0), images(8), labels(8)
    bounded, published = (LargeMarginLoss(LAYERS, **asked(name), max_slope=bound) for bound in (1e9, None))
    for of_bounded, of_published in (
        (total(bounded, model, x, y), total(published, model, x, y)),
        *zip(gradients(bounded, model, x, y), gradients(published, model, x, y), strict=True),
    ):
        assert torch.equal(of_bounded, of_published)


@pytest.mark.parametrize("factor", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("bound", [0.25, 1.0])
def test_a_bounded_violation_is_the_published_one_times_its_norm_over_the_least(factor, bound):
    """min(1, g / f) max(0, gamma - d), f = L w / bound, by a loop over samples; nothing else changes."""
    model, x, y = scaled(smooth_net(), factor), images(8), labels(8)
    loss = LargeMarginLoss(
        LAYERS, 2.0, 3.0, cross_entropy_weight=0.0, max_slope=bound, distance=DistanceSettings(eps=0.0)
    )
    g = norms_at(model, x, y, LAYERS, 1)[:, 0]
    d = torch.stack(
        [
            torch.tensor(
                [
                    slow_distance(model, image, label, wrong_classes(model, image, label)[0], layer)
                    for image, label in zip(x, y.tolist(), strict=True)
                ]
            )
            for layer in LAYERS
        ]
    )
    expected = ((g * bound).clamp(max=1) * (3.0 - d).clamp(min=0)).mean().item()
    assert total(loss, model, x, y).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
@pytest.mark.parametrize("seed", range(3))
def test_the_first_steps_of_an_untrained_network_do_not_destroy_it(seed):
    """The loop of docs/large_margin.md for an epoch: the published formula ends at chance, 10 %."""
    train, test = read_digits("train"), read_digits("test")
    right = {}
    for bound in (0.25, None):
        torch.manual_seed(seed)
        extractor = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 64),
            nn.ReLU(),
        )
        model = Classifier(extractor, nn.Linear(64, 10))
        loss = LargeMarginLoss(("input", "extractor.2"), gamma=1.0, max_slope=bound)
        optimizer = SGD(model.parameters())
        for rows in torch.randperm(len(train)).repeat(3).split(64):
            x, y = train.batch(rows)
            optimizer.zero_grad()
            total(loss, model, x, y).backward()
            optimizer.step()
        with torch.no_grad():
            right[bound] = float((model(test.images).argmax(dim=1) == test.labels).double().mean())
    assert right[None] < 0.2
    assert right[0.25] > 0.8


# The loss at work: margins grow, steps are counted, and loops of every kind agree (property 20).


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
    used, fresh = (
        LargeMarginLoss(LAYERS, gamma=gamma) for gamma in ({"batches": 1}, GammaQuantile(batches=1))
    )
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
    "all rivals": {"top_k": None, "aggregate": "sum", "distance": DistanceSettings("spread")},
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


# The two presets against slow versions of their own: loops over samples, classes and layers in float64.


def slow_paper(model, x, y, norm, gamma, aggregate):
    """sum over layers, mean over samples, max or sum over i != y of max(0, gamma - d)."""
    total = 0.0
    for layer in LAYERS:
        for image, label in zip(x, y.tolist(), strict=True):
            terms = []
            for rival in wrong_classes(model, image, label):
                d = slow_distance(model, image, label, rival, layer, norm=norm, eps=1e-6)
                terms.append(max(0.0, gamma - d))
            total += (max(terms) if aggregate == "max" else sum(terms)) / len(x)
    return total


def slow_reference(model, x, y, norm, gamma, k, aggregate="max"):
    """mean over layers and samples of -clip(d, gamma (1 - 4), gamma), on probabilities.

    Of the nearest of the top k, or summed over all of those. With p = inf the gradient's norm is divided by the
    number of elements, and eps is added after that.
    """
    total = 0.0
    for layer in LAYERS:
        elements = model.outputs(x, LAYERS).activations[layer][0].numel() if math.isinf(norm) else 1
        for image, label in zip(x, y.tolist(), strict=True):
            distances = [
                slow_distance(
                    model,
                    image,
                    label,
                    rival,
                    layer,
                    norm=norm,
                    score="softmax",
                    eps=1e-6,
                    divided_by=elements,
                )
                for rival in wrong_classes(model, image, label)[:k]
            ]
            counted = distances if aggregate == "sum" else [min(distances)]
            clipped = sum(min(max(d, gamma * (1 - 4)), gamma) for d in counted)
            total -= clipped / (len(x) * len(LAYERS))
    return total


NETS = {"dense": (smooth_net, 3), "convolutional": (conv_net, 6)}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("aggregate", ["max", "sum"])
@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_the_paper_preset_is_the_formula(net, aggregate, norm):
    make, side = NETS[net]
    model, x, y = make(), images(5, side), labels(5)
    loss = LargeMarginLoss.paper(LAYERS, norm, gamma=0.7, aggregate=aggregate)
    terms = loss(model.outputs(x, loss.layers), y)
    assert terms.total.item() == pytest.approx(slow_paper(model, x, y, norm, 0.7, aggregate), rel=1e-10)
    assert list(terms.terms) == ["margin"]


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("aggregate", ["max", "sum"])
@pytest.mark.parametrize(("norm", "gamma"), [(1.0, 0.5), (2.0, 0.5), (math.inf, 1.2)])
def test_the_reference_preset_is_what_the_published_code_computes(net, k, aggregate, norm, gamma):
    make, side = NETS[net]
    model, x, y = make(), images(5, side), labels(5)
    loss = LargeMarginLoss.reference(LAYERS, norm, gamma, top_k=k, aggregate=aggregate)
    terms = loss(model.outputs(x, loss.layers), y)
    expected = slow_reference(model, x, y, norm, gamma, k, aggregate)
    assert terms.total.item() == pytest.approx(expected, rel=1e-10)


def test_presets_are_those_of_the_sources_and_any_setting_may_be_changed():
    paper, reference = LargeMarginLoss.paper(), LargeMarginLoss.reference()
    assert (paper.score, paper.top_k, paper.lower_clip, paper.layer_weights) == ("logits", None, None, 1.0)
    assert paper.max_slope is None
    assert reference.max_slope is None
    assert (reference.norm, reference.gamma, reference.top_k, reference.distance.eps) == (
        math.inf,
        1e4,
        1,
        1e-6,
    )
    assert (reference.score, reference.lower_clip, reference.distance.unit) == ("softmax", 4.0, "element")
    assert LargeMarginLoss.reference(norm=2).distance.unit == "layer"
    assert LargeMarginLoss.paper(cross_entropy_weight=0.5, top_k=2).top_k == 2


def test_the_default_gamma_of_the_reference_is_far_beyond_every_distance():
    """10,000: nothing is clipped, so that the loss is minus the mean distance and every sample pulls."""
    model, x, y = smooth_net(), images(), labels()
    loss = LargeMarginLoss.reference(("input",))
    value = loss(model.outputs(x, ("input",)), y).total.item()
    nearest = margin_distances(
        model, x, y, ("input",), norm=math.inf, score="softmax", unit="element", top_k=1, eps=1e-6
    ).nearest()["input"]
    assert 0 < float(nearest.abs().max()) < 100
    assert value == pytest.approx(-float(nearest.mean()), rel=1e-9)


@pytest.mark.parametrize("weights", [None, 2.0, {"input": 3.0, HIDDEN: 0.5}])
def test_layer_weights_and_cross_entropy_add_up(weights):
    model, x, y = smooth_net(), images(), labels()
    each = {
        layer: LargeMarginLoss((layer,), 2.0, 0.8, cross_entropy_weight=0.0, max_slope=None)(
            model.outputs(x, LAYERS), y
        ).total.item()
        for layer in LAYERS
    }
    loss = LargeMarginLoss(
        LAYERS,
        2.0,
        {"input": 0.8, HIDDEN: 0.8},
        layer_weights=weights,
        cross_entropy_weight=0.25,
        max_slope=None,
    )
    terms = loss(model.outputs(x, LAYERS), y).terms
    values = {None: dict.fromkeys(LAYERS, 0.5), 2.0: dict.fromkeys(LAYERS, 2.0)}
    chosen = weights if isinstance(weights, dict) else values[weights]
    expected = sum(chosen[layer] * each[layer] for layer in LAYERS)
    assert terms["margin"].item() == pytest.approx(expected, rel=1e-12)
    plain = torch.nn.functional.cross_entropy(model(x), y).item()
    assert terms["cross_entropy"].item() == pytest.approx(0.25 * plain, rel=1e-12)


def test_every_layer_may_have_a_gamma_of_its_own():
    model, x, y = smooth_net(), images(), labels()
    both = LargeMarginLoss(LAYERS, gamma={HIDDEN: 3.0, "input": 0.4}, cross_entropy_weight=0.0)
    alone = [
        LargeMarginLoss((layer,), gamma=gamma, cross_entropy_weight=0.0)
        for layer, gamma in (("input", 0.4), (HIDDEN, 3.0))
    ]
    outputs = model.outputs(x, LAYERS)
    expected = sum(loss(outputs, y).total.item() for loss in alone) / 2
    assert both(outputs, y).total.item() == pytest.approx(expected, rel=1e-12)


# The large-margin loss in loops of one's own: frozen layers, compiled networks, attention, masks, wrappers.


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("gamma", 5.0),
            ("norm", math.inf),
            ("score", "softmax"),
            ("layer_weights", 7.0),
            ("distance", DistanceSettings(eps=1.0)),
            ("layers", ("input",)),
            ("every", 2),
        ],
    )
    def test_those_that_parts_were_made_from_cannot_change(self, name, value):
        """They had shown in the repr, and done nothing."""
        loss = LargeMarginLoss(("input", "logits"))
        with pytest.raises(AttributeError, match=f"`{name}` of LargeMarginLoss cannot be changed, because"):
            setattr(loss, name, value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("top_k", 0),
            ("aggregate", "mean"),
            ("lower_clip", 0.2),
            ("cross_entropy_weight", -1.0),
            ("max_slope", -1.0),
        ],
    )
    def test_what_a_new_loss_refuses_cannot_be_set(self, name, value):
        loss = LargeMarginLoss(("input", "logits"))
        before = getattr(loss, name)
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            setattr(loss, name, value)
        assert getattr(loss, name) == before

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("top_k", 3),
            ("aggregate", "max"),
            ("lower_clip", 1.0),
            ("cross_entropy_weight", 0.5),
            ("shifted", True),
        ],
    )
    def test_others_do_what_they_say(self, name, value):
        settings: Any = {"gamma": 2.0, "top_k": 2, "aggregate": "sum", name: value}
        made = LargeMarginLoss(("logits",), **settings)
        changed = LargeMarginLoss(("logits",), gamma=2.0, top_k=2, aggregate="sum")
        outputs = smooth_net().outputs(images(), ())
        before = changed(outputs, labels()).total
        setattr(changed, name, value)
        assert torch.equal(changed(outputs, labels()).total, made(outputs, labels()).total)
        assert not torch.equal(before, made(outputs, labels()).total)


class TestFrozen:
    def test_the_documented_backward_pass_leaves_frozen_layers_alone(self):
        model, loss = smooth_net(), LargeMarginLoss(("input",))
        frozen = next(iter(model.extractor.parameters())).requires_grad_(requires_grad=False)
        terms = loss(model.outputs(images(), loss.layers), labels())
        terms.total.backward(inputs=[p for p in model.parameters() if p.requires_grad])
        assert frozen.grad is None
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)

    def test_a_margin_behind_frozen_layers(self):
        """What is refused says what to do, and that works."""
        model = smooth_net()
        model.head = nn.Sequential(model.head, nn.Tanh(), nn.Linear(model.head.out_features, 4).double())
        model.extractor.requires_grad_(requires_grad=False)
        loss = LargeMarginLoss(("features",))
        with pytest.raises(
            ValueError,
            match=r"must have a graph to the logits.*model\.outputs\(images, \[\*loss\.layers, 'input'\]\)",
        ):
            loss(model.outputs(images(), loss.layers), labels())
        loss(model.outputs(images(), [*loss.layers, "input"]), labels()).total.backward()
        assert all(p.grad is not None for p in model.head.parameters())


class Attentive(nn.Module):
    """Pixels as tokens, with fused attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(1, 8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.lift(x.flatten(1).unsqueeze(2))
        heads = tokens.unsqueeze(1)
        mixed: Tensor = nn.functional.scaled_dot_product_attention(heads, heads, heads).squeeze(1).mean(dim=1)
        return mixed


class TestAttention:
    def model(self) -> Classifier:
        torch.manual_seed(0)
        return Classifier(Attentive(), nn.Linear(8, 4)).eval()

    def loss(self, denominator: Any, sweeps: Any = "sequential") -> Tensor:
        model = self.model()
        loss = LargeMarginLoss(
            ("input",),
            top_k=2,
            distance=DistanceSettings(denominator=denominator, sweeps=sweeps),
            cross_entropy_weight=0.0,
        )
        return loss(model.outputs(torch.rand(5, 1, 4, 4), loss.layers), torch.arange(5) % 4).total

    def test_a_margin_needs_no_second_derivative(self):
        self.loss("detach").backward()

    @pytest.mark.parametrize("sweeps", ["sequential", "batched"])
    def test_differentiating_the_denominator_is_refused_where_the_loss_is_made(self, sweeps):
        with pytest.raises(
            ValueError, match=r"cannot be differentiated twice.*sdpa_kernel\(SDPBackend\.MATH\)"
        ):
            self.loss("full", sweeps)

    def test_and_works_as_it_says(self):
        with sdpa_kernel(SDPBackend.MATH):
            self.loss("full").backward()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "This backward function was compiled with non-empty donated buffers",
            "donated_buffer = False before",
        ),
        (
            "torch.compile with aot_autograd does not currently support double backward",
            "or train without torch.compile",
        ),
    ],
)
def test_what_a_compiled_network_says_at_a_sweep_is_answered(said, remedy):
    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            raise RuntimeError(said)

    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = Compiled.apply(x)
            return found

    model, loss = smooth_net(), LargeMarginLoss(("input",))
    model.extractor.append(Last())
    outputs = model.outputs(images(), loss.layers)
    with pytest.raises(ValueError, match=remedy):
        loss(outputs, labels())


class TestManyClasses:
    def test_no_tensor_of_rivals_by_classes_is_made(self):
        """As many classes as rivals: one such tensor would take most of all memory."""
        model, count = Classifier(nn.Flatten(), nn.Linear(4, 200)), 6
        loss = LargeMarginLoss(("logits",), top_k=None, aggregate="sum")
        sizes: list[int] = []

        class Noted(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                made = func(*args, **(kwargs or {}))
                sizes.extend(
                    one.numel()
                    for one in (made if isinstance(made, tuple) else (made,))
                    if isinstance(one, Tensor)
                )
                return made

        with Noted():
            loss(model.outputs(torch.rand(count, 1, 2, 2)), torch.arange(count)).total.backward()
        assert max(sizes) <= 2 * 199 * count


class TestDistances:
    def test_of_a_plain_module(self):
        with pytest.raises(
            TypeError, match=r"`model` must be a clearance Classifier; got Sequential.*clearance\.wrap"
        ):
            margin_distances(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), images(), labels())  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("change", "words"),
        [(lambda x: 255 * x, "divide by 255"), (lambda x: x - 0.5, "take the normalisation out")],
    )
    def test_of_images_that_are_not_in_pixel_units(self, change, words):
        with pytest.raises(ValueError, match=rf"`images` must lie in \[0, 1\].*{words}"):
            margin_distances(smooth_net(), change(images()), labels())


class Aliased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(9, 8)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.again(x.flatten(1)).tanh()
        return found


class TestLayers:
    def test_one_module_may_have_two_names(self):
        model = Classifier(Aliased(), nn.Linear(8, 4)).double()
        by = {
            name: LargeMarginLoss((name,))(model.outputs(images(), (name,)), labels()).total
            for name in ("extractor.first", "extractor.again")
        }
        assert torch.equal(*by.values())

    @pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
    def test_inside_a_scripted_module(self):
        scripted = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(9, 8)))
        model = Classifier(scripted, nn.Linear(8, 4)).double()
        with pytest.raises(ValueError, match=r"layer 'extractor.1' must not lie in a scripted module"):
            model.outputs(images(), ("extractor.1",))


class Checkpointed(nn.Module):
    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self.kept = kept
        self.inner = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x) if self.kept else checkpoint(self.inner, x, use_reentrant=False)
        return found


@pytest.mark.parametrize(
    ("kept", "top_k", "moves"), [(True, 1, 1), (True, 2, 1), (False, 1, 3), (False, 2, 4)]
)
def test_under_checkpointing_every_sweep_moves_batch_statistics_once_more(kept, top_k, moves):
    """Torch's own way computes the stage again in every backward pass, statistics and all: documented, not mended."""
    model = Classifier(Checkpointed(kept=kept), nn.Linear(108, 4)).train()
    loss = LargeMarginLoss(("input",), top_k=top_k)
    loss(model.outputs(torch.rand(6, 1, 8, 8), loss.layers), torch.arange(6) % 4).total.backward()
    assert int(model.extractor.inner[1].num_batches_tracked) == moves  # type: ignore[union-attr,index]


def reducing(*, static_graph: bool) -> nn.Module:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 9)).double()
    return Parallel(extractor, static_graph)


class TestWrappers:
    def test_one_that_counts_backward_passes_is_refused_where_layers_are_asked_for(self, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        model = Classifier(reducing(static_graph=True), nn.Linear(9, 4)).double()
        assert model.outputs(images()).logits.shape == (6, 4)
        with pytest.raises(
            ValueError, match="part 'extractor' is a DistributedDataParallel with static_graph=True"
        ):
            model.outputs(images(), ("input",))
        model = Classifier(reducing(static_graph=False), nn.Linear(9, 4)).double()
        assert model.outputs(images(), ("input",)).logits.shape == (6, 4)

    def test_one_around_the_classifier_that_finds_no_tensor_in_its_outputs_is_refused(self, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(9, 9)), nn.Linear(9, 4)).double()
        with Parallel(model, static_graph=True)._inside_ddp_forward():
            assert model(images()).shape == (6, 4)
            with pytest.raises(ValueError, match="with static_graph=True averages no gradients"):
                model(images(), layers=())
        for around in (Parallel(model), Parallel(nn.Sequential(model), static_graph=True)):
            with around._inside_ddp_forward():
                assert model(images(), layers=()).logits.shape == (6, 4)

    def test_wrap_says_how_to_train_in_several_processes(self):
        with pytest.raises(
            ValueError,
            match=r"wrap its `\.module` instead, to audit it\. To train.*averages gradients only if its own forward",
        ):
            wrap(reducing(static_graph=False), example=torch.rand(2, 1, 3, 3))


def test_cross_entropy_alone_needs_none_of_this():
    model = smooth_net()
    model.extractor.requires_grad_(requires_grad=False)
    CrossEntropyLoss()(model.outputs(images(), ()), labels()).total.backward()
    assert model.head.weight.grad is not None


# The margin loss and its distances where networks are sure, dead, masked, or asked for what they cannot give.


LABELS = torch.tensor([0, 1, 2, 0])


def network(hidden: bool = False) -> Classifier:
    torch.manual_seed(0)
    extractor = (
        nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU()) if hidden else nn.Sequential(nn.Flatten())
    )
    return Classifier(extractor, nn.Linear(6 if hidden else 4, 3)).eval()


def small_images(count: int = 4) -> Tensor:
    return torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(1))


def test_samples_without_a_gradient_tell_no_margin():
    """At the default eps their gap over eps is a huge number; as with eps 0, they know no boundary."""
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("extractor.1.bias").fill_(-0.2)
    shown, labels = small_images(20), torch.arange(20) % 3
    shown[:4] = 0.0  # every unit is dead there
    gammas = []
    for eps in (0.0, 1e-6):
        loss = LargeMarginLoss(
            ("input",), gamma=GammaQuantile(0.9), distance=DistanceSettings(eps=eps), lower_clip=4.0
        )
        outputs = model.outputs(shown, loss.layers)
        assert bool((model.features(shown)[:4] == 0).all())
        assert bool(loss(outputs, labels).terms["margin"].isfinite())
        loss.after_step(outputs, labels)
        gammas.append(float(loss.state_dict()["margins.total"][0]))
    assert gammas[1] == pytest.approx(gammas[0], rel=1e-3)


def test_a_batch_without_any_gradient_leaves_a_margin_above_0():
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("extractor.1.bias").fill_(-100.0)
    loss = LargeMarginLoss(("input",), gamma=GammaQuantile(0.9), distance=DistanceSettings(eps=0.0))
    outputs = model.outputs(small_images(), loss.layers)
    loss(outputs, LABELS)
    loss.after_step(outputs, LABELS)
    assert float(loss.state_dict()["margins.total"][0]) > 0


@pytest.mark.parametrize(
    ("labels", "error", "said"),
    [
        (torch.tensor([0]), ValueError, r"`labels` must have shape \(4,\)"),
        (torch.tensor([0, 1, 2, 3]), ValueError, r"`labels` must lie in 0 \.\. 2"),
        (torch.tensor([0, 1, 2, -1]), ValueError, r"`labels` must lie in 0 \.\. 2"),
        (torch.eye(4)[:, :3].long(), ValueError, r"`labels` must have shape \(4,\)"),
        (LABELS.float(), TypeError, "`labels` must be int64"),
    ],
)
def test_distances_refuse_labels_that_are_not_one_for_each_image(labels, error, said):
    with pytest.raises(error, match=said):
        margin_distances(network(), small_images(), labels)


@pytest.mark.parametrize("layer", ["features", "logits"])
def test_a_layer_without_spread_sends_no_nan_back(layer):
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("head.weight").zero_()
        model.get_parameter("head.bias").zero_()
    loss = LargeMarginLoss((layer,), distance=DistanceSettings(unit="spread", denominator="full"))
    same = small_images(1).expand(4, -1, -1, -1)
    loss(model.outputs(same, loss.layers), LABELS).total.backward()
    assert all(bool(one.grad.isfinite().all()) for one in model.parameters() if one.grad is not None)


@pytest.mark.parametrize("z", [0.0, 5.0, 12.0, 16.0, 17.0, 30.0, 80.0, -17.0])
def test_p12_probabilities_pull_both_ways_however_sure_a_network_is(z):
    """In float32, where softmax's own derivative has no digits left: of two classes it is 2 p_0 p_1 and less that."""
    logits = torch.tensor([[0.0, z]], requires_grad=True)
    class_gaps(logits, torch.tensor([0]), torch.tensor([[1]]), "softmax").sum().backward()
    assert logits.grad is not None
    one_way, other = logits.grad[0].tolist()
    assert one_way == pytest.approx(2 * math.exp(-abs(z)) / (1 + math.exp(-abs(z))) ** 2, rel=1e-5)
    assert other == pytest.approx(-one_way, rel=1e-6)


def test_gaps_of_probabilities_can_be_differentiated_twice():
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels, rivals = torch.tensor([0, 1, 2]), torch.tensor([[1, 2, 3], [2, 3, 0]])

    def gaps(z: Tensor) -> Tensor:
        return class_gaps(z, labels, rivals, "softmax")

    assert torch.autograd.gradcheck(gaps, logits.requires_grad_())
    assert torch.autograd.gradgradcheck(gaps, logits)


def test_whole_numbers_for_images_are_refused_before_anything_else():
    with pytest.raises(TypeError, match="images must be floating point"):
        margin_distances(network(), (255 * small_images()).byte(), LABELS)


def test_names_of_the_last_layers_are_offered_and_always_there():
    model = network(hidden=True)
    with pytest.raises(ValueError, match="Did you mean 'features'"):
        model.outputs(small_images(), LargeMarginLoss(("feature",)).layers)
    outputs = model.outputs(small_images(), ("input", "features", "logits", "extractor.1", "extractor.1"))
    assert set(outputs.activations) == {"input", "extractor.1"}


def test_a_loss_in_evaluation_mode_is_the_whole_loss_and_learns_nothing():
    model = network(hidden=True)
    every = LargeMarginLoss(("input",), gamma=0.5, every=4)
    plain = LargeMarginLoss(("input",), gamma=0.5)
    learnt = LargeMarginLoss(("input",), gamma=GammaQuantile(0.5))
    for loss in (every, learnt):
        loss.eval()
    outputs = model.outputs(small_images(), ("input",))
    expected = plain(outputs, LABELS).terms["margin"]
    for _ in range(3):
        torch.testing.assert_close(every(outputs, LABELS).terms["margin"], expected)
        learnt(outputs, LABELS)
        every.after_step(outputs, LABELS)
        learnt.after_step(outputs, LABELS)
    assert int(learnt.state_dict()["margins.batches"]) == 0
    every.train()
    assert float(every(outputs, LABELS).terms["margin"]) == 0.0  # the third step of four


@pytest.mark.parametrize("layer", ["input", "extractor.1", "features", "logits"])
def test_distances_in_inference_mode_are_those_outside(layer):
    model = network(hidden=True)
    expected = margin_distances(model, small_images(), LABELS, (layer,)).distances[layer]
    with torch.inference_mode():
        assert torch.equal(
            margin_distances(model, small_images(), LABELS, (layer,)).distances[layer], expected
        )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "options", [{}, {"score": "softmax"}, {"distance": DistanceSettings(denominator="full")}]
)
def test_a_validation_gives_the_loss_of_training(mode, options):
    """Without gradients, and with images and labels made in inference mode."""
    model = network(hidden=True)
    loss = LargeMarginLoss(("input", "extractor.1", "features", "logits"), **options)
    expected = loss(model.outputs(small_images(), loss.layers), LABELS)
    with mode():
        found = loss(model.outputs(small_images().clone(), loss.layers), LABELS.clone())
    for name, term in expected.terms.items():
        assert not found.terms[name].requires_grad
        assert torch.equal(found.terms[name], term), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_validation_does_not_count_for_margins_from_data():
    model, loss = network(hidden=True), LargeMarginLoss(("input",), gamma=GammaQuantile(0.5))
    with torch.no_grad():
        loss(model.outputs(small_images(), loss.layers), LABELS)
    loss.after_step(model.outputs(small_images()), LABELS)
    assert int(loss.state_dict()["margins.batches"]) == 0


def test_a_validation_says_what_it_leaves_out_and_gives_the_rest():
    model, loss = network(hidden=True), LargeMarginLoss(("input", "logits"), gamma=1e3)
    alone = LargeMarginLoss(("input", "logits"), gamma=1e3, layer_weights={"input": 0.0, "logits": 0.5})
    outputs = model.outputs(small_images(), ("input",))
    with torch.no_grad(), pytest.warns(UserWarning, match="leaves out the margin at 'input': `outputs` must"):
        found = loss(outputs.logits, LABELS)
    expected = alone(outputs, LABELS)
    torch.testing.assert_close(found.terms, {name: term.detach() for name, term in expected.terms.items()})
    with torch.no_grad():
        loss(outputs.logits, LABELS)  # said once


def test_where_nothing_can_be_given_that_is_an_error():
    loss = LargeMarginLoss(("input",), cross_entropy_weight=0.0)
    with torch.no_grad(), pytest.raises(ValueError, match="must hold the activation of layer 'input'"):
        loss(network(hidden=True)(small_images()), LABELS)


def test_a_margin_at_the_logits_needs_logits_alone_and_one_at_the_features_these():
    outputs = network(hidden=True).outputs(small_images())
    at_logits = LargeMarginLoss(("logits",))
    assert torch.equal(at_logits(outputs.logits, LABELS).total, at_logits(outputs, LABELS).total)
    at_features = LargeMarginLoss(("features",))
    alone = at_features(outputs.features, outputs.logits, LABELS)
    torch.testing.assert_close(alone.total, at_features(outputs, LABELS).total)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("scale", [1e-24, 1e20])
def test_p03_distances_at_the_features_are_in_range_wherever_the_input_s_are(norm, scale):
    model = network()
    with torch.no_grad():
        for one in model.head.parameters():
            one.mul_(scale)
    found = margin_distances(model, small_images(), LABELS, ("input", "features"), norm=norm).distances
    assert bool(found["input"].isfinite().all() and (found["input"] != 0).all())
    torch.testing.assert_close(found["features"], found["input"], rtol=1e-4, atol=0)


class Masking(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.masked_fill(features == 0, -math.inf)


def test_a_class_that_is_masked_out_is_a_rival_before_the_own_class():
    shown = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.9, 0.5]]).view(2, 1, 1, 3)
    model = Classifier(nn.Flatten(), Masking()).eval()
    found = margin_distances(model, shown, torch.tensor([0, 1]), ("logits",), top_k=2).rivals
    assert sorted(found[0].tolist()) == [1, 2]
    assert found[1].tolist() == [2, 0]


def test_a_setting_of_another_kind_is_refused_in_words():
    with pytest.raises((TypeError, ValueError), match="`lower_clip`"):
        LargeMarginLoss(("input",), lower_clip="4")  # type: ignore[arg-type]


# What the large-margin loss refuses, and in which words.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, "`gamma` must be a finite number above 0; got 0"),
        ({"gamma": -1.0}, "`gamma` must be a finite number above 0"),
        ({"gamma": {"input": 1.0, "logits": 0.0}}, "`gamma` must be a finite number above 0"),
        (
            {"gamma": {"inputs": 1.0}},
            "`gamma` must be one of 'input', 'logits'; got 'inputs'. Did you mean 'input'",
        ),
        (
            {"gamma": {"input": 1.0}},
            r"`gamma` must name every layer or be one number; got none for \['logits'\]",
        ),
        ({"gamma": {"quantile": 1.0}}, r"`quantile` must lie in \(0, 1\)"),
        ({"gamma": {"quantile": 0.5, "batch": 3}}, "Did you mean 'batches'"),
        ({"norm": 0.5}, "`norm` must be at least 1"),
        ({"norm": math.nan}, "`norm` must be at least 1"),
        ({"top_k": 0}, "`top_k` must be a whole number of at least 1"),
        ({"aggregate": "maximum"}, "`aggregate` must be one of 'max'"),
        ({"score": "logit"}, "Did you mean 'logits'"),
        ({"lower_clip": 0.25}, "`lower_clip` must be a finite number of at least 1, because.*got 0.25"),
        ({"lower_clip": math.inf}, "`lower_clip` must be a finite number"),
        ({"cross_entropy_weight": -1.0}, "`cross_entropy_weight` must be a finite number of at least 0"),
        ({"layer_weights": -1.0}, "`layer_weights` must be a finite number of at least 0"),
        ({"layer_weights": {"input": 1.0}}, "`layer_weights` must name every layer"),
        ({"every": 0}, "`every` must be a whole number of at least 1"),
        ({"every": 2, "cross_entropy_weight": 0.0}, "`every` must be 1 without cross-entropy, because"),
        ({"layers": ()}, "`layers` must name at least one layer, each once"),
        ({"layers": ("input", "input")}, "each once; got"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        LargeMarginLoss(**{"layers": ("input", "logits"), **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"denominator": "ful"}, "Did you mean 'full'"),
        ({"unit": "elements"}, "Did you mean 'element'"),
        ({"sweeps": "batch"}, "Did you mean 'batched'"),
        ({"eps": -1e-6}, "`eps` must be a finite number of at least 0"),
    ],
)
def test_settings_of_distances_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        DistanceSettings(**settings)


def test_how_distances_are_measured_is_a_group_of_settings():
    with pytest.raises(TypeError, match="`distance` must be DistanceSettings; got dict"):
        LargeMarginLoss(("input",), distance={"eps": 0.0})  # type: ignore[arg-type]


def loss_of(model, layers, **settings):
    loss = LargeMarginLoss(layers, **settings)
    return loss(model.outputs(images(), loss.layers), labels()).total


def test_an_activation_that_nobody_asked_for():
    loss = LargeMarginLoss(("input", HIDDEN))
    with pytest.raises(ValueError, match=r"must hold the activation of layer 'input'.*loss.layers"):
        loss(smooth_net().outputs(images()), labels())


def test_a_batch_without_a_graph():
    """Outputs that were made under no_grad, in a step that has gradients."""
    model, loss = smooth_net(), LargeMarginLoss((HIDDEN,))
    with torch.no_grad():
        outputs = model.outputs(images(), loss.layers)
        assert margin_distances(model, images(), labels(), (HIDDEN,)).distances[HIDDEN].isfinite().all()
    with pytest.raises(
        ValueError, match=r"layer 'extractor.2' must have a graph to the logits.*margin_distances"
    ):
        loss(outputs, labels())


@pytest.mark.parametrize("gradients", [True, False])
def test_the_diagnostic_works_on_frozen_models_and_without_gradients(gradients):
    model = smooth_net()
    expected = margin_distances(model, images(), labels(), ("input", HIDDEN, "features"))
    model.requires_grad_(requires_grad=False)
    with torch.set_grad_enabled(gradients):
        found = margin_distances(model, images(), labels(), ("input", HIDDEN, "features"))
        assert torch.is_grad_enabled() == gradients
    for name, values in found.distances.items():
        assert torch.equal(values, expected.distances[name])
        assert not values.requires_grad


def test_the_diagnostic_refuses_training_mode():
    norm = nn.BatchNorm1d(64)
    part = Classifier(nn.Sequential(nn.Flatten(), norm), nn.Linear(64, 4)).eval()
    norm.train()
    with pytest.raises(ValueError, match="all its parts must be in evaluation mode"):
        margin_distances(part, torch.rand(6, 1, 8, 8), torch.zeros(6, dtype=torch.long))
    with pytest.raises(
        ValueError, match=r"`model` and all its parts must be in evaluation mode.*model.eval\(\)"
    ):
        margin_distances(smooth_net().train(), images(), labels())


def test_an_activation_that_has_no_part_in_the_logits():
    """As behind nn.DataParallel, whose captured tensors are not those that were gathered."""
    model = smooth_net()
    mine, other = (model.outputs(images(), ("input",)) for _ in range(2))
    mixed = Outputs(mine.features, mine.logits, mine.head, other.activations)
    for sweeps in ("sequential", "batched"):
        with pytest.raises(ValueError, match=r"layer 'input' must affect the logits.*DataParallel"):
            LargeMarginLoss(("input",), top_k=2, distance=DistanceSettings(sweeps=sweeps))(mixed, labels())


class Cut(nn.Module):
    def forward(self, x):
        return x.detach()


@pytest.mark.parametrize("more", [{}, {"distance": DistanceSettings(sweeps="batched")}])
def test_an_activation_that_is_cut_off_before_the_features(more):
    model = smooth_net()
    extractor = nn.Sequential(*model.extractor, Cut())
    cut = Classifier(extractor, model.head, 0.4, 0.5).double()
    with pytest.raises(ValueError, match=r"layer 'input' must affect the logits.*is not detached"):
        loss_of(cut, ("input",), **{"top_k": 2, **more})


class TimeFirst(nn.Module):
    def forward(self, x):
        return x.flatten(1).mT


class BatchFirst(nn.Module):
    def forward(self, x):
        return x.mT


def test_an_activation_whose_first_axis_is_not_the_batch():
    extractor = nn.Sequential(TimeFirst(), BatchFirst())
    model = Classifier(extractor, nn.Linear(9, CLASSES)).double()
    with pytest.raises(
        ValueError, match=r"first axis of layer 'extractor.0' must count the 6 samples.*\(9, 6\)"
    ):
        loss_of(model, ("extractor.0", "input"))


def test_one_logit_for_two_classes():
    model = Classifier(nn.Flatten(), nn.Linear(9, 1)).double()
    with pytest.raises(
        ValueError, match=r"at least two classes; got \(6, 1\).*give the second class the logit 0"
    ):
        loss_of(model, ("input",))


def test_a_spread_of_one_sample():
    model, loss = smooth_net(), LargeMarginLoss((HIDDEN,), distance=DistanceSettings(unit="spread"))
    with pytest.raises(ValueError, match="'spread' needs at least 2 samples"):
        loss(model.outputs(images(1), (HIDDEN,)), labels(1))


def test_a_compiled_extractor_is_refused_by_fit_with_the_reason():
    model = smooth_net().float()
    data = (images(8).float(), labels(8))
    with pytest.raises(ValueError, match=r"`compile_extractor` must be False with LargeMarginLoss, because"):
        fit(
            model,
            EndToEnd(LargeMarginLoss(("input",))),
            data,
            epochs=1,
            batch_size=4,
            execution=Execution(compile_extractor=True),
        )


def compiled_whole(extractor):
    """torch.compile's wrapper; no code runs, so any backend will do."""
    return torch.compile(extractor, backend="eager"), "extractor._orig_mod.2"


def compiled_in_place(extractor):
    """The module's own method, which keeps names."""
    extractor.compile(backend="eager")
    return extractor, "extractor.2"


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        (compiled_whole, "must not lie in compiled code, because torch.compile keeps no activation"),
        (compiled_in_place, "must not lie in compiled code"),
        (
            lambda e: (nn.DataParallel(e), "extractor.module.2"),
            "must not lie in nn.DataParallel, because.*torch.distributed",
        ),
    ],
)
def test_a_layer_that_runs_as_a_copy(wrapped, message):
    """Of activations that the logits were not made from there is no gradient, or a wrong reason for that."""
    plain = smooth_net()
    extractor, layer = wrapped(plain.extractor)
    model = Classifier(extractor, plain.head, 0.4, 0.5).double().eval()
    with pytest.raises(ValueError, match=f"layer '{layer}' {message}"):
        loss_of(model, ("input", layer))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks at every input's
def test_the_input_of_compiled_and_of_copied_networks_is_no_such_layer():
    """Nor are the features: both stand outside what is compiled or copied."""
    layers = ("input", "features", "logits")
    expected = loss_of(smooth_net(), layers, top_k=2)
    plain = smooth_net()
    copied = Classifier(nn.DataParallel(plain.extractor), plain.head, 0.4, 0.5).double().eval()
    wrapped: Any = torch.compile(plain.extractor, backend="aot_eager")
    compiled = Classifier(wrapped, plain.head, 0.4, 0.5)
    for model in (copied, compiled.double().eval()):
        for sweeps in ("sequential", "batched"):
            found = loss_of(model, layers, top_k=2, distance=DistanceSettings(sweeps=sweeps))
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
            found.backward()
            assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
            model.zero_grad()


def test_quantile_settings():
    with pytest.raises(ValueError, match="`batches` must be a whole number of at least 1"):
        GammaQuantile(batches=0)


def test_a_margin_of_every_few_steps_is_whole_in_a_validation():
    model, loss = network(hidden=True), LargeMarginLoss(("input",), every=4)
    given = model.outputs(small_images(), ("input",))
    expected = LargeMarginLoss(("input",))(given, LABELS).terms["margin"]
    for steps in (0, 1):
        loss.steps.fill_(steps)
        with torch.no_grad():
            found = loss(model.outputs(small_images(), loss.layers), LABELS).terms["margin"]
        torch.testing.assert_close(found, expected.detach())
