"""Runs in an object storage: a real S3 server on this machine, and one that refuses for a while."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from clearance.data.synthetic import GaussianClasses
from clearance.experiments.build import build_data
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.runs.remote import RemoteRuns

pytest.importorskip("s3fs", reason="needs pip install -e '.[cloud]'")
moto_server = pytest.importorskip("moto.server", reason="needs pip install -e '.[engines]'")
import boto3  # noqa: E402 - needs the package
import fsspec  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
LEASE = 2.0


@pytest.fixture(autouse=True)
def no_network():
    """Takes the place of the refusal in other tests: this server is on this machine."""


@pytest.fixture(scope="module")
def server():
    """moto's S3, with a bucket; credentials and address are in the environment."""
    made = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield
    made.stop()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    images = GaussianClasses(class_count=3, separation=5.0, noise=0.05).images(25, seed=0)
    path = tmp_path_factory.mktemp("data") / "world.npz"
    np.savez(path, images=images.images.numpy(), labels=images.labels.numpy())
    methods = {"plain": Method(lr=0.002, clip_norm=1.0)}
    return Recipe(
        dataset=f"npz:{path}", epochs=240, batch_size=12, seeds=1, audits=("accuracy",), methods=methods
    )


@pytest.fixture(scope="module")
def alone(recipe, tmp_path_factory):
    """The same run in a folder."""
    (plan,) = plans_of(recipe)
    folder = tmp_path_factory.mktemp("alone")
    run_grid([plan], build_data(recipe), folder, None)
    return folder / plan.folder


WORKER = """
import sys, logging
from pathlib import Path
from clearance.experiments.build import build_data
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.recipe import read_recipe
from clearance.runs.remote import RemoteRuns
recipe = read_recipe(Path(sys.argv[1]))
(plan,) = plans_of(recipe)
(found,) = run_grid([plan], build_data(recipe), RemoteRuns(sys.argv[2], lease_seconds=float(sys.argv[3])), None)
print(found.note.status)
"""


class Worker:
    """A process, as on another machine, that does the run at an address."""

    def __init__(self, recipe, address, folder):
        text = (
            f"dataset: {recipe.dataset}\nepochs: {recipe.epochs}\nbatch_size: 12\nseeds: 1\naudits: [accuracy]\n"
            "methods: {plain: {base: none, lr: 0.002, clip_norm: 1.0}}\n"
        )
        (folder / "mine.yaml").write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder / "mine.yaml"), address, str(LEASE)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err
        return out.strip()


def objects(address):
    """All objects below an address, and what is in them."""
    files, root = fsspec.url_to_fs(address)
    files.invalidate_cache()
    return {path.removeprefix(root): files.cat_file(path) for path in files.find(root)}


def wait_for_state(address, worker):
    files, root = fsspec.url_to_fs(address)
    while not any(path.endswith("/state") for path in files.find(root, refresh=True)):
        assert worker.process.poll() is None, worker.process.communicate()
        time.sleep(0.1)


def published(address, plan):
    found = objects(f"{address}/{plan.folder}")
    manifest = json.loads(found["/manifest.json"])
    return {name: found[f"/attempts/{manifest['attempt']}/{name}"] for name in manifest["files"]}


def check_same(files, alone):
    for name in ("model.safetensors", "metrics.jsonl"):
        assert files[name] == (alone / name).read_bytes()


@pytest.mark.usefixtures("server")
def test_a_run_at_an_address_is_that_of_a_folder_and_is_kept(recipe, alone):
    address, (plan,) = "s3://bucket/whole", plans_of(recipe)
    events: list[str] = []
    runs = RemoteRuns(address, lease_seconds=LEASE)
    for _ in range(2):
        (found,) = run_grid(
            [plan], build_data(recipe), runs, 1, lambda _, event: events.append(event["event"])
        )
        assert found.note is not None
        assert found.note.status == "finished at step 1200"
    assert events[-1] == "kept"
    assert events.count("start") == 1
    check_same(published(address, plan), alone)


@pytest.mark.usefixtures("server")
def test_another_attempt_goes_on_where_a_killed_one_stood(recipe, alone, tmp_path):
    address, (plan,) = "s3://bucket/killed", plans_of(recipe)
    first = Worker(recipe, address, tmp_path)
    wait_for_state(address, first)
    first.process.kill()
    first.process.communicate()
    second = Worker(recipe, address, tmp_path)
    assert second.end() == "finished at step 1200"
    files = published(address, plan)
    check_same(files, alone)
    assert json.loads(files["result.json"])["outcome"] == "finished"


@pytest.mark.usefixtures("server")
def test_an_attempt_that_stalls_and_wakes_after_its_successor_changes_nothing(recipe, alone, tmp_path):
    address, (plan,) = "s3://bucket/stalled", plans_of(recipe)
    first = Worker(recipe, address, tmp_path)
    wait_for_state(address, first)
    first.process.send_signal(signal.SIGSTOP)
    assert Worker(recipe, address, tmp_path).end() == "finished at step 1200"
    before = published(address, plan)
    manifest = objects(address)[f"/{plan.folder}/manifest.json"]
    first.process.send_signal(signal.SIGCONT)
    assert first.end() == "finished at step 1200"
    assert objects(address)[f"/{plan.folder}/manifest.json"] == manifest
    assert published(address, plan) == before
    check_same(before, alone)


@pytest.mark.usefixtures("server")
def test_the_command_writes_its_report_there(recipe, tmp_path):
    Worker(recipe, "s3://bucket/unused", tmp_path).process.kill()  # for its recipe file
    done = subprocess.run(
        [sys.executable, "-m", "clearance.cli", "compare", "--recipe", "mine.yaml", "--epochs", "1", "--out",
         "s3://bucket/report"], cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Report: s3://bucket/report/index.html" in done.stdout
    there = objects("s3://bucket/report")
    assert {"/index.html", "/report.json"} <= there.keys()
    assert sum(name.endswith("/manifest.json") and "attempts" not in name for name in there) == 1


@pytest.mark.usefixtures("server")
def test_a_search_keeps_its_runs_and_trials_in_the_storage(recipe, tmp_path):
    Worker(recipe, "s3://bucket/unused", tmp_path).process.kill()  # for its recipe file
    done = subprocess.run(
        [sys.executable, "-m", "clearance.cli", "search", "--recipe", "mine.yaml", "--epochs", "1", "--seeds", "1",
         "--choose-by", "own_error", "--out", "s3://bucket/search"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Trials: s3://bucket/search/search.json" in done.stdout
    there = objects("s3://bucket/search")
    trials = json.loads(there["/search.json"])
    assert len(trials) >= 5
    assert sum(name.endswith("/manifest.json") and "attempts" not in name for name in there) == len(trials)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("address", "environment"),
    [
        ("s3://nowhere/prefix", {}),
        ("s3://bucket/prefix", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
        ("moon://x", {}),
    ],
)
def test_a_storage_that_cannot_be_written_is_one_line_before_any_training(address, environment, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "clearance.cli", "compare", "--methods", "plain", "--seeds", "1", "--out", address],
        cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "`out` must be an address that can be read and written" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
