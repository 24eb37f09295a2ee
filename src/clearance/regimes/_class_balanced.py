"""Class-balanced draws of training images, with replacement."""

import torch
from torch import Tensor


class ClassBalancedDraws:
    """Draws of the same number of rows from every class (Sato et al. 2019, Algorithm 1, line 4).

    Raises:
        ValueError: If a class has no image: a weak head would learn to suppress it, and push its features
            away.
    """

    def __init__(self, labels: Tensor, classes: int) -> None:
        counts = torch.bincount(labels, minlength=classes)
        if not bool((counts > 0).all()):
            missing = (counts == 0).nonzero().flatten().tolist()
            raise ValueError(
                f"every class must have an image, because a weak head is trained on all classes; got none of "
                f"class {missing}. Remove these classes, or add images."
            )
        self._order = labels.argsort(stable=True)
        self._counts = counts.cpu()
        self._starts = self._counts.cumsum(0) - self._counts

    def draw(self, heads: int, per_class: int, generator: torch.Generator) -> Tensor:
        """Row numbers, shape (heads, classes * per_class), sorted by class."""
        uniform = torch.rand(heads, len(self._counts), per_class, generator=generator)
        within = (uniform * self._counts[:, None]).long()
        places = (self._starts[:, None] + within).flatten(1)
        return self._order[places.to(self._order.device)]
