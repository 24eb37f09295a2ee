"""Weak heads by early stopping, on a batch that may be large."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from clearance.heads.train import HeadTraining, SampleLoss, TrainedHeads
from clearance.heads.weak.gradient import GradientHeads


@dataclass(frozen=True)
class EarlyStoppedHeads:
    """Heads from new random weights, after about twenty training steps on a large batch.

    Source: Sato et al. (2019), the variant of Algorithm 1 in which the batch may be large and the head is
    stopped early, after about 20 iterations; theta_b is then less clearly defined. Heads trained to the end on
    large batches would all be nearly equal; stopped early they still depend on their initial weights.

    They are drawn as :class:`GradientHeads` are, with the same unit of the features; only the number of steps
    differs. Use them with a large `per_class` of FOCA, such as 100.

    Args:
        training: Steps, step size, momentum and penalty. 20 steps as in the paper; the rest as in GradientHeads.
        init_std: Standard deviation of fresh weights, above 0; 0.1 in the paper, biases 0.
        loss: A loss for each sample, as in :func:`clearance.heads.train_heads`; None is cross-entropy.

    Raises:
        ValueError: If `init_std` is not above 0.

    Misleads when steps are so few or so short that heads are still random.

    >>> features, labels = torch.eye(3).repeat(20, 1).expand(2, 60, 3), torch.arange(3).repeat(20).expand(2, 60)
    >>> drawn = EarlyStoppedHeads().draw(nn.Linear(3, 3), features, labels, torch.Generator().manual_seed(0))
    >>> bool((drawn.stack.predictions(torch.eye(3)) == torch.arange(3)).all())
    True
    """

    training: HeadTraining = field(
        default_factory=lambda: HeadTraining(steps=20, lr=0.1, momentum=0.9, weight_decay=1e-2)
    )
    init_std: float = 0.1
    loss: SampleLoss | None = None

    def __post_init__(self) -> None:
        self._gradient_heads()  # checks the settings

    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads, one for each batch of features; arguments as in :meth:`GradientHeads.draw`."""
        return self._gradient_heads().draw(architecture, features, labels, generator, least_unit)

    def _gradient_heads(self) -> GradientHeads:
        return GradientHeads(self.training, self.init_std, self.loss)
