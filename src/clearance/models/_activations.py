"""Hidden activations of a module by layer name, refused where their gradient would be wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_choice

ALWAYS = ("features", "logits")  # of every classifier's outputs, without being asked for


@contextmanager
def recorded_activations(module: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Record the outputs of `layers` while the block runs; check them when it ends."""
    recorded: dict[str, Tensor] = {}
    versions: dict[str, int] = {}
    modules = dict(module.named_modules(remove_duplicate=False))  # one that is there twice has two names

    def hook_for(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if name in recorded:
                raise ValueError(
                    f"layer {name!r} ran twice in one forward pass, so it has no one activation."
                )
            if not isinstance(output, Tensor):
                raise ValueError(f"layer {name!r} must return a tensor; got {type(output).__name__}.")  # noqa: TRY004
            if output.is_inference():
                raise ValueError(
                    f"layer {name!r} ran in torch.inference_mode(), where no gradient can be taken; leave that mode."
                )
            recorded[name] = output
            versions[name] = output._version

        return hook

    handles = []
    try:
        for name in layers:
            check_choice("layers", name, ["input", *ALWAYS, *(known for known in modules if known)])
            _check_own(name, modules)
            handles.append(modules[name].register_forward_hook(hook_for(name)))
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
    _check_intact(layers, recorded, versions)


def check_reducers(module: nn.Module) -> None:
    """Refuse wrappers that average gradients at the first backward pass there is: of a margin that is a sweep."""
    for name, part in module.named_modules():
        if isinstance(part, nn.parallel.DistributedDataParallel) and part.static_graph:
            raise ValueError(
                f"part {name!r} is a DistributedDataParallel with static_graph=True, which takes a margin's backward "
                "sweep for the backward pass and then averages no gradients; leave static_graph out, or put the loss "
                "into the wrapped module's forward (docs/large_margin.md)."
            )


def _check_own(name: str, modules: dict[str, nn.Module]) -> None:
    """Refuse a layer that runs as a copy: what is recorded there is not what the logits were made from."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        outer = modules[".".join(parts[:count])]
        inside = count < len(parts)
        compiled = inside and hasattr(outer, "_orig_mod")
        if compiled or getattr(outer, "_compiled_call_impl", None) is not None:
            raise ValueError(
                f"layer {name!r} must not lie in compiled code, because torch.compile keeps no activation that a "
                "gradient can be taken at; name a layer outside it, or compile nothing while layers are asked for."
            )
        if isinstance(outer, torch.jit.ScriptModule):
            raise ValueError(  # noqa: TRY004
                f"layer {name!r} must not lie in a scripted module, because it tells nobody what its parts give; use "
                "what was scripted."
            )
        if inside and isinstance(outer, nn.DataParallel):
            raise ValueError(
                f"layer {name!r} must not lie in nn.DataParallel, because it runs once in every copy and no one "
                "activation leads to the logits; use a process for each device (torch.distributed) instead."
            )


def _check_intact(layers: Sequence[str], recorded: dict[str, Tensor], versions: dict[str, int]) -> None:
    for name in layers:
        if name not in recorded:
            raise ValueError(f"layer {name!r} did not run in the forward pass; name a layer that does.")
        if recorded[name]._version != versions[name]:
            raise ValueError(
                f"the output of layer {name!r} was changed in place by what follows (nn.ReLU(inplace=True), "
                "for example); name the following layer, or make that operation out of place."
            )
