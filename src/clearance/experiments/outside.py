"""The audit of a model that was trained elsewhere: place, weights, preprocessing and images, to a card."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from clearance._checks import check_count
from clearance.audits._audit import wilson_interval
from clearance.audits.preprocessing import InputWay, input_ways, right_when
from clearance.data import ImageSet, Preprocessing, StoredImageSet, open_images, preprocessing_of
from clearance.data.folder import default_cache
from clearance.data.preprocessing import short_side_of
from clearance.experiments.audit import Again, audited, check_held_out
from clearance.experiments.audit_plan import OTHER, SOURCE, AuditPlan, Settings, unknown_images
from clearance.experiments.build import RunData
from clearance.experiments.datasets import open_split
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.provenance import without_owner
from clearance.models import Classifier, load_weights, predictions
from clearance.models._running import device_of, evaluating
from clearance.models.factory import build_module
from clearance.models.features import batch_size_for
from clearance.models.wrap import check_of_unit_images, wrapped
from clearance.report import Card
from clearance.training._way import check_logits
from clearance.training.fit import device_named


@dataclass(frozen=True)
class OutsideModel:
    """What there is to say about a model that was trained elsewhere.

    Args:
        place: ``package.module:name`` or ``path/to/file.py:name``; see :func:`clearance.models.build_module`.
        train: Images that it was trained on: ``"folder:PATH"``, ``"npz:PATH"`` or the name of a dataset, whose training
            images are taken.
        test: Held-out images of the same classes, likewise; of a named dataset its test images.
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

    def settings(self, how: Preprocessing) -> dict[str, Any]:
        """What the report keeps of all this: no folder of this machine.

        Args:
            how: The preprocessing that came of it.
        """
        told: dict[str, Any] = {
            "model": self.name,
            "weights": None if self.weights is None else self.weights.name,
            "head": self.head,
            "preprocessing": dataclasses.asdict(how),
        }
        if self.expect_accuracy is not None:
            told["expected_accuracy"] = self.expect_accuracy
        return told


TRIED_ON = 400  # images
_CLEAR = 0.05  # what a way must gain before it is blamed


class AccuracyMissedError(ValueError):
    """The measured accuracy is not the one that was expected; the message says what may be wrong."""


def check_accuracy(model: Classifier, test: ImageSet, expected: float, slack: float = 0.005) -> str:
    """One line about the measured accuracy; refused where it misses what its owner says.

    It misses where it is lower by more than `slack` and its 95 % Wilson interval ends below. Then ways in which a
    model's input may differ are tried on a few images (`audits/_input_ways.py`), and whether the classes stand in
    another order.

    Args:
        model: The model, with the normalisation that was asked for.
        test: Held-out images.
        expected: The accuracy that its owner says, in (0, 1].
        slack: What other versions of image libraries may cost.

    Raises:
        ValueError: If `expected` is not in (0, 1].
        AccuracyMissedError: If the measured accuracy misses it.
    """
    check_expected(expected)
    named = predictions(model, test)
    right = int((named == test.labels.to(named.device)).sum())
    accuracy = right / len(test)
    low, high = wilson_interval(right, len(test))
    told = f"accuracy {accuracy:.1%} ({low:.1%} to {high:.1%}, {len(test)} images), expected {expected:.1%}"
    if high >= expected or accuracy >= expected - slack:
        return told
    raise AccuracyMissedError(f"{told}. Nothing else is measured. {_blame(model, test, named, accuracy)}")


def check_expected(expected: float) -> None:
    """Raise ValueError unless it is a share of images, above 0."""
    if not 0 < expected <= 1:
        raise ValueError(f"`expect_accuracy` must lie in (0, 1]; got {expected}. Write 0.915 for 91.5 %.")


