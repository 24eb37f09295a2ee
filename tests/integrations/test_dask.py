"""Dask's own executor as the engine of a comparison."""

import pytest

from clearance.experiments.build import build_data
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe

distributed = pytest.importorskip("distributed", reason="needs pip install -e '.[engines]'")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Dask's advice


@pytest.fixture(autouse=True)
def no_network():
    """Takes the place of the refusal in other tests: this cluster is on this machine."""


def test_runs_on_dask_give_the_same_as_here(tmp_path):
    methods = {"plain": Method(hidden=(8,)), "noisy": Method(hidden=(8,), head_noise=0.1)}
    recipe = Recipe(epochs=1, seeds=1, audits=("accuracy",), methods=methods)
    data, plans = build_data(recipe), plans_of(recipe)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = run_grid(plans, data, tmp_path / "dask-runs", client.get_executor())
    here = run_grid(plans, data, tmp_path / "here", None)
    rows = [
        [r.to_json() for one in each for r in one.records if r.measurement.name not in ("seconds", "memory")]
        for each in (found, here)
    ]
    assert rows[0] == rows[1]
    for plan in plans:
        name = f"{plan.folder}/model.safetensors"
        assert (tmp_path / "dask-runs" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
