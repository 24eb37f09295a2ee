"""The life of a run's directory in one process: layout, metrics, checkpoints, continuing."""

import json
import os

import pytest
import torch

from clearance.runs import RunDirectory
from runs.begun import SEED, begin, checkpoints, latest, metrics_of, names


def test_layout_while_it_runs(tmp_path):
    path = tmp_path / "new" / "run"
    begin(path)
    checkpoint = ["checkpoints", "checkpoints/00000002"]
    inside = ("manifest.json", "state.json", "tensors.safetensors")
    checkpoint += [f"checkpoints/00000002/{name}" for name in inside]
    assert names(path) == [*checkpoint, "lock", "metrics.jsonl", "run.json"]


def test_layout_when_it_is_finished(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({"weight": torch.ones(1)}, {"error": 0.5})
    assert names(tmp_path) == [
        "lock",
        "manifest.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
        "run.json",
    ]


def test_metrics_are_sorted_lines_with_every_digit(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        run.log({"step": 1, "loss": 0.1 + 0.2, "diverged": float("nan")})
    expected = '{"diverged": NaN, "loss": 0.30000000000000004, "step": 1}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == expected


def test_only_the_newest_checkpoint_stays(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.latest() is None
        for step in (9, 10, 123456789):
            run.save(step, {"step": step})
            assert checkpoints(tmp_path) == [f"{step:08d}"]
        assert latest(run).state == {"step": 123456789}


def test_a_new_process_finds_the_checkpoint_and_the_metrics_of_that_step(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        found = latest(run)
        assert found.step == 2
        assert torch.equal(found.state["weight"], torch.full((2,), 2.0))
        assert [row["step"] for row in metrics_of(run)] == [1, 2]
        run.log({"step": 3, "loss": 1 / 3})
        assert [row["step"] for row in metrics_of(run)] == [1, 2, 3]


def test_reading_the_checkpoint_late_loses_no_metrics(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.log({"step": 3})
        run.latest()
        assert [row["step"] for row in metrics_of(run)] == [1, 2, 3]


def test_without_a_checkpoint_the_metrics_start_over(tmp_path):
    begin(tmp_path, save=None)
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.latest() is None
        assert metrics_of(run) == []


def test_a_torn_last_line_is_forgotten(tmp_path):
    begin(tmp_path)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"loss": 0.2')
    begin(tmp_path, steps=(3,))
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        1,
        2,
        3,
    ]


def test_an_older_checkpoint_half_deleted_does_not_matter(tmp_path):
    begin(tmp_path)
    (tmp_path / "checkpoints" / "00000001").mkdir()
    (tmp_path / "checkpoints" / ".tmp-3-17").mkdir()
    with RunDirectory.open(tmp_path, SEED) as run:
        assert latest(run).step == 2
        assert not (tmp_path / "checkpoints" / ".tmp-3-17").exists()
        run.save(3, {})
    assert checkpoints(tmp_path) == ["00000003"]


def test_a_failed_save_keeps_the_old_checkpoint_and_can_be_repeated(tmp_path, monkeypatch):
    begin(tmp_path)

    def full(source, target):
        raise OSError(28, "No space left on device")

    with RunDirectory.open(tmp_path, SEED) as run:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", full)
            with pytest.raises(OSError, match="No space"):
                run.save(3, {"weight": torch.ones(1)})
        assert latest(run).step == 2
        run.save(3, {"weight": torch.ones(1)})
        assert latest(run).step == 3


def test_everything_is_synced_before_a_checkpoint_gets_its_name(tmp_path, monkeypatch):
    synced = []
    sync, rename = os.fsync, os.rename

    def record(descriptor):
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def check(source, target):
        written = [source / name for name in ("tensors.safetensors", "state.json", "manifest.json")]
        files = [tmp_path / "metrics.jsonl", *written, source]
        assert synced == [file.stat().st_ino for file in files]
        rename(source, target)

    with RunDirectory.open(tmp_path, SEED) as run:
        monkeypatch.setattr(os, "fsync", record)
        monkeypatch.setattr(os, "rename", check)
        run.save(1, {"weight": torch.ones(1)})
    assert len(synced) == 6
    assert synced[-1] == (tmp_path / "checkpoints").stat().st_ino


def test_metrics_are_synced_before_the_run_counts_as_finished(tmp_path, monkeypatch):
    synced, replaced = set(), []
    sync, replace = os.fsync, os.replace

    def record(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def check(source, target):
        replaced.append(target.name)
        assert (tmp_path / "metrics.jsonl").stat().st_ino in synced
        replace(source, target)

    with RunDirectory.open(tmp_path, SEED) as run:
        monkeypatch.setattr(os, "fsync", record)
        monkeypatch.setattr(os, "replace", check)
        run.finish({}, {})
    assert replaced == ["manifest.json", "model.safetensors", "result.json"]


@pytest.mark.parametrize("step", [2, 1])
def test_steps_must_grow(tmp_path, step):
    begin(tmp_path)
    with (
        RunDirectory.open(tmp_path, SEED) as run,
        pytest.raises(ValueError, match=f"above that of the newest checkpoint, 2; got {step}"),
    ):
        run.save(step, {})


def test_a_state_that_cannot_be_stored_leaves_the_checkpoint(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        with pytest.raises(ValueError, match=r"`state\['bad'\]`"):
            run.save(3, {"bad": {1, 2}})
        assert latest(run).step == 2
