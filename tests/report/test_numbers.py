"""Numbers as printed: rounding for the eye, the full number underneath."""

import math

import pytest

from clearance.report.numbers import (
    POINTS,
    THIN,
    data,
    exact,
    half_width,
    interval,
    levels,
    printed,
    ratio,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0333, "fraction", "3.3 %"),
        (1.0, "fraction", "100.0 %"),
        (0.0, "fraction", "0.0 %"),
        (0.0002, "fraction", "0.02 %"),
        (-0.0006, "fraction", "−0.06 %"),
        (2.449, "factor", "2.4×"),
        (12.6, "factor", "13×"),
        (9.96, "factor", "10.0×"),
        (3.0, "count", "3"),
        (2.5, "count", "2.5"),
        (0.9996, "fraction", "99.96 %"),
        (60000, "count", "60,000"),
        (0.000937, "ratio", "0.000937"),
        (1.234e-9, "ratio", "1.23e−09"),
        (12345.6, "ratio", "12346"),
        (4.186, "seconds", "4.19 s"),
        (720.0, "seconds", "12.0 min"),
        (1.5, "nats", "1.50 nats"),
        (None, "ratio", "–"),
        (math.nan, "fraction", "not a number"),
        (-math.inf, "ratio", "−∞"),
    ],
)
def test_printed(value, unit, text):
    assert printed(value, unit).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "text", "ends"),
    [
        (12.44, 0.0, 25.3, "ratio", "12", "0 to 25"),
        (0.0736, 0.0344, 0.1134, "ratio", "0.074", "0.034 to 0.113"),
        (13.1, 13.0999, 13.1001, "ratio", "13.1", "13.1 to 13.1"),
        (0.3, 0.0, 40.0, "ratio", "0.3", "0 to 40"),
        (12346.0, 7000.0, 17000.0, "ratio", "12300", "7000 to 17000"),
        (57.6, 32.9, 82.3, "count", "58", "33 to 82"),
        (-0.05, -0.31, 0.2, "nats", "−0.05 nats", "−0.31 to 0.20 nats"),
        (600.0, 540.0, 660.0, "seconds", "10.0 min", "540 s to 11.0 min"),
        (0.0063, 0.0058, 0.0068, "fraction", "0.63 %", "0.58 to 0.68 %"),
        (0.0063, 0.0043, 0.0083, "fraction", "0.6 %", "0.4 to 0.8 %"),
        (2.0, 1.5, 2.7, "factor", "2.0×", "1.5 to 2.7×"),
    ],
)
def test_digits_are_those_that_the_interval_supports(value, low, high, unit, text, ends):
    assert printed(value, unit, half_width(low, high)).replace("\u202f", " ") == text
    assert interval(low, high, unit).striptags().replace("\u202f", " ") == ends


@pytest.mark.parametrize("value", [0.1 + 0.2, 1 / 3, 5e-324, 450, math.inf])
def test_the_element_carries_the_number_to_the_bit(value):
    written = data(value, "ratio").split('"')[1]
    assert float(written) == value


def test_large_whole_numbers_are_no_grey_levels():
    assert exact(1_281_167).striptags() == "1281167"
    assert exact(8 / 255).striptags() == "8/255"


def test_interval_needs_both_ends():
    assert interval(0.1, None, "ratio") == ""
    assert interval(0.1, 0.2, "ratio") == ('<data value="0.1">0.100</data> to <data value="0.2">0.200</data>')


def test_no_form_of_a_number_prints_nan():
    shown = [data(math.nan, POINTS), interval(math.nan, math.nan, POINTS), ratio(math.nan), levels(math.nan)]
    assert all("not a number" in one.striptags() for one in shown)
    assert interval(-math.inf, math.inf, POINTS).striptags() == "−∞ to ∞"


def test_a_share_that_is_not_0_and_not_all_is_not_printed_so():
    assert printed(2 / 60_000, "fraction") == f"0.003{THIN}%"
    assert printed(1 - 1 / 30_000, "fraction") == f"99.997{THIN}%"
    assert printed(0.0, "fraction") == f"0.0{THIN}%"
    assert printed(1.0, "fraction") == f"100.0{THIN}%"
