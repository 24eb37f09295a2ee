"""Names are data: whatever a method, a dataset or a class is called, every output shows that name and nothing else."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from clearance._text import visible
from clearance.gate import Tolerance, check, junit, markdown
from clearance.records import load_report
from clearance.report import Card
from clearance.report.drawing import groups
from clearance.report.page import render_page, write_page
from clearance.report.svg import as_svg
from gate.reports import of_images
from odd_names import ODD, shown
from report.invented import Invented


class Page(HTMLParser):
    """The tags of a page, and its words."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_data(self, data):
        self.words.append(data)


WORLD = {"seeds": 1, "dataset": "<i>#a000ff", "heads": ("retrained",)}


def test_a_page_shows_every_name_and_obeys_none(undrawn):
    page = Page(render_page(Invented(methods=ODD, **WORLD).report()))
    words = " ".join(page.words)
    assert [name for name in ODD if shown(name) not in words] == []
    plain = Page(render_page(Invented(methods=tuple(map(str, range(len(ODD)))), **WORLD).report()))
    assert page.tags == plain.tags


def test_every_picture_of_a_page_is_drawn(tmp_path):
    report = Invented(methods=("x" * 300, "猫" * 80, "#a000ff"), **WORLD).report()
    for record in report.exhibits:
        labels = record.exhibit.columns.get("label", [])
        labels[:] = [shown(ODD[place % len(ODD)]) for place in range(len(labels))]
    text = write_page(report, tmp_path).read_text("utf-8")
    pictures = re.findall(r'<svg class="figure".*?</svg>', text, re.DOTALL)
    assert len(pictures) > 3
    for picture in pictures:
        ET.fromstring(picture)


@pytest.fixture(scope="module")
def odd_folder(tmp_path_factory):
    """A report on methods of odd names."""
    folder = tmp_path_factory.mktemp("odd")
    Invented(methods=ODD, **WORLD).report().save(folder)
    return folder


def test_report_json_and_its_files_come_back(odd_folder):
    again = load_report(odd_folder)
    assert again.methods == tuple(shown(name) for name in ODD)
    files = sorted(path.name for path in (odd_folder / "exhibits").iterdir())
    assert all(re.fullmatch(r"[a-z0-9._-]+\.json", name) and len(name) < 200 for name in files)
    assert len(files) >= len(again.exhibits)


@pytest.mark.parametrize("name", ODD)
def test_a_picture_writes_the_name(name):
    rows = [{"method": shown(name), "at": 0, "mean": 1.0, "low": None, "high": None}]
    rows.append(rows[0] | {"method": "b"})
    figure = groups(rows, "at", {0: shown(name), 1: "b"}, (shown(name), "b"), shown(name), size=(6, 3))
    picture = as_svg(figure, "odd", visible(name))
    words = [text for text in ET.fromstring(picture).itertext() if text.strip()]
    assert sum(text.startswith(shown(name)[:10]) for text in words) == 3
    assert "var(--s1, #c64600)" in picture  # the second method's colour
    assert mpl.rcParams["text.parse_math"]  # others' figures are as they were


@pytest.mark.parametrize("name", ODD)
def test_the_card_in_a_notebook_keeps_its_frame(name):
    card = Card(of_images([0, 1] * 8, method=name))
    frame = card._repr_html_()
    assert Page(frame).tags == [("iframe", ("srcdoc", "style", "title"))]
    assert shown(name) in html.unescape(html.unescape(frame))


@pytest.mark.parametrize("name", ODD)
def test_files_for_a_pull_request_and_a_service_show_the_tolerance(name):
    """The text of a tolerance is a user's, as are the settings in its brackets."""
    report = of_images([0, 1] * 8, method=name)
    tolerance = Tolerance.parse(f"accuracy.error[split={re.sub('[],=]', '', name).strip() or 'a'}] rises 1pt")
    results = check(report, report, [tolerance])
    case = ET.fromstring(junit(results)).find(".//testcase")
    assert case is not None
    assert case.get("name") == visible(tolerance.text)
    _, _, head, line, row, *rest = markdown(results).split("\n")
    assert (line, rest) == ("| --- | --- | --- | --- | --- |", [""])
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == len(re.findall(r"\|", head))
    assert "<" not in row
