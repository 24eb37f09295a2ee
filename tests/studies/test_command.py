"""``python -m papers``: its plan, its mistakes, and what it says where there is no data."""

import json
import re

import pytest

from clearance.experiments import engines
from clearance.experiments.recipe import read_recipe
from papers.__main__ import main
from papers.engine.catalogue import PAPERS, paper


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """A command in an empty folder, where no run may start: its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "_new", lambda *_, **__: pytest.fail("a process was started"))

    def status_and_text(*words):
        status: str | int | None = 0
        try:
            main(list(words))
        except SystemExit as ended:
            status = ended.code or 0
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return status_and_text


def test_the_list_names_every_paper_and_study(run):
    status, shown, _ = run("list")
    assert status == 0
    words = set(re.findall(r"[\w-]+", shown))
    assert {name for one in PAPERS for name in (one, *paper(one).studies)} <= words


def test_a_plan_names_claims_and_runs_and_does_nothing(run, tmp_path):
    status, shown, _ = run("sato_2019", "--seeds", "6", "--dry-run")
    assert status == 0
    assert "21 claims of sato_2019" in shown
    assert "30 runs" in shown
    assert re.search(r"^dataset: digits$", shown, re.MULTILINE)
    status, shown, _ = run("sato_2019", "--only", "weakness", "--dry-run")
    assert status == 0
    assert shown.startswith("weakness: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "model", "length"),
    [
        (("elsayed_2018",), "large-margin-cnn", ("epochs", 300)),
        (("elsayed_2018", "--dataset", "cifar10"), "resnet20", ("epochs", 60)),
        (("sato_2019", "--dataset", "cifar10"), "convnet32", ("epochs", 60)),
        (("wan_2018",), "lenet-plus", ("steps", 20_000)),
        (("wan_2018", "--dataset", "cifar100", "--root", "files"), None, ("epochs", 307)),
    ],
)
def test_a_full_protocol_is_a_recipe_that_can_be_read_back(run, tmp_path, words, model, length):
    status, shown, _ = run(*words, "--full-protocol", "--seeds", "2")
    assert status == 0
    (tmp_path / "full.yaml").write_text(shown)
    recipe = read_recipe(tmp_path / "full.yaml")
    assert (getattr(recipe, length[0]), recipe.seeds) == (length[1], 2)
    assert recipe.model == (model or recipe.model)
    assert recipe.root == ("files" if "--root" in words else None)


def test_a_full_protocol_that_is_not_there_is_refused(run):
    status, _, complaint = run("sato_2019", "--full-protocol")
    assert (status, complaint.count("\n")) == (2, 1)
    assert "sato_2019 (cifar10); got sato_2019 on mnist" in complaint
    status, shown, complaint = run("elsayed_2018", "--only", "noise", "--full-protocol")
    assert (status, shown) == (2, "")
    assert "not of one study; got --only noise" in complaint


def test_without_data_the_status_is_0_and_the_ledger_says_so(run, tmp_path):
    status, shown, complaint = run("sato_2019", "--dataset", "cifar100")
    assert (status, complaint) == (0, "")
    assert "no data" in shown
    ledger = tmp_path / "clearance-sato_2019" / "cifar100" / "ledger.md"
    assert ledger.exists()
    assert "Ledger: clearance-sato_2019/cifar100/ledger.md" in shown
    assert ledger.read_text("utf-8").count("**not run**: no data") == 7  # A4, A5, A6, G2, G3, G4, P1


@pytest.mark.parametrize(
    "words", [["sato_2019"], ["sato_2019", "--only", "later-cut"], ["wan_2018", "--only", "left-out-class"]]
)
def test_results_are_never_replaced_by_a_ledger_without(run, tmp_path, words):
    out = tmp_path / "out"
    out.mkdir()
    kept = {"ledger.json": json.dumps({"runs": [{"seed": 0}]}), "ledger.md": "# Results\n"}
    for name, text in kept.items():
        (out / name).write_text(text)
    status, _, complaint = run(*words, "--dataset", "mnist", "--out", str(out))
    assert status == 2
    assert "ledger.json has results, which stay as they are. Correct --root" in complaint
    assert {name: (out / name).read_text() for name in kept} == kept


def test_without_data_a_study_says_that_nothing_was_run(run, tmp_path):
    status, shown, _ = run("elsayed_2018", "--only", "noise", "--dataset", "mnist")
    assert status == 0
    assert "Nothing was run: no data" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sato_2019", "--dataset", "mnist", "--root", "nowhere"], "--root must be a folder; got nowhere"),
        (["sato-2018"], "Did you mean 'sato_2019'"),
        (["sato_2019", "--dataset", "cifar-100"], "Did you mean 'cifar100'"),
        (["sato_2019", "--only", "weakneß"], "Did you mean 'weakness'"),
        (["sato_2019", "--only", "weakness", "--root", "x"], "has its own dataset"),
        (["sato_2019", "--seeds", "0"], "`seeds` must be"),
        (["sato_2019", "--only", "weakness", "--seeds", "0"], "`seeds` must be"),
        (["sato_2019", "--jobs", "0"], "`jobs` must be"),
    ],
)
def test_mistakes_are_one_line_and_status_2(run, tmp_path, words, message):
    status, _, complaint = run(*words)
    assert status == 2
    assert re.fullmatch(rf"papers: .*{message}.*\n", complaint)
    assert not list(tmp_path.iterdir())
