"""The life of a run's directory in one process: layout, continuing, finishing, refusing."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from clearance.runs import RunDirectory, read_fingerprint, read_result

SEED = {"seed": 0}


def names(folder):
    return sorted(entry.relative_to(folder).as_posix() for entry in Path(folder).rglob("*"))


def checkpoints(folder):
    return [entry.name for entry in (folder / "checkpoints").iterdir()]


def latest(run):
    found = run.latest()
    assert found is not None
    return found


def begin(path, *, steps=(1, 2, 3), save=2):
    """A run that logged `steps`, saved after step `save`, and then ended without a word."""
    with RunDirectory.open(path, SEED) as run:
        for step in steps:
            run.log({"step": step, "loss": 1 / step})
            if step == save:
                run.save(step, {"weight": torch.full((2,), float(step))})


def test_layout_while_it_runs(tmp_path):
    path = tmp_path / "new" / "run"
    begin(path)
    checkpoint = ["checkpoints", "checkpoints/00000002"]
    checkpoint += ["checkpoints/00000002/state.json", "checkpoints/00000002/tensors.safetensors"]
    assert names(path) == [*checkpoint, "lock", "metrics.jsonl", "run.json"]


def test_layout_when_it_is_finished(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({"weight": torch.ones(1)}, {"error": 0.5})
    assert names(tmp_path) == ["lock", "metrics.jsonl", "model.safetensors", "result.json", "run.json"]


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
        assert [row["step"] for row in run.metrics()] == [1, 2]
        run.log({"step": 3, "loss": 1 / 3})
        assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_reading_the_checkpoint_late_loses_no_metrics(tmp_path):
    begin(tmp_path)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.log({"step": 3})
        run.latest()
        assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_without_a_checkpoint_the_metrics_start_over(tmp_path):
    begin(tmp_path, save=None)
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.latest() is None
        assert run.metrics() == []


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
        files = [tmp_path / "metrics.jsonl", source / "tensors.safetensors", source / "state.json", source]
        assert synced == [file.stat().st_ino for file in files]
        rename(source, target)

    with RunDirectory.open(tmp_path, SEED) as run:
        monkeypatch.setattr(os, "fsync", record)
        monkeypatch.setattr(os, "rename", check)
        run.save(1, {"weight": torch.ones(1)})
    assert len(synced) == 5
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
    assert replaced == ["model.safetensors", "result.json"]


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


def test_finished_and_opened_again(tmp_path):
    begin(tmp_path)
    weight = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    weights = {"weight": weight.t(), "tied": weight.t(), "count": torch.tensor(3), "half": weight.bfloat16()}
    with RunDirectory.open(tmp_path, SEED) as run:
        assert not run.finished
        run.finish(weights, {"error": 0.1, "loss": float("inf"), "shape": (2, 3)})
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.finished
        assert run.latest() is None
        found, result = run.result()
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert found["half"].dtype == torch.bfloat16
    assert result == {"error": 0.1, "loss": float("inf"), "shape": [2, 3]}
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics != b""
    assert read_result(tmp_path)[1] == result
    assert read_fingerprint(tmp_path) == SEED


def test_checkpoints_that_outlived_the_result_are_removed(tmp_path):
    begin(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.latest() is None
        assert len(run.metrics()) == 3
    assert not (tmp_path / "checkpoints").exists()


def test_weights_that_cannot_be_stored_do_not_finish_the_run(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        with pytest.raises(ValueError, match=r"`weights\['w'\]` must be a dense tensor"):
            run.finish({"w": torch.eye(2).to_sparse()}, {})
        with pytest.raises(ValueError, match=r"`result\['w'\]` must be something that JSON can hold"):
            run.finish({"w": torch.eye(2)}, {"w": torch.eye(2)})
        assert not run.finished
        with pytest.raises(ValueError, match="must be the directory of a finished run"):
            run.result()


@pytest.mark.parametrize(
    "write", [lambda run: run.log({}), lambda run: run.save(9, {}), lambda run: run.finish({}, {})]
)
def test_nothing_is_written_to_a_finished_or_closed_run(tmp_path, write):
    with RunDirectory.open(tmp_path, SEED) as run:
        pass
    with pytest.raises(RuntimeError, match=r"closed\. Open it again"):
        write(run)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({}, {})
        with pytest.raises(RuntimeError, match="until it is finished"):
            write(run)


def test_another_fingerprint_is_refused(tmp_path):
    begin(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    other = {"seed": 1, **{f"option{i}": i for i in range(6)}}
    message = r"differs in option0: absent there, 0 here; .*; option4: .*; and 2 more. Use another directory"
    with pytest.raises(ValueError, match=message):
        RunDirectory.open(tmp_path, other)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    RunDirectory.open(tmp_path, SEED).close()


def test_a_process_that_came_first_keeps_the_directory(tmp_path, monkeypatch):
    class SlowLock(FileLock):
        def acquire(self, *arguments, **options):
            (tmp_path / "run.json").write_text('{"schema": 1, "fingerprint": {"seed": 9}}')
            return super().acquire(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("clearance.runs._claim.FileLock", SlowLock)
        with pytest.raises(ValueError, match="seed: 9 there, 0 here") as caught:
            RunDirectory.open(tmp_path, SEED)
    assert read_fingerprint(tmp_path) == {"seed": 9}
    RunDirectory.open(tmp_path, {"seed": 9}, wait=False).close()  # the lock was released
    assert caught.tb is not None  # ... and not merely collected with the frames of the error


def test_tuples_and_key_order_do_not_change_a_fingerprint(tmp_path):
    RunDirectory.open(tmp_path, {"a": (1, 2), "b": float("inf")}).close()
    written = (tmp_path / "run.json").read_bytes()
    RunDirectory.open(tmp_path, {"b": float("inf"), "a": [1, 2]}).close()
    assert (tmp_path / "run.json").read_bytes() == written


def test_a_strangers_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("a year of work")
    with pytest.raises(ValueError, match=r"holds no run.json but thesis.txt. Choose another path"):
        RunDirectory.open(tmp_path, SEED)
    assert names(tmp_path) == ["thesis.txt"]


def test_what_a_kill_before_the_fingerprint_leaves_is_no_stranger(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / ".run.json.17.tmp").write_text("{")
    RunDirectory.open(tmp_path, SEED).close()
    assert names(tmp_path) == ["lock", "metrics.jsonl", "run.json"]


def test_a_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError, match=r"got the file .*file\. Choose another path"):
        RunDirectory.open(file, SEED)
    with pytest.raises(OSError, match=r"`path` must be a directory that can be made and written; got .*run"):
        RunDirectory.open(file / "run", SEED)


def test_a_path_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    def refuse(path, mode=0o777):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(
        PermissionError, match=r"`path` must be a directory that can be made and written; got .*new"
    ):
        RunDirectory.open(tmp_path / "new", SEED)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="`path` must be a directory that can be made and written"):
        RunDirectory.open(tmp_path, SEED)


def test_a_fingerprint_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`fingerprint\['data'\]` must be .*; got Tensor"):
        RunDirectory.open(tmp_path / "run", {"data": torch.ones(1)})
    assert names(tmp_path) == []


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


def test_a_damaged_result_is_told(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({"weight": torch.ones(2)}, {})
    os.truncate(tmp_path / "model.safetensors", 12)
    with pytest.raises(ValueError, match=r"must hold a readable model.safetensors and result.json; got Safe"):
        read_result(tmp_path)
