"""How many images stay right under attacks that the scale of the logits cannot fool?"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance.attacks.attack import AnyAttack, Attack, check_radius
from clearance.attacks.gradient import FGSM, PGD
from clearance.attacks.queries import NoGradientWarning
from clearance.attacks.square import SquareSearch
from clearance.attacks.straight_through import straight_through
from clearance.attacks.transfer import transferred
from clearance.audits._attacked import Target, share
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._samples import fixed_images
from clearance.audits.accuracy import wilson_interval
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Better, Bounds, Exhibit, Measurement, Scalar

NORMS = {"inf": math.inf, "two": 2.0, "one": 1.0}


@dataclass(frozen=True)
class Reason:
    """Something that speaks against a number: words with a gap for a share, and the share.

    >>> str(Reason("{} of images have no gradient", 0.25))
    '25.0% of images have no gradient'
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
        everything: Under gradient attacks whose radius reaches every possible image.
        blind: Share of right images where the logit margin has no gradient.
        blind_cross_entropy: Where cross-entropy has none.
        transfer: Accuracy under images made on another network; None if there is none.
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
            found.append(Reason("{} of images have no gradient", self.blind))
        if self.noise < self.white_box - SLACK:
            found.append(Reason("random noise leaves {} right, less than gradient attacks do", self.noise))
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


@dataclass(frozen=True)
class Reading:
    """What was measured at one radius."""

    norm: float
    epsilon: float
    count: int
    verdict: float
    signs: Signs

    def measurements(self) -> Iterator[Measurement]:
        """The verdict first, then what to compare it with."""
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