def _blame(model: Classifier, test: ImageSet, named: Tensor, accuracy: float) -> str:
    few = test if len(test) <= TRIED_ON else test.subset(torch.linspace(0, len(test) - 1, TRIED_ON).long())
    images, _ = few.batch(torch.arange(len(few)))
    before = _accuracy(model, few)
    tried = [(_accuracy(model, few, way), way.name, way.remedy) for way in input_ways(model, images)]
    best, said, remedy = max(tried, key=lambda each: each[0])  # of equal ones, the first
    order = _other_order(named, test)
    if order > max(accuracy, best) + _CLEAR:
        return (
            f"With the classes in another order {order:.1%} would be right: the model's classes are not numbered as "
            "the folders are sorted. Rename the folders so that their order is that of the outputs."
        )
    if best > before + _CLEAR:
        gain = f"{said} gives {best:.1%} in place of {before:.1%}"
        return f"Preprocessing is to blame: on {len(few)} images {gain}. {remedy}"
    return (
        "Preprocessing is the first suspect: mean and std (or a model that normalises by itself), the order of "
        "channels, values up to 255, the size and the share that is cropped, the interpolation. None of "
        f"{', '.join(name for _, name, _ in tried)} does better. Look at --image-size and --crop, at --weights, and "
        "whether these are the images that the accuracy was measured on."
    )


def _other_order(named: Tensor, test: ImageSet) -> float:
    """The accuracy if every output were given to the class that makes the most of all images right."""
    known = named >= 0
    count = max(test.class_count, int(named.max()) + 1)
    pairs = test.labels.to(named.device)[known] * count + named[known]
    table = torch.bincount(pairs, minlength=count * count).view(count, count).cpu().numpy()
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum()) / len(test)


def _accuracy(model: Classifier, data: ImageSet, way: InputWay | None = None) -> float:
    return float(right_when(model, data, way).double().mean())


def plan_line(model: Classifier, data: RunData, unknown: ImageSet | None, audits: Sequence[str]) -> str:
    """Device, memory and what will be computed.

    Args:
        model: The classifier.
        data: Its images.
        unknown: Images of things that it never saw.
        audits: Names of what will be asked.
    """
    device = device_of(model)
    count = len(data.train) + len(data.test)
    with torch.no_grad():
        width = model.features(data.test.batch(torch.tensor([0]))[0].to(device)).shape[1]
    held = sum(some.images.nbytes for some in (data.train, data.test) if not isinstance(some, StoredImageSet))
    where = f"images {_size(held)} in memory" if held else "images stay on disk"
    further = "" if unknown is None else f"and {len(unknown)} unknown "
    return (
        f"device {device}; {len(data.train)} training and {len(data.test)} held-out {further}images of "
        f"{'x'.join(map(str, data.test.shape))}; {where}, features {_size(4 * count * width)}, batches of "
        f"{batch_size_for(data.test)}; computing {', '.join(audits)}"
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


Say = Callable[[str], object]
_EXAMPLES = 4
_PIXEL_HEADS = "co_adaptation"  # the audit that also trains heads on raw pixels, all of them at once


def audit_outside(
    outside: OutsideModel,
    audits: Sequence[str] | None,
    seed: int,
    again: Again,
    say: Say,
    *,
    settings: Settings | None = None,
    images: int | None = None,
    **how_to_run: Any,
) -> Card:
    """Build, load, read, prove and audit; `say` is told each step in a line.

    Args:
        outside: The model and its images.
        audits: Names of audits; None is what the first screen needs.
        seed: Decides whatever the audits draw.
        again: Gives the command that makes the report again, or adds audits to it.
        say: Told each step.
        settings: Of audits, by audit and setting, where they differ from the defaults.
        images: Test images that attacks and the like look at, at most.
        how_to_run: Budget and the like, as :func:`audited` takes them.

    Raises:
        FileNotFoundError: If a file or folder is not there.
        ValueError: If anything does not fit; the message says what and what to do.
        AccuracyMissedError: A ValueError, if the accuracy misses `expect_accuracy`: before any other number.
    """
    if outside.expect_accuracy is not None:
        check_expected(outside.expect_accuracy)
    has_unknown = outside.unknown is not None
    names = AuditPlan.of(audits, settings, unknown=has_unknown).names  # a wrong name, before anything is read
    _check_settings(settings or {})
    _check_unknown(outside)
    module = _module(outside, say)
    how = _preprocessing(outside, module)
    say(f"preprocessing: {how}")
    cache = default_cache() if outside.cache is None else outside.cache
    with _warnings_said(say):
        train, test = (
            open_split(split, getattr(outside, split), split, how, cache=cache, root=outside.root)
            for split in ("train", "test")
        )
        data = RunData(train, _named(test))
        check_held_out(data)
        unknown = _unknown(outside, data, how, cache)
    model, outputs = _classifier(outside, module, how, data.test, say)
    plan = AuditPlan.of(audits, settings, defaults=_limits(data, names, say), unknown=has_unknown)
    chosen = plan.resolved(test=data.test, unknown=unknown, images=images)
    say(plan_line(model, data, unknown, names))
    if outside.expect_accuracy is not None:
        say(check_accuracy(model, data.test, outside.expect_accuracy))
    told = {**outside.settings(how), **outputs, **_of_unknown(unknown)}
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
        **how_to_run,
    )


