"""A file is there entirely or not at all, and on the disk before it has its name."""

import os
import stat
from pathlib import Path

import pytest

from clearance._files import temporary_of, write_bytes


def names(folder):
    return [entry.name for entry in folder.iterdir()]


def test_replaces_and_leaves_nothing_beside(tmp_path):
    file = tmp_path / "a.bin"
    write_bytes(file, b"a long first content")
    write_bytes(file, b"second")
    assert file.read_bytes() == b"second"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "猫" * 85])
def test_a_name_of_any_length_is_written(tmp_path, name):
    """The file that is written first has a name of its own, which must not be too long, nor that of another file's."""
    write_bytes(tmp_path / name, b"a")
    assert (tmp_path / name).read_bytes() == b"a"
    assert temporary_of(tmp_path / name) != temporary_of(tmp_path / f"{name[:-1]}y")


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_device_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_bytes(Path("/dev/full"), b"new")


def test_synced_before_the_rename_and_after(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace

    def record_sync(descriptor):
        status = os.fstat(descriptor)
        done.append("sync directory" if stat.S_ISDIR(status.st_mode) else f"sync {status.st_size} bytes")
        sync(descriptor)

    def record_replace(source, target):
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_bytes(tmp_path / "a.bin", b"12345")
    assert done == ["sync 5 bytes", "replace", "sync directory"]
