"""Any trained module as a classifier of extractor and head, without retraining and with a proof."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import did_you_mean
from clearance.data.preprocessing import preprocessing_of
from clearance.models._running import evaluating, warn_of_neighbours
from clearance.models.classifier import Classifier, check_separate, in_precision_of
from clearance.models.cut import MapHead, SummedHeads, TwoLogits, UntilHead, UntilHeads, UntilMap
from clearance.models.given import checked_example, failed_on, logits_entries, normalisation_of

_ROUNDING = 1e-5  # share of the largest logit that averaging before a 1x1 convolution may change
_AFTER_HEAD: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
}
_DENOMINATOR = 100  # of the weights of heads that are summed
_BLACK_BOX = "An audit of its logits alone: clearance.models.black_box(module, example=...), or --black-box."


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
    submodules: training or moving one trains or moves the other. Call `train()` and `eval()` on the classifier: the
    modules that contain the head are copies, with a mode of their own, and a layer that is replaced in the module later
    is not seen. The module itself works as before.

    The output may also be an object or dictionary with `logits`, as from Hugging Face's models. Of several tensors
    (two heads, an auxiliary one), the logits are those that the named `head` makes. A head may read maps
    (B, C, H, W): for a 1x1 convolution before global average pooling, the features are averaged first, which is
    the same except for rounding; for any other head the maps are flattened. Of a final log-softmax the logits before it
    are taken. Heads whose logits are averaged (distilled
    DeiT, LeViT) are taken together: their inputs side by side are the features. One logit for two classes becomes two,
    0 and that one. Of a compiled module its original is cut. What cannot be cut: :func:`clearance.models.black_box`.

    Args:
        module: Takes one batch of images and returns logits.
        head: Name of a submodule, as in ``named_modules()``; None takes the last ``nn.Linear`` or 1x1 convolution
            that runs.
        example: A few images in [0, 1], shape (B, C, H, W), on the module's device. The classifier gives the module
            images in the module's own dtype (bfloat16, float16, float64).
        mean: As in the module's training: subtracted from images in [0, 1], one value or one per channel.
        std: Divides images after that, likewise; above 0.
        preprocessing: Instead of `mean` and `std`, an object that holds them: a timm model or its `pretrained_cfg`,
            torchvision's ``weights.transforms()``, an image processor (:func:`clearance.data.preprocessing_of`); or a
            ``clearance.data.Preprocessing``. Audits resize and crop the pictures of folders and Datasets as it says.
        verbose: Print one line: head, number of features, and the proof.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, K).

    Returns:
        The classifier; submodule ``layer`` of the module is its layer ``"extractor.module.layer"``.

    Raises:
        ValueError: If `example` is not such a batch; if the module fails on it, returns no logits, or differs
            between two runs; if the head does not exist, does not run, runs twice, receives anything but one
            tensor (B, D) or (B, C, H, W), changes it in place, or shares a parameter with the rest; if its
            output is not the module's output; if `preprocessing` holds no mean and std, unless it is a
            ``Preprocessing``, or `mean` or `std` are given beside those that it holds.

    Warns:
        UserWarning: If `mean` and `std` are given although the module seems to normalise its input, or an image's
            logits depend on the other images of its batch.

    Misleads: an operation after the head that does not change its output on `example` (a clamp above all logits)
    passes the proof and is dropped.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = wrap(net, example=torch.rand(4, 1, 4, 4))
    wrap: head '3' (Linear 8 -> 3), 8 features; head(features(x)) equals module(x): yes (4 images)
    >>> model.extractor.module[1].weight is net[1].weight
    True
    """
    model, line = wrapped(module, head, example=example, mean=mean, std=std, preprocessing=preprocessing)
    if verbose:
        print(line)  # noqa: T201 - `verbose` asks for it
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
    """The classifier, and the line that `wrap` prints."""
    module, compiled = _original(module)
    example = checked_example(example)
    mean_tensor, std_tensor = normalisation_of(example, mean, std, preprocessing)
    with evaluating(module):
        inputs = in_precision_of(module, (example - mean_tensor) / std_tensor)
        entries, calls = _observed(module, inputs, head)
    if bool(mean_tensor.any()) or bool((std_tensor != 1).any()):
        _warn_of_normalising_twice(module, calls, example.shape[1])
    name, part = _chosen_head(module, head, calls)
    received = _check_head_input(name, [call for call in calls if call.module is part], len(example))
    seen = _Seen(module, inputs, entries, calls, name, part, received, chosen=head is None)
    model, line = _proved(seen, example, mean_tensor, std_tensor)
    warn_of_neighbours(model, example)
    model.example_size = (example.shape[2], example.shape[3])
    model.preprocessing = None if preprocessing is None else preprocessing_of(preprocessing)
    return model, f"wrap: {compiled}{line}"


