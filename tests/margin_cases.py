"""Small networks for tests of margins, and distances the slow way: one sample, class and layer at a time."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance._first_order import first_order_distance
from clearance.losses.margins import Ruler, gaps_and_norms
from clearance.models import Classifier

CLASSES = 4
HIDDEN = "extractor.2"
ALL_LAYERS = ("input", HIDDEN, "features", "logits")
CONV_LAYERS = ("input", "extractor.0", HIDDEN, "features", "logits")


def filled(model: nn.Module, seed: int = 0, size: float = 0.6) -> nn.Module:
    """The same module with normal weights and biases of one size, in float64."""
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=stream))
    return model.double()


def smooth_net(classes: int = CLASSES, seed: int = 0) -> Any:
    """9 pixels, 7 hidden units, 5 features, tanh: derivatives of every order."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh())
    model = Classifier(extractor, nn.Linear(5, classes), mean=0.4, std=0.5)
    filled(model, seed)
    return model.eval()


def relu_net(classes: int = CLASSES, seed: int = 0) -> Any:
    """The same, piecewise linear."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU())
    model = Classifier(extractor, nn.Linear(5, classes), mean=0.4, std=0.5)
    filled(model, seed)
    return model.eval()


def conv_net(norm: nn.Module | None = None, seed: int = 0) -> Any:
    """A convolution, what normalises it, ReLU ("extractor.2"), another, global average."""
    extractor = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), norm or nn.Identity(), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    model = Classifier(extractor, nn.Linear(6, CLASSES), mean=0.4, std=0.5)
    filled(model, seed)
    return model.eval()


def images(count: int = 6, side: int = 3, seed: int = 1) -> Tensor:
    """Images of one channel in float64."""
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, side, side, generator=stream, dtype=torch.float64)


def labels(count: int = 6, classes: int = CLASSES) -> Tensor:
    """0, 1, 2 ... in turn."""
    return torch.arange(count) % classes


def slow_dual(values: Sequence[float], norm: float) -> float:
    """The dual norm of numbers, in plain Python."""
    sizes = [abs(value) for value in values]
    if norm == 1:
        return max(sizes)
    q = 1.0 if math.isinf(norm) else norm / (norm - 1)
    return sum(size**q for size in sizes) ** (1 / q)


def slow_distance(
    model: Classifier, image: Tensor, label: int, rival: int, layer: str, *,
    norm: float = 2.0, score: str = "logits", eps: float = 0.0, divided_by: float = 1.0,
) -> float:  # fmt: skip
    """(s_y - s_i) / (||grad_h (s_y - s_i)||_q / divided_by + eps) of one image, from a forward pass of its own."""
    own = tuple(name for name in ("input", layer) if name not in ("features", "logits"))
    outputs = model.outputs(image[None], own)
    place = {"features": outputs.features, "logits": outputs.logits}.get(layer)
    if place is None:
        place = outputs.activations[layer]
    scores = outputs.logits[0] if score == "logits" else outputs.logits[0].softmax(dim=0)
    gap = scores[label] - scores[rival]
    (gradient,) = torch.autograd.grad(gap, place)
    return gap.item() / (slow_dual(gradient.flatten().tolist(), norm) / divided_by + eps)


def wrong_classes(model: Classifier, image: Tensor, label: int) -> list[int]:
    """All but the label, highest logit first."""
    logits = model(image[None])[0].tolist()
    return sorted((i for i in range(len(logits)) if i != label), key=lambda i: -logits[i])


def measured(
    model: Classifier, x: Tensor, y: Tensor, layers: Sequence[str] = CONV_LAYERS, norm: float = 2.0,
    sweeps: Any = "sequential", score: Any = "logits",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Distances (L, k, B) to all rivals, highest logit first, in whatever mode the model is; and the rivals."""
    outputs = model.outputs(x, tuple(name for name in layers if name not in ("features", "logits")))
    masked = outputs.logits.detach().scatter(1, y[:, None], -math.inf)
    rivals = masked.argsort(dim=1, descending=True)[:, :-1].mT
    gaps, norms = gaps_and_norms(outputs, y, rivals, layers, Ruler(norm, score), sweeps=sweeps)
    return first_order_distance(gaps, norms).detach(), rivals
