"""Targeted gradient ascent until the target has the wanted probability."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction, check_positive
from clearance._precision import at_least_float32
from clearance.attacks.attack import (
    CHUNK,
    Attacked,
    Batch,
    Model,
    check_other,
    gradients_of,
    logits_of,
    rescored,
)
from clearance.attacks.balls import as_norm, steepest
from clearance.attacks.losses import cross_entropy


@dataclass(frozen=True)
class TargetedAscent:
    r"""Unit steps up the gradient of log p_t, until the probability of the target is `confidence`.

        x' <- clip(x' + step * g / ||g||),  g = grad log p_t(x'),  p = softmax(logits / temperature)

    Source: Tanay and Griffin, *A New Angle on L2 Regularization* (2018), the section on neural networks. The
    gradient of log p_t points where that of p_t does, and does not vanish while the target is far off.

    Args:
        confidence: Of the target at which to stop, between 0 and 1; 0.95 in the article.
        step: Length of a step in the unit of the pixels, above 0; one grey level of 255 in the article.
        steps: At most this number.
        norm: Of the steps and of the distance: 2 in the article, inf or 1.
        temperature: Logits are divided by it, above 0. The article calibrates it for each network, so that the
            median probability of the predicted class is 0.95.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads where models are compared at one temperature: a confidence is reached sooner where logits are
    larger. Its verdict depends on the scale of logits, as the article's does, and as attacks on plain cross-entropy do.

    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    >>> hit = TargetedAscent(confidence=0.75)(model, torch.tensor([[0.75, 0.5]]), torch.tensor([0]))
    >>> hit.success, bool(model(hit.images).softmax(dim=1)[0, 1] >= 0.75)
    (tensor([True]), True)
    """

    confidence: float = 0.95
    step: float = 1 / 255
    steps: int = 2000
    norm: float = 2.0
    temperature: float = 1.0
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_fraction("confidence", self.confidence, open_below=True, open_above=True)
        check_positive("step", self.step)
        check_count("steps", self.steps)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_positive("temperature", self.temperature)
        check_count("chunk", self.chunk)

    @torch.inference_mode(False)  # a caller's inference mode would make tensors without gradients
    @torch.no_grad()
    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Attacked:
        """Move every image until the target has the wanted probability.

        Args:
            model: Images to logits; a module must be in evaluation mode.
            images: (B, ...) in [0, 1], floating point.
            labels: (B,), the true classes.
            targets: (B,); by default the class after the label, as in the article, the first after the last.

        Returns:
            Verified images. Success means that the confidence was reached, not only that the target leads.

        Raises:
            ValueError: If the model is in training mode, images are outside [0, 1], shapes do not fit, or
                a class is not among the model's, or a target is the image's own label.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, targets, self.chunk)
        if batch.targets is None:
            batch = replace(batch, targets=(batch.labels + 1) % batch.logits.shape[1])
        assert batch.targets is not None
        check_other(batch.targets, batch.labels)
        hit = rescored(
            model,
            batch.images,
            self._climbed(batch, batch.targets) if len(batch) else batch.images,
            batch.labels,
            norm=self.norm,
            # a target that leads already is no reason to stop: it is the confidence that is wanted
            before=torch.zeros_like(batch.labels, dtype=torch.bool),
            targets=batch.targets,
            chunk=self.chunk,
        )
        if not len(batch):
            return hit
        return replace(hit, success=self._sure(logits_of(model, hit.images, chunk=self.chunk), batch.targets))

    def _climbed(self, batch: Batch, targets: Tensor) -> Tensor:
        found, moving = batch.images.clone(), batch.images
        rows = torch.arange(len(batch), device=moving.device)
        for _ in range(self.steps):
            logits, gradient = self._ascent(batch.model, moving, targets)
            found[rows] = moving
            open_ = ~self._sure(logits, targets)
            rows, moving, targets, gradient = rows[open_], moving[open_], targets[open_], gradient[open_]
            if not len(rows):
                return found
            moving = (moving + self.step * steepest(gradient, self.norm)).clamp(0, 1)
        found[rows] = moving
        return found

    def _ascent(self, model: Model, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        def value(logits: Tensor, rows: slice) -> Tensor:
            return -cross_entropy(logits / self.temperature, targets[rows])

        return gradients_of(model, images, value, chunk=self.chunk)

    def _sure(self, logits: Tensor, targets: Tensor) -> Tensor:
        scores = at_least_float32(logits) / self.temperature
        return scores.softmax(dim=1).gather(1, targets.unsqueeze(1)).squeeze(1) >= self.confidence
