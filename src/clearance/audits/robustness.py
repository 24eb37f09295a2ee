"""How many images stay right under attacks that the scale of the logits cannot fool?"""

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._rng import derived_seed, seed_global
from clearance.attacks.attack import (
    CHUNK,
    AnyAttack,
    Attack,
    Model,
    NoGradientWarning,
    broken,
    gradients_of,
    logits_of,
)
from clearance.attacks.balls import as_norm, check_radius, of_all_pixels, random_starts
from clearance.attacks.gradient import APGD
from clearance.attacks.losses import LOSSES
from clearance.attacks.square import SquareSearch
from clearance.attacks.transfer import has_steps, straight_through, transferred
from clearance.audits._audit import PART, Audit, Findings, Subject, share_of
from clearance.audits._samples import fixed_images
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Exhibit, Measurement, Scalar

SUMS_TO_ONE = 1e-3
ALIKE = 0.02  # of the spread of logits over images: rounding is below it, dropout and noise far above
GRAIN = 1e-5  # of a logit, for networks with nearly equal logits on all images


def checked_logits(model: Model, images: Tensor, name: str = "the model") -> Tensor:
    """Logits of images, (B, C), by a network that attacks can judge.

    Args:
        model: In evaluation mode.
        images: (B, ...), at least one.
        name: What messages call the model.

    Raises:
        ValueError: If these are probabilities: where they round to 0 and 1 attacks have no gradient, and the network
            would look safe. If the logits of an image are random, or depend on the other images of the batch: then
            no single prediction can be attacked.

    >>> checked_logits(torch.nn.Identity(), torch.tensor([[3.0, -1.0], [0.0, 2.0]])).shape
    torch.Size([2, 2])
    """
    logits = logits_of(model, images)
    _refuse_probabilities(logits, name)
    _refuse_other_answers(model, images, logits, name)
    return logits


def check_source(source: Model, images: Tensor, classes: int) -> None:
    """Raise ValueError unless images can be made on another network, before any attack starts.

    It is in evaluation mode, and asked about the first of the images, (B, ...); `classes` is how many logits the
    attacked network has.
    """
    try:
        logits = checked_logits(source, images[: 2 * CHUNK], "`source`")
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`source` must take the images that the model takes, {tuple(images.shape[1:])}, {images.dtype}; it fails "
            f"with {type(error).__name__}: {error}"
        ) from error
    if logits.shape[1] != classes:
        raise ValueError(
            f"`source` must have a logit for each of the model's {classes}; got {logits.shape[1]}. Give a network of "
            "the same classes in the same order."
        )


def _refuse_probabilities(logits: Tensor, name: str) -> None:
    sums = logits.double().sum(dim=1)
    if len(logits) > 1 and bool((logits >= 0).all()) and bool(((sums - 1).abs() < SUMS_TO_ONE).all()):
        raise ValueError(
            f"{name} must return logits; its outputs are at least 0 and sum to one for all {len(logits)} images, as "
            "probabilities do, whose gradient vanishes where they round to 0 and 1. Remove the softmax from the model."
        )


def _refuse_other_answers(model: Model, images: Tensor, logits: Tensor, name: str) -> None:
    """Compute every other image of the first ones again, in another batch."""
    rows = torch.arange(0, min(len(images), 2 * CHUNK), 2, device=images.device)
    again = logits_of(model, images[rows])
    if _alike(again, logits[rows]):
        return
    if not answers_vary(model, images):
        raise ValueError(
            f"{name} must give logits that depend on one image only; they change with the rest of the batch. Look for "
            "normalisation by the batch's own statistics (track_running_stats=False) or sums over the batch."
        )
    raise ValueError(
        f"{name} must give the same logits every time in evaluation mode; asked twice they differ. Look for noise or "
        "dropout that ignores eval(): random logits have no single prediction to attack. Judge their mean over many "
        "draws: a module that returns their average, with fixed noise."
    )


def answers_vary(model: Model, images: Tensor) -> bool:
    """Whether a model, asked twice about the same images, gives other logits.

    >>> answers_vary(torch.nn.Identity(), torch.rand(4, 2)), answers_vary(torch.rand_like, torch.rand(4, 2))
    (False, True)
    """
    some = images[:CHUNK]
    return not _alike(logits_of(model, some), logits_of(model, some))


DRAWS = 4


