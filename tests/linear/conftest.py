"""Pairs of MNIST digits as the article has them, and the numbers to meet."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from clearance.data.idx import read_idx

PER_CLASS = 3000


@pytest.fixture(scope="session")
def truth():
    """Rows of a file of l2/ for one pair, as dictionaries of numbers; skipped, loudly, where there is none."""
    folder = os.environ.get("CLEARANCE_TRUTH")
    if not folder:
        pytest.skip("no numbers to meet: CLEARANCE_TRUTH is not set")

    def rows(file, pair):
        with Path(folder, "l2", f"{file}.csv").open(encoding="utf-8") as text:
            read = [
                {key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(text)
            ]
        return [row for row in read if (row["i"], row["j"]) == pair]

    return rows


@pytest.fixture(scope="session")
def mnist_pair():
    """The first 3000 training images of each digit and all test images of both, float64 (n, 784), with -1 and +1."""
    folder = os.environ.get("CLEARANCE_DATA")
    if not folder:
        pytest.skip("no real data: CLEARANCE_DATA is not set")
    sets = {split: read_idx(Path(folder, "mnist"), split) for split in ("train", "test")}

    def pair(split, digits):
        data = sets[split]
        most = PER_CLASS if split == "train" else None
        parts = [data.images[data.labels == digit][:most].flatten(1).double().numpy() for digit in digits]
        return np.concatenate(parts), np.repeat([-1.0, 1.0], [len(part) for part in parts])

    return pair