def _observed(module: nn.Module, inputs: Tensor, head: str | None) -> tuple[dict[str, Tensor], list[_Call]]:
    try:
        # Clones, because a module may work on its input in place.
        output, calls = _observed_calls(module, inputs.clone())
        again = module(inputs.clone())
    except Exception as error:
        raise failed_on("module", inputs, error) from error
    entries = logits_entries(output)
    _check_output(output, entries, head)
    entries = {name: value[:, None] if value.ndim == 1 else value for name, value in entries.items()}
    _check_repeatable(entries, logits_entries(again))
    return entries, calls


def _warn_of_normalising_twice(module: nn.Module, calls: list[_Call], channels: int) -> None:
    habit = _own_normalisation(module, calls, channels)
    if habit:
        warnings.warn(
            f"`module` seems to normalise its input ({habit}), and `mean` and `std` normalise it before that; "
            "leave them out unless it was trained with both.",
            UserWarning,
            stacklevel=4,
        )


def _chosen_head(module: nn.Module, head: str | None, calls: list[_Call]) -> tuple[str, nn.Module]:
    names = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
    if head is not None:
        if head not in names:
            raise ValueError(
                f"`head` must name a submodule of the {type(module).__name__}; got {head!r}. "
                f"{_nearest_name(module, head)}"
            )
        return head, names[head]
    linear = [
        call.module
        for call in calls
        if isinstance(call.module, nn.Linear) or _is_point_convolution(call.module)
    ]
    if not linear:
        raise ValueError(
            f"the {type(module).__name__} must run an nn.Linear or a 1x1 convolution; got none. Name the submodule "
            "that turns features of shape (B, D) into logits: wrap(module, head=...)."
        )
    return next((name, part) for name, part in names.items() if part is linear[-1])


def _described(head: Any) -> str:
    sizes = f" {head.in_features} -> {head.out_features}" if isinstance(head, nn.Linear) else ""
    return f"{type(head).__name__}{sizes}"


@dataclass(frozen=True)
class _Seen:
    """A module, its run on the example, and the chosen head.

    `entries` are the tensors that it returned for `inputs`, `received` is the shape of the head's input; `chosen` says
    that nobody named the head.
    """

    module: nn.Module
    inputs: Tensor
    entries: Mapping[str, Tensor]
    calls: list[_Call]
    name: str
    head: nn.Module
    received: tuple[int, ...]
    chosen: bool


