"""Damaged and invented reports: each is read as it is, or refused in one line; no page of one has a script."""

import json
import math
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import clearance as cl
from clearance.data import gaussian_images
from clearance.gate import GateStatus, Tolerance, check, junit, markdown
from clearance.gate.formats import overall
from clearance.records import load_report
from clearance.report.page import render_page
from clearance.report.terminal import comparison_table
from cli.terminal import run
from fuzz.damage import damaged_bytes, damaged_tree
from fuzz.endings import MARK, cases, one_line
from gate.reports import distance, distances, error, report, wrong_images

pytestmark = MARK
TOLERANCES = ("accuracy drops 1pt", "flip_distance drops 10%", "accuracy.error[split=test] changes")
WRONG = [0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
FAR = [0.1, 0.2, 0.15, 0.3, 0.12, 0.2, 0.11, 0.4]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report's folder, its report.json and its exhibits."""
    folder = tmp_path_factory.mktemp("whole")
    rows = (error(0.25), wrong_images(WRONG), distance(0.175), distances(FAR), error(0.3, seed=1))
    report(*rows).save(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def written(place, files):
    shutil.rmtree(place, ignore_errors=True)
    (place / "exhibits").mkdir(parents=True)
    for name, content in files.items():
        if content is not None:
            (place / name).write_bytes(content)


def used(place, whole, page=False):
    """What `check` and `report` do with it; a report that passes has every number that the tolerances ask for."""
    with one_line(place.name):
        found = load_report(place)
        assert load_report(place, exhibits=False).methods == found.methods
        str(comparison_table(found))
        if page:
            assert render_page(found).count("<script") == 1  # its own
    with one_line(place.name, "method", "`", "older report", "newer report", *TOLERANCES):
        now, last = load_report(place, exhibits=False), load_report(whole)
        results = check(now, last, [Tolerance.parse(text) for text in TOLERANCES])
        junit(results), markdown(results)
        if overall(results) is GateStatus.PASS:
            values = [record.measurement.value for record in now.records]
            assert all(math.isfinite(value) for value in values)


@cases(300)
@given(data=st.data())
def test_damaged_files(place, whole, data):
    files = files_of(whole)
    name = data.draw(st.sampled_from(sorted(files)))
    written(place, files | {name: data.draw(damaged_bytes(files[name]))})
    used(place, whole)


@cases(200)
@given(data=st.data())
def test_damaged_trees(place, whole, data):
    files = files_of(whole)
    name = data.draw(st.sampled_from(["report.json", *sorted(files)]))
    tree = data.draw(damaged_tree(json.loads(files[name])))
    written(place, files | {name: json.dumps(tree).encode()})
    used(place, whole)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """An audit with all that `diff` reads; its exhibits' names have no digest, so that no damage is seen by it."""
    folder = tmp_path_factory.mktemp("audited")
    train, test = gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1)
    torch.manual_seed(0)
    model = cl.Classifier(nn.Flatten(), nn.Linear(64, 3))
    audits = ["accuracy", "performance", "mistakes", "calibration"]
    cl.audit(model, train=train, test=test, audits=audits).save_folder(folder)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    for number, name in enumerate(report["exhibits"]):
        (folder / name).rename(folder / "exhibits" / f"{number}.json")
    report["exhibits"] = [f"exhibits/{number}.json" for number in range(len(report["exhibits"]))]
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    return folder


@cases(40)
@given(data=st.data())
def test_what_changed_from_and_to_a_damaged_audit(place, audited, data):
    files = files_of(audited)
    name = data.draw(st.sampled_from(["report.json", *sorted(files)]))
    tree = data.draw(damaged_tree(json.loads(files[name]), at_most=2))
    written(place, files | {name: json.dumps(tree).encode()})
    for last, now in ((audited, place), (place, audited)):
        status, _, complaint = run("diff", str(last), str(now), "--out", str(place / "diff"))
        assert status in (0, 2), complaint
        if status:
            with one_line(place.name, "of the two", "the two audits", "older report", "newer report"):
                raise ValueError(complaint.rstrip("\n"))
        else:
            pages = (place / "diff" / name for name in ("index.html", "share.html"))
            assert all(page.read_text("utf-8").count("<script") == 1 for page in pages)  # its own


@cases(12)
@given(data=st.data())
def test_pages_of_damaged_trees(place, whole, data):
    files = files_of(whole)
    name = data.draw(st.sampled_from(sorted(files)))
    tree = data.draw(damaged_tree(json.loads(files[name]), at_most=1))
    written(place, files | {name: json.dumps(tree).encode()})
    used(place, whole, page=True)
