"""Atomic writes: a file is complete or absent, even if the process is killed."""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_KEPT = 50  # letters, each of up to 4 bytes; a file's name has at most 255


def _write_into(path: Path, data: bytes) -> None:
    """Write into a device, a pipe or a symbolic link; into what the process has open, where it is.

    Opened anew, the file that a shell sends the output to would be cut to nothing.
    """
    named_so = {"/dev/stdout": 1, "/dev/stderr": 2}
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", str(path))
    descriptor = int(numbered[1]) if numbered else named_so.get(str(path))
    if descriptor is None:
        path.write_bytes(data)
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Put `data` at `path` by one rename: a reader sees the old file or the new one, never a part.

    The bytes are on the disk before the rename, and the rename is on the disk before this returns. So it
    also holds after a power cut, if the file system flushes as promised.

    A device, a pipe or a symbolic link at `path` stays what it is: the data is written into it, without these promises.

    Args:
        path: The file; its directory must exist. An existing file is replaced.
        data: What to write.
        private: Whether only this user may read the file.

    Raises:
        OSError: The directory is missing, not writable or full; `path` is then unchanged.

    Only one process at a time may write a path: the temporary file next to it is named after the process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "a.bin"), b"123")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.bin']
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        try:
            _write_into(path, data)
        except OSError as error:
            raise named(error, path) from error
        return
    temporary = temporary_of(path)
    remove_leftovers(path.parent, [path.name])
    try:
        write_synced(temporary, [data], private=private)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_together(files: Iterable[tuple[Path, Iterable[bytes]]], *, instead_of: Iterable[Path] = ()) -> None:
    """Write several files so that all bytes are on the disk before the first gets its name; then they follow in order.

    What can fail, such as a full disk, fails before anything is changed. What processes left that were killed while
    they wrote the same files is removed.

    Args:
        files: Paths, and what to write there in parts, so that not all of it need be in memory; the directories must
            exist.
        instead_of: Files to delete before the first gets its name.

    Raises:
        OSError: A directory is missing, not writable or full; all paths are then unchanged.
    """
    temporaries: dict[Path, Path] = {}
    try:
        for path, parts in files:
            temporaries[path] = temporary_of(path)
            write_synced(temporaries[path], parts)
        for path in instead_of:
            path.unlink(missing_ok=True)
        for path, temporary in temporaries.items():
            temporary.replace(path)
    except BaseException:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise
    for folder in {path.parent for path in temporaries}:
        remove_leftovers(folder, [path.name for path in temporaries if path.parent == folder])
        sync_directory(folder)


def remove_leftovers(folder: Path, names: Iterable[str] | None = None, seconds: float = 0) -> None:
    """Delete what was being written for files of these names, or of any, by processes that were killed.

    Only what was not written to for so many seconds: whether a process of another machine is alive cannot be seen.
    """
    starts = None if names is None else {_short(name) for name in names}
    for left in list(folder.glob(".*.tmp")):
        start, _, number = left.name[1 : -len(".tmp")].rpartition(".")
        if not (number.isascii() and number.isdigit()) or (starts is not None and start not in starts):
            continue
        if not _is_alive(int(number)) and _age(left) >= seconds:
            left.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # os.kill would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def temporary_of(path: Path) -> Path:
    """The file next to `path` in which its content is written first; its name fits if that of `path` does."""
    return path.with_name(f".{_short(path.name)}.{os.getpid()}.tmp")


def _short(name: str) -> str:
    return (
        name if len(name) <= _KEPT else f"{name[:_KEPT]}.{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"
    )


def check_folder(name: str, path: Path) -> None:
    """Raise ValueError unless a folder is at `path`, or can be made there: to be called before long work.

    >>> check_folder("out", Path("."))
    """
    # an address that became a path; a drive of Windows has one letter
    if path.parts and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+:", path.parts[0]):
        address = path.as_posix().replace(":/", "://", 1)
        raise ValueError(
            f"`{name}` must be a folder of this machine here; got the address {address}. Give a folder, and copy it "
            "afterwards; clearance compare and clearance search take addresses."
        )
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f"`{name}` must be a folder that can be written; {there.name} is a file.")
    if not os.access(there, os.W_OK):
        raise ValueError(f"`{name}` must be a folder that can be written; {there} is closed to this user.")


def check_report_folder(name: str, path: Path) -> None:
    """Raise ValueError unless a report can be written into `path` without replacing files of others.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "index.html").write_text("<title>Ann</title>")
    ...     check_report_folder("out", Path(folder))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: `out` must be a new folder or one with a report; its index.html is not of Clearance. ...
    """
    check_folder(name, path)
    page = rb'(?s).*(<meta name="generator" content="Clearance|clearance report makes)'
    for file, start in {"report.json": rb'\s*\{\s*"schema"', "index.html": page, "share.html": page}.items():
        if (path / file).is_file():
            with (path / file).open("rb") as there:
                head = there.read(4096)
            if not re.match(start, head):
                raise ValueError(
                    f"`{name}` must be a new folder or one with a report; its {file} is not of Clearance. "
                    "Name another folder."
                )


def is_remote(address: object) -> bool:
    """Whether a place is an address of fsspec and not a path.

    >>> is_remote("s3://bucket/prefix"), is_remote("runs"), is_remote(Path("runs"))
    (True, False, False)
    """
    return isinstance(address, str) and "://" in address


def make_private(path: Path) -> None:
    """Make a folder that only this user may enter; one that is there stays as it is."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a new file that only this user may read, never what a link points to."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def write_synced(path: Path, parts: Iterable[bytes], *, private: bool = False) -> None:
    """Write parts of a file and wait until the disk has them; not atomic.

    Raises:
        OSError: With the name of the folder.
    """
    try:
        with open(path, "wb", opener=private_opener if private else None) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise named(error, path.parent) from error


def named(error: OSError, path: Path) -> OSError:
    """The same error with a name: a full disk says none.

    >>> str(named(OSError(28, "No space left on device"), Path("out")))
    "[Errno 28] No space left on device: 'out'"
    """
    return OSError(error.errno, error.strerror or str(error), str(path))


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in the directory `path`."""
    if os.name == "nt":  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
