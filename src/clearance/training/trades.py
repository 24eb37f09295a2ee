"""TRADES: the loss of clean images, and a penalty on how far an attack moves their predictions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count, check_non_negative, check_positive
from clearance._precision import at_least_float32
from clearance.attacks.attack import Attack, Batch, gradients_of
from clearance.attacks.balls import projected, steepest

_NOISE = 1e-3  # standard deviation at the start, as released: at the image itself the gradient is zero
_RELATIVE_STEP = 2.5


def divergence(clean: Tensor, attacked: Tensor) -> Tensor:
    """KL divergence of predictions, sum_c p_c (log p_c - log q_c), p = softmax(clean), q = softmax(attacked).

    Logits are (B, C), of the same images before and after a change; the result is (B,).

    >>> divergence(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([0.])
    """
    first, second = at_least_float32(clean).log_softmax(dim=1), at_least_float32(attacked).log_softmax(dim=1)
    return (first.exp() * (first - second)).sum(dim=1)


@dataclass(frozen=True)
class TRADES(Attack):
    r"""Training that keeps the prediction within a ball; given to ``EndToEnd`` as `adversarial`.

        mean_i L(f(x_i), t_i) + beta mean_i KL(p(x_i) || p(x'_i)),    x'_i = argmax KL(p(x_i) || p(x'))

    with p = softmax(f) and x' in the ball ||x' - x_i|| <= epsilon. The maximum is sought by steps of steepest ascent
    from the image with Gaussian noise of deviation 0.001, each followed by a projection. Both predictions get a
    gradient. In adversarial training after Madry et al. (2018), where `adversarial` is an attack such as PGD, the loss
    itself is computed on the attacked images instead.

    Source: Zhang et al., *Theoretically Principled Trade-off between Robustness and Accuracy* (2019), Algorithm 1;
    beta is their 1 / lambda. The noise and the gradient through both predictions are those of their released code.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf (as published), 2 or 1.
        steps: Of the ascent; 10 as in the released script for CIFAR-10 (40 in that for MNIST).
        step: Length of one in pixel units; by default 2.5 epsilon / steps, as in PGD.
        beta: Weight of the divergence, at least 0; 6 as in the released script for CIFAR-10 (1 in that for MNIST).
        seed: Of the noise; EndToEnd gives a new one in every step.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads as an attack: it looks for another prediction, not for a wrong one.

    >>> from clearance.training import EndToEnd
    >>> attack = TRADES(0.1, beta=6.0)
    >>> way = EndToEnd(adversarial=attack, adversarial_share=1.0)
    >>> images, model = torch.tensor([[0.6, 0.5]]), torch.nn.Identity().eval()
    >>> moved = attack.perturbed(model, images, torch.tensor([0]))
    >>> (moved - images).abs()
    tensor([[0.1000, 0.1000]])
    """

    steps: int = 10
    step: float | None = None
    beta: float = 6.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        if self.step is not None:
            check_positive("step", self.step)
        check_non_negative("beta", self.beta)
        check_count("seed", self.seed, minimum=0)

    def term(self, clean: Tensor, attacked: Tensor) -> Tensor:
        """The mean divergence of the predictions times beta, from logits (B, C) of both; 0-dim."""
        return self.beta * divergence(clean, attacked).mean()

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist  # a wrong image is moved on: the prediction is what counts
        if batch.targets is not None:
            raise ValueError(
                "`targets` must be None: TRADES moves the prediction away from itself, and to no class."
            )

        def value(logits: Tensor, rows: slice) -> Tensor:
            return divergence(batch.logits[rows], logits)

        length = _RELATIVE_STEP * self.epsilon / self.steps if self.step is None else self.step
        draws = torch.Generator().manual_seed(self.seed)
        noise = _NOISE * torch.randn(batch.images.shape, generator=draws, dtype=torch.float32).to(
            batch.images
        )
        delta = projected(noise, batch.images, self.epsilon, self.norm)
        for _ in range(self.steps):
            _, gradient = gradients_of(batch.model, batch.images + delta, value, chunk=batch.chunk)
            further = delta + length * steepest(gradient, self.norm)
            delta = projected(further, batch.images, self.epsilon, self.norm)
        return batch.images + delta
