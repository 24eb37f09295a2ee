"""``clearance audit MODULE:NAME``: a folder of pictures and a checkpoint of other people's code, to a page."""

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import Preprocessing
from clearance.data.folder import open_folder
from cli.terminal import run

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        return self.fc(self.body(x))

class Blank(Net):  # always names one class
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.fc.weight)

def wrapped():
    import clearance as cl
    how = cl.data.Preprocessing((0.3, 0.4, 0.5), (0.2, 0.2, 0.2), 12, 12)
    return cl.wrap(Net(), example=torch.rand(2, 3, 12, 12), preprocessing=how, verbose=False)

class Tagged(Net):
    pretrained_cfg = {"mean": (0.3, 0.4, 0.5), "std": (0.2, 0.2, 0.2), "input_size": (3, 12, 12), "crop_pct": 1.0}
"""
MEAN, STD = [0.3, 0.4, 0.5], [0.2, 0.2, 0.2]
OPTIONS = ("--size", "12", "--mean", "0.3,0.4,0.5", "--std", "0.2")


def pictures(folder, count, seed):
    """Three classes distinguished by their colour; sizes differ, and one file of each set is broken."""
    generator = np.random.default_rng(seed)
    for label, name in enumerate(("blue", "green", "red")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = generator.integers(60, 140, (12 + i % 5, 12 + i % 3, 3))
            pixels[..., 2 - label] += 40
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    (folder / "red" / "broken.png").write_text("no picture")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A working directory: code, pictures, and a checkpoint that a loop of its own left."""
    folder = tmp_path_factory.mktemp("home-of-bob")
    (folder / "bobs_net.py").write_text(CODE)
    pictures(folder / "train", 20, 0)
    pictures(folder / "val", 15, 1)
    pictures(folder / "more", 15, 1)
    (folder / "more" / "grey").mkdir()
    namespace: dict = {}
    exec(CODE, namespace)
    torch.manual_seed(0)
    net = namespace["Net"]()
    with pytest.warns(UserWarning, match="1 of 61 files"):
        data = open_folder(folder / "train", Preprocessing(size=12), cache=folder / "cache")
    inputs = (data.images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), data.labels).backward()
        optimizer.step()
    assert (net(inputs).argmax(1) == data.labels).float().mean() > 0.95
    state = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save({"epoch": 60, "state_dict": state}, folder / "best.pt")
    return folder


@pytest.fixture(autouse=True)
def there(work, monkeypatch):
    monkeypatch.chdir(work)
    yield
    sys.modules.pop("bobs_net", None)


def audit(work, out, *options, place="bobs_net:Net", audits="accuracy"):
    words = (
        "audit",
        place,
        "--weights",
        "best.pt",
        "--train",
        "folder:train",
        "--test",
        f"folder:{work}/val",
    )
    return run(*words, "--cache", "cache", "--audits", audits, "--out", str(out), *options)


def test_a_folder_and_a_checkpoint_to_a_page(work, tmp_path):
    status, shown, complaint = audit(
        work, tmp_path, *OPTIONS, "--expect-accuracy", "0.9", audits="accuracy,class_scatter"
    )
    assert (status, complaint) == (0, "")
    lines = shown.splitlines()
    assert lines[0] == "weights: 4 tensors from best.pt['state_dict'], prefix 'module.' removed"
    assert lines[1] == "preprocessing: images 12 -> 12 px (bilinear), mean 0.3, 0.4, 0.5, std 0.2"
    assert lines[2].startswith(
        "note: 1 of 61 files of 'train' cannot be read and are left out: red/broken.png"
    )
    assert lines[4].startswith(
        "wrap: head 'fc' (Linear 32 -> 3), 32 features; head(features(x)) equals module(x): yes"
    )
    assert lines[5].startswith(
        "device cpu; 60 training and 45 held-out images of 3x12x12; images 0 MiB in memory"
    )
    assert "computing accuracy, class_scatter" in lines[5]
    assert lines[6].startswith("accuracy ")
    assert "expected 90.0%" in lines[6]
    assert f"Report: {tmp_path / 'index.html'}" in shown
    report = (tmp_path / "report.json").read_text("utf-8")
    assert str(work) not in report
    stored = json.loads(report)
    assert stored["recipe"]["model"] == "bobs_net:Net"
    assert stored["recipe"]["weights"] == "best.pt"
    assert stored["command"].startswith(
        "clearance audit bobs_net:Net --train folder:train --test folder:val --weights best.pt"
    )


