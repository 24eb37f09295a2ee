"""Where runs execute: local processes, each with one task at a time and one thread.

Any ``concurrent.futures.Executor`` can replace them: an engine only needs ``submit``. A task whose process or machine
was lost ends in a :class:`LostError`; it may be submitted again.
"""

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pickle  # noqa: TID251 - to and from processes that it has started; no file
import platform
import secrets
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch with one thread, so that numbers depend neither on the machine's cores nor on its load.

    Small networks gain little from a second thread, and on a busy machine two threads that wait for each other are
    many times slower than one.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Event = Mapping[str, Any]
MAIN = "from clearance.experiments.engines import work; work(copies={copies}, imports={imports})"
FORKS = sys.platform == "linux"  # elsewhere system libraries that torch uses do not survive a fork
# what runs need, once for all copies; the first optimizer imports torch._dynamo
_FOR_RUNS = ("torch._dynamo", "scipy.stats", "sklearn.datasets", "sklearn.metrics", "clearance.experiments.grid")
_parent: Connection | None = None  # in a process that `Processes` started


class TaskError(RuntimeError):
    """A task failed in its process.

    `reason` is one line, `complaint` the process's whole error output.
    """

    def __init__(self, reason: str, complaint: str = "") -> None:
        super().__init__(reason)
        self.complaint = complaint


class LostError(TaskError):
    """The process or machine of a task was lost; submitted again, the task may succeed."""


class Task(Future[Any]):
    """A running task: a future that also passes on the task's events."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._listener: Callable[[Event], object] | None = None

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call `listener` with every event, including earlier ones."""
        with self._lock:
            self._listener = listener
            early, self._events = self._events, []
        for event in early:
            listener(event)

    def send(self, event: Event) -> None:
        """Pass an event on, or keep it until there is a listener."""
        with self._lock:
            listener = self._listener
            if listener is None:
                self._events.append(event)
        if listener is not None:
            listener(event)


class Processes(Executor):
    """Local processes, each with one thread, so that numbers do not depend on their number.

    Functions and arguments are pickled; a function must be importable by name. If a process dies, only its
    own task fails. Leaving ``with`` by an exception ends all of them.

    On Linux they are copies (forks) of one original, which has no threads and imports once what all of them need. It
    starts at once, beside what the caller does next.

    Args:
        jobs: Tasks at a time, at least 1; None means one per core that this process may use.
        fresh: Whether each task gets a new process, so that its memory can be measured; otherwise a process runs
            one task after the other.

    >>> import math
    >>> with Processes(1) as engine:
    ...     engine.submit(math.sqrt, 9.0).result()
    3.0
    """

    def __init__(self, jobs: int | None = None, *, fresh: bool = True) -> None:
        self._threads = ThreadPoolExecutor(default_jobs() if jobs is None else jobs)
        self._fresh = fresh
        self._lock = threading.Lock()
        self._alive: set[_Process] = set()
        self._idle: list[_Process] = []
        self._original = self._new_original()
        self._ended = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Task:
        """Run `function` in a process; the future's exception is a TaskError."""
        task = Task()
        self._threads.submit(self._do, task, (function, arguments, options))
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes once their tasks are done; without waiting, they end with this process."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for process in (*self._idle, *self._originals()):
                process.close()

    def terminate(self) -> None:
        """End the processes now; their tasks fail, and waiting tasks are not started."""
        with self._lock:
            self._ended = True
            for process in (*self._alive, *self._originals()):
                process.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.terminate()
        self.shutdown()

    def _do(self, task: Task, call: Any) -> None:
        if not task.set_running_or_notify_cancel():
            return
        process = None
        try:
            process = self._process()
            task.set_result(process.result(call, task.send))
        except Exception as error:  # noqa: BLE001 - the future holds it
            task.set_exception(error)
        if process is None:
            return
        if process.works and not self._fresh:
            self._idle.append(process)
            return
        process.close()
        with self._lock:
            self._alive.discard(process)

    def _process(self) -> "_Process":
        with self._lock:
            if self._ended:
                raise TaskError("interrupted")
            if self._idle:
                return self._idle.pop()
            if self._original is not None and not self._original.works:
                self._original.close()
                self._original = self._new_original()
            original = self._original
        process = _Process() if original is None else original.copy()
        with self._lock:
            self._alive.add(process)
            if self._ended:
                process.terminate()
        return process

    def _new_original(self) -> "_Original | None":
        return _Original(_FOR_RUNS if self._fresh else ()) if FORKS else None

    def _originals(self) -> "list[_Original]":
        return [] if self._original is None else [self._original]


