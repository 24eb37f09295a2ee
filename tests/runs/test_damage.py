"""Files of a run that were damaged are told, and never passed over."""

import os
import shutil

import pytest

from clearance.runs import RunDirectory
from runs.begun import SEED, begin  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml

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
    RunDirectory.open(tmp_path, SEED, wait=False).close()  # the lock was released
    assert caught.tb is not None  # ... and not merely collected with the frames of the error


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 1}', '{"schema": 9, "fingerprint": {}}'])
def test_a_damaged_fingerprint_is_told(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"run.json must .*; got .*another directory"):
        RunDirectory.open(tmp_path, SEED)