def test_twice_gives_the_same_numbers_from_kept_features(work, tmp_path):
    def kept():
        return {path: path.stat().st_mtime_ns for path in (work / "cache").rglob("features-*")}

    assert audit(work, tmp_path / "a", *OPTIONS)[0] == 0
    before = kept()
    assert before
    assert audit(work, tmp_path / "b", *OPTIONS)[0] == 0
    assert kept() == before
    rows = [json.loads((tmp_path / name / "report.json").read_text())["measurements"] for name in "ab"]
    assert rows[0] == rows[1]


def test_the_models_own_preprocessing_is_taken(work, tmp_path):
    status, shown, _ = audit(work, tmp_path, place=f"{work}/bobs_net.py:Tagged")
    assert status == 0
    assert "preprocessing: images 12 -> 12 px (bilinear), mean 0.3, 0.4, 0.5, std 0.2, 0.2, 0.2" in shown
    expected = tmp_path / "expected"
    assert audit(work, expected, *OPTIONS)[0] == 0
    rows = [json.loads((path / "report.json").read_text())["measurements"] for path in (tmp_path, expected)]
    assert [row["value"] for row in rows[0]] == [row["value"] for row in rows[1]]


def test_a_classifier_keeps_the_preprocessing_that_it_was_wrapped_with(work, tmp_path):
    """As in clearance.audit; its normalisation is a part of it and is not done twice."""
    words = ("--train", "folder:train", "--test", "folder:val", "--cache", "cache", "--audits", "accuracy")
    status, shown, said = run("audit", "bobs_net:wrapped", *words, "--out", str(tmp_path))
    assert status == 0, said
    assert "preprocessing: images 12 -> 12 px (bilinear)\n" in shown
    assert json.loads((tmp_path / "report.json").read_text())["recipe"]["preprocessing"]["size"] == 12


def test_a_class_without_test_images_is_left_out_and_said(work, tmp_path):
    shutil.copytree(work / "val", tmp_path / "val")
    shutil.rmtree(tmp_path / "val" / "green")
    (tmp_path / "val" / "green").mkdir()
    options = (*OPTIONS, "--test", f"folder:{tmp_path}/val")
    status, shown, complaint = audit(work, tmp_path / "out", *options, audits="accuracy,performance")
    assert (status, complaint) == (0, "")
    assert "note: `test` has no image of 1 of the 3 classes, 'green'" in shown
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    recalls = [row["context"]["class"] for row in report["measurements"] if row["name"] == "recall"]
    assert "green" not in recalls
    assert len(recalls) == 2


@pytest.mark.parametrize("normalisation", [(), ("--mean", "0.5,0.5,0.5", "--std", "1")])
def test_grey_images_become_colours_for_a_model_of_colours(tmp_path, normalisation):
    (tmp_path / "net.py").write_text(CODE.replace("nn.Linear(32, 3)", "nn.Linear(32, 10)"))
    words = [f"{tmp_path}/net.py:Net", "--train", "digits", "--audits", "accuracy", "--out", str(tmp_path)]
    status, shown, _ = run("audit", *words, *normalisation)
    assert status == 0
    assert "1300 training and 497 held-out images of 3x8x8" in shown


def test_wrong_preprocessing_stops_before_any_other_number(work, tmp_path):
    wrong = ("--size", "12", "--mean", "0.9,0.1,0.5", "--std", "0.2")
    status, shown, complaint = audit(work, tmp_path, *wrong, "--expect-accuracy", "0.95")
    assert status == 2
    assert shown.splitlines()[-1].startswith("device cpu")
    assert "expected 95.0%. No other audit was run. " in complaint
    assert not tmp_path.joinpath("report.json").exists()


