"""Committed ledgers are what their seeds' values give, and a changed value shows."""

import json
import shutil

import pytest

from papers.__main__ import main
from papers.engine.verify import ROOT, different, rewrite, verified, verify, with_tables


def test_every_committed_ledger_follows_from_its_values():
    found = verify()
    assert {str(one.path.relative_to(ROOT)): one.problems for one in found if one.problems} == {}
    assert sum(one.checked for one in found) > 300


def test_the_command_says_what_nobody_can_check(capsys):
    main(["verify"])
    said = capsys.readouterr().out
    assert "to run again: sato_2019/results/digits/ledger.json" in said
    assert said.splitlines()[-1].split(" recomputed, ")[1].startswith("0 wrong")


def copied(place, folder):
    """A committed ledger in a folder of its own, as a tree; its path."""
    shutil.copytree((ROOT / place).parent, (folder / place).parent)
    return folder / place, json.loads((folder / place).read_text("utf-8"))


def saved(path, tree):
    """With the digests that would say that all is well."""
    path.write_text(json.dumps({**tree, "commit": "0" * 40, "recipe": "0" * 16}), "utf-8")


def test_one_changed_value_of_one_seed_fails_in_a_ledger_of_claims(tmp_path):
    path, tree = copied("sato_2019/results/mnist/ledger.json", tmp_path)
    saved(path, tree)
    assert verified(path).problems == ()
    row = next(
        row
        for row in tree["measurements"]
        if (row["method"], row["audit"], row["context"].get("head"), row["context"].get("samples"))
        == ("foca", "co_adaptation", "retrained", 10)
    )
    row["values"]["3"] += 0.001
    saved(path, tree)
    problems = verified(path).problems
    assert any("first.mean" in one for one in problems)
    assert any(".p is" in one for one in problems)
    assert path in rewrite(tmp_path)
    assert verified(path).problems == ()


def test_one_changed_value_fails_in_a_ledger_of_rows_and_in_one_with_both(tmp_path):
    for place in ("sato_2019/results/causes/ledger.json", "wan_2018/results/fig1/mnist/ledger.json"):
        path, tree = copied(place, tmp_path)
        row = tree["rows"][5]
        row["values"]["2"] *= 1.01
        saved(path, tree)
        assert any("over_seeds.mean" in one for one in verified(path).problems), place


def test_a_changed_model_fails_where_verdicts_rest_on_models(tmp_path):
    path, _ = copied("tanay_2018/results/svm/mnist/ledger.json", tmp_path)
    models = path.parent / "models.csv"
    assert verified(path).problems == ()
    lines = models.read_text("utf-8").splitlines(keepends=True)
    cells = lines[41].split(",")  # the first pair at lambda 10^-2
    cells[9] = str(int(cells[9]) + 40)  # images of the test set that it has wrong
    models.write_text("".join([*lines[:41], ",".join(cells), *lines[42:]]), "utf-8")
    assert any("P0-1" in one or "claims[0]" in one for one in verified(path).problems)


def test_a_changed_verdict_fails_where_no_seed_was_kept(tmp_path):
    path, tree = copied("sato_2019/results/digits/ledger.json", tmp_path)
    row = next(row for row in tree["claims"] if row["id"] == "T1")
    row["ordering"] = "holds"
    saved(path, tree)
    assert any("ordering is 'holds'" in one for one in verified(path).problems)


def test_what_was_said_in_markdown_is_checked_too(tmp_path):
    path, _ = copied("sato_2019/results/mnist/ledger.json", tmp_path)
    markdown = path.with_suffix(".md")
    markdown.write_text(markdown.read_text("utf-8").replace("foca 26.0", "foca 28.0"), "utf-8")
    assert verified(path).problems == ("ledger.md has other verdicts",)


def test_a_table_of_verdicts_is_written_from_the_ledgers(tmp_path):
    copied("sato_2019/results/mnist/ledger.json", tmp_path)
    text = "<!-- verdicts of MNIST = mnist: G4, A1 -->\nold\n<!-- end of verdicts -->\n"
    found = with_tables(text, tmp_path / "sato_2019")
    assert "| **not comparable**; ordering here: **holds** |" in found
    assert "| not run |" in found
    assert with_tables(found, tmp_path / "sato_2019") == found


@pytest.mark.parametrize(
    ("again", "kept", "problems"),
    [
        (0.1, 0.1 + 1e-15, 0),
        (0.1, 0.1001, 1),
        ([1, 2], [1], 1),
        ({"a": 1}, {"a": 1, "b": None}, 1),
        ("x", "y", 1),
    ],
)
def test_rounding_is_no_difference(again, kept, problems):
    assert len(different(again, kept, "here")) == problems
