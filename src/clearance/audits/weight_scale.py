"""How large are the weights and the logits?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.optim import Optimizer

from clearance._checks import check_count, check_fraction
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._samples import fixed_images
from clearance.audits.calibration import fitted_temperature
from clearance.linear.temperature import calibrated_temperature
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.models.features import all_logits
from clearance.vocabulary import Exhibit, Measurement, Scalar

ALL = "all"


@dataclass(frozen=True)
class WeightScale(Audit):
    """The sizes that weight decay works on: of each layer's weights, of the logits, and what the loss still sees.

    ``weight_rms``, ``spectral_norm``: of each linear layer, convolution and attention, counted from the image
    (``layer``), and the first also over ``all`` of them. ``logit_scale``: root mean square over held-out images and
    classes of the logits minus their mean over classes. ``temperature``: what logits are divided by, so that the
    network is calibrated (``by`` likelihood), or so that the median confidence is 95 % (``by`` median
    confidence).
    ``active_share``: of the training images that are right, those with a probability of at most 1 - `threshold`, on
    which the loss is not yet satisfied. ``normalised_layers``: how many layers are directly followed by
    normalisation.

    Source: Tanay and Griffin (2018): the weights' size rescales the loss. Small, all images are active and classes are
    kept far from the boundary on average; large, only errors are. 95 % is the article's.

    Args:
        threshold: In (0, 1), of the loss's slope in the logit of the true class, 1 - p.
        images: Of each set: at most, but one of every class at least; a class-balanced choice by the seed.

    Raises:
        ValueError: If a setting is out of range.

    Neither direction is better. Without images whose answer is right, ``active_share`` is 1: none is done with.

    Misleads where normalisation follows a layer: its weights then only set how fast they turn, and their size says
    nothing about the network's answers, unless a skip connection that goes round the layer is added before, as in
    transformers that normalise afterwards; that is not looked for. Read the logits' scale instead. Spectral norms of
    kernels are those of one patch. Which parameters decay is the optimiser's to say:
    :func:`~clearance.audits.decayed_parameters`.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> found = WeightScale()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.context.get("layer")) for m in found.measurements][:3]
    [('weight_rms', '1'), ('weight_rms', 'all'), ('spectral_norm', '1')]
    """

    name: ClassVar[str] = "weight_scale"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    threshold: float = 0.05
    images: int = 2000

    def __post_init__(self) -> None:
        check_fraction("threshold", self.threshold, open_below=True, open_above=True)
        check_count("images", self.images)

    def examine(self, subject: Subject) -> Findings:
        """Weights first, then what they make of images."""
        test = fixed_images(subject.test, self.images, subject.seed)
        train = fixed_images(subject.train, self.images, subject.seed)
        with evaluating(subject.model):
            layers = weight_layers(subject.model, test.batch(torch.arange(min(2, len(test))))[0])
        logits, learnt = (all_logits(subject.model, some).double().cpu() for some in (test, train))
        finite = logits.isfinite().all(dim=1)
        logits, labels = (
            (logits[finite], test.labels.cpu()[finite]) if finite.any() else (logits, test.labels.cpu())
        )
        sizes = [(root_mean_square(one.weight), spectral_norm(one.weight, one.groups)) for one in layers]
        found = [
            *_weight_numbers(layers, sizes),
            _number("logit_scale", root_mean_square(logits - logits.mean(dim=1, keepdim=True)), len(logits)),
            *_temperatures(logits, labels),
            self._active(learnt, train.labels.cpu()),
            _number("normalised_layers", sum(one.normalised for one in layers), max(len(layers), 1), "count"),
        ]
        return Findings(tuple(found), (_table(layers, sizes),))

    def _active(self, logits: Tensor, labels: Tensor) -> Measurement:
        right = logits.argmax(dim=1) == labels
        slope = 1 - logits.softmax(dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
        active = right & ~(slope < self.threshold)  # what is not a number is not done with
        share = float(active.sum()) / float(right.sum()) if bool(right.any()) else 1.0
        share = 1.0 if bool(logits.isnan().any()) else share
        context: dict[str, Scalar] = {"split": "train", "threshold": self.threshold}
        return _number("active_share", share, max(int(right.sum()), 1), "fraction", context)


@dataclass(frozen=True)
class WeightLayer:
    """One layer.

    Args:
        name: As in ``named_modules()``; of attention, with the name of the weight.
        groups: Parts of its channels that do not mix.
        normalised: Whether normalisation reads just what it gives, so that the size of its weight changes nothing but
            where a skip connection goes round it, which is not looked for.
    """

    name: str
    weight: Tensor
    groups: int
    normalised: bool


def _weight_numbers(layers: list[WeightLayer], sizes: list[tuple[float, float]]) -> Iterator[Measurement]:
    for place, (one, (size, _)) in enumerate(zip(layers, sizes, strict=True), start=1):
        yield _number("weight_rms", size, one.weight.numel(), context={"layer": str(place)})
    count = sum(one.weight.numel() for one in layers)
    if count:
        squares = sum(one.weight.numel() * size**2 for one, (size, _) in zip(layers, sizes, strict=True))
        yield _number("weight_rms", math.sqrt(squares / count), count, context={"layer": ALL})
    for place, (one, (_, largest)) in enumerate(zip(layers, sizes, strict=True), start=1):
        yield _number("spectral_norm", largest, one.weight.numel(), context={"layer": str(place)})


def _temperatures(logits: Tensor, labels: Tensor) -> Iterator[Measurement]:
    """Infinite where logits are not numbers, 0 where no temperature makes the median image confident."""
    whole = bool(logits.isfinite().all())
    by_likelihood = fitted_temperature(logits, labels) if whole else math.inf
    try:
        by_median = calibrated_temperature(logits) if whole else math.inf
    except ValueError:
        by_median = 0.0
    yield _number("temperature", by_likelihood, len(labels), context={"by": "likelihood"})
    yield _number("temperature", by_median, len(labels), context={"by": "median confidence"})


def _number(
    name: str, value: float, n: int, unit: str = "", context: dict[str, Scalar] | None = None
) -> Measurement:
    return Measurement(WeightScale.name, name, value, unit, n, better="neither", context=context or {})


def _table(layers: list[WeightLayer], sizes: list[tuple[float, float]]) -> Exhibit:
    columns: dict[str, Sequence[Any]] = {
        "layer": list(range(1, len(layers) + 1)),
        "weight_rms": [size for size, _ in sizes],
        "spectral_norm": [largest for _, largest in sizes],
        "name": [one.name for one in layers],
        "shape": [" x ".join(map(str, one.weight.shape)) for one in layers],
        "normalised": [str(one.normalised).lower() for one in layers],
    }
    return Exhibit(
        WeightScale.name, "layers", "curve", columns, "Size of the weights, layer by layer from the image."
    )


# older torches lack some
DECOUPLED = tuple(
    kind for name in ("AdamW", "Adafactor", "Muon") if (kind := getattr(torch.optim, name, None)) is not None
)
How = Literal["coupled", "decoupled", "none"]


@dataclass(frozen=True)
class Decay:
    """Of one parameter.

    Args:
        name: As in ``named_parameters()``.
        weight_decay: The optimiser's factor; 0 where the parameter does not decay or is not the optimiser's.
        how: ``"coupled"``: the penalty's gradient is added to the loss's, and goes through momentum and step sizes.
            ``"decoupled"``: the parameter shrinks directly, by step size times factor. ``"none"``: neither.
        role: ``"weight"`` (two axes or more), or ``"bias or gain"``.
    """

    name: str
    weight_decay: float
    how: How
    role: Literal["weight", "bias or gain"]


def decayed_parameters(model: nn.Module, optimizer: Optimizer) -> tuple[Decay, ...]:
    """What weight decay does to every parameter of a network.

    Without momentum and with one step size both ways are the same, (1 - lr decay) W; with momentum, or step sizes of
    each parameter's own, they are not (Loshchilov and Hutter, 2019). Torch's ``weight_decay`` is coupled, but in AdamW,
    Adafactor and Muon, and where a group says ``decoupled_weight_decay``; other libraries' is taken for coupled unless
    a group says so. What a penalty within the loss does is not seen here.

    Args:
        model: Whose parameters.
        optimizer: Of torch; of its groups ``weight_decay`` is read.

    >>> import torch
    >>> found = decayed_parameters(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters(), weight_decay=0.1))
    >>> [(one.name, one.how) for one in found]                                # another network's optimiser
    [('weight', 'none'), ('bias', 'none')]
    """
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    found = []
    for name, parameter in model.named_parameters():
        group = groups.get(id(parameter))
        factor = (
            0.0 if group is None or not parameter.requires_grad else float(group.get("weight_decay", 0.0))
        )
        decoupled = group is not None and bool(
            group.get("decoupled_weight_decay", isinstance(optimizer, DECOUPLED))
        )
        how: How = "none" if factor == 0 else "decoupled" if decoupled else "coupled"
        found.append(Decay(name, factor, how, "weight" if parameter.ndim >= 2 else "bias or gain"))
    return tuple(found)


NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
PASSING = (nn.Identity, _DropoutNd)  # what hands on just what it gets, in evaluation mode
WEIGHTED = (nn.Linear, _ConvNd, nn.MultiheadAttention)
DENSE = 64  # sides up to which all singular values are computed


def weight_layers(model: Classifier, images: Tensor) -> list[WeightLayer]:
    """Linear layers, convolutions and attention of a network that run on some images, in that order, each once.

    The model is in evaluation mode, with at least one image.
    """
    trail = _Trail()
    names = {part: name for name, part in model.named_modules()}
    handles = [part.register_forward_hook(trail) for part, name in names.items() if _is_layer(part, name)]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return [
        WeightLayer(name, weight.detach(), getattr(part, "groups", 1), part in trail.normalised)
        for part in trail.ran
        for name, weight in _weights(part, names[part])
    ]


@dataclass
class _Trail:
    """A hook that follows what one layer hands to the next: by where it lies in memory, as long as it lies there."""

    ran: dict[nn.Module, None] = field(default_factory=dict)
    normalised: set[nn.Module] = field(default_factory=set)
    makers: dict[int, nn.Module | None] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)

    def __call__(self, part: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
        maker = None if given is None else self.makers.get(given.data_ptr())
        if isinstance(part, NORMALISATIONS) and maker is not None:
            self.normalised.add(maker)
        self.ran[part] = None
        if isinstance(output, Tensor):
            self.kept.append(output)
            carried = maker if isinstance(part, PASSING) else None
            self.makers[output.data_ptr()] = part if isinstance(part, WEIGHTED) else carried


def _is_layer(part: nn.Module, name: str) -> bool:
    """Whether a module is a layer; what a reparametrised one makes its weight with is none of its own."""
    if ".parametrizations." in f".{name}." or isinstance(part, torch.jit.ScriptModule):  # which takes no hook
        return False
    return isinstance(part, WEIGHTED) or next(part.children(), None) is None


def _weights(part: nn.Module, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, nn.MultiheadAttention):
        own = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        yield from ((f"{name}.{one}", getattr(part, one)) for one in own if getattr(part, one) is not None)
        yield f"{name}.out_proj", part.out_proj.weight
    elif isinstance(part, nn.Linear | _ConvNd):
        yield name, part.weight


def root_mean_square(weight: Tensor) -> float:
    """The typical size of an entry; infinite where one is not finite."""
    found = float(weight.double().square().mean().sqrt())
    return found if found == found else float("inf")


def spectral_norm(weight: Tensor, groups: int = 1) -> float:
    """The largest singular value of the weight as a matrix with a row for each output; infinite if not finite.

    Kernels are laid out flat: for a convolution this is the norm of the map from one patch to its outputs (of a
    transposed one, from one pixel to its patch), not of the whole layer. With groups it is that of the largest.

    >>> spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    4.0
    """
    matrices = weight.double().flatten(1).cpu()
    if not bool(torch.isfinite(matrices).all()):
        return float("inf")
    return max(_largest_singular_value(matrix) for matrix in matrices.chunk(groups))


def _largest_singular_value(matrix: Tensor) -> float:
    if min(matrix.shape) <= DENSE or not bool(matrix.any()):
        return float(torch.linalg.matrix_norm(matrix, ord=2))
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))  # the same number every time
    return float(svds(matrix.numpy(), k=1, v0=start, return_singular_vectors=False)[0])
