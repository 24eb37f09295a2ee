"""Numbers as printed: rounding for the eye, the full number underneath."""

import math

import pytest

from clearance.report.numbers import data, interval, printed


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


@pytest.mark.parametrize("value", [0.1 + 0.2, 1 / 3, 5e-324, 450, math.inf])
def test_the_element_carries_the_number_to_the_bit(value):
    written = data(value, "ratio").split('"')[1]
    assert float(written) == value


def test_interval_needs_both_ends():
    assert interval(0.1, None, "ratio") == ""
    assert interval(0.1, 0.2, "ratio") == ('<data value="0.1">0.100</data> to <data value="0.2">0.200</data>')
