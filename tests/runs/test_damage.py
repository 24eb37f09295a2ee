"""Files of a run that were damaged are named, and never used."""

import contextlib
import os
import shutil

import pytest
import torch
from filelock import FileLock

from clearance.runs import RunDirectory, check_finished, read_file, read_result, write_files
from runs.begun import SEED, begin

DAMAGE = {
    "no state": lambda folder: (folder / "state.json").unlink(),
    "no tensors": lambda folder: (folder / "tensors.safetensors").unlink(),
    "half a state": lambda folder: os.truncate(folder / "state.json", 20),
    "half the tensors": lambda folder: os.truncate(folder / "tensors.safetensors", 20),
    "another state": lambda folder: (folder / "state.json").write_text('{"schema": 1}'),
    "no object": lambda folder: (folder / "state.json").write_text("[1]"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_told_and_never_skipped(tmp_path, damage):
    begin(tmp_path)
    damage(tmp_path / "checkpoints" / "00000002")
    message = r"the checkpoint .*00000002 must hold .*Restore it, or delete"
    with pytest.raises(ValueError, match=message), RunDirectory.open(tmp_path, SEED) as run:
        run.latest()
    assert (tmp_path / "checkpoints" / "00000002").exists()


def test_a_checkpoint_of_a_later_version_is_refused(tmp_path):
    begin(tmp_path)
    (tmp_path / "checkpoints" / "00000002" / "state.json").write_text('{"schema": 2}')
    (tmp_path / "checkpoints" / "00000002" / "manifest.json").unlink()  # a later version writes its own
    with pytest.raises(ValueError, match="must be of schema 1; got 2"):
        RunDirectory.open(tmp_path, SEED)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: os.truncate(file, 5)])
def test_metrics_that_were_cut_are_told(tmp_path, damage):
    begin(tmp_path)
    damage(tmp_path / "metrics.jsonl")
    message = r"metrics.jsonl must hold the \d+ bytes .*; got [05]. Restore the file"
    with pytest.raises(ValueError, match=message) as caught:
        RunDirectory.open(tmp_path, SEED)
    shutil.rmtree(tmp_path / "checkpoints")
    with FileLock(tmp_path / "lock", timeout=0):  # it was released
        pass
    RunDirectory.open(tmp_path, SEED).close()
    assert caught.tb is not None  # ... and not merely collected with the frames of the error


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 1}', '{"schema": 9, "fingerprint": {}}'])
def test_a_damaged_fingerprint_is_told(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"run.json must .*; got .*another directory"):
        RunDirectory.open(tmp_path, SEED)


def flip(path, at=-1):
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_one_flipped_bit_of_a_checkpoint_is_told(tmp_path, name):
    begin(tmp_path)
    flip(tmp_path / "checkpoints" / "00000002" / name, -6)
    with (
        pytest.raises(ValueError, match=r"the checkpoint .*00000002 must hold .*Restore it, or delete"),
        RunDirectory.open(tmp_path, SEED) as run,
    ):
        run.latest()


def test_one_flipped_bit_of_metrics_that_were_saved_is_told(tmp_path):
    begin(tmp_path)
    flip(tmp_path / "metrics.jsonl", 9)
    with pytest.raises(ValueError, match=r"metrics.jsonl must begin with what it held .*delete"):
        RunDirectory.open(tmp_path, SEED)


FINISHED = ("run.json", "metrics.jsonl", "model.safetensors", "result.json", "manifest.json")


@pytest.mark.parametrize("name", FINISHED)
@pytest.mark.parametrize(
    "damage",
    [lambda path: flip(path, -4), lambda path: path.unlink(), lambda path: os.truncate(path, 7)],
    ids=["a bit", "deleted", "cut"],
)
def test_a_damaged_file_of_a_finished_run_is_told_or_does_not_matter(tmp_path, name, damage):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({"weight": torch.ones(4)}, {"error": 0.25})
    damage(tmp_path / name)
    if not (tmp_path / name).exists() and name == "result.json":
        return  # the run is not finished, and begins again
    with pytest.raises(ValueError, match="Restore") as caught:
        check_finished(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert name in str(caught.value)
    if name in ("model.safetensors", "result.json", "manifest.json"):
        with pytest.raises(ValueError, match="Restore"):
            read_result(tmp_path)


def test_a_file_that_is_replaced_never_looks_damaged(tmp_path, monkeypatch):
    """Killed after any write, each file is the old one or the new one, and the manifest names it."""
    write_files(tmp_path, {"a": b"old", "b": b"old"})
    replace, left = type(tmp_path).replace, [0]

    def killed(self, target):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", killed)
    for writes in range(5):
        left[0] = writes
        with contextlib.suppress(KeyboardInterrupt):
            write_files(tmp_path, {"a": b"new", "b": b"new"})
        assert {read_file(tmp_path, name) for name in "ab"} <= {b"old", b"new"}
    assert left[0] == 0  # four writes in all: the manifest, both files, the manifest
