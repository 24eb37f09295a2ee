"""Runs on a real Ray cluster of several nodes: whatever dies is submitted again, resumes, and ends in the same bits."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearance.data.synthetic import GaussianClasses
from clearance.experiments.build import build_data
from clearance.experiments.engines import SUBMISSIONS
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.runs import read_result
from clearance.vocabulary import Outcome

pytest.importorskip("ray", reason="needs pip install -e '.[ray]'")
from ray.cluster_utils import Cluster

from clearance.integrations.ray import RayEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc says which process holds a run"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),  # Ray's own
]
NODE: dict[str, Any] = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
TELLING = ("model.safetensors", "metrics.jsonl")


@pytest.fixture(scope="module")
def cluster():
    """A head that runs nothing, and two nodes of one core."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
    for _ in range(2):
        made.add_node(num_cpus=1, **NODE)
    yield made
    made.shutdown()


@pytest.fixture
def engine(cluster):
    with RayEngine(cluster.address) as made:
        yield made


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Two methods, one seed: long enough to be killed between two checkpoints."""
    images = GaussianClasses(class_count=3, separation=5.0, noise=0.05).images(25, seed=0)
    path = tmp_path_factory.mktemp("data") / "world.npz"
    np.savez(path, images=images.images.numpy(), labels=images.labels.numpy())
    return Recipe(
        dataset=f"npz:{path}", epochs=240, batch_size=12, seeds=1, audits=("accuracy",),
        methods={"plain": Method(lr=0.002, clip_norm=1.0), "noisy": Method(lr=0.002, clip_norm=1.0, head_noise=0.01)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(recipe, tmp_path_factory):
    """The same runs on one machine, without interruption."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, run_grid(plans_of(recipe), build_data(recipe), folder, None)


def records(findings):
    """Everything that was measured but time and memory."""
    return [
        r.to_json()
        for found in findings
        for r in found.records
        if r.measurement.name not in ("seconds", "memory")
    ]


def check_same(plans, folder, found, alone):
    """The findings and the files of the runs are those of one machine, bit for bit."""
    where, expected = alone
    assert records(found) == [row for row in records(expected) if row["method"] in {p.method for p in plans}]
    for plan in plans:
        for name in TELLING:
            assert (folder / plan.folder / name).read_bytes() == (where / plan.folder / name).read_bytes()


def holder(folder: Path) -> int | None:
    """The process that works in a run's directory."""
    lock = folder / "lock"
    if not lock.exists():
        return None
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return next((int(p[4]) for p in held if p[5].rpartition(":")[2] == str(lock.stat().st_ino)), None)


class Saboteur:
    """A listener that strikes once, when a run has a checkpoint."""

    def __init__(self, folder, strike):
        self.folder, self.strike = folder, strike
        self.seen: list[tuple[str, str]] = []
        self.struck = False

    def __call__(self, plan, event):
        self.seen.append((plan.method, str(event.get("text", event["event"]))))
        place = self.folder / plan.folder
        if event["event"] == "step" and not self.struck and list(place.glob("checkpoints/0*")):
            process = holder(place)
            if process is not None and not (place / "result.json").exists():
                self.struck = True
                self.strike(process)

    def notes(self):
        return [text for _, text in self.seen if "submitted again" in text]


def test_a_worker_that_is_killed_is_replaced_and_its_run_resumes(engine, recipe, alone, tmp_path):
    listener = Saboteur(tmp_path, lambda process: os.kill(process, signal.SIGKILL))
    plans = plans_of(recipe)
    found = run_grid(plans, build_data(recipe), tmp_path, engine, listener)
    assert listener.struck
    assert len(listener.notes()) == 1
    assert "2 of at most 3" in listener.notes()[0]
    check_same(plans, tmp_path, found, alone)
    assert not list(tmp_path.glob(".grid-*"))

    listener.seen.clear()
    again = run_grid(plans, build_data(recipe), tmp_path, engine, listener)
    assert listener.seen == [("plain", "kept"), ("noisy", "kept")]  # nothing is trained twice
    assert records(again) == records(found)


