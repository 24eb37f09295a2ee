"""``clearance audit --settings``, and images given by the name of a dataset."""

import json
import sys

import numpy as np
import pytest

from clearance.cli.audit import AuditCommand, audit_settings, command
from clearance.experiments.datasets import load_dataset
from cli.terminal import run

CODE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
"""
AUDITS = ("--audits", "accuracy,robustness")
FEW = "robustness.images=20; robustness.steps=2; robustness.queries=2"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "small_net.py").write_text(CODE)
    return folder


@pytest.fixture(autouse=True)
def there(work, monkeypatch):
    monkeypatch.chdir(work)
    yield
    sys.modules.pop("small_net", None)


def audited(out, *options, train="digits", test="digits"):
    words = (
        "audit",
        "small_net:Net",
        "--train",
        train,
        "--test",
        test,
        "--out",
        str(out),
        "--cache",
        "cache",
    )
    return run(*words, *options)


def report_of(folder):
    return json.loads((folder / "report.json").read_text("utf-8"))


def test_radii_in_the_form_in_which_people_write_them(tmp_path):
    asked = f"robustness.epsilons.inf=2/255,8/255; robustness.epsilons.2=0.5; {FEW}"
    status, _, complaint = audited(tmp_path, *AUDITS, "--settings", asked)
    assert (status, complaint) == (0, "no --weights: the network has the weights that Net() gives it\n")
    report = report_of(tmp_path)
    found = [
        (row["context"]["norm"], row["context"]["epsilon"], row["n"])
        for row in report["measurements"]
        if row["name"] == "robust_accuracy"
    ]
    assert found == [("inf", 2 / 255, 20), ("inf", 8 / 255, 20), ("2", 0.5, 20)]
    assert f"--settings '{asked}'" in report["command"]
    assert [row["epsilons"] for row in report["recipe"]["audits"] if "epsilons" in row] == [
        {"inf": [2 / 255, 8 / 255], "2": [0.5]}
    ]


def test_one_norm_alone(tmp_path):
    assert audited(tmp_path, *AUDITS, "--settings", f"robustness.epsilons.inf=0.05; {FEW}")[0] == 0
    rows = report_of(tmp_path)["measurements"]
    assert {row["context"]["norm"] for row in rows if row["name"] == "robust_accuracy"} == {"inf"}


def test_folders_in_settings_are_no_ones_business():
    given = AuditCommand(
        "/home/joe/runs/a", settings="likelihood.other=folder:/home/joe/secret/cats; robustness.images=20"
    )
    assert command(given) == (
        "clearance audit a --settings 'likelihood.other=folder:cats; robustness.images=20'"
    )
    # for what a budget left out: settings of audits that are not asked for would be refused
    assert command(given, ["robustness"]) == (
        "clearance audit a --settings robustness.images=20 --audits robustness --out clearance-audit-more"
    )
    assert "--settings" not in command(given, ["accuracy"])


def test_a_named_dataset_is_that_dataset(tmp_path):
    """Not the other half of it, nor another order: the same numbers as from the same images in a file."""
    for split in ("train", "test"):
        images = load_dataset("digits", split)
        np.savez(f"{split}.npz", images=images.images.numpy(), labels=images.labels.numpy())
    assert audited(tmp_path / "named", "--audits", "accuracy,class_scatter")[0] == 0
    status, _, _ = audited(
        tmp_path / "file", "--audits", "accuracy,class_scatter", train="npz:train.npz", test="npz:test.npz"
    )
    assert status == 0
    named, file = (
        [(row["name"], row["value"]) for row in report_of(tmp_path / name)["measurements"]]
        for name in ("named", "file")
    )
    assert named == file


def test_preprocessing_that_is_not_done_is_not_said(tmp_path):
    for split in ("train", "test"):
        images = load_dataset("digits", split)
        np.savez(f"{split}.npz", images=images.images.numpy(), labels=images.labels.numpy())
    files = {"train": "npz:train.npz", "test": "npz:test.npz"}
    status, shown, complaint = audited(tmp_path / "out", "--size", "224", **files)
    assert status == 2
    assert "preprocessing: images unchanged" in shown
    assert "224" not in shown
    assert "images of an .npz file are not resized and must have `size` 224; got 8x8" in complaint


@pytest.mark.parametrize(
    ("train", "options", "fragment"),
    [
        ("small_net.py", (), "a path without its kind. Write npz:small_net.py."),
        ("digit", (), "Did you mean 'digits'?"),
        ("mnist", (), "dataset 'mnist' needs `root`"),
        ("digits", ("--size", "12"), "digits has 8x8, not `size` 12"),
    ],
)
def test_a_name_that_cannot_be_taken_is_one_line(tmp_path, train, options, fragment):
    status, _, complaint = audited(tmp_path / "out", *options, train=train)
    assert status == 2
    assert fragment in complaint
    assert complaint.count("\n") == 1


def test_values_are_what_the_audit_declares():
    assert audit_settings("boundary_distance.norms=inf; boundary_distance.rivals=none") == {
        "boundary_distance": {"norms": ["inf"], "rivals": None}
    }
    assert audit_settings("co_adaptation.all_images=false; co_adaptation.per_class=1, 10") == {
        "co_adaptation": {"all_images": False, "per_class": [1, 10]}
    }
    assert audit_settings(None) == {}


WRONG = {
    "no value": ("robustness.epsilons.inf", "--settings takes AUDIT.SETTING=VALUE"),
    "no setting": ("robustness=3", "--settings takes AUDIT.SETTING=VALUE"),
    "no audit": ("robustnes.epsilons.inf=1", "Did you mean 'robustness'?"),
    "misspelt": ("robustness.epsilon.inf=1", "Did you mean 'epsilons'?"),
    "no norm": ("robustness.epsilons=0.1", "such as robustness.epsilons.inf=2/255,8/255"),
    "a norm of one number": ("robustness.steps.inf=3", "--settings takes AUDIT.SETTING=VALUE"),
    "another norm": ("robustness.epsilons.3=0.1", "`norm` must be one of inf, 2, 1; got '3'"),
    "twice": (
        "robustness.epsilons.inf=0.1; robustness.epsilons.inf=0.2",
        "robustness.epsilons.inf twice",
    ),
    "no number": (
        "robustness.epsilons.inf=wide",
        "`epsilons['inf']` must be a finite number above 0; got 'wide'",
    ),
    "divided by nothing": (
        "robustness.epsilons.inf=1/0",
        "`epsilons['inf']` must be a finite number above 0; got '1/0'",
    ),
    "not asked for": (
        "minimal_perturbation.steps=3",
        "Add it: --audits accuracy,robustness,minimal_perturbation",
    ),
    "a method": ("robustness.source=plain", "elsewhere is not part of one"),
}


@pytest.mark.parametrize(("text", "fragment"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_one_line_before_anything_is_read(tmp_path, text, fragment):
    nowhere = "npz:nowhere.npz"  # nobody has looked for it yet
    status, _, complaint = audited(tmp_path / "out", *AUDITS, "--settings", text, train=nowhere, test=nowhere)
    assert status == 2
    assert fragment in complaint
    assert complaint.count("\n") == 1


def test_other_images_have_an_option(tmp_path):
    words = ("--audits", "likelihood", "--settings", "likelihood.other=photographs")
    status, _, complaint = audited(tmp_path / "out", *words)
    assert status == 2
    assert "use --unknown photographs" in complaint
