"""What a page knows of one audit is found by the audit's name, and an audit that it knows nothing of has a place."""

from pkgutil import iter_modules

import pytest

from clearance.experiments.catalogue import AUDITS
from clearance.records import ExhibitRecord, Record, Report
from clearance.report import audits as written
from clearance.report import render_page
from clearance.report.audits import page_of, pages, sections
from clearance.report.findings import Findings
from clearance.report.sweep import over_setting, sweep_section
from clearance.vocabulary import Exhibit, Measurement


def report(*audits):
    found = [Measurement(audit, "share_of_luck", 0.25, "fraction", 8) for audit in audits]
    shown = [Exhibit(audit, "luck", "curve", {"x": [0, 1], "y": [1, 0]}, "All luck.") for audit in audits]
    return Report(
        {}, {}, "clearance audit", "2026-01-01T00:00:00+00:00",
        records=tuple(Record("digits", "mine", 0, one) for one in found),
        exhibits=tuple(ExhibitRecord("digits", "mine", 0, one) for one in shown),
    )  # fmt: skip


@pytest.mark.parametrize("audit", AUDITS)
def test_every_audit_of_the_catalogue_has_its_page(audit):
    page = page_of(audit)
    assert page.reading
    assert page.glossary
    for term in page.glossary.values():
        assert all((term.title, term.what, term.reading, term.not_meant))


def test_an_audit_of_ones_own_is_in_the_table_and_among_the_pictures():
    page = render_page(report("of_my_own"))
    assert "Of my own: share of luck" in page
    assert "All luck." in page
    assert sections(Findings(report("of_my_own"), "digits")) == []


@pytest.mark.parametrize("name", ["__init__", "co adaptation", "a.b", "", "class", "numbers"])
def test_a_name_that_is_no_audits_finds_no_page(name):
    assert page_of(name).glossary == {}


def test_pages_stand_in_their_places_whatever_was_measured_first():
    found = [page.title for page in pages(report("of_my_own", "calibration", "training", "accuracy"))]
    assert found == ["Training", "Accuracy", "Calibration", "Of my own"]


MAKERS = [
    make
    for page in (page_of(module.name) for module in iter_modules(written.__path__))
    for make in (page.section, page.findings, *page.over_seeds.values())
    if make is not None
]


@pytest.mark.parametrize("make", [*MAKERS, over_setting, sweep_section])
def test_a_page_says_nothing_of_what_was_not_measured(make):
    assert not make(Findings(report("of_my_own"), "digits"))
