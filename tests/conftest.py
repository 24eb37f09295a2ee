"""What every test shares: one thread, no network, and where the real data is.

Names of tests carry the numbers of the statements that they hold: l1 to l3 of Lemma 3.1 and q01 to q09 of Proposition
3.2 of Sato et al. (2019), i01 to i19 of the identities of linear theory, p01 to p22 of the properties of a loss; 1_3,
2_5, 3_5, 4_3 and 4_6 are sections on FOCA: penalties, discriminants, pitfalls, closed forms, metrics.
"""

import importlib.util
import os
import socket
from pathlib import Path

import pytest

# before NumPy is imported: two test processes with two threads each wait for one another
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)

if importlib.util.find_spec("torchvision") is not None:
    # timm and Lightning import it; pip gives one beside a CPU build of torch whose operators are missing
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        DECLARED = torch.library.Library("torchvision", "DEF")
        DECLARED.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        DECLARED.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Nothing that Clearance does may open a connection."""

    def refuse(self, address):
        raise AssertionError(f"a test tried to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch, tmp_path_factory):
    """Decoded pictures and features are kept where the tests' files are."""
    monkeypatch.setenv("CLEARANCE_CACHE", str(tmp_path_factory.getbasetemp() / "clearance-cache"))


@pytest.fixture
def memory_for_images(monkeypatch):
    """A function that lets this many bytes of images stay in memory; larger sets stay on disk."""
    return lambda count: monkeypatch.setattr("clearance.data.stored.IN_MEMORY", count)


@pytest.fixture(scope="session")
def data_root():
    """The folder of real datasets; tests that need it are skipped, loudly, where there is none."""
    root = os.environ.get("CLEARANCE_DATA")
    if not root:
        pytest.skip("no real data: CLEARANCE_DATA is not set")
    return Path(root)
