"""The commands, from the words that a user types to the files that they leave."""

import contextlib
import io
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clearance.cli.__main__ import COMMANDS, main
from clearance.cli.compare import CompareCommand, _without_folders
from clearance.data import GaussianClasses
from clearance.experiments import catalogue, grid

RECIPE = """
dataset: {dataset}
epochs: 6
batch_size: 12
seeds: 2
audits: [accuracy, co_adaptation, class_scatter]
audit_settings:
  co_adaptation: {{per_class: [1], repetitions: [3], hidden: [4], all_images: false}}
methods:
  plain: {{base: none, hidden: [8], lr: 0.1}}
  foca: {{base: none, regime: foca, hidden: [8], lr: 0.02, per_class: 1, head_steps: 4}}
"""


def run(*words):
    """A command in this process: its exit status and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    status: str | int | None = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["clearance", *words])
        try:
            main(list(words))
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()


def loaded_by(*words):
    """The modules that a command imports, in a process of its own."""
    code = (
        "import sys\nfrom clearance.cli.__main__ import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.partition("MODULES")
    return shown, set(modules.split())


class TestQuickAnswers:
    def test_help_names_every_command_without_torch(self):
        shown, modules = loaded_by("--help")
        assert all(re.search(rf"^.*• {name}\b", shown, re.MULTILINE) for name in COMMANDS)
        assert not {"torch", "numpy", "scipy", "sklearn", "clearance.experiments"} & modules

    def test_a_plan_needs_no_torch(self):
        shown, modules = loaded_by("compare", "--dry-run")
        assert "12 runs" in shown
        assert "torch" not in modules

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_explains_every_option(self, name):
        status, shown, _ = run(name, "--help")
        assert status == 0
        options = re.findall(r"(--[a-z-]+|[A-Z_-]+(?= PATH))", shown)
        assert options
        for field in COMMANDS[name].__dataclass_fields__:
            assert f"{field}:" in COMMANDS[name].__doc__, field

    def test_list_prints_every_name(self):
        status, shown, _ = run("list")
        assert status == 0
        words = set(shown.split())
        for entries in ("DATASETS", "MODELS", "METHODS", "OBJECTIVES", "AUDITS", "PAPERS"):
            assert set(getattr(catalogue, entries)) <= words, entries


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["compar"], "Did you mean 'compare'"),
            (["compare", "--methods", "plain,focca"], "`method` must be one of.*Did you mean 'foca'"),
            (["compare", "--dataset", "digts", "--dry-run"], "Did you mean 'digits'"),
            (["compare", "--dataset", "digts"], "Did you mean 'digits'"),
            (["compare", "--model", "smallcnn"], "Did you mean 'small-cnn'"),
            (["compare", "--audits", "accuracy,scatter"], "Did you mean 'class_scatter'"),
            (["compare", "--dataset", "mnist"], "needs `root`.*--root"),
            (["compare", "--jobs", "0"], "`jobs` must be"),
            (["compare", "--seeds", "0"], "`seeds` must be"),
            (["compare", "--epochs", "0"], "`epochs` must be"),
            (["compare", "--recipe", "nowhere.yaml"], "nowhere.yaml"),
            (["train", "--method", "plane"], "Did you mean 'plain'"),
            (["train", "--seed", "-1"], "`seed` must be"),
            (["search", "--jobs", "0"], "`jobs` must be"),
            (["search", "--per-class", "1,none"], "--per-class takes whole numbers"),
            (["search", "--methods", "pain"], "Did you mean 'plain'"),
            (["audit", "nowhere"], "must be the directory of a finished run"),
            (["report", "nowhere"], "must hold a report.json"),
        ],
    )
    def test_what_cannot_be_done_is_one_line_and_status_2(self, words, message, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(grid, "_start", lambda *_: pytest.fail("a process was started"))
        status, _, complaint = run(*words)
        assert status == 2
        assert complaint.startswith("clearance: ")
        assert re.search(message, complaint)
        assert complaint.count("\n") == 1
        assert not list(tmp_path.iterdir())  # nothing was begun

    @pytest.mark.parametrize(
        "words", [[], ["compare", "--sedes", "3"], ["compare", "--seeds", "three"], ["audit"]]
    )
    def test_what_cannot_be_parsed_is_status_2(self, words):
        status, _, complaint = run(*words)
        assert status == 2
        assert complaint

    def test_a_misspelt_option_gets_the_nearest(self):
        _, _, complaint = run("compare", "--sedes", "3")
        assert "--seeds" in complaint

    def test_interruption_is_status_130(self, monkeypatch):
        def interrupt(self):
            raise KeyboardInterrupt

        monkeypatch.setattr(CompareCommand, "run", interrupt)
        status, _, complaint = run("compare")
        assert status == 130
        assert "The same command goes on where it stood." in complaint


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, shown, _ = run("compare", "--methods", "foca,plain", "--seeds", "4", "--epochs", "7", "--dry-run")
    assert status == 0
    assert "8 runs" in shown
    assert re.search(r"^epochs: 7$", shown, re.MULTILINE)
    assert shown.index("  foca:") < shown.index("  plain:")
    assert "dropout:\n" not in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--out=/home/ann/out", "--out=out"),
        ("/home/ann/mine.yaml", "mine.yaml"),
        ("folder:/home/ann/pets/", "folder:pets"),
        ("--dataset=npz:~/two.npz", "--dataset=npz:two.npz"),
        ("results/one", "results/one"),
        ("--dry-run", "--dry-run"),
        ("plain,foca", "plain,foca"),
    ],
)
def test_a_reports_command_names_no_folder_of_the_machine(word, shown):
    assert _without_folders(word) == shown


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small dataset and a recipe for it."""
    folder = tmp_path_factory.mktemp("home-of-ann")
    images = GaussianClasses(class_count=3, separation=5.0).images(25, seed=0)
    np.savez(folder / "world.npz", images=images.images.numpy(), labels=images.labels.numpy())
    (folder / "mine.yaml").write_text(RECIPE.format(dataset=f"npz:{folder}/world.npz"))
    return folder


