"""The classifier of a run: built fresh, started from a trained one, or read back from a run's directory."""

import dataclasses
import inspect
import json
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearance._rng import derived_seed, seed_global
from clearance.data import ImageSet, StoredImageSet
from clearance.experiments.build import RunData, build_data, build_way, drawn_data
from clearance.experiments.catalogue import MODELS, resolve
from clearance.experiments.method import Method, NetworkSettings
from clearance.experiments.recipe import Recipe, from_tree
from clearance.heads import (
    MLP,
    GaussianMixture,
)
from clearance.models import Classifier
from clearance.models._running import with_channels_last
from clearance.runs import read_file, read_fingerprint, read_result
from clearance.vocabulary import Outcome, Status


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A finished run: its model, and the recipe, method and seed that made it."""

    model: Classifier
    recipe: Recipe
    method: str
    seed: int
    folder: Path

    def data(self, root: str | None = None) -> RunData:
        """The images that it was trained and measured on; `root` is their folder, if it has moved.

        Raises:
            ValueError: If a dataset of that name has other training images: the run was given its own.
        """
        moved = self.recipe if root is None else dataclasses.replace(self.recipe, root=root)
        found = drawn_data(moved, build_data(moved), self.seed)
        named = ":" not in self.recipe.dataset  # pictures of a folder may be decoded otherwise elsewhere
        if named and read_fingerprint(self.folder)["train"] != found.train.digest():
            raise ValueError(
                f"the images must be those that the run was trained on; got others called {self.recipe.dataset!r}. "
                "In Python: clearance.audit(clearance.load_model(RUN), train=..., test=...)."
            )
        return found


def load_run(run_dir: str | Path) -> SavedRun:
    """Load a finished run of ``clearance compare`` or ``clearance train``.

    Raises:
        FileNotFoundError: If the directory is not a run.
        ValueError: If the run is not finished or its files are damaged.

    Warns:
        UserWarning: If its training failed.
    """
    folder = Path(run_dir)
    if not (folder / FACTS).exists():
        near = [path.parent.name for path in sorted(folder.glob(f"*/{FACTS}"))]
        hint = f" It holds the runs {', '.join(near)}; name one of them." if near else ""
        if not folder.exists():
            alike = sorted(path.parent.name for path in folder.parent.glob(f"{folder.name}*/{FACTS}"))
            hint = f" There is {', '.join(alike)}." if alike else " For your own network give MODULE:NAME."
        got = f"one without {FACTS}" if folder.is_dir() else "a file" if folder.is_file() else "no folder"
        if folder.is_dir() and not near and (nearer := sorted(folder.glob(f"*/*/{FACTS}"))):
            hint = f" Its runs are in {nearer[0].parent.parent}; name one of them."
        if (folder / "model.safetensors").exists() and (folder / "run.json").exists():
            hint = (
                " It holds a network of your own: build it, and load its weights with "
                f"clearance.models.load_weights(network, {str(folder / 'model.safetensors')!r})."
            )
        elif (folder / "config.json").exists():
            hint = f" If it was written by save_pretrained: hf:{folder}."
        if folder.suffix == ".onnx":
            hint = " For ONNX write a function of images that runs it, and give FILE.py:NAME --black-box."
        elif folder.is_file():
            hint = f" If it contains weights, also name what builds the network: MODULE:NAME --weights {folder.name}."
        raise FileNotFoundError(f"{folder} must be the directory of a finished run; got {got}.{hint}")
    weights, result = read_result(folder)
    facts = _facts(folder)
    prefix = "model."
    kept = {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}
    try:
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in facts["method"].items()
        }
        method = Method(**settings)
        model = empty_model(facts["model"], method, tuple(facts["shape"]), len(facts["classes"]))
        model.load_state_dict(kept)
        ended = Status(Outcome(result["outcome"]), result["step"], result["reason"])
        found = SavedRun(
            model.eval(),
            from_tree(facts["recipe"], FACTS),
            str(facts["name"]),
            int(facts["seed"]),
            folder,
        )
    except _DAMAGE as error:
        raise _damaged(folder, error) from error
    if not ended.good:
        warnings.warn(f"the training of the network in {folder.name} {ended}", UserWarning, stacklevel=3)
    return (
        dataclasses.replace(found, model=with_channels_last(model)) if found.recipe.channels_last else found
    )


_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)


def _facts(folder: Path) -> dict[str, Any]:
    """What `FACTS` holds.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        facts: dict[str, Any] = json.loads(read_file(folder, FACTS))
        return {key: facts[key] for key in ("model", "method", "shape", "classes", "recipe", "name", "seed")}
    except _DAMAGE as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> ValueError:
    what = str(error).partition("\n")[0]
    return ValueError(
        f"{folder / FACTS} must hold the settings of the run's network; got {type(error).__name__}: {what}. It was "
        f"damaged after it was written. Restore it, or delete {folder} and train again."
    )


