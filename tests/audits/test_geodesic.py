"""The way from one head to another, against a slow walk with every sample's gradient, and exact cases."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax
from torch import nn
from torch.func import functional_call, grad, vmap

from clearance._rng import generator
from clearance.audits import Geodesic, geodesic
from clearance.audits._geodesic_findings import METRICS, Paths, exhibits, measurements
from clearance.audits._partial_sets import partial_sets
from clearance.audits._temperature import fitted_temperature
from clearance.audits.co_adaptation import head_training
from clearance.audits.geodesic import fisher_rows
from clearance.data import GaussianClasses, ImageSet
from clearance.heads import MLP, HeadStack
from clearance.models import Classifier
from clearance.report import kinds

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=2.0, noise=0.05)
SEED = 3
AUDIT = Geodesic(segments=5, repetitions=3, hidden=(8, 7))
LAYERS = ("1", "2", "3", "all")


class Times(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, features):
        return self.factor * features


def pixels(factor=1.0):
    """A classifier whose features are the pixels, so that everything about them is known."""
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Flatten(), Times(factor)), nn.Linear(16, 3), mean=0.5, std=0.05)


@pytest.fixture(scope="module")
def train():
    return WORLD.images(per_class=60, seed=0)


@pytest.fixture(scope="module")
def held_out():
    return WORLD.images(per_class=100, seed=1)


@pytest.fixture(scope="module")
def findings(train, held_out):
    return AUDIT(pixels(), train, held_out, seed=SEED)


def by_key(findings):
    return {(m.name, *m.context.values()): m for m in findings.measurements}


def trained_alone(head, features, labels, rows, order):
    """One head under torch's own optimiser; `order` gives the rows of every step, None all."""
    settings = head_training(len(rows), 0.03)
    optimizer = torch.optim.SGD(head.parameters(), lr=settings.lr, momentum=0.9, nesterov=True)
    for step in range(settings.steps):
        chosen = rows if order is None else rows[order[step]]
        optimizer.zero_grad()
        F.cross_entropy(head(features[chosen]), labels[chosen]).backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in head.named_parameters()}


def slow_ends(features, train):
    """The head of all images and the three of one image a class, float64."""
    architecture = MLP((16, 8, 7, 3))
    first = HeadStack.initialised(architecture, 1, generator(SEED, "geodesic", "first weights"))
    stream = generator(SEED, "geodesic", "batches", 180)
    order: list[torch.Tensor] = []
    while len(order) < 200:
        order += torch.randperm(180, generator=stream).split(128)
    draws = partial_sets(train, (1,), (3,), SEED)[0].rows
    ways = [(torch.arange(180), order), *((rows, None) for rows in draws)]
    heads = [first[0].double().requires_grad_(requires_grad=True) for _ in ways]
    return [trained_alone(h, features, train.labels, *way) for h, way in zip(heads, ways, strict=True)]


def slow_segments(full, few, features, labels):
    """Eq. 16 for every segment: (3 metrics, 4 layers, P), through every sample's gradient."""
    architecture = MLP((16, 8, 7, 3))

    def log_p(parameters, sample, c):
        return functional_call(architecture, parameters, (sample,)).log_softmax(dim=0)[c]

    slope = vmap(grad(log_p), (None, 0, None))
    found = torch.zeros(3, 4, AUDIT.segments, dtype=torch.float64)
    for a in range(AUDIT.segments):
        here = {n: (a * few[n] + (AUDIT.segments - a) * full[n]) / AUDIT.segments for n in full}
        step = {n: (few[n] - full[n]) / AUDIT.segments for n in full}
        chances = functional_call(architecture, here, (features,)).softmax(dim=1)
        for row, prefix in enumerate(("0.", "2.", "4.", "")):
            own = [n for n in full if n.startswith(prefix)]
            along = []
            for c in range(3):
                g = slope(here, features, c)
                along.append(sum((g[n] * step[n]).flatten(1).sum(dim=1) for n in own))
            u = torch.stack(along, dim=1)
            true = u.gather(1, labels[:, None])
            found[0, row, a] = true.square().mean().sqrt()
            found[1, row, a] = (chances * u.square()).sum(dim=1).mean().sqrt()
            found[2, row, a] = sum(step[n].square().sum() for n in own) ** 0.5
    return found


