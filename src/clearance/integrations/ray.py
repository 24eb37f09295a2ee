"""Ray: runs and audits on a machine's cores, on a cluster, or in the cloud."""

import logging
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any

from clearance._checks import check_count, check_non_negative
from clearance.experiments.build import RunData
from clearance.experiments.engines import LostError, TaskError, outcome_of, value_of

try:
    import ray
except ImportError as error:
    raise ImportError("this needs Ray: pip install 'ray[client]'.") from error


class RayEngine(Executor):
    """Tasks on Ray, as an Executor: one Ray task for each, in worker processes that Ray keeps and reuses.

    For example::

        with RayEngine("ray://head:10001", gpus_per_run=1) as engine:
            card = clearance.compare(["plain", "foca"], train, test, directory="/shared/runs", engine=engine)

    A task whose worker, node or result is lost ends in a LostError. Leaving ``with`` by an exception ends all tasks
    that this engine has started.

    Args:
        address: ``"ray://HOST:PORT"`` of Ray's client server, or what ``ray.init`` takes. None means the cluster
            that this process is connected to; else that of ``RAY_ADDRESS``, or the one on this machine; else a new one
            with this machine's cores.
        cpus_per_run: Cores that Ray keeps for a task, at least 1. A run uses one thread.
        gpus_per_run: GPUs that Ray keeps for a task, which sees no others; 0.5 lets two tasks share one.

    Raises:
        ValueError: If no Ray answers at `address`, it has another version, or no node has as many cores or GPUs.

    Every node needs the same Clearance, Python and Ray, and the folder for runs under the same path.
    """

    def __init__(
        self, address: str | None = None, *, cpus_per_run: int = 1, gpus_per_run: float = 0.0
    ) -> None:
        check_count("cpus_per_run", cpus_per_run)
        check_non_negative("gpus_per_run", gpus_per_run)
        self._tasks: set[_RayTask] = set()
        self._sent: dict[int, tuple[RunData, Any]] = {}
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(address)
        try:
            _check_resources(cpus_per_run, gpus_per_run)
        except ValueError:
            self.shutdown()
            raise
        self._call = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)(outcome_of)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Run `function` in a worker; the future's exception is a TaskError."""
        task = _RayTask(self._call.remote(function, *map(self._once, arguments), **options))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks, and disconnect if this engine has connected; without waiting it stays connected."""
        for task in list(self._tasks):
            if cancel_futures:
                task.cancel()
            elif wait:
                task.exception()
        if self._connected_here and wait:
            ray.shutdown()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _once(self, argument: Any) -> Any:
        """Images are sent once, not with every task: Ray gives the task what lies in its store."""
        if not isinstance(argument, RunData):
            return argument
        if id(argument) not in self._sent:
            self._sent[id(argument)] = (argument, ray.put(argument))
        return self._sent[id(argument)][1]


class _RayTask(Future[Any]):
    """A future over a Ray task, which it can cancel at work."""

    def __init__(self, reference: Any) -> None:
        super().__init__()
        self._reference = reference
        reference.future().add_done_callback(self._end)

    def cancel(self) -> bool:
        """End the task; its worker is killed if it has begun."""
        if not super().cancel():
            return False
        ray.cancel(self._reference, force=True)
        return True

    def _end(self, inner: "Future[Any]") -> None:
        self._reference = None  # the store may drop the result
        if not self.set_running_or_notify_cancel():
            return
        error = inner.exception()
        if error is None:
            try:
                self.set_result(value_of(inner.result()))
            except TaskError as failed:
                self.set_exception(failed)
        elif isinstance(error, ray.exceptions.RayTaskError):  # it could not be called at all
            self.set_exception(TaskError(_first_line(error.cause), str(error)))
        else:
            self.set_exception(LostError(f"{type(error).__name__}: {_first_line(error)}", str(error)))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _connect(address: str | None) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error says it
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        where = "on this machine" if address is None else f"at {address}"
        raise ValueError(
            f"`address` must be that of a Ray of version {ray.__version__} that answers; {where}: "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error


def _check_resources(cpus: int, gpus: float) -> None:
    """Raise ValueError unless some node has what a run needs; a cluster that would grow has it only later."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in ("CPU", "GPU")}
        raise ValueError(
            f"a run needs {cpus} cores and {gpus:g} GPUs on one node of Ray; got nodes with at most {most['CPU']:g} "
            f"cores and {most['GPU']:g} GPUs. Ask for fewer, or start such a node first."
        )
