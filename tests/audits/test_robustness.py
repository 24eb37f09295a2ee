"""The verdict under attack: what it must not depend on, and what it must not be fooled by."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from clearance.attacks import PGD
from clearance.audits import MinimalPerturbation, Robustness, Subject, robustness
from clearance.audits.robustness import Reason, Signs
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier
from digits_nets import RoundingFront, Times, digits, margin_network, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
    foolbox = pytest.importorskip("foolbox")

EPSILON = 0.08


def headed(scale=1.0, model=None):
    """The network with a head that is louder by `scale`, as a Classifier."""
    found = network() if model is None else model
    return Classifier(found.extractor, Times(found.head, scale))


def audited(model, test=None, **settings):
    train, whole = digits()
    chosen = {"epsilons": {"inf": (EPSILON,)}, "queries": 500, **settings}
    return Robustness(**chosen)(model, train, whole if test is None else test)


def values(findings, name="robust_accuracy"):
    return [m.value for m in findings.measurements if m.name == name]


@pytest.fixture(scope="module")
def whole():
    """Verdicts on the whole test set as the audit comes, by scale of logits."""
    return {scale: audited(headed(scale)) for scale in (1.0, 50.0)}


def on_some(model, order=None):
    """Both norms on 60 images, few steps: for properties that hold at any length."""
    some = digits()[1].per_class(6, seed=0)
    epsilons = {"inf": (EPSILON,), "2": (0.4,)}
    return audited(model, some if order is None else some.subset(order), epsilons=epsilons, steps=12)


@pytest.fixture(scope="module")
def quiet():
    """Findings on the smaller set."""
    return on_some(headed())


def test_logits_times_64_change_no_bit_of_the_verdict(quiet):
    loud = on_some(headed(64.0))
    for name in ("robust_accuracy", "noise_accuracy", "full_radius_accuracy"):
        assert values(loud, name) == values(quiet, name)
    # which plain attacks cannot say: they see little of a network this loud
    assert values(loud, "cross_entropy_attack_accuracy")[0] > values(quiet)[0] + 0.05
    assert all("plain attacks" in one.columns["about"] for one in loud.exhibits if one.name == "alarms")
    assert values(loud, "alarms") == values(quiet, "alarms")


@pytest.mark.slow
def test_logits_times_50_move_at_most_two_images_of_the_test_set(whole):
    count = len(digits()[1])
    for one, other in zip(values(whole[50.0]), values(whole[1.0]), strict=True):
        assert abs(one - other) * count <= 2


def test_order_does_not_matter(quiet):
    shuffled = on_some(headed(), torch.randperm(60, generator=torch.Generator().manual_seed(0)))
    assert values(shuffled) == pytest.approx(values(quiet), abs=1e-12)


def test_order_does_not_matter_where_only_some_are_looked_at():
    train, test = digits()
    audit = Robustness(epsilons={"inf": (EPSILON,)}, steps=5, queries=20, images=40)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    one, other = (audit(headed(), train, data) for data in (test, test.subset(order)))
    assert 0 < values(one)[0] < 1
    assert values(one) == values(other)


def test_the_verdict_is_the_worst_case_and_below_the_others(quiet):
    for name in ("cross_entropy_attack_accuracy", "noise_accuracy"):
        pairs = zip(values(quiet), values(quiet, name), strict=True)
        assert all(verdict <= other for verdict, other in pairs)
    verdict = next(m for m in quiet.measurements if m.name == "robust_accuracy")
    assert verdict.low < verdict.value < verdict.high
    assert verdict.n == 60
    assert dict(verdict.context) == {"norm": "inf", "epsilon": EPSILON, "interval": "wilson 95 %"}


def left_by_foolbox(model, test):
    """Share of images that 40 steps of its PGD with restarts leave, logits in units of their median top-two gap."""
    with torch.no_grad():
        top = model(test.images).topk(2, dim=1).values
    unit = float((top[:, 0] - top[:, 1]).median())
    wrapped = foolbox.PyTorchModel(Times(model, 1 / unit), bounds=(0, 1), device="cpu")
    alive = torch.ones(len(test), dtype=torch.bool)
    torch.manual_seed(0)
    for random_start in (False, True, True):
        attack = foolbox.attacks.LinfPGD(steps=40, rel_stepsize=2.5 / 40, random_start=random_start)
        _, _, success = attack(wrapped, test.images, test.labels, epsilons=EPSILON)
        alive &= ~success
    return float(alive.double().mean())


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_at_most_half_a_point_above_foolbox_with_restarts_on_scaled_logits(whole, scale):
    verdict = values(whole[scale])[0]
    assert verdict <= left_by_foolbox(network(), digits()[1]) + 0.005


def test_nor_is_it_of_a_network_trained_for_a_margin():
    some = digits()[1].per_class(12, seed=0)
    model = headed(50.0, margin_network())
    verdict = values(audited(model, some))[0]
    assert verdict <= left_by_foolbox(model, some) + 0.005
    assert verdict > values(audited(network(), some, steps=5))[0] + 0.05  # the margin did something


@pytest.mark.parametrize(
    ("norm", "epsilon", "with_source"),
    [
        (math.inf, EPSILON, True),
        (math.inf, EPSILON, False),
        (2.0, 0.5, True),
        (2.0, 0.5, False),
        (1.0, 2.0, False),
    ],
)
def test_a_rounding_front_is_never_called_robust(norm, epsilon, with_source):
    _, test = digits()
    some = test.per_class(3, seed=0)
    hidden = Classifier(RoundingFront(network().extractor), network().head)
    found = audited(hidden, some, source=network() if with_source else None, epsilons={norm: (epsilon,)})
    made = PGD(epsilon, norm, loss="cross_entropy").perturbed(network(), some.images, some.labels)
    hidden.eval()
    transfer = float((hidden(made).argmax(1) == some.labels).double().mean())
    plain = values(found, "cross_entropy_attack_accuracy")[0]
    assert plain > transfer + 0.1  # gradients alone would be fooled
    assert values(found)[0] <= transfer + 0.01
    assert values(found, "alarms")[0] >= 1
    assert ("transfer" in found.exhibits[0].columns) == with_source
    (alarms,) = [one for one in found.exhibits if one.name == "alarms"]
    assert alarms.columns["about"].count("verdict") == values(found, "alarms")[0]
    shares = dict(zip(alarms.columns["reason"], alarms.columns["share"], strict=True))
    assert shares["{} of images have no gradient"] == values(found, "zero_gradients")[0] > 0.5
    assert set(alarms.columns["about"]) == {"verdict", "plain attacks"}


class WholeDivision(torch.nn.Module):
    def forward(self, images):
        return (8 * images + 0.5) // 1 / 8


def test_nor_is_one_that_torch_cannot_differentiate():
    """``//`` has no derivative at all; other ways to write a rounding are in test_straight_through.py."""
    some = digits()[1].per_class(3, seed=0)
    hidden = Classifier(torch.nn.Sequential(WholeDivision(), network().extractor), network().head).eval()
    made = PGD(EPSILON, loss="cross_entropy").perturbed(network(), some.images, some.labels)
    transfer = float((hidden(made).argmax(1) == some.labels).double().mean())
    found = audited(hidden, some)
    assert values(found, "zero_gradients")[0] == 1
    assert values(found)[0] <= transfer + 0.01