@dataclass(frozen=True)
class Robustness(Audit):
    r"""Accuracy under attack: the worst case, image by image, over attacks that ignore the scale of logits.

    robust_accuracy = share of images right before and after every attack in the ball ||x' - x||_p <= epsilon

    The attacks, cheap ones first, each on what the ones before left: FGSM, then PGD of 40 steps from the image and
    4 random points, both on the logit margin, on cross-entropy in units of the sample's own logits, and on the
    difference-of-logits ratio; the margin once more steered at each of the 3 nearest rivals; images made on
    `source`, where one is given. Where the network rounds or detaches, all of these once more with gradients that pass
    there; then, and where gradients are in doubt, a square search of 1,000 queries. An image broken within a smaller
    radius is broken within a larger one.

    Logits times a constant are the same classifier, and get the same verdict. Plain cross-entropy attacks do
    not: their gradient vanishes where logits are large. Their accuracy is shown with the verdict.

    Source: Croce and Hein (2020) for the worst case over several attacks; Carlini et al., *On Evaluating
    Adversarial Robustness* (2019), for the signs of a weak one; Athalye, Carlini and Wagner (2018) for rounding.

    Measurements, for each ``norm`` and ``epsilon``: ``robust_accuracy`` and ``cross_entropy_attack_accuracy``
    (FGSM and PGD from the image) with 95 % Wilson intervals, ``noise_accuracy`` (one uniform draw from the
    ball), ``transfer_accuracy`` where there is a source, ``alarms`` (reasons to doubt the gradient attacks, or to
    disbelieve the plain ones). For each norm ``full_radius_accuracy``: the radius reaches every image there
    is, so anything much above 0 says that the attack is stuck. For each ``loss`` ``zero_gradients``: share of
    right images without a gradient. Exhibit ``under_attack`` for each norm: these over the radius, and the
    alarm in words in its caption. Exhibit ``alarms`` where there are any: a row for each reason.

    Args:
        inf: Radii in norm inf, in pixel units, ascending, each above 0; 0.1 and 0.3 are those of MNIST (Madry
            et al. 2018). They are far too large for photographs, where 8 / 255 is usual.
        two: Radii in norm 2.
        one: Radii in norm 1.
        images: At most, but one of every class at least; a class-balanced choice where there are more, by their pixels:
            the same for all methods and seeds, and in whatever order the test set is.
        steps: Of PGD.
        queries: Of the square search.
        source: A network whose gradients make images too (a transfer attack), in any mode; moved to
            the device of the images, otherwise not changed.

    Misleads as a certificate: an accuracy under attack is an upper bound of the true one, however many attacks
    took part. Intervals of two models audited on the same images overlap more than the models differ.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> found = Robustness(inf=(0.1,), two=(), steps=3)(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> sorted({m.name for m in found.measurements})
    ['alarms', 'cross_entropy_attack_accuracy', 'full_radius_accuracy', 'noise_accuracy', 'robust_accuracy',
     'zero_gradients']
    """

    name: ClassVar[str] = "robustness"
    question: ClassVar[str] = "How many images stay right under attack?"
    inf: tuple[float, ...] = (0.1, 0.3)
    two: tuple[float, ...] = (1.0,)
    one: tuple[float, ...] = ()
    images: int = 1000
    steps: int = 40
    queries: int = 1000
    source: Classifier | None = None

    def __post_init__(self) -> None:
        for name in ("images", "steps", "queries"):
            check_count(name, getattr(self, name))
        if self.source is not None and not isinstance(self.source, Classifier):
            raise TypeError(
                f"`source` must be a Classifier or None; got {type(self.source).__name__}; clearance.wrap makes one."
            )
        for name in NORMS:
            radii = getattr(self, name)
            if isinstance(radii, str) or not isinstance(radii, Sequence):
                raise TypeError(f"`{name}` must be radii in a tuple, such as (0.1, 0.3); got {radii!r}.")
            for epsilon in radii:
                check_positive(name, epsilon)
                check_radius(epsilon, NORMS[name], Bounds())
            if list(radii) != sorted(set(radii)):
                raise ValueError(f"`{name}` must ascend, each radius once; got {radii}.")
        if not (self.inf or self.two or self.one):
            raise ValueError("at least one radius must be given; got none in `inf`, `two` and `one`.")

    def examine(self, subject: Subject) -> Findings:
        """Every norm, radius by radius."""
        data = fixed_images(subject.test, self.images, seed=0)  # whatever the run: what differs are networks
        with evaluating(subject.model), warnings.catch_warnings():
            warnings.simplefilter("ignore", NoGradientWarning)  # the alarm says it
            if self.source is None:
                return self._examined(Target(subject.model, data.images, data.labels, None, subject.seed))
            source = self.source.to(data.images.device)
            with evaluating(source):
                return self._examined(Target(subject.model, data.images, data.labels, source, subject.seed))

    def _examined(self, target: Target) -> Findings:
        found, exhibits = list(zero_gradients(target)), []
        for name, norm in NORMS.items():
            if radii := getattr(self, name):
                readings = list(self._readings(target, norm, radii))
                found.append(full_radius(target, norm, readings[0].signs))
                found.extend(m for reading in readings for m in reading.measurements())
                exhibits += [under_attack(norm, target, readings), *alarms(norm, readings)]
        return Findings(tuple(found), tuple(exhibits))

    def _readings(self, target: Target, norm: float, radii: tuple[float, ...]) -> Iterator[Reading]:
        everything = target.left([PGD(_whole_radius(norm, target.images), norm, steps=self.steps)])
        alive = white = plain = target.right
        for epsilon in radii:
            attacks = scale_free_attacks(norm, epsilon, target.classes, self.steps, target.seed)
            # apart from what other attacks break, which would hide at the next radius that gradients find little
            white = target.left(attacks, white)
            alive = alive & white
            plain = target.left(cross_entropy_attacks(norm, epsilon, self.steps), plain)
            transfer = None
            if target.source is not None:
                made_on = PGD(epsilon, norm, loss="scaled_cross_entropy", steps=self.steps)
                shown = target.left([transferred(target.source, made_on)])
                alive, transfer = alive & shown, share(shown)
            signs = Signs(
                share(white),
                share(plain),
                share(target.under_noise(norm, epsilon)),
                share(everything),
                target.blind("logit_margin"),
                target.blind("cross_entropy"),
                transfer,
                target.unnumbered,
            )
            if signs.doubts() or target.steps:  # a faint smooth path next to the rounding hides all signs
                alive = target.left(self._in_doubt(target, norm, epsilon), alive)
            yield Reading(norm, epsilon, len(target.labels), share(alive), signs)

    def _in_doubt(self, target: Target, norm: float, epsilon: float) -> Iterator[AnyAttack]:
        """Attacks for a network whose gradients may lead nowhere: past what rounds, then without any."""
        if target.steps:
            past = straight_through(target.model)
            for attack in scale_free_attacks(norm, epsilon, target.classes, self.steps, target.seed):
                yield transferred(past, attack)
        yield SquareSearch(epsilon, norm, queries=self.queries, seed=target.seed)


