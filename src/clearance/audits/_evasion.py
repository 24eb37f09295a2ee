"""An attack that knows the detector: images that are misclassified and yet look likely."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.attacks.balls import projected
from clearance.attacks.losses import logit_margin
from clearance.attacks.queries import gradients_of, logits_of
from clearance.attacks.steps import steepest
from clearance.audits._detection import lowest_for_nan
from clearance.audits._likelihood_scores import Scorer, at_classes
from clearance.vocabulary import Bounds

INF = float("inf")
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

    s_r is the score read at the likeliest wrong class r, where it is one of a class. u and v are the typical sizes of
    margin and score on normal images, so that beta means the same whatever unit logits and features have. Of all the
    points on the way, the one that is misclassified with the highest score is kept, as the detector would read it.

    Source: Carlini and Wagner, *Adversarial Examples Are Not Easily Detected* (2017), for attacking classifier and
    detector at once.

    Args:
        scorer: Gives logits and score.
        score: Its name.
        margin_unit: u, above 0.
        score_unit: v, above 0.
        betas: Tried in this order.
        steps: For each beta.
    """

    scorer: Scorer
    score: str
    margin_unit: float
    score_unit: float
    betas: tuple[float, ...]
    steps: int

    def __call__(
        self, images: Tensor, labels: Tensor, epsilon: float, enough: float, known: Evaded | None = None
    ) -> Evaded:
        """Look within one radius.

        Args:
            images: (B, C, H, W), within [0, 1].
            labels: (B,).
            epsilon: Radius in pixel units.
            enough: An image with this score is not pushed further.
            known: What was found within a smaller radius, and is within this one too.
        """
        found = Evaded(images.clone(), torch.full((len(images),), -INF, dtype=torch.float64))
        best, scores = (
            (found.images, found.scores.to(images.device)) if known is None else (known.images, known.scores)
        )
        best, scores = best.clone(), scores.clone()
        for beta in self.betas:
            rows = (scores < enough).nonzero().flatten()
            if not len(rows):
                break
            again = self._climbed(images[rows], labels[rows], epsilon, beta)
            better = again.scores > scores[rows]
            best[rows[better]], scores[rows[better]] = again.images[better], again.scores[better]
        return Evaded(best, scores)

    def _climbed(self, images: Tensor, labels: Tensor, epsilon: float, beta: float) -> Evaded:
        best, moving = images.clone(), images
        scores = torch.full((len(images),), -INF, dtype=torch.float64, device=images.device)
        length = RELATIVE_STEP * epsilon / self.steps
        for _ in range(self.steps):
            answers, gradient = gradients_of(self._joint, moving, self._gain(labels, beta))
            self._keep(moving, answers, labels, best, scores)
            delta = moving - images + length * steepest(gradient, INF)
            moving = images + projected(delta, images, epsilon, INF, Bounds())
        moving = moving.clamp(0, 1)
        self._keep(moving, logits_of(self._joint, moving), labels, best, scores)
        return Evaded(best, scores)

    def _joint(self, images: Tensor) -> Tensor:
        """Logits, and beside them the columns of the score."""
        features, logits = self.scorer.read(images)
        return torch.cat([logits, self.scorer.columns(self.score, features, logits)], dim=1)

    def _gain(self, labels: Tensor, beta: float) -> Callable[[Tensor, slice], Tensor]:
        def value(answers: Tensor, rows: slice) -> Tensor:
            logits, columns = self._parted(answers)
            others = logits.detach().scatter(1, labels[rows, None], -INF)
            wanted = at_classes(columns, others.argmax(dim=1))
            return logit_margin(logits, labels[rows]) / self.margin_unit + beta * wanted / self.score_unit

        return value

    def _keep(self, moving: Tensor, answers: Tensor, labels: Tensor, best: Tensor, scores: Tensor) -> None:
        """Note where `moving` is misclassified with a score above the best; in place."""
        logits, columns = self._parted(answers)
        named = logits.argmax(dim=1)
        now = lowest_for_nan(at_classes(columns, named))
        better = (named != labels) & (now > scores)
        best[better], scores[better] = moving[better], now[better]

    def _parted(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        columns = 1 if self.scorer.is_shared(self.score) else answers.shape[1] // 2
        return answers[:, :-columns], answers[:, -columns:]
