"""What a page says of attacks, of distances to a mistake, and of training with wrong labels."""

import json
import re
from dataclasses import replace

import pytest

from clearance.records.store import exhibit_file
from clearance.report.audits import sections
from clearance.report.page import further_pictures, write_page
from report.invented_attacks import PARTS, RADII, TITLES, InventedAttacks
from report.reading import Reading, first_screen, numbers_in, stored
from report.section_parts import (
    altered,
    cells_of,
    findings_of,
    not_in_tables,
    pictures_of,
    tables_of,
    term_of,
    values_in,
)


@pytest.fixture(scope="module")
def attacks():
    return InventedAttacks().report()


@pytest.fixture(scope="module")
def written(attacks, tmp_path_factory):
    return write_page(attacks, tmp_path_factory.mktemp("attacks")).parent


@pytest.fixture(scope="module")
def page(written):
    return (written / "index.html").read_text("utf-8")


def said(report, title):
    (found,) = [section for section in sections(findings_of(report)) if section.title == title]
    return found


def text_of(section):
    return " ".join(str(text) for text in section.text)


@pytest.mark.parametrize("part", PARTS)
def test_a_section_is_there_just_when_it_was_measured(part, undrawn):
    alone = InventedAttacks(parts=(part,), seeds=1).report()
    assert [section.title for section in sections(findings_of(alone))] == [TITLES[part]]
    others = InventedAttacks(parts=tuple(one for one in PARTS if one != part), seeds=1).report()
    titles = [section.title for section in sections(findings_of(others))]
    assert titles == [title for one, title in TITLES.items() if one != part]


def test_every_table_prints_the_means_of_its_records(attacks, undrawn):
    expected = [
        ("robustness", "robust_accuracy", {"norm": "inf", "epsilon": 0.2}),
        ("robustness", "cross_entropy_attack_accuracy", {"norm": "2"}),
        ("robustness", "noise_accuracy", {"norm": "inf", "epsilon": 0.1}),
        ("robustness", "transfer_accuracy", {"norm": "2"}),
        ("robustness", "full_radius_accuracy", {"norm": "2"}),
        ("robustness", "zero_gradients", {"loss": "cross_entropy"}),
        ("boundary_distance", "minimum_distance", {"norm": "2", "class": "all"}),
        (
            "boundary_distance",
            "first_order_distance",
            {"norm": "inf", "class": "all", "layer": "extractor.2"},
        ),
        ("training", "early_stopped_error", {}),
        ("training", "early_stopped_epoch", {}),
    ]
    assert not_in_tables(attacks, "large-margin", *expected) == []


@pytest.mark.parametrize(
    ("audit", "name", "context", "exhibit"),
    [
        ("robustness", "robust_accuracy", {"norm": "2"}, "accuracy_over_radius"),
        ("boundary_distance", "minimum_distance", {"norm": "inf", "class": "1"}, "by_class"),
    ],
)
def test_what_is_drawn_is_made_of_the_records(attacks, audit, name, context, exhibit):
    changed = altered(attacks, "plain", (audit, name, context))
    drawn = [findings_of(one).exhibits(audit, exhibit)[0].exhibit.columns for one in (attacks, changed)]
    assert drawn[0] != drawn[1]
    assert sum(a != b for a, b in zip(*(one["mean"] for one in drawn), strict=True)) == 1


def test_every_number_of_the_page_is_in_its_files(written, page):
    values = set(Reading(page).values)
    assert len(values) > 150
    named = set(re.findall(r"Numbers: <code>(exhibits/[^<]+)</code>", page))
    assert [name.split(".")[:-2] for name in named] == [
        ["exhibits/digits", "summary", "robustness", "alarms_over_seeds"]
    ]
    beside = [numbers_in(json.loads((written / name).read_text("utf-8"))["columns"]) for name in named]
    text = (written / "report.json").read_text("utf-8")
    assert values <= stored(text) | set().union(*beside)
    assert not values <= stored(text)
    pictured = set(re.findall(r"exhibits/[^<\s]+?\.json", page))
    assert pictured <= {f"exhibits/{path.name}" for path in (written / "exhibits").iterdir()}


def test_no_number_is_printed_loose(page):
    text = re.sub(r"95\s%|[Ss]eed \d+|\(NC1\)", "", " ".join(Reading(page).loose))
    assert "Accuracy under attack" in text
    assert not re.findall(r"\S*\d\S*", text)


def test_the_first_screen_says_nothing_of_attacks(page, invented):
    plain = first_screen(page)
    assert "attack" not in plain
    assert "distance" not in plain


def test_every_number_has_an_entry_and_the_page_prints_it(attacks, page):
    found = {(one.measurement.audit, one.measurement.name) for one in attacks.records}
    terms = [term_of(key) for key in sorted(found) if key[0] in ("robustness", "boundary_distance")]
    assert len(terms) == 9
    assert all(map(term_of, found))
    assert all(entry.title in page and entry.not_meant.replace("'", "&#39;") in page for entry in terms)


def test_each_norm_has_a_curve_and_a_table_with_what_is_beside_it(attacks, undrawn):
    section = said(attacks, TITLES["robustness"])
    assert len(pictures_of(section)) == len(RADII)
    tables = tables_of(section)
    assert [len(table.columns) - 1 for table in tables[:2]] == [len(radii) for radii in RADII.values()]
    for table in tables[:2]:
        for line in table.lines:
            for words in ("<small>plain attacks ", "<small>noise ", "<small>transfer "):
                assert all(words in cell for cell in line.cells[:-1])
    without = said(InventedAttacks(parts=("robustness",), transfer=False).report(), TITLES["robustness"])
    assert not any("transfer" in cell for cell in cells_of([without]))