class Drawn:
    """A model whose answers are random: the mean of its logits over fixed draws.

    The streams of torch are set before each draw and restored after it, so that a chunk of images always gets the
    same answer. Randomness from elsewhere (NumPy, Python) stays random.

    Source: Athalye, Engstrom, Ilyas and Kwok, *Synthesizing Robust Adversarial Examples* (2018), for attacks on the
    mean over draws.

    Args:
        model: In evaluation mode.
        seed: Of the draws.

    >>> noisy = Drawn(lambda images: images + torch.randn_like(images), seed=0)
    >>> images = torch.rand(4, 2)
    >>> torch.equal(noisy(images), noisy(images))
    True
    """

    def __init__(self, model: Model, seed: int) -> None:
        self.model, self.seed = model, seed

    def __call__(self, images: Tensor) -> Tensor:
        """Mean logits, (B, C)."""
        return torch.stack([self._draw(number, images) for number in range(DRAWS)]).mean(dim=0)

    def wrong_once(self, images: Tensor, labels: Tensor) -> Tensor:
        """Whether any of as many draws that no attack has seen is wrong, (B,)."""
        found = torch.zeros_like(labels, dtype=torch.bool)
        for number in range(DRAWS, 2 * DRAWS) if len(images) else ():
            found |= broken(logits_of(partial(self._draw, number), images), labels)
        return found

    def _draw(self, number: int, images: Tensor) -> Tensor:
        with torch.random.fork_rng([images.device] if images.is_cuda else []):
            seed_global(derived_seed(self.seed, "draw", number), images.device)
            return self.model(images)


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = torch.where(other.isfinite(), other, 0.0).double()
    # class by class: one masked by a large number must not hide the others
    spread = wide.std(dim=0).max() if len(wide) > 1 else wide.std()
    close = (one.double() - wide).abs() <= ALIKE * spread + GRAIN * wide.abs()
    return bool((close | (one == other) | ~other.isfinite()).all())


SLICE = 2**26  # bytes of images that are attacked at once: an attack takes some thirty times that


def survivors(
    model: Model, images: Tensor, labels: Tensor, attacks: Iterable[AnyAttack], alive: Tensor | None = None
) -> Tensor:
    """The images that no attack breaks, (B,); one that is broken is not attacked again.

    Images are cut into parts of a fixed size in their order, and what an attack does with one depends on its part
    alone: so the result does not depend on how images are shared out between calls in whole parts.

    The model is in evaluation mode, with images (B, ...) and labels (B,). Attacks are tried in their order, on images
    that are `alive`, by default all; the rest counts as broken.

    >>> from clearance.attacks import FGSM
    >>> images, model = torch.tensor([[0.9, 0.1], [0.6, 0.5]]), torch.nn.Identity().eval()
    >>> survivors(model, images, torch.tensor([0, 0]), [FGSM(0.1), FGSM(0.2)])
    tensor([ True, False])
    """
    alive = torch.ones_like(labels, dtype=torch.bool) if alive is None else alive.clone()
    for attack in attacks:
        for part in torch.arange(len(images), device=labels.device).split(_at_once(images)):
            rows = part[alive[part]]
            if len(rows):
                hit = attack(model, images[rows], labels[rows])
                alive[rows[hit.success]] = False
                if isinstance(model, Drawn):
                    alive[rows] &= ~model.wrong_once(hit.images, labels[rows])
    return alive


