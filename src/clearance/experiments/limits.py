"""What bounds an audit: how many test images attacks look at, and until when audits may start."""

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearance._checks import check_count, check_positive
from clearance.audits import Audit
from clearance.data import ImageSet

IMAGES = "images"  # the setting of audits that look at test images one by one
_FEWER = ("searched", "adaptive_images")  # settings of the same kind that are below it by default
_OTHERS = ("unknowns",)  # whose `images` are not test images
_UNITS = {"h": 3600, "m": 60, "s": 1}


@dataclass
class Budget:
    """So many seconds from now on.

    Args:
        seconds: Above 0.
        clock: What tells the time, in seconds.

    >>> times = iter([0.0, 20.0, 60.0])
    >>> budget = Budget(60.0, clock=lambda: next(times))
    >>> budget.is_spent, budget.is_spent
    (False, True)
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        check_positive("budget", self.seconds)
        self.began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.began

    @property
    def is_spent(self) -> bool:
        """Whether nothing may start any more."""
        return self.spent >= self.seconds


@dataclass(frozen=True)
class Limits:
    """What bounds an audit, and what its page may show.

    Args:
        images: Test images that attacks and the like look at, at most; None leaves each its own number.
        budget: Until when audits may start; None is no end.
        keep: Whether what is done is kept when somebody interrupts.
        include_images: Whether pictures of the images themselves may be shown.
    """

    images: int | None = None
    budget: Budget | None = None
    keep: bool = False
    include_images: bool = False


def seconds_of(text: str | float) -> float:
    """A time as people write it: ``"90s"``, ``"5m"``, ``"2h"``, ``"1h30m"``; a number is seconds.

    Raises:
        ValueError: If it is none, or not above 0.

    >>> seconds_of("90s"), seconds_of("1h30m"), seconds_of(2.5)
    (90.0, 5400.0, 2.5)
    """
    if isinstance(text, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text.strip().lower())
        if not parts or "".join(map("".join, parts)) != text.strip().lower():
            raise ValueError(f"`budget` must be a time such as 90s, 5m, 2h or 1h30m; got {text!r}.")
        text = sum(float(number) * _UNITS[unit] for number, unit in parts)
    check_positive("budget", text)
    return float(text)


def with_images(audits: Sequence[Audit], images: int | None, test: ImageSet) -> list[Audit]:
    """The audits, those that look at test images one by one with so many of them, equally many of each class.

    Raises:
        ValueError: If there would not be one image of each class.

    >>> from clearance.audits import Accuracy, FlipSize
    >>> from clearance.data import gaussian_images
    >>> with_images([Accuracy(), FlipSize()], 12, gaussian_images())[1].images
    12
    """
    if images is None:
        return list(audits)
    check_count(IMAGES, images)
    if images < test.class_count:
        raise ValueError(
            f"`images` must be at least the number of classes, {test.class_count}: one image of each; got {images}."
        )
    return [_with_images(audit, images) for audit in audits]


def _with_images(audit: Audit, images: int) -> Audit:
    if not hasattr(audit, IMAGES) or audit.name in _OTHERS:
        return audit
    given: dict[str, Any] = {IMAGES: images}
    given |= {name: min(images, getattr(audit, name)) for name in _FEWER if hasattr(audit, name)}
    return dataclasses.replace(audit, **given)  # type: ignore[type-var]  # every audit is a dataclass


def looked_at(audits: Sequence[Audit], test: ImageSet) -> dict[str, int]:
    """How many test images each audit looks at that does not look at all of them.

    >>> from clearance.audits import Accuracy, FlipSize
    >>> from clearance.data import gaussian_images
    >>> looked_at([Accuracy(), FlipSize(images=12)], gaussian_images(class_count=3, per_class=20))
    {'flip_size': 12}
    """
    found = {}
    for audit in audits:
        limit = getattr(audit, IMAGES, None)
        if isinstance(limit, int) and audit.name not in _OTHERS and limit < len(test):
            found[audit.name] = limit
    return found


def told_of_images(audits: Sequence[Audit], test: ImageSet) -> dict[str, Any]:
    """What a report says about audits that do not look at all test images; nothing where all do."""
    fewer = looked_at(audits, test)
    return {"looked_at": {"images": len(test), "audits": fewer}} if fewer else {}
