"""Weights of a checkpoint in a module: wrappers' prefixes taken off, and what does not fit refused by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike

from torch import Tensor, nn

from clearance.models.checkpoint import Checkpoint, read_checkpoint

PREFIXES = ("module.", "model.", "_orig_mod.")  # DataParallel and AveragedModel, Lightning, torch.compile
_DEPTH = 3  # all of them around each other
_SHOWN = 5
_COUNTERS = ("num_batches_tracked",)  # of no effect on what an evaluated module returns
_EFFECTIVE = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class LoadedWeights:
    """What became of a checkpoint.

    Args:
        source: File, and the entry in it.
        count: How many of its tensors the module took.
        prefix: What stood before the names and was taken off.
        missing: Names of the module that the checkpoint lacks, none of them of any effect.
        unexpected: Names of the checkpoint that the module does not have.
        others: Further entries of the file that hold weights.
    """

    source: str
    count: int
    prefix: str = ""
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"weights: {self.count} tensors from {self.source}"
        if self.prefix:
            said += f", prefix {self.prefix!r} taken off"
        for word in ("missing", "unexpected"):
            names = getattr(self, word)
            if names:
                said += f"; {len(names)} {word}: {_listed(names)}"
        if self.others:
            said += f"; not used: {_listed(self.others)}"
        return said


def load_weights(module: nn.Module, path: str | PathLike[str], entry: str | None = None) -> LoadedWeights:
    """Put the weights of a checkpoint into `module`, all of them or none.

    The prefixes that wrappers leave (``module.``, ``model.``, ``_orig_mod.``, also several) are taken off where
    more names then fit. Counters that evaluation does not read may be missing, and layers that the module does
    not have may be there (an auxiliary head): the result names both. Whatever would change what the module
    computes is refused.

    Args:
        module: Gets the weights, in its own dtypes and on its own devices.
        path: See :func:`clearance.models.read_checkpoint`.
        entry: The key of the file's dictionary to take; by default averaged weights before others.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read without unpickling; if a parameter or buffer is missing, has another
            shape, is not finite, or belongs to a layer that the module has without it.

    >>> import tempfile, torch
    >>> from pathlib import Path
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "best.pth")
    ...     torch.save({"state_dict": {f"module.{n}": v for n, v in net.state_dict().items()}}, file)
    ...     print(load_weights(net, file))
    weights: 2 tensors from best.pth['state_dict'], prefix 'module.' taken off
    """
    checkpoint = read_checkpoint(path, entry)
    wanted = module.state_dict()
    prefix, given = _without_prefix(checkpoint.tensors, wanted)
    missing = _missing(module, wanted, given)
    unexpected = tuple(name for name in given if name not in wanted)
    _check_some(checkpoint, wanted, given)
    _check_missing(checkpoint, [name for name in missing if not name.endswith(_COUNTERS)])
    _check_shapes(checkpoint, wanted, given)
    _check_unexpected(module, checkpoint, unexpected)
    fitting = {name: value for name, value in given.items() if name in wanted}
    _check_finite(checkpoint, fitting)
    module.load_state_dict(fitting, strict=False)
    return LoadedWeights(str(checkpoint), len(fitting), prefix, missing, unexpected, checkpoint.others)


def _without_prefix(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> tuple[str, Mapping[str, Tensor]]:
    """The prefix under which most names fit, the shortest of equals, and the tensors without it."""
    tried = [""]
    for _ in range(_DEPTH):
        tried += [start + prefix for start in tried for prefix in PREFIXES if start + prefix not in tried]

    def fitting(prefix: str) -> int:
        return sum(name.startswith(prefix) and name[len(prefix) :] in wanted for name in tensors)

    best = max(tried, key=fitting)  # the first of equals: they were made from the shortest on
    # Names without the prefix (a loss's class weights, a counter) keep theirs: they are told, not lost.
    return best, {name.removeprefix(best): value for name, value in tensors.items()}


def _missing(module: nn.Module, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Names that nothing is given for; a tied parameter is given under any of its names."""
    tied = {name: id(value) for name, value in module.named_parameters(remove_duplicate=False)}
    reached = {tied[name] for name in given if name in tied}
    return tuple(
        name
        for name in wanted
        if name not in given and tied.get(name) not in reached and not name.endswith("_extra_state")
    )


def _check_some(checkpoint: Checkpoint, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    if not any(name in wanted for name in given):
        raise ValueError(
            f"{checkpoint} must hold the weights of this module; no name of it fits. The module has "
            f"{_listed(wanted)}; the checkpoint has {_listed(checkpoint.tensors)}. Build the module that it was "
            "saved from, or name another entry."
        )


def _check_missing(checkpoint: Checkpoint, names: list[str]) -> None:
    if names:
        raise ValueError(
            f"{checkpoint} must hold every parameter and buffer of the module; missing: "
            f"{_listed(names)}. Build the module that it was saved from."
        )


def _check_shapes(checkpoint: Checkpoint, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    wrong = [
        f"{name!r} is {tuple(value.shape)} in the checkpoint and {tuple(wanted[name].shape)} in the module"
        for name, value in given.items()
        if name in wanted and value.shape != wanted[name].shape
    ]
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ValueError(
            f"{checkpoint} must have the shapes of the module; {'; '.join(wrong[:_SHOWN])}{more}. Build the module "
            "with the same sizes and number of classes."
        )


def _check_unexpected(module: nn.Module, checkpoint: Checkpoint, names: Iterable[str]) -> None:
    """Refuse a weight of a layer that the module has without it: the layer would compute something else."""
    layers = {name for name, part in module.named_modules() if name and part._parameters}
    lost = [
        name for name in names if name.rpartition(".")[0] in layers and name.rpartition(".")[2] in _EFFECTIVE
    ]
    if lost:
        raise ValueError(
            f"{checkpoint} holds {_listed(lost)}, of layers that the module has without them, so it would compute "
            "something else. Build the module that it was saved from."
        )


def _check_finite(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> None:
    broken = [name for name, value in tensors.items() if not bool(value.isfinite().all())]
    if broken:
        raise ValueError(
            f"{checkpoint} must hold finite numbers; got NaN or infinity in {_listed(broken)}. Take a checkpoint "
            "from before that."
        )


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
