"""Does a low likelihood give away images that the classifier has not learned?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clearance._checks import check_choice, check_count, check_fraction, check_non_negative
from clearance.audits import _likelihood_findings as told
from clearance.audits._abnormal import MANY_STEPS, ONE_STEP, attacked, sign_noise
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._evasion import Evasion
from clearance.audits._fixed_images import fixed_images
from clearance.audits._halves import first_half
from clearance.audits._likelihood_pictures import contact_sheets, histograms
from clearance.audits._likelihood_scores import LIKELIHOOD, MAHALANOBIS, NETWORK_SCORES, Scorer
from clearance.audits._likelihood_sets import NormalImages
from clearance.audits._likelihood_tables import tables
from clearance.audits.rejection import check_enough
from clearance.data import ImageSet, as_image_set
from clearance.models._running import evaluating
from clearance.vocabulary import Exhibit, Measurement

LEFT_OUT = "classes left out"


@dataclass(frozen=True)
class Likelihood(Audit):
    r"""How well a classifier's likelihood, and other scores, tell images that it has not learned from normal ones.

    Scores (higher is more normal): ``likelihood``, the log-density at the predicted class of a Gaussian-mixture head,
    of any other head the logit of the predicted class; ``density``, log p(x) of the mixture; ``class mean``, minus half
    the squared distance to the training features' mean of the predicted class (the center loss's); ``mahalanobis``,
    after the fact, one covariance for all classes; ``max softmax``; ``energy``; ``neighbours``; and two that see pixels
    alone: ``small pixels``, the share in (0, epsilon], and ``pixel steps``, mean |dx|. What does not beat these is no
    finding.

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
    single images, and the thresholds, are exhibits. Where nothing was fooled, nothing can be told apart, and there is
    no measurement.

    Args:
        epsilons: Radii in norm inf, ascending, in pixel units; those of the paper by default.
        steps: Of I-FGSM.
        images: At most, to be told apart, and as many for thresholds; a class-balanced choice by the seed.
        other: Images of another dataset, of the same shape; a recipe gives its name.
        adaptive: Scores that are attacked.
        adaptive_images: At most, of those; as many as a network sees at once, by default.
        adaptive_steps: For each beta.
        betas: Weights of the score beside the margin; four decades by default.
        targets: Steer the attack at so many wrong classes in turn too, which costs as often again; worth it where
            evasion is rare.
        neighbours: k, of the nearest training features.
        reference: At most so many training images for these.

    Raises:
        ValueError: If a setting is out of range, or `other` has images of another shape.

    Misleads as a defence: a likelihood that finds FGSM says nothing about an attack that knows it; read ``evasion``. An
    evasion rate is a lower bound, an attack that nobody tried may evade more. Densities of two models have two units
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
    question: ClassVar[str] = "Does a low likelihood give away images that the classifier has not learned?"
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

    def examine(self, subject: Subject) -> Findings:
        """Attacks that know of no detector, images that were never learned, and an attack that knows the score."""
        with evaluating(subject.model):
            normal = self._normal(subject)
            found = list(told.rejected(normal, self.epsilons[0]))
            exhibits: list[Exhibit] = tables(normal, self.epsilons[0])
            for epsilon in self.epsilons:
                exhibits += self._under_attack(subject, normal, epsilon, found)
            for title, data in self._unseen(subject):
                found.extend(told.unseen(normal, data.images, title, self.epsilons[0]))
            for score in self.adaptive:
                if score in normal.scorer.names:
                    found.extend(self._evaded(normal, score, subject.seed))
        return Findings(tuple(found), tuple(exhibits))

    def _normal(self, subject: Subject) -> NormalImages:
        half = first_half(subject.test.labels, subject.seed)
        if not bool(half.any()):
            raise ValueError(
                "`test` must have at least 2 images of a class, for thresholds; got one of each."
            )
        check_enough(int(half.sum()))
        held_out, rest = (subject.test.subset(mask.nonzero().flatten()) for mask in (half, ~half))
        return NormalImages(
            Scorer.fitted(subject, self.reference, self.neighbours),
            fixed_images(rest, self.images, subject.seed),
            fixed_images(held_out, self.images, subject.seed),
        )

    def _under_attack(
        self, subject: Subject, normal: NormalImages, epsilon: float, found: list[Measurement]
    ) -> list[Exhibit]:
        """Both attacks at one radius; pictures are of the one-step attack, as the paper's."""
        images, labels = normal.data.images, normal.data.labels
        exhibits = []
        for attack in (ONE_STEP, MANY_STEPS):
            seen = normal.after(attacked(subject.model, images, labels, attack, epsilon, self.steps))
            noisy = sign_noise(images, epsilon, subject.seed, as_long_as=seen.changed.images - images)
            found.extend(told.under_attack(normal, seen, noisy))
            if attack == ONE_STEP:
                exhibits += [*histograms(normal, seen), *contact_sheets(normal, seen)]
        return exhibits

    def _unseen(self, subject: Subject) -> Iterator[tuple[str, ImageSet]]:
        """Sets that the classifier never learned from, by what they are called."""
        if self.other is not None:
            if isinstance(self.other, str):
                raise ValueError(
                    f"`other` must be images by now; got the name {self.other!r}. Names are for recipes: pass "
                    "clearance.load_dataset(...) instead."
                )
            other = as_image_set(self.other).to(subject.test.labels.device)
            if other.shape != subject.test.shape:
                raise ValueError(
                    f"`other` must have images of shape {subject.test.shape}, as the classifier takes them; got "
                    f"{other.shape}. Resize them, or leave the set out."
                )
            yield other.name, fixed_images(other, self.images, subject.seed)
        if subject.new_classes is not None:
            yield LEFT_OUT, fixed_images(subject.new_classes.test, self.images, subject.seed)

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
            noisy = sign_noise(data.images, epsilon, seed, as_long_as=evaded.images - data.images)
            yield from told.evaded(normal, data.images, evaded, score, epsilon, noisy)
