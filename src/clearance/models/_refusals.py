"""Every reason for which a module cannot be cut into extractor and head, and what to do about it."""

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.models._observe import Call

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