Begun = tuple[int, Callable[[], int]]
"""The group of a process, and what waits for its end and gives its exit code."""


def _new(theirs: Connection, errors: int, *, copies: bool = False, imports: tuple[str, ...] = ()) -> Begun:
    """Begin :func:`work` in a new Python, with its end of a connection and of a pipe for error output."""
    popen = subprocess.Popen(  # noqa: S603 - Python itself, and constants
        [sys.executable, "-c", MAIN.format(copies=copies, imports=imports), str(os.getpid())],
        stdin=theirs.fileno(),
        stderr=errors,
        # PYTHONSAFEPATH: a file in the user's folder must not shadow a library
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
        start_new_session=True,  # Ctrl-C reaches only the parent, which ends its processes
    )
    return popen.pid, popen.wait


class _Process:
    """A process that runs tasks, with a connection to it and its error output."""

    def __init__(self, begin: Callable[[Connection, int], Begun] = _new) -> None:
        self.works = True
        self._connection, theirs = multiprocessing.Pipe()
        errors, their_errors = os.pipe()
        self._errors = os.fdopen(errors, "rb")
        try:
            self.group, self._code = begin(theirs, their_errors)
        except BaseException:
            self._connection.close()
            self._errors.close()
            raise
        finally:
            theirs.close()
            os.close(their_errors)
        self._complaints: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def result(self, call: Any, listener: Callable[[Event], object]) -> Any:
        """The value that a call returns.

        Raises:
            TaskError: If it raises; a LostError if the process dies.
        """
        message = pickle.dumps(call)  # complete, so that a pickling error sends nothing
        try:
            self._connection.send(sys.path)
            self._connection.send_bytes(message)
            while True:
                kind, value = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from our own process
                if kind != "event":
                    break
                listener(value)
        except (EOFError, ConnectionError):
            raise self._lost() from None
        return value_of((kind, value))

    def terminate(self) -> None:
        """End it; an original also ends its copies, and a copy the others."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.group, signal.SIGTERM)

    def close(self) -> None:
        """Close the connection, and wait until the process has ended."""
        self._connection.close()
        if self.works:
            with contextlib.suppress(LostError):  # its original died, and it with that
                self._code()
        self._reader.join()

    def _lost(self) -> LostError:
        """Why it died; it must have."""
        self.works = False
        code = self._code()
        self._reader.join()
        complaint = b"".join(self._complaints).decode(errors="replace")
        return LostError(_reason(code, complaint), complaint)

    def _read(self) -> None:
        with self._errors:
            self._complaints.extend(self._errors)


class _Original(_Process):
    """A process that makes copies of itself, which run tasks."""

    def __init__(self, imports: tuple[str, ...]) -> None:
        super().__init__(partial(_new, copies=True, imports=imports))
        self._asking = threading.Lock()

    def close(self) -> None:
        """Close the connection when nobody asks, and wait until the process has ended."""
        with self._asking:
            super().close()

    def copy(self) -> _Process:
        """A new copy; the first has to wait until everything is imported."""
        return _Process(self._copied)

    def _copied(self, theirs: Connection, errors: int) -> Begun:
        copy = self._ask(None, theirs.fileno(), errors)
        return self.group, partial(self._ask, copy)

    def _ask(self, ended: int | None, *handles: int) -> int:
        """The exit code of a copy that has ended; for None the number of a new one, which gets `handles`.

        Raises:
            LostError: If the original has died.
        """
        with self._asking:
            try:
                self._connection.send(ended)
                for handle in handles:
                    send_handle(self._connection, handle, self.group)
                return int(self._connection.recv())
            except (EOFError, OSError):  # it has ended, or another thread noticed that and closed the connection
                raise self._lost() from None


def report(**event: Any) -> None:
    """Send an event to the parent, from within a task; elsewhere it does nothing."""
    _send_parent("event", event)


def is_local_process() -> bool:
    """Whether this process was started by `Processes`, so that `report` reaches its parent."""
    return _parent is not None


def end_with(parent: int) -> None:
    """End this process when its parent ends, however that happens (on Linux; elsewhere after the task).

    If the one with the id `parent`, which started this one, has ended already, this one ends now.
    """
    if sys.platform == "linux":
        signal_of_parents_death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(signal_of_parents_death, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def work(*, copies: bool, imports: tuple[str, ...]) -> None:
    """Run tasks, or with `copies` make copies of this process that do: the main function of a process of `Processes`.

    Standard input is a connection to the parent.
    """
    end_with(int(sys.argv[1]))
    parent = Connection(os.dup(0))
    import torch

    torch.set_num_threads(1)
    for name in imports:
        importlib.import_module(name)
    _run_tasks(_copied(parent) if copies else parent)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _copied(parent: Connection) -> Connection:
    """Make copies as the parent asks for them; in each, return its connection. This process ends with the parent's."""
    original = os.getpid()
    while True:
        try:
            ended = parent.recv()
        except EOFError:
            os._exit(0)
        if ended is not None:
            parent.send(os.waitstatus_to_exitcode(os.waitpid(ended, 0)[1]))
            continue
        connection, errors = recv_handle(parent), recv_handle(parent)
        copy = os.fork()
        if not copy:
            end_with(original)
            parent.close()
            os.dup2(errors, 2)
            os.close(errors)
            return Connection(connection)
        os.close(connection)
        os.close(errors)
        parent.send(copy)


