"""``clearance reproduce``: its plan, its mistakes, and what it says where there is no data."""

import re
import subprocess
import sys
from functools import partial

import pytest

from clearance.experiments import engines
from clearance.experiments.recipe import read_recipe
from cli import terminal  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A command in an empty folder, where no run may start: its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "_Process", lambda: pytest.fail("a process was started"))

    return partial(terminal.run, "reproduce")


def test_a_plan_names_claims_and_runs_and_does_nothing(run, tmp_path):
    status, shown, _ = run("sato-2019", "--seeds", "6", "--dry-run")
    assert status == 0
    assert "15 claims of sato-2019" in shown
    assert "30 runs" in shown
    assert re.search(r"^dataset: digits$", shown, re.MULTILINE)
    status, shown, _ = run("sato-2019", "--only", "weakness", "--dry-run")
    assert status == 0
    assert shown.startswith("weakness: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "model", "length"),
    [
        (("elsayed-2018",), "large-margin-cnn", ("epochs", 300)),
        (("wan-2018",), "lenet-plus", ("steps", 20_000)),
        (("wan-2018", "--dataset", "cifar100", "--root", "files"), None, ("epochs", 307)),
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
    status, _, complaint = run("sato-2019", "--full-protocol")
    assert (status, complaint.count("\n")) == (2, 1)
    assert "recipes in full size are kept for elsayed-2018 and wan-2018; got 'sato-2019'" in complaint
    status, shown, complaint = run("elsayed-2018", "--only", "noise", "--full-protocol")
    assert (status, shown) == (2, "")
    assert "not of one study; got --only noise" in complaint


def test_a_plan_needs_no_torch():
    code = (
        "import sys\nfrom clearance.cli.__main__ import main\n"
        "main(['reproduce', 'sato-2019', '--dry-run'])\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_without_data_the_status_is_0_and_the_ledger_says_so(run, tmp_path):
    status, shown, complaint = run("sato-2019", "--dataset", "cifar100")
    assert (status, complaint) == (0, "")
    assert "no data" in shown
    ledger = tmp_path / "clearance-sato-2019" / "cifar100" / "ledger.md"
    assert ledger.exists()
    assert "Ledger: clearance-sato-2019/cifar100/ledger.md" in shown
    assert ledger.read_text("utf-8").count("**not run**: no data") == 7  # A4, A5, A6, G2, G3, G4, P1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sato-2018"], "Did you mean 'sato-2019'"),
        (["sato-2019", "--dataset", "cifar-100"], "Did you mean 'cifar100'"),
        (["sato-2019", "--only", "weakneß"], "Did you mean 'weakness'"),
        (["sato-2019", "--only", "weakness", "--root", "x"], "has a dataset of its own"),
        (["sato-2019", "--seeds", "0"], "`seeds` must be"),
        (["sato-2019", "--only", "weakness", "--seeds", "0"], "`seeds` must be"),
        (["sato-2019", "--jobs", "0"], "`jobs` must be"),
    ],
)
def test_mistakes_are_one_line_and_status_2(run, tmp_path, words, message):
    status, _, complaint = run(*words)
    assert status == 2
    assert re.fullmatch(rf"clearance: .*{message}.*\n", complaint)
    assert not list(tmp_path.iterdir())
