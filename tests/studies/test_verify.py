"""Committed ledgers are what their seeds' values give, and a changed value shows."""

import contextlib
import json
import math
import re
import shutil
import subprocess
from typing import Any

import pytest

from clearance.records import Record, Report, RunNote
from clearance.research import Outcome, summarise
from clearance.vocabulary import Measurement
from papers.__main__ import main
from papers.engine.catalogue import PAPERS, paper, paper_claims
from papers.engine.ledger import JudgedStudy, json_text, mean_and_spread, page_digest
from papers.engine.verify import (
    ROOT,
    different,
    ledgers,
    read,
    read_again,
    rewrite,
    unsupported,
    verified,
    verify,
    with_tables,
)


def test_every_committed_ledger_follows_from_the_values_of_its_seeds(capsys):
    with contextlib.suppress(SystemExit):
        main(["verify"])
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("wrong")] == []
    checked, rest = re.fullmatch(r"(\d+) readings.* recomputed, (.*)", said.splitlines()[-1]).groups()  # type: ignore[union-attr]
    assert int(checked) > 300
    assert rest == "0 wrong"


def copied(place, folder):
    """A committed ledger in a folder of its own, as a tree; its path."""
    shutil.copytree((ROOT / place).parent, (folder / place).parent)
    return folder / place, read(folder / place)


def saved(path, tree):
    """With the digests that would say that all is well."""
    path.write_text(json_text(tree), "utf-8")


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


def test_one_changed_value_fails_where_only_a_table_has_it(tmp_path):
    path, tree = copied("sato_2019/results/cifar10/ledger.json", tmp_path)
    saved(path, tree)
    assert verified(path).problems == ()
    own = next(
        row
        for row in tree["measurements"]
        if row["method"] == "lgm" and row["context"].get("split") == "test"
    )
    own["values"]["3"] += 0.01
    saved(path, tree)
    table, mean = verified(path).problems
    assert table.startswith("ledger.md has another table: Errors of the own head")
    assert mean.startswith("measurements[")
    assert path.with_suffix(".md") in rewrite(tmp_path)
    assert verified(path).problems == ()


NOISE = "elsayed_2018/results/noise/digits/ledger.json"


def errors_at_40(tree):
    """Errors with 40 % wrong labels, on which no claim rests."""
    return next(
        row
        for row in tree["measurements"]
        if (row["method"], row["name"], row["context"].get("noise")) == ("margin-l2", "error", 0.4)
        and row["context"].get("split") == "test"
    )


def test_one_changed_value_fails_where_only_a_table_of_the_study_has_it(tmp_path):
    path, tree = copied(NOISE, tmp_path)
    row = errors_at_40(tree)
    row["values"]["3"] += 0.01
    saved(path, tree)
    mean, cell = verified(path).problems
    assert re.match(r"measurements\[\d+\]\.mean is .* and its values give", mean)
    assert re.match(r"'94.6 % ± .*' is no mean and spread of margin-l2", cell)
    rewrite(tmp_path)  # the mean is written anew, the study's table is not
    assert verified(path).problems == (cell,)


def test_one_changed_cell_of_a_table_of_the_study_fails(tmp_path):
    path, tree = copied(NOISE, tmp_path)
    markdown = path.with_suffix(".md")
    text = markdown.read_text("utf-8")
    error = summarise({int(seed): value for seed, value in errors_at_40(tree)["values"].items()})
    right = mean_and_spread(1 - error.mean, error.spread, "fraction")
    assert text.count(right) == 1
    text = text.replace(right, mean_and_spread(1 - error.mean + 0.01, error.spread, "fraction"))
    markdown.write_text(text, "utf-8")
    saved(path, {**tree, "page": page_digest(text)})
    (problem,) = verified(path).problems
    assert problem.endswith("is no mean and spread of margin-l2")


