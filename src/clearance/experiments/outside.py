"""The audit of a model that was trained elsewhere: place, weights, preprocessing and images, to a card."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearance._checks import check_choice
from clearance.data import ImageSet, Preprocessing, StoredImageSet, open_images, preprocessing_of
from clearance.data.picture_folder import default_cache
from clearance.data.preprocessing import short_side_of
from clearance.experiments.audit import NO_LIMITS, Again, audited
from clearance.experiments.audit_datasets import unknown_images, with_unknown
from clearance.experiments.auditing import asked_audits, chosen_audits
from clearance.experiments.blame import check_accuracy
from clearance.experiments.build import RunData
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.limits import Limits
from clearance.experiments.owner import without_owner
from clearance.experiments.plan_line import plan_line
from clearance.models import Classifier, build_module, load_weights
from clearance.models._observe import evaluating
from clearance.models.wrap import wrapped
from clearance.regimes._inputs import check_logits
from clearance.report import Card

Say = Callable[[str], object]
_EXAMPLES = 4
_PIXEL_HEADS = "co_adaptation"  # the audit that also trains heads on raw pixels, all of them at once


@dataclass(frozen=True)
class OutsideModel:
    """What there is to say about a model that was trained elsewhere.

    Args:
        place: ``package.module:name`` or ``path/to/file.py:name``; see :func:`clearance.models.build_module`.
        train: Images that it was trained on: ``"folder:PATH"`` or ``"npz:PATH"``.
        test: Held-out images of the same classes.
        weights: A checkpoint; None leaves what the place gives.
        entry: The entry of the checkpoint; see :func:`clearance.models.load_weights`.
        head: Name of the submodule that is the head; None takes the last linear layer.
        mean: What the module does not do itself: subtracted from images in [0, 1], one value or one a channel.
        std: Divides them after that.
        image_size: Side of the square that the model takes, in pixels.
        crop: The share of the short side that is kept, in (0, 1].
        expect_accuracy: What its owner says, in (0, 1]: less than that stops everything.
        unknown: Images of things that the model never saw: ``"folder:PATH"``, flat or not, ``"npz:PATH"``, or the name
            of a dataset.
        root: The folder that holds the files of a named dataset.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` ...
        cache: Folder for decoded pictures and features.

    What is not given of mean, std, sizes and crop is taken from the model's `pretrained_cfg`, where it has one.
    """

    place: str
    train: str
    test: str
    weights: Path | None = None
    entry: str | None = None
    head: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    image_size: int | None = None
    crop: float | None = None
    expect_accuracy: float | None = None
    unknown: str | None = None
    root: str | None = None
    device: str = "auto"
    cache: Path | None = None

    @property
    def name(self) -> str:
        """The place without folders of this machine."""
        where, _, name = self.place.rpartition(":")
        return f"{Path(where).name if where.endswith('.py') else where}:{name}"


def audit_outside(
    outside: OutsideModel,
    audits: Sequence[str] | None,
    seed: int,
    again: Again,
    say: Say,
    limits: Limits = NO_LIMITS,
    on_audit: Callable[[str], object] | None = None,
) -> Card:
    """Build, load, read, prove and audit; `say` is told each step in a line.

    Args:
        outside: The model and its images.
        audits: Names of audits; None is what the first screen needs.
        seed: Decides whatever the audits draw.
        again: Gives the command that makes the report again, or adds audits to it.
        say: Told each step.
        limits: What bounds it.
        on_audit: Told the name of each audit before it starts.

    Raises:
        FileNotFoundError: If a file or folder is not there.
        ValueError: If anything does not fit; the message says what and what to do.
        AccuracyMissedError: A ValueError, if the accuracy misses `expect_accuracy`: before any other number.
    """
    names = asked_audits(audits, unknown=outside.unknown is not None)
    _check_unknown(outside)
    module = _module(outside, say)
    how = _preprocessing(outside, module)
    say(f"preprocessing: {how}")
    cache = default_cache() if outside.cache is None else outside.cache
    with _warnings_said(say):
        train, test = (open_images(each, how, cache=cache) for each in (outside.train, outside.test))
        data = RunData(train, _named(test))
        unknown = _unknown(outside, data, how, cache)
    model = _classifier(outside, module, how, data.test, say)
    chosen = with_unknown(chosen_audits(names, _limits(data, names, say)), unknown)
    say(plan_line(model, data, unknown, names))
    if outside.expect_accuracy is not None:
        say(check_accuracy(model, data.test, outside.expect_accuracy))
    told = {**_settings(outside, how), **_of_unknown(unknown)}
    kept = FeatureCache(cache)
    return audited(
        model,
        data,
        chosen,
        seed,
        outside.name,
        again,
        told=told,
        cache=kept,
        limits=limits,
        on_audit=on_audit,
    )


def _check_unknown(outside: OutsideModel) -> None:
    for name in ("train", "test"):
        if outside.unknown is not None and outside.unknown == getattr(outside, name):
            raise ValueError(
                f"`unknown` must be images of things that the model never saw; got those of `{name}`, "
                f"{outside.unknown!r}."
            )


def _unknown(outside: OutsideModel, data: RunData, how: Preprocessing, cache: Path) -> ImageSet | None:
    if outside.unknown is None:
        return None
    return _named(unknown_images(outside.unknown, data.test, how, cache=cache, root=outside.root))


def _named(images: ImageSet) -> ImageSet:
    """With a name that the report may show: a set is called like its folder, which may be a person's."""
    return open_images(images, name=without_owner(images.name))


def _of_unknown(unknown: ImageSet | None) -> dict[str, Any]:
    return {} if unknown is None else {"unknown": {"name": unknown.name, "images": len(unknown)}}


def _module(outside: OutsideModel, say: Say) -> nn.Module:
    module = build_module(outside.place)
    if outside.weights is None:
        say("weights: those that the module comes with (no --weights)")
    else:
        say(str(load_weights(module, outside.weights, outside.entry)))
    return module.eval().to(_device(outside.device))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_choice("device", name.partition(":")[0], ("auto", "cpu", "cuda", "mps"))
    return torch.device(name)


def _preprocessing(outside: OutsideModel, module: nn.Module) -> Preprocessing:
    """What was given, on top of what the model keeps."""
    try:
        found = preprocessing_of(module)
    except ValueError:
        found = Preprocessing()
    given = {name: getattr(outside, name) for name in ("mean", "std") if getattr(outside, name) is not None}
    if outside.crop is not None and outside.image_size is None and found.image_size is None:
        raise ValueError(
            f"`crop` needs `image_size`, the side of what is kept; got crop {outside.crop} alone."
        )
    if outside.image_size is not None or outside.crop is not None:
        size = outside.image_size or found.image_size
        assert size is not None
        crop = outside.crop or found.crop or 1.0
        given |= {"image_size": size, "short_side": short_side_of(size, crop)}
    return dataclasses.replace(found, **given)


def _classifier(
    outside: OutsideModel, module: nn.Module, how: Preprocessing, test: ImageSet, say: Say
) -> Classifier:
    device = next((value.device for value in module.parameters()), torch.device("cpu"))
    example = test.batch(torch.linspace(0, len(test) - 1, min(_EXAMPLES, len(test))).long())[0].to(device)
    with _warnings_said(say):
        model, line = wrapped(module, outside.head, example=example, mean=how.mean or 0.0, std=how.std or 1.0)
    say(line)
    with evaluating(model):
        logits = model(example)
    check_logits(logits, test)
    if logits.shape[1] > test.class_count:
        outputs = f"the model has {logits.shape[1]} outputs"
        say(f"note: {outputs} and the images {test.class_count} classes, taken as the first of them")
    return model.eval()


def _limits(data: RunData, audits: Sequence[str], say: Say) -> dict[str, dict[str, Any]]:
    """Settings that a set on disk needs: no audit may ask for all pixels at once."""
    on_disk = any(isinstance(some, StoredImageSet) for some in (data.train, data.test))
    if not on_disk or _PIXEL_HEADS not in audits:
        return {}
    say(f"{_PIXEL_HEADS}: without heads on raw pixels, which would need all of them in memory")
    return {_PIXEL_HEADS: {"pixel_limit": 0}}


def _settings(outside: OutsideModel, how: Preprocessing) -> dict[str, Any]:
    """What the report keeps of all this: no folder of this machine."""
    told: dict[str, Any] = {
        "model": outside.name,
        "weights": None if outside.weights is None else outside.weights.name,
        "head": outside.head,
        "preprocessing": dataclasses.asdict(how),
    }
    if outside.expect_accuracy is not None:
        told["expected_accuracy"] = outside.expect_accuracy
    return told


@contextmanager
def _warnings_said(say: Say) -> Iterator[None]:
    """Warnings of users' data and models as lines, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        if issubclass(each.category, UserWarning):
            say(f"note: {each.message}")