def test_a_node_that_is_removed_costs_no_run(cluster, engine, recipe, alone, tmp_path):
    def remove(process):
        raylet = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        node = next(
            node
            for node in cluster.list_all_nodes()
            if raylet in [one.process.pid for each in node.all_processes.values() for one in each]
        )
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1, **NODE)

    listener = Saboteur(tmp_path, remove)
    plans = plans_of(recipe)
    found = run_grid(plans, build_data(recipe), tmp_path, engine, listener)
    assert listener.struck
    assert listener.notes()
    check_same(plans, tmp_path, found, alone)


@dataclasses.dataclass(frozen=True)
class Deadly:
    """A model of the caller's that ends its process; counts how often."""

    count: Path

    def __call__(self):
        with self.count.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_plan_that_fails_for_good_is_named_and_the_others_finish(engine, recipe, alone, tmp_path):
    plans = plans_of(recipe)
    deadly = dataclasses.replace(plans[1], model=Deadly(tmp_path / "count"))
    broken = dataclasses.replace(plans[1], recipe=dataclasses.replace(recipe, batch_size=13))
    (tmp_path / broken.folder).write_text("a file")
    found = run_grid([plans[0], deadly, broken], build_data(recipe), tmp_path, engine)
    check_same(plans[:1], tmp_path, found[:1], alone)
    notes = [one.note for one in found if one.note is not None]
    assert [note.outcome for note in notes] == [Outcome.FINISHED, Outcome.STOPPED, Outcome.STOPPED]
    assert (tmp_path / "count").read_text() == "x" * SUBMISSIONS
    assert "must be a directory" in notes[2].status


def test_a_driver_that_is_killed_is_started_again_and_goes_on(cluster, recipe, alone, tmp_path):
    text = (
        f"dataset: {recipe.dataset}\nepochs: 240\nbatch_size: 12\nseeds: 1\naudits: [accuracy]\nmethods:\n"
        "  plain: {base: none, lr: 0.002, clip_norm: 1.0}\n"
        "  noisy: {base: none, lr: 0.002, clip_norm: 1.0, head_noise: 0.01}\n"
    )
    (tmp_path / "mine.yaml").write_text(text)
    command = [sys.executable, "-m", "clearance.cli", "compare", "--recipe", "mine.yaml", "--engine", "ray"]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    runs = tmp_path / "clearance-report" / "runs"
    plans = plans_of(recipe)

    def begun():
        return any(list((runs / plan.folder).glob("checkpoints/0*")) for plan in plans)

    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as driver:
        while not begun():
            assert driver.poll() is None
            time.sleep(0.02)
        driver.kill()
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    where, _ = alone
    for plan in plans:
        for name in TELLING:
            assert (runs / plan.folder / name).read_bytes() == (where / plan.folder / name).read_bytes()
    stamps = {plan.folder: (runs / plan.folder / "result.json").stat().st_mtime_ns for plan in plans}
    third = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert third.stdout.count("already there") == 2
    assert stamps == {plan.folder: (runs / plan.folder / "result.json").stat().st_mtime_ns for plan in plans}
    assert read_result(runs / plans[0].folder)[1]["outcome"] == "finished"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--engine", "ray://127.0.0.1:1"], "must be that of a Ray of version"),
        (["--engine", "ray", "--gpus-per-run", "3"], "a run needs 1 cores and 3 GPUs on one node"),
        (["--engine", "moon"], "--engine takes local, ray or ray://HOST:PORT"),
        (["--engine", "ray", "--jobs", "2"], "--jobs is the number of local processes"),
        (["--gpus-per-run", "1"], "are kept by Ray"),
    ],
)
def test_what_cannot_work_is_one_line_before_any_training(cluster, options, complaint, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "clearance.cli", "compare", "--methods", "plain", "--seeds", "1", *options],
        cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": cluster.address}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.rglob("run.json"))
