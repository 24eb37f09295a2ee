"""A network under attack, with the images that it is attacked on."""

from collections.abc import Iterable
from functools import cached_property

from torch import Tensor

from clearance.attacks.attack import AnyAttack
from clearance.attacks.attacked import broken
from clearance.attacks.queries import Model, logits_of
from clearance.attacks.starts import random_starts
from clearance.attacks.straight_through import has_steps
from clearance.audits._alarm import blind_share
from clearance.audits._verdict import survivors
from clearance.vocabulary import Bounds

BOUNDS = Bounds()
SUMS_TO_ONE = 1e-3


class Target:
    """What one audit attacks, asked once for what does not depend on a radius.

    Args:
        model: In evaluation mode.
        images: (B, ...).
        labels: (B,).
        source: A network whose gradients make images too, in evaluation mode; None where there is none.
        seed: Of everything drawn.

    Raises:
        ValueError: If the model gives probabilities: where they round to 0 and 1 no attack sees a way, and the number
            would say that the network is safe.
    """

    def __init__(
        self, model: Model, images: Tensor, labels: Tensor, source: Model | None = None, seed: int = 0
    ) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.source, self.seed = source, seed
        logits = logits_of(model, images)
        _refuse_probabilities(logits)
        self.classes = logits.shape[1]
        self.right = ~broken(logits, labels)
        self._blind: dict[str, float] = {}

    def left(self, attacks: Iterable[AnyAttack], alive: Tensor | None = None) -> Tensor:
        """The images that no attack breaks, of those alive, by default of those that are right."""
        begin = self.right if alive is None else alive
        return survivors(self.model, self.images, self.labels, attacks, begin)

    def under_noise(self, norm: float, epsilon: float) -> Tensor:
        """The images that stay right at one point of the ball that is drawn for each."""
        noise = random_starts(self.images, epsilon, norm, BOUNDS, seed=self.seed, stream=0)
        return self.right & ~broken(logits_of(self.model, self.images + noise), self.labels)

    @cached_property
    def steps(self) -> bool:
        """Whether the model rounds on the way, so that its gradient stops there."""
        return has_steps(self.model, self.images[:1])

    def blind(self, loss: str) -> float:
        """Share of right images where a loss has no gradient."""
        if loss not in self._blind:
            self._blind[loss] = blind_share(
                self.model, self.images[self.right], self.labels[self.right], loss
            )
        return self._blind[loss]


def _refuse_probabilities(logits: Tensor) -> None:
    sums = logits.double().sum(dim=1)
    if len(logits) > 1 and bool((logits >= 0).all()) and bool(((sums - 1).abs() < SUMS_TO_ONE).all()):
        raise ValueError(
            f"the model's outputs must be logits; of all {len(logits)} images they are at least 0 and sum to one, as "
            "probabilities do, whose gradient vanishes where they round to 0 and 1. Remove the softmax from the model."
        )
