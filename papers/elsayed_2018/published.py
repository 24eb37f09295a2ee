"""What the script published with the paper trains on MNIST: its network, loss, RMSProp, decay and clipping; for a GPU.

    python -m papers.elsayed_2018.published --root DATA --out FOLDER [--dataset mnist] [--epochs 300] [--seeds 5]

The script's first weights and order of images are not known; ours are used. Prints the test error of every seed. Called
again it resumes.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import clearance as cl
from clearance.losses import DistanceSettings
from clearance.models import large_margin_cnn, predictions
from clearance.training import EndToEnd, FitResult

BATCH, EPOCHS = 128, 300
RATE, DECAY_EVERY, DECAY = 0.1, 2000, 0.96


class RMSProp(Optimizer):
    r"""RMSProp of TensorFlow 1 without momentum, on a loss with an L2 penalty, clipped together.

    g <- clip(g + `weight_decay` w),    m <- `smoothing` m + (1 - `smoothing`) g^2,    w <- w - `lr` g / sqrt(m + `eps`)

    m starts at 1. torch.optim.RMSprop starts it at 0 and adds eps after the root.

    >>> weight = nn.Parameter(torch.zeros(1))
    >>> weight.grad = torch.ones(1)
    >>> stepper = RMSProp([weight], lr=0.1, eps=0.0, weight_decay=0.0)
    >>> stepper.step()
    >>> round(float(weight.detach()), 4)
    -0.1
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = RATE,
        smoothing: float = 0.9,
        eps: float = 0.01,
        weight_decay: float = 5e-4,
        clip_norm: float = 5.0,
    ) -> None:
        self.clip_norm = clip_norm
        super().__init__(params, {"lr": lr, "smoothing": smoothing, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update."""
        del closure
        moved = [(group, w) for group in self.param_groups for w in group["params"] if w.grad is not None]
        for group, weight in moved:
            weight.grad.add_(weight, alpha=group["weight_decay"])
        nn.utils.clip_grad_norm_([weight for _, weight in moved], self.clip_norm)
        for group, weight in moved:
            state = self.state[weight]
            if not state:
                state["mean_square"] = torch.ones_like(weight)
            mean_square = state["mean_square"]
            mean_square.mul_(group["smoothing"]).addcmul_(
                weight.grad, weight.grad, value=1 - group["smoothing"]
            )
            weight.addcdiv_(weight.grad, (mean_square + group["eps"]).sqrt_(), value=-group["lr"])


def published_loss() -> cl.losses.LargeMarginLoss:
    """The loss of the published script: no cross-entropy, and no bound on its slope."""
    return cl.losses.LargeMarginLoss(
        layers=("input", "extractor.block1", "extractor.block2"),
        norm=math.inf,
        gamma=10000.0,
        top_k=1,
        score="softmax",
        lower_clip=4.0,
        cross_entropy_weight=0.0,
        max_slope=None,
        shifted=True,
        distance=DistanceSettings(unit="element", eps=1e-6),
    )


def train(images: cl.ImageSet, epochs: int = EPOCHS, seed: int = 0, run_dir: Path | None = None) -> FitResult:
    """Train the published network; an epoch has as many steps as full batches."""
    torch.manual_seed(seed)
    channels, size, _ = images.shape
    model = cl.Classifier(large_margin_cnn(channels, size), nn.Linear(512, images.class_count))
    return cl.fit(
        model,
        EndToEnd(published_loss()),
        images,
        steps=epochs * (len(images) // BATCH),
        batch_size=BATCH,
        optimizer=RMSProp,
        schedule=partial(LambdaLR, lr_lambda=lambda step: DECAY ** (step // DECAY_EVERY)),
        seed=seed,
        run_dir=run_dir,
    )


def main(words: list[str] | None = None) -> None:
    """Train every seed and print its test error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(words)
    images, test = (cl.load_dataset(given.dataset, split, given.root) for split in ("train", "test"))
    for seed in range(given.seeds):
        result = train(images, given.epochs, seed, given.out / f"{given.dataset}-{given.epochs}-seed{seed}")
        error = float((predictions(result.model, test) != test.labels).double().mean())
        sys.stdout.write(f"seed {seed}: {result.status.outcome.value}, test error {100 * error:.2f} %\n")


if __name__ == "__main__":
    main()
