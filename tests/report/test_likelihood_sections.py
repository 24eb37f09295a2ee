"""What a page says of likelihoods, of probabilities and of Gaussian classes."""

import re

import pytest

from clearance.records.store import exhibit_file
from clearance.report.audits import page_of, sections
from clearance.report.page import further_pictures, write_page
from report.invented_likelihood import RADII, SCORES, TITLES, InventedLikelihood
from report.reading import Reading, stored
from report.section_parts import (
    altered,
    findings_of,
    not_in_tables,
    pictures_of,
    tables_of,
    term_of,
    values_in,
)


@pytest.fixture(scope="module")
def invented_likelihood():
    return InventedLikelihood().report()


@pytest.fixture(scope="module")
def written(invented_likelihood, tmp_path_factory):
    return write_page(invented_likelihood, tmp_path_factory.mktemp("likelihood")).parent


@pytest.fixture(scope="module")
def page(written):
    return (written / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def section(invented_likelihood, leave_undrawn):
    """The section on likelihoods, made once, with its pictures not turned into SVG."""
    with pytest.MonkeyPatch.context() as patch:
        leave_undrawn(patch)
        return said(invented_likelihood, "likelihood")


def said(report, part):
    make = page_of(part).section
    assert make is not None
    return make(findings_of(report))


def text_of(section):
    return " ".join(str(text) for text in section.text)


@pytest.mark.parametrize("part", TITLES)
def test_a_section_is_there_when_it_was_measured(part, undrawn):
    alone = InventedLikelihood(parts=(part,), seeds=1).report()
    assert [section.title for section in sections(findings_of(alone))] == [TITLES[part]]


IN_VIEW = {"attack": "adaptive", "epsilon": 0.3, "counted": "successful", "attacked": "likelihood"}
SUCCESSFUL = {"epsilon": 0.2, "score": "mahalanobis", "counted": "successful"}


def test_every_table_prints_the_means_of_its_records(invented_likelihood, undrawn):
    expected = [
        ("likelihood", "auroc", {**SUCCESSFUL, "attack": "FGSM", "negatives": "originals"}),
        ("likelihood", "auroc", {**SUCCESSFUL, "attack": "IFGSM", "negatives": "noise"}),
        ("likelihood", "auroc", {**SUCCESSFUL, "attack": "IFGSM", "counted": "all"}),
        ("likelihood", "auroc", {"unseen": "classes left out", "score": "small pixels"}),
        ("likelihood", "fpr95", {"unseen": "clothes10", "score": "likelihood"}),
        ("likelihood", "auroc", {**IN_VIEW, "negatives": "originals", "score": "likelihood"}),
        ("likelihood", "auroc", {**IN_VIEW, "negatives": "originals", "score": "small pixels"}),
        ("likelihood", "auroc", {**IN_VIEW, "negatives": "noise", "score": "small pixels"}),
        ("likelihood", "evasion", {"epsilon": 0.1}),
        ("likelihood", "rejected", {"score": "likelihood"}),
        ("calibration", "nll", {"temperature": "as trained"}),
        ("calibration", "brier", {"temperature": "calibrated"}),
        ("calibration", "ece_debiased", {"temperature": "as trained"}),
        ("calibration", "temperature", {}),
        ("goodness_of_fit", "coverage", {"statistics": "own", "class": "all"}),
        ("goodness_of_fit", "distance_ratio", {"statistics": "refitted", "class": "all"}),
    ]
    assert not_in_tables(invented_likelihood, "lgm", *expected) == []


def test_what_is_drawn_over_seeds_is_made_of_the_records(invented_likelihood):
    changed = altered(invented_likelihood, "lgm", ("likelihood", "evasion", {"epsilon": 0.3}))
    drawn = [
        findings_of(one).exhibits("likelihood", "evasion")[0].exhibit.columns
        for one in (invented_likelihood, changed)
    ]
    assert sum(a != b for a, b in zip(*(one["mean"] for one in drawn), strict=True)) == 1


def test_a_line_for_each_method_and_radius_and_a_column_for_each_score(invented_likelihood, section):
    evasion, known, other, first, *_ = tables_of(section)
    assert "Adaptive attacks" in evasion.title
    assert ["knows one score (its own" in table.title for table in (known, other)] == [True, False]
    assert [len(table.lines) for table in (known, other)] == [2 * len(RADII)] * 2
    assert len(known.columns) == len(SCORES)
    assert len(first.lines) == 2 * len(RADII)
    assert len(first.columns) == len(SCORES)
    assert "dim pixels, no network" in first.columns
    findings = findings_of(invented_likelihood)
    wanted = {"attack": "FGSM", "epsilon": 0.2, "counted": "successful", "negatives": "originals"}
    row = findings.row("mean", "likelihood", "auroc", method="lgm", score="likelihood", **wanted)
    assert row.value in values_in([first.lines[4].cells[0]])
    assert values_in([first.lines[4].name]) == {0.2}


def test_nobody_reads_it_as_a_defence_or_compares_densities(invented_likelihood, section, undrawn):
    text = text_of(section)
    assert "None of this is a defence" in text
    assert "not compared" in text
    assert "not used for any verdict" in text_of(said(invented_likelihood, "calibration"))
    for name in ("auroc", "aupr", "fpr95", "caught"):
        assert "not a defence" in term_of(("likelihood", name)).not_meant


def test_pictures_are_of_the_middle_radius_and_single_images_are_folded(section):
    rows = [part for part in section.parts if hasattr(part, "pictures")]
    assert [len(row.pictures) for row in rows] == [1, 2, 2, 2, 4, 4]
    assert all(values_in([row.title]) == {0.2} for row in rows[1:])
    assert [row.folded for row in rows] == [False, False, False, False, True, True]
    assert [row.cite for row in rows[1:4]] == [
        f"Compare Fig. {number} of Wan et al. (2018)." for number in (4, 4, 3)
    ]


def test_every_number_of_the_page_is_in_its_files(written, page):
    values = set(Reading(page).values)
    assert len(values) > 150
    assert values <= stored((written / "report.json").read_text("utf-8"))


def test_no_number_is_printed_loose(page):
    text = re.sub(r"95\s%|[Ss]eed \d+|\(NC1\)", "", " ".join(Reading(page).loose))
    assert "detect unfamiliar images" in text
    assert not re.findall(r"\S*\d\S*", text)


def test_every_number_has_an_entry_and_the_page_prints_it(invented_likelihood, page):
    found = {(one.measurement.audit, one.measurement.name) for one in invented_likelihood.records}
    assert all(map(term_of, found))
    mine = [term_of(key) for key in found if key[0] in TITLES]
    assert len(mine) == 15
    said_of = [part.replace("'", "&#39;") for entry in mine for part in (entry.title, entry.not_meant)]
    assert all(part in page for part in said_of)


def test_nothing_is_drawn_twice_and_every_picture_names_its_points(invented_likelihood, undrawn):
    findings = findings_of(invented_likelihood)
    assert further_pictures(findings) == []
    files = {exhibit_file(record) for record in findings.report.exhibits}
    for section in sections(findings):
        assert all(shown.files and set(shown.files) <= files for shown in pictures_of(section))
