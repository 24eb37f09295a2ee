"""A file is there entirely or not at all, and on the disk before it has its name."""

import json
import math
import os
import stat
from enum import IntEnum, StrEnum
from pathlib import Path

import numpy as np
import pytest

from clearance._files import temporary_of
from clearance.runs import write_bytes
from clearance.runs.json_file import json_text


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


class Word(StrEnum):
    HERE = "here"


class Number(IntEnum):
    TWO = 2


def test_json_keeps_every_digit_and_reads_back(tmp_path):
    value = {
        "b": [0.1 + 0.2, -math.inf, (1, 2)],
        "a": {"word": Word.HERE, "two": Number.TWO, "n": np.float64(0.1)},
    }
    write_bytes(tmp_path / "a.json", json_text(value, "report"))
    back = json.loads((tmp_path / "a.json").read_text())
    assert back == {"b": [0.1 + 0.2, -math.inf, [1, 2]], "a": {"word": "here", "two": 2, "n": 0.1}}
    assert list(back) == ["b", "a"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, {1}]}, r"`report\['a'\]\[1\]` must be something that JSON can hold .*; got set\. Convert"),
        ({"a": np.float32(1)}, r"`report\['a'\]` must .*; got float32"),
        ({"a": {1: 2}}, r"the keys of `report\['a'\]` must be str; got 1"),
    ],
)
def test_what_json_cannot_hold_is_refused_before_writing(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        write_bytes(tmp_path / "report.json", json_text(value, "report"))
    assert names(tmp_path) == []
