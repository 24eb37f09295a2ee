"""How accurate is the classifier on images with common corruptions?"""

import io
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from clearance._checks import check_count
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject, right_after, share_of
from clearance.audits._samples import fixed_images
from clearance.data import ImageSet
from clearance.data.image_set import GREY
from clearance.records.summary import Z_95
from clearance.vocabulary import Exhibit, Measurement, Scalar

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """One kind of change at five severities.

    Args:
        strengths: One for each severity, from 1 to 5.
        said: A strength in words, with ``{}`` for the number.
        apply: Takes images in [0, 1], (N, C, H, W), on the CPU, a strength and a stream of random numbers.
        colours: Whether it needs three channels.
    """

    strengths: tuple[float, float, float, float, float]
    said: str
    apply: Callable[[Tensor, float, torch.Generator], Tensor]
    colours: bool = False


def _noise(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    # image by image: how torch draws many numbers at once depends on how many
    drawn = [torch.randn(image.shape, generator=stream, dtype=torch.float32) for image in images]
    return images + strength * torch.stack(drawn)


def _blur(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    del stream
    width = strength * max(images.shape[2:]) / 32
    return torch.from_numpy(gaussian_filter(images.numpy(), (0, 0, width, width), mode="nearest"))


def _brightness(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    """The value of HSV is raised: hue and saturation stay."""
    del stream
    value = images.amax(dim=1, keepdim=True)
    raised = (value + strength).clamp(max=1)
    return torch.where(value > 0, images * raised / value.clamp(min=1e-6), raised)


def _contrast(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    del stream
    mean = images.mean(dim=(2, 3), keepdim=True)
    return mean + strength * (images - mean)


def _jpeg(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    del stream
    found = []
    for image in images:
        pixels = (255 * image).round().to(torch.uint8).permute(1, 2, 0).numpy()
        colour = pixels.shape[2] == 3
        pictures = [pixels] if colour else [pixels[:, :, k] for k in range(pixels.shape[2])]
        again = torch.stack([_saved_as_jpeg(picture, int(strength)) for picture in pictures])
        found.append(again[0].permute(2, 0, 1) if colour else again)
    return torch.stack(found)


def _saved_as_jpeg(picture: NDArray[np.uint8], quality: int) -> Tensor:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(file), dtype=np.float32) / 255)


def _pixelate(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    del stream
    height, width = images.shape[2:]
    small, box = (max(1, int(strength * width)), max(1, int(strength * height))), Image.Resampling.BOX
    channels = [Image.fromarray(channel) for channel in images.flatten(0, 1).numpy()]
    found = [np.array(one.resize(small, box).resize((width, height), box)) for one in channels]
    return torch.from_numpy(np.stack(found)).reshape(images.shape)


def _grey(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    del stream
    grey = (images * torch.tensor(GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)
    return images + strength * (grey - images)


def _rotation(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    angle = math.radians(strength) * _signs(len(images), stream)
    height, width = images.shape[2:]
    cosine, sine, still = angle.cos(), angle.sin(), torch.zeros(len(images))
    rows = [[cosine, -sine * height / width, still], [sine * width / height, cosine, still]]
    return _moved(images, torch.stack([torch.stack(row, dim=1) for row in rows], dim=1))


def _shift(images: Tensor, strength: float, stream: torch.Generator) -> Tensor:
    turn = 2 * math.pi * torch.rand(len(images), generator=stream, dtype=torch.float32)
    pixels = strength * torch.tensor(images.shape[2:]).amin()
    step = 2 * pixels / torch.tensor(images.shape[2:]).flip(0)  # in units of the grid, in x and y
    still = torch.eye(2).expand(len(images), 2, 2)
    return _moved(
        images, torch.cat([still, (step * torch.stack([turn.cos(), turn.sin()], dim=1))[:, :, None]], dim=2)
    )


def _signs(count: int, stream: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, (count,), generator=stream) - 1


def _moved(images: Tensor, matrices: Tensor) -> Tensor:
    """Bilinear; what comes in from outside repeats the border."""
    grid = affine_grid(matrices.to(images.dtype), list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


CORRUPTIONS: Mapping[str, Corruption] = {
    "noise": Corruption((0.04, 0.06, 0.08, 0.09, 0.10), "standard deviation {}", _noise),
    "blur": Corruption((0.4, 0.6, 0.7, 0.8, 1.0), "standard deviation {} pixels at 32", _blur),
    "brightness": Corruption((0.05, 0.1, 0.15, 0.2, 0.3), "value raised by {}", _brightness),
    "contrast": Corruption((0.75, 0.5, 0.4, 0.3, 0.15), "x{}", _contrast),
    "JPEG": Corruption((80, 65, 58, 50, 40), "quality {:g}", _jpeg),
    "pixelation": Corruption((0.95, 0.9, 0.85, 0.75, 0.65), "{} of the side", _pixelate),
    "grey": Corruption((0.2, 0.4, 0.6, 0.8, 1.0), "{:.0%} of the colour removed", _grey, colours=True),
    "rotation": Corruption((2, 4, 8, 12, 16), "{:g} degrees", _rotation),
    "shift": Corruption((1 / 32, 2 / 32, 3 / 32, 4 / 32, 6 / 32), "{:.1%} of the side", _shift),
}
"""Noise, blur, brightness, contrast, JPEG and pixelation: CIFAR-10-C's, for images of 32 pixels. The others: here."""


@dataclass(frozen=True)
class CommonCorruptions(Audit):
    """The error on corrupted test images: nine corruptions at five severities, with the error on the same clean images.

    mean error = mean over corruptions and severities of the error on images with that corruption

    Noise, blur, brightness, contrast, JPEG and pixelation have the definitions and severities of CIFAR-10-C, the
    set for small images of Hendrycks and Dietterich; its blur, in pixels, grows with the image's side. Three more
    are defined here: grey (colours mixed with their grey), rotation to either side, and a shift in any direction,
    whose borders repeat the edge.

    Source: Hendrycks and Dietterich, *Benchmarking Neural Network Robustness to Common Corruptions and Perturbations*
    (2019). Their mean corruption error divides each error by AlexNet's; for small images
    they, too, give the plain mean.

    Measurements: ``error`` by ``corruption`` and ``severity`` ("none" and 0 for the clean images) with a 95 %
    Wilson interval; ``mean_error`` with a 95 % interval over images (Wilson's if all images have the same). Exhibits:
    ``curves``, accuracy by severity, and ``strengths``, a table of each corruption and severity with its strength and
    accuracy.

    Args:
        images: At most, of the test images, but one of every class at least; a class-balanced choice by the seed. Each
            goes forward 46 times (41 without colours).

    Raises:
        ValueError: If a setting is out of range.

    Misleads as a promise for other corruptions, and in a comparison with published numbers: those are of all 10,000
    test images and 15 or 19 corruptions. On images much larger than 32 pixels these noises and JPEG qualities are
    mild.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = CommonCorruptions(images=30)(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> len([m for m in found.measurements if m.name == "error"])  # grey needs colours
    41
    """

    name: ClassVar[str] = "common_corruptions"
    images: int = 200

    def __post_init__(self) -> None:
        check_count("images", self.images)

    def examine(self, subject: Subject) -> Findings:
        """Corrupt the same images in every way, and count errors."""
        data = fixed_images(subject.test, self.images, subject.seed)
        wrong = {("none", 0): ~right_after(subject.model, data, lambda images: images)}
        names = [name for name, one in CORRUPTIONS.items() if data.shape[0] == 3 or not one.colours]
        for done, (name, severity) in enumerate(itertools.product(names, SEVERITIES), start=1):
            wrong[name, severity] = self._wrong(subject, data, name, severity)
            subject.progress(done, len(names) * len(SEVERITIES))
        corrupted = torch.stack([found for key, found in wrong.items() if key[1]]).double().mean(dim=0)
        return Findings(
            (*(self._error(*key, found) for key, found in wrong.items()), self._mean(corrupted)),
            (self._curves(wrong), self._strengths(wrong)),
        )

    def _wrong(self, subject: Subject, data: ImageSet, name: str, severity: int) -> Tensor:
        corruption, stream = (
            CORRUPTIONS[name],
            generator(subject.seed, "audits", "corruption", name, severity),
        )
        strength = corruption.strengths[severity - 1]
        return ~right_after(
            subject.model, data, lambda images: corruption.apply(images.cpu(), strength, stream).clamp(0, 1)
        )

    def _error(self, name: str, severity: int, wrong: Tensor) -> Measurement:
        context: dict[str, Scalar] = {"corruption": name, "severity": severity}
        return share_of(self.name, "error", int(wrong.sum()), len(wrong), "lower", context)

    def _mean(self, shares: Tensor) -> Measurement:
        # after Agresti and Coull: so many images more that are wrong under every change, and as many that are right
        more = Z_95**2 / 2
        count = len(shares) + 2 * more
        centre = (float(shares.sum()) + more) / count
        half = Z_95 * math.sqrt(((float(shares.square().sum()) + more) / count - centre**2) / count)
        return Measurement(
            self.name, "mean_error", float(shares.mean()), "fraction", len(shares),
            low=max(0.0, centre - half), high=min(1.0, centre + half), better="lower",
            context={"interval": "adjusted normal 95 % over images"},
        )  # fmt: skip

    def _curves(self, wrong: Mapping[tuple[str, int], Tensor]) -> Exhibit:
        columns: dict[str, list[Any]] = {"severity": [0, *SEVERITIES]}
        for name in dict.fromkeys(name for name, severity in wrong if severity):
            chosen = [wrong["none", 0], *(wrong[name, severity] for severity in SEVERITIES)]
            columns[name] = [1 - float(found.double().mean()) for found in chosen]
        caption = "Accuracy on corrupted images at each severity; severity 0 are the same images without corruption."
        return Exhibit(self.name, "curves", "curve", columns, caption)

    def _strengths(self, wrong: Mapping[tuple[str, int], Tensor]) -> Exhibit:
        rows = [
            (name, severity, 1 - float(found.double().mean()))
            for (name, severity), found in wrong.items()
            if severity
        ]
        columns: dict[str, list[Any]] = {
            "corruption": [name for name, _, _ in rows],
            "severity": [severity for _, severity, _ in rows],
            "strength": [strength_in_words(name, severity) for name, severity, _ in rows],
            "accuracy": [accuracy for _, _, accuracy in rows],
        }
        return Exhibit(
            self.name, "strengths", "table", columns, "Accuracy by corruption, severity and strength."
        )


def strength_in_words(name: str, severity: int) -> str:
    """What a corruption does at a severity.

    >>> strength_in_words("contrast", 2), strength_in_words("JPEG", 1)
    ('x0.5', 'quality 80')
    """
    return CORRUPTIONS[name].said.format(CORRUPTIONS[name].strengths[severity - 1]).replace("%", " %")