def _proved(seen: _Seen, example: Tensor, mean: Tensor, std: Tensor) -> tuple[Classifier, str]:
    """The first cut whose logits equal the module's, and what the line says of it."""
    refused: ValueError | None = None
    for cut in _cuts(seen):
        check_separate(cut.extractor, cut.head, f"head {seen.name!r}")
        model = Classifier(cut.extractor, cut.head)
        model.mean, model.std = mean, std  # on the module's device and in its dtype
        model.training = seen.module.training
        with evaluating(model):
            features = _features(model, seen.name, example)
            logits = _check_features_kept(seen.name, cut.head, features)
        output = _counterpart(logits, seen.entries)
        after_log_softmax = _differs_by_log_softmax(logits, output)
        if not after_log_softmax and not _equal(cut, logits, output):
            if len(seen.received) == 2 and refused is None:
                refused = _unfit_head(seen.name, logits, output, _other_heads(seen))
            continue
        if logits.shape[1:] == (1,):
            model.head = TwoLogits(cut.head)
        model.cut = seen.name if len(seen.received) == 2 and logits.shape[1:] != (1,) else ""
        before = logits.log_softmax(-1) if after_log_softmax else logits
        proof = _in_words(cut, before, output) + _whole_head(seen)
        if after_log_softmax:
            proof += "; the logits are those before its log-softmax, with the same probabilities"
        what = cut.named or f"head {seen.name!r} ({_described(seen.head)})"
        return model, f"{what}, {features.shape[1]} features; head(features(x)) equals module(x): {proof}"
    raise refused or _unfit_map_head(seen.name, seen.received)


def _counterpart(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor:
    """The module's output that corresponds to the head's logits: of several tensors, the one that equals them."""
    made = _entry_made_by(logits, entries) if isinstance(logits, Tensor) else None
    return next(iter(entries.values())) if made is None else made


def _equal(cut: _Cut, logits: Any, output: Tensor) -> bool:
    if not isinstance(logits, Tensor) or logits.shape != output.shape:
        return False
    if cut.exact:
        return torch.equal(logits, output)
    rounding = max(_ROUNDING, 4 * torch.finfo(output.dtype).eps)
    return float((logits - output).abs().max()) <= rounding * float(output.abs().max())


def _differs_by_log_softmax(logits: Any, output: Tensor) -> bool:
    """Whether the module ends in a log-softmax of these logits, as for ``nll_loss``: both have the same softmax."""
    if not isinstance(logits, Tensor) or logits.shape != output.shape or torch.equal(logits, output):
        return False
    return (
        logits.ndim == 2 and logits.shape[1] > 1 and torch.allclose(logits.log_softmax(-1), output, atol=1e-5)
    )


def _in_words(cut: _Cut, logits: Tensor, output: Tensor) -> str:
    gap = float((logits - output).abs().max())
    result = f"yes, to {gap:.1g}" if gap else "yes"
    one = "one logit, of the second of two classes" if logits.shape[1:] == (1,) else ""
    return "; ".join([f"{result} ({len(logits)} images)", *filter(None, (cut.how, one))])


def _other_heads(seen: _Seen) -> list[str]:
    """Names of other linear layers that run and have as many outputs as the head, without hidden layers."""
    outputs = getattr(seen.head, "out_features", None)
    if outputs is None or outputs == getattr(seen.head, "in_features", None):
        return []
    ran = {id(call.module) for call in seen.calls} - {id(seen.head)}
    return [
        name
        for name, part in seen.module.named_modules()
        if isinstance(part, nn.Linear) and id(part) in ran and part.out_features == outputs
    ]


def _whole_head(seen: _Seen) -> str:
    """A hint for the name of all linear layers at the end, if the head is the last of a sequence of them."""
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
            "Its forward pass must reach the head by its attribute, and only call it."
        ) from error


@dataclass(frozen=True)
class _Cut:
    """An extractor and a head whose logits equal the module's: to the bit if `exact`, else except for rounding."""

    extractor: UntilHead
    head: nn.Module
    exact: bool = True
    how: str = ""
    named: str = ""


def _cuts(seen: _Seen) -> Iterator[_Cut]:
    """Every way to cut before a head that receives this shape, the preferred one first.

    A 1x1 convolution before global average pooling equals a linear layer after it (a mean is linear), except for
    rounding; the features are then C averages instead of C H W values.
    """
    module, head, received = seen.module, seen.head, seen.received
    if len(received) == 2:
        yield _Cut(UntilHead(module, head), head)
        if seen.chosen:
            yield from _summed(seen)
        return
    channels, height, width = received[1:]
    if height * width > 1 and _is_point_convolution(head):
        yield _Cut(
            UntilMap(module, head, pooled=True),
            MapHead(head, (channels, 1, 1)),
            exact=False,
            how="maps averaged before this convolution, not after it",
        )
    how = (
        ""
        if height * width == 1
        else f"maps of {channels} x {height} x {width} flattened: only for this size"
    )
    yield _Cut(UntilMap(module, head, pooled=False), MapHead(head, (channels, height, width)), how=how)


