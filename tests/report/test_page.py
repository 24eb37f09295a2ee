"""The page against the report that it was made from: every number, every point, every name."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from clearance.records.record import ExhibitRecord, RunNote
from clearance.records.store import load_report
from clearance.report.card import Card
from clearance.report.page import render_page, write_page
from clearance.report.table import comparison_table
from clearance.vocabulary import Exhibit, Outcome

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reading(HTMLParser):
    """What a page holds: values of data elements, loose text of the result sections, ids, links, tags."""

    def __init__(self, text):
        super().__init__()
        self.stack: list[tuple[str, str]] = []
        self.values: list[float] = []
        self.loose: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [
            value for key, value in attributes.items() if key in ("href", "xlink:href", "src", "srcset")
        ]
        if tag == "data":
            self.values.append(float(attributes["value"]))
        if tag not in VOID:
            self.stack.append((tag, attributes.get("class") or ""))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag, f"</{tag}> closes something else"

    def handle_data(self, text):
        tags = {tag for tag, _ in self.stack}
        results = any("results" in kind.split() for _, kind in self.stack)
        if results and not tags & {"data", "svg", "code", "cite"}:
            self.loose.append(text)


def numbers_in(value):
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return {float(value["float"])}
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


@pytest.fixture(scope="module")
def folder(comparison, tmp_path_factory):
    return write_page(comparison, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def single_page(single):
    return render_page(single)


@pytest.fixture(scope="module")
def paper_folder(paper, tmp_path_factory):
    return write_page(paper, tmp_path_factory.mktemp("paper")).parent


@pytest.fixture(scope="module")
def paper_page(paper_folder):
    return (paper_folder / "index.html").read_text(encoding="utf-8")


def stored(report):
    rows = json.loads(report)
    return numbers_in(rows["measurements"]) | numbers_in(rows["summary"]) | {0.0}


def test_every_printed_number_is_in_the_report(folder, page):
    values = Reading(page).values
    assert len(values) > 500
    assert set(values) <= stored((folder / "report.json").read_text(encoding="utf-8"))


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
        "sureness",
        "regulariser",
        "one layer later",
        "left out of training",
        "rebuilt sets",
    ):
        assert word in paper_page
        assert word not in page


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
    for value, text in re.findall(r'<data value="([^"]*)">([^<]*)\u202f%</data>', page):
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


def first_screen(text):
    return text[text.index('<section class="screen') :].split("</section>")[0] + "</section>"


def test_every_exhibit_that_the_page_names_is_there(folder, page):
    named = set(re.findall(r"exhibits/[^<\s]+?\.json", page))
    assert named == {f"exhibits/{path.name}" for path in (folder / "exhibits").iterdir()} - unseen(folder)
    assert "exhibits/digits.summary.co_adaptation.partial_data.json" in named


def unseen(folder):
    """Feature pictures of later seeds: stored, but only the first seed's are shown."""
    return {
        f"exhibits/{path.name}"
        for path in (folder / "exhibits").glob("*.seed[12].class_scatter.features.json")
    }


def test_the_written_curve_is_recomputed(lean, tmp_path):
    page = write_page(lean, tmp_path)
    text = page.read_text(encoding="utf-8")
    path = tmp_path / "exhibits/digits.summary.co_adaptation.partial_data.json"
    written = path.read_text(encoding="utf-8")
    path.write_text(written.replace('"error": [0.', '"error": [0.9'), encoding="utf-8")
    report = load_report(tmp_path)
    assert len(report.exhibits) == len(lean.exhibits) + 1
    write_page(report, tmp_path)
    assert path.read_text(encoding="utf-8") == written
    assert page.read_text(encoding="utf-8") == text


def test_the_page_stands_alone(page):
    found = Reading(page)
    assert not found.tags & {"script", "link", "iframe", "img", "object", "embed", "base"}
    assert all(link.startswith("#") for link in found.links)
    assert not re.search(r"@import|url\((?!#)", page)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "//" not in re.sub(r"http://www\.w3\.org/\S+", "", page)


