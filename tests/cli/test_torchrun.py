"""``torchrun -m clearance train``: one run on two processes; one that is killed resumes to the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from clearance.data.synthetic import GaussianClasses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc says which processes there are"),
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
    ),
]
RECIPE = """
dataset: npz:{place}
epochs: 120
batch_size: 12
audits: [accuracy, minimal_perturbation]
audit_settings: {{minimal_perturbation: {{steps: 2, queries: 4}}}}
methods: {{foca: {{base: none, way: foca, lr: 0.002, clip_norm: 1.0, per_class: 1, head_steps: 4}}}}
"""


@pytest.fixture
def folder(tmp_path):
    images = GaussianClasses(class_count=3, separation=5.0, noise=0.05).images(25, seed=0)
    np.savez(tmp_path / "world.npz", images=images.images.numpy(), labels=images.labels.numpy())
    (tmp_path / "mine.yaml").write_text(RECIPE.format(place=tmp_path / "world.npz"))
    return tmp_path


def launched(folder, out):
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m",
         "clearance", "train", "--method", "foca", "--recipe", "mine.yaml", "--out", out],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def finished(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def children(process):
    """The processes that one has started."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(word) for word in listed.split()]


def test_a_killed_process_ends_the_run_and_the_same_command_ends_in_the_same_bits(folder):
    whole = finished(launched(folder, "whole"))
    assert whole.count("Run: whole/") == 1  # one of the two speaks
    (place,) = (folder / "whole").glob("foca*")

    killed = launched(folder, "killed")
    while not list((folder / "killed").glob("foca*/checkpoints/0*/state.json")):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.02)
    os.kill(children(killed)[-1], signal.SIGKILL)
    killed.communicate(timeout=120)
    assert killed.returncode != 0
    resumed = folder / "killed" / place.name
    assert not (resumed / "result.json").exists()
    finished(launched(folder, "killed"))
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (resumed / name).read_bytes() == (place / name).read_bytes()