def _at_once(images: Tensor) -> int:
    """Images that are attacked at once: 256, or fewer where they are large; whole chunks, and whole times in 256."""
    chunks = min(SLICE // (images[:1].nbytes * CHUNK), PART // CHUNK)
    return CHUNK << max(0, chunks.bit_length() - 1)


def blind_share(model: Model, images: Tensor, labels: Tensor, loss: str) -> float:
    """Share of images where the loss has a gradient of exactly zero (or none that is a number).

    >>> import torch
    >>> blind_share(lambda images: images.round(), torch.tensor([[0.9, 0.1]]), torch.tensor([0]), "logit_margin")
    1.0
    """
    if not len(images):
        return 0.0
    _, gradients = gradients_of(model, images, lambda logits, rows: LOSSES[loss](logits, labels[rows]))
    seen = (gradients.isfinite() & (gradients != 0)).flatten(1).any(dim=1)
    return float((~seen).double().mean())


def share(alive: Tensor) -> float:
    """Share of images that are alive."""
    return float(alive.double().mean())


class Target:
    """What one audit attacks; what does not depend on a radius is computed once.

    Args:
        model: In evaluation mode.
        images: (B, ...).
        labels: (B,).
        source: A network whose gradients make images too, in evaluation mode, or None.
        seed: Of everything drawn.

    Raises:
        ValueError: If either gives probabilities or logits that vary (see :func:`checked_logits`), or the
            source has other classes or takes other images.
    """

    def __init__(
        self, model: Model, images: Tensor, labels: Tensor, source: Model | None = None, seed: int = 0
    ) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.source, self.seed = source, seed
        logits = logits_of(model, images) if isinstance(model, Drawn) else checked_logits(model, images)
        self.classes = logits.shape[1]
        self.unnumbered = share(~logits.isfinite().all(dim=1))
        if source is not None:
            check_source(source, images, self.classes)
        self.right = ~broken(logits, labels)
        self.varying = 0.0
        if isinstance(model, Drawn):
            _refuse_probabilities(logits, "the model")
            wrong = model.wrong_once(images, labels)
            self.varying = share(self.right & wrong)
            self.right = self.right & ~wrong
        self._blind: dict[str, float] = {}

    def part(self, rows: Tensor) -> "Target":
        """The same target with some of its images; what was found out about the model stays."""
        found = copy.copy(self)
        found.__dict__.pop("past_steps", None)  # it belongs to the process that made it
        rows = rows.to(self.labels.device)
        found.images, found.labels, found.right = self.images[rows], self.labels[rows], self.right[rows]
        found._blind = {}
        return found

    @cached_property
    def past_steps(self) -> Model:
        """The same model with gradients that pass where it rounds or stops them."""
        if isinstance(self.model, Drawn):
            return Drawn(straight_through(self.model.model), self.model.seed)
        return straight_through(self.model)

    @property
    def random(self) -> bool:
        """Whether the model gives other logits each time."""
        return isinstance(self.model, Drawn)

    def left(
        self, attacks: Iterable[AnyAttack], alive: Tensor | None = None, model: Model | None = None
    ) -> Tensor:
        """The images that no attack breaks, of those alive, by default of those that are right.

        Attacks are tried in their order; `model` is the same one with other gradients, by default its own.
        """
        begin = self.right if alive is None else alive
        return survivors(self.model if model is None else model, self.images, self.labels, attacks, begin)

    def under_noise(self, norm: float, epsilon: float) -> Tensor:
        """The images that stay right at one point of the ball that is drawn for each."""
        noise = random_starts(self.images, epsilon, norm, seed=self.seed, stream=0)
        return self.right & ~broken(logits_of(self.model, self.images + noise), self.labels)

    @cached_property
    def steps(self) -> bool:
        """Whether the model rounds, or stops gradients that would count."""
        return has_steps(self.model, self.images)

    def blind(self, loss: str) -> float:
        """Share of right images where a loss has no gradient."""
        if loss not in self._blind:
            self._blind[loss] = blind_share(
                self.model, self.images[self.right], self.labels[self.right], loss
            )
        return self._blind[loss]


NORM_NAMES: dict[float | str, str] = {math.inf: "inf", 2.0: "2", 1.0: "1"}
"""How records spell the norms, in the order in which they are measured."""


def norm_name(norm: float | str) -> str:
    """A norm as records spell it.

    >>> norm_name(math.inf), norm_name(2), norm_name("1")
    ('inf', '2', '1')
    """
    return NORM_NAMES[as_norm(norm)]


@dataclass(frozen=True)
class Reason:
    """A reason to doubt a number: text with a placeholder for a share, and the share."""

    words: str
    share: float


@dataclass(frozen=True)
class Signs:
    """Signs of weak attacks at one radius, as shares of images; accuracies are under attack.

    Args:
        white_box: Accuracy under all scale-free gradient attacks.
        cross_entropy: Under plain cross-entropy attacks.
        noise: Under one draw of noise of the same radius.
        everything: Under gradient attacks whose radius reaches every possible image.
        blind: Share of right images where the logit margin has no gradient.
        blind_cross_entropy: Where cross-entropy has none.
        transfer: Accuracy on images made on another network; None without one.
        unnumbered: Share of images whose logits, unattacked, are not all finite: they name no class.
        others: Share of images that gradient attacks leave, and that a square search, another network's images or
            gradients past rounding break; 0 where answers are random.
        varying: Share of images, unattacked, that are right on average and wrong in some draw; None where answers
            are not random.
    """

    white_box: float
    cross_entropy: float
    noise: float
    everything: float
    blind: float
    blind_cross_entropy: float
    transfer: float | None = None
    unnumbered: float = 0.0
    others: float = 0.0
    varying: float | None = None

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
        if self.others > SLACK:
            words = "attacks without the network's own gradients break {} of images that gradients leave"
            found.append(Reason(words, self.others))
        if self.varying is not None:
            words = (
                "the answers are random: {} of images are right on average and wrong in some draw, unattacked"
            )
            found.append(Reason(words, self.varying))
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

    def unanswered(self) -> list[Reason]:
        """Images that are not classified at all: they count as wrong, and attacks have nothing to do there."""
        words = "{} of images have logits that are not finite before any attack, and count as wrong"
        return [Reason(words, self.unnumbered)] if self.unnumbered > 0 else []


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
        yield _measured("alarms", len(self.signs.doubts()), "count", self.count, self._context())

    def _context(self) -> dict[str, Scalar]:
        return {"norm": NORM_NAMES[self.norm], "epsilon": self.epsilon}

    def _accuracy(self, name: str, value: float) -> Measurement:
        return share_of(AUDIT, name, round(value * self.count), self.count, "higher", self._context())


@dataclass(frozen=True)
class Robustness(Audit):
    r"""Accuracy under attack: the worst case, image by image, over attacks that ignore the scale of logits.

    robust_accuracy = share of images right before and after every attack in the ball ||x' - x||_p <= epsilon

    The attacks, cheap ones first, each on what the ones before left, are Auto-PGD of 50 steps on cross-entropy in units
    of the sample's own logits, from the image and 2 random points; on the logit margin, steered at each of the 3
    nearest rivals; on the difference-of-logits ratio, steered at each of the 9 nearest; then images made on `source`,
    where one is given; all gradient attacks once more with gradients that pass where the network rounds or detaches;
    and a square search, of 250 queries for every image and up to 5,000 for those that come near the boundary. An image
    broken within a smaller radius is broken within a larger one.

    A network whose answers are random is attacked by the mean of its logits over 4 fixed draws, in fewer starts and
    queries, and an image counts as right only if it is right in 4 more draws as well, after every attack. It gets an
    alarm.

    Logits times a constant are the same classifier, and get the same verdict. Plain cross-entropy attacks do
    not: their gradient vanishes where logits are large. Their accuracy is shown with the verdict.

    Source: Croce and Hein (2020) for the worst case over several attacks; Carlini et al., *On Evaluating
    Adversarial Robustness* (2019), for the signs of a weak one; Athalye, Carlini and Wagner (2018) for rounding.

    Measurements, for each ``norm`` and ``epsilon``: ``robust_accuracy`` and ``cross_entropy_attack_accuracy``
    (Auto-PGD from the image) with 95 % Wilson intervals, ``noise_accuracy`` (one uniform draw from the
    ball), ``transfer_accuracy`` where there is a source, ``alarms`` (reasons to think that attacks were too weak; none
    depends on the scale of logits). For each norm ``full_radius_accuracy``: the radius reaches every possible
    image, so anything much above 0 means that the attack is stuck. For each ``loss`` ``zero_gradients``: share of
    right images without a gradient. Exhibit ``under_attack`` for each norm: these over the radius, and the
    alarm in its caption. Exhibit ``alarms``: a row for each reason, also those not to believe plain attacks.

    Args:
        epsilons: Radii by norm (inf, 2, 1; as a word or a number), in pixel units, ascending, each above 0. Only the
            norms given here are measured, by default inf and 2. A norm whose radii are None has those of :data:`RADII`
            for the kind of images.
        images: At most, but one of every class at least; a class-balanced choice where there are more, by their pixels:
            the same for all methods and seeds, and for every order of the test set.
        steps: Of each run of Auto-PGD.
        queries: Of the square search, for images near the boundary.
        source: A network whose gradients make images too (a transfer attack), in any mode; moved to
            the device of the images, otherwise not changed.

    Raises:
        TypeError: If `epsilons` does not map norms to radii, or `source` is not a Classifier.
        ValueError: If a setting is out of range.

    Misleads as a certificate: an accuracy under attack is an upper bound of the true one, however many attacks
    took part. Intervals of two models audited on the same images overlap more than the models differ.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> audit = Robustness(epsilons={"inf": (0.1,)}, steps=3)
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> sorted({m.name for m in found.measurements})
    ['alarms', 'cross_entropy_attack_accuracy', 'full_radius_accuracy', 'noise_accuracy', 'robust_accuracy',
     'zero_gradients']
    """

    name: ClassVar[str] = "robustness"
    needs: ClassVar[tuple[str, ...]] = ("gradients",)
    epsilons: Mapping[str, tuple[float, ...] | None] = field(
        default_factory=lambda: {"inf": None, "2": None}, hash=False
    )
    images: int = 1000
    steps: int = 50
    queries: int = 5000
    source: Classifier | None = None

    def __post_init__(self) -> None:
        for name in ("images", "steps", "queries"):
            check_count(name, getattr(self, name))
        if self.source is not None and not isinstance(self.source, Classifier):
            raise TypeError(
                f"`source` must be a Classifier or None; got {type(self.source).__name__}; clearance.wrap makes one."
            )
        object.__setattr__(self, "epsilons", _checked_radii(self.epsilons))

    def examine(self, subject: Subject) -> Findings:
        """Every norm, radius by radius."""
        # the same in every run: only networks differ
        data = fixed_images(subject.test, self.images, seed=0).in_memory()
        with evaluating(subject.model), warnings.catch_warnings():
            warnings.simplefilter("ignore", NoGradientWarning)  # the alarm says it
            model: Model = subject.model
            if answers_vary(model, data.images):
                model = Drawn(model, subject.seed)
            if self.source is None:
                return self._examined(subject, Target(model, data.images, data.labels, None, subject.seed))
            source = self.source.to(data.images.device)
            with evaluating(source):
                return self._examined(subject, Target(model, data.images, data.labels, source, subject.seed))

    def _examined(self, subject: Subject, target: Target) -> Findings:
        found, exhibits = list(zero_gradients(target)), []
        usual = usual_radii(target.images)
        chosen = {float(n): usual[n] if given is None else given for n, given in self.epsilons.items()}
        for norm, readings in self._readings(subject, target, chosen).items():
            found.append(full_radius(target, norm, readings[0].signs))
            found.extend(m for reading in readings for m in reading.measurements())
            exhibits += [under_attack(norm, target, readings), *alarms(norm, readings)]
        return Findings(tuple(found), tuple(exhibits))

    def _readings(
        self, subject: Subject, target: Target, chosen: Mapping[float, tuple[float, ...]]
    ) -> dict[float, list[Reading]]:
        """The verdicts of each norm: what is left of all images, wherever their parts are attacked."""
        struck = dataclasses.replace(self, source=None)  # the target has it
        _ = target.steps  # found out once, on all images
        here = subject.progress if subject.workers is None else None  # workers cannot call it
        parts = subject.by_parts(
            _left_by_norm, len(target.labels), lambda rows: (struck, target.part(rows), chosen, here)
        )
        return {
            norm: [
                self._reading(target, norm, epsilon, _joined([part[norm][place] for part in parts]))
                for place, epsilon in enumerate(radii)
            ]
            for norm, radii in chosen.items()
        }

    def _reading(self, target: Target, norm: float, epsilon: float, left: "Left") -> Reading:
        signs = Signs(
            white_box=share(left.white),
            cross_entropy=share(left.plain),
            noise=share(left.noise),
            everything=share(left.everything),
            blind=target.blind("logit_margin"),
            blind_cross_entropy=target.blind("cross_entropy"),
            transfer=None if left.transfer is None else share(left.transfer),
            unnumbered=target.unnumbered,
            others=0.0 if target.random else share(left.white & ~left.alive),
            varying=target.varying if target.random else None,
        )
        return Reading(norm, epsilon, len(target.labels), share(left.alive), signs)

    def left(self, target: Target, norm: float, radii: tuple[float, ...]) -> Iterator["Left"]:
        """What every attack leaves of some images, radius by radius."""
        everything = target.left([APGD(of_all_pixels(target.images, norm), norm, steps=self.steps)])
        alive = white = plain = target.right
        for epsilon in radii:
            attacks = scale_free_attacks(norm, epsilon, target.classes, self.steps, target.seed)
            if target.random:  # every query is several
                attacks = [APGD(epsilon, norm, steps=self.steps, restarts=2, seed=target.seed)]
            # without what other attacks break, which would hide at the next radius that gradients find little
            white = target.left(attacks, white)
            alive = alive & white
            plain = target.left([APGD(epsilon, norm, loss="cross_entropy", steps=self.steps)], plain)
            transfer = None
            if target.source is not None:
                transfer = target.left([transferred(target.source, APGD(epsilon, norm, steps=self.steps))])
                alive = alive & transfer
            if target.steps:  # a faint smooth path next to the rounding hides all signs
                alive = target.left(attacks, alive, target.past_steps)
            queries = math.ceil(self.queries / DRAWS**2) if target.random else self.queries
            search = SquareSearch(epsilon, norm, queries=queries, seed=target.seed, patience=PATIENCE)
            alive = target.left([search], alive)
            yield Left(white, plain, target.under_noise(norm, epsilon), everything, alive, transfer)


@dataclass(frozen=True)
class Left:
    """The images that stay right at one radius, each (B,): under each kind of attack, and under all of them."""

    white: Tensor
    plain: Tensor
    noise: Tensor
    everything: Tensor
    alive: Tensor
    transfer: Tensor | None


def _left_by_norm(
    audit: Robustness,
    target: Target,
    chosen: Mapping[float, tuple[float, ...]],
    on_progress: Callable[[int, int], object] | None,
) -> dict[float, list[Left]]:
    """Attack some images in every norm, radius by radius."""
    found: dict[float, list[Left]] = {norm: [] for norm in chosen}
    done, of = 0, sum(map(len, chosen.values()))
    for norm, radii in chosen.items():
        for left in audit.left(target, norm, radii):
            found[norm].append(left)
            done += 1
            if on_progress is not None:
                on_progress(done, of)
    return found


def _joined(parts: Sequence[Left]) -> Left:
    """The parts of all images, in order."""

    def all_of(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)

    return Left(*(all_of(each.name) for each in dataclasses.fields(Left)))


RADII: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "photographs": {"inf": (8 / 255,), "2": (0.5,), "1": (12.0,)},
    "grey": {"inf": (0.1, 0.3), "2": (2.0,), "1": (10.0,)},
    "small grey": {"inf": (0.1, 0.3), "2": (0.5,), "1": (1.0,)},
}
"""Radii by kind of images and norm, in pixel units, where none are given.

Photographs, of three or more channels: those usual for CIFAR-10 (Croce and Hein 2020; in norm 1 2021). Grey images:
those usual for MNIST, which are 0.3 in norm inf (Madry et al. 2018) with 0.1 beside it, 2 and 10 in the others (Tramer
and Boneh 2019). Small grey images, of fewer than 256 pixels, such as digits of 8 x 8: the same in norm inf; in norms 2
and 1 about the same change for each pixel.
"""


