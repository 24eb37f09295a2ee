"""The robustness verdict of a network that rounds its input, compared with images made on the network within.

    python benchmarks/rounding_front.py RUN_DIRECTORY --root DATA [--source RUN_DIRECTORY] [--images 1000]

RUN_DIRECTORY holds a trained network (``clearance train``), DATA the files of its dataset. Before it stands
round(8 x) / 8, which has no gradient, so that plain gradient attacks find nothing to follow. The verdict is given with
nothing else, with images made on the network within, and on another network (--source), as a stranger would make them.
Target: no verdict is more than a point above what images made on the network within leave, in norm inf.
"""

import argparse
import time

import torch
from torch import Tensor, nn

from clearance.attacks import PGD
from clearance.attacks.attack import logits_of
from clearance.audits import Robustness
from clearance.audits._samples import fixed_images
from clearance.data import ImageSet
from clearance.experiments.datasets import load_dataset
from clearance.experiments.saved import load_model
from clearance.models import Classifier

LEVELS = 8
TARGET = 0.01


class Rounded(nn.Module):
    """Pixels in [0, 1] rounded to one of nine levels, before a network normalises them."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Features of rounded images."""
        return self.network.features(torch.round(LEVELS * images) / LEVELS)


def accuracy(network: Classifier, images: Tensor, data: ImageSet) -> float:
    return float((logits_of(network, images).argmax(dim=1) == data.labels).double().mean())


def transfer_accuracy(network: Classifier, hidden: Classifier, data: ImageSet, epsilon: float) -> float:
    made = PGD(epsilon, loss="cross_entropy").perturbed(network, data.images, data.labels)
    return accuracy(hidden, made, data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--source")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--root", default=None)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3])
    given = parser.parse_args()
    torch.set_num_threads(1)
    network = load_model(given.run).eval()
    hidden = Classifier(Rounded(network), network.head).eval()
    data = fixed_images(load_dataset(given.dataset, "test", given.root), given.images, seed=0)
    sources = {"no source": None, "the network within": network}
    if given.source is not None:
        sources["another network"] = load_model(given.source).eval()
    transfer = {epsilon: transfer_accuracy(network, hidden, data, epsilon) for epsilon in given.epsilons}
    print(f"{len(data)} images of {given.dataset}, pixels rounded to multiples of 1/{LEVELS}, norm inf")
    rounded, plain = (accuracy(each, data.images, data) for each in (hidden, network))
    print(f"right on {rounded:.1%} of them, {plain:.1%} without rounding")
    print(f"{'source':<20} {'epsilon':>8} {'plain attacks':>14} {'verdict':>8} {'transfer':>9}  target")
    for name, source in sources.items():
        began = time.process_time()
        found = Robustness(epsilons={"inf": tuple(given.epsilons)}, images=given.images, source=source)(
            hidden, data, data
        )
        values = {(m.name, m.context.get("epsilon")): m.value for m in found.measurements}
        for epsilon, reached in transfer.items():
            verdict = values["robust_accuracy", epsilon]
            plain = values["cross_entropy_attack_accuracy", epsilon]
            word = "reached" if verdict <= reached + TARGET else "MISSED"
            print(
                f"{name:<20} {epsilon:8} {plain:14.1%} {verdict:8.1%} {reached:9.1%}  <= {reached + TARGET:.1%}: {word}"
            )
        print(f"  ({time.process_time() - began:.0f} cpu seconds)", flush=True)


if __name__ == "__main__":
    main()
