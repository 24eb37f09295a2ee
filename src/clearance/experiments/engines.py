"""Where runs execute: local processes, each with one task at a time and one thread.

Any ``concurrent.futures.Executor`` can replace them: an engine only needs ``submit``. A task whose process or machine
was lost ends in a :class:`LostError`; it may be submitted again.
"""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import pickle  # noqa: TID251 - to and from processes that it has started; no file
import platform
import secrets
import signal
import socket  # noqa: TID251 - between processes of this machine, not to a network
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from clearance._checks import check_count

if TYPE_CHECKING:
    from clearance.runs.remote import RemoteRuns


# Tasks in threads of a process take turns: torch's random state and its number of threads are the process's.
ONE_TASK = threading.RLock()


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
SECONDS_TO_END = 5.0  # after its connection is closed
FORKS = sys.platform == "linux"  # elsewhere system libraries that torch uses do not survive a fork
# what runs need, once for all copies; the first optimizer imports torch._dynamo
_FOR_RUNS = (
    "torch._dynamo",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.metrics",
    "clearance.experiments.grid",
)
CODE: list[str] = []  # folders that hold the code of models, for the end of a worker's path
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
    starts here, beside what the caller does next, with the environment of this moment. If it dies, so do its copies.

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
        self._alive: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._original = self._new_original()
        self._ended = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Task:
        """Run `function` in a process; what fails there is a TaskError."""
        task = Task()
        begun = self._threads.submit(self._do, task, (function, arguments, options))
        begun.add_done_callback(
            lambda done: done.cancelled() and task.cancel() and task.set_running_or_notify_cancel()
        )
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes once their tasks are done."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if not wait:
            threading.Thread(target=self.shutdown, daemon=True).start()
            return
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
        worker = None
        try:
            worker = self._worker()
            task.set_result(worker.result(call, task.send))
        except BaseException as error:  # noqa: BLE001 - the future holds it
            task.set_exception(error)
        if worker is None:
            return
        if worker.ready and not self._fresh:
            self._idle.append(worker)
            return
        worker.close()
        with self._lock:
            self._alive.discard(worker)

    def _worker(self) -> "_Worker":
        with self._lock:
            if self._ended:
                raise TaskError("interrupted")
            if self._idle:
                return self._idle.pop()
            if self._original is not None and self._original.ended:
                self._original.close()
                self._original = self._new_original()
            original = self._original
        worker = _Worker(_new if original is None else original.copied)
        with self._lock:
            self._alive.add(worker)
            if self._ended:
                worker.terminate()
        return worker

    def _new_original(self) -> "_Original | None":
        return _Original(_FOR_RUNS if self._fresh else ()) if FORKS else None

    def _originals(self) -> "list[_Original]":
        return [] if self._original is None else [self._original]


Begun = tuple[int, Callable[[], int]]
"""The group of a process, and what waits for its end, or brings it about, and gives its exit code."""


def _new(connection: int, errors: int, *, copies: bool = False, imports: tuple[str, ...] = ()) -> Begun:
    """Begin :func:`work` in a new Python, with its end of a socket, and of a pipe for all output."""
    popen = subprocess.Popen(  # noqa: S603 - Python itself, and constants
        [sys.executable, "-c", MAIN.format(copies=copies, imports=imports), json.dumps([*sys.path, *CODE])],
        stdin=connection,
        stdout=errors,
        stderr=errors,
        # PYTHONSAFEPATH: a file in the user's folder must not shadow a library
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
        start_new_session=True,  # Ctrl-C reaches only the parent, which ends its processes
    )

    def end() -> int:
        try:
            return popen.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            popen.kill()
            return popen.wait()

    return popen.pid, end


class _Process:
    """A process at the other end of a socket, and its error output."""

    def __init__(self, begin: Callable[[int, int], Begun]) -> None:
        self.ended = False
        with contextlib.ExitStack() as opened:
            self._socket, theirs = map(opened.enter_context, socket.socketpair())
            self._errors, their_errors = map(opened.enter_context, map(os.fdopen, os.pipe(), ("rb", "wb")))
            self._group, self._end = begin(theirs.fileno(), their_errors.fileno())
            theirs.close()
            their_errors.close()
            opened.pop_all()
        self._complaints: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def terminate(self) -> None:
        """End it now, with all copies of the same original."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGTERM)

    def close(self) -> None:
        """End it; it works at nothing."""
        self._socket.close()
        if not self.ended:
            self.ended = True
            with contextlib.suppress(LostError):  # its original has died, and it with that
                self._end()

    def _lost(self) -> LostError:
        """Why it died; it is ended if it has not."""
        self.ended = True
        code = self._end()
        self._reader.join(timeout=1)  # processes that it started may still hold the pipe
        complaint = b"".join(self._complaints).decode(errors="replace")
        return LostError(_reason(code, complaint), complaint)

    def _read(self) -> None:
        with self._errors:
            self._complaints.extend(self._errors)


class _Worker(_Process):
    """A process that runs tasks."""

    def __init__(self, begin: Callable[[int, int], Begun]) -> None:
        super().__init__(begin)
        self.ready = True
        self._connection = Connection(self._socket.detach())

    def result(self, call: Any, listener: Callable[[Event], object]) -> Any:
        """The value that a call returns.

        Raises:
            TaskError: If it raises; a LostError if the process dies.
        """
        message = pickle.dumps(call)  # complete, so that a pickling error sends nothing
        self.ready = False  # until it has answered, also if the listener raises
        try:
            self._connection.send(sys.path)
            self._connection.send_bytes(message)
        except OSError:
            raise self._lost() from None
        while True:
            try:
                answer = self._connection.recv_bytes()
            except (EOFError, OSError):
                raise self._lost() from None
            kind, value = pickle.loads(answer)  # noqa: S301 - from our own process
            if kind != "event":
                self.ready = True
                return value_of((kind, value))
            listener(value)

    def close(self) -> None:
        """End it, whatever it does."""
        self._connection.close()
        super().close()


class _Original(_Process):
    """A process that makes copies of itself, which run tasks."""

    def __init__(self, imports: tuple[str, ...]) -> None:
        super().__init__(partial(_new, copies=True, imports=imports))
        self._asking = threading.Lock()

    def copied(self, connection: int, errors: int) -> Begun:
        """Begin a copy; the first has to wait until everything is imported."""
        copy = self._ask(0, connection, errors)
        if copy < 0:
            raise LostError(f"no process could be made: {os.strerror(-copy)}")
        return self._group, partial(self._ask, copy)

    def close(self) -> None:
        """End it, also before it has imported everything; its copies have ended."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._group, signal.SIGTERM)
        super().close()

    def _ask(self, copy: int, *handles: int) -> int:
        """End a copy, and return its exit code; for 0 make one, which gets `handles`, and return its number.

        Raises:
            LostError: If the original has died.
        """
        with self._asking:
            try:
                socket.send_fds(self._socket, [copy.to_bytes(8, "big")], handles)
                answer = self._socket.recv(8)
            except OSError:  # it has ended, or another thread noticed that and closed the socket
                answer = b""
            if not answer:
                raise self._lost()
            return int.from_bytes(answer, "big", signed=True)