def usual_radii(images: Tensor) -> Mapping[str, tuple[float, ...]]:
    """The row of :data:`RADII` for images, (B, ...).

    >>> usual_radii(torch.zeros(1, 1, 28, 28))["inf"], usual_radii(torch.zeros(1, 4, 32, 32))["2"]
    ((0.1, 0.3), (0.5,))
    """
    if images.ndim == 4 and images.shape[1] >= 3:
        return RADII["photographs"]
    return RADII["grey" if images[0].numel() >= 256 else "small grey"]


def _checked_radii(epsilons: Any) -> dict[str, tuple[float, ...] | None]:
    """Radii by the norm's name, in the order of `NORM_NAMES`; norms with an empty tuple are left out."""
    if not isinstance(epsilons, Mapping):
        raise TypeError(f'`epsilons` must be radii by norm, such as {{"inf": (0.1, 0.3)}}; got {epsilons!r}.')
    given = {norm_name(norm): radii for norm, radii in epsilons.items()}
    for name, radii in given.items():
        if radii is None:
            continue
        place = f"epsilons[{name!r}]"
        if isinstance(radii, str) or not isinstance(radii, Sequence):
            raise TypeError(f"`{place}` must be radii in a tuple, such as (0.1, 0.3); got {radii!r}.")
        for epsilon in radii:
            check_positive(place, epsilon)
            check_radius(epsilon, float(name))
        if list(radii) != sorted(set(radii)):
            raise ValueError(f"`{place}` must ascend, each radius once; got {radii}.")
    kept = {name: radii for name, radii in given.items() if radii is None or len(radii)}
    if not kept:
        raise ValueError("`epsilons` must have at least one radius; got none.")
    return {
        name: None if kept[name] is None else tuple(kept[name])
        for name in NORM_NAMES.values()
        if name in kept
    }


