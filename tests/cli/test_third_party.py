"""Models of scripts that know nothing of Clearance, audited by the very commands that the documents name.

Photographs: where CLEARANCE_DATA names a folder that has sign-language-digits/ or its archive.
"""

import importlib.util
import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest
import torch

from cli.terminal import plain_text, run

pytestmark = pytest.mark.filterwarnings("error")

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "your_model.md").read_text("utf-8")
QUICK = ("--audits", "accuracy,preprocessing,linear_probe,confusions,calibration", "--cache", "cache")


def script(name):
    """A script of examples/third_party as a module; its main() has not run."""
    place = ROOT / "examples" / "third_party" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented(beginning):
    """The words of the one command of the document that begins so."""
    (line,) = [line for line in DOCUMENT.splitlines() if line.startswith(beginning)]
    return shlex.split(line)


def audited(words, out, *options):
    """The page and report of an audit by words of the document."""
    assert words[0] == "clearance"
    status, shown, complaint = run(*words[1:], *QUICK, "--out", str(out), *options)
    assert (status, complaint) == (0, "")
    page = Path(out, "index.html").read_text("utf-8")
    return shown, page, json.loads(Path(out, "report.json").read_text("utf-8"))


def screen(page):
    """What the first screen says, as text."""
    return re.sub(
        r"[\u202f\s]+", " ", plain_text(page[page.index("<body>") : page.index('<section class="details">')])
    )


def error(report):
    (row,) = [
        row["value"]
        for row in report["measurements"]
        if (row["audit"], row["name"], row["context"].get("split")) == ("accuracy", "error", "test")
    ]
    return row


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A stranger's working directory: the examples, and room for what they leave."""
    folder = tmp_path_factory.mktemp("home-of-cleo")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.fixture(autouse=True)
def there(work, monkeypatch):
    monkeypatch.chdir(work)


@pytest.fixture(scope="module")
def digits(work):
    """Accuracies that the script itself measured, its files in ``work``."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        for how in ("inside", "outside"):
            words = documented(f"python examples/third_party/plain_digits.py --normalise {how}")
            found[how] = script("plain_digits").main([*words[2:], "--epochs", "5"])
    return found


class TestPlainDigits:
    INSIDE = "clearance audit examples/third_party/plain_digits.py:NormalisingNet"
    OUTSIDE = "clearance audit examples/third_party/plain_digits.py:Net"

    @pytest.mark.parametrize(("how", "beginning"), [("inside", INSIDE), ("outside", OUTSIDE)])
    def test_the_page_counts_the_mistakes_that_the_script_counted(
        self, digits, work, tmp_path, how, beginning
    ):
        shown, page, report = audited(documented(beginning), tmp_path)
        assert error(report) == pytest.approx(1 - digits[how], abs=1e-6)
        assert f"weights: 8 tensors from {how}.pt" in shown
        assert (
            "wrap: head 'fc2' (Linear 64 -> 10), 64 features; head(features(x)) equals module(x): yes"
            in shown
        )
        assert "None of the usual ways to prepare images gives a higher accuracy" in screen(page)
        assert "of 497 test images are classified correctly" in screen(page)
        assert str(work) not in page + json.dumps(report)
        assert str(ROOT) not in page + json.dumps(report)

    def test_the_same_weights_normalised_inside_and_outside_give_the_same_numbers(self, digits, tmp_path):
        inside = documented(self.INSIDE)
        outside = [word.replace("outside.pt", "inside.pt") for word in documented(self.OUTSIDE)]
        reports = [audited(words, tmp_path / name)[2] for name, words in (("in", inside), ("out", outside))]
        assert error(reports[0]) == error(reports[1])
        ours, theirs = (
            # which ways are other than its own depends on where it normalises
            [row["value"] for row in report["measurements"] if row["audit"] != "preprocessing"]
            for report in reports
        )
        # a new last layer is trained on features that differ by rounding
        assert ours == pytest.approx(theirs, rel=1e-3, abs=0.005)

    def test_without_its_normalisation_the_page_says_what_it_lacks(self, digits, tmp_path):
        words = documented(self.OUTSIDE)
        del words[words.index("--mean") :]
        words += ["--mean", "0.9", "--std", "0.2"]
        _, page, report = audited(words, tmp_path)
        assert error(report) > 1 - digits["outside"] + 0.05
        assert "the network was most likely trained on images prepared in that way" in screen(page)
        assert "With the images&#39; own mean and std" in screen(page)

    def test_an_expected_accuracy_that_is_met(self, digits, tmp_path):
        expected = f"{digits['outside']:.4f}"
        shown, _, report = audited(documented(self.OUTSIDE), tmp_path, "--expect-accuracy", expected)
        assert "expected " in shown
        assert report["recipe"]["expected_accuracy"] == float(expected)


@pytest.fixture(scope="module")
def photographs(work):
    """A few pictures of each class; skipped, loudly, where there are none."""
    import os

    root = os.environ.get("CLEARANCE_DATA")
    if not root:
        pytest.skip("no real data: CLEARANCE_DATA is not set")
    name = "sign-language-digits"
    if Path(root, name).is_dir():
        return Path(root, name)
    archive = Path(root, f"{name}.zip")
    if not archive.is_file():
        pytest.skip(f"no real data: neither {name}/ nor {name}.zip in CLEARANCE_DATA")
    with zipfile.ZipFile(archive) as files:
        for label in range(10):
            inside = sorted(each for each in files.namelist() if each.startswith(f"{name}/{label}/"))
            files.extractall(work, [each for each in inside if not each.endswith("/")][:15])
    return work / name


def test_photographs(photographs, work, tmp_path):
    """Few pictures and steps: that the command goes through, and that it sees what the script saw."""
    command = documented("python examples/third_party/photographs.py")
    assert command[2] == "PHOTOGRAPHS"
    right = script("photographs").main([str(photographs), *command[3:], "--epochs", "2", "--limit", "15"])
    words = documented("clearance audit examples/third_party/photographs.py")
    shown, page, report = audited(words, tmp_path)
    assert "tensors from best.pt['model']" in shown
    assert "wrap: head 'fc' (Linear 64 -> 10), 64 features" in shown
    assert "120 training and 30 held-out images of 3x64x64" in shown
    assert error(report) == pytest.approx(1 - right, abs=1e-6)
    assert "of 30 test images are classified correctly" in screen(page)
    assert str(photographs) not in page + json.dumps(report)


def test_the_documents_commands_are_the_scripts(work):
    """Names after the colon exist, and give a network without arguments."""
    for file, name in re.findall(r"examples/third_party/(\w+)\.py:(\w+)", DOCUMENT):
        assert isinstance(getattr(script(file), name)(), torch.nn.Module)
    for file in Path(ROOT, "examples", "third_party").glob("*.py"):
        assert "clearance" not in re.sub(r'""".*?"""', "", file.read_text("utf-8"), flags=re.DOTALL)
