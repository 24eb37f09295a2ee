"""``clearance audit`` with unknown images, within a budget, interrupted, and what it gives away of its user."""

import json
import platform
import re
import shutil
import sys
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from clearance.audits import Accuracy, Confusions
from clearance.experiments.auditing import Budget
from cli.terminal import run

USER, HOST = "telltale-ann", "telltale-host"
CODE = """
import torch
from torch import nn

class Colours(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(3, 3)
        with torch.no_grad():
            self.fc.weight.copy_(torch.eye(3).flip(0))
            self.fc.bias.zero_()

    def forward(self, x):
        return self.fc(self.body(x))
"""
CLASSES = ("blue", "green", "red")
OWN_WEIGHTS = "no --weights: the network has the weights that Colours() gives it\n"
FEW = ("--audits", "accuracy,confusions,class_scatter,out_of_distribution")


def picture(channel, generator, lift=60):
    pixels = generator.integers(60, 140, (9, 8, 3))
    if channel is not None:
        pixels[..., channel] += lift
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A home with code, pictures of three colours, and a flat folder of grey ones, which are no colour."""
    folder = tmp_path_factory.mktemp("home") / USER / "secret-project"
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for i in range(15):
                picture(2 - label, generator).save(folder / split / name / f"{i}.png")
    (folder / "things" / "more").mkdir(parents=True)
    for i in range(20):
        picture(None, generator).save(folder / "things" / f"{i}.png")
        picture(None, generator).save(folder / "things" / "more" / f"{i}.png")
    (folder / "colours.py").write_text(CODE)
    return folder


@pytest.fixture(autouse=True)
def there(work, monkeypatch):
    monkeypatch.chdir(work)
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.setattr(platform, "node", lambda: HOST)
    yield
    sys.modules.pop("colours", None)


def audit(work, out, *options):
    words = ("audit", "colours:Colours", "--train", f"folder:{work}/train", "--test", f"folder:{work}/val")
    sized = ("--size", "8", "--cache", str(work / "cache"), "--out", str(out))
    return run(*words, *sized, *options)


def report(out):
    return json.loads((out / "report.json").read_text("utf-8"))


def text(out):
    page = (out / "index.html").read_text("utf-8")
    return re.sub(r"[\u202f\s]+", " ", re.sub(r"<[^>]+>", "", page))


class TestSlices:
    def test_each_value_of_each_column_is_a_line_and_the_file_is_named(self, work, tmp_path):
        names = sorted(path.relative_to(work / "val").as_posix() for path in (work / "val").rglob("*.png"))
        lines = ["file,site", *(f"{name},{'north' if k % 3 else 'south'}" for k, name in enumerate(names))]
        (tmp_path / "meta.csv").write_text("\n".join(lines), "utf-8")
        options = ("--audits", "accuracy,performance", "--slices", str(tmp_path / "meta.csv"))
        status, shown, complaint = audit(work, tmp_path / "page", *options)
        assert (status, complaint) == (0, OWN_WEIGHTS)
        assert "Worst slice: " in shown
        rows = {
            row["context"]["slice"]: row["n"]
            for row in report(tmp_path / "page")["measurements"]
            if "slice" in row["context"] and row["name"] == "accuracy"
        }
        assert rows["site=south"] + rows["site=north"] == len(names)
        (settings,) = [
            one
            for one in report(tmp_path / "page")["recipe"]["audits"]
            if "slices" in one.get("settings", one)
        ]
        assert "meta.csv" in json.dumps(settings)
        assert "--slices meta.csv" in report(tmp_path / "page")["command"]
        assert "site=north" in text(tmp_path / "page")

    def test_without_an_audit_that_uses_them_they_are_refused(self, work, tmp_path):
        (tmp_path / "meta.csv").write_text("file,site\n", "utf-8")
        options = ("--audits", "accuracy", "--slices", str(tmp_path / "meta.csv"))
        status, _, complaint = audit(work, tmp_path / "page", *options)
        assert status == 2
        assert (
            "slices were given, but none of the audits ['accuracy'] uses them; add performance" in complaint
        )


class TestUnknown:
    def test_a_flat_folder_is_a_sentence_on_the_first_screen(self, work, tmp_path):
        status, shown, complaint = audit(work, tmp_path, "--unknown", f"folder:{work}/things", *FEW)
        assert (status, complaint) == (0, OWN_WEIGHTS)
        assert "45 held-out and 40 out-of-distribution images of 3x8x8" in shown
        rows = {
            row["name"]: row
            for row in report(tmp_path)["measurements"]
            if row["audit"] == "out_of_distribution"
        }
        assert rows["rejected"]["n"] == 40
        assert rows["rejected"]["context"]["unknown"] == "things"
        assert rows["rejected"]["value"] == 1.0  # grey has another direction than every colour
        said = "Detection: 100.0 % (91.2 to 100.0 %) of “things” rejected (AUROC"
        assert said in text(tmp_path)
        assert "This is not a defence" in text(tmp_path)

    def test_without_it_nothing_is_claimed(self, work, tmp_path):
        assert audit(work, tmp_path, "--audits", "accuracy")[0] == 0
        assert "Unknown images" not in text(tmp_path)
        assert "Detection:" not in text(tmp_path)

    def test_a_named_dataset(self, work, tmp_path):
        """Digits are 8 x 8 too; their grey becomes three channels."""
        status, shown, complaint = audit(work, tmp_path, "--unknown", "digits", *FEW)
        assert (status, complaint) == (0, OWN_WEIGHTS)
        assert "497 out-of-distribution" in shown

    WRONG: ClassVar[dict] = {
        "not there": (("--unknown", "folder:nothing"), "no folder nothing"),
        "empty": (("--unknown", "folder:empty"), "must hold pictures"),
        "no such dataset": (("--unknown", "digit"), "Did you mean 'digits'"),
        "files missing": (("--unknown", "mnist"), "needs `root`"),
        "size": (("--unknown", "npz:large.npz"), "must have the size of the test images, 8x8; got 5x6"),
        "the test images": (("--unknown", "folder:{work}/val"), "got those of `test`"),
        "none given": (("--audits", "out_of_distribution"), "give them with --unknown"),
        "time": (("--budget", "5 minutes"), "must be a time such as 90s, 5m, 2h or 1h30m; got '5 minutes'"),
        "no time": (("--budget", "0s"), "`budget` must be a finite number above 0"),
        "too few images": (("--images", "2"), "at least the number of classes, 3"),
    }

    @pytest.mark.parametrize(("options", "fragment"), WRONG.values(), ids=WRONG.keys())
    def test_a_mistake_is_one_line(self, work, tmp_path, options, fragment):
        (work / "empty").mkdir(exist_ok=True)
        np.savez(work / "large.npz", images=np.zeros((4, 6, 5, 3), dtype=np.uint8))
        status, _, complaint = audit(work, tmp_path, *(word.format(work=work) for word in options))
        assert status == 2
        assert fragment in complaint
        assert complaint.startswith("clearance: ")
        assert complaint.count("\n") == 1


class TestBudget:
    def test_what_did_not_begin_is_named_with_the_command_to_get_it(self, work, tmp_path, monkeypatch):
        """The budget is spent once accuracy is done."""
        examine, done = Accuracy.examine, []

        def examined(*given):
            done.append(True)
            return examine(*given)

        monkeypatch.setattr(Accuracy, "examine", examined)
        monkeypatch.setattr(Budget, "is_spent", property(lambda _: bool(done)))
        status, shown, _ = audit(work, tmp_path, "--audits", "preprocessing,accuracy", "--budget", "40s")
        assert status == 0
        stored = report(tmp_path)
        assert {row["audit"] for row in stored["measurements"]} == {"accuracy"}
        assert stored["recipe"]["audits_left_out"] == [{"audit": "preprocessing", "why": "budget"}]
        assert stored["recipe"]["audits_left_out_command"] == (
            "clearance audit colours:Colours --train folder:train --test folder:val --size 8 "
            f"--audits preprocessing --out {tmp_path.name}-more"
        )
        for where in (shown, text(tmp_path)):
            said = "Not started within the budget of 40 s: input preprocessing (preprocessing)"
            assert said in where.replace("\u202f", " ")
            assert "--audits preprocessing" in where

    def test_a_budget_that_reading_has_spent(self, work, tmp_path):
        status, _, complaint = audit(work, tmp_path, "--audits", "preprocessing", "--budget", "0.001s")
        assert status == 2
        assert "`budget` must leave time for one audit; got 0.001 s" in complaint
        assert not (tmp_path / "report.json").exists()

    def test_a_long_one_cuts_nothing(self, work, tmp_path):
        status, shown, _ = audit(work, tmp_path, *FEW[:1], "accuracy,confusions", "--budget", "1h30m")
        assert status == 0
        assert "Not begun" not in shown + text(tmp_path)
        assert report(tmp_path)["recipe"]["budget"]["seconds"] == 5400


def test_fewer_images_for_attacks_and_the_page_says_so(work, tmp_path):
    assert audit(work, tmp_path, "--audits", "accuracy,minimal_perturbation", "--images", "7")[0] == 0
    (flips,) = (row for row in report(tmp_path)["measurements"] if row["name"] == "median_flip")
    assert flips["n"] <= 6  # two of each class
    assert "Measured on at most 7 of the 45 test images, the same number of each class " in text(tmp_path)


@pytest.fixture
def interrupted_pairs(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Confusions, "examine", interrupted)


def test_an_interruption_keeps_what_is_done(work, tmp_path, interrupted_pairs):
    status, shown, _ = audit(work, tmp_path, "--audits", "accuracy,confusions,class_scatter")
    assert status == 130
    assert f"Report: {tmp_path / 'index.html'}" in shown
    assert {row["audit"] for row in report(tmp_path)["measurements"]} == {"accuracy"}
    said = "Interrupted before the end; not measured: confused classes (confusions); class scatter"
    assert said in text(tmp_path)
    assert said in shown


def test_interrupted_before_anything_is_done_writes_nothing(work, tmp_path, interrupted_pairs):
    status, _, complaint = audit(work, tmp_path, "--audits", "confusions")
    assert status == 130
    assert "interrupted" in complaint
    assert not (tmp_path / "report.json").exists()


SHEETS = ("--audits", "accuracy,mistakes,boundary_distance,out_of_distribution", "--images", "6")


@pytest.fixture(scope="module")
def written(work, tmp_path_factory):
    """Folders of the same audit, without and with pictures."""
    folders = {}
    others = tmp_path_factory.mktemp("other") / USER  # a folder that is called like its owner
    shutil.copytree(work / "things", others)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setenv("USER", USER)
        patch.setenv("LOGNAME", USER)
        for name, options in (("without", ("--no-include-images",)), ("with", ())):
            folders[name] = tmp_path_factory.mktemp(name)
            status, _, complaint = audit(
                work, folders[name], *SHEETS, "--unknown", f"folder:{others}", *options
            )
            assert (status, complaint) == (0, OWN_WEIGHTS)
    return folders


def everything(folder):
    return {path.name: path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("which", ["without", "with"])
def test_no_path_user_or_host_is_given_away(work, written, which):
    files = everything(written[which])
    assert {"index.html", "report.json"} <= files.keys()
    secrets = (USER, HOST, "secret-project", str(work), str(written[which]))
    for name, content in files.items():
        for secret in secrets:
            assert secret not in content, (name, secret)


def test_pictures_of_images_are_on_the_own_page_alone(written):
    pages = {which: (folder / "index.html").read_text("utf-8") for which, folder in written.items()}
    kinds = {
        which: {
            json.loads(content).get("kind")
            for name, content in everything(folder).items()
            if name.endswith(".json")
        }
        for which, folder in written.items()
    }
    assert "images" not in kinds["without"]
    assert "data:image" not in pages["without"]
    assert "<image" not in pages["without"]
    assert "are left out of this page" in pages["without"]
    shared = (written["with"] / "share.html").read_text("utf-8")
    assert "data:image" not in shared
    assert "<image" not in shared
    assert "are left out of this page" in shared
    assert "images" in kinds["with"]
    assert "<image" in pages["with"]
