"""Models by name, which their own packages build and load: Hugging Face folders, timm, torchvision, Lightning."""

import difflib
import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearance.data.preprocessing import Preprocessing, preprocessing_of
from clearance.models._running import device_of
from clearance.models.black_box import boxed
from clearance.models.checkpoint import LoadedWeights, load_weights, read_checkpoint
from clearance.models.classifier import Classifier
from clearance.models.factory import object_at
from clearance.models.wrap import wrapped

KINDS = ("hf", "timm", "torchvision", "lightning")
_CONFIG, _PROCESSORS = "config.json", ("preprocessor_config.json", "processor_config.json")
_EXAMPLES, _SIDE = 2, 224
_SAID = 300  # letters of another package's message


def load_pretrained(
    place: str,
    weights: str | PathLike[str] | None = None,
    *,
    entry: str | None = None,
    head: str | None = None,
    module: str | type | None = None,
    example: Tensor | None = None,
    black_box: bool = False,
    verbose: bool = True,
) -> Classifier:
    """A trained classifier by name, with the preprocessing and class names that its folder or package holds.

    The packages build and load; nothing is downloaded, and no code in a folder is run. The classifier's attribute
    `preprocessing` has sizes, mean and std: pictures given to :func:`clearance.audit` are resized and cropped by it.

    Args:
        place: ``"hf:FOLDER"``, as ``save_pretrained`` writes it; ``"timm:NAME"``; ``"torchvision:NAME"``;
            ``"lightning:FILE"``, a checkpoint of Lightning, whose hyperparameters build the module.
        weights: A checkpoint; needed for timm and torchvision. See :func:`load_weights`.
        entry: The key of the weights in the file.
        head: See :func:`wrap`.
        module: The LightningModule's class, or its place, ``"package.module:Class"`` or ``"path/to/file.py:Class"``.
        example: A few images in [0, 1], of the size that the model takes, where neither its folder nor its package says
            that; see :func:`wrap`.
        black_box: Whether only logits are read; see :func:`clearance.models.black_box`.
        verbose: Print what was loaded, the preprocessing, and the line of :func:`wrap`.

    Raises:
        FileNotFoundError: If a folder or file does not exist.
        ValueError: If `place` is of another form; if its package is not installed or cannot be imported; if weights are
            missing or do not fit; or as :func:`wrap` does.

    >>> load_pretrained("resnet18")
    Traceback (most recent call last):
        ...
    ValueError: a model by name must be given as hf:FOLDER, timm:NAME, torchvision:NAME or lightning:FILE; got
    'resnet18'.
    """
    built, how, lines = build_pretrained(place, weights, entry, module)
    images = (_example(built, how) if example is None else example).to(device_of(built))
    model, line = classifier_of(built, images, how, head, black_box=black_box)
    if model.preprocessing is None:
        model.preprocessing = how
    if verbose:
        print("\n".join([*lines, f"preprocessing: {how}", line]))  # noqa: T201 - `verbose` asks for it
    return model.eval()


def classifier_of(
    module: Any, example: Tensor, how: Preprocessing, head: str | None = None, *, black_box: bool = False
) -> tuple[Classifier, str]:
    """A module or function as a classifier, and a line on it.

    A Classifier is taken as it is, unless a normalisation (of `how`, mean and std) or a head (see :func:`wrap`) is
    given. `example` are a few images in [0, 1]; of a black box only logits are read.
    """
    if isinstance(module, Classifier) and not black_box and (how.mean, how.std, head) == (None, None, None):
        return module, "the model is a Classifier already"
    mean, std = how.mean or 0.0, how.std or 1.0
    if black_box:
        return boxed(module, example=example, mean=mean, std=std)
    return wrapped(module, head, example=example, mean=mean, std=std)


def is_pretrained(place: str) -> bool:
    """Whether a place names a model of another package.

    >>> is_pretrained("timm:resnet18"), is_pretrained("mypkg.net:build")
    (True, False)
    """
    kind, colon, name = place.partition(":")
    return bool(colon and name) and kind in KINDS


