"""What users do wrong, and what breaks down under them: one line, and a status that says so."""

import json
import re

import pytest

from clearance.cli.compare import CompareCommand
from clearance.experiments import engines
from cli.terminal import plain_text, run


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["compar"], "Did you mean 'compare'"),
            (["compare", "--methods", "plain,focca"], "`method` must be one of.*Did you mean 'foca'"),
            (["compare", "--dataset", "digts", "--dry-run"], "Did you mean 'digits'"),
            (["compare", "--sweep", "weight_dekay=1,2", "--dry-run"], "Did you mean 'weight_decay'"),
            (["compare", "--sweep", "momentum=0.9,1.5", "--dry-run"], "`momentum` must lie"),
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
            (["compare", "--methods", ""], "--methods must name at least one"),
            (["compare", "--audits", ","], "--audits must name at least one"),
            (["search", "--epochs", "1", "--trial-epochs", "3"], "`trial_epochs` must be at most"),
            (["compare", "--recipe", "nowhere.yaml", "--dry-run"], "there is no recipe nowhere.yaml"),
            (["audit", "demo", "--audits", "accuracy"], "--audits is for a model given as MODULE:NAME"),
            (
                ["audit", "demo", "--device", "cpu"],
                "--device and --no-include-images are for your own model",
            ),
            (["explore", "--out", "."], "--out must be a file; . is a folder"),
            (["audit", "nowhere"], "must be the directory of a finished run"),
            (["report", "nowhere"], "a report is a folder with report.json"),
        ],
    )
    def test_what_cannot_be_done_is_one_line_and_status_2(self, words, message, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        status, _, complaint = run(*words)
        assert status == 2
        assert complaint.startswith("clearance: ")
        assert re.search(message, complaint)
        assert complaint.count("\n") == 1
        assert not list(tmp_path.iterdir())  # nothing was begun

    @pytest.mark.parametrize("command", ["compare", "train"])
    def test_too_few_images_for_every_class_are_refused_before_training(self, command, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "few.yaml").write_text("samples: 5\naudits: [accuracy]\n", "utf-8")
        status, shown, complaint = run(command, "--recipe", "few.yaml", "--epochs", "1")
        assert status == 2
        assert "`samples` must be at least 10, one image of each class; got 5" in complaint
        assert "correctly" not in shown

    @pytest.mark.parametrize(
        ("words", "option"),
        [
            (["compare"], "--out"),
            (["train"], "--out"),
            (["search"], "--out"),
            (["explore", "--report"], None),
            (["check", "now", "--against", "last", "--fail-if", "accuracy drops", "--junit"], None),
        ],
    )
    def test_results_that_could_not_be_written_are_not_worked_for(self, words, option, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a file").write_text("")
        place = "a file/below" if words[0] == "check" else "a file"
        status, _, complaint = run(*words, *([] if option is None else [option]), place)
        assert status == 2
        assert re.search("must be a folder that can be written; a file is a file", complaint)
        assert [path.name for path in tmp_path.iterdir()] == ["a file"]

    @pytest.mark.parametrize(
        "words",
        [
            ["compare", "--out"],
            ["audit", "demo", "--out"],
            ["explore", "--report"],
            ["diff", "a", "b", "--out"],
        ],
    )
    @pytest.mark.parametrize("name", ["index.html", "share.html", "report.json"])
    def test_files_of_others_are_not_replaced(self, words, name, tmp_path):
        (tmp_path / name).write_text("[1]")
        status, _, complaint = run(*words, str(tmp_path))
        assert status == 2
        assert f"a new folder or one with a report; its {name} is not of Clearance" in complaint
        assert [path.read_text() for path in tmp_path.iterdir()] == ["[1]"]

    @pytest.mark.parametrize("words", [["train", "--out"], ["explore", "--report"]])
    def test_an_address_is_no_local_folder_of_that_name(self, words, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        status, _, complaint = run(*words, "s3://bucket/prefix")
        assert status == 2
        assert "must be a folder of this machine here; got the address s3://bucket/prefix" in complaint
        assert not list(tmp_path.iterdir())

    def test_a_recipe_that_is_no_text_is_named(self, tmp_path):
        (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
        status, _, complaint = run("compare", "--recipe", str(tmp_path / "mine.yaml"), "--dry-run")
        assert status == 2
        assert "mine.yaml must be text in UTF-8" in complaint

    @pytest.mark.parametrize("command", ["compare", "train"])
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("audit_settings:\n  co_adaptation: {perclass: [1]}\n", "Did you mean 'per_class'"),
            ("seedz: 2\n", "no setting 'seedz'.*Did you mean 'seeds'"),
            ("methods:\n  plain: {lrr: 0.1}\n", "method 'plain': no setting 'lrr'.*Did you mean 'lr'"),
            ("methods: [plain\n", "must be YAML; got: while parsing"),
        ],
    )
    def test_a_typo_in_a_recipe_is_found_before_anything_runs(self, command, text, message, tmp_path):
        recipe, out = tmp_path / "mine.yaml", tmp_path / "out"
        recipe.write_text(text, "utf-8")
        status, _, complaint = run(command, "--recipe", str(recipe), "--out", str(out))
        assert status == 2
        assert re.search(message, complaint)
        assert complaint.count("\n") == 1
        assert not out.exists()

    @pytest.mark.parametrize(
        "words", [[], ["compare", "--sedes", "3"], ["compare", "--seeds", "three"], ["audit"]]
    )
    def test_what_cannot_be_parsed_is_status_2(self, words):
        status, _, complaint = run(*words)
        assert status == 2
        assert complaint

    def test_a_misspelt_option_gets_the_nearest_of_its_command(self):
        _, _, complaint = run("compare", "--sedes", "3")
        assert "--seeds" in complaint
        assert "clearance search" not in complaint

    def test_interruption_is_status_130(self, monkeypatch):
        def interrupt(self):
            raise KeyboardInterrupt

        monkeypatch.setattr(CompareCommand, "run", interrupt)
        status, _, complaint = run("compare")
        assert status == 130
        assert "The same command resumes." in complaint


@pytest.fixture
def processes_break_down(monkeypatch):
    """Every process dies at once with an error of its own."""
    monkeypatch.setattr(engines, "MAIN", "raise ValueError('boom')")


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