@pytest.mark.parametrize("sharpness", [1.0, 50.0])
def test_probabilities_are_refused(sharpness):
    """Behind a saturated softmax attacks see no way, whatever their loss."""
    sure = headed(sharpness)
    sure.head = nn.Sequential(sure.head, nn.Softmax(dim=1))
    with pytest.raises(
        ValueError, match="must return logits; its outputs are at least 0 and sum to one for all 10"
    ):
        audited(sure, images=10)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_loud_logits_mislead_plain_attacks_and_raise_no_alarm(scale):
    found = audited(headed(scale), digits()[1].per_class(4, seed=0), steps=10, queries=50)
    assert values(found, "alarms") == [0]
    about = [one for shown in found.exhibits if shown.name == "alarms" for one in shown.columns["about"]]
    assert set(about) == ({"plain attacks"} if scale > 1 else set())


def test_the_words_name_what_was_seen():
    calm = Signs(0.5, 0.5, 0.9, 0.0, 0.0, 0.0)
    assert calm.doubts() == calm.fooled(0.5) == []
    noisy = Signs(0.5, 0.9, 0.4, 0.2, 0.3, 0.8, transfer=0.1)
    assert [reason.share for reason in noisy.doubts()] == [0.3, 0.4, 0.2, 0.1]
    assert noisy.fooled(0.1) == [
        Reason("cross-entropy has no gradient on {} of images", 0.8),
        Reason("cross-entropy attacks miss {} of images that others break", 0.9 - 0.1),
    ]


def test_on_a_linear_world_the_verdict_is_the_closed_form():
    """Two classes, a hyperplane, pixels far from their bounds: survivors are those farther than epsilon."""
    world = GaussianClasses(class_count=2, shape=(1, 3, 3), separation=2.0, noise=0.02)
    train, test = world.images(20, seed=0), world.images(80, seed=1)
    head = nn.Linear(9, 2)
    model = Classifier(nn.Flatten(), head)
    with torch.no_grad():
        means = torch.stack([train.images[train.labels == k].flatten(1).mean(0) for k in range(2)])
        head.weight.copy_(means)
        head.bias.copy_(-means.square().sum(1) / 2)
    rows = test.images.flatten(1).double()
    logits = rows @ head.weight.detach().T.double() + head.bias.detach().double()
    gap = torch.where(test.labels == 0, 1, -1) * (logits[:, 0] - logits[:, 1])
    across = (head.weight[0] - head.weight[1]).detach().double()
    epsilons = {"inf": (0.005, 0.01), "2": (0.02,), "1": (0.05,)}
    found = Robustness(epsilons=epsilons, steps=20, queries=100)(model, train, test)
    radii = [(0.005, 1), (0.01, 1), (0.02, 2), (0.05, math.inf)]
    expected = [float((gap > eps * across.norm(p=dual)).double().mean()) for eps, dual in radii]
    assert all(0.02 < value < 0.99 for value in expected)
    assert values(found) == pytest.approx(expected, abs=1.5 / len(test))


