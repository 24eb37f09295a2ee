"""Models named by the place of what builds them: what can be imported is built, everything else is one error."""

import sys

import pytest
import torch
from torch import nn

from clearance.models.factory import module_of, object_at


def build_module(place):
    return module_of(object_at(place), place)


CODE = """
import torch
from torch import nn
from {package}parts import WIDTH

class Net(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.fc = nn.Linear(width, 2)

def build():
    return Net()

def sized(width, *, classes):
    return Net(width)

def broken():
    raise RuntimeError("no memory")

ready = Net()
number = 3
empty = dict

class Zoo:
    small = Net
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a package and a single file, both with a neighbour that they import."""
    for folder, package in (("mypkg", "mypkg."), ("scripts", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(CODE.format(package=package))
        (tmp_path / folder / "parts.py").write_text("WIDTH = 5\n")
    (tmp_path / "mypkg" / "__init__.py").write_text("")
    (tmp_path / "mypkg" / "needy.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "mypkg" / "typo.py").write_text("def build(:\n")
    (tmp_path / "scripts" / "script.py").write_text(
        "import argparse\nargparse.ArgumentParser().parse_args(['x'])\n"
    )
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [
        n for n in sys.modules if n.split(".")[0] in ("mypkg", "parts") or n.startswith("_clearance_")
    ]:
        del sys.modules[name]


@pytest.mark.parametrize("where", ["mypkg.net", "scripts/net.py"])
@pytest.mark.parametrize("name", ["Net", "build", "ready", "Zoo.small"])
def test_modules_classes_and_functions(home, where, name):
    path = list(sys.path)
    assert build_module(f"{where}:{name}").get_submodule("fc").in_features == 5
    assert sys.path == path


def test_a_ready_module_is_the_one(home):
    assert build_module("mypkg.net:ready") is sys.modules["mypkg.net"].ready


def test_an_absolute_path_and_an_installed_package(home, monkeypatch):
    monkeypatch.chdir("/")
    assert build_module(f"{home}/scripts/net.py:build").get_submodule("fc").in_features == 5
    assert isinstance(build_module("torch.nn:Identity"), nn.Identity)
    assert isinstance(build_module("torch:nn.Identity"), nn.Identity)
    assert torch.nn.Identity is nn.Identity


def test_what_a_function_of_a_file_imports_when_it_is_called_is_beside_the_file(home):
    (home / "scripts" / "lazy.py").write_text("def build():\n    import later\n    return later.Net()\n")
    (home / "scripts" / "later.py").write_text("from torch.nn import Identity as Net\n")
    assert isinstance(build_module("scripts/lazy.py:build"), nn.Identity)


WRONG = {
    "no name": ("mypkg.net", "must be given as MODULE:NAME .*; got 'mypkg.net'"),
    "empty name": ("mypkg.net:", "must be given as MODULE:NAME"),
    "no module": ("mypkgg.net:build", "no module 'mypkgg.net', neither in the working directory"),
    "no submodule": ("mypkg.nett:build", "no module 'mypkg.nett'"),
    "needs another": ("mypkg.needy:build", "it needs 'not_installed_anywhere'; install that"),
    "typo": ("mypkg.typo:build", "cannot be imported: SyntaxError"),
    "wrong name": ("mypkg.net:biuld", "got 'biuld'. Did you mean 'build'?"),
    "arguments": (
        "mypkg.net:sized",
        r"must take no required argument; it needs 'width', 'classes'.* sized\(width=..., classes=...\)",
    ),
    "fails": ("mypkg.net:broken", "mypkg.net:broken fails with RuntimeError: no memory"),
    "number": ("mypkg.net:number", "a class or function that gives one; got int"),
    "script": ("scripts/script.py:build", "must be importable; it ended the program"),
    "no network": ("mypkg.net:empty", "must give a torch.nn.Module; got dict"),
}


@pytest.mark.parametrize(("place", "fragment"), WRONG.values(), ids=WRONG.keys())
def test_every_mistake_is_one_error(home, place, fragment):
    with pytest.raises(ValueError, match=fragment):
        build_module(place)


def test_no_file(home):
    with pytest.raises(FileNotFoundError, match=r"no file .*nett.py; correct the path of the model's code"):
        build_module("scripts/nett.py:build")


def test_what_a_misspelt_name_may_be_is_what_builds_something(home):
    with pytest.raises(
        ValueError, match=r"must be one of 'Net', 'build', .*'empty', 'Zoo'; got 'bild'. Did you mean 'build'"
    ):
        build_module("mypkg.net:bild")