def _summed(seen: _Seen) -> Iterator[_Cut]:
    """The cut before several heads whose weighted sum is the output, if there is one: averaged ones, as in DeiT.

    The weights are those of least squares on the example, as fractions; like every cut, it is proved afterwards.
    """
    rivals = _other_heads(seen)
    known = dict(seen.module.named_modules())
    order = [call.module for call in seen.calls]
    names = sorted([*rivals, seen.name], key=lambda name: order.index(known[name]))
    heads = [known[name] for name in names]
    shapes = [call.received for call in seen.calls if any(call.module is head for head in heads)]
    if not rivals or len(shapes) != len(heads) or any(shape is None or len(shape) != 2 for shape in shapes):
        return
    extractor = UntilHeads(seen.module, heads)
    with evaluating(extractor):
        made = [head(part) for head, part in zip(heads, extractor.parts(seen.inputs), strict=True)]
    output = next(iter(seen.entries.values()))
    columns = torch.stack([one.flatten() for one in made], dim=1).double().cpu()
    if len(columns) != output.numel():
        return
    found = torch.linalg.lstsq(columns, output.flatten()[:, None].double().cpu()).solution.flatten()
    weights = [float(Fraction(float(one)).limit_denominator(_DENOMINATOR)) for one in found]
    if all(weights):
        shown = " + ".join(f"{weight:g} x {name!r}" for weight, name in zip(weights, names, strict=True))
        widths = () if extractor.shared else tuple(head.in_features for head in heads)
        yield _Cut(extractor, SummedHeads(heads, weights, widths), exact=False, named=f"heads {shown}")


def _is_point_convolution(part: nn.Module) -> bool:
    """Whether a module is a 1x1 convolution: a linear layer at every position of a map."""
    return (
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride == (1, 1)
        and part.padding in ((0, 0), "valid", "same")
        and part.groups == 1
    )


@dataclass(frozen=True)
class _Call:
    """One call of a submodule; `received` is the shape of its input, None unless that is one tensor."""

    module: nn.Module
    received: tuple[int, ...] | None