def test_every_run_is_judged_on_the_same_images():
    train, test = digits()
    seen = {}
    for seed in (0, 1):
        model = headed()
        first: list[torch.Tensor] = []
        model.extractor.register_forward_pre_hook(
            lambda _, given, first=first: first.append(given[0].clone())
        )
        Robustness(epsilons={"inf": (0.2,)}, images=50, steps=1, queries=2)(model, train, test, seed)
        seen[seed] = first[0][:50]  # batches are filled up
    assert torch.equal(seen[0], seen[1])


def test_an_alarm_that_rang_at_a_radius_rings_at_the_next(monkeypatch):
    """What a square search breaks is not put down to gradients that find nothing."""
    monkeypatch.setattr(robustness, "scale_free_attacks", lambda *_: [])
    found = audited(
        headed(), digits()[1].per_class(4, seed=0), epsilons={"inf": (0.2, 0.201)}, steps=2, queries=100
    )
    assert min(values(found, "alarms")) > 0


def test_two_classes_are_attacked_from_a_source_that_is_sure_of_them():
    """Its probabilities are 1 to the last digit in units of its own logits, and have no gradient there."""
    images = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(0)) * 0.2
    labels = torch.arange(40) % 2
    images[:, 0, 0, 0] += 0.4 + 0.2 * labels
    data = ImageSet(images, labels, ("a", "b"))
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[1, 0] = 10.0
        head.bias.copy_(torch.tensor([0.0, -6.0]))
    model = Classifier(nn.Flatten(), head).eval()
    audit = Robustness(epsilons={"inf": (0.4,)}, steps=5, source=model)
    found = audit(model, data, data)
    assert values(found, "transfer_accuracy") == [0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilons": {"inf": (0.3, 0.1)}}, r"`epsilons\['inf'\]` must ascend"),
        ({"epsilons": {"inf": ()}}, "at least one radius"),
        ({"epsilons": {"inf": (8.0,)}}, "must be at most 1, the range of a pixel"),
        ({"epsilons": {2: (-1.0,)}}, r"`epsilons\['2'\]` must be a finite number above 0"),
        ({"epsilons": {"two": (1.0,)}}, "`norm` must be one of inf, 2, 1; got 'two'"),
        ({"images": 0}, "`images` must be a whole number"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Robustness(**settings)


def test_norms_are_words_or_numbers_and_only_those_given_are_measured():
    numbers: Any = {1: [0.5], math.inf: (0.1,), 2.0: ()}
    in_numbers = Robustness(epsilons=numbers)
    assert in_numbers == Robustness(epsilons={"inf": (0.1,), "1": (0.5,)})
    assert list(in_numbers.epsilons) == ["inf", "1"]
    assert MinimalPerturbation(norm=2) == MinimalPerturbation(norm="2")


@pytest.mark.parametrize(
    ("shape", "radii"),
    [
        ((1, 8, 8), {"inf": [0.1, 0.3], "2": [0.5]}),
        ((1, 16, 16), {"inf": [0.1, 0.3], "2": [2.0]}),
        ((3, 8, 8), {"inf": [8 / 255], "2": [0.5]}),
    ],
)
def test_radii_that_are_not_given_follow_from_the_kind_of_images(shape, radii):
    images = torch.rand(20, *shape, generator=torch.Generator().manual_seed(0))
    data = ImageSet(images, torch.arange(20) % 2, ("a", "b"))
    model = Classifier(nn.Flatten(), nn.Linear(math.prod(shape), 2)).eval()
    found = Robustness(steps=1, queries=1)(model, data, data)
    seen: dict[str, list[float]] = {}
    for m in found.measurements:
        if m.name == "robust_accuracy":
            seen.setdefault(str(m.context["norm"]), []).append(float(m.context["epsilon"]))
    assert seen == radii
    third = Robustness(epsilons={"1": None}, steps=1, queries=1)(model, data, data)
    assert {m.context["norm"] for m in third.measurements if m.name == "robust_accuracy"} == {"1"}


@pytest.mark.parametrize("epsilons", [(0.1,), 0.1, {"inf": 0.1}, {"inf": "0.1"}])
def test_radii_without_a_norm_are_refused(epsilons):
    with pytest.raises(TypeError, match="must be radii"):
        Robustness(epsilons=epsilons)


def test_it_says_how_many_radii_are_done():
    train, test = digits()
    subject = Subject(headed(), train, test.per_class(2, seed=0))
    said = []
    subject.on_progress = lambda done, of: said.append((done, of))
    epsilons = {"inf": (0.04, EPSILON), "2": (0.4,)}
    Robustness(epsilons=epsilons, steps=5, queries=20).examine(subject)
    assert said == [(1, 3), (2, 3), (3, 3)]
