"""Weights of a user's checkpoint: read without unpickling, and loaded into a module completely or not at all."""

import copy
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from clearance._checks import check_choice

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar")
# Averaged weights first: where a script keeps them, they are those that it reports.
ENTRIES = (
    "ema_state_dict", "state_dict_ema", "model_ema", "ema", "params_ema",
    "state_dict", "model", "model_state_dict", "net", "network", "params", "weights",
)  # fmt: skip
# Of DataParallel and AveragedModel, of LightningModules, and of torch.compile.
PREFIXES = ("module.", "model.", "net.", "_orig_mod.")
_ZIP, _PICKLE, _POINTER = b"PK\x03\x04", b"\x80", b"version https://git-lfs"
_DENSE = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")  # of torchvision before 0.3
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_SHOWN = 6
_COUNTED = ("total_ops", "total_params")  # which a tool that counts operations leaves everywhere
_LISTED = 5
_DEPTH = 3  # prefixes in a row
_COUNTERS = ("num_batches_tracked",)  # without effect in evaluation mode
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_EFFECTIVE = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class LoadedWeights:
    """The result of loading a checkpoint.

    Args:
        source: File, and the entry in it.
        count: Number of tensors that were loaded.
        prefix: The prefix that was removed from the names.
        missing: Names of the module that the checkpoint lacks; none of them affects the output.
        unexpected: Names of the checkpoint that the module does not have.
        others: Other entries of the file that hold weights.
    """

    source: str
    count: int
    prefix: str = ""
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"weights: {self.count} tensors from {self.source}"
        if self.prefix:
            text += f", prefix {self.prefix!r} removed"
        for word in ("missing", "unexpected"):
            names = getattr(self, word)
            if names:
                text += f"; {len(names)} {word}: {_listed(names)}"
        if self.others:
            text += f"; not used: {_listed(self.others)}"
        return text


def load_weights(module: nn.Module, path: str | PathLike[str], entry: str | None = None) -> LoadedWeights:
    """Load the weights of a checkpoint into `module`, all of them or none.

    Prefixes of wrappers (``module.``, ``model.``, ``_orig_mod.``, also several) are removed if more names then
    fit. Counters that evaluation does not read may be missing, and layers that the module does not have (an
    auxiliary head) may be present: the result names both. Names that only a Hugging Face model's own class knows, as
    transformers 5 writes them, are translated by its ``from_pretrained``, and older names by the module's own hooks;
    those of torchvision's older DenseNet are known. Any other difference is an error.

    Args:
        module: Gets the weights, in its own dtypes and on its own devices.
        path: See :func:`read_checkpoint`.
        entry: The key of the weights in the file; by default averaged weights before others.

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
    weights: 2 tensors from best.pth['state_dict'], prefix 'module.' removed
    """
    checkpoint = read_checkpoint(path, entry)
    wanted = module.state_dict()
    prefix, given = _without_prefix(checkpoint.tensors, wanted)
    if not wanted.keys() <= given.keys():
        given = _renamed(module, checkpoint.tensors) or _translated(module, given) or given
    missing = _missing(module, wanted, given)
    unexpected = tuple(name for name in given if name not in wanted)
    _check_some(checkpoint, wanted, given)
    _check_missing(checkpoint, [name for name in missing if not name.endswith(_COUNTERS)])
    _check_kinds(checkpoint, wanted, given)
    _check_shapes(checkpoint, wanted, given)
    # not those of what stands beside the network
    own = [name for name in unexpected if prefix + name in checkpoint.tensors]
    _check_unexpected(module, checkpoint, unexpected, own)
    fitting = {name: value for name, value in given.items() if name in wanted}
    _check_finite(checkpoint, fitting, wanted)
    module.load_state_dict(_of_present_form(module, fitting), strict=False)
    return LoadedWeights(str(checkpoint), len(fitting), prefix, missing, unexpected, checkpoint.others)


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a checkpoint, and their place in it.

    Args:
        tensors: By their names in the checkpoint.
        entry: The key of their dictionary; None if they are the whole file.
        others: Other keys that hold weights.
    """

    tensors: Mapping[str, Tensor]
    file: str
    entry: str | None = None
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.file if self.entry is None else f"{self.file}[{self.entry!r}]"


def read_checkpoint(path: str | PathLike[str], entry: str | None = None) -> Checkpoint:
    """The weights in a ``.safetensors`` file, or in a file of ``torch.save`` (.pt, .pth, .ckpt, .bin, .tar).

    The latter is only read with ``weights_only=True``, so a file cannot run code; other objects beside the weights,
    such as ``argparse.Namespace``, NumPy's numbers, paths or configurations, are skipped unread. Weights may be the
    file itself, or lie under one of `ENTRIES`, averaged weights first.

    Tensors are read onto the CPU; by default `entry` is the first existing one of `ENTRIES`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is of another kind, damaged, or needs unpickling; if it has no such entry, or no
            dictionary of tensors in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "best.pt")
    ...     torch.save({"epoch": 3, "model": {"fc.weight": torch.zeros(2, 4)}}, file)
    ...     found = read_checkpoint(file)
    >>> str(found), list(found.tensors)
    ("best.pt['model']", ['fc.weight'])
    """
    path = Path(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no file"
        raise FileNotFoundError(f"weights must be a file; got {found} {path}. Correct the path.")
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"weights must be a file that ends in {', '.join(SUFFIXES)}; got {path.name}. Rename it if it is one."
        )
    content = _safe(path) if path.suffix.lower() == ".safetensors" else _saved_by_torch(path)
    return _found(content, path.name, entry)


def _safe(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path.name} cannot be read as safetensors ({error}); copy or save it again."
        ) from error


def _saved_by_torch(path: Path) -> Any:
    with path.open("rb") as file:
        start = file.read(len(_POINTER))
    if start == _POINTER:
        raise ValueError(
            f"{path.name} must be a file of torch.save; got a Git LFS pointer. Fetch the file itself: git lfs pull."
        )
    if not start.startswith(_ZIP) and not start.startswith(_PICKLE):
        raise ValueError(
            f"{path.name} must be a file of torch.save; got another kind of file. Save it again, or correct its suffix."
        )
    if start.startswith(_ZIP) and _is_scripted(path):
        raise ValueError(
            f"{path.name} must hold weights; got a scripted model. Write a function that returns "
            f"torch.jit.load({path.name!r}), and give FILE.py:FUNCTION with --black-box (in Python, "
            "clearance.models.black_box)."
        )
    try:
        with torch.serialization.safe_globals([(dict, "builtins.dict"), *_stand_ins(path)]):
            return torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251 - weights alone
    except (RuntimeError, OSError, EOFError) as error:  # the archive or file ends too early
        raise ValueError(
            f"{path.name} is damaged or not a checkpoint ({_first_line(error)}). Copy or save it again."
        ) from error
    except Exception as error:
        raise ValueError(
            f"{path.name} holds more than tensors, and reading that would run code from the file "
            f"({_first_line(error)}). {_conversion(path.name)}"
        ) from error


def _is_scripted(path: Path) -> bool:
    """Whether it is an archive of torch.jit, as torch itself tells them; False for a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


