"""What a page says of the sizes of weights, of distances on average, and of a setting that was swept."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clearance.records.record import ExhibitRecord, Record, RunNote
from clearance.records.store import Report
from clearance.report.audits import sections, with_summaries
from clearance.report.drawing import contact_sheet
from clearance.report.findings import Findings
from clearance.report.model_card import model_card
from clearance.report.page import render_page
from clearance.report.sweep import QUANTITIES, at_shown, over_setting
from clearance.report.terminal import first_text
from clearance.vocabulary import Exhibit, Measurement, Outcome
from report.section_parts import term_of

WEIGHTS = {
    ("weight_rms", "1"): 0.04, ("weight_rms", "2"): 0.005, ("weight_rms", "all"): 0.02, ("spectral_norm", "1"): 1.5,
    ("logit_scale", ""): 7.5, ("temperature", "likelihood"): 2.5, ("temperature", "median confidence"): 3.5,
    ("active_share", ""): 0.4, ("normalised_layers", ""): 1.0,
}  # fmt: skip
BOUNDARY = {"adversarial_distance": 1.25, "error_distance": 0.0625, "local_scale": 4.5, "bisected_distance": 1.75,
            "unreliable_share": 0.125}  # fmt: skip


def weights(method, seed, factor=1.0):
    for (name, which), value in WEIGHTS.items():
        key = "layer" if name in ("weight_rms", "spectral_norm") else "by"
        context = {key: which} if which else {}
        unit = "fraction" if name == "active_share" else "count" if name == "normalised_layers" else ""
        yield Record(
            "digits",
            method,
            seed,
            Measurement("weight_scale", name, factor * value, unit, 9, context=context),
        )


def boundary(method, seed, factor=1.0):
    for name, value in BOUNDARY.items():
        context = {"norm": "2"}
        yield Record(
            "digits",
            method,
            seed,
            Measurement("boundary_distance", name, factor * value, "ratio", 9, context=context),
        )
    angle = Measurement(
        "boundary_distance", "tilting_angle", factor * 1.125, "radians", 9, context={"direction": "centroid"}
    )
    yield Record("digits", method, seed, angle)
    search = Measurement(
        "boundary_distance",
        "minimum_distance",
        factor,
        "pixel units",
        9,
        context={"norm": "2", "class": "all"},
    )
    yield Record("digits", method, seed, search)


def report(*makers, recipe=None):
    records = tuple(
        r for make in makers for method in ("plain", "mine") for seed in (0, 1) for r in make(method, seed)
    )
    return with_summaries(Report(recipe or {}, {}, "made", "today", records=records))


def cells(section):
    """Texts of all tables of a section by column and line."""
    found = {}
    for part in section.parts:
        for line in getattr(part, "lines", ()):
            for column, cell in zip(part.columns, line.cells, strict=True):
                name = column.striptags() if hasattr(column, "striptags") else column
                found[str(part.title), name, line.name] = cell.striptags()
    return found


def test_sizes_stand_in_their_tables_layer_by_layer():
    (section,) = sections(Findings(report(weights), "digits"))
    assert section.title == "How large the weights and the logits are"
    found = {(column, line): text for (_, column, line), text in cells(section).items() if "stretch" not in _}
    assert found["layer 2", "plain training"].startswith("0.005")
    assert found["all layers", "plain training"].startswith("0.02")
    assert found["size of the logits", "plain training"].startswith("7.5")
    assert found["temperature, 95 % confidence", "plain training"].startswith("3.5")
    assert found["training images with a loss", "plain training"].startswith("40")


def test_which_parameters_decay_is_what_the_optimiser_did():
    def trained(method, decays):
        rows = [("weight", 90, *decays[0]), ("weight", 10, *decays[1]), ("bias or gain", 5, *decays[2])]
        role, numbers, factor, how = (list(column) for column in zip(*rows, strict=True))
        columns = {"role": role, "numbers": numbers, "weight_decay": factor, "how": how}
        return ExhibitRecord(
            "digits", method, 0, Exhibit("weight_scale", "decay", "curve", columns, "Decay.")
        )

    none = (0.0, "none")
    exhibits = (
        trained("plain", [(0.1, "coupled")] * 3),
        trained("mine", [(0.01, "decoupled"), none, none]),
    )
    shown = replace(report(weights), exhibits=exhibits)
    (section,) = sections(Findings(shown, "digits"))
    found = {(column, line): text for (_, column, line), text in cells(section).items()}
    assert found["weights", "plain training"] == "0.1, coupled"
    assert found["biases and gains", "plain training"] == "0.1, coupled"
    assert found["weights", "mine"] == "0.01, decoupled (90 %); not at all (10 %)"
    assert found["biases and gains", "mine"] == "not at all"
    assert "Which parameters decay" in render_page(shown)


def test_the_linear_case_s_numbers_stand_beside_the_search():
    (section,) = sections(Findings(report(boundary), "digits"))
    found = {(column, line): text for (_, column, line), text in cells(section).items()}
    for column, shown in (
        ("adversarial distance", "1.25"),
        ("error distance", "0.0625"),
        ("local scale", "4.5"),
        ("along the gradient, median", "1.75"),
        ("angle to the rival's average", "1.1"),
    ):
        assert found[column, "plain training"].startswith(shown), column
    assert ("angle to its nearest image", "plain training") not in found


def test_every_number_has_an_entry():
    made = {(r.measurement.audit, r.measurement.name) for r in report(weights, boundary).records}
    more = {("boundary_distance", name) for name in ("mirror_share", "mirror_stretch")}
    assert all(map(term_of, made | more))


class TestSweep:
    VALUES = (0.01, 0.1, 1.0)

    @pytest.fixture
    def swept(self):
        recipe = {"sweep": {"field": "weight_decay", "values": list(self.VALUES), "shown": 0.1}}
        records = tuple(
            replace(
                r,
                measurement=replace(r.measurement, context={**r.measurement.context, "weight_decay": value}),
            )
            for value in self.VALUES
            for method in ("plain", "mine")
            for seed in (0, 1)
            for make in (weights, boundary)
            for r in make(method, seed, 1 + value)
        )
        return with_summaries(Report(recipe, {}, "made", "today", records=records))

    def test_each_quantity_that_was_measured_has_a_curve_of_every_value(self, swept):
        made = over_setting(Findings(swept, "digits"))
        assert made is not None
        shown = made.exhibit.columns
        assert set(shown["quantity"]) == {"adversarial_distance", "angle", "scale", "local_scale"}
        wanted = {
            (one, value): mean
            for one, value, mean, method in zip(
                shown["quantity"], shown["setting"], shown["mean"], shown["method"], strict=True
            )
            if method == "mine"
        }
        assert wanted["adversarial_distance", 1.0] == pytest.approx(2 * 1.25)
        assert wanted["scale", 0.01] == pytest.approx(1.01 * 7.5)
        assert len(wanted) == 4 * 3
        assert {one.key for one in QUANTITIES} > set(shown["quantity"])

    def test_the_rest_of_the_page_is_at_one_value(self, swept):
        page = render_page(swept)
        assert "Over weight decay" in page
        (section,) = [
            one for one in sections(Findings(at_shown(swept), "digits")) if one.title.startswith("How large")
        ]
        found = {(column, line): text for (_, column, line), text in cells(section).items()}
        assert found["size of the logits", "plain training"].startswith("8.25")

    def test_a_terminal_and_a_model_card_are_at_the_same_value(self):
        recipe = {"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}}
        wrong = {0.1: 0.9, 0.2: 0.1}
        found = Report(recipe, {}, "made", "today", records=tuple(
            Record("digits", "plain", 0, Measurement("accuracy", "error", error, "fraction", 100, better="lower",
                                                     context={"split": "test", "lr": value}))
            for value, error in wrong.items()
        ))  # fmt: skip
        for text in (first_text(found), model_card(found)):
            assert "90" in text
            assert "50" not in text
            assert "All of this is at lr 0.2, one of 2 values." in text

    def test_one_methods_failed_runs_are_named(self):
        error = Measurement(
            "accuracy", "error", 0.5, "fraction", 100, better="lower", context={"split": "test"}
        )
        ended = (
            RunNote("plain", 0, Outcome.FINISHED, "finished at step 9"),
            RunNote("plain", 1, Outcome.DIVERGED, "diverged at step 3"),
        )
        found = Report({}, {}, "made", "today", records=(Record("digits", "plain", 0, error),), runs=ended)
        for text in (first_text(found), model_card(found)):
            assert "seed 1 diverged at step 3." in text

    def test_any_other_report_stays_as_it_is(self):
        plain = report(weights)
        assert at_shown(plain) is plain
        assert "Over weight decay" not in render_page(plain)


SURE = {"confident_distance": 2.5, "nearest_distance": 0.75, "reached": 0.875, "temperature": 3.25}


class TestSureMistakes:
    """A table over seeds, and a contact sheet of each method."""

    @staticmethod
    def numbers(method, seed):
        for name, value in SURE.items():
            unit = {"reached": "fraction", "temperature": ""}.get(name, "pixel units")
            yield Record(
                "digits", method, seed, Measurement("high_confidence_adversarials", name, value, unit, 9)
            )

    @staticmethod
    def sheet(method, seed, channels=1):
        black, white = ([[[value] * 4] * 3] * channels for value in (0.0, 1.0))
        columns: dict[str, list[Any]] = {
            "image": [black, white], "adversarial": [white, white], "label": ["night", "a $very$ long word"],
            "target": ["day", "night"], "confidence": [0.875, 0.5], "target_confidence": [0.9375, 0.25],
            "norm": [3.5, 0.0], "arrived": [True, False],
        }  # fmt: skip
        return ExhibitRecord(
            "digits",
            method,
            seed,
            Exhibit("high_confidence_adversarials", "contact_sheet", "images", columns, "Sheet."),
        )

    @pytest.fixture
    def report(self):
        sheets = tuple(self.sheet(method, seed) for method in ("plain", "mine") for seed in (0, 1))
        return replace(report(self.numbers), exhibits=sheets)

    def test_the_numbers_and_one_sheet_for_each_method(self, report):
        (section,) = sections(Findings(report, "digits"))
        found = {(column, line): text for (_, column, line), text in cells(section).items()}
        assert found["until confident in another class", "plain training"].startswith("2.5")
        assert found["nearest mistake found", "mine"].startswith("0.75")
        assert found["images that arrived", "mine"].startswith("87.5")
        assert found["temperature", "plain training"].startswith("3.25")
        pictures = [picture for part in section.parts for picture in getattr(part, "pictures", ())]
        assert len(pictures) == 2
        assert all(picture.caption.endswith("seed 0") for picture in pictures)
        for words in ("night", "day", "norm", "a $very$ …", "0.88", "0.94", "0.50", "0.25", "3.50", "0.00"):
            assert f">{words}<" in pictures[0].svg

    @pytest.mark.parametrize("channels", [1, 2, 3, 5])
    def test_a_change_is_grey_where_there_is_none(self, channels):
        drawn = contact_sheet(self.sheet("plain", 0, channels).exhibit.columns)
        change = [np.asarray(image.get_array()) for image in drawn.axes[2].images]
        assert [float(one.mean()) for one in change] == [1.0, 0.5]
        assert change[0].shape == ((3, 4, 3) if channels == 3 else (3, 4))

    def test_the_page_has_every_number_in_its_glossary(self, report):
        assert all(term_of(("high_confidence_adversarials", name)) for name in SURE)
        assert "Distance to a high-confidence mistake" in render_page(report)
