"""Folders of pictures whose classes and files are called what a file system allows: to a page, a table and a run."""

import html
import json
import os
import re

import numpy as np
import pytest
from PIL import Image

from clearance._text import visible
from clearance.data.folder import open_folder
from cli.terminal import run
from odd_names import ODD

CODE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, {count}))
"""
CLASSES = [name for name in ODD if "/" not in name and name != ".." and len(os.fsencode(name)) < 250]
CLASSES += ["x" * 255, "猫" * 85]
AUDITS = "accuracy,confusions,class_scatter,boundary_distance,calibration,minimal_perturbation"


def pictures(folder, seed, per_class=4):
    generator = np.random.default_rng(seed)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for place in range(per_class):
            pixels = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            pixels[0, :2] = (label * 7) % 256, label * 3, 128
            Image.fromarray(pixels).save(folder / name / f"{place}.png")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a name that is no UTF-8, with a model and pictures."""
    folder = tmp_path_factory.mktemp("odd") / "caf\udce9 [bold]"
    folder.mkdir()
    (folder / "net.py").write_text(CODE.format(count=len(CLASSES)))
    pictures(folder / "train", 0)
    pictures(folder / "test", 1)
    return folder


def test_the_classes_are_their_names(home):
    odd = home / "train" / "a|b" / "\x1b[2J\udce9.png"
    odd.write_bytes(b"no picture")
    with pytest.warns(UserWarning, match=re.escape(r"a|b/\x1b[2J\xe9.png")):
        data = open_folder(home / "train", cache=home / "cache")
    assert sorted(data.classes) == sorted(map(visible, CLASSES))
    assert len(data.digest()) == 64
    odd.unlink()


def test_an_audit_shows_them(home, monkeypatch):
    monkeypatch.chdir(home)
    sets = ("--train", f"folder:{home}/train", "--test", f"folder:{home}/test")
    options = ("--audits", AUDITS, "--images", "40", "--out", str(home / "audit"))
    status, printed, complaint = run("audit", "net.py:build", *sets, *options)
    assert status == 0, complaint
    assert "caf\\xe9 [bold]/audit" in printed
    assert "\x1b" not in printed
    page = html.unescape((home / "audit" / "index.html").read_text("utf-8"))
    table = json.loads((home / "audit" / "report.json").read_text("utf-8"))
    settings = {str(value) for row in table["measurements"] for value in row["context"].values()}
    exhibits = "".join(path.read_text("utf-8") for path in (home / "audit" / "exhibits").iterdir())
    assert settings
    assert page.lower().replace("<script>alert(1)", "").count("<script") == 1  # its own
    for name in CLASSES:
        assert json.dumps(visible(name), ensure_ascii=False)[1:-1] in exhibits
    status, printed, complaint = run("report", str(home / "audit"))
    assert status == 0, complaint
    against = ("--against", str(home / "audit"), "--fail-if", "accuracy drops 1pt")
    assert run("check", str(home / "audit"), *against)[0] == 0


def test_a_method_is_trained_on_them(home):
    (home / "quick.yaml").write_text("{epochs: 1, size: 8, audits: [accuracy], methods: {plain: {}}}")
    options = ("--recipe", str(home / "quick.yaml"), "--out", str(home / "runs"))
    status, _, complaint = run("train", "--dataset", f"folder:{home}", *options)
    assert status == 0, complaint
    (folder,) = (home / "runs").iterdir()
    status, _, complaint = run("audit", str(folder), "--audits", "accuracy", "--out", str(home / "again"))
    assert status == 0, complaint


def test_an_interactive_page_of_two_of_them(home):
    for split in ("train", "test"):
        for place, name in enumerate(("[:x]", "#a000ff")):
            (home / "two" / split / name).mkdir(parents=True)
            for shade in range(12):
                picture = Image.new("RGB", (4, 4), (9 * shade, 100 * place + shade, 255 - shade))
                picture.save(home / "two" / split / name / f"{shade}.png")
    status, _, complaint = run("explore", "--dataset", f"folder:{home}/two", "--out", str(home / "two.html"))
    assert status == 0, complaint
    assert "[:x]" in html.unescape((home / "two.html").read_text("utf-8"))
