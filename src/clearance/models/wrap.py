"""Any trained module becomes a classifier in two parts, without retraining and with a proof."""

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from clearance.data.preprocessing import preprocessing_of
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier


@dataclass(frozen=True)
class Call:
    """One call of a submodule; `received` is the shape of its input, None unless that is one tensor."""

    module: nn.Module
    received: tuple[int, ...] | None


def observed_calls(module: nn.Module, inputs: Tensor) -> tuple[Any, list[Call]]:
    """The module's output, and the calls of its submodules in the order in which they began."""
    calls: list[Call] = []

    def hook(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        single = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        calls.append(Call(part, tuple(args[0].shape) if single else None))

    # Prepended: what arrives, before the module's own hooks change it.
    handles = [
        part.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
        for part in module.modules()
        if part is not module and not isinstance(part, torch.jit.ScriptModule)  # which take no such hook
    ]
    try:
        return module(inputs), calls
    finally:
        for handle in handles:
            handle.remove()


def own_normalisation(module: nn.Module, calls: list[Call], channels: int) -> str | None:
    """Where the module seems to normalise its input itself, in words; None where it does not.

    Looks for a first layer whose class is called Normalize or the like, and for `mean` and `std` kept side
    by side with one value or one a channel. A module that does it by other means goes unnoticed.
    """
    leaves = [call.module for call in calls if next(call.module.children(), None) is None]
    if leaves and "normali" in type(leaves[0]).__name__.lower():
        return f"its first layer is a {type(leaves[0]).__name__}"
    for name, part in module.named_modules():
        mean, std = _values(part, "mean", channels), _values(part, "std", channels)
        if mean is not None and std is not None and min(std) > 0 and (any(mean) or set(std) != {1.0}):
            where = f"submodule {name!r}" if name else "it"
            return f"{where} keeps mean {mean} and std {std}"
    return None


def _values(part: nn.Module, name: str, channels: int) -> list[float] | None:
    """The numbers kept under `name`, rounded, if there is one or one a channel."""
    try:
        values = torch.as_tensor(getattr(part, name, None), dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):  # a method, a module, None
        return None
    return [round(value, 4) for value in values] if len(values) in (1, channels) else None


def logits_entries(output: Any) -> dict[str, Tensor]:
    """The tensors of an output that may be its logits, by name; one where it is clear which.

    A tensor is itself. An attribute or key `logits` is taken alone, as the libraries that return objects call it
    (whatever else they return: a loss, hidden states, an auxiliary head's logits). Of anything else, every tensor.

    >>> import torch
    >>> list(logits_entries({"logits": torch.zeros(2, 3), "aux": torch.zeros(2, 3)}))
    ['logits']
    >>> list(logits_entries((torch.zeros(2, 3), torch.zeros(2, 4))))
    ['0', '1']
    """
    if isinstance(output, Tensor):
        return {"": output}
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return {"logits": named}
    if isinstance(output, Mapping):
        entries = {str(name): value for name, value in output.items()}
    elif isinstance(output, (tuple, list)):
        entries = dict(zip(getattr(output, "_fields", map(str, range(len(output)))), output, strict=True))
    else:
        entries = {}
    return {name: value for name, value in entries.items() if isinstance(value, Tensor)}


def entry_made_by(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor | None:
    """The one entry that the head made, to the bit; None where there is none or more than one.

    >>> one, two = torch.zeros(2, 3), torch.ones(2, 3)
    >>> entry_made_by(torch.ones(2, 3), {"0": one, "1": two}) is two
    True
    """
    equal = [each for each in entries.values() if each.shape == logits.shape and torch.equal(each, logits)]
    return equal[0] if len(equal) == 1 else None


class _HeadReached(BaseException):
    """Carries the tap and what arrived there out of a forward pass, as its `args`.

    Not an Exception, so that no ``except Exception`` inside the module swallows it; without a constructor
    of its own, because torch.compile follows only the plain one.
    """


class _Tap(nn.Module):
    """Stands where the head stood and ends the forward pass with what arrives there."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        # Sizes stay readable: a forward pass may well say `x.view(-1, self.fc.in_features)`.
        for name, value in vars(head).items():
            if isinstance(value, int) and not name.startswith("_"):
                setattr(self, name, value)

    def forward(self, features: Tensor, /) -> NoReturn:
        raise _HeadReached(self, features)


class UntilHead(nn.Module):
    """The part of a module that runs before its head, as a module of its own.

    The modules that contain the head are replaced by twins that share their parameters, buffers and hooks;
    everything else is shared as it is. So the given module goes on working, its weights exist once, and
    the head's parameters are not among the extractor's.

    Args:
        module: The module to cut; it is not changed.
        head: One of its submodules.

    Shapes:
        whatever `module` takes -> whatever its head receives.

    Raises:
        RuntimeError: In the forward pass, if that ends without calling the head.

    Misleading: submodules that only run after the head stay registered, and never get a gradient.

    >>> import torch
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extractor = UntilHead(net, net[3])
    >>> extractor(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    >>> [name for name, _ in extractor.named_parameters()]
    ['module.1.weight', 'module.1.bias']
    """

    def __init__(self, module: nn.Module, head: nn.Module) -> None:
        super().__init__()
        tap = _Tap(head)
        self.module = _without_head(module, head, tap, {})
        self.tap = tap
        self.training = tap.training = module.training

    def forward(self, *inputs: Any) -> Tensor:
        """What the head would receive."""
        try:
            self.module(*inputs)
        except _HeadReached as signal:
            tap, features = signal.args
            if tap is not self.tap:  # a cut module inside a cut module: this one is not ours
                raise
            return features
        raise RuntimeError("the forward pass ended without calling the head that was cut off.")


def _without_head(
    module: nn.Module, head: nn.Module, tap: nn.Module, twins: dict[nn.Module, nn.Module]
) -> nn.Module:
    """`tap` for the head, a twin for a module that contains it, any other module itself."""
    if module is head:
        return tap
    if all(part is not head for part in module.modules()):
        return module
    if module not in twins:
        twin = object.__new__(type(module))  # past any __new__: nothing is to be built anew
        # The dicts of parameters, buffers and hooks are the same objects, so `.to()` and training on
        # either side reach both; only the dict of submodules is a new one.
        twin.__dict__.update(module.__dict__)
        twin.__dict__["_modules"] = {
            name: child if child is None else _without_head(child, head, tap, twins)
            for name, child in module._modules.items()
        }
        twins[module] = twin
    return twins[module]


@dataclass(frozen=True)
class Cut:
    """An extractor and a head whose logits are the module's: to the bit, or but for rounding where `exact` is false."""

    extractor: UntilHead
    head: nn.Module
    exact: bool = True
    how: str = ""


class UntilMap(UntilHead):
    """The same extractor where the head receives maps (B, C, H, W): they are flattened, or averaged over H and W."""

    def __init__(self, module: nn.Module, head: nn.Module, *, pooled: bool) -> None:
        super().__init__(module, head)
        self.pooled = pooled

    def forward(self, *inputs: Tensor) -> Tensor:
        """Features of shape (B, C H W), or (B, C) where they are pooled."""
        maps = super().forward(*inputs)
        return maps.mean((2, 3)) if self.pooled else maps.flatten(1)


class MapHead(nn.Module):
    """A head that reads maps, as one that reads vectors.

    logits = part(features as (B, C, H, W)) as (B, K)

    Shapes:
        features (B, C H W) -> logits (B, K).

    >>> import torch
    >>> head = MapHead(nn.Conv2d(8, 3, 1), (8, 1, 1))
    >>> head(torch.rand(2, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, part: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.part, self.shape = part, shape
        self.training = part.training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, K)."""
        return self.part(features.unflatten(1, self.shape)).flatten(1)


def is_point_convolution(part: nn.Module) -> bool:
    """Whether a module is a 1x1 convolution: a linear layer at every place of a map."""
    return (
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride == (1, 1)
        and part.padding in ((0, 0), "valid", "same")
        and part.groups == 1
    )


def cuts(module: nn.Module, head: nn.Module, received: tuple[int, ...]) -> Iterator[Cut]:
    """Every way to cut in front of a head that receives this shape, the plainest first.

    A 1x1 convolution in front of global average pooling is a linear layer behind it (a mean is linear), but for
    rounding: then the features are C averages in place of C H W values.
    """
    if len(received) == 2:
        yield Cut(UntilHead(module, head), head)
        return
    channels, height, width = received[1:]
    if height * width > 1 and is_point_convolution(head):
        yield Cut(
            UntilMap(module, head, pooled=True),
            MapHead(head, (channels, 1, 1)),
            exact=False,
            how="maps averaged before this convolution, not after it",
        )
    how = (
        ""
        if height * width == 1
        else f"maps of {channels} x {height} x {width} flattened: for this size alone"
    )
    yield Cut(UntilMap(module, head, pooled=False), MapHead(head, (channels, height, width)), how=how)


_AFTER_HEAD = {"softmax": torch.softmax, "log-softmax": torch.log_softmax}


def check_module(module: nn.Module) -> None:
    """Refuse what is no plain module: the wrappers that keep a forward pass of their own."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"`module` must be a torch.nn.Module; got {type(module).__name__}.")  # noqa: TRY004
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError("`module` is scripted and cannot be cut; wrap what it was made from.")  # noqa: TRY004
    if isinstance(module, nn.DataParallel):
        raise ValueError("`module` is a DataParallel; wrap its `.module` instead.")  # noqa: TRY004
    if isinstance(module, nn.parallel.DistributedDataParallel):
        raise ValueError(  # noqa: TRY004
            "`module` is a DistributedDataParallel; wrap its `.module` instead, to audit it. To train it in several "
            "processes, call clearance.fit in each, or put DistributedDataParallel around a module whose forward gives "
            "the loss (docs/large_margin.md): around what is called past it, it averages no gradients."
        )
    if hasattr(module, "_orig_mod"):
        raise ValueError("`module` is compiled and cannot be cut; wrap its `._orig_mod`, then compile that.")


def check_example(example: Tensor) -> None:
    """Refuse an example that is no batch of images in [0, 1]."""
    if not isinstance(example, Tensor) or example.ndim != 4 or not len(example):
        got = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise ValueError(f"`example` must be a batch of images of shape (B, C, H, W); got {got}.")
    if not example.is_floating_point():
        raise ValueError(
            f"`example` must hold floating-point images in [0, 1]; got {example.dtype}. Divide by 255.0."
        )
    low, high = float(example.min()), float(example.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"`example` must hold images in [0, 1]; got values from {low:.4g} to {high:.4g}. Divide by 255, "
            "or, if they are normalised already, pass the images before that and give wrap `mean` and `std`."
        )


def check_output(output: Any, entries: dict[str, Tensor], head: str | None) -> None:
    """Refuse an output without tensors of finite values, or with several where no head says which counts."""
    if not entries:
        keys = f" with keys {sorted(map(str, output))}" if isinstance(output, dict) else ""
        raise ValueError(
            f"`module` must return one tensor of logits, or an object with `.logits`; got {type(output).__name__}"
            f"{keys}. Wrap a module whose forward returns the logits alone."
        )
    if len(entries) > 1 and head is None:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in entries.items())
        raise ValueError(
            f"`module` must return one tensor of logits; got {len(entries)} ({shapes}). Name the head whose logits "
            "count: wrap(module, head=...), --head of the command."
        )
    if any(value.is_floating_point() and not bool(value.isfinite().all()) for value in entries.values()):
        raise ValueError("`module` must return finite logits; it returns NaN or infinity on the example.")


def check_repeatable(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Refuse a module whose output is drawn anew in every run."""
    if not all(torch.equal(value, second[name]) for name, value in first.items()):
        raise ValueError(
            "`module` must return the same logits twice in evaluation mode; two runs on the example differ. "
            "Look for noise or dropout that ignores eval(), buffers that every run changes, or "
            "nondeterministic kernels."
        )


def nearest_name(module: nn.Module, name: str) -> str:
    """The hint for a misspelt submodule: the nearest right name, or the outermost ones."""
    known = [known for known, _ in module.named_modules(remove_duplicate=False) if known]
    within = [one for one in known if one.endswith(f".{name}")]  # the name that it has in its own module
    near = within[:1] or difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Its outermost submodules: {', '.join(repr(child) for child, _ in module.named_children())}."


def check_head_input(name: str, calls: list[Call], batch: int) -> tuple[int, ...]:
    """The shape of a head's one input, (B, D) or (B, C, H, W); refuses any other."""
    if not calls:
        raise ValueError(
            f"head {name!r} is never called in the forward pass (its parts may be, or its weights used "
            "directly); name a submodule that is."
        )
    if len(calls) > 1:
        raise ValueError(
            f"head {name!r} runs {len(calls)} times in one forward pass, so it has no one input; "
            "name a submodule that runs once."
        )
    shape = calls[0].received
    if shape is None:
        raise ValueError(
            f"head {name!r} must receive one tensor as its only argument; it is called otherwise."
        )
    if len(shape) not in (2, 4) or shape[0] != batch:
        raise ValueError(
            f"head {name!r} must receive features of shape (B, D); it receives {shape} for {batch} images. "
            "Name a submodule that runs after pooling or flattening."
        )
    return shape


def check_separate(name: str, head: nn.Module, extractor: nn.Module) -> None:
    """Refuse a parameter that both sides own: neither could then move alone."""
    own = {id(parameter) for parameter in head.parameters()}
    shared = [known for known, parameter in extractor.named_parameters() if id(parameter) in own]
    if shared:
        raise ValueError(
            f"head {name!r} and the rest of the module share {', '.join(map(repr, shared))}, so extractor "
            "and head could not be trained apart; untie them, or choose a head with parameters of its own."
        )


def check_features_kept(name: str, head: nn.Module, features: Tensor) -> Tensor:
    """The head's output; refuses a head that changes its features in place, in either mode."""
    address = features.data_ptr()
    culprits: list[str] = []

    def hook(part: nn.Module, args: tuple[Any, ...]) -> None:
        # Dropout in place does nothing in evaluation mode, so a changed value alone would come too late.
        if getattr(part, "inplace", False) and any(_starts_at(value, address) for value in args):
            culprits.append(type(part).__name__)

    handles = [part.register_forward_pre_hook(hook) for part in head.modules()]
    version = features._version
    try:
        logits = head(features)
    finally:
        for handle in handles:
            handle.remove()
    if culprits or features._version != version:
        by = f" ({culprits[0]} with inplace=True)" if culprits else ""
        raise ValueError(
            f"head {name!r} changes its features in place{by}, so they would not be what entered it; "
            "make that operation out of place, or name a later submodule."
        )
    return logits


def _starts_at(value: Any, address: int) -> bool:
    return isinstance(value, Tensor) and value.data_ptr() == address


def unfit_map_head(name: str, received: tuple[int, ...]) -> ValueError:
    """Of a head on maps (B, C, H, W) whose output neither flattens nor averages to the logits."""
    return ValueError(
        f"head {name!r} must receive features of shape (B, D), or maps that become the logits by it and flattening, "
        f"or by it (a 1x1 convolution) and averaging alone; it receives {received}, and something else follows. Name "
        "the submodule that holds everything from there to the logits, or one that runs after pooling."
    )


def check_last(name: str, logits: Any, output: Tensor, rivals: Sequence[str] = ()) -> None:
    """Refuse a head whose output is not the module's output, to the bit; `rivals` have as many outputs."""
    if not isinstance(logits, Tensor):
        raise ValueError(f"head {name!r} must return one tensor; got {type(logits).__name__}.")  # noqa: TRY004
    if logits.shape != output.shape:
        raise ValueError(
            f"head {name!r} returns {tuple(logits.shape)} but the module returns {tuple(output.shape)}: "
            "something follows the head. Name the submodule whose output is the logits."
        )
    if torch.equal(logits, output):
        return
    for word, function in _AFTER_HEAD.items():
        if torch.allclose(function(logits, dim=-1), output, atol=1e-6):
            raise ValueError(
                f"{word} after the head {name!r}: audit logits, not probabilities; remove it from the module."
            )
    if rivals:
        raise ValueError(
            f"the output of head {name!r} is not the module's output: something follows the head, or another makes the "
            f"logits; {', '.join(map(repr, rivals))} has as many outputs. Name that one; where two heads are combined "
            "(averaged), no one head makes the logits: wrap a module that returns those of one."
        )
    gap = float((logits - output).abs().max())
    raise ValueError(
        f"the output of head {name!r} is not the module's output (they differ by up to {gap:.3g}): something "
        "follows the head. Name the submodule whose output is the logits, or remove what follows it."
    )


ROUNDING = 1e-5  # of the largest logit: what averaging before a 1x1 convolution, not after it, may change


@dataclass(frozen=True)
class Seen:
    """A module, what it did with the example, and the head that was chosen in it.

    `entries` are the tensors that it returned, `received` the shape of what entered the head.
    """

    module: nn.Module
    entries: Mapping[str, Tensor]
    calls: list[Call]
    name: str
    head: nn.Module
    received: tuple[int, ...]


def proved(seen: Seen, example: Tensor, mean: Tensor, std: Tensor) -> tuple[Classifier, int, str]:
    """The first cut whose logits are the module's, its number of features, and the proof in words."""
    for cut in cuts(seen.module, seen.head, seen.received):
        check_separate(seen.name, seen.head, cut.extractor)
        model = Classifier(cut.extractor, cut.head)
        model.mean, model.std = mean, std  # on the module's device and in its dtype
        model.training = seen.module.training
        with evaluating(model):
            features = _features(model, seen.name, example)
            logits = check_features_kept(seen.name, cut.head, features)
        output = _counterpart(logits, seen.entries)
        if len(seen.received) == 2:
            check_last(seen.name, logits, output, _other_heads(seen))
        elif not _equal(cut, logits, output):
            continue
        return model, features.shape[1], _in_words(cut, logits, output) + _whole_head(seen)
    raise unfit_map_head(seen.name, seen.received)


def _counterpart(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor:
    """What the module returned in place of the head's logits: of several tensors the one that equals them."""
    made = entry_made_by(logits, entries) if isinstance(logits, Tensor) else None
    return next(iter(entries.values())) if made is None else made


def _equal(cut: Cut, logits: Tensor, output: Tensor) -> bool:
    if logits.shape != output.shape or cut.exact:
        return torch.equal(logits, output)
    return float((logits - output).abs().max()) <= ROUNDING * float(output.abs().max())


def _in_words(cut: Cut, logits: Tensor, output: Tensor) -> str:
    gap = float((logits - output).abs().max())
    said = f"yes, to {gap:.1g}" if gap else "yes"
    return f"{said} ({len(logits)} images)" + (f"; {cut.how}" if cut.how else "")


def _other_heads(seen: Seen) -> list[str]:
    """Names of other linear layers that run and have as many outputs as the head (and are no hidden layers)."""
    outputs = getattr(seen.head, "out_features", None)
    if outputs is None or outputs == getattr(seen.head, "in_features", None):
        return []
    ran = {id(call.module) for call in seen.calls} - {id(seen.head)}
    return [
        name
        for name, part in seen.module.named_modules()
        if isinstance(part, nn.Linear) and id(part) in ran and part.out_features == outputs
    ]


def _whole_head(seen: Seen) -> str:
    """What to name for all linear layers at the end, where the head is the last of a sequence of them."""
    outer = seen.name.rpartition(".")[0]
    parent = seen.module.get_submodule(outer) if outer else seen.module
    linear = [part for part in parent.children() if isinstance(part, nn.Linear)]
    entered = [call.received for call in seen.calls if call.module is parent]
    one_vector = len(entered) == 1 and entered[0] is not None and len(entered[0]) == 2
    if not isinstance(parent, nn.Sequential) or len(linear) < 2 or not one_vector:
        return ""
    return f"; head={outer!r} would take all {len(linear)} linear layers, on {linear[0].in_features} features"


def _features(model: Classifier, name: str, example: Tensor) -> Tensor:
    try:
        return model.features(example)
    except Exception as error:
        raise ValueError(
            f"the module runs with head {name!r} but not up to it, with {type(error).__name__}: {error} "
            "Its forward pass must reach the head by its attribute, and do nothing with it but call it."
        ) from error


LARGEST = {"mean": 1.0, "std": 2.0}  # of images in [0, 1]; larger ones count grey levels


def wrap(
    module: nn.Module,
    head: str | None = None,
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
    verbose: bool = True,
) -> Classifier:
    """Cut a trained module into extractor and head: its features are what enters the submodule `head`.

    The cut is proved on `example` in evaluation mode: head(features(x)) equals the module's own output to
    the bit, or it is refused with the reason. The classifier shares the module's weights, buffers and
    submodules, nothing is copied: training or moving one trains or moves the other, and `train()` and
    `eval()` reach the shared submodules. The module itself works as before.

    Logits are found in an object's or dictionary's `logits` too, as Hugging Face's models return them. Of several
    tensors (two heads, an auxiliary one) they are those that the named `head` makes. A head may read maps
    (B, C, H, W): a 1x1 convolution before global average pooling has features that are averaged first, which is
    the same but for rounding; any other is given the maps flattened.

    Args:
        module: Takes one batch of images and returns logits.
        head: Name of a submodule, as in ``named_modules()``; None takes the last ``nn.Linear`` or 1x1 convolution
            that runs.
        example: A few images in [0, 1], shape (B, C, H, W), on the module's device and in its dtype.
        mean: What the module was trained with: subtracted from images in [0, 1], one value or one a channel.
        std: Divides images after that, likewise; above 0.
        preprocessing: In place of `mean` and `std`, what keeps them: see :func:`clearance.data.preprocessing_of`
            (a timm model or its `pretrained_cfg`, torchvision's ``weights.transforms()``, an image processor).
        verbose: Print one line: head, number of features, and the proof.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, K).

    Returns:
        The classifier; submodule ``layer`` of the module is its layer ``"extractor.module.layer"``.

    Raises:
        ValueError: If `example` is not such a batch; if the module fails on it, returns no logits, or differs
            between two runs; if the head does not exist, does not run, runs twice, receives anything but one
            tensor (B, D) or (B, C, H, W), changes it in place, or shares a parameter with the rest; if its
            output is not the module's output; if `preprocessing` stands beside `mean` or `std`, or keeps neither.

    Warns:
        UserWarning: If `mean` and `std` are given although the module seems to normalise by itself.

    Misleading: whatever follows the head and leaves its output on `example` as it is (a clamp that does
    not bite) passes the proof and is dropped.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = wrap(net, example=torch.rand(4, 1, 4, 4))
    wrap: head '3' (Linear 8 -> 3), 8 features; head(features(x)) equals module(x): yes (4 images)
    >>> model.extractor.module[1].weight is net[1].weight
    True
    """
    model, line = wrapped(module, head, example=example, mean=mean, std=std, preprocessing=preprocessing)
    if verbose:
        print(line)  # noqa: T201 - asked for by `verbose`: the proof belongs before the user's eyes
    return model


def wrapped(
    module: nn.Module,
    head: str | None = None,
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
) -> tuple[Classifier, str]:
    """The same, and the line that `wrap` prints."""
    check_module(module)
    check_example(example)
    if preprocessing is not None:
        mean, std = _kept_by(preprocessing, mean, std)
    mean_tensor, std_tensor = _per_channel("mean", mean, example), _per_channel("std", std, example)
    with evaluating(module):
        entries, calls = _observed(module, (example - mean_tensor) / std_tensor, head)
    if bool(mean_tensor.any()) or bool((std_tensor != 1).any()):
        _warn_of_normalising_twice(module, calls, example.shape[1])
    name, part = _chosen_head(module, head, calls)
    received = check_head_input(name, [call for call in calls if call.module is part], len(example))
    seen = Seen(module, entries, calls, name, part, received)
    model, width, proof = proved(seen, example, mean_tensor, std_tensor)
    line = f"wrap: head {name!r} ({_described(part)}), {width} features; head(features(x)) equals module(x): {proof}"
    return model, line


def _kept_by(
    source: Any, mean: float | Sequence[float], std: float | Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    if (mean, std) != (0.0, 1.0):
        raise ValueError(
            f"give `preprocessing`, or `mean` and `std`, not both; got mean {mean} and std {std} too."
        )
    found = preprocessing_of(source)
    if found.mean is None or found.std is None:
        raise ValueError(
            f"`preprocessing` must keep mean and std; got a {type(source).__name__} without. Give `mean` and `std`."
        )
    return found.mean, found.std


def _per_channel(name: str, value: float | Sequence[float], example: Tensor) -> Tensor:
    channels = torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1)
    if len(channels) not in (1, example.shape[1]):
        raise ValueError(
            f"`{name}` must be one value or one a channel ({example.shape[1]} in the example); got {value}."
        )
    if name == "std" and not bool((channels > 0).all()):
        raise ValueError(f"`std` must be above 0 in every channel; got {value}.")
    check_of_unit_images(name, channels.flatten().tolist())
    return channels.to(example)


def check_of_unit_images(name: str, values: Sequence[float]) -> None:
    """Raise ValueError for a mean or standard deviation of images that count grey levels.

    >>> check_of_unit_images("mean", (0.485, 0.456, 0.406))
    """
    if any(value > LARGEST[name] for value in values):
        raise ValueError(
            f"`{name}` must be that of images in [0, 1], at most {LARGEST[name]:g}; got "
            f"{', '.join(f'{value:g}' for value in values)}. Divide `mean` and `std` by 255 where they are those of "
            "images up to 255."
        )


def _observed(module: nn.Module, inputs: Tensor, head: str | None) -> tuple[dict[str, Tensor], list[Call]]:
    try:
        # Clones, because a module may work on its input in place.
        output, calls = observed_calls(module, inputs.clone())
        again = module(inputs.clone())
    except Exception as error:
        raise ValueError(
            f"`module` must take the example as its only argument, shape {tuple(inputs.shape)}, "
            f"{inputs.dtype} on {inputs.device}; it fails with {type(error).__name__}: {error}"
        ) from error
    entries = logits_entries(output)
    check_output(output, entries, head)
    check_repeatable(entries, logits_entries(again))
    return entries, calls


def _warn_of_normalising_twice(module: nn.Module, calls: list[Call], channels: int) -> None:
    habit = own_normalisation(module, calls, channels)
    if habit:
        warnings.warn(
            f"`module` seems to normalise by itself ({habit}), and `mean` and `std` normalise before that; "
            "leave them out unless it was trained with both.",
            UserWarning,
            stacklevel=4,
        )


def _chosen_head(module: nn.Module, head: str | None, calls: list[Call]) -> tuple[str, nn.Module]:
    names = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
    if head is not None:
        if head not in names:
            raise ValueError(
                f"`head` must name a submodule of the {type(module).__name__}; got {head!r}. "
                f"{nearest_name(module, head)}"
            )
        return head, names[head]
    linear = [
        call.module
        for call in calls
        if isinstance(call.module, nn.Linear) or is_point_convolution(call.module)
    ]
    if not linear:
        raise ValueError(
            f"no nn.Linear runs in the {type(module).__name__}, nor a 1x1 convolution; name the submodule that "
            "turns features of shape (B, D) into logits: wrap(module, head=...)."
        )
    return next((name, part) for name, part in names.items() if part is linear[-1])


def _described(head: Any) -> str:
    sizes = f" {head.in_features} -> {head.out_features}" if isinstance(head, nn.Linear) else ""
    return f"{type(head).__name__}{sizes}"