def test_the_curve_begins_without_an_attack(attacks):
    (record,) = findings_of(attacks).exhibits("robustness", "accuracy_over_radius")
    rows = [
        dict(zip(record.exhibit.columns, row, strict=True))
        for row in zip(*record.exhibit.columns.values(), strict=True)
    ]
    worst = [
        row for row in rows if (row["method"], row["norm"], row["attacks"]) == ("plain", "inf", "worst case")
    ]
    assert [row["radius"] for row in worst] == [0.0, 0.1, 0.2]
    assert worst[0]["mean"] == pytest.approx(0.97)
    mean = findings_of(attacks).row(
        "mean", "robustness", "robust_accuracy", method="plain", norm="inf", epsilon=0.2
    )
    assert mean is not None
    assert (worst[2]["mean"], worst[2]["low"], worst[2]["high"]) == (mean.value, mean.low, mean.high)


def test_the_alarm_is_told_in_words_with_its_share_and_runs(attacks, undrawn):
    section = said(attacks, TITLES["robustness"])
    table = tables_of(section)[-1]
    assert table.title == "Warnings"
    assert {line.name for line in table.lines} == {"plain training"}
    seen, against, norm, radius, runs = (str(cell) for cell in table.lines[0].cells)
    assert "plain attacks only" in against
    shares = [
        share
        for one in attacks.exhibits
        if (one.exhibit.audit, one.exhibit.name, one.exhibit.context.get("norm"))
        == ("robustness", "alarms", "inf")
        for share, about in zip(one.exhibit.columns["share"], one.exhibit.columns["about"], strict=True)
        if about == "plain attacks"
    ]
    assert values_in([seen]) == {max(shares)}
    assert re.sub("<[^>]*>", "", seen).startswith("cross-entropy attacks miss 3")
    assert ("inf" in norm, values_in([radius]), values_in([runs])) == (True, {0.1, 0.2}, {3.0})
    assert "No alarm" not in text_of(section)


def test_without_an_alarm_the_page_says_so(undrawn):
    calm = said(InventedAttacks(parts=("robustness",), alarmed=False).report(), TITLES["robustness"])
    assert "No warnings: no sign was found against these numbers." in text_of(calm)
    assert "Warnings" not in [table.title for table in tables_of(calm)]


def test_an_alarm_without_words_is_not_passed_over(attacks, undrawn):
    kept = tuple(one for one in attacks.exhibits if one.exhibit.name != "alarms")
    section = said(replace(attacks, exhibits=kept), TITLES["robustness"])
    assert "Reasons for doubt were counted" in text_of(section)


def test_a_single_run_has_the_interval_over_images(undrawn):
    one = InventedAttacks(parts=("robustness",), seeds=1).report()
    (first, *_) = tables_of(said(one, TITLES["robustness"]))
    measured = findings_of(one).row("mean", "robustness", "robust_accuracy", method="plain", norm="inf")
    assert measured is not None
    assert {measured.value, measured.low, measured.high} <= values_in(first.lines[0].cells)
    captions = [shown.caption for shown in pictures_of(said(one, TITLES["robustness"]))]
    assert all("95 % interval over images" in caption for caption in captions)


def test_what_plain_attacks_leave_is_never_called_robust(attacks, undrawn):
    assert "only as a warning" in text_of(said(attacks, TITLES["robustness"]))


def test_each_condition_has_its_picture_and_its_table(undrawn):
    rates = (0.0, 0.8)
    report = InventedAttacks(parts=("epochs",), rates=rates).report()
    section = said(report, TITLES["epochs"])
    assert [values_in([shown.caption]) for shown in pictures_of(section)] == [{0.0}, {0.8}]
    findings = findings_of(report)
    for rate, table in zip(rates, tables_of(section), strict=True):
        for method, line in zip(findings.methods, table.lines, strict=True):
            wanted = {"method": method, "noise": rate}
            last = findings.row("mean", "accuracy", "error", split="test", **wanted)
            early = findings.row("mean", "training", "early_stopped_error", **wanted)
            assert last is not None
            assert early is not None
            assert last.value in values_in([line.cells[0]])
            assert early.value in values_in([line.cells[1]])


def test_the_mean_curve_is_that_of_the_runs(attacks):
    (record,) = findings_of(attacks).exhibits("training", "epochs_over_seeds")
    columns = record.exhibit.columns
    rows = list(zip(columns["method"], columns["images"], columns["epoch"], columns["mean"], strict=True))
    runs = [e.exhibit for e in attacks.exhibits if (e.exhibit.name, e.method) == ("epochs", "large-margin")]
    for images, column in (("test", "test error"), ("validation", "validation error")):
        found = [mean for method, of, _, mean in rows if (method, of) == ("large-margin", images)]
        assert found == pytest.approx([sum(one.columns[column][k] for one in runs) / 3 for k in range(4)])


def test_layers_have_columns_and_single_images_are_folded(attacks, undrawn):
    section = said(attacks, TITLES["boundary_distance"])
    table = tables_of(section)[0]
    assert [str(name) for name in table.columns[:4]] == [
        "found by search", "to first order, at the input", "at the features", "at <code>extractor.2</code>"
    ]  # fmt: skip
    folded = [part for part in section.parts if getattr(part, "folded", False)]
    assert [len(part.pictures) for part in folded] == [2, 2]
    assert "upper bound" in text_of(section)


def test_nothing_is_drawn_twice_and_every_picture_names_its_points(attacks, undrawn):
    findings = findings_of(attacks)
    assert further_pictures(findings) == []
    files = {exhibit_file(record) for record in findings.report.exhibits}
    for section in sections(findings):
        assert all(shown.files and set(shown.files) <= files for shown in pictures_of(section))
