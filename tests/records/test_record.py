"""Records survive the way to JSON and back, and the flat form is the one that machines rely on."""

import json
import math

import numpy as np
import pytest

from clearance.records.encoding import decode, encode
from clearance.records.record import ExhibitRecord, Record, RunNote
from clearance.vocabulary import Exhibit, Measurement, Outcome

FOUND = Measurement(
    "co_adaptation",
    "error",
    0.033,
    "fraction",
    n=150,
    better="lower",
    context={"head": "linear", "samples": 10},
)


def through_text(rows):
    return json.loads(json.dumps(rows, allow_nan=False))


def test_flat_form_is_exactly_the_published_one():
    row = Record("digits", "foca", 0, FOUND).to_json()
    assert row == {
        "dataset": "digits",
        "method": "foca",
        "seed": 0,
        "audit": "co_adaptation",
        "name": "error",
        "value": 0.033,
        "unit": "fraction",
        "n": 150,
        "spread": None,
        "low": None,
        "high": None,
        "better": "lower",
        "context": {"head": "linear", "samples": 10},
    }


@pytest.mark.parametrize("value", [0.1 + 0.2, 5e-324, -0.0, math.inf, -math.inf])
def test_measurement_round_trips_to_the_bit(value):
    record = Record(
        "d", "m", 3, Measurement("a", "b", value, "ratio", n=1, high=math.inf, context={"norm": math.inf})
    )
    back = Record.from_json(through_text(record.to_json()))
    assert back == record
    assert math.copysign(1, back.measurement.value) == math.copysign(1, value)


def test_nan_round_trips_and_is_not_null():
    row = Record("d", "m", 0, Measurement("a", "b", math.nan, "ratio", n=1)).to_json()
    assert row["value"] == {"float": "NaN"}
    assert row["spread"] is None
    back = Record.from_json(through_text(row)).measurement
    assert math.isnan(back.value)
    assert back.spread is None


def test_texts_that_look_like_numbers_stay_texts_and_missing_stays_missing():
    columns: dict[str, list] = {"label": ["NaN", "Infinity", "0"], "error": [None, math.inf, 0.5]}
    shown = ExhibitRecord("d", "m", None, Exhibit("training", "curve", "curve", columns, "c"))
    assert ExhibitRecord.from_json(through_text(shown.to_json())) == shown


def test_numpy_becomes_plain_numbers():
    value = {"a": np.float32(0.5), "b": np.array([[1, 2]]), "c": np.bool_(True), "d": (1, np.nan)}
    assert encode(value) == {"a": 0.5, "b": [[1, 2]], "c": True, "d": [1, {"float": "NaN"}]}
    assert type(encode(np.float64(0.25))) is float


def test_an_object_that_merely_resembles_the_encoding_is_left_alone():
    assert decode({"float": "red"}) == {"float": "red"}
    assert decode({"float": "NaN", "other": 1}) == {"float": "NaN", "other": 1}


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="got set"):
        encode({"a": {1}})


@pytest.mark.parametrize(("missing", "extra"), [("value", {}), ("seed", {}), (None, {"surprise": 1})])
def test_a_row_with_wrong_fields_is_refused(missing, extra):
    row = Record("d", "m", 0, FOUND).to_json() | extra
    row.pop(missing, None)
    with pytest.raises(ValueError, match="must have the fields"):
        Record.from_json(row)


def test_run_note_round_trips_and_an_unknown_outcome_is_refused():
    note = RunNote("foca", 1, Outcome.DIVERGED, "diverged at step 12: the loss is not finite")
    assert RunNote.from_json(through_text(note.to_json())) == note
    assert not note.good
    with pytest.raises(ValueError, match="exploded"):
        RunNote.from_json(note.to_json() | {"outcome": "exploded"})


def test_the_kind_of_interval_does_not_make_another_quantity():
    one = Record(
        "d", "m", 0, Measurement("a", "b", 1.0, "ratio", n=1, context={"split": "test", "interval": "t"})
    )
    two = Record("d", "m", 1, Measurement("a", "b", 1.0, "ratio", n=1, context={"split": "test"}))
    other = Record("d", "m", 1, Measurement("a", "b", 1.0, "ratio", n=1, context={"split": "train"}))
    assert one.quantity == two.quantity != other.quantity