def _whole_radius(norm: float, images: Tensor) -> float:
    """The radius within which every image lies, whatever the original."""
    pixels = images[0].numel()
    return 1.0 if math.isinf(norm) else pixels ** (1 / norm)


SLACK = 0.01  # of all images: what two attacks may differ by without a sign
ZERO_SHARE = 0.01  # of right images without any gradient
GAP = 0.05  # between plain cross-entropy attacks and the verdict


def sentence(verdict: float, epsilon: float, norm: str, doubts: list[Reason], fooled: list[Reason]) -> str:
    """What the verdict at one radius is, and what speaks against it.

    >>> sentence(0.5, 0.1, "inf", [], [])
    'At radius 0.1 (norm inf) 50.0% of images stay right; no sign was found against it.'
    """
    said = f"At radius {epsilon:g} (norm {norm}) {verdict:.1%} of images stay right"
    if not doubts and not fooled:
        return f"{said}; no sign was found against it."
    if doubts:
        said += f"; WARNING, gradient attacks are too weak here: {'; '.join(map(str, doubts))}"
    if fooled:
        said += f"; do not read plain attacks as robustness: {'; '.join(map(str, fooled))}"
    return f"{said}."


STARTS = 5  # the image itself and four random ones
RIVALS = 3
NORM_NAMES = {math.inf: "inf", 2.0: "2", 1.0: "1"}


def scale_free_attacks(norm: float, epsilon: float, classes: int, steps: int, seed: int) -> list[Attack]:
    """White-box attacks whose loss ignores the scale of logits, cheap ones first.

    The same direction of attack is tried under three losses, because each has networks that it is stuck on:
    the margin sees one rival at a time, the difference-of-logits ratio bends where the third logit comes near,
    scaled cross-entropy sees every class.
    """
    losses = ["logit_margin", "scaled_cross_entropy"]
    if classes > 2:  # the ratio needs a third logit; with two classes there is one rival, and no choice of it
        losses.append("dlr")
    attacks: list[Attack] = [FGSM(epsilon, norm, loss=loss) for loss in losses]
    attacks += [PGD(epsilon, norm, loss=loss, steps=steps, restarts=STARTS, seed=seed) for loss in losses]
    if classes > 2:
        attacks.append(PGD(epsilon, norm, steps=steps, restarts=STARTS, targets=RIVALS, seed=seed))
    return attacks


def cross_entropy_attacks(norm: float, epsilon: float, steps: int) -> list[Attack]:
    """The attacks of most papers, which the scale of logits can mislead."""
    return [FGSM(epsilon, norm), PGD(epsilon, norm, loss="cross_entropy", steps=steps)]


AUDIT = "robustness"
WILSON = "wilson 95 %"
DOUBT, FOOLED = "verdict", "plain attacks"  # what a reason speaks against


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
    caption = "Reasons to doubt the verdict, or plain attacks, at each radius."
    return (Exhibit(AUDIT, "alarms", "curve", columns, caption, {"norm": NORM_NAMES[norm]}),)
