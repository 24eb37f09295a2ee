"""The audit of a model that was trained elsewhere: from place, weights, preprocessing and images to a card."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_count
from clearance.audits._audit import wilson_interval
from clearance.audits._samples import first_half
from clearance.audits.accuracy import best_order
from clearance.audits.preprocessing import InputWay, input_ways, right_when
from clearance.data import ImageSet, Preprocessing, StoredImageSet, open_images, preprocessing_of
from clearance.data.folder import default_cache
from clearance.data.intake import in_colour
from clearance.data.preprocessing import short_side_of
from clearance.data.split import read_split
from clearance.data.subsets import evenly_spaced
from clearance.experiments.audit import (
    COSTLY,
    AuditRequest,
    Say,
    Target,
    check_held_out,
    fewer_where_costly,
    further_outputs,
    takes_colour,
    warn_of_absent,
)
from clearance.experiments.audit_plan import OTHER, SOURCE, AuditPlan, Settings, unknown_images
from clearance.experiments.build import RunData
from clearance.experiments.class_order import few_images, in_order_of
from clearance.experiments.datasets import check_not_a_path, held_out_folder, load_dataset
from clearance.experiments.engines import CODE
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.provenance import without_owner
from clearance.models import Classifier, load_weights, predictions
from clearance.models._running import (
    check_has_data,
    device_named,
    device_of,
    evaluating,
    put_in_evaluation_mode,
)
from clearance.models.classifier import check_logits
from clearance.models.factory import black_box_of, folder_of, module_of, object_at
from clearance.models.features import answered, batch_size_for
from clearance.models.given import ExampleError, check_of_unit_images
from clearance.models.pretrained import build_pretrained, classifier_of, is_pretrained


@dataclass(frozen=True)
class OutsideModel:
    """A model that was trained elsewhere, and its images.

    Args:
        place: ``package.module:name`` or ``path/to/file.py:name``, see :func:`clearance.models.factory.object_at`;
            or ``hf:FOLDER``, ``timm:NAME``, ``torchvision:NAME`` or ``lightning:FILE``, see
            :func:`clearance.load_pretrained`.
        train: Images that it was trained on: ``"folder:PATH"``, ``"npz:PATH"`` or the name of a dataset, whose training
            images are used.
        test: Held-out images of the same classes, in the same form; of a named dataset its test images. None: the
            folders ``train`` and ``test`` or ``val`` inside of `train`, or the test images of a named dataset.
        split: A file that divides `train`; see :func:`clearance.data.split.read_split`. If `test` is given too, that
            is what is held out.
        weights: A checkpoint; None keeps the module's weights.
        entry: The entry of the checkpoint; see :func:`clearance.models.load_weights`.
        head: Name of the submodule that is the head; None takes the last linear layer.
        mean: Subtracted from images in [0, 1], if the module does not do it; one value, or one per channel.
        std: Divides them after that.
        size: Side of the square that the model takes, in pixels.
        crop: The share of the short side that is kept, in (0, 1].
        interpolation: How pictures are resized; see :class:`clearance.data.Preprocessing`.
        expect_accuracy: The known accuracy, in (0, 1]; a clearly lower measured one stops the audit.
        unknown: Out-of-distribution images: ``"folder:PATH"`` (with or without subfolders), ``"npz:PATH"``, or the name
            of a dataset.
        root: The folder that holds the files of a named dataset.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` ...
        cache: Folder for decoded pictures and features.
        black_box: Whether only logits are read; see :func:`clearance.models.black_box`. `place` may then also
            name a function that takes images.
        module: The LightningModule's class, for ``lightning:FILE``.

    Missing values of mean, std, size, crop and interpolation are those of the model's `pretrained_cfg`, if it has one.
    """

    place: str
    train: str
    test: str | None = None
    split: Path | None = None
    weights: Path | None = None
    entry: str | None = None
    head: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    crop: float | None = None
    interpolation: str | None = None
    expect_accuracy: float | None = None
    unknown: str | None = None
    root: str | None = None
    device: str = "auto"
    cache: Path | None = None
    black_box: bool = False
    module: str | None = None

    @property
    def name(self) -> str:
        """The place without folders of this machine."""
        where, _, name = self.place.rpartition(":")
        if is_pretrained(self.place):
            return f"{where}:{Path(name).name}"
        return f"{Path(where).name if where.endswith('.py') else where}:{name}"

    def target(self, request: AuditRequest) -> Target:
        """Build, load, read and check: the model's weights, its preprocessing and its images.

        Raises:
            FileNotFoundError: If a file or folder does not exist.
            ValueError: If something does not fit; the message says what to do.
            AccuracyMissedError: A ValueError, if the accuracy is below `expect_accuracy`: before any other number.
        """
        if self.expect_accuracy is not None:
            check_expected(self.expect_accuracy)
        audits, settings, say = request.audits, request.settings, request.say
        has_unknown = self.unknown is not None
        names = AuditPlan.of(audits, settings, unknown=has_unknown).names  # raises before anything is read
        _check_settings(settings or {})
        _check_unknown(self)
        _check_resized(self)
        module, how, untold = _module(self, say)
        how = _preprocessing(self, how)
        say(f"preprocessing: {self._applied(how)}")
        cache = default_cache() if self.cache is None else self.cache
        with _warnings_to(say):
            train, test = _sets(self, how, cache)
            if takes_colour(module, max(len(how.mean or ()), len(how.std or ()))):
                train, test = in_colour(train), in_colour(test)
            data = RunData(train, _named(test))
            check_held_out(data)
            warn_of_absent(data.test)
            unknown = _unknown(self, data, how, cache)
        model, outputs = _classifier(self, module, how, data.test, say)
        fewer = fewer_where_costly(model, data.test, request) if COSTLY in names else {}
        plan = AuditPlan.of(audits, settings, defaults=fewer, unknown=has_unknown)
        chosen = plan.resolved(
            test=data.test, unknown=unknown, images=request.images, slices=request.slices, preprocessing=how
        )
        if _PIXEL_HEADS in names and any(
            isinstance(some, StoredImageSet) for some in (data.train, data.test)
        ):
            say(f"{_PIXEL_HEADS}: without heads on raw pixels, which need all images in memory")
        say(plan_line(model, data, unknown, names))
        if untold:
            name = self.place.rpartition(":")[2]
            request.warn(f"no --weights: the network has the weights that {name}() gives it")
        if self.expect_accuracy is not None:
            say(check_accuracy(model, data.test, self.expect_accuracy))
        facts = {**self.settings(how), **outputs}
        if unknown is not None:
            facts["unknown"] = {"name": unknown.name, "images": len(unknown)}
        # what a black box answers is not known by its weights
        kept = None if self.black_box else FeatureCache(cache)
        return Target(model, data, chosen, request.seed or 0, self.name, facts=facts, cache=kept)

    def _applied(self, how: Preprocessing) -> Preprocessing:
        """What is done to these images: only folders are resized."""
        folders = any(str(given).startswith("folder:") for given in (self.train, self.test))
        return how if folders else dataclasses.replace(how, size=None, short_side=None)

    def settings(self, how: Preprocessing) -> dict[str, Any]:
        """The settings for the report, without folders of this machine."""
        found: dict[str, Any] = {
            "model": self.name,
            "weights": None if self.weights is None else self.weights.name,
            "head": self.head,
            "preprocessing": dataclasses.asdict(how),
        }
        if self.expect_accuracy is not None:
            found["expected_accuracy"] = self.expect_accuracy
        return found


TRIED_ON = 400  # images
_SLACK = 0.005  # difference in accuracy that other versions of image libraries may cause
_CLEAR = 0.05  # gain in accuracy that a change must have to be named
_MOST = 0.5  # accuracy from which on a network has learned something that another order of its outputs shows


class AccuracyMissedError(ValueError):
    """The measured accuracy is below the expected one; the message names likely reasons."""


def check_accuracy(model: Classifier, test: ImageSet, expected: float) -> str:
    """One line about the measured accuracy; an error if it is below the expected one.

    It is too low if it is lower by more than half a point and its 95 % Wilson interval ends below the expected one.
    Common differences in preprocessing (`audits/preprocessing.py`) and another order of the classes are then tried on a
    few images.

    The model has the given normalisation; `expected`, an accuracy, is in (0, 1].

    Raises:
        ValueError: If `expected` is not in (0, 1].
        AccuracyMissedError: If the measured accuracy is too low.
    """
    check_expected(expected)
    named = predictions(model, test)
    right = int((named == test.labels.to(named.device)).sum())
    accuracy = right / len(test)
    low, high = wilson_interval(right, len(test))
    line = f"accuracy {accuracy:.1%} ({low:.1%} to {high:.1%}, {len(test)} images), expected {expected:.1%}"
    if high >= expected or accuracy >= expected - _SLACK:
        return line
    raise AccuracyMissedError(
        f"{line}. No other audit was run. {_blame(model, test, named, accuracy, expected)}"
    )


def check_expected(expected: float) -> None:
    """Raise ValueError unless it is in (0, 1]."""
    if not 0 < expected <= 1:
        raise ValueError(f"`expect_accuracy` must lie in (0, 1]; got {expected}. Write 0.915 for 91.5 %.")


def _blame(model: Classifier, test: ImageSet, named: Tensor, accuracy: float, expected: float) -> str:
    few = test if len(test) <= TRIED_ON else test.subset(evenly_spaced(len(test), TRIED_ON))
    images, _ = few.batch(torch.arange(len(few)))
    before = _accuracy(model, few)
    tried = [(_accuracy(model, few, way), way.name, way.remedy) for way in input_ways(model, images)]
    best, change, remedy = max(tried, key=lambda each: each[0])  # of equal ones, the first
    labels = test.labels.to(named.device)
    hits = _hits_in_best_order(named, labels, test.class_count)
    low, high = wilson_interval(hits, len(labels))
    if low > max(accuracy, best) + _CLEAR and (low > _MOST or high >= expected):
        share = hits / len(labels)
        return (
            f"With the classes in another order the accuracy would be {share:.1%}: the model's outputs are not in "
            "the order of the folders. "
            + (
                "Rename the folders so that their order is that of the outputs."
                if model.order is None
                else "Correct the names of classes that the model keeps, by which its outputs were found."
            )
        )
    if best > before + _CLEAR:
        gain = f"{change} gives {best:.1%} instead of {before:.1%}"
        said = f"The preprocessing is probably wrong: on {len(few)} images {gain}. {remedy}"
        if wilson_interval(round(best * len(few)), len(few))[1] < expected:
            said += " That is still too low: check --size, --crop and --interpolation too."
        return said
    return (
        "The preprocessing is the most likely reason: mean and std (or a model that normalises its input), the order "
        "of channels, values up to 255, the size and the cropped share, the interpolation. None of "
        f"{', '.join(name for _, name, _ in tried)} is better. Check --size, --crop, --interpolation and --weights, "
        "and whether the expected accuracy was measured on these images."
    )


def _hits_in_best_order(named: Tensor, labels: Tensor, classes: int) -> int:
    """How many are right with the outputs in the order that is best on other images: half and half."""
    half, hits = first_half(labels, seed=0), 0
    for known, counted in ((half, ~half), (~half, half)):
        order = best_order(named[known], labels[known], classes)
        hits += int((named[counted] == order[labels[counted]]).sum())
    return hits


def _accuracy(model: Classifier, data: ImageSet, way: InputWay | None = None) -> float:
    return float(right_when(model, data, way).double().mean())


def plan_line(model: Classifier, data: RunData, unknown: ImageSet | None, audits: Sequence[str]) -> str:
    """One line on device, memory and the audits to run."""
    device = device_of(model)
    count = len(data.train) + len(data.test)
    with torch.no_grad():
        width = answered(
            model.features, data.test.batch(torch.tensor([0]))[0].to(device), data.test, 0
        ).shape[1]
    held = sum(some.images.nbytes for some in (data.train, data.test) if not isinstance(some, StoredImageSet))
    where = f"images {_size(held)} in memory" if held else "images stay on disk"
    others = "" if unknown is None else f"and {len(unknown)} out-of-distribution "
    return (
        f"device {device}; {len(data.train)} training and {len(data.test)} held-out {others}images of "
        f"{'x'.join(map(str, data.test.shape))}; {where}, features {_size(4 * count * width)}, batches of "
        f"{batch_size_for(model, data.test)}; computing {', '.join(audits)}"
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


_PIXEL_HEADS = "co_adaptation"  # the audit that has them


def _check_settings(settings: Settings) -> None:
    for audit, given in settings.items():
        if SOURCE in given:
            raise ValueError(
                f"setting {SOURCE!r} of audit {audit!r} names a method of a comparison, and a model that was trained "
                "elsewhere is not part of one. Leave it out, or in Python give the audit a network: "
                "clearance.audit(..., audits=[Robustness(source=other)])."
            )
        if OTHER in given:
            raise ValueError(f"for setting {OTHER!r} of audit {audit!r} use --unknown {given[OTHER]}.")


def _check_unknown(outside: OutsideModel) -> None:
    for name in ("train", "test"):
        if outside.unknown is not None and outside.unknown == getattr(outside, name):
            raise ValueError(
                f"`unknown` must be out-of-distribution images; got those of `{name}`, {outside.unknown!r}."
            )


def _check_resized(outside: OutsideModel) -> None:
    """Raise ValueError for settings of resizing where nothing is resized."""
    if any(str(given).startswith("folder:") for given in (outside.train, outside.test, outside.unknown)):
        return
    for name in ("crop", "interpolation"):
        if (got := getattr(outside, name)) is not None:
            raise ValueError(
                f"`{name}` must be given with folders of pictures only: images of arrays and of named datasets are not "
                f"resized; got {got!r}. Leave it out, or prepare the arrays as the model was trained."
            )


def _sets(outside: OutsideModel, how: Preprocessing, cache: Path) -> tuple[ImageSet, ImageSet]:
    """The training images and the held-out ones."""

    def opened(option: str, given: str, like: ImageSet | None = None) -> ImageSet:
        if ":" in given:
            return open_images(given, how, cache=cache, like=like)
        check_not_a_path(option, given)
        found = load_dataset(given, option, outside.root)
        if how.size is not None and found.shape[1:] != (how.size, how.size):
            raise ValueError(
                f"the images of a named dataset are not resized; {given} has {found.shape[2]}x{found.shape[1]}, not "
                f"`size` {how.size}. Leave it out or give {found.shape[1]} if the model accepts that, or give the "
                "pictures as folder:PATH."
            )
        return found

    def both(train: str, test: str) -> tuple[ImageSet, ImageSet]:
        images = opened("train", train)
        return images, opened("test", test, images)

    if outside.split is not None:
        train, test = read_split(outside.split, opened("train", outside.train))
        return train, test if outside.test is None else opened("test", outside.test, train)
    if outside.test is not None:
        return both(outside.train, outside.test)
    if ":" not in outside.train:
        return both(outside.train, outside.train)
    kind, _, path = outside.train.partition(":")
    held_out = held_out_folder(Path(path).expanduser()) if kind == "folder" else None
    if held_out is None:
        raise ValueError(
            f"`test` must be given: no held-out images were found in {outside.train}. Give --test (or --val), or "
            "--split, a file that divides the images of --train."
        )
    return both(f"folder:{held_out.with_name('train')}", f"folder:{held_out}")


def _unknown(outside: OutsideModel, data: RunData, how: Preprocessing, cache: Path) -> ImageSet | None:
    if outside.unknown is None:
        return None
    return _named(unknown_images(outside.unknown, data.test, how, cache=cache, root=outside.root))


def _named(images: ImageSet) -> ImageSet:
    """The images with a name that the report may show: a folder may be named after a person."""
    return open_images(images, name=without_owner(images.name))


def _module(outside: OutsideModel, say: Say) -> tuple[Any, Preprocessing, bool]:
    """The module or function, the preprocessing that it or its package names, and whether only its code knows weights.

    That is where a class or a function made the module, and no weights were given.
    """
    if outside.entry is not None and outside.weights is None:
        raise ValueError(
            f"--weights-entry names a part of --weights; got {outside.entry!r} and no --weights. Leave it out."
        )
    if is_pretrained(outside.place):
        module, how, lines = build_pretrained(outside.place, outside.weights, outside.entry, outside.module)
        for line in lines:
            say(line)
        return _placed(outside, module, say), how, False
    if outside.module is not None:
        raise ValueError(f"--module is for lightning:FILE; got {outside.module!r} with {outside.place}.")
    found = object_at(outside.place)
    CODE.append(str(folder_of(outside.place)))
    module = (black_box_of if outside.black_box else module_of)(found, outside.place)
    if not isinstance(module, nn.Module):
        if outside.weights is not None:
            raise ValueError(
                f"--weights are for an nn.Module; {outside.place} is a function. Leave them out."
            )
        return module, Preprocessing(), False
    untold = outside.weights is None and found is not module
    if outside.weights is None:
        say("weights: the module's own (no --weights)")
    else:
        say(str(load_weights(module, outside.weights, outside.entry)))
    try:
        how = preprocessing_of(module)
    except ValueError:
        how = Preprocessing()
    if isinstance(module, Classifier) and module.preprocessing is not None:  # it normalises by itself
        how = dataclasses.replace(module.preprocessing, mean=None, std=None)
    return _placed(outside, module, say), how, untold


def _placed(outside: OutsideModel, module: nn.Module, say: Say) -> nn.Module:
    check_has_data(module)
    others = {weight.dtype for weight in module.parameters() if weight.is_floating_point()} - {torch.float32}
    if others and not outside.black_box:
        say(
            f"precision: weights in {', '.join(map(str, others))}, audited in {torch.float32} like the images"
        )
        module = module.float()
    put_in_evaluation_mode(module)
    return module.to(device_named(outside.device))


def _preprocessing(outside: OutsideModel, found: Preprocessing) -> Preprocessing:
    """The given preprocessing; missing values come from the model."""
    names = ("mean", "std", "interpolation")
    given = {name: getattr(outside, name) for name in names if getattr(outside, name) is not None}
    for name in given.keys() & {"mean", "std"}:
        check_of_unit_images(name, given[name])
    if outside.size is not None:
        check_count("size", outside.size)
    if outside.crop is not None and outside.size is None and found.size is None:
        raise ValueError(f"`crop` needs `size`, the side after cropping; got only crop {outside.crop}.")
    if outside.size is not None or outside.crop is not None:
        size = outside.size or found.size
        assert size is not None
        crop = outside.crop if outside.crop is not None else found.crop or 1.0
        given |= {"size": size, "short_side": short_side_of(size, crop)}
    how = dataclasses.replace(found, **given)
    if (how.mean is None) != (how.std is None):
        known, lacking, none = ("mean", "std", 1) if how.std is None else ("std", "mean", 0)
        raise ValueError(
            f"`mean` and `std` belong together; got `{known}` alone. Give the `{lacking}` that the model was trained "
            f"with too, {none} if it had none."
        )
    return how


def _classifier(
    outside: OutsideModel, module: Any, how: Preprocessing, test: ImageSet, say: Say
) -> tuple[Classifier, dict[str, Any]]:
    """The model, and the settings that describe outputs without a class."""
    device = device_of(module) if isinstance(module, nn.Module) else device_named(outside.device)
    example = few_images(test, device)
    try:
        with _warnings_to(say):
            model, line = classifier_of(module, example, how, outside.head, black_box=outside.black_box)
    except ExampleError as error:
        raise ValueError(
            f"the model fails on the images: {error}. Give images as it was trained on: --size sets the side of those "
            "of folders, which are read in colour; for a network of one channel give npz:PATH with N x H x W images."
        ) from error
    say(line)
    with evaluating(model):
        logits = model(example)
    check_logits(logits, test.class_count)
    count, classes = logits.shape[1], test.class_count
    ordered = in_order_of(test.classes, model, example)
    if ordered is not model:
        say("classes: the model's outputs were put in the order of the images' classes, by name")
    facts = further_outputs(model, test, count)
    if facts:
        used = "those of their names" if "by" in facts["outputs"] else "the first outputs"
        say(f"note: the model has {count} outputs and the images {classes} classes; {used} are used for them")
    return ordered.eval(), facts


@contextmanager
def _warnings_to(say: Say) -> Iterator[None]:
    """Print warnings about users' data and models as lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:  # an error does not cost the notes before it
            for each in caught:
                if issubclass(each.category, UserWarning):
                    say(f"note: {each.message}")
