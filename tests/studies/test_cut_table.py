"""The ledger's table of both cuts, against the records by hand."""

import pytest

from clearance.records import Record, Report
from clearance.vocabulary import Measurement
from papers.engine.ledger import cut_table


def record(method, seed, audit, head, samples, value):
    context = {"head": head, "samples": samples} | ({"cut": 1} if audit == "deeper_cut" else {})
    measurement = Measurement(audit, "error", value, "fraction", 5, better="lower", context=context)
    return Record("digits", method, seed, measurement)


def report_of(records):
    return Report({}, {}, "", "", records=tuple(records))


@pytest.fixture
def records():
    """Two methods and seeds, 10 and 100 images; the later cut knows no neighbours."""
    worth = {"retrained": 0.2, "class mean": 0.3, "nearest neighbour": 0.4}
    found = []
    for method, factor in (("plain", 1.0), ("foca", 0.6)):
        for seed in (0, 1):
            for samples in (10, 100):
                small = factor * (1 + 0.1 * seed) * 10 / samples
                found += [
                    record(method, seed, "co_adaptation", h, samples, small * w) for h, w in worth.items()
                ]
                found.append(record(method, seed, "co_adaptation", "nearest pixel", samples, 5.5 / samples))
                found.append(record(method, seed, "deeper_cut", "retrained", samples, small * 0.1))
    return found


def test_each_number_is_the_mean_over_seeds_of_its_head_method_and_cut(records):
    columns, lines = cut_table(report_of(records)) or ([], [])
    assert columns == [
        "from 10 images",
        "plain, as trained",
        "plain, later",
        "foca, as trained",
        "foca, later",
    ]
    assert lines == [
        ["retrained", "21.0 %", "10.5 %", "12.6 %", "6.3 %"],
        ["class mean", "31.5 %", "–", "18.9 %", "–"],
        ["nearest neighbour", "42.0 %", "–", "25.2 %", "–"],
        ["nearest pixel, no network", "55.0 %", "", "", ""],
    ]


def test_one_cut_is_no_table(records):
    assert cut_table(report_of(r for r in records if r.measurement.audit != "deeper_cut")) is None