@pytest.mark.parametrize("which", ["page", "paper_page"])
def test_the_markup_is_sound(which, request):
    page = request.getfixturevalue(which)
    found = Reading(page)
    assert found.stack == []
    assert len(found.ids) == len(set(found.ids))
    assert page.count("<h1") == 1
    assert page.count('role="img"') == page.count("<figure")
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(found.ids)
    assert {link[1:] for link in found.links} <= set(found.ids)


@pytest.mark.parametrize("word", ["co-adapt", "epoch", "logit", "cdnv", "extractor"])
def test_no_term_of_art_on_the_first_screen(page, word):
    text = re.sub(r"<code>.*?</code>", "", first_screen(page))
    assert word not in text.lower()


def test_names_from_users_are_only_text(invented):
    names = ("<script>alert(1)</script>", 'a&b "c" {{ 7*7 }} $\\frac$')
    report = invented(methods=names, seeds=2, dataset="<b>set</b>", heads=("linear",)).report()
    page = render_page(report)
    assert "<script" not in page
    assert "<b>set</b>" not in page
    assert "{{ 7*7 }}" in page
    assert Reading(page).stack == []
    assert "<script" not in Card(report)._repr_html_()


def test_a_run_that_failed_is_said_first_and_its_method_stays(lean):
    runs = tuple(note for note in lean.runs if note.method != "foca")
    runs += tuple(
        RunNote("foca", seed, Outcome.COLLAPSED, "collapsed at step 40: features are equal")
        for seed in range(3)
    )
    records = tuple(record for record in lean.records if record.method != "foca")
    exhibits = tuple(record for record in lean.exhibits if record.method != "foca")
    screen = first_screen(render_page(replace(lean, records=records, exhibits=exhibits, runs=runs)))
    assert "collapsed at step 40" in screen
    assert screen.count("not measured") == 3


def test_several_datasets_share_a_page(lean, invented):
    other = invented(
        methods=("plain", "foca"), dataset="fashion", seeds=2, heads=("linear",), pictures=False
    ).report()
    both = replace(lean, records=lean.records + other.records, exhibits=lean.exhibits + other.exhibits)
    page = render_page(both)
    assert page.count('class="screen results"') == 2
    assert "one image per class" in page
    assert set(Reading(page).values) <= stored(both.to_json())


def test_exhibits_of_a_kind_never_heard_of_are_shown(lean):
    strange = Exhibit(
        "strange", "thing", "histogram", {"centre": [1.0, 2.0], "count": [3, 4]}, "A strange thing."
    )
    page = render_page(replace(lean, exhibits=(ExhibitRecord("digits", "plain", 0, strange),)))
    assert "A strange thing." in page
    assert "exhibits/digits.plain.seed0.strange.thing.json" in page


def test_a_number_that_is_not_one_is_printed_as_such(lean):
    found = lean.records[0]
    records = (
        replace(found, measurement=replace(found.measurement, value=math.nan)),
        *lean.records[1:],
    )
    page = render_page(replace(lean, records=records))
    assert "not a number" in first_screen(page)


def test_card_saves_one_file_and_shows_itself(single, single_page, tmp_path):
    card = Card(single)
    path = card.save(tmp_path / "new" / "audit.html")
    assert path.read_text(encoding="utf-8") == single_page
    assert [found.name for found in path.parent.iterdir()] == ["audit.html"]
    assert card.measurements == tuple(record.measurement for record in single.records)
    assert len(card.exhibits) == 2
    assert json.loads(card.to_json())["schema"] == 1
    assert card._repr_html_().startswith("<iframe srcdoc=")
    assert "this network is wrong on" in repr(card)


def test_table_says_what_the_first_screen_says(comparison, page):
    table = comparison_table(comparison)
    assert table.columns == (
        "method",
        "wrong, own last layers",
        "wrong, from one image per digit",
        "training time",
    )
    assert [row[0] for row in table.rows] == ["plain training", "dropout", "batch norm", "FOCA"]
    screen = re.sub(r"<[^>]*>", "", first_screen(page))
    for row in table.rows:
        assert all(cell in screen for cell in row)
    assert all(len(row) == len(table.columns) for row in table.rows)