@pytest.mark.parametrize("study", ["causes", "fig1", "weakness", "rivals"])
def test_one_changed_value_fails_in_a_ledger_of_rows(study, tmp_path):
    path, tree = copied(f"sato_2019/results/{study}/ledger.json", tmp_path)
    saved(path, tree)
    assert verified(path).problems == ()
    tree["rows"][5]["values"]["2"] *= 1.01
    saved(path, tree)
    assert any("over_seeds.mean" in one for one in verified(path).problems)


def test_one_changed_value_fails_where_another_seeds_is_infinite(tmp_path):
    path, tree = copied("sato_2019/results/digits/ledger.json", tmp_path)
    row = next(row for row in tree["measurements"] if math.isinf(row["mean"]) and "mean of the finite" in row)
    seed = next(seed for seed, value in row["values"].items() if math.isfinite(value))
    row["values"][seed] *= 1.01
    saved(path, tree)
    assert any("mean of the finite is" in one for one in verified(path).problems)


@pytest.mark.parametrize(
    ("place", "printed", "other"),
    [
        ("sato_2019/results/later-cut/digits", r"p = \S+ after", "p = 0.0001 after"),
        ("sato_2019/results/later-cut/digits", r"\[inconclusive\]", "[better]"),
        ("sato_2019/results/later-cut/mnist", r"\| 0\.05 \| 0\.9 % \| 1\.7 % \|", "| 0.05 | 0.9 % | 2.7 % |"),
        ("sato_2019/results/fine-tuning", r"\*\*worse\*\* \(", "**better** ("),
        ("sato_2019/results/fine-tuning", r"difference −8\.9 %", "difference −8.8 %"),
        ("sato_2019/results/causes", r"errs \*\*more\*\*", "errs **less**"),
        ("sato_2019/results/causes", r"\| (training time) \|(.*)\n\| (.*?) \|", r"| \3 |\2\n| \1 |"),
        ("sato_2019/results/new-classes", r"better (\d+), worse (\d+)", r"better \2, worse \1"),
        ("sato_2019/results/causes", r"recipe: \w+", "recipe: 0000000000000000"),
        ("wan_2018/results/accuracy/digits", r"\*\*no\*\*\.", "**yes**."),
        ("sato_2019/results/causes", r"3\.5× \(", "3.6× ("),
        ("sato_2019/results/fig1", r"4 of 5 seeds", "3 of 5 seeds"),
        ("sato_2019/results/weakness", r"\| 3 \| 0\.0 %", "| 3 | 33.3 %"),
        ("wan_2018/results/fgsm/mnist", r"\[worse\]", "[better]"),
        ("wan_2018/results/left-out-class/digits", r"98\.4 % ± 0\.8 %", "98.3 % ± 0.8 %"),
        ("wan_2018/results/accuracy/mnist", r"\+0\.72 \(", "+0.62 ("),
        ("tanay_2018/results/lenet/fashion-mnist", r"4\.1× \(", "3.1× ("),
        ("tanay_2018/results/lenet/mnist", r"1\.01 ± 0\.0275 \| 0\.500", "1.02 ± 0.0275 | 0.500"),
        ("tanay_2018/results/lenet/mnist", r"(1\.01 ± 0\.0275) \| (0\.500 ± 0\.00984)", r"\2 | \1"),
        ("tanay_2018/results/depth/mnist", r"0\.628 ± 0\.0378", "0.638 ± 0.0378"),
        ("tanay_2018/results/svm/mnist", r"9\.44 / 0\.98", "9.44 / 0.88"),
        ("elsayed_2018/results/toy", "test error better", "test error worse"),
    ],
)
def test_a_changed_page_fails_with_its_digest_refreshed(place, printed, other, tmp_path):
    path, tree = copied(f"{place}/ledger.json", tmp_path)
    assert verified(path).problems == ()
    markdown = path.with_suffix(".md")
    text, count = re.subn(printed, other, markdown.read_text("utf-8"), count=1)
    assert count == 1
    markdown.write_text(text, "utf-8")
    saved(path, {**tree, "page": page_digest(text)})
    assert verified(path).problems != ()


