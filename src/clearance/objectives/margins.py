"""First-order distances of a batch's samples to their class boundaries, at any layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_non_negative
from clearance.data.image_set import check_pixels
from clearance.geometry.first_order import dual_exponent, dual_norm, first_order_distance
from clearance.heads._labels import check_class_numbers
from clearance.models.classifier import Classifier, check_classifier
from clearance.objectives._class_pairs import Score, class_gaps, wide
from clearance.objectives._gap_gradients import GapGradients
from clearance.objectives._margin_layers import (
    captured_layers,
    check_pairs,
    checked_layers,
    full_precision,
    margin_tensors,
)
from clearance.objectives._sweeps import Sweeps, swept_norms
from clearance.objectives.shortlist import top_rivals
from clearance.tensors import Outputs

Unit = Literal["layer", "element", "spread"]


@dataclass(frozen=True)
class Ruler:
    """How distances are measured.

    Args:
        norm: p, at least 1, or ``inf``: the norm of displacements.
        score: Whose ties are boundaries: ``"logits"``, or ``"softmax"`` probabilities, which tie at the same
            places but stretch distances exponentially (for two classes sinh(z) in place of the logit gap z).
        eps: Added to the gradient's norm, at least 0.
        unit: ``"layer"``, that of the layer's own values; ``"element"``, for one element of the layer
            (distance times N^(1/q) for N elements, so that the size of a layer does not enter); ``"spread"``,
            the typical p-norm of the batch's deviations from its mean there, so that scaling a layer and
            unscaling the next changes nothing.

    >>> Ruler(norm="inf").norm
    inf
    """

    norm: float = 2.0
    score: Score = "logits"
    eps: float = 0.0
    unit: Unit = "layer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", float(self.norm))  # recipes may say "inf"
        dual_exponent(self.norm)
        check_choice("score", self.score, get_args(Score))
        check_non_negative("eps", self.eps)
        check_choice("unit", self.unit, get_args(Unit))


def gaps_and_norms(
    outputs: Outputs,
    labels: Tensor,
    rivals: Tensor,
    layers: Sequence[str],
    ruler: Ruler,
    *,
    full: bool = False,
    sweeps: Sweeps = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Numerator and denominator of every sample's signed distance to its boundary with each rival, at every layer.

    d = (s_y - s_i) / (||grad_h (s_y - s_i)||_q + eps)

    One backward sweep for each of the k rivals serves all layers; at the logits, and at the features where
    the head is linear, the gradient is known without one: e_y - e_i, and W_y - W_i.

    Args:
        outputs: Of a classifier, with the activations of `layers`.
        labels: (B,).
        rivals: (k, B).
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``.
        ruler: Norm, score, eps and unit.
        full: Whether the denominator can be differentiated too; elsewhere it is a constant, so that a
            function of these distances is one of logits alone, and one backward pass moves all layers'
            margins.
        sweeps: How k sweeps are made.

    Returns:
        The gaps, (k, B), and the norms in the ruler's unit, (L, k, B), in the order of `layers`; at least float32.
    """
    tensors = margin_tensors(outputs, layers)
    with full_precision(outputs.logits), torch.set_grad_enabled(True):
        gradients = GapGradients(outputs, labels, rivals, ruler.score, full=full)
        norms = _analytic_norms(gradients, layers, ruler.norm)
        rest = {name: tensor for name, tensor in tensors.items() if name not in norms}
        if rest:
            root, starts = gradients.nearest_to(list(rest))
            norms |= swept_norms(root, rest, starts, ruler.norm, sweeps=sweeps, create_graph=full)
        scaled = torch.stack([norms[name] * _unit_of(tensors[name], ruler, full) for name in layers])
        return class_gaps(outputs.logits, labels, rivals, ruler.score), scaled if full else scaled.detach()


def _analytic_norms(gradients: GapGradients, layers: Sequence[str], norm: float) -> dict[str, Tensor]:
    found = {}
    if "logits" in layers:
        found["logits"] = _norm(gradients.entries_at_logits, norm)
    if "features" in layers and gradients.at_features is not None:
        found["features"] = _norm(gradients.at_features, norm)
    return found


