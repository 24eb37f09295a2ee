"""A method: the change to plain training that a comparison names, in numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from clearance._checks import (
    check_choice,
    check_count,
    check_fraction,
    check_non_negative,
    check_positive,
)


def whole_as_floats(settings: Any) -> None:
    """Make floats of whole numbers, in place, in those fields of a frozen dataclass that hold floats.

    >>> from clearance.experiments.method import Method
    >>> Method(lr=1).lr
    1.0
    """
    kind: type = type(settings)
    for name in _floating(kind):
        value = getattr(settings, name)
        if type(value) is int:
            object.__setattr__(settings, name, float(value))


@cache
def _floating(kind: type) -> tuple[str, ...]:
    hints = get_type_hints(kind)
    return tuple(name for name, hint in hints.items() if hint is float or float in get_args(hint))


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The steps of SGD, and the bounds on its gradients and weights."""

    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip_norm: float | None = None
    max_norm: float | None = None

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_fraction("momentum", self.momentum, open_above=True)
        check_non_negative("weight_decay", self.weight_decay)
        for name in ("clip_norm", "max_norm"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The form of the head, and what extractor and head share."""

    hidden: tuple[int, ...] = (128, 128)
    dropout: float = 0.0
    norm: Literal["none", "batch"] = "none"
    features: int = 0

    def __post_init__(self) -> None:
        check_fraction("dropout", self.dropout, open_above=True)
        check_choice("norm", self.norm, ("none", "batch"))
        check_count("features", self.features, minimum=0)
        for width in self.hidden:
            check_count("hidden", width)


@dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """The Gaussian mixture that the model ends in, and the steps of its parameters."""

    mixture: Literal["none", "identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full"] = (
        "none"
    )
    priors: Literal["uniform", "empirical", "learned"] = "uniform"
    means_lr: float = 1.0
    variances_lr: float = 1.0
    means_decay: float = 1.0

    def __post_init__(self) -> None:
        check_choice("mixture", self.mixture, get_args(get_type_hints(MixtureSettings)["mixture"]))
        check_choice("priors", self.priors, get_args(get_type_hints(MixtureSettings)["priors"]))
        check_positive("means_lr", self.means_lr)
        check_positive("variances_lr", self.variances_lr)
        check_non_negative("means_decay", self.means_decay)
        for name, unset in (("priors", "uniform"), ("means_lr", 1), ("variances_lr", 1), ("means_decay", 1)):
            if self.mixture == "none" and getattr(self, name) != unset:
                raise ValueError(
                    f"`{name}` must be {unset} without a mixture, which has priors, means and variances; got "
                    f"{getattr(self, name)}. Drop it, or set `mixture`."
                )


@dataclass(frozen=True, kw_only=True)
class EndToEndSettings:
    """Training end to end: noise on the head, and adversarial images in every batch."""

    head_noise: float = 0.0
    adversarial: float = 0.0
    adversarial_share: float = 0.5
    adversarial_steps: int = 1
    adversarial_rise: int = 0
    trades: float = 0.0

    def __post_init__(self) -> None:
        check_non_negative("head_noise", self.head_noise)
        check_fraction("adversarial", self.adversarial)
        check_fraction("adversarial_share", self.adversarial_share, open_below=True)
        check_count("adversarial_steps", self.adversarial_steps)
        check_count("adversarial_rise", self.adversarial_rise, minimum=0)
        check_non_negative("trades", self.trades)
        only_attacked = {"adversarial_share": 0.5, "adversarial_steps": 1, "adversarial_rise": 0, "trades": 0}
        for name, unset in only_attacked.items():
            if self.adversarial == 0 and getattr(self, name) != unset:
                raise ValueError(
                    f"`{name}` must be {unset} without adversarial images; got {getattr(self, name)}. Drop it, or set "
                    "`adversarial`."
                )


@dataclass(frozen=True, kw_only=True)
class FOCASettings:
    """Training by FOCA: weak heads, how many and how long each is used, and the head that the model keeps."""

    weak_heads: Literal["gradient", "ridge", "mixture"] = "gradient"
    head_steps: int = 32
    head_lr: float = 0.1
    head_decay: float = 1e-2
    penalty: float = 1e-2
    per_class: int = 10
    heads: int = 1
    reuse: int = 1
    mode: Literal["average", "cycle"] = "average"
    pool: int = 0
    heads_batch_norm: Literal["batch", "running", "update"] = "batch"
    recalibrate: bool = False
    final_head_steps: int = 2000
    final_head_lr: float = 0.03

    def __post_init__(self) -> None:
        check_choice("weak_heads", self.weak_heads, get_args(get_type_hints(FOCASettings)["weak_heads"]))
        for name in ("per_class", "heads", "reuse", "head_steps", "final_head_steps"):
            check_count(name, getattr(self, name))
        for name in ("head_lr", "penalty", "final_head_lr"):
            check_positive(name, getattr(self, name))
        check_non_negative("head_decay", self.head_decay)
        check_choice("mode", self.mode, ("average", "cycle"))
        check_count("pool", self.pool, minimum=0)
        check_choice("heads_batch_norm", self.heads_batch_norm, ("batch", "running", "update"))


OF_WEAK_HEADS = {"gradient": ("head_steps", "head_lr", "head_decay"), "ridge": ("penalty",), "mixture": ()}
WAYS = {"end_to_end": EndToEndSettings, "foca": FOCASettings}
"""What each way of training alone uses."""


@dataclass(frozen=True, kw_only=True)
class Method(OptimizerSettings, NetworkSettings, MixtureSettings, EndToEndSettings, FOCASettings):
    """A named change to plain training, in numbers; the defaults are plain training.

    All settings are on one level, in Python, in a recipe's file and on the command line. The base classes group
    them for functions that need one group.

    Args:
        way: ``"end_to_end"`` or ``"foca"``.
        loss: Name of the loss in the catalogue.
        loss_settings: Settings of the loss that differ from its defaults, by name.
        lr: Step size of the extractor's SGD, above 0.
        momentum: Of that SGD, in [0, 1).
        weight_decay: Of that SGD, at least 0.
        clip_norm: Bound on the norm of the gradient, or None.
        max_norm: Bound on the norm of every unit's incoming weights, or None; not of a mixture's means.
        hidden: Hidden widths of the head that the model is trained with.
        dropout: Probability of dropping a hidden unit of that head, in [0, 1).
        norm: ``"batch"`` puts batch normalisation into extractor and head.
        features: Width of a linear layer at the extractor's end, for those that have one (``lenet-plus``) or may have
            one (``small-cnn``); 0 is the extractor's own.
        mixture: Covariance of the Gaussian mixture that the model ends in, as ``heads.GaussianMixture`` names it;
            ``"none"`` for ordinary linear layers. Layers of `hidden` widths then belong to the extractor, the last of
            them without ReLU.
        priors: Of that mixture's classes: ``"uniform"``, ``"empirical"`` (their shares in the training labels, fixed),
            or ``"learned"``.
        means_lr: Factor, above 0, on `lr` for the mixture's means.
        variances_lr: Factor, above 0, on `lr` for its variances and learned priors, which have no weight decay.
        means_decay: Factor, at least 0, on `weight_decay` for the means.
        head_noise: Standard deviation of noise on the head's parameters (end_to_end).
        adversarial: Largest change of a pixel, in [0, 1], of adversarial images in training; 0 is training without
            them (end_to_end).
        adversarial_share: Part of every batch that is attacked, in (0, 1] (end_to_end).
        adversarial_steps: Of the attack: 1 is FGSM, more are PGD on cross-entropy; with `trades`, of its own
            ascent (end_to_end).
        adversarial_rise: Steps of training in which the largest change rises to `adversarial` (end_to_end).
        trades: beta of TRADES, the weight of the change of the prediction; 0 is the loss of the adversarial images
            (end_to_end).
        weak_heads: How weak heads are drawn (foca): ``"gradient"`` (Algorithm 1), or in closed form
            ``"ridge"`` and ``"mixture"`` (these need ``hidden: []``).
        head_steps: Steps of a weak head (foca).
        head_lr: Step size of a weak head (foca).
        head_decay: Weight decay of a weak head (foca).
        penalty: Ridge penalty of weak heads in closed form, above 0 (foca).
        per_class: Images of every class that a weak head is trained on (foca).
        heads: Weak heads drawn at once (foca).
        reuse: Steps that use the same weak heads (foca).
        mode: ``"average"`` over the heads in each step, or one in turn, ``"cycle"`` (foca).
        pool: Number of recent training images whose features weak heads are trained on, instead of a separate
            forward pass; 0 is off (foca).
        heads_batch_norm: Statistics that batch normalisation uses for the weak heads' batches, as `batch_norm` of FOCA
            (foca).
        recalibrate: Whether running statistics are recomputed before the final head (foca).
        final_head_steps: Steps, in batches of 128, of the head that the model keeps (foca).
        final_head_lr: Step size of that head (foca).

    Raises:
        ValueError: If a number is out of range, a name is unknown, or settings do not go together.

    >>> Method(way="foca", per_class=1, lr=0.1).reuse
    1
    """

    way: Literal["end_to_end", "foca"] = "end_to_end"
    loss: str = "cross-entropy"
    # Methods are keys of dictionaries, and a mapping has no hash; it still distinguishes two methods.
    loss_settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_choice("way", self.way, ("end_to_end", "foca"))
        OptimizerSettings.__post_init__(self)
        NetworkSettings.__post_init__(self)
        MixtureSettings.__post_init__(self)
        EndToEndSettings.__post_init__(self)
        FOCASettings.__post_init__(self)
        if self.dropout > 0 and len(self.hidden) < (1 if self.mixture == "none" else 2):
            raise ValueError(
                f"`dropout` must be 0 without a hidden layer with a ReLU, behind which it stands; got {self.dropout} "
                f"and `hidden: {list(self.hidden)}`. Drop it, or give more layers."
            )
        if self.variances_lr != 1 and self.mixture == "identity" and self.priors != "learned":
            raise ValueError(
                f"`variances_lr` must be 1 with `mixture: identity`, which has no variances to learn; got "
                f"{self.variances_lr}. Drop it, or set another `mixture`."
            )
        for one in fields(WAYS[other := "end_to_end" if self.way == "foca" else "foca"]):
            if getattr(self, one.name) != one.default:
                raise ValueError(
                    f"`{one.name}` must be left out with `way: {self.way}`, which does not use it; got "
                    f"{getattr(self, one.name)}. Drop it, or set `way: {other}`."
                )
        defaults = {one.name: one.default for one in fields(FOCASettings)}
        for kind, names in OF_WEAK_HEADS.items():
            for name in names if self.way == "foca" and kind != self.weak_heads else ():
                if getattr(self, name) != defaults[name]:
                    raise ValueError(
                        f"`{name}` must be left out with `weak_heads: {self.weak_heads}`, which do not use it; got "
                        f"{getattr(self, name)}. Drop it, or set `weak_heads: {kind}`."
                    )
        if self.way == "foca" and self.weak_heads != "gradient" and self.mixture == "none" and self.hidden:
            raise ValueError(
                f"`hidden` must be [] with `weak_heads: {self.weak_heads}`, whose closed form is that of one linear "
                f"layer; got {list(self.hidden)}. Write `hidden: []`, or `weak_heads: gradient`."
            )
        whole_as_floats(self)
