"""Runs that are finished: what is read back, and that nothing more is written."""

import os

import pytest
import torch

from clearance.runs import RunDirectory, read_fingerprint, read_result
from runs.begun import SEED, begin, metrics_of


def test_finished_and_opened_again(tmp_path):
    begin(tmp_path)
    weight = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    weights = {"weight": weight.t(), "tied": weight.t(), "count": torch.tensor(3), "half": weight.bfloat16()}
    with RunDirectory.open(tmp_path, SEED) as run:
        assert not run.finished
        run.finish(weights, {"error": 0.1, "loss": float("inf"), "shape": (2, 3)})
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.finished
        assert run.latest() is None
        found, result = run.result()
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert found["half"].dtype == torch.bfloat16
    assert result == {"error": 0.1, "loss": float("inf"), "shape": [2, 3]}
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics != b""
    assert read_result(tmp_path)[1] == result
    assert read_fingerprint(tmp_path) == SEED


def test_checkpoints_that_outlived_the_result_are_removed(tmp_path):
    begin(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with RunDirectory.open(tmp_path, SEED) as run:
        assert run.latest() is None
        assert len(metrics_of(run)) == 3
    assert not (tmp_path / "checkpoints").exists()


def test_weights_that_cannot_be_stored_do_not_finish_the_run(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        with pytest.raises(ValueError, match=r"`weights\['w'\]` must be a dense tensor"):
            run.finish({"w": torch.eye(2).to_sparse()}, {})
        with pytest.raises(TypeError, match="Tensor is not JSON serializable"):
            run.finish({"w": torch.eye(2)}, {"w": torch.eye(2)})
        assert not run.finished
        with pytest.raises(ValueError, match="must be the directory of a finished run"):
            run.result()


@pytest.mark.parametrize(
    "write", [lambda run: run.log({}), lambda run: run.save(9, {}), lambda run: run.finish({}, {})]
)
def test_nothing_is_written_to_a_finished_or_closed_run(tmp_path, write):
    with RunDirectory.open(tmp_path, SEED) as run:
        pass
    with pytest.raises(RuntimeError, match=r"closed\. Open it again"):
        write(run)
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({}, {})
        with pytest.raises(RuntimeError, match="until it is finished"):
            write(run)


def test_a_damaged_result_is_told(tmp_path):
    with RunDirectory.open(tmp_path, SEED) as run:
        run.finish({"weight": torch.ones(2)}, {})
    os.truncate(tmp_path / "model.safetensors", 12)
    with pytest.raises(
        ValueError, match=r"must hold a readable model.safetensors and result.json; got .*SHA-256"
    ):
        read_result(tmp_path)
