"""``clearance explore``: one file for a dataset, a file of one's own or a trained network; one line for a mistake."""

import json
import re
from typing import Any

import numpy as np
import pytest

from clearance.experiments.explore import explored_run
from clearance.experiments.saved import load_run
from cli.terminal import run


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """A file of one's own: 12 cats, 8 dogs and 10 eels, brighter from class to class, and named."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [12, 8, 10])
    images = np.clip(rng.random((30, 1, 4, 4)) * 0.5 + 0.2 * labels[:, None, None, None], 0, 1)
    path = tmp_path_factory.mktemp("home-of-ann") / "pets.npz"
    np.savez(path, images=images.astype(np.float32), labels=labels, classes=np.array(["cat", "dog", "eel"]))
    return path


def facts(path):
    return json.loads(re.findall(r'id="scene">(.*?)</script>', path.read_text(encoding="utf-8"))[0])


def test_a_file_of_ones_own(pets, tmp_path):
    out = tmp_path / "new" / "pets.html"
    status, shown, complaint = run(
        "explore", "--dataset", f"npz:{pets}", "--classes", "dog,cat", "--out", str(out)
    )
    assert (status, complaint) == (0, "")
    assert shown.splitlines()[0] == "1/1  cat against dog"
    assert re.fullmatch(rf"Page: {out} \(\d\.\d MB\)", shown.splitlines()[1])
    found = facts(out)
    train = [one["train"] for one in found["classes"]]
    assert [one["name"] for one in found["classes"]] == ["cat", "dog"]
    assert train[0] == train[1] <= 8  # as many of each as the smaller class has
    page = out.read_text(encoding="utf-8")
    assert "clearance explore --dataset npz:pets.npz --classes dog,cat" in page
    assert "home-of-ann" not in page


def test_the_command_on_the_page_makes_the_page_again(pets, tmp_path):
    out = tmp_path / "few.html"
    given = ("--dataset", f"npz:{pets}", "--classes", "cat, eel", "--per-class", "5")
    assert run("explore", *given, "--out", str(out))[0] == 0
    shown = "clearance explore --dataset npz:pets.npz --classes &#39;cat, eel&#39; --per-class 5"
    assert shown in out.read_text(encoding="utf-8")


def test_every_pair(pets, tmp_path):
    out = tmp_path / "all.html"
    status, shown, _ = run("explore", "--dataset", f"npz:{pets}", "--classes", "all", "--out", str(out))
    assert status == 0
    assert [line[:3] for line in shown.splitlines()] == ["1/3", "2/3", "3/3", "Pag"]
    assert [(pair["first"], pair["second"]) for pair in facts(out)["pairs"]] == [(0, 1), (0, 2), (1, 2)]


def test_what_the_last_layer_of_a_run_sees(compared, home, tmp_path):
    assert compared
    folder = next(
        path for path in sorted((home / "report").rglob("*")) if path.is_dir() and "plain" in path.name
    )
    out = tmp_path / "run.html"
    status, shown, complaint = run("explore", "--run", str(folder), "--out", str(out))
    assert (status, complaint) == (0, "")
    found, page = facts(out), out.read_text(encoding="utf-8")
    assert found["space"]["shape"] is None
    trained: Any = load_run(folder).model
    first, *_, last = trained.head
    assert explored_run(folder).width == last.in_features != first.in_features
    assert "picture-x" not in page.split("<script")[0]
    assert "features of plain, seed" in page
    assert "spread of the network" in page
    assert found["classes"][0]["train"] > 1
    assert shown.count("\n") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "digts"], "Did you mean 'digits'"),
        (["--dataset", "mnist"], "needs `root`.*--root"),
        (["--classes", "3,ate"], "`class` must be one of.*got 'ate'"),
        (["--classes", "3"], "must name two different classes.*got '3'"),
        (["--classes", "3,3"], "each must be given once; got '3' twice in '3,3'"),
        (["--classes", "3,4,5"], "two different classes, or be 'all' for every pair; got '3, 4, 5'"),
        (["--per-class", "1"], "`per_class` must be a whole number of at least 2; got 1"),
        (["--run", "nowhere"], "must be the directory of a finished run"),
        (["--run", "nowhere", "--dataset", "digits"], "--run already sets dataset and size"),
    ],
)
def test_a_mistake_is_one_line_and_no_file(words, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, complaint = run("explore", *words)
    assert status == 2
    assert complaint.startswith("clearance: ")
    assert re.search(message, complaint)
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_class_is_offered(pets, tmp_path):
    status, _, complaint = run(
        "explore", "--dataset", f"npz:{pets}", "--classes", "cat,dig", "--out", str(tmp_path / "x")
    )
    assert status == 2
    assert "Did you mean 'dog'?" in complaint


def test_a_page_that_would_be_too_large_says_what_to_do(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "photos.npz"
    images = rng.integers(0, 256, (1600, 64, 64, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(1600) % 2)
    out = tmp_path / "photos.html"
    status, _, complaint = run("explore", "--dataset", f"npz:{path}", "--out", str(out))
    assert status == 2
    assert re.search(
        r"at most 8 MB are allowed; take at most \d+ samples of each class \(--per-class \d+\)", complaint
    )
    assert not out.exists()


def test_the_same_numbers_on_paper(tmp_path):
    words = [
        "explore",
        "--per-class",
        "20",
        "--out",
        str(tmp_path / "x.html"),
        "--report",
        str(tmp_path / "paper"),
    ]
    status, shown, complaint = run(*words)
    assert (status, complaint) == (0, "")
    assert shown.splitlines()[-1] == f"Report: {tmp_path / 'paper' / 'index.html'}"
    rows = json.loads((tmp_path / "paper" / "report.json").read_text("utf-8"))["measurements"]
    angles = [row["value"] for row in rows if row["name"] == "angle"]
    assert len(angles) == 3
    assert angles[0] >= angles[1] > angles[2] >= 0  # the first two are the hard margin
    status, _, complaint = run("explore", "--classes", "all", *words[1:])
    assert status == 2
    assert "--report needs one pair" in complaint
