"""First-order distances of a batch's samples to their class boundaries, at any layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from clearance._checks import check_choice, check_count, check_non_negative
from clearance._first_order import dual_exponent, dual_norm, first_order_distance
from clearance._precision import at_least_float32
from clearance.data.image_set import check_pixels
from clearance.models.classifier import ALWAYS, Classifier, check_classifier
from clearance.tensors import GivenOutputs, Outputs, check_class_numbers

_LEAST_UNIT = 1e-30  # of gradients: the inverse of a smaller one may be infinite, and its derivative NaN
Score = Literal["logits", "softmax"]
Unit = Literal["layer", "element", "spread"]
Sweeps = Literal["auto", "sequential", "batched"]


@dataclass(frozen=True)
class Ruler:
    """The norm, score and unit of a distance.

    Args:
        norm: p, at least 1, or ``inf``: the norm of displacements.
        score: A boundary is where two scores are equal: ``"logits"``, or ``"softmax"`` probabilities, which are equal
            at the same places but stretch distances exponentially (for two classes sinh(z) instead of the gap z).
        eps: Added to the gradient's norm, at least 0.
        unit: ``"layer"``, the unit of the layer's values; ``"element"``, per element of the layer (distance
            times N^(1/q) for N elements, so that the size of a layer does not matter); ``"spread"``, the typical
            p-norm of the batch's deviations from its mean there, so that scaling a layer and unscaling the next
            changes nothing.

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


@dataclass(frozen=True)
class Margins:
    """Distances of a batch at several layers.

    Args:
        rivals: The wrong classes to which distances were measured, (B, k), highest logit first.
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
        labels: The true class of each image, (B,).
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``.
        norm: p, at least 1, or ``inf``.
        top_k: Number of rivals, those with the highest logits; None is all.
        score: ``"logits"`` or ``"softmax"``.
        eps: Added to the gradient's norm.
        unit: As in :class:`Ruler`.

    Returns:
        Distances without a graph; gradients of parameters are unchanged.

    Raises:
        ValueError: If the model is in training mode, because batch statistics and dropout make a distance
            depend on the rest of the batch and on chance; or if a layer, label or number is wrong, or a pixel
            outside [0, 1].
        TypeError: If the model is not a Classifier, or labels are not int64.

    Misleads for non-linear networks: it is not a bound of the true distance. An infinite value means that no
    displacement changes the gap, to first order (a dead or saturated network), not that the sample is safe.

    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> with torch.no_grad():
    ...     _ = model.head.weight.copy_(torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    ...     _ = model.head.bias.zero_()
    >>> margin_distances(model, torch.ones(1, 1, 2, 2), torch.tensor([0])).nearest()    # 7 / ||(3, 4)||
    {'input': tensor([1.4000])}
    """
    check_classifier(model)
    if len(images) and images.is_floating_point():  # the model refuses other dtypes
        check_pixels(images.detach())
    if any(module.training for module in model.modules()):
        raise ValueError(
            "`model` and all its parts must be in evaluation mode, because batch statistics and dropout make "
            "distances depend on the other images and on chance; got training mode. Call model.eval() first."
        )
    names = checked_layers(layers)
    ruler = Ruler(norm, score, eps, unit)
    with torch.inference_mode(False), torch.enable_grad():
        # Always with the input: with frozen parameters nothing else would start a graph.
        outputs = model.outputs(images, tuple({"input": None} | dict.fromkeys(captured_layers(names))))
        if top_k is not None:
            check_count("top_k", top_k)
        pairs = check_pairs(outputs.logits, top_k)
        check_class_numbers(labels, *outputs.logits.shape)
        labels = labels.clone() if labels.is_inference() else labels
        rivals = top_rivals(outputs.logits, labels, pairs)
        gaps, norms = gaps_and_norms(outputs, labels, rivals, names, ruler)
        found = first_order_distance(gaps, norms + ruler.eps).detach()
    return Margins(rivals.mT, {name: values.mT for name, values in zip(names, found, strict=True)})


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

    One backward sweep for each of the k rivals serves all layers. At the logits, and at the features if the head
    is linear, the gradient is known without a sweep: e_y - e_i, and W_y - W_i.

    Args:
        outputs: Of a classifier, with the activations of `layers`.
        labels: (B,).
        rivals: (k, B).
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``.
        ruler: Norm, score, eps and unit.
        full: Whether the denominator can be differentiated too. Otherwise it is a constant: a function of these
            distances then depends only on the logits, and one backward pass serves the margins of all layers.
        sweeps: How the k sweeps are computed; see `_swept_norms`.

    Returns:
        The gaps, (k, B), and the norms in the ruler's unit, (L, k, B), in the order of `layers`; at least float32.
    """
    tensors = {name: _tensor_at(outputs, name) for name in layers}
    # Distances are computed without mixed precision: they need the digits, and cost little.
    with torch.autocast(outputs.logits.device.type, enabled=False), torch.set_grad_enabled(True):
        gradients = _GapGradients(outputs, labels, rivals, ruler.score, full=full)
        norms = _analytic_norms(gradients, layers, ruler.norm)
        rest = {name: tensor for name, tensor in tensors.items() if name not in norms}
        if rest:
            root, starts = gradients.nearest_to(list(rest))
            norms |= _swept_norms(root, rest, starts, ruler.norm, sweeps=sweeps, create_graph=full)
        scaled = torch.stack([norms[name] * _unit_of(tensors[name], ruler, full) for name in layers])
        return class_gaps(outputs.logits, labels, rivals, ruler.score), scaled if full else scaled.detach()


def top_rivals(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """The `count` wrong classes with the highest logits, highest first.

    Ranking by softmax probability would be the same. The highest need not be the nearest: a class whose gap
    is steep can be nearer than one whose gap is small.

    Logits are (B, C), labels (B,), rivals (k, B), with k at most C - 1.

    >>> top_rivals(torch.tensor([[5.0, 1.0, 4.0]]), torch.tensor([0]), 2)
    tensor([[2],
            [1]])
    """
    lowest = torch.finfo(logits.dtype).min  # a class that is masked out (-inf) ranks above the sample's own
    masked = logits.detach().clamp(min=lowest).scatter(1, labels.unsqueeze(1), -math.inf)
    return masked.topk(count, dim=1).indices.mT


def check_pairs(logits: Tensor, rivals: int | None) -> int:
    """The number of rivals of each sample: `rivals`, or all other classes for None.

    Raises:
        ValueError: If there are fewer than two classes, or fewer other classes than `rivals`.
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"logits must have shape (B, C) with at least two classes; got {tuple(logits.shape)}. With one logit for "
            "two classes, give the second class the logit 0."
        )
    wrong = logits.shape[1] - 1
    if rivals is not None and rivals > wrong:
        raise ValueError(
            f"`top_k` must be at most {wrong} for {wrong + 1} classes, because a sample's own class is not a rival; "
            f"got {rivals}. Use fewer, or top_k=None for all."
        )
    return wrong if rivals is None else rivals


