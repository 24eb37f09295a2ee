"""How long the gradients of an image's gaps probably are, from those of other images and its own that are known."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.objectives._class_pairs import wide
from clearance.objectives._margin_layers import affine_weight
from clearance.tensors import Head

PRIOR = 5  # images of an ordinary pair that every pair of classes is taken to have had besides its own


@dataclass(frozen=True)
class PairNorms:
    r"""A forecast of gradient norms: typical for the pair of classes, longer or shorter as the image's others are.

    log n_j = log a_j + t_{y j} + s + e_j,   s ~ N(0, common),   e_j ~ N(0, own)

    n_j is the norm of the gradient of z_y - z_j in the image, and a_j something cheap that goes along with it
    (:func:`alive_norms`). Two numbers say all about how images differ, so a few hundred images are enough. Norms of one
    image that are known shift its s, in closed form, and so make the others surer.

    Args:
        typical: t, (C, C).
        common: Variance of what the norms of one image share.
        own: Variance of what each has for itself.
    """

    typical: Tensor
    common: float
    own: float

    @classmethod
    def fit(cls, ratios: Tensor, labels: Tensor, rivals: Tensor, classes: int) -> "PairNorms":
        """From images with all norms known.

        Every image is held against the others alone, so that few images of a pair do not make it look surer than it is.

        Args:
            ratios: log n - log a, (B, k), finite.
            labels: (B,).
            rivals: Which class each column is, (B, k).
            classes: C.
        """
        pairs = (labels.unsqueeze(1) * classes + rivals).flatten()
        flat = ratios.double().flatten()
        count = torch.bincount(pairs, minlength=classes**2).double() + PRIOR
        total = torch.bincount(pairs, weights=flat, minlength=classes**2) + PRIOR * flat.mean()
        typical = total / count
        left = ((flat - typical[pairs]) * count[pairs] / (count[pairs] - 1)).view_as(ratios)
        own = float(left.var(dim=1).mean()) if left.shape[1] > 1 else 0.0
        common = float(left.mean(dim=1).square().mean()) - own / left.shape[1]
        return cls(typical.view(classes, classes), max(common, 0.0), max(own, 1e-12))

    def forecast(self, known: Tensor, labels: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of log n - log a for every rival, given those that are known.

        Args:
            known: log n - log a, (B, k); NaN where it is not known yet.
            labels: (B,).
            rivals: (B, k).

        Returns:
            (B, k), and (B, 1): all unknown norms of an image are equally sure.
        """
        typical = self.typical[labels.unsqueeze(1), rivals]
        seen = ~known.isnan()
        surprise = torch.where(seen, known - typical, 0.0).sum(dim=1, keepdim=True)
        weight = self.own + self.common * seen.sum(dim=1, keepdim=True)
        mean = typical + self.common * surprise / weight
        return mean, (self.own * (1 + self.common / weight)).sqrt()


def chance_nearer(gaps: Tensor, logs: Tensor, deviation: Tensor, best: Tensor) -> Tensor:
    """The chance that a rival of forecast norm is nearer than the nearest known, P(gap / n < best).

    Args:
        gaps: z_y - z_j, (B, k).
        logs: Expected log n, (B, k).
        deviation: Of log n, broadcast over them.
        best: Signed distance of the nearest that is known, (B,); infinite of none.

    Returns:
        (B, k). A rival that is ahead of the label is nearer than all that are not, whatever its norm.

    >>> gaps, best = torch.tensor([[1.0, 2.0, -1.0]]), torch.tensor([1.0])
    >>> chance_nearer(gaps, torch.zeros(1, 3), torch.tensor([[0.5]]), best).round(decimals=2)
    tensor([[0.5000, 0.0800, 1.0000]])
    """
    nearest = best.unsqueeze(1)
    same_side = ((gaps > 0) == (nearest > 0)) & (nearest != 0)
    ratio = (gaps / torch.where(nearest == 0, 1.0, nearest)).abs().log() - logs  # expected distance over best
    towards = torch.where(nearest > 0, -ratio, ratio)
    chance = torch.special.ndtr(towards / deviation)
    return torch.where(same_side, chance, (gaps < nearest).to(chance))


def alive_norms(head: Head, features: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    """The norm of (w_y - w_j) over the features of an image that are not 0, (B, k); 1 under a head not linear.

    What follows a rectifier and is 0 passes no gradient on, so this is the gap's gradient one layer further back
    than the head, without a sweep. All lengths of all pairs are two matrix products.
    """
    weight = affine_weight(head)
    if weight is None:
        return torch.ones_like(rivals, dtype=torch.float32)
    rows = wide(weight.detach())
    alive = (features.detach() != 0).to(rows.dtype)
    squares = alive @ rows.square().mT
    own = labels.unsqueeze(1)
    products = ((alive * rows[labels]) @ rows.mT).gather(1, rivals)
    found = squares.gather(1, own) + squares.gather(1, rivals) - 2 * products
    return torch.where(found > 0, found, 1.0).sqrt()
