"""Weak heads by a few steps of gradient descent: Algorithm 1 of Sato et al. (2019)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from clearance._checks import check_positive
from clearance.heads.scale import feature_unit
from clearance.heads.stack import HeadStack, first_linear_weight
from clearance.heads.train import HeadTraining, SampleLoss, TrainedHeads, train_heads
from clearance.heads.weak._linear import check_batch_shapes


@dataclass(frozen=True)
class GradientHeads:
    r"""Heads trained from new random weights on a small batch of frozen features.

    theta_b = argmin_theta  mean_{i in b} loss(C_theta(f_i / s), t_i) + (w / 2) ||theta||^2,
    approached by `training.steps` full-batch steps, with s = max(unit of the features, least unit), the unit
    taken over all batches that are drawn at once.

    Source: Sato et al. (2019), Eq. 4 and Algorithm 1, line 5. The paper writes the penalty as
    lambda ||theta||^2 with a mean (Eq. 4) or a sum (Algorithm 1); w here is torch's weight decay, so
    w = 2 lambda of Eq. 4.
    In the paper's variant for large batches heads stop after about 20 steps, before they become nearly equal: set
    ``HeadTraining(steps=20, lr=0.1, momentum=0.9, weight_decay=0.01)`` here and a large `per_class` in FOCA.

    Dividing by s makes step and penalty follow the scale of the features: features times c, with c in the
    next layer, are the same model and get the same heads. The least unit, which FOCA takes from the features
    it starts with, prevents features from vanishing: below it heads become less confident, so the loss asks for
    larger features. Without it, confident and wrong heads would shrink the features to 0. A head whose first layer is
    not linear, such as a Gaussian mixture, is trained on features as they are: it follows no scale.

    Args:
        training: Steps, step size, momentum and penalty. The paper uses 32 steps on CIFAR-10 and does not give
            the rest; the defaults were chosen on a split of the digits' training set.
        init_std: Standard deviation of fresh weights, above 0; 0.1 in the paper, biases 0.
        loss: A loss for each sample, as in :func:`clearance.heads.train_heads`; None is cross-entropy.

    Raises:
        ValueError: If a setting is out of range.

    Misleads when heads are too strong (many samples, few features) or too weak (few steps): check their
    accuracy on the whole training set.

    >>> features, labels = torch.eye(3).expand(2, 3, 3), torch.arange(3).expand(2, 3)
    >>> drawn = GradientHeads().draw(nn.Linear(3, 3), features, labels, torch.Generator().manual_seed(0))
    >>> len(drawn.stack)
    2
    """

    training: HeadTraining = field(
        default_factory=lambda: HeadTraining(steps=32, lr=0.1, momentum=0.9, weight_decay=1e-2)
    )
    init_std: float = 0.1
    loss: SampleLoss | None = None

    def __post_init__(self) -> None:
        check_positive("init_std", self.init_std)

    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads, one for each batch of features.

        Args:
            architecture: Gives the shape of a head.
            features: (K, n, D); head k is trained on ``features[k]``.
            labels: (K, n).
            generator: Draws the initial weights.
            least_unit: The smallest divisor of the features, 0-dim.

        Raises:
            ValueError: If shapes do not fit.
        """
        check_batch_shapes(features, labels)
        stack = HeadStack.initialised(architecture, len(features), generator, self.init_std)
        return train_on_unit_scale(
            stack, features, labels, self.training, loss=self.loss, generator=generator, least_unit=least_unit
        )


def train_on_unit_scale(
    stack: HeadStack,
    features: Tensor,
    labels: Tensor,
    training: HeadTraining,
    *,
    loss: SampleLoss | None = None,
    generator: torch.Generator | None = None,
    least_unit: Tensor | None = None,
) -> TrainedHeads:
    """Train heads on features divided by their unit; the returned heads read raw features.

    Heads whose first layer is not linear cannot absorb the scale and are trained on raw features.
    """
    scale = feature_unit(features)
    if least_unit is not None:
        scale = torch.maximum(scale, least_unit)
    if first_linear_weight(stack.architecture) is None or not bool(scale > 0):
        return train_heads(stack, features, labels, training, loss=loss, generator=generator)
    trained = train_heads(stack, features / scale, labels, training, loss=loss, generator=generator)
    absorbed = trained.stack.absorbing_scale(scale)
    assert absorbed is not None
    return TrainedHeads(absorbed, trained.diverged)