def report(**event: Any) -> None:
    """Send an event to the parent, from within a task; elsewhere it does nothing."""
    _send_parent("event", event)


def is_local_process() -> bool:
    """Whether this process was started by `Processes`, so that `report` reaches its parent."""
    return _parent is not None


def work(*, copies: bool, imports: tuple[str, ...]) -> None:
    """Run tasks, or with `copies` make copies of this process that do: the main function of a process of `Processes`.

    Standard input is a socket to the parent; this process ends when the parent closes it or ends.
    """
    sys.path.extend(place for place in json.loads(sys.argv[1]) if place not in sys.path)
    parent = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # tasks read nothing
    import torch

    torch.set_num_threads(1)
    for name in imports:
        importlib.import_module(name)
    if not copies:
        _run_tasks(Connection(parent.detach()))
        return
    _run_tasks(_copied(parent))
    os._exit(0)  # what is to be done at the end is the original's


def _copied(parent: socket.socket) -> Connection:
    """Make and end copies as the parent asks for; in each copy, return its connection."""
    original = os.getpid()
    while True:
        asked, handles, _, _ = socket.recv_fds(parent, 8, 2)
        if not asked:
            os._exit(0)
        if copy := int.from_bytes(asked, "big"):
            os.kill(copy, signal.SIGKILL)  # one that has ended keeps its exit code
            answer = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        else:
            try:
                answer = os.fork() if len(handles) == 2 else -errno.EMFILE
            except OSError as error:
                answer = -(error.errno or errno.EAGAIN)
            if not answer:
                _end_with(original)
                parent.close()
                connection, errors = handles
                os.dup2(errors, 1)
                os.dup2(errors, 2)
                os.close(errors)
                os.set_inheritable(connection, False)
                return Connection(connection)
            for handle in handles:
                os.close(handle)
        parent.sendall(answer.to_bytes(8, "big", signed=True))


def _end_with(original: int) -> None:
    """End this copy when its original ends, however that happens; now, if it has ended already."""
    signal_of_parents_death = 1  # PR_SET_PDEATHSIG, of Linux
    ctypes.CDLL(None).prctl(signal_of_parents_death, signal.SIGKILL)
    if os.getppid() != original:
        os._exit(1)


def _run_tasks(parent: Connection) -> None:
    """Run one task after the other until the parent closes the connection."""
    global _parent
    _parent = parent
    while True:
        try:
            places, call = parent.recv(), parent.recv_bytes()
        except (EOFError, OSError):
            return
        sys.path.extend(place for place in places if place not in sys.path)
        try:
            function, arguments, options = pickle.loads(call)  # noqa: S301 - our parent's
            outcome = outcome_of(function, *arguments, **options)
            sys.stdout.flush()
            sys.stderr.flush()
            _send_parent(*outcome)
        except BaseException:  # noqa: BLE001 - a function that is not importable, a result that cannot be pickled
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


def check_engine(engine: Executor, sent: Any, folder: "Path | RemoteRuns | None" = None) -> None:
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
            f"{' '.join(reason.split())[:REASON]}. Define methods, models and audits of your own in a file that can be "
            "imported there, not in the script itself or a notebook, and install the same Clearance on every machine."
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


def _surroundings(sent: Any, folder: "Path | RemoteRuns | None") -> dict[str, str]:
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


def on_processes(engine: Executor | int, *, fresh: bool = True) -> AbstractContextManager[Executor]:
    """As many local processes, which end with the block, or the caller's engine as it is.

    >>> with on_processes(1) as engine:
    ...     engine.submit(len, "four").result()
    4
    """
    if not isinstance(engine, int):
        return contextlib.nullcontext(engine)
    check_count("engine", engine)
    return Processes(engine, fresh=fresh)


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
