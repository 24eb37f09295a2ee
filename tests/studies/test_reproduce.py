"""From a paper's name to its ledger: runs, verdicts, absent data, and the study of weak heads."""

import dataclasses
import json
import re

import pytest

from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan
from clearance.models import extractors  # noqa: F401 - the recipes' models are there
from clearance.records import Record, Report, RunNote
from clearance.vocabulary import Measurement, Outcome
from papers.engine.catalogue import paper_claims
from papers.engine.reproduce import reproduce, reproduce_recipe
from papers.sato_2019 import weakness
from studies.small_runs import grids_here

CLAIMS = paper_claims("sato_2019")
METHODS = ("plain", "noisy", "dropout", "batchnorm", "foca")


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs without a process each; `plans` notes what was run."""
    plans: list[RunPlan] = []

    grids_here(monkeypatch, plans)
    return plans


@pytest.fixture
def tiny():
    """All five methods for one epoch on 65 digits."""
    small = {"hidden": (8,)}
    return Recipe(
        dataset="digits",
        epochs=1,
        batch_size=32,
        train_fraction=0.05,
        seeds=1,
        audits=("accuracy", "co_adaptation"),
        audit_settings={
            "co_adaptation": {"per_class": [1], "repetitions": [2], "hidden": [4], "all_images": False}
        },
        methods={
            "plain": Method(**small),  # type: ignore[arg-type]
            "noisy": Method(head_noise=0.1, **small),  # type: ignore[arg-type]
            "dropout": Method(dropout=0.5, **small),  # type: ignore[arg-type]
            "batchnorm": Method(norm="batch", **small),  # type: ignore[arg-type]
            "foca": Method(way="foca", per_class=1, head_steps=2, **small),  # type: ignore[arg-type]
        },
    )


def rows_of(text, title):
    """The cells of the Markdown table whose first column has this title."""
    lines = text.splitlines()
    (start,) = [k for k, line in enumerate(lines) if line.startswith(f"| {title} |")]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_a_small_recipe_gives_a_ledger_with_a_row_for_every_claim(tiny, in_this_process, tmp_path):
    found = reproduce_recipe(CLAIMS, tiny, "python -m papers sato_2019", 1, tmp_path)
    assert len(in_this_process) == 5
    assert found.ledger == tmp_path / "ledger.md"
    assert not found.missing
    text = found.ledger.read_text("utf-8")
    table = rows_of(text, "id")
    assert [row[0] for row in table] == [claim.id for claim in CLAIMS.claims]
    assert all(len(row) == 6 for row in table)
    verdicts = {row[0]: row[4] for row in table}
    assert verdicts["A3"] == "**not comparable; ordering here: cannot tell**: 1 seed; a verdict needs 5"
    assert verdicts["G1"] == "**not run**: geodesic distance was not measured"
    assert verdicts["A1"] == "**not run**: about cifar10; this is digits"
    by_id = {row[0]: row for row in table}
    assert re.search(r"foca \(samples 10\) [\d.]+ % against plain [\d.]+ %", by_id["A3"][3])
    assert by_id["A3"][3].endswith("; 1 seed")
    assert "Run `python -m papers sato_2019 --dataset cifar10 --root ROOT`" in by_id["A1"][5]
    assert "Run `python -m papers sato_2019 --only fig1`" in by_id["F1"][5]
    assert [row[0] for row in rows_of(text, "method")] == list(METHODS[1:])  # training time, plain = 1
    assert (tmp_path / "index.html").exists()

    ledger = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [row["id"] for row in ledger["claims"]] == [row[0] for row in table]
    assert ledger["versions"] == report["versions"]
    assert ledger["command"] == "python -m papers sato_2019"
    assert "8x8" in ledger["scaled"]
    a3 = next(row for row in ledger["claims"] if row["id"] == "A3")["readings"][0]["compared"]
    measured = {
        row["method"]: row["value"]
        for row in report["measurements"]
        if (row["audit"], row["name"], row["context"].get("head")) == ("co_adaptation", "error", "retrained")
    }
    sides = [side for one in a3 for side in (one["first"], one["second"])]
    assert {side["method"]: side["mean"] for side in sides} == measured
    assert len(measured) == 5


def test_failed_runs_are_told(tiny, monkeypatch, tmp_path):
    grids_here(monkeypatch, [], broken=[(method, 0) for method in METHODS])
    found = reproduce_recipe(CLAIMS, tiny, "c", 1, tmp_path)
    assert "5 runs, of which not finished: plain: 1 stopped, noisy: 1 stopped" in found.ledger.read_text(
        "utf-8"
    )
    assert {j.verdict for j in found.judgements} == {"not run"}


@pytest.mark.parametrize("root", [None, "nowhere"])
def test_without_data_every_row_says_so_with_the_command(root, in_this_process, tmp_path):
    given = None if root is None else str(tmp_path / root)
    found = reproduce("sato_2019", "cifar10", root=given, out=tmp_path / "out")
    assert found.missing
    assert not in_this_process
    table = {row[0]: row for row in rows_of(found.ledger.read_text("utf-8"), "id")}
    assert list(table) == [claim.id for claim in CLAIMS.claims]
    elsewhere = {"A4", "A5", "G2"}
    own = {"F1": "--only fig1", **dict.fromkeys(("W1", "W2", "W3", "W4"), "--only weakness")}
    for name, command in own.items():
        assert table[name][4] == "**not run**: measured by its own command, not here"
        assert f"Run `python -m papers sato_2019 {command}`" in table[name][5]
    for name in ("L3.1", "L3.2"):
        assert "Run `python -m pytest tests/theory/" in table[name][5]
    for name, row in table.items():
        if name in own or name in {"L3.1", "L3.2"}:
            continue
        assert (
            row[4] == "**not run**: no data"
            if name not in elsewhere
            else row[4].startswith("**not run**: about")
        )
        dataset = "cifar100" if name in elsewhere else "cifar10"
        assert f"Run `python -m papers sato_2019 --dataset {dataset} --root ROOT`" in row[5]
    assert str(tmp_path) not in found.ledger.read_text("utf-8")


def test_a_wrong_audit_is_found_before_data_and_training(tiny, in_this_process, tmp_path):
    wrong = dataclasses.replace(tiny, audits=("accuracyy",))
    with pytest.raises(ValueError, match="Did you mean 'accuracy'"):
        reproduce_recipe(CLAIMS, wrong, "c", 1, tmp_path)
    assert not list(tmp_path.iterdir())


class TestWeakness:
    def test_the_settings_are_a_grid_and_single_changes(self):
        methods = dict(weakness.weakness_recipe().methods)
        assert next(iter(methods)) == "plain"  # what costs are compared with
        del methods["plain"]
        assert {(m.per_class, m.head_steps) for m in methods.values()} == {
            (k, s) for k in (1, 3, 10, 30, 100) for s in (8, 32, 128)
        } | {(100, 20)}
        for k in (1, 10):
            base = methods[f"k={k}, S=32"]
            changed = [m for m in methods.values() if (m.per_class, m.head_steps) == (k, 32) and m != base]
            assert [dataclasses.replace(base, head_decay=0.0), dataclasses.replace(base, max_norm=1.0),
                    dataclasses.replace(base, max_norm=4.0), dataclasses.replace(base, reuse=8)] == changed  # fmt: skip

    def test_it_runs_as_a_study_of_the_paper(self, tiny, in_this_process, monkeypatch, tmp_path):
        foca = tiny.methods["foca"]
        two = {"plain": tiny.methods["plain"], "k=1, S=8": foca, "k=3, S=8": foca}
        recipe = dataclasses.replace(tiny, methods=two)
        monkeypatch.setattr(
            weakness, "weakness_recipe", lambda seeds: dataclasses.replace(recipe, seeds=seeds)
        )
        found = reproduce("sato_2019", only="weakness", seeds=1, out=tmp_path)
        assert found.judgements == ()
        table = rows_of(found.ledger.read_text("utf-8"), "setting")
        assert [row[:2] for row in table] == [["plain", "1"], ["k=1, S=8", "1"], ["k=3, S=8", "1"]]
        assert table[0][6:] == ["1×", "1×"]
        assert all(re.fullmatch(r"[\d.]+×", row[6]) for row in table[1:])
        assert all(row[4].endswith("%") and row[5].endswith("%") for row in table)
        assert (tmp_path / "report.json").exists()

    def test_collapsed_runs_are_a_share_and_their_errors_count(self, tmp_path):
        context: dict[str, str | int] = {"head": "retrained", "samples": 10}
        records = tuple(
            Record("digits", "k=1", seed, Measurement("co_adaptation", "error", value, "fraction", 50, context=context))
            for seed, value in enumerate((0.1, 0.2, 0.9, 0.4))
        )  # fmt: skip
        ends = (Outcome.FINISHED, Outcome.COLLAPSED, Outcome.DIVERGED, Outcome.FINISHED)
        runs = tuple(RunNote("k=1", seed, end, "") for seed, end in enumerate(ends))
        text = weakness.write_ledger(Report({}, {}, "", "", records, (), runs), tmp_path).read_text("utf-8")
        assert [row[:6] for row in rows_of(text, "setting")] == [
            ["k=1", "4", "25.0 %", "1", "40.0 % ± 35.6 %", "–"]
        ]
        json.loads((tmp_path / "ledger.json").read_text("utf-8"))
