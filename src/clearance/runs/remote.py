"""Runs on any fsspec address, such as ``s3://bucket/prefix``: they work in a local folder and are copied there.

Below the address each run has::

    RUN/leases/000001         who works on it; made once, then renewed by its owner alone
    RUN/attempts/ID/state     the newest checkpoint of an attempt, and its files by their SHA-256
    RUN/attempts/ID/...       the files
    RUN/manifest.json         the attempt that counts, and the SHA-256 of its files; written last, and once

A lease that is not renewed for a while is taken over by a new one with the next number, and the new attempt goes on
from the newest checkpoint of all. An attempt that wakes up after another has finished finds the manifest there and
changes nothing. The storage must only be able to make an object on the condition that there is none.
"""

import contextlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from clearance.runs.directory import LOCK, newest_step
from clearance.runs.manifest import MANIFEST, sha256

LEASE_SECONDS = 60.0
TRIES = 5
FIRST_PAUSE = 0.2  # seconds; doubled with each try
T = TypeVar("T")


class LeaseLostError(RuntimeError):
    """Another attempt works on the run, or has finished it."""


@dataclass(frozen=True)
class RemoteRuns:
    """Runs below an address of fsspec; credentials come from the environment.

    Args:
        address: Such as ``"s3://bucket/prefix"``.
        lease_seconds: For so long a lease must be unchanged to be taken over; it is renewed four times as often.

    >>> import tempfile
    >>> runs = RemoteRuns("memory://bucket/runs")
    >>> with tempfile.TemporaryDirectory() as scratch, runs.attempt("one", Path(scratch, "one")) as attempt:
    ...     _ = Path(scratch, "one", "result.json").write_text("{}")
    ...     _ = attempt.publish()
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     runs.fetch("one", Path(scratch, "one")), Path(scratch, "one", "result.json").read_text()
    (True, '{}')
    """

    address: str
    lease_seconds: float = LEASE_SECONDS

    def check(self) -> None:
        """Raise ValueError unless objects can be made here, each once: before any training."""
        kind, _, path = self.address.partition("://")
        if kind in ("file", "local"):  # a run has folders, which this storage does not make by itself
            raise ValueError(f"a folder must be given by its path; got {self.address}. Give {path}.")
        name = f"probe-{secrets.token_hex(4)}"
        try:
            self._make(name, b"")
            again = self._make(name, b"")
            self._remove(name)
        except Exception as error:
            raise ValueError(
                f"`out` must be an address that can be read and written; {self.address} answers "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}. Check the address, and the credentials "
                "in the environment."
            ) from error
        if again:
            raise ValueError(
                f"`out` must be a storage that can refuse to replace an object; {self.address} replaced one. Use "
                "another."
            )

    def fetch(self, name: str, folder: Path) -> bool:
        """Copy a finished run to `folder`; False if there is none.

        Raises:
            ValueError: If a file is missing, or not what was written.
        """
        manifest = self._manifest(name)
        if manifest is None:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        place = f"{name}/attempts/{manifest['attempt']}"
        self._copy({file: f"{place}/{file}" for file in manifest["files"]}, manifest["files"], folder)
        return True

    @contextlib.contextmanager
    def attempt(
        self, name: str, folder: Path, on_wait: Callable[[str], object] = print
    ) -> "Iterator[Attempt]":
        """Hold the lease of a run while the block works in `folder`, which begins with the newest checkpoint.

        `folder` is local, and what it holds is replaced. `on_wait` is called once, with a sentence, before waiting for
        another attempt. An attempt whose run was finished meanwhile is `over` from the beginning.
        """
        attempt = Attempt(self, name, folder)
        attempt.begin(on_wait)
        try:
            yield attempt
        finally:
            attempt.end()

    def write(self, name: str, data: bytes) -> None:
        """Put an object, replacing what is there."""
        self._patiently(lambda: self._files.pipe_file(self._path(name), data))

    def write_folder(self, folder: Path) -> None:
        """Put every file of a local folder."""
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.write(file.relative_to(folder).as_posix(), file.read_bytes())

    @property
    def _files(self) -> Any:
        import fsspec

        return fsspec.url_to_fs(self.address)[0]

    def _path(self, name: str) -> str:
        import fsspec

        return f"{fsspec.url_to_fs(self.address)[1].rstrip('/')}/{name}"

    def _patiently(self, call: Callable[[], T]) -> T:
        """The result of a call to the storage, which may refuse a few times."""
        for number in range(TRIES):
            try:
                return call()
            except (FileNotFoundError, FileExistsError, PermissionError):
                raise
            except Exception:
                if number == TRIES - 1:
                    raise
                time.sleep(FIRST_PAUSE * 2**number)
        raise AssertionError

    def _read(self, name: str) -> bytes | None:
        self._files.invalidate_cache()
        try:
            data: bytes = self._patiently(lambda: self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None
        return data

    def _make(self, name: str, data: bytes) -> bool:
        """Put an object on the condition that there is none; False if there is one."""

        def make() -> bool:
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except OSError:
                # there is one, or the answer to an earlier try was lost; some storages say it in their own words
                found = self._read(name)
                if found is None:
                    raise
                return found == data and bool(data)
            return True

        return self._patiently(make)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._patiently(lambda: self._files.rm_file(self._path(name)))

    def _names(self, name: str) -> list[str]:
        """The last parts of what is below a prefix."""
        self._files.invalidate_cache()
        try:
            found = self._patiently(lambda: self._files.ls(self._path(name), detail=False))
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def _manifest(self, name: str) -> dict[str, Any] | None:
        return self._listing(f"{name}/{MANIFEST}", "attempt")

    def _listing(self, place: str, key: str) -> dict[str, Any] | None:
        """A manifest or a state, which has `key` beside its files; None if there is none.

        Raises:
            ValueError: It is damaged, or names a file outside the run's folder: whoever can write to the storage must
                not write elsewhere on this machine.
        """
        data = self._read(place)
        if data is None:
            return None
        try:
            found = json.loads(data)
            listing = {"files": dict(found["files"]), key: found[key]}
            names = [PurePosixPath(name) for name in listing["files"]]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{self.address}/{place} must name files and their SHA-256; got {type(error).__name__}: {error}. "
                "Restore it, or delete its run to start over."
            ) from error
        if outside := [
            str(name) for name in names if name.is_absolute() or ".." in name.parts or "\\" in str(name)
        ]:
            raise ValueError(
                f"{self.address}/{place} must name files of its run; got {outside[0]!r}. Delete its run to start over."
            )
        return listing

    def _copy(self, places: dict[str, str], digests: dict[str, str], folder: Path) -> None:
        for file, place in places.items():
            data = self._read(place)
            if data is None or sha256(data) != digests[file]:
                found = "missing" if data is None else "changed"
                raise ValueError(
                    f"{self.address}/{place} must be as it was written; it is {found}. Restore it, or delete its run "
                    "to start over."
                )
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class Attempt:
    """One attempt at a run; made by :meth:`RemoteRuns.attempt`."""

    def __init__(self, runs: RemoteRuns, name: str, folder: Path) -> None:
        self.runs, self.name, self.folder = runs, name, folder
        self.id = secrets.token_hex(8)
        self.over = False
        self.lost = False
        self._number, self._beats, self._step = 0, 0, -1
        self._sent: dict[str, str] = {}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._renew, self._keep)]

    def begin(self, on_wait: Callable[[str], object]) -> None:
        """Take the lease, wait for it if it is held, and copy the newest checkpoint."""
        said = False
        while not self._take():
            if self.runs._manifest(self.name) is not None:
                self.over = True
                return
            if not said:
                on_wait(f"another attempt works on {self.name} in {self.runs.address}; waiting for it ...")
                said = True
        if self.runs._manifest(self.name) is not None:
            self.over = True
            return
        renewing, keeping = self._threads
        renewing.start()  # a copy may take longer than the lease lasts
        try:
            self._resume()
        except BaseException:
            self._ended.set()
            raise
        keeping.start()

    def check(self) -> None:
        """Raise LeaseLostError if another attempt has taken over: to be called now and then."""
        if self.lost:
            raise LeaseLostError(f"another attempt works on {self.name}, or has finished it")

    def publish(self) -> bool:
        """Copy the finished run and make it count; False if another attempt has done so first."""
        files = {path.relative_to(self.folder).as_posix(): path for path in self._paths()}
        data = {name: path.read_bytes() for name, path in files.items()}
        for name, content in data.items():
            self.runs.write(f"{self.name}/attempts/{self.id}/{name}", content)
        manifest = {"attempt": self.id, "files": {name: sha256(content) for name, content in data.items()}}
        return self.runs._make(f"{self.name}/{MANIFEST}", (json.dumps(manifest, indent=1) + "\n").encode())

    def end(self) -> None:
        """Stop renewing the lease, and keep the newest checkpoint."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        if not (self.over or self.lost):
            with contextlib.suppress(Exception):  # the run's own error, if any, is the one to see
                self._save()
                self.runs.write(self._lease(self._number), b"free")

    def _paths(self) -> list[Path]:
        """The files of the run; a lock belongs to its machine."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path for path in found if path.name != LOCK and not path.name.endswith(".tmp"))

    def _lease(self, number: int) -> str:
        return f"{self.name}/leases/{number:06d}"

    def _newest(self) -> int:
        return max(
            (int(name) for name in self.runs._names(f"{self.name}/leases") if name.isdigit()), default=0
        )

    def _take(self) -> bool:
        """Make the next lease, unless the newest one is renewed within the time it has."""
        newest = self._newest()
        before = self.runs._read(self._lease(newest)) if newest else b"free"
        ends = time.monotonic() + self.runs.lease_seconds
        while before != b"free" and time.monotonic() < ends:
            time.sleep(self.runs.lease_seconds / 20)
            now = self.runs._read(self._lease(newest))
            if now == b"free":
                break
            if now != before or self._newest() != newest or self.runs._manifest(self.name) is not None:
                return False
        self._number = newest + 1
        return self.runs._make(self._lease(self._number), self._beat())

    def _beat(self) -> bytes:
        self._beats += 1
        return f"{self.id} {self._beats}".encode()

    def _renew(self) -> None:
        """Renew the lease until the attempt ends or is lost."""
        while not self._ended.wait(self.runs.lease_seconds / 4):
            # while the storage is away; if it stays so, another takes over
            with contextlib.suppress(Exception):
                if self._newest() > self._number or self.runs._manifest(self.name) is not None:
                    self.lost = True
                    return
                self.runs.write(self._lease(self._number), self._beat())

    def _keep(self) -> None:
        """Copy new checkpoints until the attempt ends or is lost."""
        while not self._ended.wait(self.runs.lease_seconds / 4) and not self.lost:
            with contextlib.suppress(Exception):
                self._save()

    def _save(self) -> None:
        """Copy the newest checkpoint, if it is new, with what else the folder holds."""
        step = newest_step(self.folder / "checkpoints")
        if step is None or step == self._step:
            return
        try:
            held = {
                path.relative_to(self.folder).as_posix(): path.read_bytes()
                for path in self._checkpointed(step)
            }
        except FileNotFoundError:  # a newer one has taken its place meanwhile
            return
        files = {name: sha256(data) for name, data in held.items()}
        place = f"{self.name}/attempts/{self.id}"
        for name, data in held.items():
            if files[name] not in self._sent.values():
                self.runs.write(f"{place}/{files[name]}", data)
        self.runs.write(f"{place}/state", json.dumps({"step": step, "files": files}).encode())
        for digest in set(self._sent.values()) - set(files.values()):
            self.runs._remove(f"{place}/{digest}")
        self._sent, self._step = files, step

    def _checkpointed(self, step: int) -> list[Path]:
        """The files of one checkpoint first, then those that may have grown since."""
        folder = self.folder / "checkpoints" / f"{step:08d}"
        others = [path for path in self._paths() if "checkpoints" not in path.relative_to(self.folder).parts]
        return [*sorted(path for path in folder.iterdir()), *others]

    def _resume(self) -> None:
        """Begin with the newest checkpoint of all attempts."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        states: list[tuple[int, str, dict[str, str]]] = []
        for attempt in self.runs._names(f"{self.name}/attempts"):
            state = self.runs._listing(f"{self.name}/attempts/{attempt}/state", "step")
            if state is not None:
                states.append((state["step"], attempt, state["files"]))
        for _, attempt, files in sorted(states, reverse=True, key=lambda one: one[0]):
            place = f"{self.name}/attempts/{attempt}"
            try:
                self.runs._copy(
                    {name: f"{place}/{digest}" for name, digest in files.items()}, files, self.folder
                )
            except ValueError:  # it was replaced while it was read
                shutil.rmtree(self.folder)
                self.folder.mkdir()
                continue
            return
