"""A classifier in two parts, extractor and head, that takes images in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearance.models._activations import ALWAYS, check_reducers, recorded_activations
from clearance.tensors import Head, Outputs, head_logits


class Classifier(nn.Module):
    r"""An image classifier cut in two: normalise, then extract features, then read them.

    logits = head(extractor((images - mean) / std))

    Args:
        extractor: Turns normalised images into features, shape (B, D).
        head: Turns features into logits, shape (B, C).
        mean: Subtracted from images, one value or one a channel, in [0, 1] units.
        std: Divides images after that, likewise; above 0.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, C).

    Raises:
        TypeError: If images are whole numbers.
        ValueError: If `std` is not above 0, channels do not fit, or features are not of shape (B, D).

    >>> model = Classifier(nn.Flatten(), nn.Linear(16, 3), mean=0.5, std=0.5)
    >>> images = torch.rand(2, 1, 4, 4)
    >>> outputs = model.outputs(images)
    >>> outputs.features.shape, outputs.logits.shape
    (torch.Size([2, 16]), torch.Size([2, 3]))
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        extractor: nn.Module,
        head: nn.Module,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).reshape(-1, 1, 1))
        if not bool((self.std > 0).all()):
            raise ValueError(f"`std` must be above 0 in every channel; got {std}.")

    def features(self, images: Tensor) -> Tensor:
        """What enters the head for these images, shape (B, D)."""
        _check_floating(images)
        channels = max(len(self.mean), len(self.std))
        if channels > 1 and images.shape[1] != channels:
            raise ValueError(
                f"images must have {channels} channels, as `mean` and `std` do; got {images.shape[1]}."
            )
        features = self.extractor((images - self.mean) / self.std)
        if features.ndim != 2:
            raise ValueError(
                f"the extractor must return features of shape (B, D); got {tuple(features.shape)}. "
                "End it with pooling or nn.Flatten()."
            )
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Logits for images in [0, 1], shape (B, C)."""
        return self.head(self.features(images))

    def outputs(self, images: Tensor, layers: Sequence[str] = (), head: Head | None = None) -> Outputs:
        """Features and logits with their graph, and the activations of `layers`.

        Args:
            images: In [0, 1], shape (B, C, H, W). With ``"input"`` among `layers` the caller's tensor receives no
                gradient.
            layers: Names of submodules (as in ``named_modules()``), or ``"input"``: the images as a
                fresh leaf that requires a gradient, in [0, 1] units. Features and logits are always there.
            head: Reads the features in place of the model's own head.

        Raises:
            TypeError: If `layers` is one word.
            ValueError: If a layer does not exist, does not run, runs twice, or its output is changed in
                place by what follows, because its gradient would then be silently wrong.
        """
        if isinstance(layers, str):
            raise TypeError(
                f"`layers` must be a list of names; got one word, {layers!r}. Write [{layers!r}]."
            )
        _check_floating(images)
        activations: dict[str, Tensor] = {}
        if "input" in layers:
            images = images.detach().clone().requires_grad_()
            activations["input"] = images
        if layers and torch.distributed.is_available() and torch.distributed.is_initialized():
            check_reducers(self)
        hidden = [name for name in dict.fromkeys(layers) if name not in ("input", *ALWAYS)]
        with recorded_activations(self, hidden) as recorded:
            features = self.features(images)
            reader = self.head if head is None else head
            logits = head_logits(reader, features)
        activations.update(recorded)
        return Outputs(features, logits, reader, activations)


def _check_floating(images: Tensor) -> None:
    if not images.is_floating_point():
        raise TypeError(
            f"images must be floating point in [0, 1]; got {images.dtype}. Divide grey levels by 255."
        )


def check_classifier(model: object) -> None:
    """Raise TypeError unless `model` is a Classifier, and say how it becomes one."""
    if isinstance(model, Classifier):
        return
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        remedy = "Give its `.module`; under torchrun every process trains on its share, and gradients are averaged."
    elif hasattr(model, "_orig_mod"):
        remedy = "Give its `._orig_mod`, and compile_extractor=True."
    else:
        remedy = "Make one with clearance.wrap(module, example=images)."
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    raise TypeError(f"`model` must be a clearance Classifier; got {kind}. {remedy}")