def test_json_alone_on_the_output(work, tmp_path):
    status, shown, printed = audit(work, tmp_path, *OPTIONS, "--json")
    assert status == 0
    assert json.loads(shown) == json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert "wrap: head" in printed


def test_quiet(work, tmp_path):
    assert audit(work, tmp_path, *OPTIONS, "--quiet") == (0, "", "")


def test_an_audit_that_such_a_network_has_nothing_for_is_named(work, tmp_path):
    status, shown, _ = audit(work, tmp_path, *OPTIONS, audits="deeper_cut,neural_collapse")
    assert status == 0
    assert "The error on test images was not measured." in shown
    assert "(deeper_cut)." in shown
    assert "neural_collapse)" not in shown


SETS = ("--train", "folder:train", "--test", "folder:val")
SIZED = ("audit", "bobs_net:Net", *SETS, "--size", "12")
WRONG = {
    "no images": (("audit", "bobs_net:Net"), "needs images: --train and --test"),
    "no run": (("audit", "nothing"), "must be the directory of a finished run"),
    "weights alone": (
        ("audit", "best.pt"),
        "also name what builds the network: MODULE:NAME --weights best.pt",
    ),
    "a part of no weights": (
        ("audit", "bobs_net:Net", *SETS, "--weights-entry", "ema"),
        "--weights-entry names a part of --weights; got 'ema' and no --weights",
    ),
    "run with weights": (
        ("audit", "train", "--weights", "best.pt"),
        "--weights is for a model given as MODULE",
    ),
    "weights in place of a model": (
        ("audit", "best.pt", *SETS),
        "got the file 'best.pt'. If it contains weights: clearance audit MODULE:NAME --weights best.pt",
    ),
    "no place": (("audit", "bobs_nett:Net", *SETS), "no module 'bobs_nett'"),
    "root": ((*SIZED, "--root", "."), "--root is for datasets given by name; got only folders or files"),
    "mean": ((*SIZED, "--mean", "a,b"), "--mean takes numbers separated by commas; got 'a,b'"),
    "sizes": (("audit", "bobs_net:Net", *SETS), "give `size`"),
    "nothing held out": (
        (
            "audit",
            "bobs_net:Net",
            "--train",
            "folder:val",
            "--test",
            "folder:../{}/val",
            "--size",
            "12",
        ),
        "`test` must be images that the model was not trained on; got the 45 images of `train`",
    ),
    "unknown is a path": ((*SIZED, "--unknown", "val"), "a path without its kind. Write folder:val."),
    "crop alone": (("audit", "bobs_net:Net", *SETS, "--crop", "0.9"), "`crop` needs `size`"),
    "interpolation of arrays": (
        ("audit", "bobs_net:Net", "--train", "digits", "--interpolation", "bicubic"),
        "`interpolation` must be given with folders of pictures only",
    ),
    "interpolation": ((*SIZED, "--interpolation", "cubic"), "Did you mean 'bicubic'"),
    "device": ((*SIZED, "--device", "tpu"), "`device` must be 'auto' or a device of torch's"),
    "no such device": ((*SIZED, "--device", "cuda:99"), "`device` 'cuda:99' is not available"),
    "no side": (("audit", "bobs_net:Net", *SETS, "--size", "0"), "`size` must be a whole number"),
    "mean of bytes": (
        (*SIZED, "--mean", "127.5"),
        "`mean` must be for images in [0, 1], at most 1; got 127.5.",
    ),
    "out is a file": (
        (*SIZED, "--out", "best.pt/page"),
        "`out` must be a folder that can be written; best.pt is a file",
    ),
    "per cent": ((*SIZED, "--expect-accuracy", "91.5"), "Write 0.915 for 91.5 %"),
    "an empty folder that is no class": (
        ("audit", "bobs_net:Net", "--train", "folder:train", "--test", "folder:more", "--size", "12"),
        "the training images have no class grey, and more/grey holds no pictures; remove it.",
    ),
    "too small": ((*SIZED[:-1], "1"), "the model fails on the images: `module` must take the example"),
    "mean alone": ((*SIZED, "--mean", "0.1"), "got `mean` alone. Give the `std`"),
    "std alone": ((*SIZED, "--std", "0.1"), "got `std` alone. Give the `mean`"),
    "a folder that cannot be made": (
        (*SIZED, "--weights", "best.pt", "--out", "/proc/none"),
        "cannot read or write /proc/none: ",
    ),
    "channels": ((*SIZED, "--mean", "0.1,0.2", "--std", "1"), "`mean` must be one value or one per channel"),
    "head": ((*SIZED, "--head", "fcc"), "got 'fcc'. Did you mean 'fc'?"),
}


