"""How much each audit has to do, counted before it is done: for a budget, which needs no more than the right order."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clearance.audits import Audit, Subject
from clearance.audits.co_adaptation import head_training
from clearance.audits.geodesic import fisher_rows
from clearance.data import ImageSet

_TURNS = 60  # passes that the search for the nearest wrong image makes beside its steps
_INPUT_WAYS = 9  # of preparing an image, the present one among them
_WHITE_BOX, _STARTS = 7, 2  # attacks at a radius, and how often most of them start


@dataclass(frozen=True)
class Work:
    """What takes time.

    Args:
        passes: Images through the whole network.
        gradients: Images there and back.
        steps: Updates of fresh heads, whatever their size.
        sums: Multiplications with additions, on features that are there.
    """

    passes: float = 0.0
    gradients: float = 0.0
    steps: float = 0.0
    sums: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


@dataclass(frozen=True)
class Sizes:
    """What the work depends on: numbers of images and classes, width of the features, pixels of an image."""

    train: int
    test: int
    classes: int
    width: int
    pixels: int

    @classmethod
    def of(cls, subject: Subject, width: int) -> "Sizes":
        """Of a subject whose features are so wide."""
        return cls(
            len(subject.train), len(subject.test), subject.classes, width, math.prod(subject.test.shape)
        )


def work_of(audit: Audit, sizes: Sizes) -> Work:
    """The work of one audit where the features of all images are there already.

    An audit that is not on the list counts as one look at all features.

    >>> from clearance.audits import Accuracy, MinimalPerturbation
    >>> sizes = Sizes(train=1000, test=500, classes=10, width=64, pixels=64)
    >>> work_of(Accuracy(), sizes)
    Work(passes=0.0, gradients=0.0, steps=0.0, sums=960000.0)
    >>> work_of(MinimalPerturbation(images=100, steps=50, queries=100), sizes).gradients
    5000.0
    """
    looks: Work = Work(sums=1.0 * (sizes.train + sizes.test) * sizes.width * sizes.classes)
    counted = WORK.get(audit.name)
    return looks if counted is None else looks + counted(audit, sizes)


def _heads(sizes: Sizes, images: int, heads: int, hidden: tuple[int, ...], **training: Any) -> Work:
    """So many fresh heads, trained together on so many images and asked about every test image."""
    how = head_training(images, 0.03, **training)
    batch = min(images, 128)
    widths = (*hidden, sizes.classes)
    inner = sum(first * second for first, second in itertools.pairwise(widths))
    learnt = min(sizes.width, batch) * widths[0] + inner  # small batches learn in Gram space
    asked = sizes.width * widths[0] + inner
    sums = heads * (3.0 * how.steps * batch * learnt + sizes.test * asked)
    return Work(steps=how.steps, sums=sums)


def _partial(audit: Any, sizes: Sizes, repetitions: tuple[int, ...], hidden: tuple[int, ...]) -> Work:
    """Heads on every size of partial set that is smaller than the training set."""
    total = Work()
    for per_class, draws in zip(audit.per_class, repetitions, strict=True):
        if per_class * sizes.classes < sizes.train:
            total += _heads(sizes, per_class * sizes.classes, draws, hidden)
    return total


def _co_adaptation(audit: Any, sizes: Sizes) -> Work:
    total = Work()
    for hidden in (audit.hidden, ()):
        total += _partial(audit, sizes, audit.repetitions, hidden)
        if audit.all_images:
            total += _heads(sizes, sizes.train, 1, hidden)
    for per_class, draws in zip(audit.per_class, audit.repetitions, strict=True):
        images = per_class * sizes.classes
        if images < sizes.train:
            widths = sizes.width * (images <= audit.neighbour_limit) + sizes.pixels * (
                images <= audit.pixel_limit
            )
            total += Work(sums=1.0 * draws * images * sizes.test * widths)
    return total


def _deeper_cut(audit: Any, sizes: Sizes) -> Work:
    return _co_adaptation(audit, sizes) + Work(passes=sizes.train + sizes.test)


def _refit(audit: Any, sizes: Sizes) -> Work:
    return _heads(sizes, sizes.train, audit.heads, ())


def _neural_collapse(audit: Any, sizes: Sizes) -> Work:
    return Work(sums=_square(sizes)) + _heads(sizes, sizes.train, audit.heads, ())


def _churn(audit: Any, sizes: Sizes) -> Work:
    twice = (2 * audit.heads,) * len(audit.per_class)
    whole = _heads(sizes, sizes.train, audit.heads, audit.hidden) if audit.all_images else Work()
    return _partial(audit, sizes, twice, audit.hidden) + whole


def _geodesic(audit: Any, sizes: Sizes) -> Work:
    ends = _heads(sizes, sizes.train, 1, audit.hidden)
    few = _heads(sizes, sizes.classes, audit.repetitions, audit.hidden)
    widths = (sizes.width, *audit.hidden, sizes.classes)
    weights = sum(first * second for first, second in itertools.pairwise(widths))
    seen = len(fisher_rows(sizes.train, 0)) * audit.segments * audit.repetitions
    return _times(len(audit.readings), ends + few) + Work(
        sums=4.0 * (len(audit.readings) + 1) * seen * weights
    )


def _unknowns(audit: Any, sizes: Sizes) -> Work:
    other = audit.other
    if not isinstance(other, ImageSet):
        return Work()
    count = min(audit.images, len(other))
    near = (sizes.test + count) * min(audit.reference, sizes.train) * sizes.width
    return Work(passes=count, sums=1.0 * near)


def _flip_size(audit: Any, sizes: Sizes) -> Work:
    images = min(audit.images, sizes.test)
    return Work(passes=images * (audit.queries / 2 + _TURNS), gradients=float(images * audit.steps))


def _robustness(audit: Any, sizes: Sizes) -> Work:
    images = min(audit.images, sizes.test)
    radii = len(audit.inf) + len(audit.two) + len(audit.one)
    return Work(gradients=1.0 * images * radii * audit.steps * _WHITE_BOX * _STARTS)


def _boundary_distance(audit: Any, sizes: Sizes) -> Work:
    images, searched = min(audit.images, sizes.test), min(audit.searched, sizes.test)
    rivals = sizes.classes - 1 if audit.rivals is None else audit.rivals
    first = 2.0 * images * rivals * len(audit.norms)
    return Work(
        passes=len(audit.norms) * searched * _TURNS,
        gradients=first + len(audit.norms) * searched * audit.steps,
    )


def _sure_mistakes(audit: Any, sizes: Sizes) -> Work:
    images = min(audit.images, sizes.test)
    # most images arrive early
    return Work(passes=1.0 * images * _TURNS, gradients=images * (audit.steps / 4 + audit.search))


def _likelihood(audit: Any, sizes: Sizes) -> Work:
    images, few = min(audit.images, sizes.test // 2), min(audit.adaptive_images, sizes.test // 2)
    plain = images * (1 + audit.steps)
    tries = (len(audit.betas) + 1) * (1 + audit.targets) * audit.adaptive_steps * len(audit.adaptive)
    return Work(
        gradients=1.0 * len(audit.epsilons) * (plain + few * tries), sums=_square(sizes) + sizes.width**3
    )


def _square(sizes: Sizes) -> float:
    return 1.0 * (sizes.train + sizes.test) * sizes.width**2


def _times(count: int, work: Work) -> Work:
    return Work(*(count * getattr(work, name) for name in vars(work)))


WORK: Mapping[str, Callable[[Any, Sizes], Work]] = {
    "co_adaptation": _co_adaptation,
    "deeper_cut": _deeper_cut,
    "preprocessing": lambda audit, sizes: Work(passes=_INPUT_WAYS * min(audit.images, sizes.test)),
    "linear_probe": _refit,
    "neural_collapse": _neural_collapse,
    "low_dimension": lambda _, sizes: Work(sums=_square(sizes) + 10.0 * sizes.width**3),
    "goodness_of_fit": lambda _, sizes: Work(sums=_square(sizes)),
    "churn": _churn,
    "geodesic": _geodesic,
    "out_of_distribution": _unknowns,
    "minimal_perturbation": _flip_size,
    "robustness": _robustness,
    "boundary_distance": _boundary_distance,
    "high_confidence_adversarials": _sure_mistakes,
    "likelihood": _likelihood,
    "weight_scale": lambda audit, sizes: Work(
        passes=min(audit.images, sizes.test) + min(audit.images, sizes.train)
    ),
}
