"""Does a low likelihood detect images that the classifier was not trained for?"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_fraction, check_non_negative
from clearance.attacks.attack import CHUNK, broken, gradients_of, logits_of
from clearance.attacks.balls import projected, steepest, streams_of
from clearance.attacks.gradient import FGSM, IFGSM
from clearance.attacks.losses import logit_margin
from clearance.audits._audit import Audit, Findings, Subject, named_class, share_of
from clearance.audits._change_sheet import picture_pixels
from clearance.audits._samples import balanced_rows, first_half, fixed_images, other_images
from clearance.audits.goodness_of_fit import FittedGaussians, fitted_gaussians
from clearance.audits.out_of_distribution import neighbour_score
from clearance.audits.rejection import (
    LEAST,
    check_enough,
    detection,
    lowest_for_nan,
    p_values,
    rejection_threshold,
)
from clearance.data import ImageSet
from clearance.geometry.nearest import unit_length
from clearance.geometry.scatter import class_scatter
from clearance.heads.gaussian_mixture import GaussianMixture, half_distances
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.models.features import named_classes
from clearance.tensors import head_logits
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar

LEFT_OUT = "classes left out"
LIKELIHOOD, DENSITY, CLASS_MEAN, MAHALANOBIS = "likelihood", "density", "class mean", "mahalanobis"
LEARNED_CENTRE = "learned centre"


@dataclass(frozen=True)
class Scorer:
    """All scores of one classifier, fitted to its training features; every one is differentiable.

    Args:
        model: In evaluation mode while it is asked.
        means: Class means of training features, (K, D).
        gaussians: Fitted with one covariance.
        known: Training features of unit length, (n, D).
        neighbours: k.
        centres: Learned in training, (K, D); None where the loss has none.
    """

    model: Classifier
    means: Tensor
    gaussians: FittedGaussians
    known: Tensor
    neighbours: int
    centres: Tensor | None = None

    @classmethod
    def fitted(
        cls, subject: Subject, reference: int, neighbours: int, centres: Tensor | None = None
    ) -> "Scorer":
        """Fit to a subject's training features; `reference` images at most for the neighbours.

        Raises:
            ValueError: If no training image of a class has features that are numbers, and one of another has.

        Warns:
            UserWarning: If some have none, which are left out.
        """
        features, labels = _finite(subject.train_features.double(), subject.train.labels)
        gaussians = fitted_gaussians(features, labels, subject.classes, "full")
        means = class_scatter(features, labels, subject.classes).means
        rows = balanced_rows(labels, reference, subject.seed, subject.classes)
        if centres is not None and centres.shape != means.shape:
            raise ValueError(
                f"`centres` must be a row of each of {len(means)} classes, {means.shape[1]} numbers wide as the "
                f"features are; got {tuple(centres.shape)}."
            )
        learned = None if centres is None else centres.detach().to(means)
        return cls(subject.model, means, gaussians, unit_length(features[rows]), neighbours, learned)

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that this classifier has."""
        lacking = set() if isinstance(self.model.head, GaussianMixture) else {DENSITY}
        lacking |= {LEARNED_CENTRE} if self.centres is None else set()
        return tuple(name for name in NETWORK_SCORES if name not in lacking)

    @staticmethod
    def is_shared(name: str) -> bool:
        """Whether a score is one number an image, and not one for each class."""
        return name not in (LIKELIHOOD, CLASS_MEAN, LEARNED_CENTRE, MAHALANOBIS)

    @staticmethod
    def reading(name: str, columns: Tensor, predicted: Tensor) -> Tensor:
        """What a detector sees of a score's columns: that of the predicted, or of the most likely class, (B,)."""
        return columns.amax(dim=1) if name == MAHALANOBIS else at_classes(columns, predicted)

    def columns(self, name: str, features: Tensor, logits: Tensor) -> Tensor:
        """A score for every class, (B, C), or one for all of them, (B, 1)."""
        makers: dict[str, Columns] = {
            LIKELIHOOD: self._likelihood,
            DENSITY: self._density,
            CLASS_MEAN: lambda features, logits: _filled(-half_distances(features, self.means), logits),
            LEARNED_CENTRE: self._learned_centre,
            MAHALANOBIS: lambda features, logits: _filled(-0.5 * self.gaussians.squared(features), logits),
            MAX_SOFTMAX: lambda _, logits: logits.log_softmax(dim=1).amax(dim=1, keepdim=True),
            ENERGY: lambda _, logits: logits.logsumexp(dim=1, keepdim=True),
            NEIGHBOURS: lambda features, _: neighbour_score(features, self.known, self.neighbours)[:, None],
        }
        return makers[name](features, logits)

    def read(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of images, float64, with their graph where gradients are on."""
        features = self.model.features(images)
        return features.double(), head_logits(self.model.head, features).double()

    @torch.no_grad()
    def scores(self, images: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Every score, read at the predicted class, and the logits; (B,) each and (B, C), float64."""
        found: dict[str, list[Tensor]] = {name: [] for name in self.names}
        answers = []
        for part in images.split(SCORED_AT_ONCE):
            features, logits = self.read(part)
            answers.append(logits)
            for name, parts in found.items():
                columns = self.columns(name, features, logits)
                parts.append(self.reading(name, columns, logits.argmax(dim=1)))
        return {name: torch.cat(parts) for name, parts in found.items()}, torch.cat(answers)

    def _likelihood(self, features: Tensor, logits: Tensor) -> Tensor:
        head = self.model.head
        return head.log_prob(features) if isinstance(head, GaussianMixture) else logits

    def _density(self, features: Tensor, logits: Tensor) -> Tensor:
        del logits
        head = self.model.head
        assert isinstance(head, GaussianMixture)
        return head.log_density(features)[:, None]

    def _learned_centre(self, features: Tensor, logits: Tensor) -> Tensor:
        assert self.centres is not None
        return _filled(-half_distances(features, self.centres), logits)


Scores = Mapping[str, Tensor]


@dataclass(frozen=True)
class Seen:
    """Images after an attack that knows of no detector, as the classifier sees them: asked once, used everywhere.

    Args:
        epsilon: Its radius, norm inf.
        images: (B, C, H, W), changed whether or not that was needed.
        scores: The network's.
        logits: (B, K).
        fooled: (B,), whether the classifier was right before and is wrong now.
    """

    attack: str
    epsilon: float
    images: Tensor
    scores: Scores
    logits: Tensor
    fooled: Tensor


@dataclass(frozen=True)
class NormalImages:
    """Images of the training classes: some for detection, others for choosing thresholds.

    The classifier of the scorer is in evaluation mode; `held_out`, for thresholds, is disjoint from `data`.
    """

    scorer: Scorer
    data: ImageSet
    held_out: ImageSet

    @cached_property
    def seen(self) -> tuple[Scores, Tensor]:
        """The network's scores of `data`, and its logits."""
        return self.scorer.scores(self.data.images)

    @cached_property
    def seen_held_out(self) -> tuple[Scores, Tensor]:
        """The same of `held_out`."""
        return self.scorer.scores(self.held_out.images)

    @cached_property
    def right(self) -> Tensor:
        """Which of `data` the classifier gets right, (N,)."""
        return ~broken(self.seen[1], self.data.labels)

    def scores(self, epsilon: float) -> Scores:
        """Every score of `data`; those of pixels look for attacks of this radius."""
        return {**self.seen[0], **pixel_scores(self.data.images, epsilon)}

    def held_out_scores(self, epsilon: float) -> Scores:
        """The same of `held_out`."""
        return {**self.seen_held_out[0], **pixel_scores(self.held_out.images, epsilon)}

    def thresholds(self, epsilon: float) -> dict[str, float]:
        """For every score, what a normal image falls below with a probability of at most 5 %."""
        return {name: rejection_threshold(values) for name, values in self.held_out_scores(epsilon).items()}

    def after(self, attack: str, epsilon: float, steps: int) -> Seen:
        """What the classifier makes of them after FGSM or I-FGSM, of `steps`, on cross-entropy of its logits.

        Source: Goodfellow, Shlens and Szegedy (2015); Kurakin, Goodfellow and Bengio (2017); every image is attacked to
        the end, as Wan et al. (2018) do, also where the classifier is wrong on it already.
        """
        made = FGSM(epsilon) if attack == ONE_STEP else IFGSM(epsilon, steps=steps)
        found = made.perturbed(self.scorer.model, self.data.images, self.data.labels)
        scores, logits = self.scorer.scores(found)
        return Seen(attack, epsilon, found, scores, logits, self.right & broken(logits, self.data.labels))

    def of(self, images: Tensor, epsilon: float) -> Scores:
        """Every score of other images."""
        return {**self.scorer.scores(images)[0], **pixel_scores(images, epsilon)}

    def spread(self, name: str) -> float:
        """The standard deviation of a score over held-out images; 1 where there is none."""
        return _or_one(self.seen_held_out[0][name].std())

    def margin(self) -> float:
        """The mean distance of the two largest logits over held-out images; 1 where there is none."""
        top = self.seen_held_out[1].topk(2, dim=1).values
        return _or_one((top[:, 0] - top[:, 1]).mean())


@dataclass(frozen=True)
class Likelihood(Audit):
    r"""How well a classifier's likelihood, and other scores, detect images that it has not learned.

    Scores (higher is more normal): ``likelihood``, the log-density at the predicted class of a Gaussian-mixture head,
    of any other head the logit of the predicted class; ``density``, log p(x) of the mixture; ``class mean``, minus half
    the squared distance to the training features' mean of the predicted class; ``learned centre``, the same to
    `centres`, those that a loss has learned; ``mahalanobis``, after the fact, one covariance for all classes; ``max
    softmax``; ``energy``; ``neighbours``; and two that see pixels alone: ``small pixels``, the share in (0, epsilon],
    and ``pixel steps``, mean |dx|. What does not beat these is no finding.

    Source: Wan et al. (2018) for the likelihoods, whose Fig. 3 and 4 are exhibits here; Lee et al., *A Simple Unified
    Framework* (2018), for ``mahalanobis`` and the three measures; Carlini and Wagner (2017) for attacking a detector.

    Measurements: ``auroc``, ``aupr`` and ``fpr95`` of each score for FGSM and I-FGSM at each ``epsilon``, ``counted``
    over all images or the successful ones (right before, wrong after), against their own originals or these under
    sign noise as large; for ``unseen`` images of another dataset, and of classes that were left out of training where
    the subject has some. ``rejected``, ``caught``: shares of normal and abnormal images below the threshold that
    rejects 5 % of the normal ones; it is chosen on one half of the held-out images, and everything is measured on the
    other. ``fooled``: share of right images that an attack breaks. ``evasion``: share of right images for which an
    attack that knows the score finds a misclassified image above the threshold; its images are an ``attack`` of their
    own, ``adaptive``, about which every score is asked, with the one that it knew as ``attacked``. Log-densities of
    single images, and the thresholds, are exhibits. Where no image fooled the network, nothing can be detected, and
    there is no measurement.

    Args:
        epsilons: Radii in norm inf, ascending, in pixel units; those of the paper by default.
        steps: Of I-FGSM.
        images: For detection, and as many for thresholds: at most, but one of every class at least; a class-balanced
            choice by the seed.
        other: Images of another dataset, of the same shape; a recipe gives its name.
        adaptive: Scores that are attacked.
        adaptive_images: The same, of those; as many as a network sees at once, by default.
        adaptive_steps: For each beta.
        betas: Weights of the score relative to the margin; four decades by default.
        targets: Number of wrong classes the attack also targets in turn, each at the cost of one more attack; worth
            it where evasion is rare.
        neighbours: k, of the nearest training features.
        reference: The most training images for these.
        centres: (K, D), that training has learned, such as ``CenterLoss.centres``; None leaves that score out.

    Raises:
        TypeError: If `centres` is no tensor.
        ValueError: If a setting is out of range, `other` has images of another shape, or `centres` are not (K, D).

    Misleads as a defence: a likelihood that finds FGSM says nothing about an attack that knows it; read ``evasion``. An
    evasion rate is a lower bound, a stronger attack may evade more. Densities of two models have two units
    and are compared nowhere here; what is compared is how well each orders its own images.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> audit = Likelihood(epsilons=(0.2,), adaptive=())
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> sorted({m.name for m in found.measurements})
    ['aupr', 'auroc', 'caught', 'fooled', 'fpr95', 'rejected']
    """

    name: ClassVar[str] = "likelihood"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.3)
    steps: int = 10
    images: int = 1000
    other: ImageSet | str | None = None
    adaptive: tuple[str, ...] = (LIKELIHOOD, MAHALANOBIS)
    adaptive_images: int = 64
    adaptive_steps: int = 100
    betas: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    targets: int = 0
    neighbours: int = 5
    reference: int = 5000
    centres: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "images", "adaptive_images", "adaptive_steps", "neighbours", "reference"):
            check_count(name, getattr(self, name))
        check_count("targets", self.targets, minimum=0)
        for epsilon in self.epsilons:
            check_fraction("epsilons", epsilon, open_below=True)
        if not self.epsilons or list(self.epsilons) != sorted(set(self.epsilons)):
            raise ValueError(f"`epsilons` must ascend, each once, at least one; got {self.epsilons}.")
        for score in self.adaptive:
            check_choice("adaptive", score, NETWORK_SCORES)
        if self.adaptive and not self.betas:
            raise ValueError("`betas` must be at least one number; got none.")
        for beta in self.betas:
            check_non_negative("betas", beta)
        if not (self.centres is None or isinstance(self.centres, Tensor)):
            raise TypeError(
                f"`centres` must be a tensor (K, D), such as `CenterLoss.centres`, or None; got {self.centres!r}."
            )

    def examine(self, subject: Subject) -> Findings:
        """Attacks that know of no detector, images that were never learned, and an attack that knows the score."""
        with evaluating(subject.model):
            normal = self._normal(subject)
            found = list(rejected(normal, self.epsilons[0]))
            exhibits: list[Exhibit] = tables(normal, self.epsilons[0])
            for epsilon in self.epsilons:
                exhibits += self._under_attack(subject, normal, epsilon, found)
            for title, data in self._unseen(subject):
                found.extend(unseen(normal, data.images, title, self.epsilons[0]))
            for score in self.adaptive:
                if score in normal.scorer.names:
                    found.extend(self._evaded(normal, score, subject.seed))
        return Findings(tuple(found), tuple(exhibits))

    def _normal(self, subject: Subject) -> NormalImages:
        half = first_half(subject.test.labels, subject.seed)
        check_enough(int(half.sum()))
        held_out, rest = (subject.test.subset(mask.nonzero().flatten()) for mask in (half, ~half))
        held_out = fixed_images(held_out, self.images, subject.seed).in_memory()
        if len(held_out) < LEAST:
            raise ValueError(
                f"`images` must leave at least {LEAST} for a threshold that keeps 95 %; got {len(held_out)}, as "
                "many of each class. Give more, or leave the audit out."
            )
        return NormalImages(
            Scorer.fitted(subject, self.reference, self.neighbours, self.centres),
            fixed_images(rest, self.images, subject.seed).in_memory(),
            held_out,
        )

    def _under_attack(
        self, subject: Subject, normal: NormalImages, epsilon: float, found: list[Measurement]
    ) -> list[Exhibit]:
        """Both attacks at one radius; pictures are of the one-step attack, as the paper's."""
        images, exhibits = normal.data.images, []
        for attack in (ONE_STEP, MANY_STEPS):
            seen = normal.after(attack, epsilon, self.steps)
            noisy = sign_noise(images, seen.images - images, subject.seed)
            found.extend(under_attack(normal, seen, noisy))
            if attack == ONE_STEP:
                exhibits += [*histograms(normal, seen), *contact_sheets(normal, seen)]
        return exhibits

    def _unseen(self, subject: Subject) -> Iterator[tuple[str, ImageSet]]:
        """Sets that the classifier never learned from, by what they are called."""
        if self.other is not None:
            other = other_images(self.other, subject.test).to(subject.test.labels.device)
            yield other.name, fixed_images(other, self.images, subject.seed).in_memory()
        if subject.new_classes is not None:
            yield LEFT_OUT, fixed_images(subject.new_classes.test, self.images, subject.seed).in_memory()

    def _evaded(self, normal: NormalImages, score: str, seed: int) -> Iterator[Measurement]:
        """Evasion of one score at every radius, on right images alone."""
        if not bool(normal.right.any()):
            return
        data = fixed_images(normal.data, self.adaptive_images, seed, among=normal.right)
        attack = Evasion(
            normal.scorer,
            score,
            normal.margin(),
            normal.spread(score),
            self.betas,
            self.adaptive_steps,
            self.targets,
        )
        evaded = None
        for epsilon in self.epsilons:
            evaded = attack(data.images, data.labels, epsilon, evaded)
            noisy = sign_noise(data.images, evaded.images - data.images, seed)
            yield from evasion_rate(normal, data.images, evaded, score, epsilon, noisy)