def build_pretrained(
    place: str,
    weights: str | PathLike[str] | None = None,
    entry: str | None = None,
    module: str | type | None = None,
) -> tuple[nn.Module, Preprocessing, list[str]]:
    """The module in evaluation mode, its preprocessing, and lines that say what was loaded.

    All arguments are as for :func:`load_pretrained`.

    Raises:
        FileNotFoundError: As there.
        ValueError: As there.
    """
    if not is_pretrained(place):
        raise ValueError(
            "a model by name must be given as hf:FOLDER, timm:NAME, torchvision:NAME or lightning:FILE; got "
            f"{place!r}."
        )
    kind, _, name = place.partition(":")
    if (kind == "lightning") != (module is not None):
        raise ValueError(
            f"a LightningModule's class (`module`, --module MODULE:CLASS) and lightning:FILE belong together; got "
            f"{place} and {'none' if module is None else module}."
        )
    if entry is not None and weights is None:
        raise ValueError(f"`entry` names a part of `weights`; got {entry!r} and no weights. Leave it out.")
    if kind == "lightning":
        if weights is not None:
            raise ValueError(f"{place} has its weights; leave `weights` out.")
        return _lightning(Path(name).expanduser(), module)
    if kind == "hf":
        built, how, line = _hugging_face(Path(name).expanduser())
        if weights is not None:
            line = str(load_weights(built, weights, entry))
        return built.eval(), how, [line]
    if weights is None:
        raise ValueError(
            f"{place} needs weights, because nothing is downloaded: give the file (--weights FILE)."
        )
    build = _timm if kind == "timm" else _torchvision
    built, how, loaded = build(name, Path(weights), entry)
    return built.eval(), how, [str(loaded)]


def _package(name: str) -> Any:
    """A package that is imported for a model of its own alone.

    Raises:
        ValueError: If it is not there, or breaks.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"this needs {error.name}: pip install {error.name}.") from error
    except Exception as error:
        parts = " and ".join(dict.fromkeys(("torch", "torchvision", name)))
        raise ValueError(
            f"{name} cannot be imported ({type(error).__name__}: {error}); install builds of {parts} that fit each "
            f"other (torch is {torch.__version__})."
        ) from error


def _hugging_face(folder: Path) -> tuple[nn.Module, Preprocessing, str]:
    if not (folder / _CONFIG).is_file():
        raise FileNotFoundError(
            f"hf:{folder} must be a folder with {_CONFIG}, as save_pretrained writes it; got "
            f"{'one without' if folder.is_dir() else 'no folder'}. Nothing is downloaded."
        )
    transformers = _package("transformers")
    try:
        module, report = transformers.AutoModelForImageClassification.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # of many kinds, for a folder that is damaged
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"hf:{folder.name} cannot be loaded: {reason}") from error
    lost = [*report["missing_keys"], *(str(each[0]) for each in report["mismatched_keys"])]
    if lost:
        raise ValueError(
            f"hf:{folder.name} must hold every weight of the {type(module).__name__}; missing or of another shape: "
            f"{', '.join(sorted(map(repr, lost))[:4])}. Save the whole model, with its classifier."
        )
    line = f"weights: {type(module).__name__} from {folder.name}"
    found = next((folder / name for name in _PROCESSORS if (folder / name).is_file()), None)
    if found is not None:
        return module, _processor(found), line
    own = getattr(module.config, "pretrained_cfg", None)  # of a model of timm's
    if isinstance(own, Mapping) and "mean" in own:
        return module, preprocessing_of(own), line
    side = getattr(module.config, "image_size", None)
    how = Preprocessing(size=side, short_side=side) if isinstance(side, int) else Preprocessing()
    return module, how, f"{line}; it has no {_PROCESSORS[0]}, so images in [0, 1] are not normalised"


def _processor(file: Path) -> Preprocessing:
    try:
        content = json.loads(file.read_text("utf-8"))
        return preprocessing_of(content.get("image_processor", content))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file.name} must describe an image processor; got: {error}. Save it again."
        ) from error


def _timm(name: str, weights: Path, entry: str | None) -> tuple[nn.Module, Preprocessing, LoadedWeights]:
    timm = _package("timm")
    if name.partition(".")[0] not in timm.list_models():
        near = difflib.get_close_matches(name.partition(".")[0], timm.list_models(), 4)
        raise ValueError(
            f"timm has no model {name!r}. It has {', '.join(near) or 'others'}: timm.list_models()."
        )
    make = partial(timm.create_model, name, pretrained=False)
    module = _with_classes_of(make, weights, entry)
    return module, preprocessing_of(module), load_weights(module, weights, entry)


def _torchvision(
    name: str, weights: Path, entry: str | None
) -> tuple[nn.Module, Preprocessing, LoadedWeights]:
    models: Any = _package("torchvision").models
    if name not in models.list_models(module=models):
        near = difflib.get_close_matches(name, models.list_models(module=models), 4)
        raise ValueError(
            f"torchvision has no classifier {name!r}. It has {', '.join(near) or 'others'}: "
            "torchvision.models.list_models()."
        )
    make = partial(models.get_model, name, weights=None)
    module, published = _with_classes_of(make, weights, entry), models.get_model_weights(name)
    loaded = load_weights(module, weights, entry)
    if hasattr(module, "transform_input"):  # Inception and GoogLeNet, which torchvision trains so
        module.transform_input = True  # type: ignore[assignment]
    known = next((one for one in published if one.url.endswith(f"/{weights.name}")), published.DEFAULT)
    if _classes(module) == len(known.meta["categories"]):
        module.classes = tuple(known.meta["categories"])  # type: ignore[assignment]
    return module, preprocessing_of(known), loaded


def _with_classes_of(make: Any, weights: Path, entry: str | None) -> nn.Module:
    """The module with as many classes as the checkpoint's last layer has."""
    module: nn.Module = make()
    name, last = _last(module)
    tensors = read_checkpoint(weights, entry).tensors
    held = next((value for known, value in tensors.items() if f".{known}".endswith(f".{name}.weight")), None)
    if held is None or held.shape == last.weight.shape:
        return module
    return make(num_classes=len(held))  # type: ignore[no-any-return]


