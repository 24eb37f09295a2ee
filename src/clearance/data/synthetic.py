"""Gaussian classes with known means: images and features with exactly known statistics."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._rng import generator
from clearance.data.image_set import ImageSet


@dataclass(frozen=True)
class GaussianClasses:
    r"""K classes of isotropic Gaussian images, their means pairwise equally far apart.

    Images of class k are drawn from N(mean_k, noise^2 I), mean_k = 1/2 + separation * noise / sqrt(2) * u_k.
    The u_k are orthonormal: u_k is constant on the pixels whose number is k modulo K and 0 elsewhere, so the true
    means follow from the settings without random numbers or linear algebra.

    Args:
        class_count: K, from 2 to the number of pixels.
        shape: (C, H, W) of one image.
        separation: Distance between any two means, in standard deviations; above 0.
        noise: Standard deviation of every pixel, in [0, 1] units; above 0.

    Raises:
        ValueError: If a setting is out of range, or values 5 standard deviations from a mean leave [0, 1].

    >>> world = GaussianClasses(class_count=2, separation=2.0)
    >>> world.images(per_class=10, seed=0)
    ImageSet('gaussian', 20 images of shape (1, 8, 8), 2 classes)
    """

    class_count: int = 3
    shape: tuple[int, int, int] = (1, 8, 8)
    separation: float = 6.0
    noise: float = 0.05

    def __post_init__(self) -> None:
        check_count("class_count", self.class_count, minimum=2)
        check_positive("separation", self.separation)
        check_positive("noise", self.noise)
        if self.class_count > math.prod(self.shape):
            raise ValueError(
                f"`class_count` must not exceed the {math.prod(self.shape)} pixels of an image because the "
                f"means are orthogonal; got {self.class_count}; ask for fewer classes or larger images."
            )
        reach = float((self.means() - 0.5).max()) + 5 * self.noise
        if reach > 0.5:
            raise ValueError(
                f"`noise` must keep 5 standard deviations around the means within [0, 1]; got {self.noise} "
                f"with `separation` {self.separation}, which reach {0.5 + reach:.3g}; lower one of them."
            )

    def means(self) -> Tensor:
        """The class means, shape (K, C, H, W), float64."""
        pixels = math.prod(self.shape)
        owner = torch.arange(pixels) % self.class_count
        pattern = (owner == torch.arange(self.class_count)[:, None]).double()
        directions = pattern / pattern.norm(dim=1, keepdim=True)
        means = 0.5 + self.separation * self.noise / math.sqrt(2) * directions
        return means.view(self.class_count, *self.shape)

    def features(self, per_class: int, seed: int) -> tuple[Tensor, Tensor]:
        """Exact draws as rows, (N, D) float32 with D = C H W, and their labels (N,), class after class.

        >>> features, labels = GaussianClasses().features(per_class=5, seed=0)
        >>> features.shape, labels.shape
        (torch.Size([15, 64]), torch.Size([15]))
        """
        check_count("per_class", per_class)
        labels = torch.arange(self.class_count).repeat_interleave(per_class)
        stream = generator(seed, "data", "gaussian")
        drawn = torch.randn(len(labels), math.prod(self.shape), generator=stream, dtype=torch.float32)
        return self.means().float().flatten(1)[labels] + self.noise * drawn, labels

    def images(self, per_class: int, seed: int) -> ImageSet:
        """The same draws as an ImageSet, clipped to [0, 1] (fewer than one value in a million changes)."""
        features, labels = self.features(per_class, seed)
        images = features.clamp_(0, 1).view(-1, *self.shape)
        return ImageSet(images, labels, tuple(str(k) for k in range(self.class_count)), name="gaussian")


def gaussian_images(
    class_count: int = 3, per_class: int = 20, shape: tuple[int, int, int] = (1, 8, 8), seed: int = 0
) -> ImageSet:
    """A small easy ImageSet for examples and tests: GaussianClasses, otherwise at its defaults.

    Args:
        class_count: At least 2.
        per_class: Images of each class, at least 1.
        shape: (C, H, W) of an image.
        seed: Decides the images; the classes are the same under every seed.

    >>> gaussian_images(class_count=2, per_class=4)
    ImageSet('gaussian', 8 images of shape (1, 8, 8), 2 classes)
    """
    return GaussianClasses(class_count, shape).images(per_class, seed)
