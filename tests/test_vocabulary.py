"""The words of measurements and reports: what they refuse, and what they say."""

import pytest

from clearance.vocabulary import Exhibit, Outcome, Status


def test_columns_of_an_exhibit_are_equally_long():
    assert Exhibit("a", "b", "curve", {}, "Nothing.").columns == {}
    with pytest.raises(ValueError, match=r"`columns` must be equally long; got lengths \{'x': 2, 'y': 1\}"):
        Exhibit("a", "b", "curve", {"x": [0, 1], "y": [0]}, "Ragged.")


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