def checked_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple.

    Raises:
        ValueError: If there is none, or a name occurs twice.

    >>> checked_layers(["input", "logits"])
    ('input', 'logits')
    """
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`layers` must name at least one layer, each once; got {list(names)}.")
    return names


def captured_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """The layers that the model must return as activations.

    >>> captured_layers(("input", "extractor.3", "features", "logits"))
    ('input', 'extractor.3')
    """
    return tuple(name for name in layers if name not in ALWAYS)


def unmeasurable(outputs: Outputs, layers: Sequence[str]) -> dict[str, str]:
    """Those of the layers whose distances these outputs do not allow, with the reason.

    >>> from clearance.tensors import GivenOutputs
    >>> list(unmeasurable(GivenOutputs(torch.zeros(2, 3)), ("input", "logits")))
    ['input']
    """
    found = {}
    for name in layers:
        try:
            _tensor_at(outputs, name)
        except (TypeError, ValueError) as error:
            found[name] = str(error)
    return found


def _tensor_at(outputs: Outputs, name: str) -> Tensor:
    """The tensor at a layer, with a graph to the logits if a sweep needs one.

    Raises:
        ValueError: If the activation is missing, its first axis does not count samples, or it has no graph.
    """
    if name == "logits":
        return outputs.logits
    tensor = outputs.features if name == "features" else _captured(outputs, name)
    if tensor.shape[0] != outputs.logits.shape[0]:
        raise ValueError(
            f"the first axis of layer {name!r} must count the {outputs.logits.shape[0]} samples; got shape "
            f"{tuple(tensor.shape)}. Name a layer whose output has the batch first."
        )
    needs_sweep = name != "features" or _affine_weight(outputs) is None
    if needs_sweep and not (tensor.requires_grad and outputs.logits.requires_grad):
        raise ValueError(
            f"layer {name!r} must have a graph to the logits, because its distance needs a gradient; got none. If "
            "everything before it is frozen, start the graph at the images: model.outputs(images, [*loss.layers, "
            "'input']), or name 'input' among the layers. If it ran in torch.no_grad, remove that (for a diagnostic "
            "use margin_distances); if in reentrant checkpointing, pass use_reentrant=False."
        )
    return tensor


def _captured(outputs: Outputs, name: str) -> Tensor:
    if name not in outputs.activations:
        held = ", ".join(map(repr, outputs.activations)) or "none"
        got = "tensors alone" if isinstance(outputs, GivenOutputs) else f"the activations {held}"
        raise ValueError(
            f"`outputs` must hold the activation of layer {name!r}; got {got}. Call the loss with "
            "model.outputs(images, loss.layers), labels."
        )
    return outputs.activations[name]


def class_gaps(logits: Tensor, labels: Tensor, rivals: Tensor, score: Score) -> Tensor:
    """s_y - s_i for each rival i: positive where the sample is on the right side.

    Logits are (B, C), labels y (B,); rivals i, none equal to the label, and gaps are (k, B), gaps at least float32. s
    is the logit, or its softmax over classes.

    >>> class_gaps(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]), torch.tensor([[1], [2]]), "logits")
    tensor([[2.],
            [3.]])
    """
    if score == "softmax" and logits.requires_grad:
        return _SoftmaxGaps.apply(at_least_float32(logits), labels, rivals)  # type: ignore[no-untyped-call]
    return _gaps(
        at_least_float32(logits) if score == "logits" else at_least_float32(logits).softmax(dim=1),
        labels,
        rivals,
    )


def _gaps(scores: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    return scores.gather(1, labels.unsqueeze(1)).mT - scores.gather(1, rivals.mT).mT


class _SoftmaxGaps(torch.autograd.Function):
    """Gaps of probabilities whose gradient is `gap_cotangents`, the same as in a distance's denominator.

    Softmax's own derivative subtracts p_y from 1 and so loses all digits where the network is confident: if a rival
    is ahead by 17, the gradient would raise the label's logit and lower no other.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
        ctx.save_for_backward(logits, labels, rivals)
        return _gaps(logits.softmax(dim=1), labels, rivals)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, rivals = ctx.saved_tensors
        cotangents = gap_cotangents(logits, labels, rivals, "softmax")
        return (slopes[0].unsqueeze(-1) * cotangents).sum(dim=0), None, None


