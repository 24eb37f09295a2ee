"""How many images stay right under attack, by attacks that loud logits cannot fool?"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance.attacks.attack import AnyAttack, check_radius
from clearance.attacks.gradient import PGD
from clearance.attacks.queries import NoGradientWarning
from clearance.attacks.square import SquareSearch
from clearance.attacks.straight_through import straight_through
from clearance.attacks.transfer import transferred
from clearance.audits._alarm import Signs, share
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._fixed_images import fixed_images
from clearance.audits._robustness_readings import Reading, alarms, full_radius, under_attack, zero_gradients
from clearance.audits._target import Target
from clearance.audits._verdict import cross_entropy_attacks, scale_free_attacks
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Bounds

NORMS = {"inf": math.inf, "two": 2.0, "one": 1.0}


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
    not: their gradient vanishes where logits are large. What they leave is shown beside the verdict.

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
            if signs.doubts() or target.steps:  # a faint smooth way beside what rounds hides all signs
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
