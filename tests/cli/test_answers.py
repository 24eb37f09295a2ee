"""What commands answer without training anything: help, lists, plans, and what they call themselves."""

import re
import subprocess
import sys

import pytest
import yaml

from clearance.cli.__main__ import COMMANDS
from clearance.experiments import catalogue
from cli.terminal import loaded_by, run


class TestQuickAnswers:
    def test_help_names_every_command_without_torch(self):
        shown, modules = loaded_by("--help")
        assert all(re.search(rf"^\W*{name}\b", shown, re.MULTILINE) for name in COMMANDS)
        assert not {"torch", "numpy", "scipy", "sklearn", "clearance.experiments"} & modules

    def test_a_plan_needs_no_torch(self):
        shown, modules = loaded_by("compare", "--dry-run")
        assert "20 runs" in shown
        assert "torch" not in modules

    def test_the_package_is_the_command(self):
        done = subprocess.run(
            [sys.executable, "-m", "clearance", "list"], capture_output=True, text=True, check=True
        )
        assert (0, done.stdout, done.stderr) == run("list")

    def test_the_package_passes_on_the_status_of_a_mistake(self):
        done = subprocess.run(
            [sys.executable, "-m", "clearance", "compar"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "Did you mean 'compare'" in done.stderr

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_explains_every_option(self, name):
        status, shown, _ = run(name, "--help")
        assert status == 0
        options = re.findall(r"(--[a-z-]+|[A-Z_-]+(?= PATH))", shown)
        assert options
        assert "None" not in shown  # what is left out is named, or needs no name
        for field in COMMANDS[name].__dataclass_fields__:
            assert f"{field}:" in COMMANDS[name].__doc__, field
        assert (
            "default: True" not in shown
        )  # a flag that takes something away says what it does, not what it ends
        for takes_away in re.findall(r"--no-[a-z-]+\s+(\w+)", shown):
            assert takes_away == "Leave"

    def test_list_prints_every_name(self):
        status, shown, _ = run("list")
        assert status == 0
        words = set(shown.split())
        for entries in ("DATASETS", "MODELS", "METHODS", "LOSSES", "AUDITS"):
            assert set(getattr(catalogue, entries)) <= words, entries


def test_version_tells_what_ledgers_tell():
    status, shown, _ = run("--version")
    assert status == 0
    assert re.fullmatch(r"torch-clearance \S+, torch \S+, Python \d+\.\d+\.\d+\n", shown)


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, shown, _ = run("compare", "--methods", "foca,plain", "--seeds", "4", "--epochs", "7", "--dry-run")
    assert status == 0
    assert "8 runs" in shown
    assert re.search(r"^epochs: 7$", shown, re.MULTILINE)
    assert shown.index("  foca:") < shown.index("  plain:")
    assert "dropout:\n" not in shown
    assert not list(tmp_path.iterdir())


def test_a_recipe_that_names_no_methods_has_those_of_the_main_job(tmp_path):
    (tmp_path / "mine.yaml").write_text("dataset: digits\nseeds: 1\n", "utf-8")
    status, shown, _ = run("compare", "--recipe", str(tmp_path / "mine.yaml"), "--dry-run")
    assert (status, shown.partition(" runs")[0]) == (0, "4")


def test_without_options_it_is_five_seeds_of_four_methods():
    status, shown, _ = run("compare", "--dry-run")
    assert status == 0
    assert shown.startswith("20 runs, ")
    plan = yaml.safe_load(shown.partition("\n")[2])
    assert (plan["dataset"], plan["seeds"], list(plan["methods"])) == (
        "digits",
        5,
        ["plain", "dropout", "lgm", "foca"],
    )


def test_a_group_of_audits_stands_for_them_here_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, shown, _ = run("compare", "--audits", "few-labels,accuracy", "--dry-run")
    assert status == 0
    assert shown.index("co_adaptation") < shown.index("linear_probe") < shown.index("accuracy")
    assert "few-labels" not in shown


def test_dry_run_counts_the_runs_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--methods", "plain", "--seeds", "2", "--sweep", "weight_decay=1e-5:1e-1:9", "--dry-run")
    status, shown, _ = run("compare", *words)
    assert status == 0
    assert "18 runs" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("named", "more"), [("", "boundary_distance, weight_scale"), ("audits: [accuracy]\n", None)]
)
def test_a_sweep_of_a_recipe_file_has_all_its_curves(tmp_path, named, more):
    (tmp_path / "mine.yaml").write_text(f"dataset: digits\nmethods:\n  plain: {{}}\n{named}", "utf-8")
    words = ("--recipe", str(tmp_path / "mine.yaml"), "--sweep", "weight_decay=1e-4,1e-2", "--dry-run")
    status, shown, _ = run("compare", *words)
    assert status == 0
    assert ("weight_scale" in shown) == (more is not None)


def test_dry_run_counts_networks_that_audits_make_images_on_and_checks_settings(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("audits: [robustness]\naudit_settings: {robustness: {source: plain}}\n", "utf-8")
    words = ("compare", "--recipe", str(mine), "--methods", "plain,foca", "--seeds", "3", "--dry-run")
    assert run(*words)[1].startswith("9 runs")
    for audits in ("robustness", "accuracy"):
        mine.write_text(f"audits: [{audits}]\naudit_settings: {{robustness: {{epsilonz: 99}}}}\n", "utf-8")
        status, _, complaint = run(*words)
        assert status == 2
        assert "setting of audit 'robustness'` must be one of" in complaint
