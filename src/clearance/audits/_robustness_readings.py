"""What the robustness audit measured, as measurements, a picture and words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clearance.audits._alarm import Signs, sentence, share
from clearance.audits._target import Target
from clearance.audits._verdict import NORM_NAMES
from clearance.audits.accuracy import wilson_interval
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar

AUDIT = "robustness"
WILSON = "wilson 95 %"
DOUBT, FOOLED = "verdict", "plain attacks"  # what a reason speaks against


@dataclass(frozen=True)
class Reading:
    """What was measured at one radius."""

    norm: float
    epsilon: float
    count: int
    verdict: float
    signs: Signs

    def measurements(self) -> Iterator[Measurement]:
        """The verdict first, then what it is to be read beside."""
        yield self._accuracy("robust_accuracy", self.verdict)
        yield self._accuracy("cross_entropy_attack_accuracy", self.signs.cross_entropy)
        yield self._accuracy("noise_accuracy", self.signs.noise)
        if self.signs.transfer is not None:
            yield self._accuracy("transfer_accuracy", self.signs.transfer)
        reasons = len(self.signs.doubts()) + len(self.signs.fooled(self.verdict))
        yield _measured("alarms", reasons, "count", self.count, "lower", self._context())

    def words(self) -> str:
        """The verdict and what speaks against it."""
        doubts, fooled = self.signs.doubts(), self.signs.fooled(self.verdict)
        return sentence(self.verdict, self.epsilon, NORM_NAMES[self.norm], doubts, fooled)

    def _context(self) -> dict[str, Scalar]:
        return {"norm": NORM_NAMES[self.norm], "epsilon": self.epsilon}

    def _accuracy(self, name: str, value: float) -> Measurement:
        low, high = wilson_interval(round(value * self.count), self.count)
        context = {**self._context(), "interval": WILSON}
        return Measurement(
            AUDIT,
            name,
            value,
            "fraction",
            self.count,
            low=low,
            high=high,
            better="higher",
            context=context,
        )


def _measured(
    name: str, value: float, unit: str, n: int, better: Better, context: dict[str, Scalar]
) -> Measurement:
    return Measurement(AUDIT, name, value, unit, n, better=better, context=context)


def zero_gradients(target: Target) -> Iterator[Measurement]:
    """Share of right images without a gradient, for each of two losses."""
    count = max(int(target.right.sum()), 1)
    for loss in ("logit_margin", "cross_entropy"):
        yield _measured("zero_gradients", target.blind(loss), "fraction", count, "lower", {"loss": loss})


def full_radius(target: Target, norm: float, signs: Signs) -> Measurement:
    """What attacks leave that may change everything."""
    context: dict[str, Scalar] = {"norm": NORM_NAMES[norm]}
    count = len(target.labels)
    return _measured("full_radius_accuracy", signs.everything, "fraction", count, "lower", context)


def under_attack(norm: float, target: Target, readings: list[Reading]) -> Exhibit:
    """Accuracies over the radius, with the verdict and the alarm in words."""
    clean = share(target.right)
    columns: dict[str, list[float]] = {
        "radius": [0.0, *(reading.epsilon for reading in readings)],
        "worst case": [clean, *(reading.verdict for reading in readings)],
        "cross-entropy attacks": [clean, *(reading.signs.cross_entropy for reading in readings)],
        "noise": [clean, *(reading.signs.noise for reading in readings)],
    }
    if target.source is not None:
        columns["transfer"] = [clean, *(float(reading.signs.transfer or 0.0) for reading in readings)]
    words = " ".join(reading.words() for reading in readings)
    caption = f"Share of {len(target.labels)} images that stay right within a radius. {words}"
    return Exhibit(AUDIT, "under_attack", "curve", columns, caption, {"norm": NORM_NAMES[norm]})


def alarms(norm: float, readings: list[Reading]) -> tuple[Exhibit, ...]:
    """Every reason that was seen, radius by radius; nothing where there was none."""
    seen = [
        (reading.epsilon, about, reason)
        for reading in readings
        for about, reasons in (
            (DOUBT, reading.signs.doubts()),
            (FOOLED, reading.signs.fooled(reading.verdict)),
        )
        for reason in reasons
    ]
    if not seen:
        return ()
    columns: dict[str, list[Any]] = {
        "radius": [epsilon for epsilon, _, _ in seen],
        "about": [about for _, about, _ in seen],
        "reason": [reason.words for _, _, reason in seen],
        "share": [reason.share for _, _, reason in seen],
    }
    caption = "What speaks against the verdict, or against plain attacks, at each radius."
    return (Exhibit(AUDIT, "alarms", "curve", columns, caption, {"norm": NORM_NAMES[norm]}),)
