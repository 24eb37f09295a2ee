"""Files that are there entirely or not at all, whatever kills the process."""

import json
import os
from pathlib import Path
from typing import Any

from clearance.runs._plain import plain


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` by one rename: a reader sees the old file or the new one, never a part.

    The bytes are on the disk before the rename, and the rename is on the disk before this returns, so
    that this holds for a power cut too, as far as the file system keeps its word.

    Args:
        path: Where to; its directory must exist. A file that is already there is replaced.
        data: What to write.

    Raises:
        OSError: The directory is missing, not writable or full; `path` is then what it was before.

    One process at a time may write one path: the temporary file beside it is named after the process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "a.bin"), b"123")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.bin']
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Put `value` at `path` as indented JSON, in the way of `write_bytes`.

    Args:
        path: Where to; its directory must exist.
        value: None, bool, int, float, str, and lists, tuples (written as lists) and mappings of them.

    Raises:
        ValueError: Something in `value` has no place in JSON; the message says where it stands.
        OSError: As in `write_bytes`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "a.json"), {"error": 0.1})
    ...     print(Path(folder, "a.json").read_text())
    {
      "error": 0.1
    }
    """
    write_bytes(path, (json.dumps(plain(value, path.stem), indent=2) + "\n").encode())


def write_synced(path: Path, data: bytes) -> None:
    """Write `data` and wait until the disk has it; not atomic."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in the directory `path`."""
    if os.name == "nt":  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
