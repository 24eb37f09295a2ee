"""Where runs execute: local processes, each with one task at a time and one thread.

Any ``concurrent.futures.Executor`` can replace them: an engine only needs ``submit``. A task whose process or machine
was lost ends in a :class:`LostError`; it may be submitted again.
"""

import contextlib
import ctypes
import importlib
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
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol


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
WORKER = "from clearance.experiments.engines import work; work(fork={fork})"
FORKS = sys.platform == "linux"  # elsewhere system libraries that torch uses do not survive a fork
# what tasks import late, here once for all copies; the first optimizer imports torch._dynamo
_LATE = ("torch._dynamo", "scipy.stats", "sklearn.datasets", "sklearn.metrics")
_channel: IO[bytes] | None = None  # to the parent, in a process that `Processes` started


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

    Args:
        jobs: Tasks at a time, at least 1; None means one per core that this process may use.
        fresh: Whether each task gets a new process, so that its memory can be measured; otherwise a process runs
            one task after the other. On Linux a new process is a copy (a fork) of one that has imported everything
            and has no threads, which saves the seconds that imports take.

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
        self._ended = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Task:
        """Run `function` in a process; the future's exception is a TaskError."""
        task = Task()
        self._threads.submit(self._do, task, (function, arguments, options))
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes once their tasks are done."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._idle:
            process.close()

    def terminate(self) -> None:
        """End the processes now; their tasks fail, and waiting tasks are not started."""
        with self._lock:
            self._ended = True
            for process in self._alive:
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
        try:
            process = self._process()
        except TaskError as error:
            task.set_exception(error)
            return
        try:
            task.set_result(process.result(call, task.send))
        except Exception as error:  # noqa: BLE001 - the future holds it
            task.set_exception(error)
        with self._lock:
            if process.works and (FORKS or not self._fresh):
                self._idle.append(process)
            else:
                self._alive.discard(process)
                process.close()

    def _process(self) -> "_Process":
        with self._lock:
            if self._ended:
                raise TaskError("interrupted")
            process = self._idle.pop() if self._idle else _Process(fork=self._fresh and FORKS)
            self._alive.add(process)
            return process


class _Process:
    """One process of :func:`work`; with `fork` each of its tasks runs in a copy of it."""

    def __init__(self, *, fork: bool) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - Python itself, and a constant
            [sys.executable, "-c", WORKER.format(fork=fork), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # PYTHONSAFEPATH: a file in the user's folder must not shadow a library
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # Ctrl-C reaches only the parent, which ends its processes
        )
        self._complaints: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.works = True
        self._send(sys.path)

    def result(self, call: Any, listener: Callable[[Event], object]) -> Any:
        """The value that a call returns.

        Raises:
            TaskError: If it raises; a LostError if the process dies.
        """
        assert self._popen.stdout is not None
        self._send(call)
        try:
            while True:
                kind, value = pickle.load(self._popen.stdout)  # noqa: S301 - from our own process
                if kind != "event":
                    return value_of((kind, value))
                listener(value)
        except (EOFError, pickle.UnpicklingError):
            self.works = False
            code = self._popen.wait()
            self._reader.join()
            complaint = b"".join(self._complaints).decode(errors="replace")
            raise LostError(_reason(code, complaint), complaint) from None

    def terminate(self) -> None:
        """End it, and the copy of it that runs a task."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self._popen.pid, signal.SIGTERM)

    def close(self) -> None:
        """Close its input; it ends after reading the rest."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead
            self._popen.stdin.close()
        self._popen.stdout.close()
        self._popen.wait()
        self._reader.join()

    def _send(self, thing: Any) -> None:
        assert self._popen.stdin is not None
        data = pickle.dumps(thing)  # complete, so that a pickling error sends nothing
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code and error output say why
            self._popen.stdin.write(data)
            self._popen.stdin.flush()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            self._complaints.append(line)
        self._popen.stderr.close()


def report(**event: Any) -> None:
    """Send an event to the parent, from within a task; elsewhere it does nothing."""
    _send_parent("event", event)


def is_local_process() -> bool:
    """Whether this process was started by `Processes`, so that `report` reaches its parent."""
    return _channel is not None


def end_with(parent: int) -> None:
    """End this process when its parent ends, however that happens (on Linux; elsewhere after the task).

    If the one with the id `parent`, which started this one, has ended already, this one ends now.
    """
    if sys.platform == "linux":
        signal_of_parents_death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(signal_of_parents_death, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def work(*, fork: bool) -> None:
    """Run one task after the other from standard input: the main function of a process of `Processes`.

    `fork` means that each task runs in a copy of this process; if the copy dies, this process dies in the same way.
    """
    global _channel
    end_with(int(sys.argv[1]))
    _channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what tasks print out of the channel
    tasks = sys.stdin.buffer
    sys.path.extend(place for place in pickle.load(tasks) if place not in sys.path)  # noqa: S301 - our parent's
    import torch

    torch.set_num_threads(1)
    for name in _LATE if fork else ():
        importlib.import_module(name)
    while True:
        try:
            function, arguments, options = pickle.load(tasks)  # noqa: S301 - our parent's
        except EOFError:
            return
        except Exception:  # noqa: BLE001 - a function that is not importable, say
            _send_parent("failed", traceback.format_exc())
            continue
        original = os.getpid()
        copy = os.fork() if fork else 0
        if copy:
            _die_as(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
            continue
        if fork:
            end_with(original)
        outcome = outcome_of(function, *arguments, **options)
        try:
            _send_parent(*outcome)
        except Exception:  # noqa: BLE001 - a result that cannot be pickled, say
            _send_parent("failed", traceback.format_exc())
        if fork:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def _die_as(code: int) -> None:
    """End this process with the exit code, or by the signal, of the one that it waited for; go on after success."""
    if code < 0:
        signal.raise_signal(-code)
    if code:
        os._exit(code)


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
    if _channel is not None:
        _channel.write(pickle.dumps((kind, value)))
        _channel.flush()


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
