"""The words of measurements and reports: frozen, checked, and free of torch."""

import dataclasses
import subprocess
import sys

import pytest

from clearance.vocabulary import Bounds, Exhibit, Measurement, Outcome, Status

WORDS = [
    Bounds(),
    Measurement("accuracy", "error", 0.02, "fraction", n=500),
    Exhibit("accuracy", "line", "curve", {"x": [0]}, "Error."),
    Status(Outcome.FINISHED, step=3),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_a_word_is_frozen_and_takes_no_new_field(word):
    first = dataclasses.fields(word)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(word, first, None)
    with pytest.raises((AttributeError, TypeError)):  # TypeError on Python 3.11, where slots meet frozen
        word.unknown = 1
    assert not hasattr(word, "__dict__")


@pytest.mark.parametrize("ends", [(1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (0.0, float("nan"))])
def test_bounds_that_hold_nothing_are_refused(ends):
    with pytest.raises(ValueError, match="`lower` must be below `upper`, and both finite; got "):
        Bounds(*ends)


def test_columns_of_an_exhibit_are_equally_long():
    assert Exhibit("a", "b", "curve", {}, "Nothing.").columns == {}
    with pytest.raises(ValueError, match=r"`columns` must be equally long; got lengths \{'x': 2, 'y': 1\}"):
        Exhibit("a", "b", "curve", {"x": [0, 1], "y": [0]}, "Ragged.")


def test_defaults_of_a_measurement_claim_nothing():
    found = Measurement("accuracy", "error", 0.02, "fraction", n=500)
    assert (found.spread, found.low, found.high, found.better) == (None, None, None, "neither")
    assert found.context == {}
    assert found.context is not Measurement("accuracy", "error", 0.02, "fraction", n=500).context


def test_words_are_equal_by_value():
    measured = Measurement("a", "b", 1.0, "ratio", n=2, context={"samples": 10})
    assert measured == Measurement("a", "b", 1.0, "ratio", n=2, context={"samples": 10})
    assert measured != Measurement("a", "b", 1.0, "ratio", n=2, context={"samples": 100})


@pytest.mark.parametrize(
    ("outcome", "sentence", "good"),
    [
        (Outcome.FINISHED, "finished at step 7", True),
        (Outcome.STOPPED, "stopped at step 7", False),
        (Outcome.DIVERGED, "diverged at step 7", False),
        (Outcome.COLLAPSED, "collapsed at step 7", False),
    ],
)
def test_a_status_is_a_sentence_and_a_verdict(outcome, sentence, good):
    assert str(Status(outcome, step=7)) == sentence
    assert str(Status(outcome, step=7, reason="why")) == f"{sentence}: why"
    assert Status(outcome, step=7).good is good


def test_every_outcome_is_covered_above():
    assert set(Outcome) == {Outcome.FINISHED, Outcome.STOPPED, Outcome.DIVERGED, Outcome.COLLAPSED}
    assert Outcome("diverged") is Outcome.DIVERGED


def test_importing_the_words_does_not_import_torch():
    program = "import sys, clearance.vocabulary; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
