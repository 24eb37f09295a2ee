"""What training on two processes (gloo, this machine) adds to a step, for four losses.

    python benchmarks/two_processes.py [--rounds 60] [--small]

Each process takes half of a batch of 128 images of 28 x 28. The row of a loss compares a step of two processes with a
step of one on such a half, both while two processes are at work, so that they share memory and caches in the same way.
What is added is communication: seconds, and bytes that each process hands over. Target: it adds, over the same loss in
one process, at most 5 points more than it does to plain training.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from clearance import Classifier
from clearance.data import gaussian_images
from clearance.heads import MLP, GaussianMixture
from clearance.losses import GaussianMixtureLoss, LargeMarginLoss, TrainingWarning
from clearance.training import FOCA, EndToEnd, WayOfTraining

COUNT, BATCH, POINTS = 2, 128, 5.0
WAYS: dict[str, Callable[[], tuple[WayOfTraining, nn.Module]]] = {
    "plain": lambda: (EndToEnd(), MLP((128, 64, 10))),
    "FOCA": lambda: (FOCA(), MLP((128, 64, 10))),
    "LargeMarginLoss": lambda: (EndToEnd(LargeMarginLoss(("input", "features"))), MLP((128, 64, 10))),
    "L-GM": lambda: (EndToEnd(GaussianMixtureLoss()), GaussianMixture(128, 10)),
}


class Traffic:
    """Counts the bytes of every collective call of this process."""

    def __init__(self) -> None:
        self.bytes = 0
        for name in ("all_reduce", "broadcast"):
            setattr(dist, name, partial(self._counted, getattr(dist, name)))

    def _counted(
        self, call: Callable[..., Any], tensor: torch.Tensor, *arguments: Any, **options: Any
    ) -> Any:
        self.bytes += tensor.nbytes
        return call(tensor, *arguments, **options)


def stepper(name: str) -> Callable[[], None]:
    way, head = WAYS[name]()
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(),
    )  # fmt: skip
    model = Classifier(extractor, head)
    data = gaussian_images(class_count=10, per_class=100, shape=(1, 28, 28))
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.001)
    training = way.start(model, data, optimizer, way.generators(0))
    images, labels = data.batch(torch.arange(0, 1000, 1000 // (BATCH // COUNT))[: BATCH // COUNT])

    def step() -> None:
        training.step(images, labels)

    return step


def measure(rank: int, folder: Path, rounds: int, together: bool) -> None:
    """Every loss in one of two processes, which train together or each for itself."""
    warnings.simplefilter("ignore", TrainingWarning)  # steps are timed, at a rate that learns nothing
    torch.set_num_threads(1)
    traffic = Traffic()
    if together:
        store = dist.FileStore(str(folder / "store"), COUNT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=COUNT)
    found = {}
    for name in WAYS:
        step = stepper(name)
        for _ in range(5):
            step()
        traffic.bytes, seconds = 0, []
        for _ in range(rounds):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        found[name] = {"seconds": statistics.median(seconds), "bytes": traffic.bytes / rounds}
    (folder / f"{together}-{rank}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # threads of gloo may abort an interpreter that ends


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--small", action="store_true", help="only check that it runs")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--together", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rounds = 3 if given.small else given.rounds
    if given.rank is not None:
        measure(given.rank, given.folder, rounds, given.together)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for together in (False, True):
            command = [sys.executable, __file__, "--rounds", str(rounds), "--folder", name]
            both = [
                subprocess.Popen([*command, "--rank", str(rank), *(["--together"] if together else [])])
                for rank in range(COUNT)
            ]
            assert [each.wait() for each in both] == [0, 0]
        alone, pair = (json.loads((folder / f"{together}-0.json").read_text()) for together in (False, True))
    plain = None
    for way in WAYS:
        added = 100 * (pair[way]["seconds"] / alone[way]["seconds"] - 1)
        plain = added if plain is None else plain
        print(
            f"{way}: {1e3 * alone[way]['seconds']:.1f} ms alone, {1e3 * pair[way]['seconds']:.1f} ms together: "
            f"{added:+.1f} %, {added - plain:+.1f} points beside plain (target at most {POINTS:+.0f}); "
            f"{pair[way]['bytes'] / 2**20:.2f} MiB a step"
        )


if __name__ == "__main__":
    main()