ONE_STEP, MANY_STEPS = "FGSM", "IFGSM"
HALVINGS = 24  # of a pixel's range: as fine as float32


def sign_noise(images: Tensor, changes: Tensor, seed: int) -> Tensor:
    """Every pixel of an image as far up or down by a coin, then clipped: as long (L2) as its change, and harmless.

    An image's coins follow from the seed and its own pixels, so that all classifiers see the same noise. Images and
    changes are (B, C, H, W).

    >>> noisy = sign_noise(torch.full((1, 1, 2, 2), 0.5), torch.full((1, 1, 2, 2), 0.25), seed=0)
    >>> (noisy - 0.5).abs().round(decimals=4).unique()
    tensor([0.2500])
    """
    coins = [
        torch.randint(2, images[0].shape, generator=draws) for draws in streams_of(images, seed, "sign noise")
    ]
    signs = 2 * torch.stack(coins).to(images) - 1
    wanted = changes.flatten(1).norm(dim=1)
    low, high = torch.zeros_like(wanted), torch.ones_like(wanted)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = (_moved(images, middle, signs) - images).flatten(1).norm(dim=1) < wanted
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return _moved(images, low, signs)


def _moved(images: Tensor, lengths: Tensor, signs: Tensor) -> Tensor:
    """Pixels of each image moved by its own length and clipped."""
    return (images + lengths.view(-1, *[1] * (images.ndim - 1)) * signs).clamp(0, 1)