def test_a_changed_model_fails_where_verdicts_rest_on_models(tmp_path):
    path, _ = copied("tanay_2018/results/svm/mnist/ledger.json", tmp_path)
    models = path.parent / "models.csv"
    assert verified(path).problems == ()
    lines = models.read_text("utf-8").splitlines(keepends=True)
    cells = lines[41].split(",")  # the first pair at lambda 10^-2
    cells[9] = str(int(cells[9]) + 40)  # images of the test set that it has wrong
    models.write_text("".join([*lines[:41], ",".join(cells), *lines[42:]]), "utf-8")
    assert any("P0-1" in one or "claims[0]" in one for one in verified(path).problems)


def test_a_changed_verdict_fails(tmp_path):
    path, tree = copied("sato_2019/results/mnist/ledger.json", tmp_path)
    row = next(row for row in tree["claims"] if row["id"] == "T1")
    row["ordering"] = "does not hold"
    saved(path, tree)
    assert any("ordering is 'does not hold'" in one for one in verified(path).problems)


def test_what_was_said_in_markdown_is_checked_too(tmp_path):
    path, _ = copied("sato_2019/results/mnist/ledger.json", tmp_path)
    markdown = path.with_suffix(".md")
    markdown.write_text(markdown.read_text("utf-8").replace("foca 26.0", "foca 28.0"), "utf-8")
    assert "ledger.md has other verdicts" in verified(path).problems


def test_a_page_that_was_changed_by_hand_fails_and_is_not_blessed_by_writing_it_again(tmp_path):
    path, _ = copied("wan_2018/results/accuracy/mnist/ledger.json", tmp_path)
    assert not verified(path).problems
    markdown = path.with_suffix(".md")
    text = markdown.read_text("utf-8")
    changed = re.sub(r"15 bins of equal", "16 bins of equal", text)
    assert changed != text
    markdown.write_text(changed, "utf-8")
    for _ in range(2):
        assert verified(path).problems[-1].startswith("ledger.md was changed after it was written")
        rewrite(tmp_path)


def test_a_table_of_verdicts_is_written_from_the_ledgers(tmp_path):
    copied("sato_2019/results/mnist/ledger.json", tmp_path)
    text = "<!-- verdicts of MNIST = mnist: G4, A1 -->\nold\n<!-- end of verdicts -->\n"
    found = with_tables(text, tmp_path / "sato_2019")
    assert "| ordering here: **holds** |" in found
    assert "| not run |" in found
    assert with_tables(found, tmp_path / "sato_2019") == found


def test_rows_of_a_table_are_those_of_the_ledgers(tmp_path):
    """A cell has the same row and column of every ledger that is named, in this order, without emphasis."""
    for name, error in (("a", "**2 %**"), ("b", "*3 %*")):
        rows = f"| method | time | error |\n|---|---|---|\n| x | 1 | {error} |\n| y, z | 2 | 4 % |\n"
        text = f"# {name}\n\n{rows}\n| w | 5 |\n"
        (tmp_path / f"{name}.md").write_text(text, "utf-8")
    page = "<!-- rows of a.md; b.md: y, z; x: error; time -->\n<!-- end of rows -->\n"
    found = with_tables(page, tmp_path)
    assert found.splitlines()[1:-1] == [
        "|  | error | time |", "| --- | --- | --- |", "| y, z | 4 / 4 % | 2 / 2 |", "| x | 2 / 3 % | 1 / 1 |"
    ]  # fmt: skip
    assert with_tables(found.replace("3 %", "5 %"), tmp_path) == found


@pytest.mark.parametrize(
    ("again", "kept", "problems"),
    [
        (0.1, 0.1 + 1e-15, 0),
        (0.1, 0.1001, 1),
        ([1, 2], [1], 1),
        ({"a": 1}, {"a": 1, "b": None}, 1),
        ("x", "y", 1),
        (float("nan"), float("nan"), 0),
        (float("inf"), float("inf"), 0),
        (float("nan"), 1.0, 1),
    ],
)
def test_rounding_is_no_difference(again, kept, problems):
    assert len(different(again, kept, "here")) == problems