def _check_settings(settings: Settings) -> None:
    for audit, given in settings.items():
        if SOURCE in given:
            raise ValueError(
                f"setting {SOURCE!r} of audit {audit!r} names a method of a comparison; a model that was trained "
                "elsewhere has none. Leave it out; in Python an audit takes a network: "
                "clearance.audit(..., audits=[Robustness(source=other)])."
            )
        if OTHER in given:
            raise ValueError(
                f"setting {OTHER!r} of audit {audit!r} is given as --unknown here: {given[OTHER]}."
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
    return module.eval().to(device_named(outside.device))


def _preprocessing(outside: OutsideModel, module: nn.Module) -> Preprocessing:
    """What was given, on top of what the model keeps."""
    try:
        found = preprocessing_of(module)
    except ValueError:
        found = Preprocessing()
    given = {name: getattr(outside, name) for name in ("mean", "std") if getattr(outside, name) is not None}
    for name, values in given.items():
        check_of_unit_images(name, values)
    if outside.image_size is not None:
        check_count("image_size", outside.image_size)
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
) -> tuple[Classifier, dict[str, Any]]:
    """The model, and what the report must say of outputs that no class belongs to."""
    device = device_of(module)
    example = test.batch(torch.linspace(0, len(test) - 1, min(_EXAMPLES, len(test))).long())[0].to(device)
    with _warnings_said(say):
        model, line = wrapped(module, outside.head, example=example, mean=how.mean or 0.0, std=how.std or 1.0)
    say(line)
    with evaluating(model):
        logits = model(example)
    check_logits(logits, test)
    count, classes = logits.shape[1], test.class_count
    if count == classes:
        return model.eval(), {}
    say(f"note: the model has {count} outputs and the images {classes} classes, taken as the first of them")
    return model.eval(), {"outputs": {"of the model": count, "classes": classes}}


def _limits(data: RunData, audits: Sequence[str], say: Say) -> dict[str, dict[str, Any]]:
    """Settings that a set on disk needs: no audit may ask for all pixels at once."""
    on_disk = any(isinstance(some, StoredImageSet) for some in (data.train, data.test))
    if not on_disk or _PIXEL_HEADS not in audits:
        return {}
    say(f"{_PIXEL_HEADS}: without heads on raw pixels, which would need all of them in memory")
    return {_PIXEL_HEADS: {"pixel_limit": 0}}


@contextmanager
def _warnings_said(say: Say) -> Iterator[None]:
    """Warnings of users' data and models as lines, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        if issubclass(each.category, UserWarning):
            say(f"note: {each.message}")