def _run_tasks(parent: Connection) -> None:
    """Run one task after the other until the parent closes the connection."""
    global _parent
    _parent = parent
    os.dup2(2, 1)  # what tasks print is error output
    while True:
        try:
            places, call = parent.recv(), parent.recv_bytes()
        except (EOFError, ConnectionError):
            return
        sys.path.extend(place for place in places if place not in sys.path)
        try:
            function, arguments, options = pickle.loads(call)  # noqa: S301 - our parent's
            _send_parent(*outcome_of(function, *arguments, **options))
        except Exception:  # noqa: BLE001 - a function that is not importable, or a result that cannot be pickled
            _send_parent("failed", traceback.format_exc())


Outcome = tuple[str, Any]


def outcome_of(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Outcome:
    """What a call returns, or its traceback: a form that every engine can send back.

    >>> outcome_of(int, "4")
    ('result', 4)
    """
    try:
        return "result", function(*arguments, **options)
    except Exception:  # noqa: BLE001 - `value_of` raises it
        return "failed", traceback.format_exc()


def value_of(outcome: Outcome) -> Any:
    """What the call of `outcome_of` returned.

    Raises:
        TaskError: If it raised.
    """
    kind, value = outcome
    if kind == "failed":
        raise TaskError(last_line(value), value)
    return value


SUBMISSIONS = 3
"""How often a task is submitted at most, if its process or machine is lost."""
REASON = 400  # letters of another package's complaint


class Storage(Protocol):
    """Where runs are kept that is no folder, as :class:`~clearance.runs.remote.RemoteRuns`."""

    def check(self) -> None:
        """Raise ValueError unless it can be written."""


def check_engine(engine: Executor, sent: Any, folder: Path | Storage | None = None) -> None:
    """Raise ValueError unless a worker of the engine can do this work: a short task is sent there before any.

    `sent`, what tasks are given, must arrive; the worker must be able to write to `folder`, a path or runs at an
    address.
    """
    name = type(engine).__name__
    try:
        found: Mapping[str, str] = engine.submit(_surroundings, sent, folder).result()
        other = [
            f"{part} {found[part]}, here {value}"
            for part, value in _versions().items()
            if found[part] != value
        ]
    except (Exception, CancelledError) as error:
        reason = str(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"`engine` must be an Executor whose workers can do its tasks; {name} cannot: "
            f"{' '.join(reason.split())[:REASON]}. Install the same Clearance on every machine; methods, models and "
            "audits of your own must be picklable, or importable there."
        ) from error
    if other:
        raise ValueError(
            f"`engine` must have workers with the same versions as here; {name} has {'; '.join(other)}. Results would "
            "depend on where a run was done: install the same versions on every machine."
        )
    if found["problem"]:
        raise ValueError(
            f"`directory` must be a folder that the workers of {name} can write under the same path; a worker says: "
            f"{found['problem']}. Choose one that all machines see."
        )


def _versions() -> dict[str, str]:
    """What results may depend on, beside the machine."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch-clearance", "torch")},
    }


def _surroundings(sent: Any, folder: Path | Storage | None) -> dict[str, str]:
    """The versions here, and what prevents writing to `folder`."""
    del sent
    problem = ""
    if isinstance(folder, Path):
        try:
            probe = folder / f"probe-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            problem = f"{error.strerror or error}: {folder.parent}"
    elif folder is not None:
        try:
            folder.check()
        except ValueError as error:
            problem = str(error)
    return {**_versions(), "problem": problem}


def default_jobs() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _send_parent(kind: str, value: Any) -> None:
    if _parent is not None:
        _parent.send_bytes(pickle.dumps((kind, value)))


def _reason(code: int, complaint: str) -> str:
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return last_line(complaint) or f"the process ended with code {code}"


def last_line(text: str) -> str:
    r"""The last line of a traceback, say: what was raised.

    >>> last_line("Traceback\n  File\nValueError: no\n")
    'ValueError: no'
    """
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