def slow_errors(full, few, features, labels):
    architecture = MLP((16, 8, 7, 3))
    found = []
    for a in range(AUDIT.segments + 1):
        here = {n: full[n] + a / AUDIT.segments * (few[n] - full[n]) for n in full}
        wrong = functional_call(architecture, here, (features,)).argmax(dim=1) != labels
        found.append(float(wrong.double().mean()))
    return found


def calibrated(head, features, labels):
    logits = functional_call(MLP((16, 8, 7, 3)), head, (features,))
    temperature = fitted_temperature(logits, labels)
    return {name: value / temperature if name.startswith("4.") else value for name, value in head.items()}


@pytest.mark.parametrize("reading", ["rms", "raw"])
def test_every_number_is_that_of_a_slow_walk(findings, train, held_out, reading):
    """Heads trained one by one in float64 and Eq. 14-16 in words, against heads trained in float32."""
    features = ((train.images - 0.5) / 0.05).flatten(1).double()
    queries = ((held_out.images - 0.5) / 0.05).flatten(1).double()
    if reading == "rms":
        unit = features.square().mean().sqrt() * (16 / 128) ** 0.5
        features, queries = features / unit, queries / unit
    full, *draws = slow_ends(features, train)
    rows = fisher_rows(180, SEED)
    half, other = rows[:90], rows[90:]
    found = by_key(findings)
    walks = {"as trained": [slow_segments(full, few, features[rows], train.labels[rows]) for few in draws]}
    if reading == "rms":
        calm = [calibrated(head, features[half], train.labels[half]) for head in (full, *draws)]
        walks["calibrated"] = [
            slow_segments(calm[0], few, features[other], train.labels[other]) for few in calm[1:]
        ]
    for temperature, segments in walks.items():
        for name, values in (
            ("distance", torch.stack(segments).square().sum(dim=-1).sqrt()),
            ("length", torch.stack(segments).sum(dim=-1)),
        ):
            for m, metric in enumerate(METRICS):
                for row, layer in enumerate(LAYERS):
                    measured = found[name, metric, layer, reading, temperature]
                    truth = values[:, m, row]
                    assert measured.value == pytest.approx(float(truth.mean()), rel=1e-3)
                    assert measured.spread == pytest.approx(float(truth.std()), rel=0.05, abs=1e-3)
                    assert measured.n == 3
    errors = torch.tensor([slow_errors(full, few, queries, held_out.labels) for few in draws])
    rise, worst = errors[:, -1] - errors[:, 0], errors.max(dim=1).values - errors[:, 0]
    image = 1.01 / len(held_out)  # float32 against float64: at most one image on the edge of a boundary
    measured = found["path_error_rise", reading, "as trained"]
    assert measured.value == pytest.approx(float(rise.mean()), abs=image)
    assert found["worst_path_error", reading, "as trained"].value == pytest.approx(
        float(worst.mean()), abs=image
    )
    assert found["diverged_heads", reading].value == 0


def test_the_list_of_measurements_is_complete(findings):
    keys = set(by_key(findings))
    assert len(keys) == len(findings.measurements) == 3 * 2 * 3 * 4 + 2 * 2 + 2
    assert ("distance", "empirical", "all", "raw", "calibrated") not in keys
    assert {m.unit for m in findings.measurements if m.name == "distance"} == {"nats", "ratio"}


def test_same_features_same_numbers_and_another_seed_others(findings, train, held_out):
    assert AUDIT(pixels(), train, held_out, seed=SEED) == findings
    other = by_key(AUDIT(pixels(), train, held_out, seed=SEED + 1))
    mine = by_key(findings)
    assert other.keys() == mine.keys()
    assert all(other[key].value != m.value for key, m in mine.items() if key[0] == "distance")


@pytest.mark.parametrize("factor", [50.0, 0.02])
def test_features_in_another_unit_give_the_same_rms_numbers_and_other_raw_ones(
    findings, train, held_out, factor
):
    mine, scaled = by_key(findings), by_key(AUDIT(pixels(factor), train, held_out, seed=SEED))
    for key, m in mine.items():
        if "rms" in key:
            assert scaled[key].value == pytest.approx(m.value, rel=1e-5, abs=1e-12), key
        elif key[0] == "distance":
            assert scaled[key].value != pytest.approx(m.value, rel=0.01), key


