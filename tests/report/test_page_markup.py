"""The page as a document: complete in itself, sound, safe with anybody's names, plain about what went wrong."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from clearance.records.record import ExhibitRecord, RunNote
from clearance.records.store import load_report
from clearance.report.card import Card
from clearance.report.page import render_page, write_page
from clearance.vocabulary import Exhibit, Outcome
from report.reading import Reading, first_screen


def test_the_page_stands_alone(page):
    found = Reading(page)
    assert not found.tags & {"link", "iframe", "img", "object", "embed", "base"}
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
    assert page.count("<script") == 1  # its own
    assert "<b>set</b>" not in page
    assert "{{ 7*7 }}" in page
    assert Reading(page).stack == []
    assert "<script" not in Card(report)._repr_html_()  # escaped, as a whole


def test_no_script_but_the_pages_own_may_run(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; " + f"script-src 'sha256-{digest}'"
    )
    assert not re.search(r"\son\w+=", page.replace(script, ""))


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


def test_the_heads_that_were_trained_against_are_shown_while_training(lean):
    columns: dict[str, Any] = {
        "step": [10, 20],
        "weak_head_accuracy": [0.4, 0.8],
        "weak_heads_at_chance": [0.1, 0.0],
    }
    shown = [
        ExhibitRecord(
            "digits", "foca", seed, Exhibit("training", "weak_heads", "curve", columns, "Weak heads.")
        )
        for seed in range(2)
    ]
    page = render_page(replace(lean, exhibits=tuple(shown)))
    training = page[page.index("<h2>While training") :].split("</section>")[0]
    assert "FOCA, seed 0: the accuracy of the temporary last layers" in training
    assert "exhibits/digits.foca.seed0.training.weak_heads." in training
    assert "Weak heads" not in page
    assert "seed1.training.weak_heads" not in page


def test_exhibits_of_a_kind_never_heard_of_are_shown(lean):
    strange = Exhibit(
        "strange", "thing", "histogram", {"centre": [1.0, 2.0], "count": [3, 4]}, "A strange thing."
    )
    page = render_page(replace(lean, exhibits=(ExhibitRecord("digits", "plain", 0, strange),)))
    assert "A strange thing." in page
    assert "exhibits/digits.plain.seed0.strange.thing." in page


def test_a_page_that_cannot_be_made_loses_no_number(single, tmp_path):
    broken = Exhibit("mistakes", "confident", "images", {"image": [[[0.5]]]}, "Mistakes without names.")
    with pytest.raises(KeyError):
        write_page(replace(single, exhibits=(ExhibitRecord("digits", "model", 0, broken),)), tmp_path)
    assert load_report(tmp_path).records == single.records
    assert "clearance report" in (tmp_path / "index.html").read_text("utf-8")


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
    assert "test images are classified correctly" in repr(card)
