"""submitit itself, with jobs on this machine in place of SLURM's."""

import signal
from typing import Any

import pytest

from clearance.data.synthetic import gaussian_images
from clearance.experiments.compare import compare
from clearance.experiments.engines import LostError, TaskError

submitit = pytest.importorskip("submitit", reason="needs pip install -e '.[slurm]'")
from clearance.integrations.submitit import SubmititEngine  # noqa: E402 - needs the package

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]  # submitit's own processes


def test_runs_as_jobs_give_the_same_as_here(tmp_path):
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    settings: dict[str, Any] = {"seeds": 1, "epochs": 2, "audits": ["accuracy"]}
    jobs = submitit.AutoExecutor(tmp_path / "jobs", cluster="local")
    with SubmititEngine(jobs) as engine:
        card = compare(
            ["plain", "dropout"], train, test, engine=engine, directory=tmp_path / "runs", **settings
        )
    here = compare(["plain", "dropout"], train, test, **settings)
    numbers = [
        [(r.method, m.name, m.value) for r in one.records if (m := r.measurement).audit == "accuracy"]
        for one in (card, here)
    ]
    assert numbers[0] == numbers[1]
    assert numbers[0]


class Unreadable:
    """Nothing that a job can load."""

    def __reduce__(self):
        return int, ("no number",)


def test_what_a_job_raises_and_a_job_that_is_lost(tmp_path):
    with SubmititEngine(submitit.AutoExecutor(tmp_path, cluster="local")) as engine:
        wrong, lost, unreadable, right = (
            engine.submit(int, "four"),
            engine.submit(signal.raise_signal, signal.SIGKILL),
            engine.submit(print, Unreadable()),
            engine.submit(int, "4"),
        )
        assert right.result() == 4
        with pytest.raises(TaskError, match=r"^ValueError: invalid literal for int"):
            wrong.result()
        with pytest.raises(LostError):
            lost.result()
        with pytest.raises(LostError, match=r"^ValueError: invalid literal for int.*'no number'$"):
            unreadable.result()


def test_an_engine_that_is_shut_down_finishes_its_jobs_and_takes_no_more(tmp_path):
    engine = SubmititEngine(submitit.AutoExecutor(tmp_path, cluster="local"))
    task = engine.submit(int, "4")
    engine.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="takes no more tasks"):
        engine.submit(int, "5")
    assert task.result(timeout=60) == 4