def load_model(run_dir: str | Path) -> Classifier:
    """The trained classifier of a finished run, in evaluation mode.

    Args:
        run_dir: The directory that ``clearance train`` or ``clearance compare`` wrote, for example
            ``clearance-runs/plain-seed0-1a2b3c4d``, as ``clearance train`` prints it; weights are read from
            safetensors, without unpickling.

    Raises:
        FileNotFoundError: If the directory is not a run; the message names runs below it.
        ValueError: If the run is not finished or its files are damaged.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as empty:  # doctest: +ELLIPSIS
    ...     load_model(Path(empty) / "plain-seed0")
    Traceback (most recent call last):
        ...
    FileNotFoundError: ...
    """
    return load_run(run_dir).model


def build_model(model: str, method: Method, train: ImageSet, seed: int) -> Classifier:
    """A fresh classifier whose first weights depend only on `seed`; normalised by the training set.

    With ``run:PATH`` for a model it is the trained network of that run, except that empirical priors are the class
    frequencies of the new training labels.

    Raises:
        FileNotFoundError: If the run does not exist.
        ValueError: If the images are not square, or images or method do not fit the run's network.
    """
    if (folder := started_from(model)) is not None:
        return _with_priors(trained_model(folder, method, train), method, train)
    fresh = empty_model(model, method, train.shape, train.class_count, seed)
    mean, std = _pixels_of(train)
    fresh.mean.copy_(mean.view_as(fresh.mean))
    fresh.std.copy_(std.clamp(min=1e-3).view_as(fresh.std))
    return _with_priors(fresh, method, train)


