"""What an engine costs: many short runs on reused Ray workers, a local process's start, and a driver's memory.

    python benchmarks/engines.py [--tasks 1000] [--slots 8] [--plans 10000] [--small]

A task sleeps for a second, so that more slots than cores can be tried. Targets: the wall time of all at most 5 % over
tasks / slots seconds on Ray; a driver below 500 MB at 10,000 plans of `clearance compare` on digits, whose findings are
those of one run with its four audits.
"""

import argparse
import logging
import pickle
import resource
import tempfile
import time
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clearance.experiments.build import build_data
from clearance.experiments.compare import Comparison
from clearance.experiments.engines import Processes
from clearance.experiments.grid import run_grid, run_task
from clearance.experiments.peak_memory import PeakMemory
from clearance.experiments.recipe import tuned_recipe
from clearance.experiments.run import RunFindings, RunPlan
from clearance.records import RunNote
from clearance.vocabulary import Outcome


def on_ray(tasks: int, slots: int) -> None:
    import ray

    from clearance.integrations.ray import RayEngine

    ray.init(
        num_cpus=slots, object_store_memory=100 * 2**20, include_dashboard=False, logging_level=logging.ERROR
    )
    with RayEngine() as engine:
        for task in [engine.submit(time.sleep, 3.0) for _ in range(slots)]:  # all workers have started
            task.result()
        began = time.perf_counter()
        waiting = [engine.submit(time.sleep, 1.0) for _ in range(tasks)]
        waiting[0].result()
        first = time.perf_counter() - began
        for task in waiting:
            task.result()
        seconds = time.perf_counter() - began
    ray.shutdown()
    ideal = -(-tasks // slots)
    print(f"Ray: {tasks} tasks of 1 s on {slots} slots in {seconds:.1f} s: {100 * (seconds / ideal - 1):+.1f} % "
          f"over {ideal} s (target at most +5 %); the first ended {first - 1:.3f} s late")  # fmt: skip


def on_local_processes(tasks: int) -> None:
    with Processes(1) as engine:
        began = time.perf_counter()
        engine.submit(abs, 1).result()
        first = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(tasks):
            engine.submit(abs, 1).result()
        each = 1e3 * (time.perf_counter() - began) / tasks
        print(f"local processes: the first after {first:.2f} s, each further one {each:.1f} ms")


class Arrived(Future[Any]):
    """A task that has ended, whose findings arrive when they are asked for."""

    def __init__(self, found: RunFindings, plan: RunPlan) -> None:
        super().__init__()
        self.found, self.plan = found, plan
        self.set_result(None)

    def result(self, timeout: float | None = None) -> Any:
        """The same findings under the plan's method and seed, as another machine would send them."""
        del timeout
        mine: Any = {"method": self.plan.method, "seed": self.plan.seed}
        found = replace(
            self.found,
            note=RunNote(**mine, outcome=Outcome.FINISHED, status="finished"),
            records=tuple(replace(one, **mine) for one in self.found.records),
            exhibits=tuple(replace(one, **mine) for one in self.found.exhibits),
        )
        return pickle.loads(pickle.dumps(found))


class Canned(Executor):
    """Has every run's findings at once."""

    def __init__(self, found: RunFindings) -> None:
        self.found = found

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> "Future[Any]":
        """A task that has ended."""
        if function is run_task:
            return Arrived(self.found, arguments[0])
        task: Future[Any] = Future()
        task.set_result(function(*arguments, **options))
        return task


def driver(plans: int) -> None:
    torch.set_num_threads(1)
    recipe = tuned_recipe("digits")
    recipe = replace(recipe, seeds=plans // len(recipe.methods))
    (found,) = run_grid([RunPlan(recipe, "plain", 0)], build_data(recipe), None, 1)  # in a process of its own
    before, began = resident(), time.perf_counter()
    memory = PeakMemory()

    def say(what: str) -> None:
        seconds, peak = time.perf_counter() - began, before + memory.added()
        print(
            f"driver: {what} after {seconds:.0f} s, {before:.0f} MB before, {peak:.0f} MB at most (target 500)"
        )

    with tempfile.TemporaryDirectory() as folder:
        card = Comparison(recipe).run(Canned(found), directory=Path(folder, "runs"))
        say(f"{len(card.report.runs)} plans with {len(card.records)} measurements gathered")
        card.save_folder(Path(folder))
        say("page, report.json and exhibits written")


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--small", action="store_true", help="only check that it runs")
    parser.add_argument("--only", choices=("ray", "local", "driver"))
    given = parser.parse_args()
    if given.only in (None, "local"):
        on_local_processes(3 if given.small else 50)
    if given.only in (None, "ray"):
        on_ray(4 if given.small else given.tasks, 2 if given.small else given.slots)
    if given.only in (None, "driver"):
        driver(20 if given.small else given.plans)


if __name__ == "__main__":
    main()