SLACK = 0.01  # of all images: what two attacks may differ by without a sign
ZERO_SHARE = 0.01  # of right images without any gradient
GAP = 0.05  # between plain cross-entropy attacks and the verdict


STARTS = 3  # the image itself and two random ones
RIVALS, NEAREST = 9, 3
PATIENCE = 100.0
"""Of the square search: after q queries an image goes on if its margin is at most this / q of what it was.

On a small network trained adversarially on MNIST, the images (of train) that broke within 4,000 queries were at most at
60 / q from 250 queries on.
"""


def scale_free_attacks(norm: float, epsilon: float, classes: int, steps: int, seed: int) -> list[Attack]:
    """White-box attacks whose loss ignores the scale of logits, those first that break most for their time.

    Several losses are tried, because each is stuck on some networks: scaled cross-entropy sees every class; the
    difference-of-logits ratio and the margin are steered at one rival after the other.
    """
    attacks: list[Attack] = [APGD(epsilon, norm, steps=steps, restarts=STARTS, seed=seed)]
    if classes == 2:  # there is one rival, and the ratio needs a third logit
        return [*attacks, APGD(epsilon, norm, loss="logit_margin", steps=steps, seed=seed)]
    return attacks + [
        APGD(epsilon, norm, loss=loss, steps=steps, targets=rivals, seed=seed)
        for loss, rivals in (("logit_margin", NEAREST), ("dlr", RIVALS))
    ]