def new_ledger(folder):
    """A ledger of this paper's study of noise as a run writes it, of five seeds with their cost; its path."""
    methods = {"cross-entropy": 0.25, "margin-l1": 0.10, "margin-l2": 0.11, "margin-linf": 0.12, "hinge": 0.3,
               "margin-l2-input": 0.13}  # fmt: skip
    records = []
    for place, (method, error) in enumerate(methods.items()):
        for seed in range(5):
            context: dict[str, Any] = {"split": "test", "noise": 0.8}
            value = error + 0.001 * ((seed * (place + 2)) % 5)
            one = Measurement("accuracy", "error", value, "fraction", 10_000, better="lower", context=context)
            seconds = Measurement(
                "training", "seconds", 10 + place + 0.1 * seed, "seconds", 100, better="lower"
            )
            records += [Record("mnist", method, seed, one), Record("mnist", method, seed, seconds)]
    runs = tuple(
        RunNote(method, seed, Outcome.FINISHED, "finished") for method in methods for seed in range(5)
    )
    report = Report({"epochs": 8}, {"torch": "2"}, "the command", "today", tuple(records), runs=runs)
    path = JudgedStudy("elsayed_2018", ("noise",), "mnist").write_ledger(report, ["## More"], folder)
    return path.with_suffix(".json")


def test_a_new_ledger_holds_all_that_its_verdicts_and_costs_rest_on(tmp_path):
    path = new_ledger(tmp_path)
    found, tree = verified(path), read(path)
    assert found.problems == ()
    assert re.fullmatch(r"[0-9a-f]{40}( with changes)?|no checkout", tree["commit"])
    assert re.fullmatch(r"[0-9a-f]{16}", tree["recipe"])
    assert f"- Commit: {tree['commit']}; recipe: {tree['recipe']}.\n" in path.with_suffix(".md").read_text(
        "utf-8"
    )
    assert {row["id"]: row["verdict"] for row in tree["claims"]}["1"] == "ordering holds"
    for name, word in (("error", "claims"), ("seconds", "cost")):
        changed = json.loads(path.read_text("utf-8"))
        row = next(r for r in changed["measurements"] if (r["method"], r["name"]) == ("margin-l2", name))
        row["values"]["4"] *= 1.02
        other = tmp_path / name / "ledger.json"
        other.parent.mkdir()
        shutil.copy(path.with_suffix(".md"), other.with_suffix(".md"))
        saved(other, changed)
        assert any(one.startswith(word) for one in verified(other).problems)


def test_numbers_in_sentences_are_those_of_the_file_that_is_named(tmp_path):
    page = tmp_path / "x_2020" / "README.md"
    page.parent.mkdir()
    (page.parent / "ledger.md").write_text("| plain | 24.8 % ± 1.9 % (23.6 % to 26.1 %) | 0.131 |\n", "utf-8")

    def problems(sentence, others=""):
        page.write_text(f"# A\n\n{sentence}\n\n<!-- numbers from ledger.md [0]{others} -->\n", "utf-8")
        assert unsupported(page.read_text("utf-8"), page.parent)[-1].endswith("--read-again")
        assert read_again(tmp_path) == [page]
        return unsupported(page.read_text("utf-8"), page.parent)

    assert problems("Plain has 24.8 % error, or 25 %; its share is 0.13.") == []
    assert problems("Plain has 24.9 % error.") == ["24.9 % is in none of ledger.md"]
    assert problems("Plain has 1.9 and 23.6 % error.") == [
        "1.9 % is in none of ledger.md", "23.6 % is in none of ledger.md"
    ]  # fmt: skip
    assert problems("Plain / longer have 24.9 / 23.6 / 24.8\n% error.") == [
        "24.9 % is in none of ledger.md", "23.6 % is in none of ledger.md"
    ]  # fmt: skip
    assert problems("The share is 0.12.") == ["0.12 is in none of ledger.md"]
    assert problems("The paper has 20 % and 0.12.", "; others: 20, 0.12") == []


