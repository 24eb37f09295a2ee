"""The page against the report that it was made from: every number and every point."""

import json
import re
from dataclasses import replace

import pytest

from clearance.records import ExhibitRecord, Report
from clearance.records.store import load_report
from clearance.report.page import NO_PAGE, render_page, without_images, write_page
from clearance.vocabulary import Exhibit
from report.reading import Reading, first_screen, numbers_in, stored


def test_every_printed_number_is_in_the_report(folder, page):
    values = Reading(page).values
    assert len(values) > 500
    assert set(values) <= stored((folder / "report.json").read_text(encoding="utf-8"))


def test_a_page_of_others_is_not_replaced_and_one_of_clearance_is(lean, tmp_path):
    write_page(lean, tmp_path)
    write_page(lean, tmp_path)
    (tmp_path / "index.html").write_text(NO_PAGE, "utf-8")
    write_page(lean, tmp_path)
    (tmp_path / "index.html").write_text("<title>Ann</title>", "utf-8")
    (tmp_path / "report.json").unlink()
    with pytest.raises(ValueError, match=r"its index\.html is not of Clearance"):
        write_page(lean, tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_every_number_of_the_paper_s_figures_is_in_the_report_or_in_an_exhibit(paper_folder, paper_page):
    values = set(Reading(paper_page).values)
    text = (paper_folder / "report.json").read_text(encoding="utf-8")
    named = set(re.findall(r"Numbers: <code>(exhibits/[^<]+)</code>", paper_page))
    assert len(named) == 2
    files = [json.loads((paper_folder / name).read_text(encoding="utf-8")) for name in named]
    beside = set().union(*(numbers_in(one["columns"]) for one in files))
    assert values <= stored(text) | beside | {1.0}
    assert not values <= stored(text)
    pictured = set(re.findall(r"exhibits/[^<\s]+?\.json", paper_page))
    assert pictured <= {f"exhibits/{path.name}" for path in (paper_folder / "exhibits").iterdir()}


def test_without_the_new_audits_nothing_of_them_is_on_the_page(page, paper_page):
    for word in (
        "Fig. 3",
        "Table 1",
        "after calibration",
        "regulariser",
        "one layer later",
        "left out of training",
        "retrained sets",
    ):
        assert word in paper_page
        assert word not in page


def test_an_exhibit_without_images_is_not_drawn(single):
    empty = Exhibit("own", "shown", "images", {"image": [], "label": []}, "The wrong images.")
    record = replace(single.exhibits[0], exhibit=empty)
    assert "The wrong images." not in render_page(replace(single, exhibits=(*single.exhibits, record)))


def test_a_matrix_of_classes_called_image_is_shared():
    matrix = Exhibit(
        "performance", "confusion_matrix", "heatmap", {"image": [9, 1], "text": [2, 8]}, "Matrix."
    )
    report = Report({}, {}, "", "", exhibits=(ExhibitRecord("animals", "mine", 0, matrix),))
    assert without_images(report) == report


@pytest.mark.parametrize("which", ["page", "single_page", "paper_page"])
def test_no_number_is_printed_loose(which, request):
    text = " ".join(Reading(request.getfixturevalue(which)).loose)
    text = re.sub(r"95\s%|[Ss]eed \d+", "", text).replace("(NC1)", "")
    assert "Training" in text
    assert not re.findall(r"\S*\d\S*", text)


def test_numbers_of_one_network_are_in_its_report(single, single_page):
    values = Reading(single_page).values
    assert set(values) <= stored(single.to_json())


def test_printed_text_is_the_rounded_number(page):
    shares = re.findall(r'<data value="([^"]*)">([^<]*)\u202f%</data>', page)
    assert len(shares) > 10
    for value, text in shares:
        assert float(text.replace("−", "-")) == pytest.approx(100 * float(value), abs=0.0501)


@pytest.mark.parametrize(
    ("audit", "name", "context"),
    [
        ("accuracy", "error", {"split": "test"}),
        ("co_adaptation", "error", {"head": "retrained", "samples": 10}),
        ("training", "seconds", {}),
    ],
)
def test_altering_one_record_alters_what_is_printed(lean, audit, name, context):
    def altered(record):
        found = record.measurement
        same = (record.method, record.seed, found.audit, found.name) == ("foca", 1, audit, name)
        if not (same and context.items() <= found.context.items()):
            return record
        return replace(record, measurement=replace(found, value=found.value * 1.37))

    records = tuple(altered(record) for record in lean.records)
    assert sum(one is not other for one, other in zip(records, lean.records, strict=True)) == 1
    changed = replace(lean, records=records)
    before, after = first_screen(render_page(lean)), first_screen(render_page(changed))
    assert set(Reading(after).values) != set(Reading(before).values)


def test_every_exhibit_that_the_page_names_is_there(folder, page):
    named = set(re.findall(r"exhibits/[^<\s]+?\.json", page))
    assert named == {f"exhibits/{path.name}" for path in (folder / "exhibits").iterdir()} - unseen(folder)
    assert any(name.startswith("exhibits/digits.summary.co_adaptation.partial_data.") for name in named)


def unseen(folder):
    """Feature pictures of later seeds: stored, but only the first seed's are shown."""
    return {
        f"exhibits/{path.name}"
        for path in (folder / "exhibits").glob("*.seed[12].class_scatter.features.*.json")
    }


def test_the_written_curve_is_recomputed(lean, tmp_path):
    page = write_page(lean, tmp_path)
    text = page.read_text(encoding="utf-8")
    (path,) = tmp_path.glob("exhibits/digits.summary.co_adaptation.partial_data.*.json")
    report = load_report(tmp_path)
    assert len(report.exhibits) == len(lean.exhibits) + 1
    stored = tmp_path / "report.json"
    rows = json.loads(stored.read_text(encoding="utf-8"))
    (changed,) = [
        row
        for row in rows["measurements"]
        if (row["method"], row["seed"], row["audit"], row["name"]) == ("plain", 0, "co_adaptation", "error")
        and row["context"]["head"] == "retrained"
        and row["context"]["samples"] == 10
    ]
    changed["value"] += 0.01
    stored.write_text(json.dumps(rows), encoding="utf-8")
    write_page(load_report(tmp_path), tmp_path)
    (again,) = tmp_path.glob("exhibits/digits.summary.co_adaptation.partial_data.*.json")
    assert again != path
    assert page.read_text(encoding="utf-8") != text
    write_page(report, tmp_path)
    assert path.exists()
    assert page.read_text(encoding="utf-8") == text


def test_several_datasets_share_a_page(lean, invented):
    other = invented(
        methods=("plain", "foca"), dataset="fashion", seeds=2, heads=("linear",), pictures=False
    ).report()
    both = replace(lean, records=lean.records + other.records, exhibits=lean.exhibits + other.exhibits)
    page = render_page(both)
    assert page.count('class="screen results"') == 2
    assert "one image per class" in page
    assert set(Reading(page).values) <= stored(both.to_json())