_LONGEST_NAME = 500  # letters of a class with its package


class _Unread:
    """What stands for an object of any class but a tensor's: it takes its content and does nothing with it."""

    def __new__(cls, *content: Any, **more: Any) -> "_Unread":
        del content, more
        return super().__new__(cls)

    def __init__(self, *content: Any, **more: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _UnreadDict:
    """The same for a dictionary of another class, whose items torch's reader sets one by one."""

    def __new__(cls, *content: Any) -> dict[Any, Any]:  # type: ignore[misc]
        del content
        return {}


def _stand_ins(path: Path) -> list[tuple[type, str]]:
    """For each name of a class or function in a file, a class that only holds its place: nothing of theirs is run.

    So arguments of the command line, NumPy's numbers, paths and configurations beside the weights do no harm.

    Raises:
        ValueError: If a name is longer than any class has; torch takes minutes to say that it does not know it.
    """
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # noqa: BLE001 - an old or damaged file; torch.load says what is wrong
        return []
    if longest := next((name for name in names if len(name) > _LONGEST_NAME), None):
        raise ValueError(f"it needs a class with a name of {len(longest)} letters")
    return [
        (_UnreadDict if name.lower().endswith("dict") else type(name, (_Unread,), {}), name)
        for name in names
        if name != "builtins.dict"
    ]


def _conversion(file: str) -> str:
    """The line that makes a file of weights alone."""
    load = f"m = torch.load({file!r}, map_location='cpu', weights_only=False)"
    save = "torch.save(m.state_dict() if hasattr(m, 'state_dict') else m['state_dict'], 'weights.pt')"
    return (
        "If you trust it, convert it where it was made, with the entry that holds the weights: "
        f'python -c "import torch; {load}; {save}"'
    )


def _first_line(error: Exception) -> str:
    """The line of torch's long message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    met = _GLOBAL.search(str(error))
    if met is not None:  # without torch's advice on how to let it run
        return f"it needs {met[1]}"
    telling = [line for line in lines if "GLOBAL" in line or "Unsupported" in line]
    return (telling or lines or [type(error).__name__])[0].removeprefix("WeightsUnpickler error: ")[:160]


def _found(content: Any, file: str, entry: str | None) -> Checkpoint:
    if not isinstance(content, Mapping):
        raise ValueError(  # noqa: TRY004 - what a file holds is no argument's type
            f"{file} must hold a dictionary of tensors; got {type(content).__name__}. "
            + (_conversion(file) if isinstance(content, _Unread) else "Save model.state_dict().")
        )
    places = [name for name in content if isinstance(name, str) and _weights(content[name])]
    if entry is not None and not places and _weights(content):
        raise ValueError(
            f"{file} holds its weights at the top and has no entries; got entry {entry!r}. Leave it out."
        )
    if entry is not None:
        check_choice("entry", entry, places)
        return Checkpoint(_tensors(content[entry]), file, entry, tuple(n for n in places if n != entry))
    if _weights(content):
        return Checkpoint(_tensors(content), file)
    known = [name for name in ENTRIES if name in places]
    if known:
        unread = [name for name in ENTRIES if _holds_tensors(content.get(name))]
        others = tuple(dict.fromkeys(name for name in (*places, *unread) if name != known[0]))
        return Checkpoint(_tensors(content[known[0]]), file, known[0], others)
    raise ValueError(
        f"{file} must be a dictionary of tensors or hold one as {', '.join(map(repr, ENTRIES))}; got "
        f"{_keys(content)}. {_remedy(places)}"
    )


def _remedy(places: list[str]) -> str:
    if places:
        return f"Name the entry that holds the weights: {', '.join(map(repr, places[:_SHOWN]))}."
    return "Save model.state_dict()."


def _weights(value: Any) -> bool:
    """Whether this is a dictionary of tensors by name, and numbers, as of a decay; modules may add an extra state."""
    return (
        isinstance(value, Mapping)
        and all(isinstance(name, str) for name in value)
        and any(isinstance(each, Tensor) for each in value.values())
        and all(
            isinstance(each, Tensor | int | float) or name.endswith("_extra_state")
            for name, each in value.items()
        )
    )


def _holds_tensors(value: Any) -> bool:
    inside = value.values() if isinstance(value, Mapping) else ()
    return any(isinstance(each, Tensor) or _holds_tensors(each) for each in inside)


def _tensors(content: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _keys(content: Mapping[Any, Any]) -> str:
    shown = [f"{name!r} ({type(value).__name__})" for name, value in list(content.items())[:_SHOWN]]
    return ", ".join(shown) + (", ..." if len(content) > _SHOWN else "") if shown else "an empty one"


def _without_prefix(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> tuple[str, Mapping[str, Tensor]]:
    """The prefix with which most names fit, the shortest if several do, and the tensors without it."""
    tried = [""]
    for _ in range(_DEPTH):
        tried += [start + prefix for start in tried for prefix in PREFIXES if start + prefix not in tried]

    def fitting(prefix: str) -> int:
        return sum(name.startswith(prefix) and name[len(prefix) :] in wanted for name in tensors)

    best = max(tried, key=fitting)  # the first, which is the shortest
    # Names without the prefix (a loss's class weights, a counter) are kept, to be reported.
    found = {name.removeprefix(best): value for name, value in tensors.items() if name.startswith(best)}
    others = {name: value for name, value in tensors.items() if not name.startswith(best)}
    return best, {
        **{f"{name}, not {best}{name}" if name in found else name: v for name, v in others.items()},
        **found,
    }


def _renamed(module: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The tensors by the module's names, if it is a Hugging Face model whose class knows other names of them.

    Since version 5, transformers writes the names of version 4 and builds modules with new ones; ``from_pretrained``
    translates. Weights that it has made up because the file lacks them are left out.
    """
    build, config = getattr(type(module), "from_pretrained", None), getattr(module, "config", None)
    if build is None or config is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh, report = build(None, config=config, state_dict=dict(tensors), output_loading_info=True)
        if report["unexpected_keys"] or report["mismatched_keys"]:
            return None
        lost = report["missing_keys"]
        return {name: value for name, value in fresh.state_dict().items() if name not in lost}
    except Exception:  # noqa: BLE001 - another package's code; the names of the file then say what is missing
        return None


def _translated(module: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The tensors by the module's names, if its own hooks know the older names in the file, as weight_norm's do."""
    plain = {_DENSE.sub(r"\1\2", name): value for name, value in given.items()}  # torchvision's own files
    if len(plain.keys() & module.state_dict().keys()) > len(given.keys() & module.state_dict().keys()):
        return plain
    try:
        taken = copy.deepcopy(module)
        taken.load_state_dict(OrderedDict(given), strict=True)
    except Exception:  # noqa: BLE001 - another package's code; the names of the file then say what is missing
        return None
    return dict(taken.state_dict())


def _of_present_form(module: nn.Module, tensors: Mapping[str, Tensor]) -> "OrderedDict[str, Tensor]":
    """The tensors as `state_dict` gives them, with the version of each part: some parts refuse others."""
    found = OrderedDict(tensors)
    found._metadata = module.state_dict()._metadata  # type: ignore[attr-defined]
    return found


def _missing(module: nn.Module, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Names without a given tensor; a tied parameter may be given under any of its names."""
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
            f"{checkpoint} must hold the weights of this module; got no name that fits. The module has "
            f"{_listed(wanted)}; the checkpoint has {_listed(checkpoint.tensors)}. Build the module that it was "
            "saved from (a Classifier, if names begin with 'extractor.'), or name another entry."
        )


def _check_missing(checkpoint: Checkpoint, names: list[str]) -> None:
    if names:
        raise ValueError(
            f"{checkpoint} must hold every parameter and buffer of the module; missing: "
            f"{_listed(names)}. Build the module that it was saved from."
        )


def _check_kinds(checkpoint: Checkpoint, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise ValueError for integers, complex, quantised or sparse numbers where the module has plain floats."""
    wrong = [
        f"{name!r} is {value.dtype}{'' if value.layout is torch.strided else f', {value.layout}'}"
        for name, value in given.items()
        if name in wanted
        and wanted[name].is_floating_point()
        and (value.dtype not in _FLOATS or value.layout is not torch.strided or value.is_meta)
    ]
    if wrong:
        raise ValueError(
            f"{checkpoint} must hold floating-point weights; {_said(wrong)}. Save them in float32, as the network "
            "computes with them: quantised ones need their scales."
        )


def _check_shapes(checkpoint: Checkpoint, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    wrong = [
        f"{name!r} is {tuple(value.shape)} in the checkpoint and {tuple(wanted[name].shape)} in the module"
        for name, value in given.items()
        if name in wanted and value.shape != wanted[name].shape
    ]
    if wrong:
        raise ValueError(
            f"{checkpoint} must have the shapes of the module; {_said(wrong)}. Build the module with the same sizes "
            "and number of classes."
        )


def _check_unexpected(
    module: nn.Module, checkpoint: Checkpoint, names: Iterable[str], own: Iterable[str]
) -> None:
    """Raise ValueError for a weight that a layer of the module lacks, and for layers beyond a row of the module's.

    The module would compute something else. A head beside the others, such as one that helped in training, does not.
    """
    layers = {name for name, part in module.named_modules() if name and part._parameters}
    rows = {name for name, part in module.named_modules() if isinstance(part, (nn.Sequential, nn.ModuleList))}
    parts = dict(module.named_modules())

    def is_lacking(name: str) -> bool:
        parent, _, own = name.rpartition(".")
        part = parts.get(parent)
        if isinstance(part, nn.Identity) and own not in _COUNTED:
            return True
        return (parent in layers and own in _EFFECTIVE) or (
            part is not None and getattr(part, own, own) is None
        )

    lost = [name for name in names if is_lacking(name)]
    if lost:
        raise ValueError(
            f"{checkpoint} holds {_listed(lost)}, of layers that the module has without them, so it would compute "
            "something else. Build the module that it was saved from."
        )
    known = {name for name, _ in module.named_modules()}
    deeper = [name for name in own if _beyond(name, known) in rows]
    if deeper:
        raise ValueError(
            f"{checkpoint} has more layers than the module, such as {_listed(deeper)}. Build the module that it was "
            "saved from: a deeper one."
        )


def _beyond(name: str, known: Container[str]) -> str | None:
    """The part of the module whose numbered layers end before the one that a weight's name is of; None for others."""
    parts = name.split(".")
    for end in range(len(parts) - 1, -1, -1):
        if (start := ".".join(parts[:end])) in known:
            return start if parts[end].isdecimal() and end < len(parts) - 1 else None
    return None


def _check_finite(
    checkpoint: Checkpoint, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    """Raise ValueError for NaN or infinity where the module, as it was built, has none: a mask may hold -inf."""
    broken = [
        name
        for name, value in tensors.items()
        if not bool(value.isfinite().all()) and not _same_where_not_finite(value, wanted[name])
    ]
    if broken:
        raise ValueError(
            f"{checkpoint} must hold finite numbers; got NaN or infinity in {_listed(broken)}. Take a checkpoint "
            "from before that."
        )


def _same_where_not_finite(value: Tensor, own: Tensor) -> bool:
    return own.device.type != "meta" and bool((value.isfinite() | (value == own.to(value.device))).all())


def _said(wrong: list[str]) -> str:
    return "; ".join(wrong[:_LISTED]) + (f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else "")


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:_LISTED]) + (f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else "")
