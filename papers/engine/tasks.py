"""Tasks in parallel, each in a process with one thread; results are stored in files, so that a study resumes."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance.research import (
    Engine,
    Listener,
    check_count,
    decode,
    encode,
    on_processes,
    one_thread,
    silent,
    write_bytes,
)

Tree = dict[str, Any]
Work = Callable[[Tree], Tree]


@dataclass(frozen=True)
class Task:
    """The name of a task, for listeners."""

    folder: str
    title: str


def each(
    work: Work,
    tasks: Mapping[str, Tree],
    folder: Path,
    engine: Engine,
    listener: Listener = silent,
) -> dict[str, Tree]:
    """What `work` makes of every task, by name; what lies finished in `folder` is read back.

    Args:
        work: A function of the task's settings, importable by name (or a ``partial`` of one) unless
            `engine` is 1. It is given plain values and returns such.
        tasks: Settings of each task by its name, which becomes a file's.
        folder: One JSON file for each task. A task whose settings have changed is done again.
        engine: Processes at a time, each with one thread, or an Executor; 1 runs in this process, also with one
            thread.
        listener: Told of every task that is there already, or ends: ``kept`` and ``done`` of
            :func:`clearance.research.run_grid`.

    Returns:
        In the order of `tasks`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     each(lambda task: {"twice": 2 * task["x"]}, {"a": {"x": 4}}, Path(name), engine=1)
    {'a': {'twice': 8}}
    """
    if isinstance(engine, int):
        check_count("engine", engine)
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: kept for name, task in tasks.items() if (kept := _kept(folder, name, task)) is not None}
    listed = {name: Task(f"{folder.name}/{name}", f"{folder.name} {name}") for name in tasks}
    for name in found:
        listener(listed[name], {"event": "kept"})
    for name, tree in _made(work, {n: task for n, task in tasks.items() if n not in found}, engine):
        text = json.dumps({"task": tasks[name], "found": encode(tree)}, allow_nan=False)
        write_bytes(folder / f"{name}.json", text.encode())
        found[name] = _kept(folder, name, tasks[name]) or tree
        listener(listed[name], {"event": "done", "status": "finished"})
    return {name: found[name] for name in tasks}


def _kept(folder: Path, name: str, task: Tree) -> Tree | None:
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text("utf-8"))
    # as JSON gives it back, where tuples are lists
    return decode(kept["found"]) if kept["task"] == json.loads(json.dumps(task)) else None


def _made(work: Work, tasks: Mapping[str, Tree], engine: Engine) -> Iterator[tuple[str, Tree]]:
    """Each task as it ends."""
    if engine in (None, 1) or len(tasks) < 2:
        with one_thread():
            yield from ((name, work(task)) for name, task in tasks.items())
        return
    most = min(engine, len(tasks)) if isinstance(engine, int) else engine
    with on_processes(most, fresh=False) as pool:
        names: dict[Future[Tree], str] = {
            pool.submit(_with_one_thread, work, task): name for name, task in tasks.items()
        }
        yield from ((names[done], done.result()) for done in as_completed(names))


def _with_one_thread(work: Work, task: Tree) -> Tree:
    with one_thread():
        return work(task)