def test_heads_of_the_same_images_are_in_one_place(held_out):
    """One image of each class is the whole training set: both ends are one head, and there is one draw."""
    train = WORLD.images(per_class=1, seed=0)
    found = AUDIT(pixels(), train, held_out, seed=SEED)
    for m in found.measurements:
        assert m.value == pytest.approx(0.0, abs=1e-5), m
        assert m.n == 1
        assert m.spread is None


def test_classes_that_are_points_need_a_shorter_way(train, held_out, findings):
    """Every image of a class in one place: what one image teaches is what all of them do."""
    points = ImageSet(WORLD.means()[train.labels].float(), train.labels, train.classes)
    found, mine = by_key(AUDIT(pixels(), points, held_out, seed=SEED)), by_key(findings)
    for metric in METRICS:
        for temperature in ("as trained", "calibrated"):
            key = ("distance", metric, "all", "rms", temperature)
            assert found[key].value < 0.5 * mine[key].value


def test_raw_features_too_large_for_the_step_size_are_measured_as_diverged(train, held_out, findings):
    found, mine = by_key(AUDIT(pixels(1e12), train, held_out, seed=SEED)), by_key(findings)
    assert found["diverged_heads", "raw"].value == 3
    assert found["diverged_heads", "rms"].value == 0
    assert found["path_error_rise", "raw", "as trained"].value == pytest.approx(2 / 3)
    assert found["worst_path_error", "raw", "as trained"].value == pytest.approx(2 / 3)
    for key, m in found.items():
        if key[0] in ("distance", "length"):
            expected = math.inf if "raw" in key else mine[key].value
            assert m.value == pytest.approx(expected, rel=1e-4)
            assert (m.spread is None) == ("raw" in key)


@pytest.mark.parametrize("place", ["train", "test"])
def test_a_feature_that_is_not_a_number_is_the_worst_and_no_crash(train, held_out, place):
    class OneNaN(nn.Module):
        """NaN for images of a set brighter than any other."""

        def forward(self, features):
            return torch.where(features.amax(dim=1, keepdim=True) > 1e3, torch.nan, features)

    model = Classifier(nn.Sequential(nn.Flatten(), OneNaN()), nn.Linear(16, 3), mean=0.5, std=1e-6)
    dark = {"train": train, "test": held_out}
    sets = {
        name: dataclasses.replace(data, images=torch.full_like(data.images, 0.5))
        for name, data in dark.items()
    }
    sets[place] = dark[place]
    found = AUDIT(model, sets["train"], sets["test"], seed=SEED)
    for m in found.measurements:
        if m.name in ("distance", "length"):
            assert m.value == math.inf
            assert m.spread is None
        elif m.name != "diverged_heads":
            assert m.value == pytest.approx(2 / 3)
    assert all(value is None for value in found.exhibits[1].columns["layer 1"])


def broken_and_whole():
    """Two draws of which the second has a broken end: 3 metrics, 2 layers and all, 2 segments."""
    segments = torch.ones(2, 3, 3, 2, dtype=torch.float64)
    segments[1] = torch.inf
    errors = torch.tensor([[0.1, 0.4, 0.3], [torch.nan] * 3], dtype=torch.float64)
    return Paths("rms", "as trained", segments, errors, 1)


def test_a_broken_draw_counts_as_infinitely_far_and_as_guessing():
    found = {(m.name, m.context.get("metric"), m.context.get("layer")): m for m in
             measurements(broken_and_whole(), chance=0.6)}  # fmt: skip
    assert found["distance", "empirical", "2"].value == math.inf
    assert found["path_error_rise", None, None].value == pytest.approx((0.2 + 0.6) / 2)
    assert found["worst_path_error", None, None].value == pytest.approx((0.3 + 0.6) / 2)
    assert found["worst_path_error", None, None].n == 2
    assert found["diverged_heads", None, None].value == 1


