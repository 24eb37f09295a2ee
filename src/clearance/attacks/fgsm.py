"""The fast gradient sign method: one step, as far as the ball allows."""

from dataclasses import dataclass

from torch import Tensor

from clearance.attacks.attack import Batch, GradientAttack
from clearance.attacks.steps import linear_optimum


@dataclass(frozen=True)
class FGSM(GradientAttack):
    r"""One step to the point of the ball, within the bounds, that is best to first order.

        x' = clip(x + epsilon sign(grad_x L))                                         norm inf

    Source: Goodfellow, Shlens and Szegedy, *Explaining and Harnessing Adversarial Examples* (2015), section 4.
    In norm 2 the step is x' = clip(x + t grad_x L) with the t that uses up all of epsilon, in norm 1 it fills
    the pixels with the largest gradients up to their bounds: where pixels are at their bound, these go
    farther than a clipped unit step. On a linear model of two classes they are the strongest attack there is.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf (as published), 2 or 1.
        loss: What is ascended; cross-entropy as published.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads with its default loss where logits are large: see :mod:`clearance.attacks.losses`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> hit = FGSM(epsilon=0.25)(model, torch.tensor([[0.75, 0.5]]), torch.tensor([0]))
    >>> hit.images, hit.success
    (tensor([[0.5000, 0.7500]]), tensor([True]))
    """

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist  # there is but one step
        _, gradient = batch.ascent(batch.images, self.loss)
        return batch.images + linear_optimum(gradient, batch.images, self.epsilon, self.norm, self.bounds)
