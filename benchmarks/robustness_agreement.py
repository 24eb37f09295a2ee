"""The robustness verdict compared with foolbox's PGD with restarts, on the same network and images.

    python benchmarks/robustness_agreement.py RUN_DIRECTORY --root DATA [--images 1000] [--epsilons 0.1 0.3]

RUN_DIRECTORY holds a trained network (``clearance train``), DATA the files of its dataset. foolbox attacks the network
with its logits divided by their median gap between the two largest, by 40 steps of PGD on cross-entropy, from the image
and from 4 random points. Prints both accuracies in norm inf; target: the verdict at most 0.5 points above.
"""

import argparse
import time
import warnings

import torch
from torch import Tensor, nn

from clearance.attacks.attack import logits_of
from clearance.audits import Robustness
from clearance.audits._samples import fixed_images
from clearance.data import ImageSet
from clearance.experiments.datasets import load_dataset
from clearance.experiments.saved import load_model

TARGET = 0.005
STEPS, RANDOM_STARTS = 40, 4


class Divided(nn.Module):
    """Logits in units of a constant."""

    def __init__(self, model: nn.Module, unit: float) -> None:
        super().__init__()
        self.model, self.unit = model, unit
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Smaller logits, or larger ones."""
        return self.model(images) / self.unit


def foolbox_accuracy(model: nn.Module, data: ImageSet, epsilon: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
        import foolbox
    top = logits_of(model, data.images).topk(2, dim=1).values
    unit = float((top[:, 0] - top[:, 1]).median())
    wrapped = foolbox.PyTorchModel(Divided(model, unit), bounds=(0, 1), device="cpu")
    alive = torch.ones(len(data), dtype=torch.bool)
    for start in range(1 + RANDOM_STARTS):
        attack = foolbox.attacks.LinfPGD(steps=STEPS, rel_stepsize=2.5 / STEPS, random_start=start > 0)
        for rows in alive.nonzero().flatten().split(250) if bool(alive.any()) else ():
            _, _, success = attack(wrapped, data.images[rows], data.labels[rows], epsilons=epsilon)
            alive[rows] &= ~success
    return float(alive.double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--root", default=None)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3])
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # foolbox draws its starts from the global stream
    model = load_model(given.run).eval()
    data = fixed_images(load_dataset(given.dataset, "test", given.root), given.images, seed=0)
    began = time.process_time()
    found = Robustness(epsilons={"inf": tuple(given.epsilons)}, images=given.images)(model, data, data)
    seconds = time.process_time() - began
    verdicts = {m.context["epsilon"]: m.value for m in found.measurements if m.name == "robust_accuracy"}
    print(
        f"{len(data)} images of {given.dataset}, norm inf, one thread; the audit took {seconds:.0f} cpu seconds"
    )
    print(f"{'epsilon':>8} {'verdict':>8} {'foolbox':>8}  target")
    for epsilon, verdict in verdicts.items():
        other = foolbox_accuracy(model, data, float(epsilon))
        word = "reached" if verdict <= other + TARGET else "MISSED"
        print(f"{epsilon:8} {verdict:8.1%} {other:8.1%}  <= {other + TARGET:.1%}: {word}", flush=True)
    for exhibit in found.exhibits:
        print(exhibit.caption)


if __name__ == "__main__":
    main()