def _pixels_of(train: ImageSet) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every channel, also of images on disk."""
    if not isinstance(train, StoredImageSet) or train.is_small():
        return train.images.mean(dim=(0, 2, 3)), train.images.std(dim=(0, 2, 3))
    channels, height, width = train.shape
    total, squares = torch.zeros(2, channels, dtype=torch.float64)
    for images, _ in train.batches(256):
        total += images.double().sum(dim=(0, 2, 3))
        squares += images.double().square().sum(dim=(0, 2, 3))
    count = len(train) * height * width
    return total / count, ((squares - total.square() / count) / (count - 1)).clamp(min=0).sqrt()


def _with_priors(model: Classifier, method: Method, train: ImageSet) -> Classifier:
    if method.priors == "empirical" and isinstance(model.head, GaussianMixture):
        counts = train.labels.bincount(minlength=train.class_count).double()
        model.head.set_priors(counts / counts.sum())
    return model


def check_networks(recipe: Recipe, data: RunData) -> None:
    """Raise ValueError before any training if the network or the way of training of a method cannot be made.

    >>> from clearance.data import gaussian_images
    >>> images = gaussian_images(class_count=3, shape=(1, 4, 6))
    >>> check_networks(Recipe(methods={"plain": Method()}), RunData(images, images))
    Traceback (most recent call last):
    ...
    ValueError: method 'plain': model 'small-cnn' takes square images; these are 6x4. Give the side: size, or --size.
    """
    folder = started_from(recipe.model)
    for name, method in recipe.methods.items():
        try:
            model = (
                empty_model(recipe.model, method, data.train.shape, data.train.class_count)
                if folder is None
                else trained_model(folder, method, data.train)
            )
            build_way(method, model)
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"method {name!r}: {error}") from error


def empty_model(
    model: str, method: Method, shape: tuple[int, int, int], class_count: int, seed: int = 0
) -> Classifier:
    """A classifier of this form without data, to load weights into."""
    channels, height, width = shape
    if height != width:
        raise ValueError(
            f"model {model!r} takes square images; these are {width}x{height}. Give the side: size, or --size."
        )
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers unchanged
        seed_global(derived_seed(seed, "extractor"))
        extractor = _extractor(model, method, channels, height)
        with torch.no_grad():
            features = extractor.eval()(torch.zeros(1, *shape)).shape[1]
        seed_global(derived_seed(seed, "head"))
        head: nn.Module
        if method.mixture == "none":
            head = MLP((features, *method.hidden, class_count), method.dropout, method.norm)
        else:
            if method.hidden:
                extractor = nn.Sequential(
                    extractor, MLP((features, *method.hidden), method.dropout, method.norm)
                )
                features = method.hidden[-1]
            priors: Literal["uniform", "learned"] = "learned" if method.priors == "learned" else "uniform"
            head = GaussianMixture(features, class_count, method.mixture, priors=priors)
    return Classifier(extractor.train(), head, [0.0] * channels, [1.0] * channels)


def _extractor(name: str, method: NetworkSettings, channels: int, size: int) -> nn.Module:
    """A fresh extractor with the method's width.

    Raises:
        ValueError: If its width cannot be set.
    """
    make = resolve("model", name, MODELS)
    width = {"width": method.features} if method.features else {}
    if width and "width" not in inspect.signature(make).parameters:
        raise ValueError(
            f"`features` must be 0 for model {name!r}, whose width is fixed; got {method.features}. Use small-cnn "
            "or lenet-plus, or `hidden` for layers before the last."
        )
    made: nn.Module = make(channels, size, method.norm, **width)
    return made


START = "run:"
FACTS = "model.json"
FORM = (
    "hidden",
    "dropout",
    "norm",
    "mixture",
    "priors",
    "features",
)  # settings of a method that decide the network's form


def started_from(model: str) -> Path | None:
    """The directory that a model's name points to; None for an ordinary name.

    >>> started_from("small-cnn") is None, started_from("run:runs/plain").name
    (True, 'plain')
    """
    return Path(model.removeprefix(START)) if model.startswith(START) else None


def extractor_name(model: str) -> str:
    """The extractor's name in the catalogue, also of a network that starts from a trained one.

    Raises:
        ValueError: If the run does not exist, or is damaged.

    >>> extractor_name("small-cnn")
    'small-cnn'
    """
    folder = started_from(model)
    return model if folder is None else str(_facts(folder)["model"])


def trained_model(folder: Path, method: Method, train: ImageSet) -> Classifier:
    """The network of a finished run, to continue training; it keeps its normalisation.

    The new method has a network of the same form, the new images have the same shape and number of classes.

    Raises:
        FileNotFoundError: If `folder` is not a run.
        ValueError: If the run is not finished, or method or images do not fit the network.
    """
    found = load_run(folder)
    theirs = found.recipe.methods[found.method]
    for name in FORM:
        if getattr(theirs, name) != getattr(method, name):
            raise ValueError(
                f"`{name}` must be {getattr(theirs, name)} as in the network that training starts from; got "
                f"{getattr(method, name)}. Change the method, or start from another run."
            )
    facts = _facts(folder)
    fits = (tuple(facts["shape"]), len(facts["classes"]))
    if fits != (train.shape, train.class_count):
        raise ValueError(
            f"images must be of shape {fits[0]} in {fits[1]} classes for the network that training starts from; "
            f"got {train.shape} in {train.class_count}. Resize them, or start from another run."
        )
    return found.model.train()