SMALL, STEPS = "small pixels", "pixel steps"


def small_pixels(images: Tensor, epsilon: float) -> Tensor:
    """Minus the share of pixels in (0, epsilon], (B,); higher is more normal.

    Images are (B, C, H, W), in [0, 1]; `epsilon` is the radius of the attack that is looked for.

    >>> import torch
    >>> small_pixels(torch.tensor([0.0, 0.05, 0.1, 0.9]).view(1, 1, 2, 2), 0.1)
    tensor([-0.5000])
    """
    # an attack's epsilon, added to a black pixel and rounded, may end a little above epsilon
    inside = (images > 0) & (images <= epsilon * (1 + 1e-5))
    return -inside.float().flatten(1).mean(dim=1)


def pixel_steps(images: Tensor) -> Tensor:
    """Minus the mean |dx| between a pixel and the next, to the right and below, (B,); higher is more normal.

    >>> import torch
    >>> pixel_steps(torch.tensor([0.0, 1.0, 0.0, 1.0]).view(1, 1, 2, 2))
    tensor([-0.5000])
    """
    across = (images[..., 1:] - images[..., :-1]).abs().flatten(1)
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1)
    count = across.shape[1] + down.shape[1]
    return -(across.sum(dim=1) + down.sum(dim=1)) / max(count, 1)


