"""The published sets themselves, where CLEARANCE_DATA names a folder that has them.

Expected there: mnist/, fashion-mnist/, cifar10/, cifar100/, each a root that the reader takes.
"""

from functools import partial
from typing import Any

import pytest
import torch

from clearance.data.cifar import read_cifar
from clearance.data.idx import read_idx

SETS: dict[str, Any] = {
    "mnist": (read_idx, 10000, (1, 28, 28), 0.1325, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "fashion-mnist": (
        lambda root, split: read_idx(root, split, "fashion-mnist"),
        10000,
        (1, 28, 28),
        0.2868,
        [1000] * 10,
    ),
    "cifar10": (read_cifar, 10000, (3, 32, 32), 0.4766, [1000] * 10),
    "cifar100": (partial(read_cifar, name="cifar100"), 10000, (3, 32, 32), 0.4794, [100] * 100),
}


@pytest.mark.parametrize("name", SETS)
def test_published_test_sets(data_root, name):
    read, count, shape, mean, sizes = SETS[name]
    try:
        data = read(data_root / name, "test")
    except FileNotFoundError as missing:
        pytest.skip(f"no real data: {missing}")
    assert (len(data), data.shape) == (count, shape)
    assert float(data.images.mean()) == pytest.approx(mean, abs=1e-3)
    assert torch.bincount(data.labels).tolist() == sizes
