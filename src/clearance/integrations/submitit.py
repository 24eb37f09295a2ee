"""SLURM through submitit: runs as the tasks of job arrays."""

import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any

from clearance.experiments.engines import LostError, TaskError, last_line, outcome_of, value_of

try:
    import submitit
    from submitit.core.utils import UncompletedJobError
except ImportError as error:
    raise ImportError("this needs submitit: pip install submitit.") from error

SECONDS_BETWEEN_LOOKS = 1.0
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class SubmititEngine(Executor):
    """Tasks as jobs of submitit, as an Executor: what is submitted within a second becomes one job array.

    For example::

        jobs = submitit.AutoExecutor("/shared/jobs")
        jobs.update_parameters(slurm_partition="gpu", gpus_per_node=1, cpus_per_task=1, timeout_min=240)
        with SubmititEngine(jobs) as engine:
            card = clearance.compare(["plain", "foca"], train, test, directory="/shared/runs", engine=engine)

    A job that ends without a result (killed, out of time, on a node that failed) ends in a LostError. Leaving ``with``
    by an exception cancels all jobs.

    Args:
        jobs: submitit's executor with its parameters; its folder must be seen by every node.
    """

    def __init__(self, jobs: "submitit.Executor") -> None:
        self._jobs = jobs
        self._calls: queue.SimpleQueue[tuple[_JobTask, Call]] = queue.SimpleQueue()
        self._tasks: set[_JobTask] = set()
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Run `function` in a job; the future's exception is a TaskError."""
        if self._closed.is_set():
            raise RuntimeError("the engine has been shut down: it takes no more tasks")
        task = _JobTask()
        self._tasks.add(task)
        self._calls.put((task, (function, arguments, options)))
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and wait for the jobs."""
        self._closed.set()
        if cancel_futures:
            for task in list(self._tasks):
                task.cancel()
        if wait:
            self._watcher.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _watch(self) -> None:
        """Submit what is new as one array, and look which jobs have ended."""
        while True:
            if self._closed.wait(SECONDS_BETWEEN_LOOKS):
                if not self._tasks:
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS / 10)
            new = [self._calls.get() for _ in range(self._calls.qsize())]
            new = [(task, call) for task, call in new if not task.done()]
            if new:
                self._start(new)
            for task in list(self._tasks):
                if task.done() or task.look():
                    self._tasks.discard(task)

    def _start(self, new: "list[tuple[_JobTask, Call]]") -> None:
        try:
            with self._jobs.batch():
                jobs = [self._jobs.submit(outcome_of, call[0], *call[1], **call[2]) for _, call in new]
        except Exception as error:  # noqa: BLE001 - the futures hold it
            for task, _ in new:
                task.end(TaskError(f"{type(error).__name__}: {error}"))
            return
        for (task, _), job in zip(new, jobs, strict=True):
            task.job = job
            if task.cancelled():  # meanwhile
                job.cancel(check=False)


class _JobTask(Future[Any]):
    """A future over a job, once it is submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.job: submitit.Job[Any] | None = None

    def cancel(self) -> bool:
        """Cancel the job, also at work."""
        if not super().cancel():
            return False
        if self.job is not None:
            self.job.cancel(check=False)
        return True

    def look(self) -> bool:
        """Whether the job has ended; then the future has, too."""
        try:
            if self.job is None or not self.job.done():
                return False
            self.end(value_of(self.job.result()))
        except TaskError as error:
            self.end(error)
        except UncompletedJobError as error:
            first, *more = re.split(
                "(?m)^-{5,}$", str(error)
            )  # between the lines: the trace of a job that failed
            reason = last_line(more[0]) if more else first.strip().partition("\n")[0]
            self.end(LostError(reason or "the job ended without a result", str(error)))
        except Exception as error:  # noqa: BLE001 - the future holds it
            self.end(TaskError(f"{type(error).__name__}: {error}"))
        return True

    def end(self, value: Any) -> None:
        """Set the result, or the exception, unless the task was cancelled."""
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(value, TaskError):
            self.set_exception(value)
        else:
            self.set_result(value)