def gap_cotangents(logits: Tensor, labels: Tensor, rivals: Tensor, score: Score) -> Tensor:
    """The gradient of each gap in the logits, from which a backward sweep starts, (k, B, C).

    e_y - e_i for logits, and p * (e_y - e_i - (p_y - p_i)) for softmax probabilities p.

    Entry y of the second is computed as p_y (sum_{j != y} p_j + p_i), and entry i in the same way, because 1 - p_y
    would lose all digits where the network is confident.

    Logits are (B, C), labels (B,), rivals (k, B); `score` is as in :func:`class_gaps`.
    """
    scores = at_least_float32(logits)
    own = labels.expand_as(rivals).unsqueeze(-1)
    other = rivals.unsqueeze(-1)
    zeros = torch.zeros((*rivals.shape, logits.shape[1]), dtype=scores.dtype, device=logits.device)
    if score == "logits":
        one = zeros.new_ones(()).expand_as(own)
        return zeros.scatter_(2, own, one).scatter_(2, other, -one)
    probabilities = scores.softmax(dim=1)
    each = probabilities.expand_as(zeros)
    p_y, p_i = each.gather(2, own), each.gather(2, other)
    others_y = each.scatter(2, own, 0.0).sum(dim=2, keepdim=True)
    others_i = each.scatter(2, other, 0.0).sum(dim=2, keepdim=True)
    rest = -each * (p_y - p_i)
    return rest.scatter(2, own, p_y * (others_y + p_i)).scatter(2, other, -p_i * (others_i + p_y))


