"""The commands open no network connection, run no program but Python, and write only to --out and the cache."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearance.data import gaussian_images

WATCH = '''
"""Found by every Python that a command starts, before anything else runs."""
import json, os, sys

log = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.link": (1,),
           "os.symlink": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.utime": (0,)}
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.spawn", "os.startfile")


def note(kind, what):
    os.write(log, (json.dumps([kind, what]) + "\\n").encode())


def hook(event, words):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        # urllib3 tries whether there is IPv6; what is sent to no address goes where a connection is, which is noted
        # when it is made, or to the other end of a pair
        if (event, *words[1:]) not in (("socket.bind", ("::1", 0)), ("socket.sendmsg", None)):
            note("network", f"{event} {words[1:]!r}")
    elif event == "open" and isinstance(words[0], (str, bytes)) and words[2] & WRITING:
        note("write", os.path.abspath(os.fsdecode(words[0])))
    elif event in CHANGES:
        for place in CHANGES[event]:
            if isinstance(words[place], (str, bytes)):
                note("write", os.path.abspath(os.fsdecode(words[place])))
    elif event in STARTS:
        note("program", str(words[0]))


sys.addaudithook(hook)
'''

COMMANDS = """
import sys
import clearance.__main__, papers.__main__
for words in {commands!r}:
    try:
        if words[0] == "papers":
            papers.__main__.main(words[1:])
        else:
            sys.argv = ["clearance", *words]
            clearance.__main__.main()
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
"""

RECIPE = """
dataset: npz:train.npz
epochs: 1
seeds: 1
audits: [accuracy, class_scatter]
methods:
  plain: {base: none, hidden: [4]}
  foca: {base: none, way: foca, hidden: [4], per_class: 1, head_steps: 2, final_head_steps: 3}
"""

NET = "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))\n"


PROGRAMS = {sys.executable, "fc-list"}  # the second once, by matplotlib, for a list of fonts of its own


def watched(folder, *commands):
    """What commands, in a process of their own, and the processes that they start did, by kind."""
    (folder / "watch").mkdir()
    (folder / "watch" / "sitecustomize.py").write_text(WATCH)
    log = folder / "watch" / "log"
    path = os.pathsep.join([str(folder / "watch"), *(each for each in sys.path if each)])
    environment = {
        "PYTHONPATH": path, "WATCHED": str(log), "HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1",
        "CLEARANCE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"],
    }  # fmt: skip
    code = COMMANDS.format(commands=[list(map(str, words)) for words in commands])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, set[str]] = {}
    for kind, what in map(json.loads, log.read_text("utf-8").splitlines()):
        found.setdefault(kind, set()).add(what)
    return found


@pytest.fixture
def home(tmp_path):
    for name, seed in (("train", 0), ("test", 1)):
        data = gaussian_images(seed=seed)
        np.savez(tmp_path / f"{name}.npz", images=data.images.numpy(), labels=data.labels.numpy())
        for number, pixels in enumerate(data.images):
            picture = tmp_path / "pets" / name / f"class{data.labels[number]}" / f"{number}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * pixels[0]).byte().numpy()).convert("RGB").save(picture)
    sites = (f"{number},{'AB'[number % 2]}" for number in range(len(data)))
    (tmp_path / "sites.csv").write_text("\n".join(["image,site", *sites]))
    (tmp_path / "home").mkdir()
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def outside(found, home):
    """Writes to other places than the outputs, the cache, where matplotlib keeps its list of fonts, and the system's
    folder for temporary files, in which Python tries to write and torch makes a folder.
    """
    kept = [
        str(home / name) for name in ("out", "cache", "home/.cache/matplotlib", "home/.config/matplotlib")
    ]
    made = {os.devnull, str(home), str(home / "home/.cache"), str(home / "home/.config")}
    made.add("/proc/self/clear_refs")  # where the system counts memory anew
    return {
        path
        for path in found.get("write", ())
        if path not in made
        and not path.startswith(tuple(kept))
        and Path(path).parent != Path(tempfile.gettempdir())
    }


@pytest.mark.slow
def test_nothing_leaves_and_nothing_is_written_elsewhere(home):
    out = Path("out")
    sets = (
        "--train",
        "npz:train.npz",
        "--test",
        "npz:test.npz",
        "--audits",
        "accuracy,performance,calibration",
    )
    folders = ("--train", "folder:pets/train", "--test", "folder:pets/test")  # every default audit
    found = watched(
        home,
        ("compare", "--recipe", "mine.yaml", "--jobs", 2, "--out", out / "compared"),
        ("train", "--recipe", "mine.yaml", "--method", "plain", "--out", out / "runs"),
        ("search", "--recipe", "mine.yaml", "--methods", "plain", "--seeds", 1, "--choose-by", "own_error",
         "--jobs", 1, "--out", out / "searched"),
        ("audit", "net.py:build", *sets, "--slices", "sites.csv", "--out", out / "audit"),
        ("audit", "net.py:build", *folders, "--out", out / "pictures"),
        ("diff", out / "audit", out / "audit", "--out", out / "diff"),
        ("report", out / "audit"),
        ("check", out / "audit", "--against", out / "audit", "--fail-if", "accuracy drops 1pt",
         "--junit", out / "check.xml", "--markdown", out / "check.md"),
        ("explore", "--dataset", "digits", "--classes", "3,8", "--per-class", 20, "--out", out / "explore.html"),
        ("papers", "elsayed_2018", "--only", "toy", "--seeds", 1, "--jobs", 1, "--out", out / "toy"),
    )  # fmt: skip
    assert found.get("network", set()) == set()
    assert found["program"] <= {*PROGRAMS, "git"}  # a ledger names the commit that it was made from
    assert outside(found, home) == set()
    assert str(home / "out" / "audit" / "index.html") in found["write"]


def test_the_watch_sees_what_it_should(home):
    """What the test above rests on: a connection, a program and a write elsewhere are noticed, in a child, too."""
    (home / "net.py").write_text(
        NET + "import pathlib, socket, subprocess, sys\n"
        "pathlib.Path('elsewhere').write_text('a')\n"
        "inner = 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect((\"127.0.0.1\", 9))'\n"
        "subprocess.run([sys.executable, '-c', inner])\n"
    )
    sets = ("--train", "npz:train.npz", "--test", "npz:test.npz", "--audits", "accuracy")
    found = watched(home, ("audit", "net.py:build", *sets, "--out", "out"))
    assert any("127.0.0.1" in each for each in found["network"])
    assert sys.executable in found["program"] <= PROGRAMS
    assert outside(found, home) == {str(home / "elsewhere")}