def _norm(gradients: Tensor, norm: float) -> Tensor:
    """In units of the largest entry, as sweeps start: squares leave the range of float32 before distances do."""
    peak = gradients.detach().abs().amax(dim=2)
    unit = torch.where(peak > 0, peak, 1.0)
    return dual_norm(gradients / unit.unsqueeze(2), norm, leading=2) * unit


def _unit_of(tensor: Tensor, ruler: Ruler, full: bool) -> Tensor | float:
    """What a gradient's norm is multiplied by for distances in the ruler's unit; `full` keeps its graph."""
    elements = math.prod(tensor.shape[1:])
    if ruler.unit == "layer":
        return 1.0
    if ruler.unit == "element":
        return elements ** (-1 / dual_exponent(ruler.norm))
    if len(tensor) < 2:
        raise ValueError("`unit` 'spread' needs at least 2 samples in a batch; got 1. Use 'layer'.")
    values = wide(tensor if full else tensor.detach())
    spread = torch.linalg.vector_norm(values - values.mean(dim=0)) / math.sqrt(values.numel())  # slope 0 at 0
    return spread * elements ** (1 / ruler.norm)


@dataclass(frozen=True)
class Margins:
    """Distances of a batch at several layers.

    Args:
        rivals: The classes that each sample was measured against, (B, k), highest logit first.
        distances: By layer, (B, k): positive where the sample's own class has the higher score.
    """

    rivals: Tensor
    distances: Mapping[str, Tensor]

    def nearest(self) -> dict[str, Tensor]:
        """The smallest distance of each sample by layer, (B,); negative where it is misclassified."""
        return {name: values.amin(dim=1) for name, values in self.distances.items()}


def margin_distances(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    layers: Sequence[str] = ("input",),
    *,
    norm: float = 2.0,
    top_k: int | None = None,
    score: Score = "logits",
    eps: float = 0.0,
    unit: Unit = "layer",
) -> Margins:
    """Signed first-order distances of images to their class boundaries, also under ``torch.no_grad``.

    Args:
        model: In evaluation mode.
        images: In [0, 1], (B, C, H, W); at the input, distances are in these units.
        labels: The class on whose side an image ought to be, (B,).
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``.
        norm: p, at least 1, or ``inf``.
        top_k: Rivals looked at, those with the highest logits; None is all.
        score: ``"logits"`` or ``"softmax"``.
        eps: Added to the gradient's norm.
        unit: As in :class:`Ruler`.

    Returns:
        Distances without a graph; no gradient of a parameter is touched.

    Raises:
        ValueError: If the model is in training mode, because batch statistics and dropout make a distance
            depend on the rest of the batch and on chance; or if a layer, label or number is wrong, or a pixel
            outside [0, 1].
        TypeError: If the model is no Classifier, or labels are not whole numbers of 64 bits.

    Misleads away from linear: it is no bound of the true distance. An infinite value says that no
    displacement changes the gap, to first order (a dead or saturated network), not that the sample is safe.

    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> with torch.no_grad():
    ...     _ = model.head.weight.copy_(torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    ...     _ = model.head.bias.zero_()
    >>> margin_distances(model, torch.ones(1, 1, 2, 2), torch.tensor([0])).nearest()    # 7 / ||(3, 4)||
    {'input': tensor([1.4000])}
    """
    check_classifier(model)
    if len(images) and images.is_floating_point():  # what is not, the model refuses
        check_pixels(images.detach())
    if any(module.training for module in model.modules()):
        raise ValueError(
            "`model` must be in evaluation mode with all its parts, because batch statistics and dropout make "
            "distances depend on the other images and on chance; call model.eval() first."
        )
    names = checked_layers(layers)
    ruler = Ruler(norm, score, eps, unit)
    with torch.inference_mode(False), torch.enable_grad():
        # The input even where nobody asks for it: with frozen parameters nothing else would start a graph.
        outputs = model.outputs(images, tuple({"input": None} | dict.fromkeys(captured_layers(names))))
        if top_k is not None:
            check_count("top_k", top_k)
        pairs = check_pairs(outputs.logits, top_k)
        check_class_numbers(labels, *outputs.logits.shape)
        rivals = top_rivals(outputs.logits, labels, pairs)
        gaps, norms = gaps_and_norms(outputs, labels, rivals, names, ruler)
        found = first_order_distance(gaps, norms, ruler.eps).detach()
    return Margins(rivals.mT, {name: values.mT for name, values in zip(names, found, strict=True)})
