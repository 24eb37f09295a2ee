"""Images that a score is to tell from normal ones: attacked, and the same under noise of equal size."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.attacks.attack import broken
from clearance.attacks.balls import streams_of
from clearance.attacks.gradient import FGSM, IFGSM
from clearance.attacks.queries import Model, logits_of

ONE_STEP, MANY_STEPS = "FGSM", "IFGSM"
HALVINGS = 24  # of a pixel's range: as fine as float32


@dataclass(frozen=True)
class Changed:
    """Images after an attack that knows of no detector.

    Args:
        attack: Its name.
        epsilon: Its radius, norm inf.
        images: (B, C, H, W), changed whether or not that was needed.
        predicted: (B,), what the classifier takes them for.
        fooled: (B,), whether the classifier was right before and is wrong now.
    """

    attack: str
    epsilon: float
    images: Tensor
    predicted: Tensor
    fooled: Tensor


def attacked(
    model: Model, images: Tensor, labels: Tensor, attack: str, epsilon: float, steps: int
) -> Changed:
    """FGSM or I-FGSM on cross-entropy of the logits as the classifier is used: without margin.

    Source: Goodfellow, Shlens and Szegedy (2015); Kurakin, Goodfellow and Bengio (2017); every image is attacked to the
    end, as Wan et al. (2018) do, also where the classifier is wrong on it already.

    Args:
        model: Images to logits, in evaluation mode.
        images: (B, C, H, W).
        labels: (B,).
        attack: ``"FGSM"`` or ``"IFGSM"``.
        epsilon: Radius in pixel units.
        steps: Of I-FGSM.
    """
    made = FGSM(epsilon) if attack == ONE_STEP else IFGSM(epsilon, steps=steps)
    found = made.perturbed(model, images, labels)
    logits = logits_of(model, found)
    right = ~broken(logits_of(model, images), labels)
    return Changed(attack, epsilon, found, logits.argmax(dim=1), right & broken(logits, labels))


def sign_noise(images: Tensor, epsilon: float, seed: int, as_long_as: Tensor | None = None) -> Tensor:
    """Every pixel epsilon up or down by a coin, then clipped: as large as an FGSM step, and harmless.

    An image's coins follow from the seed and its own pixels, so that all classifiers see the same noise. Where changes
    are given, (B, C, H, W), pixels of an image go, in place of epsilon, as far as gives its noise their L2 norm after
    clipping.

    >>> noisy = sign_noise(torch.full((1, 1, 2, 2), 0.5), 0.25, seed=0)
    >>> sorted(set(noisy.flatten().tolist()) | {0.25, 0.75})
    [0.25, 0.75]
    """
    coins = [
        torch.randint(2, images[0].shape, generator=draws) for draws in streams_of(images, seed, "sign noise")
    ]
    signs = 2 * torch.stack(coins).to(images) - 1
    if as_long_as is None:
        return (images + epsilon * signs).clamp(0, 1)
    wanted = as_long_as.flatten(1).norm(dim=1)
    low, high = torch.zeros_like(wanted), torch.ones_like(wanted)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = (_moved(images, middle, signs) - images).flatten(1).norm(dim=1) < wanted
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return _moved(images, low, signs)


def _moved(images: Tensor, lengths: Tensor, signs: Tensor) -> Tensor:
    """Pixels of each image moved by its own length and clipped."""
    return (images + lengths.view(-1, *[1] * (images.ndim - 1)) * signs).clamp(0, 1)
