"""The toy of Fig. 1: two moons, features in the plane, and four ways to train the same first weights.

What the paper says of it: two classes, targets +1 and -1, squared error, two features; joint training, and FOCA
with the closed-form heads of its proof or with multi-layer heads. All else is ours: data, widths, budget.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from torch import nn

from clearance._checks import check_count, check_positive
from clearance._rng import derived_seed
from clearance.data import ImageSet
from clearance.heads import MLP, GradientHeads, HeadTraining, PairHeads
from clearance.models import Classifier
from clearance.objectives import SquaredErrorLoss
from clearance.regimes import FOCA, EndToEnd, Regime, fit
from clearance.regimes.fit import FitResult, Progress

HeadKind: TypeAlias = Literal["linear", "MLP"]
CLASSES = ("target -1", "target +1")
# A multi-layer head learns by gradient descent from one sample of each class (k = 1, as in the proof).
WEAK_MLP = GradientHeads(
    HeadTraining(steps=16, lr=0.02, momentum=0.9, weight_decay=1e-2), loss=SquaredErrorLoss.sample_loss
)
# Features are read in a unit that makes a sample's squared norm 128: larger steps would diverge.
LAST_HEAD = HeadTraining(steps=4000, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class ToySettings:
    """What can be changed about the toy; the defaults are those of the ledger.

    Args:
        per_class: Points of each moon, at least 2.
        noise: Standard deviation of a point around its moon (whose radius is 1), above 0.
        epochs_linear: Passes over the points with linear heads, each of two steps, at least 1.
        epochs_mlp: The same with multi-layer heads, whose training costs several times as much.
        lr_linear: Adam's step size with linear heads, above 0; the same for joint training and FOCA.
        lr_mlp: The same with multi-layer heads. With 0.005 FOCA's features vanished in the first steps under
            two of five seeds: early steps meet heads that are sure and wrong, and shrink what they read.
        penalty: lambda of condition C5, in squared units of the features, above 0. Features of smaller
            differences than its root make weak heads, and grow.
        linear_heads: Closed-form heads a step, at least 1.
        mlp_heads: Multi-layer heads a step, at least 1.

    >>> ToySettings(epochs_mlp=0)
    Traceback (most recent call last):
    ValueError: `epochs_mlp` must be a whole number of at least 1; got 0.
    """

    per_class: int = 100
    noise: float = 0.1
    epochs_linear: int = 2500
    epochs_mlp: int = 1000
    lr_linear: float = 0.01
    lr_mlp: float = 0.002
    penalty: float = 1.0
    linear_heads: int = 64
    mlp_heads: int = 16

    def __post_init__(self) -> None:
        check_count("per_class", self.per_class, minimum=2)
        for name in ("epochs_linear", "epochs_mlp", "linear_heads", "mlp_heads"):
            check_count(name, getattr(self, name))
        for name in ("noise", "lr_linear", "lr_mlp", "penalty"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Variant:
    """One panel of the figure.

    Args:
        head: The kind of head that the extractor is trained with.
        joint: Whether extractor and head are trained together; otherwise by FOCA.
    """

    head: HeadKind
    joint: bool

    def epochs(self, settings: ToySettings) -> int:
        """Passes over the points."""
        return settings.epochs_linear if self.head == "linear" else settings.epochs_mlp

    def lr(self, settings: ToySettings) -> float:
        """The extractor's step size."""
        return settings.lr_linear if self.head == "linear" else settings.lr_mlp

    def regime(self, settings: ToySettings) -> Regime:
        """How the extractor is trained."""
        if self.joint:
            return EndToEnd(SquaredErrorLoss())
        linear = self.head == "linear"
        return FOCA(
            SquaredErrorLoss(),
            PairHeads(settings.penalty) if linear else WEAK_MLP,
            per_class=1,
            heads=settings.linear_heads if linear else settings.mlp_heads,
            final_head=LAST_HEAD,
        )


VARIANTS = {
    "joint, linear head": Variant("linear", joint=True),
    "joint, MLP head": Variant("MLP", joint=True),
    "FOCA, linear heads": Variant("linear", joint=False),
    "FOCA, MLP heads": Variant("MLP", joint=False),
}


def two_moons(settings: ToySettings, seed: int) -> ImageSet:
    """The points as images of two channels and one pixel, each coordinate stretched to [0, 1].

    >>> two_moons(ToySettings(per_class=10), seed=0)
    ImageSet('two moons', 20 images of shape (2, 1, 1), 2 classes)
    """
    from sklearn.datasets import make_moons  # slow to import, and only this study needs it

    count = 2 * settings.per_class
    drawn = derived_seed(seed, "moons") % 2**32
    places, labels = make_moons(count, noise=settings.noise, random_state=drawn)
    low, high = places.min(axis=0), places.max(axis=0)
    images = torch.tensor((places - low) / (high - low), dtype=torch.float32)
    return ImageSet(images[:, :, None, None], torch.tensor(labels), CLASSES, name="two moons")


def toy_classifier(head: HeadKind, seed: int) -> Classifier:
    """The untrained network: 2-64-64-2, softplus after every layer, and a head of two logits.

    Softplus after the features too, because the paper's lemma asks for activations without a flat part (C1).
    First weights after He et al. (2015): N(0, 2 / inputs), biases 0. The extractor's depend on the seed alone, so
    that all variants of a seed start alike.

    Shapes:
        images (B, 2, 1, 1) to logits (B, 2).

    >>> first, second = toy_classifier("linear", 0), toy_classifier("MLP", 0)
    >>> torch.equal(first.extractor[1].weight, second.extractor[1].weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "toy"))
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in ((2, 64), (64, 64), (64, 2)):
            layer = nn.Linear(inputs, outputs)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.Softplus()]
        last = nn.Linear(2, 2) if head == "linear" else MLP((2, 32, 2))
        _make_signed(last)
    # mean and deviation of what is spread evenly over [0, 1]
    return Classifier(nn.Sequential(*layers), last, mean=(0.5, 0.5), std=(0.29, 0.29))


def train_variant(
    variant: Variant,
    data: ImageSet,
    settings: ToySettings,
    seed: int,
    run_dir: Path | None = None,
    on_step: Callable[[Progress], object] | None = None,
) -> FitResult:
    """Train one panel's network: Adam with a constant step size on half of the points at a time.

    Args:
        variant: Which panel.
        data: Its points, those of the same seed.
        settings: Budget and step sizes.
        seed: Decides first weights, batch order and heads.
        run_dir: Where the run is kept and, once finished, read back; None keeps nothing.
        on_step: Told of the progress after every step.
    """
    optimizer: Callable[..., torch.optim.Optimizer] = partial(torch.optim.Adam, lr=variant.lr(settings))
    return fit(
        toy_classifier(variant.head, seed),
        variant.regime(settings),
        data,
        epochs=variant.epochs(settings),
        batch_size=settings.per_class,
        optimizer=optimizer,
        device="cpu",
        seed=seed,
        run_dir=run_dir,
        on_step=on_step,
    )


@torch.no_grad()
def _make_signed(head: nn.Module) -> None:
    """Turn a head of two logits into the paper's head of one output s with targets +1 and -1.

    The logits become (1 - s) / 2 and (1 + s) / 2. Against one-hot targets their squared error is
    (s - t)^2 / 2, the gradients of the two rows are opposite, and so they stay a pair through training.
    """
    layer = head if isinstance(head, nn.Linear) else list(head.children())[-1]
    assert isinstance(layer, nn.Linear)
    layer.weight[0] = -layer.weight[1]
    layer.bias.fill_(0.5)
