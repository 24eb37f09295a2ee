"""Would the classifier be right more often if its images were prepared in another way?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject, right_after
from clearance.audits._samples import first_half, fixed_images
from clearance.audits.linear_probe import PAIRED, paired_interval
from clearance.data import ImageSet
from clearance.models.classifier import Classifier
from clearance.vocabulary import Exhibit, Measurement


@dataclass(frozen=True)
class InputWay:
    """One way to prepare images.

    Args:
        remedy: What to do where it is the right one.
        prepared: Images in [0, 1], (B, C, H, W), to what the module sees.
    """

    name: str
    remedy: str
    prepared: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PreprocessingMismatch(Audit):
    """What the best of the usual ways to prepare images would gain, in place of the one that was asked for.

    A model that was trained elsewhere is only as good as what it is fed. Each of the usual ways (no normalisation,
    mean and std 0.5, those of the training images, ImageNet's, values up to 255, channels in another order) is tried on
    half of the images; the best is then measured on the other half, image by image, and the other way round:

    gain = share right when fed in that way - share right as fed

    Clearly above 0, the model is most likely fed with something else than it was trained on, and no other number
    says anything about it. At or below 0 none of these ways is better, which proves nothing about others.

    Measurements ``gain``, and ``train_gain``, what the way that is best on the test images gains on training images:
    near or below 0, most likely only the test images are prepared otherwise. Both have the adjusted Wald 95 % interval
    of paired differences. The exhibit names the ways with the share of right images, the best first, then the others in
    the order tried, the present one last.

    Args:
        images: At most, but one of every class at least; a class-balanced choice by the seed where there are more.

    Raises:
        ValueError: If a setting is out of range.

    Misleads: size, crop and interpolation are not tried. A broken network may be a little better on what it was
    never meant to see.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = PreprocessingMismatch()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.n) for m in found.measurements]
    [('gain', 60), ('train_gain', 60)]
    """

    name: ClassVar[str] = "preprocessing"
    images: int = 500

    def __post_init__(self) -> None:
        check_count("images", self.images)

    def examine(self, subject: Subject) -> Findings:
        """Try every way on each half, and the best on the other."""
        data = fixed_images(subject.test, self.images, subject.seed)
        known = fixed_images(subject.train, self.images, subject.seed)
        own_images, _ = known.batch(torch.arange(len(known)))
        ways = list(input_ways(subject.model, own_images))
        right = torch.stack([right_when(subject.model, data, way) for way in (*ways, None)]).double()
        half = first_half(data.labels, subject.seed).cpu()
        gained = torch.zeros(len(data), dtype=torch.float64)
        for chosen_on, measured_on in ((half, ~half), (~half, half)):
            best = int(right[:-1, chosen_on].sum(dim=1).argmax())
            gained[measured_on] = (right[best] - right[-1])[measured_on]
        chosen = ways[int(right[:-1].sum(dim=1).argmax())]
        otherwise, as_fed = (right_when(subject.model, known, way).double() for way in (chosen, None))
        found = (self._gain("gain", gained), self._gain("train_gain", otherwise - as_fed))
        return Findings(found, (self._named(ways, right.mean(dim=1)),))

    def _gain(self, name: str, gained: Tensor) -> Measurement:
        value, low, high = paired_interval(gained)
        return Measurement(
            self.name, name, value, "fraction", len(gained), low=low, high=high, better="lower",
            context={"interval": PAIRED},
        )  # fmt: skip

    def _named(self, ways: Sequence[InputWay], shares: Tensor) -> Exhibit:
        best = int(shares[:-1].argmax())
        order = [best, *(k for k in range(len(ways)) if k != best)]
        columns: dict[str, list[Any]] = {
            "way": [*(ways[k].name for k in order), "as it is fed now"],
            "share right": [*(float(shares[k]) for k in order), float(shares[-1])],
            "remedy": [*(ways[k].remedy for k in order), ""],
        }
        caption = (
            "Test images that are right when prepared in other ways. The first has the largest share on these, and its "
            "gain was measured on others."
        )
        return Exhibit(self.name, "ways", "histogram", columns, caption)


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CAFFE = (103.939, 116.779, 123.68)  # mean of blue, green, red in 0..255
_FLIP = "Put a layer in front of the model that turns the channels: x.flip(1)."


def input_ways(model: Classifier, images: Tensor) -> Iterator[InputWay]:
    """The usual ways, other than the model's own, the published ones first: normalisation, values up to 255, colours.

    The model has the normalisation that was asked for. Images are (B, C, H, W), in [0, 1]: their own mean and standard
    deviation are one of the ways, because many scripts take those of their training images.

    >>> from torch import nn
    >>> model = Classifier(nn.Flatten(), nn.Linear(4, 2))
    >>> [way.name for way in input_ways(model, torch.rand(3, 1, 2, 2))]
    ['mean 0.5 and std 0.5', 'values up to 255', "the images' own mean and std"]
    """
    normalised = bool(model.mean.any()) or bool((model.std != 1).any())
    if normalised:
        yield InputWay("no normalisation", "Leave out --mean and --std.", lambda images: images)
    yield InputWay("mean 0.5 and std 0.5", "Give --mean 0.5 --std 0.5.", _normalised([0.5], [0.5]))
    yield InputWay(
        "values up to 255",
        f"Give --mean 0 --std {1 / 255:.9f}, and no other normalisation.",
        lambda images: 255 * images,
    )
    if normalised:
        twice = (model.mean * (1 + model.std)).flatten().tolist(), model.std.square().flatten().tolist()
        yield InputWay(
            "normalised twice",
            "It was trained on images that were normalised before it normalised them: train it without the first, or "
            f"give --mean {_joined(twice[0])} --std {_joined(twice[1])}.",
            _normalised(*twice),
        )
    if images.shape[1] == 3:
        yield from _of_colours(model)
    mean, std = images.mean(dim=(0, 2, 3)).tolist(), images.std(dim=(0, 2, 3)).clamp(min=1e-3).tolist()
    yield InputWay(
        "the images' own mean and std",
        f"Give those of the training script, about --mean {_joined(mean)} --std {_joined(std)}.",
        _normalised(mean, std),
    )


def _of_colours(model: Classifier) -> Iterator[InputWay]:
    def as_given(images: Tensor) -> Tensor:
        return (images - model.mean) / model.std

    numbers = [",".join(map(str, values)) for values in IMAGENET]
    yield InputWay(
        "ImageNet's mean and std", f"Give --mean {numbers[0]} --std {numbers[1]}.", _normalised(*IMAGENET)
    )
    yield InputWay("channels in the order blue, green, red", _FLIP, lambda images: as_given(images).flip(1))
    caffe = _normalised([0.0], [1 / 255])
    yield InputWay(
        "Caffe's input (blue, green, red up to 255 less their mean)",
        f"{_FLIP} Give --mean {','.join(f'{each / 255:.4f}' for each in reversed(_CAFFE))} --std {1 / 255:.9f}.",
        lambda images: caffe(images).flip(1) - torch.tensor(_CAFFE).view(-1, 1, 1).to(images),
    )


def right_when(model: Classifier, data: ImageSet, way: InputWay | None = None) -> Tensor:
    """Which images the model is right on if the module saw what `way` makes of them; (N,) bool, on the CPU.

    It is right on none where it refuses what `way` makes, such as values outside [0, 1].
    """

    def seen(images: Tensor) -> Tensor:
        # undo the model's own normalisation, which comes next
        return images if way is None else way.prepared(images) * model.std + model.mean

    try:
        return right_after(model, data, seen)
    except Exception:
        if way is None:
            raise
        return torch.zeros(len(data), dtype=torch.bool)


def _normalised(mean: Sequence[float], std: Sequence[float]) -> Callable[[Tensor], Tensor]:
    shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return lambda images: (images - shift.to(images)) / scale.to(images)


def _joined(values: Sequence[float]) -> str:
    return ",".join(f"{value:.3f}" for value in values)