def test_exhibits_are_curves_that_a_page_can_draw(findings):
    shown = {(e.name, e.context["features"]): e for e in findings.exhibits}
    assert set(shown) == {(n, f) for n in ("path_error", "segments") for f in ("rms", "raw")}
    path, parts = shown["path_error", "rms"], shown["segments", "rms"]
    assert list(path.columns) == ["position", "error"]
    assert path.columns["position"] == [0, 1, 2, 3, 4, 5]
    assert list(parts.columns) == ["segment", "layer 1", "layer 2", "layer 3"]
    assert parts.columns["segment"] == [1, 2, 3, 4, 5]
    found = by_key(findings)
    rise = path.columns["error"][-1] - path.columns["error"][0]
    assert rise == pytest.approx(found["path_error_rise", "rms", "as trained"].value)
    for layer in "123":  # a length is the sum of its segments, and so are their means
        length = found["length", "empirical", layer, "rms", "as trained"].value
        assert sum(parts.columns[f"layer {layer}"]) == pytest.approx(length)
    lines = kinds.draw(parts).axes[0].lines
    assert [line.get_label() for line in lines] == ["layer 1", "layer 2", "layer 3"]
    for exhibit in exhibits(broken_and_whole(), chance=0.6):
        kinds.draw(exhibit)


def test_how_many_images_the_information_is_taken_over():
    assert [len(fisher_rows(n, 0)) for n in (3, 400, 9_000, 20_000, 49_999, 60_000)] == [
        3, 400, 500, 1000, 2500, 2500,
    ]  # fmt: skip
    rows = fisher_rows(20_000, 5)
    assert len(rows.unique()) == 1000
    assert torch.equal(rows, fisher_rows(20_000, 5))
    assert not torch.equal(rows, fisher_rows(20_000, 6))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segments": 0}, "`segments` must be a whole number of at least 1; got 0"),
        ({"repetitions": 0}, "`repetitions` must be"),
        ({"hidden": (8, 0)}, "`hidden` must be"),
        ({"lr": 0.0}, "`lr` must be a finite number above 0"),
        ({"readings": ("rsm",)}, "`readings` must be one of 'rms', 'raw'; got 'rsm'. Did you mean 'rms'?"),
        ({"readings": ()}, "`readings` must name one reading or more"),
        ({"readings": ("raw", "raw")}, "each once"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Geodesic(**settings)


def test_temperature_is_a_minimum_and_follows_the_logits():
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (200,), generator=stream)
    logits = 3 * torch.randn(200, 4, generator=stream, dtype=torch.float64) + 4 * F.one_hot(labels, 4)
    found = fitted_temperature(logits, labels)

    def slow(temperature):  # two hundred images, and one that is a quarter of each class
        log_p = log_softmax(logits.numpy() / temperature, axis=1)
        own = log_p[range(200), labels.numpy()]
        return -(own + log_p.mean(axis=1) / 200).sum()

    assert slow(found) < min(slow(found * 0.999), slow(found * 1.001))
    assert fitted_temperature(40 * logits, labels) == pytest.approx(40 * found, rel=1e-5)


def test_temperature_undoes_a_known_one():
    stream = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(20_000, 5, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]
    assert fitted_temperature(7 * logits, labels) == pytest.approx(7.0, rel=0.03)


def test_a_head_that_is_always_right_has_a_temperature():
    """Two classes, margin 1, n images right: sigmoid(1/T) = 1 - 1 / (2 (n + 1)), so T = 1 / log(2 n + 1)."""
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(25, 1)
    labels = torch.tensor([0, 1]).repeat(25)
    assert fitted_temperature(logits, labels) == pytest.approx(1 / math.log(101), rel=1e-6)


def test_calibration_does_not_see_how_sure_the_heads_were(train):
    """Heads of which each has a best temperature, that is, is right more often than by chance."""
    stream = torch.Generator().manual_seed(2)
    full = HeadStack.initialised(MLP((16, 8, 3)), 1, stream, std=0.5)
    few = HeadStack.initialised(MLP((16, 8, 3)), 2, stream, std=0.5)
    features = (train.images.flatten(1) - 0.5) / 0.05
    labels = full.predictions(features)[0]
    few = few.holding({n: v + 2 * full.parameters[n] for n, v in few.parameters.items()})
    ends = geodesic._Ends(full, few, torch.zeros(2, dtype=torch.bool))

    def surer(stack, factor):
        return stack.holding(
            {n: factor * v if n.startswith("2.") else v for n, v in stack.parameters.items()}
        )

    found = geodesic._calibrated(ends, features, labels)
    again = geodesic._calibrated(
        dataclasses.replace(ends, full=surer(full, 9.0), few=surer(few, 0.3)), features, labels
    )
    for before, after in ((found.full, again.full), (found.few, again.few)):
        for name, value in before.parameters.items():
            torch.testing.assert_close(after.parameters[name], value, rtol=1e-4, atol=1e-7, check_dtype=False)
