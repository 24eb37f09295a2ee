"""A network under attack, with the images that it is attacked on."""

from collections.abc import Iterable
from functools import cached_property

from torch import Tensor

from clearance.attacks.attack import AnyAttack, broken
from clearance.attacks.balls import random_starts
from clearance.attacks.queries import Model, logits_of
from clearance.attacks.straight_through import has_steps
from clearance.audits._alarm import blind_share, share
from clearance.audits._answers import check_source, checked_logits
from clearance.audits._verdict import survivors
from clearance.vocabulary import Bounds

BOUNDS = Bounds()


class Target:
    """What one audit attacks, asked once for what does not depend on a radius.

    Args:
        model: In evaluation mode.
        images: (B, ...).
        labels: (B,).
        source: A network whose gradients make images too, in evaluation mode; None where there is none.
        seed: Of everything drawn.

    Raises:
        ValueError: If either gives probabilities, or no one answer to an image (see :func:`checked_logits`), or the
            source has other classes or takes other images.
    """

    def __init__(
        self, model: Model, images: Tensor, labels: Tensor, source: Model | None = None, seed: int = 0
    ) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.source, self.seed = source, seed
        logits = checked_logits(model, images)
        self.classes = logits.shape[1]
        self.unnumbered = share(~logits.isfinite().all(dim=1))
        if source is not None:
            check_source(source, images, self.classes)
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
        """Whether the model rounds on the way, or stops gradients that would count."""
        return has_steps(self.model, self.images)

    def blind(self, loss: str) -> float:
        """Share of right images where a loss has no gradient."""
        if loss not in self._blind:
            self._blind[loss] = blind_share(
                self.model, self.images[self.right], self.labels[self.right], loss
            )
        return self._blind[loss]
