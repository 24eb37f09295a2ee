"""The way from one head to another: exact cases, what breaks down, and what a page draws."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from audits.pixel_world import AUDIT, SEED, WORLD, by_key, pixels
from clearance.audits import Geodesic
from clearance.audits.geodesic import METRICS, Paths, exhibits, fisher_rows, measurements
from clearance.data import ImageSet
from clearance.models import Classifier
from clearance.report import drawing


def test_the_list_of_measurements_is_complete(geodesic_findings):
    keys = set(by_key(geodesic_findings))
    assert len(keys) == len(geodesic_findings.measurements) == 3 * 2 * 3 * 4 + 2 * 2 + 2
    assert ("distance", "empirical", "all", "raw", "calibrated") not in keys
    assert {m.unit for m in geodesic_findings.measurements if m.name == "distance"} == {"nats", "ratio"}


def test_same_features_same_numbers_and_another_seed_others(geodesic_findings, train, held_out):
    assert AUDIT(pixels(), train, held_out, seed=SEED) == geodesic_findings
    other = by_key(AUDIT(pixels(), train, held_out, seed=SEED + 1))
    mine = by_key(geodesic_findings)
    assert other.keys() == mine.keys()
    assert all(other[key].value != m.value for key, m in mine.items() if key[0] == "distance")


@pytest.mark.parametrize("factor", [50.0, 0.02])
def test_features_in_another_unit_give_the_same_rms_numbers_and_other_raw_ones(
    geodesic_findings, train, held_out, factor
):
    mine, scaled = by_key(geodesic_findings), by_key(AUDIT(pixels(factor), train, held_out, seed=SEED))
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


def test_classes_that_are_points_need_a_shorter_way(train, held_out, geodesic_findings):
    """Every image of a class in one place: what one image teaches is what all of them do."""
    points = ImageSet(WORLD.means()[train.labels].float(), train.labels, train.classes)
    found, mine = by_key(AUDIT(pixels(), points, held_out, seed=SEED)), by_key(geodesic_findings)
    for metric in METRICS:
        for temperature in ("as trained", "calibrated"):
            key = ("distance", metric, "all", "rms", temperature)
            assert found[key].value < 0.5 * mine[key].value


def test_raw_features_too_large_for_the_step_size_are_measured_as_diverged(
    train, held_out, geodesic_findings
):
    found, mine = by_key(AUDIT(pixels(1e12), train, held_out, seed=SEED)), by_key(geodesic_findings)
    assert found["diverged_heads", "raw"].value == 3
    assert found["diverged_heads", "rms"].value == 0
    assert found["path_error_rise", "raw", "as trained"].value == pytest.approx(2 / 3)
    assert found["worst_path_error", "raw", "as trained"].value == pytest.approx(2 / 3)
    for key, m in found.items():
        if key[0] in ("distance", "length"):
            expected = math.inf if "raw" in key else mine[key].value
            assert m.value == pytest.approx(expected, rel=1e-4)
            assert (m.spread is None) == ("raw" in key)


@pytest.mark.parametrize("factor", [3.0, 30.0, 300.0, 3e3])
def test_no_finite_distance_comes_from_a_head_that_is_worse_than_guessing(factor, train, held_out):
    """Between a good fit and weights that overflow lies a range where they are only thrown far away."""
    found = AUDIT(pixels(factor), train, held_out, seed=SEED)
    finite = [
        m.value
        for m in found.measurements
        if m.name == "distance" and m.context["features"] == "raw" and math.isfinite(m.value)
    ]
    assert all(value < 1e3 for value in finite)


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


def test_exhibits_are_curves_that_a_page_can_draw(geodesic_findings):
    shown = {(e.name, e.context["features"]): e for e in geodesic_findings.exhibits}
    assert set(shown) == {(n, f) for n in ("path_error", "segments") for f in ("rms", "raw")}
    path, parts = shown["path_error", "rms"], shown["segments", "rms"]
    assert list(path.columns) == ["position", "error"]
    assert path.columns["position"] == [0, 1, 2, 3, 4, 5]
    assert list(parts.columns) == ["segment", "layer 1", "layer 2", "layer 3"]
    assert parts.columns["segment"] == [1, 2, 3, 4, 5]
    found = by_key(geodesic_findings)
    rise = path.columns["error"][-1] - path.columns["error"][0]
    assert rise == pytest.approx(found["path_error_rise", "rms", "as trained"].value)
    for layer in "123":  # a length is the sum of its segments, and so are their means
        length = found["length", "empirical", layer, "rms", "as trained"].value
        assert sum(parts.columns[f"layer {layer}"]) == pytest.approx(length)
    lines = drawing.draw(parts).axes[0].lines
    assert [line.get_label() for line in lines] == ["layer 1", "layer 2", "layer 3"]
    for exhibit in exhibits(broken_and_whole(), chance=0.6):
        drawing.draw(exhibit)


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
