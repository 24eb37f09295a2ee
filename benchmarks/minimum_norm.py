"""Median minimum-norm distances compared with foolbox's, on the same network and images.

    python benchmarks/minimum_norm.py RUN_DIRECTORY --root DATA [--images 100] [--thorough]

RUN_DIRECTORY holds a trained network (``clearance train``), DATA the files of its dataset. Prints, for norm 2,
the median distance of Clearance's search and of foolbox's Carlini-Wagner, DDN and FMN attacks over the images
that the network gets right, the ratio to the best of them (target: at most 1.03), and processor seconds.
An attack that fails on an image counts there as infinitely far. Without --thorough foolbox's attacks get fewer steps
than their defaults, Carlini-Wagner 4 x 150 in place of 9 x 10,000.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from clearance.attacks import MinimumNorm
from clearance.attacks.attack import broken, logits_of
from clearance.attacks.balls import norm_of
from clearance.audits._samples import fixed_images
from clearance.experiments.datasets import load_dataset
from clearance.experiments.saved import load_model

NORM = 2.0
TARGET = 1.03
Search = Callable[[Tensor, Tensor], Tensor]


def foolbox_attacks(model: torch.nn.Module, *, thorough: bool) -> dict[str, Search]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports from places that SciPy has moved
        import foolbox
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    attacks = foolbox.attacks
    if thorough:
        rounds, steps = 9, 10_000
        carlini_wagner = attacks.L2CarliniWagnerAttack()
    else:
        rounds, steps = 4, 150
        carlini_wagner = attacks.L2CarliniWagnerAttack(rounds, steps, stepsize=0.02, initial_const=1.0)
    made = {
        f"CW {rounds} x {steps}": carlini_wagner,
        "DDN 1000": attacks.DDNAttack(steps=1000),
        "FMN 1000": attacks.L2FMNAttack(steps=1000),
    }

    def searching(attack: Callable) -> Search:
        return lambda images, labels: attack(wrapped, images, labels, epsilons=None)[0]

    return {name: searching(attack) for name, attack in made.items()}


def clearance_search(model: torch.nn.Module, steps: int) -> Search:
    attack = MinimumNorm(NORM, steps=steps)
    return lambda images, labels: attack(model, images, labels).images


def median(
    model: torch.nn.Module, search: Search, images: Tensor, labels: Tensor
) -> tuple[float, float, float]:
    """Median distance, share of images broken, processor seconds."""
    began = time.process_time()
    found = search(images, labels)
    seconds = time.process_time() - began
    wrong = broken(logits_of(model, found), labels)
    distance = torch.where(wrong, norm_of(found - images, NORM), torch.inf)
    return float(distance.median()), float(wrong.double().mean()), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--root", default=None)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--thorough", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(given.run).eval()
    data = fixed_images(load_dataset(given.dataset, "test", given.root), given.images, seed=0)
    right = ~broken(logits_of(model, data.images), data.labels)
    images, labels = data.images[right], data.labels[right]
    print(f"{len(images)} images of {given.dataset}, norm 2, one thread")
    print(f"{'search':>14} {'median':>8} {'broken':>7} {'cpu s':>7}")
    best = float("inf")
    for name, search in foolbox_attacks(model, thorough=given.thorough).items():
        value, share, seconds = median(model, search, images, labels)
        best = min(best, value)
        print(f"{name:>14} {value:8.4f} {share:7.1%} {seconds:7.1f}", flush=True)
    for steps in (100, 200):
        value, share, seconds = median(model, clearance_search(model, steps), images, labels)
        name = f"Clearance {steps}"
        print(
            f"{name:>14} {value:8.4f} {share:7.1%} {seconds:7.1f}   {value / best:.3f} x the best, target {TARGET}"
        )


if __name__ == "__main__":
    main()
