"""The audit of a model that was trained elsewhere: place, weights, preprocessing and images, to a card."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearance._checks import check_count
from clearance.data import ImageSet, Preprocessing, StoredImageSet, open_images, preprocessing_of
from clearance.data.picture_folder import default_cache
from clearance.data.preprocessing import short_side_of
from clearance.experiments.audit import Again, audited, check_held_out
from clearance.experiments.audit_plan import OTHER, SOURCE, AuditPlan, Settings, unknown_images
from clearance.experiments.blame import check_accuracy, check_expected
from clearance.experiments.build import RunData
from clearance.experiments.datasets import open_split
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.outside_model import OutsideModel
from clearance.experiments.owner import without_owner
from clearance.experiments.plan_line import plan_line
from clearance.models import Classifier, build_module, load_weights
from clearance.models._observe import evaluating
from clearance.models._placement import device_of
from clearance.models.wrap import check_of_unit_images, wrapped
from clearance.regimes._fit_arguments import device_named
from clearance.regimes._inputs import check_logits
from clearance.report import Card

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