def pixel_scores(images: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Both, by name."""
    return {SMALL: small_pixels(images, epsilon), STEPS: pixel_steps(images)}


MAX_SOFTMAX, ENERGY, NEIGHBOURS = "max softmax", "energy", "neighbours"
NETWORK_SCORES = (
    LIKELIHOOD, DENSITY, CLASS_MEAN, LEARNED_CENTRE, MAHALANOBIS, MAX_SOFTMAX, ENERGY, NEIGHBOURS
)  # fmt: skip
SCORED_AT_ONCE = 256  # images


Columns = Callable[[Tensor, Tensor], Tensor]
"""(features (B, D), logits (B, C), both float64) to (B, C), a score for each class, or (B, 1)."""


def _finite(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that are numbers, and their labels; zeros where none is, since then no image has a score at all."""
    kept = features.isfinite().all(dim=1)
    if bool(kept.all()) or not bool(kept.any()):
        return features.nan_to_num(0.0, 0.0, 0.0), labels
    lost = sorted(set(labels.tolist()) - set(labels[kept].tolist()))
    if lost:
        raise ValueError(
            "training features must be numbers, because scores are fitted to them; got NaN or infinity for every "
            f"image of class {', '.join(map(str, lost))}. Look for the layer that makes them."
        )
    warnings.warn(
        f"{int((~kept).sum())} of {len(kept)} training images have features that are NaN or infinite; scores that are "
        "fitted to features leave them out.",
        stacklevel=2,
    )
    return features[kept], labels[kept]


def at_classes(columns: Tensor, classes: Tensor) -> Tensor:
    """The score at one class of each image, or the one that all classes share, (B,).

    >>> at_classes(torch.tensor([[1.0, 2.0]]), torch.tensor([1])), at_classes(torch.tensor([[3.0]]), torch.tensor([1]))
    (tensor([2.]), tensor([3.]))
    """
    if columns.shape[1] == 1:
        return columns[:, 0]
    return columns.gather(1, classes[:, None])[:, 0]


def _filled(columns: Tensor, logits: Tensor) -> Tensor:
    """A column for each logit: those that stand for no class of the training images are never likely."""
    return torch.nn.functional.pad(columns, (0, logits.shape[1] - columns.shape[1]), value=-torch.inf)


def _or_one(value: Tensor) -> float:
    return float(value) if bool(torch.isfinite(value)) and float(value) > 0 else 1.0


INF, FEW = float("inf"), 10
RELATIVE_STEP = 2.5  # of epsilon over the number of steps, as in PGD


@dataclass(frozen=True)
class Evaded:
    """The most likely misclassified image that was found for each image.

    Args:
        images: (B, C, H, W); the image itself where none was found.
        scores: (B,), float64; minus infinity where none was found.
    """

    images: Tensor
    scores: Tensor

    def beyond(self, limit: float) -> Tensor:
        """Which images are misclassified and not rejected at this threshold, (B,)."""
        return (self.scores >= limit) & (self.scores > -INF)


@dataclass(frozen=True)
class Evasion:
    r"""PGD in norm inf on margin / u + beta * score / v, for one beta after the other.

    x' <- P(x' + step * sign grad [(max_{i != y} z_i - z_y) / u + beta s_r(x') / v])

    s_r is the score of the most likely wrong class r, where there is one for each class. u and v are the typical
    sizes of margin and score on normal images, so that beta means the same whatever unit logits and features have.
    Steps shrink evenly to zero. Last comes a run without a beta, on the margin alone while the image is right and on
    the score alone while it is wrong, which follows the boundary to where the score is highest. Of all the points on
    the way, the one that is misclassified with the highest score is kept, as the detector would read it.

    Source: Carlini and Wagner, *Adversarial Examples Are Not Easily Detected* (2017), for attacking classifier and
    detector at once; Bryniarski et al., *Evading Adversarial Example Detection Defenses* (2021), for the last run.

    Args:
        margin_unit: u, above 0.
        score_unit: v, above 0.
        steps: For each beta.
        targets: Steer at each of so many wrong classes too, those with the largest logits of the image itself, with
            (z_r - max_{i != r} z_i) / u for the margin. It costs as often again.
    """

    scorer: Scorer
    score: str
    margin_unit: float
    score_unit: float
    betas: tuple[float, ...]
    steps: int
    targets: int = 0

    def __call__(self, images: Tensor, labels: Tensor, epsilon: float, known: Evaded | None = None) -> Evaded:
        """Look within one radius.

        Images are (B, C, H, W), within [0, 1], labels (B,), and `epsilon` is in pixel units; what is `known` was found
        within a smaller radius, and is within this one too.
        """
        if known is None:
            known = Evaded(
                images, torch.full((len(images),), -INF, dtype=torch.float64, device=images.device)
            )
        best, scores = known.images.clone(), known.scores.clone()
        for beta, rank in itertools.product((*self.betas, None), (None, *range(self.targets))):
            again = self._climbed(images, labels, epsilon, beta, rank)
            better = again.scores > scores
            best[better], scores[better] = again.images[better], again.scores[better]
        return Evaded(best, scores)

    def _climbed(
        self, images: Tensor, labels: Tensor, epsilon: float, beta: float | None, rank: int | None
    ) -> Evaded:
        best, moving, chunk = images.clone(), images, _chunk(len(images))
        scores = torch.full((len(images),), -INF, dtype=torch.float64, device=images.device)
        gain = self._gain(labels, beta, None if rank is None else self._rivals(images, labels, rank))
        for number in range(self.steps):
            answers, gradient = gradients_of(self._joint, moving, gain, chunk=chunk)
            self._keep(moving, answers, labels, best, scores)
            length = 2 * RELATIVE_STEP * epsilon / self.steps * (1 - number / self.steps)
            delta = moving - images + length * steepest(gradient, INF)
            moving = (images + projected(delta, images, epsilon, INF)).clamp(0, 1)
        self._keep(moving, logits_of(self._joint, moving, chunk=chunk), labels, best, scores)
        return Evaded(best, scores)

    def _joint(self, images: Tensor) -> Tensor:
        """Logits, followed by the columns of the score."""
        features, logits = self.scorer.read(images)
        return torch.cat([logits, self.scorer.columns(self.score, features, logits)], dim=1)

    def _gain(
        self, labels: Tensor, beta: float | None, rivals: Tensor | None
    ) -> Callable[[Tensor, slice], Tensor]:
        """What is ascended: away from the labels, or towards the rivals."""

        def value(answers: Tensor, rows: slice) -> Tensor:
            logits, columns = self._parted(answers)
            own = labels[rows]
            if rivals is None:
                margin, wanted = logit_margin(logits, own), _wrong(logits, own).argmax(dim=1)
            else:
                margin, wanted = -logit_margin(logits, rivals[rows]), rivals[rows]
            gap, score = margin / self.margin_unit, at_classes(columns, wanted) / self.score_unit
            return torch.where(margin > 0, score, gap) if beta is None else gap + beta * score

        return value

    def _rivals(self, images: Tensor, labels: Tensor, rank: int) -> Tensor:
        """The wrong class with the largest logit, or one of the next ones."""
        logits, _ = self._parted(logits_of(self._joint, images))
        order = _wrong(logits, labels).argsort(dim=1, descending=True, stable=True)
        return order[:, min(rank, logits.shape[1] - 2)]

    def _keep(self, moving: Tensor, answers: Tensor, labels: Tensor, best: Tensor, scores: Tensor) -> None:
        """Note where `moving` is misclassified with a score above the best; in place."""
        logits, columns = self._parted(answers)
        named = logits.argmax(dim=1)
        now = lowest_for_nan(self.scorer.reading(self.score, columns, named))
        better = (named != labels) & (now > scores)
        best[better], scores[better] = moving[better], now[better]

    def _parted(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        columns = 1 if self.scorer.is_shared(self.score) else answers.shape[1] // 2
        return answers[:, :-columns], answers[:, -columns:]


def _chunk(images: int) -> int:
    """Images that the model sees at once: few are not filled up to as many as an attack on many has."""
    return min(CHUNK, FEW * math.ceil(images / FEW))


def _wrong(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits without those of the labels, and without a graph."""
    return logits.detach().scatter(1, labels[:, None], -INF)


AUDIT = "likelihood"
BETTER: Mapping[str, Better] = {"auroc": "higher", "aupr": "higher", "fpr95": "lower"}
ADAPTIVE = "adaptive"
ALL, SUCCESSFUL = "all", "successful"
ORIGINALS, NOISE = "originals", "noise"


def detections(normal: Scores, abnormal: Scores, context: dict[str, Scalar]) -> Iterator[Measurement]:
    """AUROC, AUPR and FPR95 of every score; nothing where one set is empty."""
    for score, values in abnormal.items():
        if not (len(values) and len(normal[score])):
            continue
        for name, value in detection(normal[score], values).items():
            found = {**context, "score": score}
            yield Measurement(AUDIT, name, value, "fraction", len(values), better=BETTER[name], context=found)


def share(
    name: str, counted: Tensor, context: dict[str, Scalar], better: Better = "lower"
) -> Iterator[Measurement]:
    """How many of the images are so, with a Wilson interval; nothing without images."""
    if len(counted):
        yield share_of(AUDIT, name, int(counted.sum()), len(counted), better, context)


def under_attack(normal: NormalImages, seen: Seen, noisy: Tensor) -> Iterator[Measurement]:
    """How many images the attack broke, and how well each score finds it out.

    `seen` are all the normal images after the attack, `noisy` the same under noise as large.
    """
    context: dict[str, Scalar] = {"attack": seen.attack, "epsilon": seen.epsilon}
    yield from share("fooled", seen.fooled[normal.right], context)
    originals = normal.scores(seen.epsilon)
    after = {**seen.scores, **pixel_scores(seen.images, seen.epsilon)}
    hit = _rows(after, seen.fooled)
    for negatives, unchanged in ((ORIGINALS, originals), (NOISE, normal.of(noisy, seen.epsilon))):
        yield from detections(unchanged, after, {**context, "counted": ALL, "negatives": negatives})
        counted: dict[str, Scalar] = {**context, "counted": SUCCESSFUL, "negatives": negatives}
        yield from detections(_rows(unchanged, seen.fooled), hit, counted)
    for score, limit in normal.thresholds(seen.epsilon).items():
        yield from share("caught", below(hit[score], limit), {**context, "score": score}, "higher")


def evasion_rate(
    normal: NormalImages, originals: Tensor, found: Evaded, score: str, epsilon: float, noisy: Tensor
) -> Iterator[Measurement]:
    """How often an attack that knows a score passes its threshold, and how well every score finds its images out.

    `found` was made of the originals by an attack that knew `score`; `noisy` are the originals under noise as large.
    """
    beyond = found.beyond(normal.thresholds(epsilon)[score])
    yield from share("evasion", beyond, {"epsilon": epsilon, "score": score})
    wrong = found.scores > -float("inf")
    if not bool(wrong.any()):
        return
    # the attacked score as the attack read it, so that its evasion and its areas are about the same numbers
    after = {**normal.of(found.images[wrong], epsilon), score: found.scores[wrong]}
    for negatives, unchanged in ((ORIGINALS, originals), (NOISE, noisy)):
        context: dict[str, Scalar] = {
            "attack": ADAPTIVE, "attacked": score, "epsilon": epsilon, "counted": SUCCESSFUL, "negatives": negatives,
        }  # fmt: skip
        yield from detections(normal.of(unchanged[wrong], epsilon), after, context)


def unseen(normal: NormalImages, images: Tensor, name: str, epsilon: float) -> Iterator[Measurement]:
    """How well each score detects images that were never learned."""
    after = normal.of(images, epsilon)
    yield from detections(normal.scores(epsilon), after, {"unseen": name})
    for score, limit in normal.thresholds(epsilon).items():
        yield from share("caught", below(after[score], limit), {"unseen": name, "score": score}, "higher")


def rejected(normal: NormalImages, epsilon: float) -> Iterator[Measurement]:
    """How many normal images each score's threshold rejects: 5 % at most was asked for."""
    limits = normal.thresholds(epsilon)
    for score, values in normal.scores(epsilon).items():
        yield from share("rejected", below(values, limits[score]), {"score": score})


def below(values: Tensor, limit: float) -> Tensor:
    """Which scores a threshold rejects: one that is not a number looks like nothing that was learned."""
    return lowest_for_nan(values) < limit


def _rows(scores: Scores, chosen: Tensor) -> Scores:
    return {name: values[chosen] for name, values in scores.items()}


BARS, TAIL = 40, 0.01  # of a histogram; share of the scores beyond either end, which the last bars hold
SHEET = 8  # images caught, and as many missed


def histograms(normal: NormalImages, seen: Seen) -> list[Exhibit]:
    """The likelihood, the distance to the class mean and the largest probability, before and after an attack.

    Fig. 4 and 3 of the paper, whose likelihood of a network trained with center loss is that distance. Empty where no
    score is finite.
    """
    before, before_logits = normal.seen
    after, after_logits = seen.scores, seen.logits
    context: dict[str, Scalar] = {"attack": seen.attack, "epsilon": seen.epsilon}
    pairs = {
        LIKELIHOOD: (before[LIKELIHOOD], after[LIKELIHOOD]),
        CLASS_MEAN: (before[CLASS_MEAN], after[CLASS_MEAN]),
        "probability": tuple(each.softmax(dim=1).amax(dim=1) for each in (before_logits, after_logits)),
    }
    captions = {
        LIKELIHOOD: "Likelihood at the predicted class, in this model's own unit",
        CLASS_MEAN: "Minus half the squared distance to the predicted class's mean, in this model's own unit",
        "probability": "Largest probability",
    }
    found = []
    for name, (clean, moved) in pairs.items():
        columns = _histogram(clean, moved, whole=name == "probability")
        if columns:
            caption = f"{captions[name]}: share of images before and after the attack."
            found.append(Exhibit(AUDIT, name, "histogram", columns, caption, context))
    return found


def contact_sheets(normal: NormalImages, seen: Seen) -> list[Exhibit]:
    """Images that fooled the classifier: some that a score caught at its 5 % threshold, some that it missed.

    One sheet for the likelihood and one for the distance to the class mean, which is the likelihood of a network
    trained with center loss. Of each kind the first images in the set's order, without selection. ``p``: the share
    of normal images that are as unlikely.
    """
    found = (_contact_sheet(normal, seen, score) for score in (LIKELIHOOD, CLASS_MEAN))
    return [sheet for sheet in found if sheet is not None]


def _contact_sheet(normal: NormalImages, seen: Seen, score: str) -> Exhibit | None:
    after = lowest_for_nan(seen.scores[score])
    caught = below(after, normal.thresholds(seen.epsilon)[score])
    rows = torch.cat([(seen.fooled & kind).nonzero().flatten()[:SHEET] for kind in (caught, ~caught)]).cpu()
    if not len(rows):
        return None
    classes = normal.data.classes
    columns = {
        "image": picture_pixels(seen.images[rows]),
        "caught": caught.cpu()[rows].tolist(),
        "class": [classes[k] for k in normal.data.labels.cpu()[rows].tolist()],
        "taken for": [named_class(classes, k) for k in named_classes(seen.logits).cpu()[rows].tolist()],
        "p": p_values(normal.seen_held_out[0][score], after).cpu()[rows].tolist(),
    }
    caption = "Images that fooled the classifier: some that this score caught, some that it missed."
    context: dict[str, Scalar] = {"attack": seen.attack, "epsilon": seen.epsilon, "score": score}
    return Exhibit(AUDIT, "sheet", "images", columns, caption, context)


def _histogram(clean: Tensor, moved: Tensor, *, whole: bool) -> dict[str, list[float]]:
    """Shares of both in bars of one width, beginning at ``from``; a score that is not finite is in none."""
    clean, moved = (each[each.isfinite()].double().cpu() for each in (clean, moved))
    if not (len(clean) and len(moved)):
        return {}
    both = torch.cat([clean, moved])
    ends = torch.quantile(both, torch.tensor([TAIL, 1 - TAIL], dtype=torch.float64))
    low, high = (0.0, 1.0) if whole else (float(ends[0]), float(ends[1]))
    high = high if high > low else low + 1.0
    width = (high - low) / BARS
    shares = [
        torch.bincount(((each - low) / width).floor().clamp(0, BARS - 1).long(), minlength=BARS) / len(each)
        for each in (clean, moved)
    ]
    return {
        "from": [low + width * k for k in range(BARS)],
        "before": shares[0].tolist(),
        "after": shares[1].tolist(),
    }


def tables(normal: NormalImages, epsilon: float) -> list[Exhibit]:
    """Two exhibits of numbers that nothing draws, because they cannot be compared with those of another model.

    ``scores``: for each normal image its class, what it was taken for, its ``likelihood``, the ``density`` where the
    head has one, and ``p``, the share of held-out images that are as unlikely. ``thresholds``: what each score is held
    against, so that a program can reject its own images.

    `epsilon` is for the scores of pixels.
    """
    return [_scores(normal), _thresholds(normal, epsilon)]


def _scores(normal: NormalImages) -> Exhibit:
    scores, logits = normal.seen
    classes = normal.data.classes
    columns: dict[str, list[Any]] = {
        "class": [classes[k] for k in normal.data.labels.tolist()],
        "taken for": [named_class(classes, k) for k in named_classes(logits).tolist()],
        "p": p_values(normal.seen_held_out[0][LIKELIHOOD], scores[LIKELIHOOD]).tolist(),
    }
    columns |= {
        name: lowest_for_nan(scores[name]).tolist() for name in (LIKELIHOOD, DENSITY) if name in scores
    }
    caption = "Log-densities of normal images, in this model's own unit."
    return Exhibit(AUDIT, "scores", "histogram", columns, caption)


def _thresholds(normal: NormalImages, epsilon: float) -> Exhibit:
    limits = normal.thresholds(epsilon)
    columns: dict[str, list[Any]] = {"score": list(limits), "threshold": list(limits.values())}
    caption = "Below these scores a normal image falls in at most 5 % of cases."
    return Exhibit(AUDIT, "thresholds", "histogram", columns, caption)
