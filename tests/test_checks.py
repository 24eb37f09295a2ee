"""Checks of arguments: what passes, what does not, and what the message says."""

import math
import re

import numpy as np
import pytest

from clearance._checks import (
    check_choice,
    check_count,
    check_fraction,
    check_non_negative,
    check_pixel_range,
    check_positive,
)

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("value", [5e-324, 1, 0.5, 1e308])
def test_positive_accepts(value):
    check_positive("lr", value)
    check_non_negative("lr", value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1e-9, INF, -INF, NAN])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match=f"^`lr` must be a finite number above 0; got {value}.$"):
        check_positive("lr", value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_non_negative_accepts_zero(value):
    check_non_negative("decay", value)


@pytest.mark.parametrize("value", [-1e-9, INF, -INF, NAN])
def test_non_negative_refuses(value):
    with pytest.raises(ValueError, match=f"^`decay` must be a finite number of at least 0; got {value}.$"):
        check_non_negative("decay", value)


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("value", [0, 1e-9, 0.5, 1 - 1e-9, 1, -1e-9, 1 + 1e-9, NAN, INF])
def test_fraction_knows_its_ends(value, below, above):
    inside = 0 < value < 1 or (value == 0 and not below) or (value == 1 and not above)
    if inside:
        check_fraction("rate", value, open_below=below, open_above=above)
        return
    interval = f"{'(' if below else '['}0, 1{')' if above else ']'}"
    with pytest.raises(ValueError, match="got") as refusal:
        check_fraction("rate", value, open_below=below, open_above=above)
    assert str(refusal.value) == f"`rate` must lie in {interval}; got {value}."


@pytest.mark.parametrize(("value", "minimum"), [(1, 1), (0, 0), (7, 3), (3, 3), (-2, -2)])
def test_count_accepts(value, minimum):
    check_count("steps", value, minimum=minimum)


@pytest.mark.parametrize(
    ("value", "minimum"), [(0, 1), (-1, 0), (2, 3), (1.0, 1), (True, 0), ("3", 1), (None, 0), (NAN, 0)]
)
def test_count_refuses(value, minimum):
    with pytest.raises(ValueError, match="got") as refusal:
        check_count("steps", value, minimum=minimum)
    assert str(refusal.value) == f"`steps` must be a whole number of at least {minimum}; got {value!r}."


def test_a_whole_number_of_another_library_is_named_as_one():
    with pytest.raises(ValueError, match=r"at least 0; got np\.int64\(3\)\. Write int\(seed\)\."):
        check_count("seed", np.int64(3), minimum=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 1 + 2**-22, "from 0 to 1.00000024; that is rounding: write images.clamp(0, 1)."),
        (-1e-6, 1.0, "from -1e-06 to 1; that is rounding: write images.clamp(0, 1)."),
        (0.0, 255.0, "from 0 to 255; mend it."),
        (-0.5, 0.5, "from -0.5 to 0.5; mend it."),
        (NAN, NAN, "from nan to nan; mend it."),
    ],
)
def test_pixels_that_were_rounded_are_not_to_be_divided(low, high, said):
    check_pixel_range(0.0, 1.0, "mend it")
    with pytest.raises(ValueError, match=f"{re.escape(said)}$"):
        check_pixel_range(low, high, "mend it")


def test_choice_accepts_its_members_from_any_iterable():
    check_choice("norm", "batch", (name for name in ("none", "batch")))


def test_choice_offers_the_nearest_name():
    with pytest.raises(ValueError, match="got") as refusal:
        check_choice("norm", "btach", ("none", "batch"))
    assert str(refusal.value) == "`norm` must be one of 'none', 'batch'; got 'btach'. Did you mean 'batch'?"


def test_choice_offers_a_name_that_ends_with_what_was_given():
    with pytest.raises(ValueError, match=r"Did you mean 'extractor\.module\.2'\?$"):
        check_choice(
            "layers", "2", ("input", "extractor.module.1", "extractor.module.2", "extractor.module.12")
        )


@pytest.mark.parametrize("value", ["zzzzzz", "", 3])
def test_choice_offers_nothing_where_nothing_is_near(value):
    with pytest.raises(ValueError, match="got") as refusal:
        check_choice("norm", value, ("none", "batch"))
    assert str(refusal.value) == f"`norm` must be one of 'none', 'batch'; got {value!r}."


@pytest.mark.parametrize("check", [check_positive, check_non_negative, check_fraction])
@pytest.mark.parametrize("value", ["0.5", None, True, [0.5]])
def test_what_is_no_number_is_refused_with_its_quotes(check, value):
    with pytest.raises(ValueError, match=rf"^`gamma` must .*; got {re.escape(repr(value))}\.$"):
        check("gamma", value)


@pytest.mark.parametrize("check", [check_positive, check_non_negative, check_fraction, check_count])
def test_a_number_of_400_digits_is_refused_without_printing_it(check):
    with pytest.raises(ValueError, match=r"^`lr` must .*; got a number of 1329 bits\.$"):
        check("lr", 10**400)