def _last(module: nn.Module) -> tuple[str, Any]:
    return [
        (name, part) for name, part in module.named_modules() if isinstance(part, (nn.Linear, nn.Conv2d))
    ][-1]


def _classes(module: nn.Module) -> int:
    return len(_last(module)[1].weight)


def _lightning(file: Path, given: str | type | None) -> tuple[nn.Module, Preprocessing, list[str]]:
    """The module, built by the checkpoint's hyperparameters; of one that holds a Classifier, that."""
    read_checkpoint(file)  # raises for what is not to be read, in words
    kind: Any = object_at(given) if isinstance(given, str) else given
    load = getattr(kind, "load_from_checkpoint", None)
    if load is None:
        raise ValueError(
            f"`module` must be a LightningModule's class; got {getattr(kind, '__name__', type(kind).__name__)}."
        )
    if "weights_only" not in inspect.signature(load).parameters:
        raise ValueError(
            "lightning:FILE needs Lightning 2.6 or newer, which reads checkpoints without running code."
        )
    try:
        module: nn.Module = load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            f"{file.name} must be a checkpoint of {kind.__name__}; Lightning says {type(error).__name__}: "
            f"{' '.join(str(error).split())[:_SAID]}. Its constructor must call save_hyperparameters(), so that the "
            "checkpoint has its arguments, and these must be numbers, words and the like."
        ) from error
    line = f"weights: {kind.__name__} from {file.name}"
    inner = next((part for part in module.modules() if isinstance(part, Classifier)), None)
    try:
        how = preprocessing_of(module)
    except ValueError:
        how = Preprocessing()
    if inner is not None and inner.preprocessing is not None:
        how = replace(inner.preprocessing, mean=None, std=None)  # it normalises by itself
    return (module if inner is None else inner).eval(), how, [line]


def _example(module: nn.Module, how: Preprocessing) -> Tensor:
    """Noise of the size that the model takes."""
    own = getattr(module, "example_input_array", None)  # of Lightning
    if isinstance(own, Tensor):
        shape = tuple(own.shape[1:])
    else:
        side = how.size or _SIDE
        shape = (_channels(module, how), side, side)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(_EXAMPLES, *shape, generator=generator, dtype=torch.float32)


def _channels(module: nn.Module, how: Preprocessing) -> int:
    config = getattr(module, "config", None)
    known = getattr(config, "num_channels", None) or (len(how.mean) if how.mean else None)
    if known is not None:
        return int(known)
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels
