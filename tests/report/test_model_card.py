"""A report as a section of a model card: what it has, and that names are names in it."""

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from clearance.records import Record, Report
from clearance.report import Card
from clearance.report.audits import all_findings, with_summaries
from clearance.report.findings import Findings
from clearance.vocabulary import Measurement
from odd_names import ODD, shown
from report.invented import Invented

WITH_ENDS = {"interval": "as invented"}
FOUND = (
    Measurement(
        "accuracy",
        "error",
        0.03,
        "fraction",
        500,
        low=0.02,
        high=0.05,
        context={"split": "test", **WITH_ENDS},
    ),
    Measurement(
        "calibration",
        "overconfidence",
        0.2,
        "fraction",
        500,
        low=0.15,
        high=0.25,
        context={"temperature": "as trained", **WITH_ENDS},
    ),
)


class Rendered(HTMLParser):
    """The tags and the words of Markdown as the Hub renders it: CommonMark with tables and strikethrough."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], ""
        renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.feed(renderer.render(text))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words += data


def audited(model="net", dataset="animals"):
    records = tuple(Record(dataset, model, 0, one) for one in FOUND)
    return with_summaries(Report({}, {"torch-clearance": "0.1.0"}, "", "2026-01-02T00:00:00+00:00", records))


def test_it_has_the_headings_of_the_hub_and_every_finding():
    report = audited()
    text = Card(report).to_markdown()
    heads = re.findall(r"^#+ .*", text, re.MULTILINE)
    assert heads == [
        "## Evaluation",
        "### Testing Data, Factors & Metrics",
        "### Results",
        "#### net on animals",
    ]
    found = [one for one in all_findings(Findings(report, "animals")) if not one.lead]
    assert found
    rows = re.findall(r"^\| (\w+) \| \*\*(.+?)\*\*", text, re.MULTILINE)
    assert rows == [(one.severity, one.title) for one in found]
    assert "97.0 % (95.0 to 98.0 %)" in Rendered(text).words
    assert "Clearance 0.1.0 on 2026-01-02" in Rendered(text).words


@pytest.mark.parametrize("name", [*ODD, "_a_", "~~a~~", "# a"])
def test_a_name_is_shown_and_does_nothing(name):
    found, plain = (Rendered(Card(audited(each, each)).to_markdown()) for each in (name, "net"))
    assert found.tags == plain.tags
    assert shown(name).strip() in " ".join(found.words.split("\n"))


def test_a_page_is_not_called_json(tmp_path):
    with pytest.raises(ValueError, match=r"got report\.json\. Write report\.html, or `save_folder`"):
        Card(audited("net", "net")).save(tmp_path / "report.json")


def test_a_comparison_is_its_table():
    report = Invented(methods=ODD, seeds=1, dataset="digits", heads=("retrained",)).report()
    rendered = Rendered(Card(report).to_markdown())
    assert rendered.tags.count("tr") == 1 + len(ODD)
    assert [name for name in ODD if shown(name) not in rendered.words] == []
