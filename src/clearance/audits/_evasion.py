"""An attack that knows the detector: images that are misclassified and yet look likely."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.attacks.balls import projected, steepest
from clearance.attacks.losses import logit_margin
from clearance.attacks.queries import CHUNK, gradients_of, logits_of
from clearance.audits._detection import lowest_for_nan
from clearance.audits._likelihood_scores import Scorer, at_classes
from clearance.vocabulary import Bounds

INF, FEW = float("inf"), 10
RELATIVE_STEP = 2.5  # of epsilon over the number of steps, as in PGD
Joint = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Evaded:
    """The likeliest misclassified image that was found for each image.

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

    s_r is the score of the likeliest wrong class r, where there is one for each class. u and v are the typical sizes of
    margin and score on normal images, so that beta means the same whatever unit logits and features have. Steps shrink
    evenly to zero. Last comes a run without a beta, on the margin alone while the image is right and on the score alone
    while it is wrong, which follows the boundary to where the score is highest. Of all the points on the way, the one
    that is misclassified with the highest score is kept, as the detector would read it.

    Source: Carlini and Wagner, *Adversarial Examples Are Not Easily Detected* (2017), for attacking classifier and
    detector at once; Bryniarski et al., *Evading Adversarial Example Detection Defenses* (2021), for the last run.

    Args:
        scorer: Gives logits and score.
        score: Its name.
        margin_unit: u, above 0.
        score_unit: v, above 0.
        betas: Tried in this order.
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

        Args:
            images: (B, C, H, W), within [0, 1].
            labels: (B,).
            epsilon: Radius in pixel units.
            known: What was found within a smaller radius, and is within this one too.
        """
        found = Evaded(images.clone(), torch.full((len(images),), -INF, dtype=torch.float64))
        best, scores = (
            (found.images, found.scores.to(images.device)) if known is None else (known.images, known.scores)
        )
        best, scores = best.clone(), scores.clone()
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
            moving = (images + projected(delta, images, epsilon, INF, Bounds())).clamp(0, 1)
        self._keep(moving, logits_of(self._joint, moving, chunk=chunk), labels, best, scores)
        return Evaded(best, scores)

    def _joint(self, images: Tensor) -> Tensor:
        """Logits, and beside them the columns of the score."""
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
