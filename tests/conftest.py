"""What every test shares: one thread, no network, and where the real data is."""

import os
import socket
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


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


@pytest.fixture(scope="session")
def data_root():
    """The folder of real datasets; tests that need it are skipped, loudly, where there is none."""
    root = os.environ.get("CLEARANCE_DATA")
    if not root:
        pytest.skip("no real data: CLEARANCE_DATA is not set")
    return Path(root)