@pytest.fixture(scope="module")
def words(home):
    return ["compare", "--recipe", str(home / "mine.yaml"), "--out", str(home / "report"), "--jobs", "2"]


@pytest.fixture(scope="module")
def compared(words, home):
    """What a comparison printed; its files are in ``home / "report"``."""
    status, shown, complaint = run(*words)
    assert (status, complaint) == (0, "")
    return shown


def plain_text(html):
    return re.sub(r"<[^>]*>", "", html)


def test_compare_prints_runs_table_sentence_and_path(compared, home):
    lines = compared.splitlines()
    assert sum(bool(re.match(r"\d/4  (plain|foca), seed [01]: ", line)) for line in lines) == 4
    assert any(re.match(r"plain training +\d", line) for line in lines)
    assert any(re.match(r"FOCA +\d", line) for line in lines)
    assert f"Report: {home / 'report' / 'index.html'}" in lines


def test_compare_leaves_page_records_and_exhibits(compared, home):
    folder = home / "report"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert report["schema"] == 1
    assert report["recipe"]["dataset"] == "npz:world.npz"
    assert report["versions"]["torch"]
    found = {(row["method"], row["seed"], row["audit"]) for row in report["measurements"]}
    assert found == {
        (method, seed, audit)
        for method in ("plain", "foca")
        for seed in (0, 1)
        for audit in ("accuracy", "co_adaptation", "class_scatter", "training")
    }
    assert report["exhibits"]
    assert all((folder / name).is_file() for name in report["exhibits"])
    page = (folder / "index.html").read_text("utf-8")
    assert page.lstrip().lower().startswith("<!doctype html")
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert re.search("FOCA", plain_text(page))


def test_nothing_that_is_passed_on_names_the_machine(compared, home):
    told = [path for path in (home / "report").rglob("*") if path.is_file() and "runs" not in path.parts]
    assert len(told) > 3
    for path in told:
        text = path.read_text("utf-8")
        assert str(home) not in text, path
        assert home.name not in text, path
        assert str(Path.home()) + os.sep not in text, path
        assert str(Path(sys.executable).parent) not in text, path
        if len(platform.node()) > 5:
            assert platform.node() not in text, path


def test_the_same_command_reuses_its_runs(compared, words, home, monkeypatch):
    before = json.loads((home / "report" / "report.json").read_text("utf-8"))
    monkeypatch.setattr(grid, "_start", lambda *_: pytest.fail("a process was started"))
    status, shown, _ = run(*words)
    assert status == 0
    assert shown.count("already there") == 4
    after = json.loads((home / "report" / "report.json").read_text("utf-8"))
    assert after["measurements"] == before["measurements"]
    # fewer seeds or methods are a part of what is there
    status, _, _ = run(*words[:-4], "--out", str(home / "report"), "--methods", "foca", "--seeds", "1")
    assert status == 0
    part = json.loads((home / "report" / "report.json").read_text("utf-8"))
    wanted = [row for row in before["measurements"] if (row["method"], row["seed"]) == ("foca", 0)]
    assert part["measurements"] == wanted
    run(*words)  # as it was, for the other tests


