"""The robustness verdict on 1,000 images of MNIST, by one worker and by two.

    python benchmarks/split_audit.py --root DATA [--images 1000] [--rounds 2] [--small]

Wall seconds of the audit `robustness` with its own radii, on a network that is trained for one epoch first; workers
have started before. Target: two workers at least 1.8 times as fast as one, each with one thread, and the same numbers.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from clearance import Classifier, load_dataset
from clearance.audits import Robustness
from clearance.audits._audit import Findings, Subject
from clearance.data import ImageSet
from clearance.experiments.engines import Processes
from clearance.experiments.spread import Spread
from clearance.training import EndToEnd, fit

FASTER = 1.8


def network(train: ImageSet) -> Classifier:
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 49, 64),
        nn.ReLU(),
    )
    model = Classifier(extractor, nn.Linear(64, 10), 0.1307, 0.3081)
    fit(model, EndToEnd(), train, epochs=1)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="only check that it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    train, test = (load_dataset("mnist", split=split, root=str(given.root)) for split in ("train", "test"))
    model = network(train.subset(torch.arange(2_000 if given.small else 20_000)))
    images = 300 if given.small else given.images
    audit = Robustness(images=images, steps=2, queries=10) if given.small else Robustness(images=images)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    found: dict[int, Findings] = {}
    for _ in range(1 if given.small else given.rounds):
        for workers in seconds:
            with Processes(workers, fresh=False) as engine:
                spread = Spread(engine)
                spread(time.sleep, [(2.0,)] * workers)  # both have started
                subject = Subject(model, train.subset(torch.arange(100)), test, workers=spread)
                began = time.perf_counter()
                found[workers] = audit.examine(subject)
                seconds[workers].append(time.perf_counter() - began)
    assert repr(found[1]) == repr(found[2]), "the numbers differ"
    one, two = (statistics.median(seconds[workers]) for workers in (1, 2))
    for m in found[1].measurements:
        if m.name == "robust_accuracy":
            print(f"robust accuracy, norm {m.context['norm']}, {m.context['epsilon']}: {m.value:.3f}")
    print(f"{images} images: one worker {seconds[1]} s, two {seconds[2]} s")
    print(f"two workers: {one / two:.2f}x as fast as one (target {FASTER}x)")


if __name__ == "__main__":
    main()
