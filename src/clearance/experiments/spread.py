"""The parts of an audit on the workers of an engine; a part whose worker dies is done again."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from typing import Any

import torch

from clearance._processes import from_all, process_count, process_rank
from clearance.audits._audit import Workers
from clearance.experiments.engines import (
    ONE_TASK,
    SUBMISSIONS,
    LostError,
    check_engine,
    on_processes,
    one_thread,
    outcome_of,
    value_of,
)


@contextmanager
def spread_over(engine: Executor | int | None) -> "Iterator[Workers | None]":
    """What shares out the parts of audits while the block runs; None leaves them here.

    An engine is an Executor or a number of local processes; under torchrun None means its processes. With workers,
    everything here has one thread, too.
    """
    if engine is None:
        yield shared_by_rank if process_count() > 1 else None
        return
    with on_processes(engine, fresh=False) as executor, one_thread():
        yield Spread(executor)


class Spread:
    """Calls a function for each part on an engine; results come back in order.

    Each part is computed with one thread, so that numbers depend neither on the machine nor on how many there are.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as engine:
    ...     Spread(engine)(pow, [(2, 3), (3, 2)])
    [8, 9]
    """

    def __init__(self, engine: Executor) -> None:
        self._engine, self._checked = engine, False

    def __call__(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What the function returns for each call.

        Raises:
            ValueError: If the engine's workers cannot do the calls.
            TaskError: If one of them raises, or its worker was lost for the last time.
        """
        if not self._checked:
            check_engine(self._engine, (function, *calls[0]))
            self._checked = True
        results: list[Any] = [None] * len(calls)
        tasks = {self._submit(function, call): (place, 1) for place, call in enumerate(calls)}
        try:
            while tasks:
                for task in wait(tasks, return_when="FIRST_COMPLETED").done:
                    place, number = tasks.pop(task)
                    if isinstance(task.exception(), LostError) and number < SUBMISSIONS:
                        tasks[self._submit(function, calls[place])] = (place, number + 1)
                        continue
                    results[place] = task.result()
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        return results

    def _submit(self, function: Callable[..., Any], call: tuple[Any, ...]) -> "Future[Any]":
        return self._engine.submit(compute, function, *call)


def shared_by_rank(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What the function returns for each call, shared out between processes that train together; all get all results.

    Each must make the same calls in the same order.

    Raises:
        TaskError: In every process, if one of the calls raises.
    """
    rank, count = process_rank(), process_count()
    own = [outcome_of(compute, function, *call) for call in calls[rank::count]]
    each = from_all(own)
    return [value_of(each[place % count][place // count]) for place in range(len(calls))]


def compute(function: Callable[..., Any], /, *arguments: Any) -> Any:
    """Call a function with one thread and without gradients: what a worker does.

    >>> compute(pow, 2, 3)
    8
    """
    with ONE_TASK, one_thread(), torch.no_grad():
        return function(*arguments)