AUDIT = "robustness"
DOUBT, FOOLED, UNANSWERED = "verdict", "plain attacks", "network"  # what a reason speaks against


def _measured(name: str, value: float, unit: str, n: int, context: dict[str, Scalar]) -> Measurement:
    return Measurement(AUDIT, name, value, unit, n, better="lower", context=context)


def zero_gradients(target: Target) -> Iterator[Measurement]:
    """Share of right images without a gradient, for each of two losses."""
    count = max(int(target.right.sum()), 1)
    for loss in ("logit_margin", "cross_entropy"):
        yield _measured("zero_gradients", target.blind(loss), "fraction", count, {"loss": loss})


def full_radius(target: Target, norm: float, signs: Signs) -> Measurement:
    """The accuracy left by attacks that may change everything."""
    context: dict[str, Scalar] = {"norm": NORM_NAMES[norm]}
    count = len(target.labels)
    return _measured("full_radius_accuracy", signs.everything, "fraction", count, context)


def under_attack(norm: float, target: Target, readings: list[Reading]) -> Exhibit:
    """Accuracies over the radius."""
    clean = share(target.right)
    columns: dict[str, list[float]] = {
        "radius": [0.0, *(reading.epsilon for reading in readings)],
        "worst case": [clean, *(reading.verdict for reading in readings)],
        "cross-entropy attacks": [clean, *(reading.signs.cross_entropy for reading in readings)],
        "noise": [clean, *(reading.signs.noise for reading in readings)],
    }
    if target.source is not None:
        columns["transfer"] = [clean, *(float(reading.signs.transfer or 0.0) for reading in readings)]
    caption = f"Share of {len(target.labels)} images that stay right within a radius."
    return Exhibit(AUDIT, "under_attack", "curve", columns, caption, {"norm": NORM_NAMES[norm]})


def alarms(norm: float, readings: list[Reading]) -> tuple[Exhibit, ...]:
    """Every reason found, radius by radius; empty without one."""
    seen = [
        (reading.epsilon, about, reason)
        for reading in readings
        for about, reasons in (
            (DOUBT, reading.signs.doubts()),
            (FOOLED, reading.signs.fooled(reading.verdict)),
            (UNANSWERED, reading.signs.unanswered()),
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
    caption = "Reasons to doubt the verdict, plain attacks, or the network, at each radius."
    return (Exhibit(AUDIT, "alarms", "curve", columns, caption, {"norm": NORM_NAMES[norm]}),)
