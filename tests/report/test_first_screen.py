"""The first screen of one network: six sentences and what was left out; everything else below, with how to read it."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from clearance.experiments.catalogue import AUDITS
from clearance.records import Record, Report
from clearance.report.audits import all_findings, page_of, sections, with_summaries
from clearance.report.findings import Findings
from clearance.report.ledger import ledger
from clearance.report.left_out import fewer_images, interrupted, left_out, left_out_lines
from clearance.report.page import render_page, write_page
from clearance.vocabulary import Measurement
from report.reading import Reading, numbers_in, stored


def plain(text):
    return re.sub(r"[\u202f\s]+", " ", text)


def out_of_distribution(rejected, low, high, kept=(0.94, 0.9, 0.97)):
    def share(name, values, **context):
        value, low, high = values
        context["interval"] = "wilson 95 %"
        return Measurement(
            "out_of_distribution", name, value, "fraction", 200, None, low, high, "higher", context
        )

    found = share("rejected", (rejected, low, high), unknown="other"), share("kept", kept)
    return Report({}, {}, "", "", tuple(Record("animals", "mine", 0, m) for m in found))


def only(report):
    (finding,) = all_findings(Findings(with_summaries(report), "animals"))
    return finding


class TestUnknowns:
    def test_both_shares_with_their_intervals_and_no_promise(self):
        finding = only(out_of_distribution(0.71, 0.66, 0.76))
        assert plain(finding.said.striptags()) == (
            "Detection: 71.0 % (66.0 to 76.0 %) of “other” rejected, by a threshold that keeps 94.0 % (90.0 to "
            "97.0 %) of other test images. This is not a defence: other unfamiliar images may pass."
        )
        assert (finding.title, finding.severity, finding.todo) == ("Unknown images", "fine", "")

    @pytest.mark.parametrize(("low", "alarm"), [(0.09, True), (0.099, True), (0.11, False)])
    def test_no_more_than_of_the_test_images_rings(self, low, alarm):
        """At most 10 % of the test images are rejected, by the interval of what is kept."""
        finding = only(out_of_distribution(0.2, low, 0.3))
        assert finding.severity == ("problem" if alarm else "warning")
        assert ("Detection fails" in finding.said) == alarm

    def test_where_nothing_was_measured_nothing_is_said(self):
        assert all_findings(Findings(Report({}, {}, "", ""), "animals")) == []


def test_what_the_owner_says_stands_beside_the_accuracy():
    error = Measurement(
        "accuracy",
        "error",
        0.1,
        "fraction",
        500,
        None,
        0.08,
        0.13,
        "lower",
        {"split": "test", "interval": "w"},
    )
    report = Report({"expected_accuracy": 0.915}, {}, "", "", (Record("animals", "mine", 0, error),))
    assert plain(only(report).said.striptags()) == (
        "90.0 % (87.0 to 92.0 %) of 500 test images are classified correctly; expected 91.5 %."
    )
    page = render_page(report)
    assert set(Reading(page).values) <= stored(report.to_json()) | {0.915}


def test_outputs_that_no_class_belongs_to_are_said():
    context = {"split": "test", "interval": "w"}
    error = Measurement("accuracy", "error", 0.98, "fraction", 50, None, 0.9, 1.0, "lower", context)
    counts = {"of the model": 1000, "classes": 10}
    (found,) = all_findings(
        Findings(Report({"outputs": counts}, {}, "", "", (Record("animals", "mine", 0, error),)), "animals")
    )
    assert "It has 1,000 outputs: the first 10 are taken as the classes in the order of their names" in plain(
        found.said.striptags()
    )


LEFT: dict[str, Any] = {
    "budget": {"seconds": 90.0, "spent": 95.0},
    "audits_left_out": [
        {"audit": "linear_probe", "why": "budget"},
        {"audit": "minimal_perturbation", "why": "interrupted"},
    ],
    "audits_left_out_command": "clearance audit net:Net --audits linear_probe,minimal_perturbation",
    "fewer_images": {
        "images": 497,
        "audits": {"minimal_perturbation": 100, "robustness": 100, "likelihood": 50},
    },
}


class TestLeftOut:
    def test_an_audit_that_finds_nothing_to_measure_is_named(self):
        (line,) = left_out_lines({"audits_without_numbers": ["deeper_cut"]})
        assert line.startswith("Requested, but without a number for such a network or recipe: ")
        assert line.endswith("(deeper_cut).")

    def test_what_was_cut_and_what_was_interrupted_and_how_to_get_it(self):
        assert [plain(line) for line in left_out_lines(LEFT)] == [
            "Interrupted before the end; not measured: smallest change that changes the prediction "
            "(minimal_perturbation).",
            "Not started within the budget of 90 s: linear probe (linear_probe).",
            "To measure this: clearance audit net:Net --audits linear_probe,minimal_perturbation",
        ]
        assert interrupted(LEFT)
        assert not interrupted({"audits_left_out": LEFT["audits_left_out"][:1]})
        assert left_out({}) == left_out_lines({}) == []
        assert left_out({"left_out": (1, 2)}) == []  # classes kept from training, a setting of recipes

    def test_audits_by_the_number_of_images(self):
        assert [plain(line.striptags()) for line in fewer_images(LEFT)] == [
            "Measured on at most 100 of the 497 test images, the same number of each class or all of a small one: "
            "smallest change that changes the prediction and accuracy under the worst of all attacks.",
            "Measured on at most 50 of the 497 test images, the same number of each class or all of a small one: "
            "detection by likelihood.",
        ]

    def test_it_stands_on_the_first_screen(self, single):
        report = replace(single, recipe={**single.recipe, **LEFT})
        page = render_page(report)
        first = page[: page.index("<h2>Details")]
        for line in (*left_out(LEFT), *fewer_images(LEFT)):
            assert line in first
        assert set(Reading(page).values) <= stored(with_summaries(report).to_json()) | numbers_in(LEFT)

    def test_names_of_files_cannot_break_the_page(self, single):
        bad = {**LEFT, "audits_left_out_command": "clearance audit '<script>'"}
        assert render_page(replace(single, recipe={**single.recipe, **bad})).count("<script>") == 1


class TestDetails:
    def test_the_first_screen_is_the_sentences_and_nothing_else(self, single_page):
        first, rest = single_page.split("<h2>Details")
        assert '<p class="lead">' in first
        assert "<table" not in first
        assert "<svg" not in first.split("<main>")[1]
        assert "Audit of model" in first
        assert "All numbers" in rest

    def test_the_contents_lead_to_every_part(self, single_page):
        nav = single_page[single_page.index('<nav class="contents"') : single_page.index("</nav>")]
        places = re.findall(r'href="#([^"]+)"', nav)
        assert places == re.findall(r'<details class="part[^"]*" id="([^"]+)">', single_page)
        assert len(places) == len(set(places)) == single_page.count("<h3 class=part>")

    def test_headings_are_in_order(self, single_page):
        levels = [int(level) for level in re.findall(r"<h(\d)", single_page)]
        assert levels[:2] == [1, 2]
        assert levels.count(1) == levels.count(2) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))

    def test_a_comparison_has_none(self, page):
        assert "<h2>Details" not in page
        assert page.index("<table") < page.index("<h2")

    def test_every_part_says_how_to_read_it(self, single_page):
        """Below each heading of a part comes a paragraph, before any picture or table."""
        rest = single_page.split("<h2>Details")[1]
        parts = re.split(r"<h3 class=part>", rest)[1:]
        assert len(parts) >= 5
        for part in parts:
            body = part.split("</h3>", 1)[1]
            start = re.search(r"<(p|table|figure|svg|div|dl|pre|ul)\b", body)
            assert start is not None, part[:80]
            assert start[1] in ("p", "dl"), part[:80]


def test_every_audit_has_a_title_and_a_sentence_on_how_to_read_it():
    titles = {page_of(audit).title for audit in AUDITS}
    assert len(titles) == len(AUDITS)
    for audit in AUDITS:
        sentence = page_of(audit).reading
        assert sentence.endswith(".")
        assert 50 < len(sentence) < 240


def test_every_group_of_numbers_has_its_sentence(single):
    groups = ledger(Findings(with_summaries(single), "digits"))
    assert groups
    page = render_page(single)
    for group in groups:
        assert group.reading
        assert group.reading in page.replace("&#39;", "'")


def test_every_section_of_an_audit_begins_with_words(paper):
    found = sections(Findings(with_summaries(paper), "digits"))
    assert len(found) > 5
    for section in found:
        assert section.text, section.title
        assert str(section.text[0]).strip()


def test_what_was_not_started_is_said_with_the_budget_and_the_command_as_they_were_given():
    cut = {
        "audits_left_out": [{"audit": "accuracy", "why": "budget"}],
        "budget": {"seconds": 6300.0, "spent": 1.0},
    }
    command = "clearance audit m:N --train 'folder:my  photos'"
    first, last = left_out_lines({**cut, "audits_left_out_command": command})
    assert "105" in first
    assert last == f"To measure this: {command}"


def test_the_page_to_share_of_an_earlier_report_is_removed(single, lean, tmp_path):
    write_page(single, tmp_path)
    assert (tmp_path / "share.html").exists()
    write_page(lean, tmp_path)
    assert not (tmp_path / "share.html").exists()
