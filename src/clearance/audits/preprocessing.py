"""Would the classifier be right more often if its images were prepared in another way?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._fixed_images import fixed_images
from clearance.audits._halves import first_half
from clearance.audits._input_ways import InputWay, input_ways, right_when
from clearance.audits._paired import PAIRED, paired_interval
from clearance.vocabulary import Exhibit, Measurement


@dataclass(frozen=True)
class PreprocessingAudit(Audit):
    """What the best of the usual ways to prepare images would gain, in place of the one that was asked for.

    A model that was trained elsewhere is only as good as what it is fed. Each of the usual ways (no normalisation,
    mean and std 0.5, those of the training images, ImageNet's, values up to 255, channels in another order) is tried on
    half of the images; the best is then measured on the other half, image by image, and the other way round:

    gain = share right when fed in that way - share right as fed

    Clearly above 0, the model is most likely fed with something else than it was trained on, and no other number
    says anything about it. At or below 0 none of these ways is better, which proves nothing about others.

    Measurement ``gain``, with the adjusted Wald 95 % interval of paired differences. The exhibit names the ways with
    the share of right images, the best first, then the others in the order tried, the present one last.

    Args:
        images: At most; a class-balanced choice by the seed where there are more.

    Misleads: size, crop and interpolation are not tried. A broken network may be a little better on what it was
    never meant to see.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = PreprocessingAudit()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.n) for m in found.measurements]
    [('gain', 60)]
    """

    name: ClassVar[str] = "preprocessing"
    question: ClassVar[str] = "Would it be right more often if its images were prepared in another way?"
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
        gain, low, high = paired_interval(gained)
        told = Measurement(
            self.name, "gain", gain, "fraction", len(data), low=low, high=high, better="lower",
            context={"interval": PAIRED},
        )  # fmt: skip
        return Findings((told,), (self._named(ways, right.mean(dim=1)),))

    def _named(self, ways: Sequence[InputWay], shares: Tensor) -> Exhibit:
        best = int(shares[:-1].argmax())
        order = [best, *(k for k in range(len(ways)) if k != best)]
        columns: dict[str, list[Any]] = {
            "way": [*(ways[k].name for k in order), "as it is fed now"],
            "share right": [*(float(shares[k]) for k in order), float(shares[-1])],
            "remedy": [*(ways[k].remedy for k in order), ""],
        }
        caption = (
            "Test images that are right when prepared in other ways; the first was chosen on other images."
        )
        return Exhibit(self.name, "ways", "histogram", columns, caption)
