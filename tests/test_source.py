"""What may stand in no file of the library or of a study: pickles, and connections."""

import ast
from pathlib import Path

import pytest

import clearance

ROOT = Path(clearance.__file__).parent
PAPERS = Path(__file__).parents[1] / "papers"
FILES = sorted([*ROOT.rglob("*.py"), *PAPERS.rglob("*.py")])

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
NETWORK = {"urllib", "urllib3", "requests", "socket", "http", "httpx", "aiohttp", "ftplib", "huggingface_hub"}
LOADERS = {("torch", "load"), ("torch.hub", "load"), ("pandas", "read_pickle")}
OPENS_CHECKPOINTS = "models/checkpoint.py"  # the one place, and it reads weights only
TALKS_TO_ITS_OWN = "experiments/engines.py"  # to and from processes that it has started; no file


def imported(tree):
    """The full names of all modules and things that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_refused(name):
    return name.split(".")[0] in PICKLES | NETWORK or tuple(name.rsplit(".", 1)) in LOADERS


def offences(text):
    """What a file does that no file may do, in words."""
    tree = ast.parse(text)
    found = [f"imports {name}" for name in imported(tree) if is_refused(name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PICKLES:
            found.append(f"reads {node.attr}")
        if isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in LOADERS:
            found.append(f"reads {ast.unparse(node)}")
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            found.append("allows pickles")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"__import__", "eval", "exec"}:
            found.append(f"calls {ast.unparse(node.func)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_file_unpickles_or_connects(path):
    allowed = {
        ROOT / OPENS_CHECKPOINTS: ["reads torch.load"],
        ROOT / TALKS_TO_ITS_OWN: ["imports pickle"],
    }.get(path, [])
    assert offences(path.read_text("utf-8")) == allowed


def test_checkpoints_are_opened_for_their_weights_alone():
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / OPENS_CHECKPOINTS).read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert [{k.arg: ast.unparse(k.value) for k in call.keywords}["weights_only"] for call in calls] == [
        "True"
    ]


def test_the_whole_library_is_read():
    assert len(FILES) > 50
    assert {"cli", "training", "runs"} <= {path.parent.name for path in FILES}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import joblib.externals as j",
        "from urllib.request import urlopen",
        "import urllib.request",
        "import requests as r",
        "import socket",
        "torch.load(path)",
        "torch.load(path, weights_only=True)",
        "read = torch.load",
        "from torch import load",
        "torch.hub.load('a', 'b')",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=wanted)",
        "torch.serialization.pickle.loads(data)",
        "__import__(name)",
    ],
)
def test_each_offence_is_seen(text):
    assert len(offences(text)) == 1


@pytest.mark.parametrize(
    "text", ["np.load(path, allow_pickle=False)", "safetensors.torch.load(data)", "load(x)"]
)
def test_what_is_allowed_is_not_seen(text):
    assert offences(text) == []