@pytest.mark.parametrize(("words", "fragment"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line(work, words, fragment):
    cache = ("--cache", "cache") if ":" in words[1] else ()
    status, _, complaint = run(*(word.format(work.name) for word in words), *cache)
    assert status == 2
    assert fragment in complaint
    assert complaint.startswith("clearance: ")
    assert complaint.count("\n") == 1


class TestDemo:
    def test_a_line_is_there_before_the_slow_imports(self):
        code = (
            "import sys; from clearance.cli.audit import AuditCommand\n"
            "AuditCommand._card = lambda *_: sys.exit('torch' in sys.modules)\n"
            "AuditCommand('demo').run()"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("training and auditing a small network")

    def test_it_trains_audits_and_says_what_to_do_first(self, tmp_path, monkeypatch):
        """With fewer epochs and images than for people, so that it takes a second."""
        from clearance.experiments import demo

        few: dict[str, dict[str, object]] = {
            "minimal_perturbation": {"images": 10, "steps": 5, "queries": 5},
            "out_of_distribution": {"other": "photographs"},
        }
        small = dataclasses.replace(demo.demo_recipe(), epochs=1, train_fraction=0.2, audit_settings=few)
        monkeypatch.setattr(demo, "demo_recipe", lambda: small)
        status, shown, _ = run("audit", "demo", "--out", str(tmp_path / "page"))
        assert status == 0
        assert "Report: " in shown
        page = (tmp_path / "page" / "index.html").read_text("utf-8")
        assert '<p class="lead">' in page
        for title in (
            "Input",
            "Worst class",
            "Worst pair",
            "Confidence",
            "Unknown images",
            "Smallest change",
        ):
            assert f"<b>{title}.</b>" in page
            assert f"{title}: " in shown

    def test_its_audits_are_those_of_any_model(self):
        from clearance.experiments.audit_plan import MODEL_AUDITS
        from clearance.experiments.demo import demo_recipe

        assert demo_recipe().audits == MODEL_AUDITS

    def test_it_takes_no_model_of_yours(self):
        status, _, error = run("audit", "demo", "--weights", "best.pt")
        assert status != 0
        assert "taken as the demonstration" in error


def test_without_weights_a_line_of_the_error_stream_and_the_page_say_so(work, tmp_path):
    options = (
        "--train",
        "folder:train",
        "--test",
        f"folder:{work}/val",
        "--cache",
        "cache",
        "--audits",
        "accuracy",
    )
    status, shown, complaint = run("audit", "bobs_net:Blank", *options, *OPTIONS, "--out", str(tmp_path))
    assert status == 0
    assert complaint == "no --weights: the network has the weights that Blank() gives it\n"
    words = " ".join(shown.split())
    assert "1 problem" in words
    assert "No --weights were given: its weights are those that bobs_net:Blank comes with." in words
    quiet = run("audit", "bobs_net:Blank", *options, *OPTIONS, "--out", str(tmp_path), "--quiet")
    assert quiet == (0, "", "")


@pytest.mark.parametrize("place", ["bobs_net:Net", "bobs_net.py:Net"])
def test_worker_processes_find_the_code_too(work, tmp_path, place):
    status, _, complaint = audit(
        work, tmp_path, *OPTIONS, "--jobs", "1", place=place, audits="accuracy,minimal_perturbation"
    )
    assert (status, complaint) == (0, "")
    names = {one["name"] for one in json.loads((tmp_path / "report.json").read_text("utf-8"))["measurements"]}
    assert {"error", "median_flip"} <= names
