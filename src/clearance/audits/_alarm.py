"""Signs that an attack saw less than there is: what a robust accuracy must be read with."""

from dataclasses import dataclass

from torch import Tensor

from clearance.attacks.losses import LOSSES
from clearance.attacks.queries import Model, gradients_of

SLACK = 0.01  # of all images: what two attacks may differ by without a sign
ZERO_SHARE = 0.01  # of right images without any gradient
GAP = 0.05  # between plain cross-entropy attacks and the verdict


@dataclass(frozen=True)
class Reason:
    """Something that speaks against a number: words with a gap for a share, and the share.

    >>> str(Reason("{} of images have no gradient at all", 0.25))
    '25.0% of images have no gradient at all'
    """

    words: str
    share: float

    def __str__(self) -> str:
        return self.words.format(f"{self.share:.1%}")


@dataclass(frozen=True)
class Signs:
    """What was seen of one radius, as shares of images; accuracies are under attack.

    Args:
        white_box: Accuracy under all scale-free gradient attacks.
        cross_entropy: Under plain cross-entropy attacks.
        noise: Under one draw of noise of the same radius.
        everything: Under gradient attacks whose radius reaches every image there is.
        blind: Share of right images where the logit margin has no gradient.
        blind_cross_entropy: Where cross-entropy has none.
        transfer: Accuracy under images made on another network; None where there is none.
        unnumbered: Share of images whose logits, unattacked, are not all finite numbers: they name no class.
    """

    white_box: float
    cross_entropy: float
    noise: float
    everything: float
    blind: float
    blind_cross_entropy: float
    transfer: float | None = None
    unnumbered: float = 0.0

    def doubts(self) -> list[Reason]:
        """Reasons to think that gradient attacks are too weak here; none of them depends on the scale of logits.

        >>> Signs(0.9, 0.9, 0.9, 0.0, 0.0, 0.0).doubts()
        []
        """
        found = []
        if self.blind > ZERO_SHARE:
            found.append(Reason("{} of images have no gradient at all", self.blind))
        if self.noise < self.white_box - SLACK:
            found.append(Reason("noise alone leaves {}, less than gradient attacks do", self.noise))
        if self.everything > SLACK:
            found.append(Reason("attacks that may change everything still leave {}", self.everything))
        if self.transfer is not None and self.transfer < self.white_box - SLACK:
            words = "images made on another network leave {}, less than its own gradients"
            found.append(Reason(words, self.transfer))
        if self.unnumbered > 0:
            words = "{} of images have logits that are not finite before any attack, and count as wrong"
            found.append(Reason(words, self.unnumbered))
        return found

    def fooled(self, verdict: float) -> list[Reason]:
        """Reasons not to believe plain cross-entropy attacks; the verdict does not rest on them."""
        found = []
        if self.blind_cross_entropy > ZERO_SHARE:
            found.append(Reason("cross-entropy has no gradient on {} of images", self.blind_cross_entropy))
        if self.cross_entropy > verdict + GAP:
            missed = self.cross_entropy - verdict
            found.append(Reason("cross-entropy attacks miss {} of images that others break", missed))
        return found


def blind_share(model: Model, images: Tensor, labels: Tensor, loss: str) -> float:
    """Share of images where the loss has a gradient of exactly zero (or none that is a number).

    >>> import torch
    >>> blind_share(lambda images: images.round(), torch.tensor([[0.9, 0.1]]), torch.tensor([0]), "logit_margin")
    1.0
    """
    if not len(images):
        return 0.0
    _, gradients = gradients_of(model, images, lambda logits, rows: LOSSES[loss](logits, labels[rows]))
    seen = (gradients.isfinite() & (gradients != 0)).flatten(1).any(dim=1)
    return float((~seen).double().mean())


def share(alive: Tensor) -> float:
    """Share of images that are alive."""
    return float(alive.double().mean())


def sentence(verdict: float, epsilon: float, norm: str, doubts: list[Reason], fooled: list[Reason]) -> str:
    """What the verdict at one radius is, and what speaks against it.

    >>> sentence(0.5, 0.1, "inf", [], [])
    'At radius 0.1 (norm inf) 50.0% of images stay right; nothing seen speaks against it.'
    """
    said = f"At radius {epsilon:g} (norm {norm}) {verdict:.1%} of images stay right"
    if not doubts and not fooled:
        return f"{said}; nothing seen speaks against it."
    if doubts:
        said += f"; ALARM, gradient attacks are too weak here: {'; '.join(map(str, doubts))}"
    if fooled:
        said += f"; do not read plain attacks as robustness: {'; '.join(map(str, fooled))}"
    return f"{said}."
