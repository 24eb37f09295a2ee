"""The cost of the companions of the Gaussian-mixture loss next to other implementations: ratios of medians.

    python benchmarks/companion_losses.py            # a minute; one thread on a CPU, or the GPU where there is one
    python benchmarks/companion_losses.py --small    # to see that it runs

Each loss, forward and backward at B = 128 and D = 512, is compared with pytorch-metric-learning's; the center loss with
the usual port (all pairwise distances, masked), since that library lacks it. Ways take turns within a round and a ratio
is one of medians over rounds, in CPU seconds of this process (on a GPU: clock seconds, synchronised).
"""

import argparse
from collections.abc import Callable

import torch
from pytorch_metric_learning import losses as others
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.reducers import MeanReducer
from timing import DEVICE, medians
from torch import Tensor, nn

from clearance.losses import (
    CenterLoss,
    ContrastiveLoss,
    LargeMarginSoftmaxLoss,
    Loss,
    TripletLoss,
)
from clearance.tensors import Outputs

OTHER_WORK = (
    "center",
    "contrastive",
)  # the port does not move centres as the paper does; distances by one product


class PortedCenter(nn.Module):
    """Center loss as usually ported: distances to all classes, of which a mask leaves one."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(classes, width))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean squared distance."""
        squares = features.square().sum(1, keepdim=True) + self.centres.square().sum(1)
        distances = squares - 2 * features @ self.centres.T
        mask = labels[:, None] == torch.arange(len(self.centres), device=labels.device)
        return (distances * mask).clamp(1e-12, 1e12).sum() / len(labels)


Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]


def companion_ways(classes: int) -> dict[str, Pair]:
    """Ours and the other's, by name, at B = 128 and D = 512."""
    features = torch.randn(128, 512, generator=torch.Generator().manual_seed(0)).to(DEVICE).requires_grad_()
    labels = (torch.arange(128) % min(classes, 32)).to(DEVICE)
    linear = nn.Linear(512, classes, bias=False).to(DEVICE)
    distance = LpDistance(normalize_embeddings=True, power=2)
    far = others.TripletMarginLoss(0.2, distance=distance, reducer=MeanReducer())
    miner = TripletMarginMiner(0.2, "semihard", distance=distance)

    def ours(loss: Loss, head: nn.Module | None = None) -> Callable[[], Tensor]:
        loss.to(DEVICE)
        reader = nn.Identity() if head is None else head

        def step() -> Tensor:
            outputs = Outputs(features, reader(features), reader)
            found = loss(outputs, labels).total
            loss.after_step(outputs, labels)  # where the center loss moves its centres
            return found

        return step

    def other(terms: nn.Module) -> Callable[[], Tensor]:
        terms.to(DEVICE)
        return lambda: terms(features, labels)

    return {
        "L-Softmax": (
            ours(LargeMarginSoftmaxLoss(4), linear),
            other(others.LargeMarginSoftmaxLoss(classes, 512)),
        ),
        "center": (
            ours(CenterLoss(512, classes, cross_entropy_weight=0.0)),
            other(PortedCenter(classes, 512)),
        ),
        "center, by its gradient": (
            ours(CenterLoss(512, classes, update="gradient", cross_entropy_weight=0.0)),
            other(PortedCenter(classes, 512)),
        ),
        "triplet, semi-hard": (
            ours(TripletLoss(cross_entropy_weight=0.0)),
            lambda: far(features, labels, miner(features, labels)),
        ),
        "triplet, all": (ours(TripletLoss(mining="all", cross_entropy_weight=0.0)), other(far)),
        "contrastive": (ours(ContrastiveLoss(cross_entropy_weight=0.0)), other(others.ContrastiveLoss())),
    }


def companions(rounds: int) -> None:
    """Forward and backward, compared with the other library, for 10 and 1,000 classes."""
    for classes in (10, 1000):
        for name, pair in companion_ways(classes).items():

            def moved(way: Callable[[], Tensor]) -> Callable[[], None]:
                return lambda: way().backward()

            ours, other = medians([moved(way) for way in pair], rounds, warm_up=1, device=DEVICE)
            target = "" if name in OTHER_WORK else "<= 1"
            print(
                f"{f'{name}, {classes} classes':<36} {1e3 * ours:10.2f} {ours / other:8.2f}  {target}",
                flush=True,
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="few rounds: only to see that it runs")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rounds = 2 if options.small else 14
    print(f"{DEVICE}, medians of {rounds} rounds")
    print(f"{'what':<36} {'ms':>10} {'ratio':>8}  target")
    companions(rounds)


if __name__ == "__main__":
    main()