class _GapGradients:
    """Gradients of the gaps s_y - s_i of k rivals at the logits and the features, computed on first use.

    Args:
        outputs: Of a classifier; their head made the logits.
        labels: (B,).
        rivals: (k, B).
        score: s is the logit, or its softmax over classes.
        full: Whether the gradients can be differentiated.
    """

    def __init__(
        self, outputs: Outputs, labels: Tensor, rivals: Tensor, score: Score, *, full: bool = False
    ) -> None:
        self._outputs, self._labels, self._rivals, self._score = outputs, labels, rivals, score
        self._logits, self._full = (outputs.logits if full else outputs.logits.detach()), full

    @cached_property
    def _weight(self) -> Tensor | None:
        weight = _affine_weight(self._outputs)
        return weight if weight is None or self._full else weight.detach()

    @cached_property
    def at_logits(self) -> Tensor:
        """(k, B, C)."""
        return gap_cotangents(self._logits, self._labels, self._rivals, self._score)

    @property
    def entries_at_logits(self) -> Tensor:
        """The entries of `at_logits` that are not zero, (k, B, 2 or C); for logits there are only two."""
        if self._score == "softmax":
            return self.at_logits
        return at_least_float32(self._logits).new_tensor([1.0, -1.0]).expand(*self._rivals.shape, 2)

    @cached_property
    def at_features(self) -> Tensor | None:
        """(k, B, D), or None where the head is not linear.

        W_y - W_i for logits: only these rows are read, so the cost does not grow with the number of classes.
        """
        weight = self._weight
        if weight is None:
            return None
        if self._score == "logits":
            return at_least_float32(weight)[self._labels] - at_least_float32(weight)[self._rivals]
        return self.at_logits @ at_least_float32(weight)

    def nearest_to(self, layers: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The tensor nearest to these layers at which the gradient is known, and that gradient: a sweep's start."""
        if self.at_features is not None and _before_head(layers):
            return self._outputs.features, self.at_features
        return self._outputs.logits, self.at_logits


def _before_head(layers: Sequence[str]) -> bool:
    """Whether none of the layers is in the head, so that all of them come before the features.

    >>> _before_head(["input", "extractor.head"]), _before_head(["head.0"])
    (True, False)
    """
    return not any(name.split(".")[0] == "head" for name in layers)


def _affine_weight(outputs: Outputs) -> Tensor | None:
    """W of a head that computes only W f + b; None for any other head, and where only tensors were given."""
    head: Any = None if isinstance(outputs, GivenOutputs) else outputs.head
    while _is_plain(head, nn.Sequential) and len(head) == 1:
        head = head[0]
    # reading a parametrised weight may change it (spectral_norm)
    plain = _is_plain(head, nn.Linear) and not is_parametrized(head)
    return head.weight if plain else None


def _is_plain(module: Any, kind: type[nn.Module]) -> bool:
    """Whether the module computes what torch's own `kind` does, without hooks."""
    if not isinstance(module, kind) or type(module).forward is not kind.forward or "forward" in vars(module):
        return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def _analytic_norms(gradients: _GapGradients, layers: Sequence[str], norm: float) -> dict[str, Tensor]:
    found = {}
    if "logits" in layers:
        found["logits"] = _norm(gradients.entries_at_logits, norm)
    if "features" in layers and gradients.at_features is not None:
        found["features"] = _norm(gradients.at_features, norm)
    return found


def _norm(gradients: Tensor, norm: float) -> Tensor:
    """The dual norm, computed in units of the largest entry: squares overflow float32 before distances do."""
    unit = gradients.detach().abs().amax(dim=2).clamp(min=_LEAST_UNIT)
    return dual_norm(gradients / unit.unsqueeze(2), norm, leading=2) * unit


def _unit_of(tensor: Tensor, ruler: Ruler, full: bool) -> Tensor | float:
    """The factor on a gradient's norm for distances in the ruler's unit; `full` keeps its graph."""
    elements = math.prod(tensor.shape[1:])
    if ruler.unit == "layer":
        return 1.0
    if ruler.unit == "element":
        return elements ** (-1 / dual_exponent(ruler.norm))
    if len(tensor) < 2:
        raise ValueError("`unit` 'spread' needs at least 2 samples in a batch; got 1. Use 'layer'.")
    values = at_least_float32(tensor if full else tensor.detach())
    spread = torch.linalg.vector_norm(values - values.mean(dim=0)) / math.sqrt(values.numel())  # slope 0 at 0
    return spread * elements ** (1 / ruler.norm)


def _swept_norms(
    root: Tensor,
    activations: Mapping[str, Tensor],
    gradients: Tensor,
    norm: float,
    *,
    sweeps: Sweeps = "auto",
    create_graph: bool = False,
) -> dict[str, Tensor]:
    """The dual norm of each gap's gradient at each activation, (k, B) by name.

    Args:
        root: The logits, or the features: (B, C), with the graph from the activations to it.
        activations: By name, (B, ...).
        gradients: Of the k gaps at the root, (k, B, C).
        norm: p; the gradients' norms are dual to it.
        sweeps: ``"sequential"``, ``"batched"`` (all k in one vectorised sweep, with k times the memory for
            gradients), or ``"auto"``: batched on CUDA, where kernel launches dominate the time of small networks.
        create_graph: Whether the norms can be differentiated.

    Samples must not interact between activations and root: with batch statistics, the gradient at one sample
    contains parts of the other samples' gaps.

    Raises:
        ValueError: If an activation does not affect the logits, or the graph does not allow such a sweep.
    """
    # A sweep is linear in its start. Saturated probabilities give a start of 1e-9, which float16 layers cannot
    # represent, so each sample starts at 1 and its norm is scaled back.
    size = gradients.detach().abs().amax(dim=2).clamp(min=_LEAST_UNIT)
    starts = (gradients / size.unsqueeze(-1)).to(root.dtype)
    together = sweeps == "batched" or (sweeps == "auto" and root.is_cuda)
    if not root.requires_grad:
        _check_reached(activations, [None] * len(activations))
    if together and len(starts) > 1:
        swept = _batched(root, activations, starts, create_graph=create_graph)
        if swept is not None:
            norms = [dual_norm(gradient, norm, leading=2) for gradient in swept]
            return {name: n * size for name, n in zip(activations, norms, strict=True)}
    rows = []
    for start in starts:
        found = _sweep(root, activations, start, create_graph=create_graph)
        rows.append([dual_norm(gradient, norm) for gradient in found])  # the gradients are freed here
    stacked = [torch.stack(layer) * size for layer in zip(*rows, strict=True)]
    return dict(zip(activations, stacked, strict=True))


_REMEDIES = {
    "checkpoint": "activations inside reentrant checkpointing have no gradient; pass use_reentrant=False to "
    "torch.utils.checkpoint, which costs one more recomputation per sweep.",
    "donated buffer": "a compiled network frees buffers at its first backward pass that a margin's sweeps need again; "
    "set torch._functorch.config.donated_buffer = False before compiling it, or train without torch.compile.",
    "double backward": "a compiled network cannot be differentiated twice, as denominator='full' needs; use "
    "denominator='detach', or train without torch.compile.",
}
"""What to do about an error of torch, by a part of its message."""


def _sweep(
    root: Tensor, activations: Mapping[str, Tensor], start: Tensor, *, create_graph: bool
) -> list[Tensor]:
    """The gradient at each activation of a backward sweep that starts at the root with `start`."""
    try:
        found = torch.autograd.grad(
            root, list(activations.values()), start,
            retain_graph=True, create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    except RuntimeError as error:
        remedy = next((text for part, text in _REMEDIES.items() if part in str(error).lower()), None)
        if remedy is None:
            raise
        raise ValueError(remedy) from error
    return _checked(activations, found, create_graph=create_graph)


def _batched(
    root: Tensor, activations: Mapping[str, Tensor], starts: Tensor, *, create_graph: bool
) -> list[Tensor] | None:
    """All sweeps at once, or None if an operation of the network does not allow that."""
    try:
        found = torch.autograd.grad(
            root, list(activations.values()), starts,
            retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True,
        )  # fmt: skip
    except RuntimeError:  # if it is not about vectorising, sequential sweeps raise it again
        return None
    return _checked(activations, found, create_graph=create_graph)


def _checked(
    activations: Mapping[str, Tensor], found: Sequence[Tensor | None], *, create_graph: bool
) -> list[Tensor]:
    """One gradient for every activation, checked to be differentiable if `create_graph`."""
    _check_reached(activations, found)
    swept = [gradient for gradient in found if gradient is not None]
    if create_graph:
        _check_differentiable(swept)
    return swept


def _check_reached(activations: Mapping[str, Tensor], gradients: Sequence[Tensor | None]) -> None:
    for name, gradient in zip(activations, gradients, strict=True):
        if gradient is None:
            raise ValueError(
                f"layer {name!r} must affect the logits, because its distance needs a gradient; got none. Name a layer "
                "before the head whose output is not detached; nn.DataParallel returns copies, so do not use it "
                "here."
            )


def _check_differentiable(gradients: Sequence[Tensor]) -> None:
    """Raise ValueError if a gradient cannot be differentiated, before its backward pass is tried."""
    waiting = [gradient.grad_fn for gradient in gradients if gradient.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.name().endswith("NotImplemented"):
            raise ValueError(
                "an operation of the network cannot be differentiated twice, as denominator='full' needs. For fused "
                "attention, use torch.nn.attention.sdpa_kernel(SDPBackend.MATH) around the forward pass, or use "
                "denominator='detach'."
            )
        fresh = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= fresh
        waiting.extend(fresh)