def _observed_calls(module: nn.Module, inputs: Tensor) -> tuple[Any, list[_Call]]:
    """The module's output, and the calls of its submodules in the order in which they began."""
    calls: list[_Call] = []

    def hook(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        single = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        calls.append(_Call(part, tuple(args[0].shape) if single else None))

    # Prepended: the input before the module's own hooks change it.
    handles = [
        part.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
        for part in module.modules()
        if part is not module and not isinstance(part, torch.jit.ScriptModule)  # these take no such hook
    ]
    try:
        return module(inputs), calls
    finally:
        for handle in handles:
            handle.remove()


def _own_normalisation(module: nn.Module, calls: list[_Call], channels: int) -> str | None:
    """How the module seems to normalise its input, as text; None if it does not.

    Looks for a first layer with "normali" in the name of its class, and for attributes `mean` and `std` with one
    value or one per channel. Other ways of normalising are not found.
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
    """The numbers of the attribute `name`, rounded, if there is one or one per channel."""
    try:
        values = torch.as_tensor(getattr(part, name, None), dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):  # a method, a module, None
        return None
    return [round(value, 4) for value in values] if len(values) in (1, channels) else None


def _entry_made_by(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor | None:
    """The one entry that equals the head's logits, to the bit; None if there is none or more than one.

    >>> one, two = torch.zeros(2, 3), torch.ones(2, 3)
    >>> _entry_made_by(torch.ones(2, 3), {"0": one, "1": two}) is two
    True
    """
    equal = [each for each in entries.values() if each.shape == logits.shape and torch.equal(each, logits)]
    return equal[0] if len(equal) == 1 else None


def _original(module: nn.Module) -> tuple[nn.Module, str]:
    """The module, of a compiled one its original, and a word on that.

    Raises:
        ValueError: For other types, and for modules that wrap another's forward pass.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
            f"`module` must be a torch.nn.Module; got {type(module).__name__}. Build the module; "
            f"clearance.models.load_weights loads a state dict into one. {_BLACK_BOX}"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(  # noqa: TRY004
            f"`module` is scripted and cannot be cut; wrap the original module. {_BLACK_BOX}"
        )
    if isinstance(module, nn.DataParallel):
        raise ValueError("`module` is a DataParallel; wrap its `.module` instead.")  # noqa: TRY004
    if isinstance(module, nn.parallel.DistributedDataParallel):
        raise ValueError(  # noqa: TRY004
            "`module` is a DistributedDataParallel; wrap its `.module` instead, to audit it. To train it in several "
            "processes, call clearance.fit in each, or put DistributedDataParallel around a module whose forward gives "
            "the loss (docs/large_margin.md): it averages gradients only if its own forward is called."
        )
    original = getattr(module, "_orig_mod", None)
    return (module, "") if original is None else (original, "the original of the compiled module; ")


def _check_output(output: Any, entries: dict[str, Tensor], head: str | None) -> None:
    """Raise ValueError for an output without tensors, with several but no head, or with values that are not finite."""
    if not entries:
        keys = f" with keys {sorted(map(str, output))}" if isinstance(output, dict) else ""
        raise ValueError(
            f"`module` must return one tensor of logits, or an object with `.logits`; got {type(output).__name__}"
            f"{keys}. Wrap a module whose forward returns only the logits."
        )
    if len(entries) > 1 and head is None:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in entries.items())
        raise ValueError(
            f"`module` must return one tensor of logits; got {len(entries)} ({shapes}). Name the head whose logits "
            "count: wrap(module, head=...), --head of the command."
        )
    whole = [value.dtype for value in entries.values() if not value.is_floating_point()]
    if len(whole) == len(entries):
        raise ValueError(
            f"`module` must return logits as floating-point numbers; got {whole[0]}. Remove what follows the head, "
            "such as argmax."
        )
    if any(value.is_floating_point() and not bool(value.isfinite().all()) for value in entries.values()):
        raise ValueError(
            "`module` must return finite logits; got NaN or infinity on the example. Find the layer that makes them."
        )


def _check_repeatable(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Raise ValueError if two runs give different outputs."""
    if not all(torch.equal(value, second[name].reshape(value.shape)) for name, value in first.items()):
        raise ValueError(
            "`module` must return the same logits twice in evaluation mode; two runs on the example differ. "
            "Look for noise or dropout that ignores eval(), buffers that every run changes, or "
            "nondeterministic kernels."
        )


def _nearest_name(module: nn.Module, name: str) -> str:
    """The hint for a misspelt submodule: the nearest existing name, or the outermost names."""
    known = [known for known, _ in module.named_modules(remove_duplicate=False) if known]
    outermost = ", ".join(repr(child) for child, _ in module.named_children())
    return did_you_mean(name, known).strip() or f"Its outermost submodules: {outermost}."


def _check_head_input(name: str, calls: list[_Call], batch: int) -> tuple[int, ...]:
    """The shape of a head's one input, (B, D) or (B, C, H, W).

    Raises:
        ValueError: If the head does not run exactly once, or on another input.
    """
    if not calls:
        raise ValueError(
            f"head {name!r} must be called in the forward pass; got no call (its parts may be called, or its weights "
            "used directly). Name a submodule that is called."
        )
    if len(calls) > 1:
        raise ValueError(
            f"head {name!r} must run once in a forward pass; got {len(calls)} runs, so it has several inputs. "
            "Name a submodule that runs once."
        )
    shape = calls[0].received
    if shape is None:
        raise ValueError(
            f"head {name!r} must receive one tensor as its only argument; got other arguments. Name another submodule."
        )
    if len(shape) not in (2, 4) or shape[0] != batch:
        raise ValueError(
            f"head {name!r} must receive features of shape (B, D); got {shape} for {batch} images. "
            f"Name a submodule that runs after pooling or flattening. {_BLACK_BOX}"
        )
    return shape


def _check_features_kept(name: str, head: nn.Module, features: Tensor) -> Tensor:
    """The head's output.

    Raises:
        ValueError: If the head changes its features in place, in training or evaluation mode, or does not run on them.
    """
    if features.is_inference():
        raise ValueError(
            f"the module must not run under torch.inference_mode, which keeps head {name!r} from its features; take "
            f"that from its forward pass, or use torch.no_grad. {_BLACK_BOX}"
        )
    address = features.data_ptr()
    culprits: list[str] = []

    def hook(part: nn.Module, args: tuple[Any, ...]) -> None:
        # Dropout in place does nothing in evaluation mode, so comparing values is not enough.
        if getattr(part, "inplace", False) and any(_starts_at(value, address) for value in args):
            culprits.append(type(part).__name__)

    handles = [part.register_forward_pre_hook(hook) for part in head.modules()]
    version = features._version
    try:
        logits = head(features)
    except RuntimeError as error:
        raise ValueError(
            f"head {name!r} must run by itself on its features, of {features.dtype}: {error}. If the module switches "
            f"autocast on, remove that from it. {_BLACK_BOX}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if culprits or features._version != version:
        by = f" ({culprits[0]} with inplace=True)" if culprits else ""
        raise ValueError(
            f"head {name!r} must not change its features in place{by}, because they would then differ from its input; "
            "make that operation out of place, or name a later submodule."
        )
    return logits


def _starts_at(value: Any, address: int) -> bool:
    return isinstance(value, Tensor) and value.data_ptr() == address


def _unfit_head(name: str, logits: Any, output: Tensor, rivals: Sequence[str]) -> ValueError:
    """The error for a head whose output is not the module's; `rivals` are heads of the same size."""
    if not isinstance(logits, Tensor):
        return ValueError(f"head {name!r} must return one tensor; got {type(logits).__name__}.")
    if logits.shape != output.shape:
        return ValueError(
            f"head {name!r} returns {tuple(logits.shape)} but the module returns {tuple(output.shape)}: "
            "something follows the head. Name the submodule whose output is the logits."
        )
    for word, function in _AFTER_HEAD.items():
        if torch.allclose(function(logits), output, atol=1e-6):
            aside = "" if word == "sigmoid" else f" {_BLACK_BOX}"  # which reads rows that sum to 1
            return ValueError(
                f"{word} after the head {name!r}: audit logits, not probabilities; remove it from the module.{aside}"
            )
    if rivals:
        return ValueError(
            f"the output of head {name!r} is not the module's output: something follows the head, or another makes the "
            f"logits; {', '.join(map(repr, rivals))} has as many outputs. Name that one. {_BLACK_BOX}"
        )
    gap = float((logits - output).abs().max())
    return ValueError(
        f"the output of head {name!r} is not the module's output (they differ by up to {gap:.3g}): something "
        f"follows the head. Name the submodule whose output is the logits, or remove what follows it. {_BLACK_BOX}"
    )


def _unfit_map_head(name: str, received: tuple[int, ...]) -> ValueError:
    """The error for a head on maps (B, C, H, W) whose output neither flattens nor averages to the logits."""
    return ValueError(
        f"head {name!r} must receive features of shape (B, D), or maps that become the logits by the head and "
        f"flattening, or by a 1x1 convolution and averaging; got {received}, and something else follows. Name "
        f"the submodule that holds everything from there to the logits, or one that runs after pooling. {_BLACK_BOX}"
    )
