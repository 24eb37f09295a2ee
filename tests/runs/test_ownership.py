"""Whose a directory is: another fingerprint, another process, a stranger's folder, no folder at all."""

import os

import pytest
from filelock import FileLock

from clearance.runs import RunDirectory, read_fingerprint
from runs.begun import SEED, begin, names


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
        patch.setattr("clearance.runs.directory.FileLock", SlowLock)
        with pytest.raises(ValueError, match="seed: 9 there, 0 here") as caught:
            RunDirectory.open(tmp_path, SEED)
    assert read_fingerprint(tmp_path) == {"seed": 9}
    with FileLock(tmp_path / "lock", timeout=0):  # it was released
        pass
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
