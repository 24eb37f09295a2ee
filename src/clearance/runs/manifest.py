"""The SHA-256 of every file of a folder, checked whenever one is read: a damaged file is an error, never used."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from clearance._files import write_bytes

MANIFEST = "manifest.json"
_SCHEMA = 1


def manifest_of(files: Mapping[str, Iterable[bytes]]) -> bytes:
    """The text of a manifest; of a file that is being replaced it names the old and the new content."""
    return _text({name: sorted(map(sha256, contents)) for name, contents in files.items()})


def sha256(data: bytes) -> str:
    """64 hexadecimal digits.

    >>> sha256(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def write_files(folder: Path, files: Mapping[str, bytes], others: Iterable[str] = ()) -> None:
    """Write files one after the other, each atomically, and name their contents in the folder's manifest.

    While a file is replaced, the manifest names its old and its new content: killed at any moment, no file looks
    damaged.

    Args:
        folder: It must exist.
        files: What to write, by name.
        others: Existing files, whose present content is also named.

    Raises:
        OSError: As `write_bytes`.
        ValueError: The existing manifest cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_files(Path(folder), {"a.txt": b"one"})
    ...     read_file(Path(folder), "a.txt")
    b'one'
    """
    known = _read(folder) or {}
    fresh = {name: [sha256(data)] for name, data in files.items()}
    fresh |= {name: [sha256((folder / name).read_bytes())] for name in others if (folder / name).exists()}
    both = {name: sorted({*known.get(name, []), *digests}) for name, digests in fresh.items()}
    write_bytes(folder / MANIFEST, _text({**known, **both}))
    for name, data in files.items():
        write_bytes(folder / name, data)
    if both != fresh:
        write_bytes(folder / MANIFEST, _text({**known, **fresh}))


def read_file(folder: Path, name: str) -> bytes:
    """The content of a file, as its manifest names it; unchecked where there is no manifest, or no entry.

    Raises:
        ValueError: The file is missing, or not what was written; the message does not name the folder.
    """
    path = folder / name
    expected = (_read(folder) or {}).get(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error
    if expected is not None and sha256(data) not in expected:
        raise ValueError(f"the SHA-256 of {name} is not that in {MANIFEST}")
    return data


def check_files(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError if the manifest is missing, or one of these files that it names is missing or damaged."""
    try:
        known = _read(folder)
        if known is None:
            raise ValueError(f"{MANIFEST} is missing")  # noqa: TRY301
        for name in names:
            if name in known:
                read_file(folder, name)
    except ValueError as error:
        raise ValueError(
            f"the files in {folder} must be as they were written; got a change: {error}. Restore them, or delete "
            f"{folder} to start over."
        ) from error


def _read(folder: Path) -> dict[str, list[str]] | None:
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        known = {_SCHEMA: content["files"]}[content["schema"]]
        return {str(name): [str(digest) for digest in digests] for name, digests in known.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is unreadable ({type(error).__name__}: {error})") from error


def _text(digests: Mapping[str, Iterable[str]]) -> bytes:
    files = {name: list(digests[name]) for name in sorted(digests)}
    return (json.dumps({"schema": _SCHEMA, "files": files}, indent=2) + "\n").encode()
