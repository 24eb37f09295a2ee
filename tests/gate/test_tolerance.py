"""Sentences about what may change, and those that are none."""

import pytest

from clearance.gate import QUANTITIES, Tolerance


@pytest.mark.parametrize(
    ("text", "direction", "amount", "relative"),
    [
        ("accuracy drops 1pt", "drops", 0.01, False),
        ("accuracy drops 0.5 pt", "drops", 0.005, False),
        ("accuracy  drops  by 1pt ", "drops", 0.01, False),
        ("accuracy drops 10%", "drops", 0.1, True),
        ("accuracy changes 0.02", "changes", 0.02, False),
        ("accuracy rises 1e-3", "rises", 0.001, False),
        ("accuracy drops", "drops", 0.0, False),
    ],
)
def test_amounts_and_directions(text, direction, amount, relative):
    found = Tolerance.parse(text)
    assert (found.direction, found.relative, found.text) == (direction, relative, text.strip())
    assert found.amount == pytest.approx(amount)
    assert found.quantity == QUANTITIES["accuracy"]


def test_any_measurement_can_be_named():
    found = Tolerance.parse(
        "co_adaptation.error[head=class mean, unit length;samples=10] rises 2pt".replace(", u", " u").replace(
            ";", ","
        )
    )
    assert (found.quantity.audit, found.quantity.name, found.quantity.mirrored) == (
        "co_adaptation",
        "error",
        False,
    )
    assert found.quantity.context == {"head": "class mean unit length", "samples": "10"}
    assert found.quantity.fits(
        "co_adaptation", "error", {"head": "class mean unit length", "samples": 10, "x": 1}
    )
    assert not found.quantity.fits(
        "co_adaptation", "error", {"head": "class mean unit length", "samples": 100}
    )
    narrowed = Tolerance.parse("flip_distance[norm=2] drops 10%").quantity
    assert narrowed.context == {"norm": "2"}


WRONG = {
    "": "must read .QUANTITY drops",
    "accuracy": "must read",
    "accuracy drops fast": "must read",
    "accuracy drops 1 pt please": "must read",
    "accuracy falls 1pt": "`direction` must be one of 'drops', 'rises', 'changes'; got 'falls'",
    "acuracy drops 1pt": "Did you mean 'accuracy'",
    "accuracy drops 1e400pt": "a number of at least 0",
    "accuracy drops -1pt": "a number of at least 0; got '-1'",
    "accuracy drops 1-2pt": "a number of at least 0",
    "a.b[norm] drops": "key=value pairs, separated by commas",
}


@pytest.mark.parametrize(("text", "fragment"), WRONG.items())
def test_what_is_none_is_one_error(text, fragment):
    with pytest.raises(ValueError, match=fragment):
        Tolerance.parse(text)


@pytest.mark.parametrize(
    ("how", "interval", "exceeded", "reached"),
    [
        ("drops", (-3, -2), True, True),
        ("drops", (-3, 0), False, True),
        ("drops", (-0.5, 0.5), False, False),
        ("drops", (2, 3), False, False),
        ("rises", (2, 3), True, True),
        ("rises", (-3, -2), False, False),
        ("changes", (2, 3), True, True),
        ("changes", (-3, -2), True, True),
        ("changes", (-3, 3), False, True),
        ("drops", (-2, -1), False, True),  # at the edge nothing is exceeded
    ],
)
def test_an_interval_breaks_it_only_from_beyond(how, interval, exceeded, reached):
    found = Tolerance.parse(f"accuracy {how} 1")
    assert (found.exceeded_by(*interval), found.reached_by(*interval)) == (exceeded, reached)


def test_a_change_of_just_the_amount_is_tolerated_whatever_the_rounding():
    assert not Tolerance.parse("accuracy drops 1pt").exceeded_by(0.93 - 0.94, 0.94 - 0.95)
    assert Tolerance.parse("accuracy drops 1pt").exceeded_by(-0.0101, -0.0101)