def test_sentences_are_to_be_read_again_where_a_ledger_or_a_number_in_them_has_changed(tmp_path):
    page, ledger = tmp_path / "x_2020" / "README.md", tmp_path / "x_2020" / "ledger.md"
    page.parent.mkdir()
    ledger.write_text("| plain | 24.8 % |\n| foca | 3.1 % |\n", "utf-8")
    page.write_text(
        "Plain has 24.8 %, FOCA 3.1 % in 12 runs.\n\n<!-- numbers from ledger.md [] -->\n", "utf-8"
    )
    assert read_again(tmp_path) == [page]
    text = page.read_text("utf-8")
    assert unsupported(text, page.parent) == []
    assert unsupported(text.replace("has", "had"), page.parent) == []
    for other in (
        text.replace("24.8", "x").replace("3.1", "24.8").replace("x", "3.1"),
        text.replace("12 runs", "9 runs"),
    ):
        assert ["changed" in one for one in unsupported(other, page.parent)] == [True]
    ledger.write_text("| plain | 24.8 % |\n| foca | 3.1 % |\n| lgm | 3.0 % |\n", "utf-8")
    assert ["changed" in one for one in unsupported(text, page.parent)] == [True]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_has_its_place_in_the_papers_page(paper):
    page = (ROOT / paper / "README.md").read_text("utf-8")
    absent = [
        one.id for one in paper_claims(paper).claims if not re.search(rf"\b{re.escape(one.id)}\b", page)
    ]
    assert absent == []


def test_a_front_page_without_the_comment_that_names_a_source_fails(tmp_path):
    page = tmp_path / "x_2020" / "README.md"
    page.parent.mkdir()
    (page.parent / "ledger.md").write_text("| plain | 24.8 % |\n", "utf-8")
    comment = "<!-- numbers from ledger.md [] -->"
    page.write_text(f"Plain has 24.8 %.\n\n{comment}\n", "utf-8")
    read_again(tmp_path)
    assert [one.problems for one in verify(tmp_path) if one.path == page] == [()]
    page.write_text("Plain has 24.8 %.\n", "utf-8")
    ((problem,),) = [one.problems for one in verify(tmp_path) if one.path == page]
    assert "24.8 %" in problem


def test_every_ledger_names_a_commit_that_is_there():
    git = ["git", "-C", str(ROOT.parent), "-c", "safe.directory=*"]
    if shutil.which("git") is None or not (ROOT.parent / ".git").exists():
        pytest.skip("no git repository")
    if _printed([*git, "rev-parse", "--is-shallow-repository"]) == "true":
        pytest.skip("a git repository without its whole history")
    kept = set(_printed([*git, "rev-list", "HEAD"]).split())
    named = {read(path).get("commit", ""): path for path in ledgers()}
    if not kept.intersection(named):
        pytest.skip("a git repository with another history")
    assert {commit: path for commit, path in named.items() if commit not in kept} == {}


def _printed(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", PAPERS)
def test_every_ledger_has_the_seeds_that_were_fixed(name):
    claims, results = paper_claims(name), ROOT / name / "results"
    assert {study.split(" on ")[0] for study in claims.seeds} <= {"recipe", *paper(name).studies}
    for path in ledgers(ROOT):
        if results in path.parents:
            study, *dataset = path.relative_to(results).parts[:-1]
            if study not in paper(name).studies:  # the recipe's, by dataset
                study, dataset = "", [study]
            fixed = claims.seeds_of(study, next(iter(dataset), ""))
            tree = read(path)
            rows = tree["measurements"] if "measurements" in tree else tree["rows"]
            kept = {len(row["values"]) for row in rows}
            assert max(kept, default=None) == fixed, path
