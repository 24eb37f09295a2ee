"""``clearance audit`` and ``train``: models that are kept, and read back."""

import json
import re
from pathlib import Path

import clearance as cl
from cli.terminal import run


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


def test_settings_go_on_top_of_those_of_the_run(compared, home, tmp_path):
    asked = (
        "robustness.epsilons.inf=0.02; robustness.epsilons.2=0.1; robustness.steps=2; robustness.queries=2"
    )
    words = ("--audits", "robustness", "--settings", asked, "--out", str(tmp_path))
    assert run("audit", str(saved_run(home)), *words)[0] == 0
    rows = json.loads((tmp_path / "report.json").read_text("utf-8"))["measurements"]
    assert {row["context"]["epsilon"] for row in rows if row["name"] == "robust_accuracy"} == {0.02, 0.1}


def test_an_export_that_fails_leaves_the_audits(compared, home, tmp_path):
    out, ready = tmp_path / "out", tmp_path / "ready"
    (ready / "deploy.json").mkdir(parents=True)  # where a file is to be
    words = ("--audits", "accuracy", "--out", str(out), "--export", str(ready))
    status, shown, complaint = run("audit", str(saved_run(home)), *words)
    assert status == 1
    assert "The export failed, and the audits are here" in shown
    assert "Traceback" not in complaint
    assert json.loads((out / "report.json").read_text("utf-8"))["measurements"]
    pages = (out / "index.html").read_text("utf-8") + (out / "report.json").read_text("utf-8")
    assert str(tmp_path) not in pages


def test_audit_of_the_folder_above_names_the_runs(compared, home):
    status, _, complaint = run("audit", str(home / "report" / "runs"))
    assert status == 2
    assert saved_run(home).name in complaint


def test_unknown_images_need_enough_test_images(compared, home, tmp_path):
    """A run takes them, too; its 15 test images are too few to choose a threshold on."""
    status, _, complaint = run("audit", str(saved_run(home)), "--unknown", "digits", "--out", str(tmp_path))
    assert status == 2
    assert "`test` must have at least 19 images for a threshold" in complaint
    assert complaint.count("\n") == 1


def test_train_keeps_a_model_that_python_loads(home, tmp_path):
    recipe = ["--recipe", str(home / "mine.yaml"), "--epochs", "1"]
    status, shown, _ = run("train", "--method", "foca", "--seed", "3", *recipe, "--out", str(tmp_path))
    assert status == 0
    match = re.search(r"clearance\.load_model\('(.+)'\)", shown)
    assert match
    folder = Path(match[1])
    assert re.fullmatch("foca-seed3-[0-9a-f]{8}", folder.name)
    images = cl.load_dataset(f"npz:{home}/world.npz", split="test").images
    assert cl.load_model(folder)(images).shape == (15, 3)


def test_options_that_a_run_has_no_use_for_are_refused(compared, home):
    run_dir = saved_run(home)
    for words, message in (
        (["--black-box"], "--black-box is for a model given as MODULE:NAME"),
        (["--device", "nonsense"], "`device` must be"),
        (["--audits", ","], "--audits must name at least one; got none"),
    ):
        status, _, errors = run("audit", str(run_dir), *words)
        assert status == 2
        assert message in " ".join(errors.split())


def test_a_seed_of_0_is_given_too(tmp_path):
    status, _, errors = run("audit", "demo", "--seed", "0", "--out", str(tmp_path))
    assert status == 2
    assert "--seed" in errors
