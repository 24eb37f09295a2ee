"""Processes that are killed by SIGKILL: at every touch of the file system, and while they hold the lock.

Run as a script this file is the process that gets killed, so that the tests need no second file.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from filelock import FileLock, Timeout

from clearance.runs import RunDirectory

FINGERPRINT = {"seed": 0}
STEPS, EVERY = 5, 2
TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def train(path):
    """A training run in small: noise, momentum, a metric for every step, a checkpoint for every second."""
    with RunDirectory.open(path, FINGERPRINT) as run:
        if run.finished:
            return
        generator = torch.Generator().manual_seed(0)
        step, weight, momentum = 0, torch.zeros(3), {0: torch.zeros(3)}
        if found := run.latest():
            step, (weight, momentum, noise) = found.step, found.state
            generator.set_state(noise)
        while step < STEPS:
            momentum = {0: 0.9 * momentum[0] + torch.randn(3, generator=generator)}
            step, weight = step + 1, weight - 0.1 * momentum[0]
            run.log({"step": step, "loss": weight.square().sum().item()})
            if step % EVERY == 0:
                run.save(step, (weight, momentum, generator.get_state()))
        run.finish({"weight": weight}, {"loss": weight.square().sum().item()})


def train_killed(path, when):
    """Whether a child that trains died: just before the touch of which `when(event, arguments)` is true."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    def touch(event, arguments):
        if event in {*TOUCHES, "fsync"} and when(event, arguments):
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, "fsync", lambda descriptor: touch("fsync", (descriptor,)))  # noqa: B010
    sys.addaudithook(touch)
    train(path)
    os._exit(0)


def countdown(count):
    """True the `count`-th time it is asked."""
    left = iter(range(count - 1, -(10**6), -1))
    return lambda event, arguments: next(left) == 0


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def outcome(path):
    return [
        (path / name).read_bytes().hex() for name in ("metrics.jsonl", "model.safetensors", "result.json")
    ]


def kill_everywhere(folder):
    """Kill at the first touch, the second and so on, every third time once more, then let it finish."""
    assert not train_killed(folder / "straight", lambda event, arguments: False)
    expected = outcome(folder / "straight")
    count, different, twice = 0, [], 0
    while True:
        count += 1
        path = folder / str(count)
        if not train_killed(path, countdown(count)):
            break
        if count % 3 == 0:
            twice += train_killed(path, countdown(count // 2 + 1))
        train(path)
        if outcome(path) != expected or names(path) != names(folder / "straight"):
            different.append(count)
    return {"kills": count - 1, "twice": twice, "different": different}


def kill_at_the_name(folder):
    """Kill just before the checkpoint of step 4 gets its name; what was on disk then, and what is found."""

    def second_checkpoint(event, arguments):
        return event == "os.rename" and str(arguments[1]).endswith("00000004")

    killed = train_killed(folder, second_checkpoint)
    left = names(folder / "checkpoints")
    lines = len((folder / "metrics.jsonl").read_text().splitlines())
    with RunDirectory.open(folder, FINGERPRINT) as run:
        found = run.latest()
        return {
            "killed": killed,
            "left": [name.rsplit("-", 1)[0] for name in left],
            "lines": lines,
            "found": found and found.step,
            "steps": [
                json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()
            ],
            "after": names(folder / "checkpoints"),
        }


def hold(folder):
    """Hold the directory until killed."""
    with RunDirectory.open(folder, FINGERPRINT):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        time.sleep(600)


@pytest.fixture(scope="module")
def report():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "kill", folder], check=True, stdout=subprocess.PIPE, timeout=300
        )
    return json.loads(done.stdout)


def test_killed_anywhere_it_ends_with_the_same_bytes(report):
    assert report["everywhere"]["different"] == []
    # each of the two checkpoints and the end touch the disk more than ten times
    assert report["everywhere"]["kills"] > 30
    assert report["everywhere"]["twice"] > 10


def test_killed_before_the_rename_the_previous_checkpoint_counts(report):
    assert report["name"] == {
        "killed": True,
        "left": [".tmp-4", "00000002"],
        "lines": 4,
        "found": 2,
        "steps": [1, 2],
        "after": ["00000002"],
    }


def test_the_lock_holds_until_its_process_is_killed(tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, __file__, "hold", tmp_path], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(Timeout):
                FileLock(tmp_path / "lock").acquire(timeout=0)
            with pytest.raises(ValueError, match="differs in seed: 0 there, 1 here"):
                RunDirectory.open(tmp_path, {"seed": 1})  # reported at once, without waiting
            messages = []

            def kill_holder(message):
                messages.append(message)
                holder.kill()

            monkeypatch.setattr("clearance.runs.directory._warn", kill_holder)
            with RunDirectory.open(tmp_path, FINGERPRINT) as run:
                run.log({"step": 1})
            assert messages == [f"another process is working in {tmp_path}; waiting for it ..."]
            assert holder.wait() == -signal.SIGKILL
        finally:
            holder.kill()


if __name__ == "__main__":
    task, place = sys.argv[1], Path(sys.argv[2])
    if task == "hold":
        hold(place)
    else:
        torch.set_num_threads(1)
        setattr(os, "fsync", lambda descriptor: None)  # noqa: B010 - only a power cut could tell
        found = {
            "everywhere": kill_everywhere(place / "everywhere"),
            "name": kill_at_the_name(place / "name"),
        }
        sys.stdout.write(json.dumps(found))