def test_report_shows_what_the_records_say(compared, home, tmp_path, monkeypatch):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(home / "report", folder, ignore=shutil.ignore_patterns("runs"))
    original = (folder / "index.html").read_text("utf-8")
    assert run("report", str(folder))[0] == 0
    assert (folder / "index.html").read_text("utf-8") == original
    rows = json.loads((folder / "report.json").read_text("utf-8"))
    for row in rows["measurements"]:
        if (row["method"], row["audit"], row["context"].get("split")) == ("foca", "accuracy", "test"):
            row["value"] = 0.4321
    (folder / "report.json").write_text(json.dumps(rows), "utf-8")
    status, shown, _ = run("report", str(folder))
    assert status == 0
    changed = (folder / "index.html").read_text("utf-8")
    assert "43.2" in plain_text(changed)
    assert "43.2" not in plain_text(original)
    assert "43.2" in shown


def saved_run(home, method="plain", seed=0):
    (folder,) = (home / "report" / "runs").glob(f"{method}-seed{seed}-*")
    return folder


def test_audit_reads_a_run_back(compared, home, tmp_path):
    out = tmp_path / "audit"
    status, shown, _ = run("audit", str(saved_run(home)), "--audits", "accuracy", "--out", str(out))
    assert status == 0
    assert f"Report: {out / 'index.html'}" in shown
    audited = json.loads((out / "report.json").read_text("utf-8"))
    compared_rows = json.loads((home / "report" / "report.json").read_text("utf-8"))["measurements"]
    expected = {
        row["context"]["split"]: row["value"]
        for row in compared_rows
        if (row["method"], row["seed"], row["audit"]) == ("plain", 0, "accuracy")
    }
    assert {row["context"]["split"]: row["value"] for row in audited["measurements"]} == expected
    assert str(home) not in (out / "report.json").read_text("utf-8")


def test_audit_without_options_finds_what_the_run_found(compared, home, tmp_path):
    """The same audits, settings and seed as the comparison's, and so the same numbers."""
    assert run("audit", str(saved_run(home, "foca", 1)), "--out", str(tmp_path))[0] == 0
    audited = json.loads((tmp_path / "report.json").read_text("utf-8"))["measurements"]
    rows = json.loads((home / "report" / "report.json").read_text("utf-8"))["measurements"]
    expected = [
        row for row in rows if (row["method"], row["seed"]) == ("foca", 1) and row["audit"] != "training"
    ]
    assert audited == expected


def test_audit_of_the_folder_above_names_the_runs(compared, home):
    status, _, complaint = run("audit", str(home / "report" / "runs"))
    assert status == 2
    assert saved_run(home).name in complaint


def test_train_keeps_a_model_that_python_loads(home, tmp_path):
    import clearance as cl

    recipe = ["--recipe", str(home / "mine.yaml"), "--epochs", "1"]
    status, shown, _ = run("train", "--method", "foca", "--seed", "3", *recipe, "--out", str(tmp_path))
    assert status == 0
    told = re.search(r"clearance\.load_model\('(.+)'\)", shown)
    assert told
    folder = Path(told[1])
    assert re.fullmatch("foca-seed3-[0-9a-f]{8}", folder.name)
    images = cl.load_dataset(f"npz:{home}/world.npz", split="test").images
    assert cl.load_model(folder)(images).shape == (15, 3)


@pytest.fixture
def processes_break_down(monkeypatch):
    def start(plan, directory):
        code = "raise ValueError('boom')"
        return subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(grid, "_start", start)


def test_compare_without_any_result_is_status_1(home, tmp_path, processes_break_down):
    """Every run failed: the page says so, and so does the status."""
    status, shown, _ = run("compare", "--recipe", str(home / "mine.yaml"), "--out", str(tmp_path))
    assert status == 1
    assert shown.count("failed: ValueError: boom") >= 4
    notes = json.loads((tmp_path / "report.json").read_text("utf-8"))["runs"]
    assert {note["status"] for note in notes} == {"failed: ValueError: boom"}
    assert "boom" in plain_text((tmp_path / "index.html").read_text("utf-8"))


def test_train_says_when_there_is_no_model(home, tmp_path, processes_break_down):
    """A process that breaks down: the reason, status 1, and no word of a model to load."""
    status, shown, complaint = run("train", "--recipe", str(home / "mine.yaml"), "--out", str(tmp_path))
    assert (status, complaint) == (1, "clearance: failed: ValueError: boom\n")
    assert "load_model" not in shown
