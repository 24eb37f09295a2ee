"""The unit in which distances inside a network are measured: how far images lie from their mean at a layer."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clearance.models.classifier import Classifier


def layer_spreads(
    model: Classifier, images: Tensor, layers: Sequence[str], norm: float, chunk: int
) -> dict[str, float]:
    """The typical p-norm of a deviation from the mean image, by layer.

    sqrt(mean over images and elements of (h - mean h)^2) * N^(1/p) for N elements; 0 where all images agree.

    Args:
        model: In evaluation mode.
        images: (B, C, H, W).
        layers: Names of submodules, ``"features"``, ``"logits"``.
        norm: p.
        chunk: Images that the model sees at once.

    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    >>> layer_spreads(model, images, ("features",), 2, chunk=1)           # 0.5 in each of four pixels
    {'features': 1.0}
    """
    rows = {layer: _deviation(model, images, layer, chunk) for layer in layers}
    return {
        layer: deviation * (1.0 if math.isinf(norm) else elements ** (1 / norm))
        for layer, (deviation, elements) in rows.items()
    }


def _deviation(model: Classifier, images: Tensor, layer: str, chunk: int) -> tuple[float, int]:
    """Root mean square deviation of an element from its mean over images, and how many elements there are."""
    origin = _values(model, images[:1], layer)[0]  # sums of squares lose nothing around a point of the cloud
    total, squares = torch.zeros_like(origin), 0.0
    for part in images.split(chunk):
        off = _values(model, part, layer) - origin
        total += off.sum(dim=0)
        squares += float(off.square().sum())
    mean = total / len(images)
    variance = squares / (len(images) * origin.numel()) - float(mean.square().mean())
    # NaN stays NaN, and what rounding leaves of equal images is no spread
    tiny = 1e-12 * float(origin.square().mean())
    return (0.0 if variance <= tiny else math.sqrt(variance)), origin.numel()


@torch.no_grad()
def _values(model: Classifier, images: Tensor, layer: str) -> Tensor:
    outputs = model.outputs(images, () if layer in ("features", "logits") else (layer,))
    named = {"features": outputs.features, "logits": outputs.logits, **outputs.activations}
    return named[layer].flatten(1).double()
