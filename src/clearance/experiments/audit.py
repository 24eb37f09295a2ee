"""The audit of one trained classifier, wherever it comes from: Python's memory, a run's folder, or other people's code.

:func:`clearance.audit` and ``clearance audit`` make a source and a request, and call :func:`run_audit`.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from clearance._checks import check_count
from clearance._describe import describe
from clearance._text import visible
from clearance.attacks.attack import CHUNK as BATCH
from clearance.audits import Audit, Findings, MinimalPerturbation, Subject
from clearance.data import ImageSet, open_images
from clearance.data.image_set import shared_images
from clearance.data.intake import in_colour
from clearance.data.stored import StoredImageSet
from clearance.experiments.audit_plan import (
    NEEDS_UNKNOWN,
    SHARED,
    SOURCE,
    AuditPlan,
    Settings,
    by_usefulness,
    fewer_images,
    unknown_images,
)
from clearance.experiments.audit_progress import AuditProgress, shown
from clearance.experiments.auditing import Budget, Done, bounded_audits, seconds_of
from clearance.experiments.build import RunData
from clearance.experiments.class_order import are_named, few_images, in_order_of
from clearance.experiments.export import check_exportable, export
from clearance.experiments.feature_cache import FeatureCache, KeptSubject
from clearance.experiments.grid import Engine, silent
from clearance.experiments.provenance import described, report_with
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.saved import load_run
from clearance.experiments.spread import spread_over
from clearance.models import Classifier
from clearance.models._running import device_named, device_of, evaluating, in_float32
from clearance.models.black_box import lacks
from clearance.models.classifier import check_classifier, check_logits
from clearance.models.features import answered
from clearance.records import ExhibitRecord, Record
from clearance.records.record import IMPOSSIBLE
from clearance.report import Card
from clearance.report.page import IMAGES

READING = "reading"  # in the list of times: model and images
Again = Callable[[Sequence[str] | None], str]
"""Gives the command that makes a report again, or, for names of audits, the one that adds them."""
Say = Callable[[str], object]
"""Takes each step of the preparation as a line."""


def audit(
    model: Classifier,
    *,
    train: Any,
    test: Any,
    unknown: Any = None,
    audits: "Sequence[str | Audit] | None" = None,
    audit_settings: Settings | None = None,
    images: int | None = None,
    slices: str | PathLike[str] | None = None,
    budget: str | float | None = None,
    include_images: bool = True,
    normalised: bool = False,
    seed: int = 0,
    name: str = "this model",
    verbose: bool = True,
    engine: Engine = None,
) -> Card:
    """Audit a trained classifier and return a card that shows itself in a notebook.

    Args:
        model: A Classifier; make one of any ``nn.Module`` with :func:`clearance.wrap`.
        train: The images that it was trained on: an ImageSet, (images, labels), a map-style Dataset, a DataLoader, a
            Hugging Face dataset, ``"folder:PATH"`` or ``"npz:PATH"``; see :func:`clearance.data.open_images`.
        test: Held-out images with the same classes, labels with the same numbers. A class may have no image there: a
            warning names it, and what needs it is not measured.
        unknown: Out-of-distribution images of the same size as `test`, with or without labels: a folder of pictures, a
            tensor, the name of a dataset or anything that `test` may be. The audits `out_of_distribution` and
            `likelihood` use them.
        audits: Names of audits, or audits with your own settings, as in ``[MinimalPerturbation(norm=2)]``; by default
            accuracy, duplicates and wrong labels, input, performance, mistakes, common corruptions, confidence,
            out-of-distribution images and the smallest change that changes a prediction, as on the command line.
            ``["all"]`` runs every audit; ``"few-labels"`` stands for those on new last layers.
        audit_settings: Settings of audits by audit and name, as in
            ``{"minimal_perturbation": {"steps": 20}}``, where they differ from the defaults.
        images: Attacks and similar audits use at most this many held-out images, the same number of each class; by
            default each audit's own number.
        slices: A CSV file about the test images: names of files in its first column, and in the others what is known of
            them. The audit `performance` reports each value of each column; see
            :func:`clearance.data.slices.read_slices`.
        budget: A time, ``"90s"``, ``"5m"``, ``"2h"`` or seconds, after which no audit starts; the audit in
            progress is finished, and the card lists those left out.
        include_images: Whether the card keeps images of the data; `share.html` never shows them.
        normalised: Whether tensors, Datasets and loaders give images that were normalised with the model's `mean` and
            `std` (those of `wrap`); this is then undone, because the model does it itself.
        seed: Seed of partial sets and first weights of retrained heads.
        name: The model's name on the card.
        verbose: On a terminal, show the audit in progress and the time that it may still take in a line of the error
            stream, which goes away at the end.
        engine: Where attacks, searches for the nearest mistake, boundary distances and features are computed, in parts
            of a fixed number of images: a number of local processes, or any ``concurrent.futures.Executor``. Numbers
            are those of one process with one thread, to the bit, on the same kind of machine. The model must be
            importable there, or picklable. None is this process, or all that train together under torchrun: then
            each of them must call this function.

    If the model keeps the names of its classes (`id2label` of a Hugging Face model), its outputs are matched with the
    classes of the images by name.

    Weights in another precision (bfloat16, float16, float64) are audited in a float32 copy, with a warning.

    Raises:
        TypeError: If `model` is not a Classifier.
        ValueError: If an audit is unknown, the data are invalid, `test` is `train`, the model has fewer
            outputs than the data have classes, or a limit is out of range.

    Warns:
        UserWarning: If the model was trained by FOCA in your own loop and ``finish`` was not called.

    >>> import torch
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> _ = torch.manual_seed(0)
    >>> card = audit(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), train=train, test=test,
    ...              audits=["accuracy"])
    >>> [m.context["split"] for m in card.measurements if m.name == "error"]
    ['test', 'train']
    """
    check_classifier(model)
    if model.unfinished is not None:
        warnings.warn(
            f"the head of this model is not trained yet: {model.unfinished} trains it at the end; call `finish()` "
            "of its training first.",
            UserWarning,
            stacklevel=2,
        )
    if audits is not None and not isinstance(audits, str):  # AuditPlan raises for a string
        audits = list(audits)
    with _status(verbose=verbose) as progress:
        request = AuditRequest(
            audits,
            audit_settings,
            images,
            budget,
            slices=slices,
            include_images=include_images,
            seed=seed,
            progress=progress,
            engine=engine,
        )
        return run_audit(InMemory(model, train, test, unknown, name, normalised), request, _call)


@contextmanager
def _status(*, verbose: bool) -> Iterator[AuditProgress | None]:
    """What shows the audit in progress; None if nothing does."""
    if not (verbose and sys.stderr is not None and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    with (
        Console(stderr=True).status("reading") as line,
        shown(lambda said: line.update(Text(visible(said))), live=True) as progress,
    ):
        yield progress


@dataclass(frozen=True)
class AuditRequest:
    """What is asked of a trained classifier.

    Args:
        audits: Names of audits, or audits with their settings; None means the source's usual ones.
        settings: Settings of audits by audit and name, where they differ from the defaults.
        images: Attacks and similar audits use at most this many test images; None means each audit's own number.
        budget: The time after which no audit starts.
        slices: A CSV file with what is known of each test image.
        include_images: Whether the card keeps images of the data; `share.html` never shows them.
        seed: Seed of everything that audits draw; None means the source's own, or 0.
        export: Folder for what a deployed model needs; see :func:`clearance.experiments.export.export`.
        keep: Whether an interruption keeps the finished audits.
        say: Called with each step of the preparation.
        warn: Called with what may be a mistake of who asks.
        progress: Called with each audit and its steps.
        engine: Where parts of audits are computed; None is this process.
    """

    audits: "Sequence[str | Audit] | None" = None
    settings: Settings | None = None
    images: int | None = None
    budget: str | float | None = None
    slices: str | PathLike[str] | None = None
    include_images: bool = True
    seed: int | None = None
    export: Path | None = None
    keep: bool = False
    say: Say = silent
    warn: Say = silent
    progress: AuditProgress | None = None
    engine: Engine = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count("seed", self.seed, minimum=0)


@dataclass(frozen=True)
class Target:
    """A trained classifier with its images, and audits that can run on them.

    Args:
        data: Its training images, and held-out ones.
        seed: Seed of everything that audits draw.
        name: The model's name on the card.
        sources: By audit, the method whose network its images are made on.
        facts: Other settings that the report keeps.
        cache: Where features are kept.
    """

    model: Classifier
    data: RunData
    audits: Sequence[Audit]
    seed: int
    name: str
    sources: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    cache: FeatureCache | None = None


class Source(Protocol):
    """Where a trained classifier comes from."""

    def target(self, request: AuditRequest) -> Target:
        """Load and check the model and its images, and resolve the audits.

        Raises:
            FileNotFoundError: If a file or folder does not exist.
            ValueError: If model, images and request do not fit together.
        """


@dataclass(frozen=True)
class InMemory:
    """A classifier in this process; the arguments are those of :func:`audit`."""

    model: Classifier
    train: Any
    test: Any
    unknown: Any = None
    name: str = "this model"
    normalised: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
                f"`name` must be text; got {type(self.name).__name__}. Write str(name)."
            )

    def opened(self) -> Self:
        """The same with its images read as the model needs them; they are not read again."""
        how = self.model.preprocessing
        done = (self.model.mean, self.model.std) if self.normalised else None
        train = open_images(self.train, how, normalised=done)
        test = open_images(self.test, how, normalised=done, like=train)
        for given, found in ((self.train, train), (self.test, test)):
            _check_size(self.model, given, found)
        if takes_colour(self.model, self.model.mean.numel()):
            train, test = in_colour(train), in_colour(test)
        unknown = None if self.unknown is None else unknown_images(self.unknown, test, how, normalised=done)
        return replace(self, train=train, test=test, unknown=unknown, normalised=False)

    def target(self, request: AuditRequest) -> Target:
        """Open the images and resolve the audits."""
        images = self.opened()
        data, others = RunData(images.train, images.test), images.unknown
        check_held_out(data)
        warn_of_absent(data.test)
        logits = _first_logits(self.model, data.test)
        check_logits(logits, data.test.class_count)
        facts = further_outputs(self.model, data.test, logits.shape[1])
        model = in_order_of(data.test.classes, self.model, few_images(data.test, device_of(self.model)))
        fewer = fewer_where_costly(model, data.test, request)
        plan = AuditPlan.of(request.audits, request.settings, defaults=fewer, unknown=others is not None)
        ready = plan.resolved(
            test=data.test, unknown=others, images=request.images, slices=request.slices,
            preprocessing=self.model.preprocessing,
        )  # fmt: skip
        return Target(model, data, ready, request.seed or 0, self.name, facts=facts)


def further_outputs(model: Classifier, test: ImageSet, count: int) -> dict[str, Any]:
    """The fact for the report that a model, as it was given, has outputs without a class; empty if it has none."""
    classes = test.class_count
    if count == classes:
        return {}
    named = are_named(test.classes, model, count)
    return {"outputs": {"of the model": count, "classes": classes, **({"by": "name"} if named else {})}}


COSTLY = "minimal_perturbation"  # some 800 passes over each of its images; no other audit of the first screen has ten
WORK = 3_200_000_000  # multiply-adds of one pass over its images: all 200 of a network of 16 million


def fewer_where_costly(model: Classifier, test: ImageSet, request: "AuditRequest") -> Settings:
    """Settings with which the search for the smallest change takes fewer images where the network is large.

    As many whole batches of the search as `WORK` allows, at least one. The count follows from the network alone, not
    from the time that it takes here. A request that says how many images keeps them; its `say` is told if there are
    fewer.

    >>> import torch
    >>> from clearance.data import gaussian_images
    >>> linear = Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    >>> fewer_where_costly(linear, gaussian_images(), AuditRequest())
    {}
    """
    own = {one.name for one in request.audits or () if isinstance(one, Audit)}
    said = request.images is not None or "images" in (request.settings or {}).get(COSTLY, {})
    if COSTLY in own or said or lacks(model):
        return {}
    image = few_images(test, device_of(model))[:1]
    with evaluating(model), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(image)
    work = max(counter.get_total_flops() // 2, 1)
    least = test.class_count  # one of each class
    images, usual = max(max(WORK // work // BATCH, 1) * BATCH, least), max(MinimalPerturbation.images, least)
    if images >= min(usual, len(test)):
        return {}
    request.say(
        f"{COSTLY}: {images} images instead of {usual}, for a network of {work / 1e6:.0f} million multiply-adds an "
        f"image; --images {usual} takes them all"
    )
    return {COSTLY: {"images": images}}


@dataclass(frozen=True)
class RunFolder:
    """A finished run.

    Args:
        unknown: Out-of-distribution images.
        root: The folder of datasets' files, if it has moved.
        cache: Folder for decoded pictures.
        device: The name of the model's.
    """

    folder: str | Path
    unknown: Any = None
    root: str | None = None
    cache: Path | None = None
    device: str = "cpu"

    def target(self, request: AuditRequest) -> Target:
        """Load the run; its usual audits are those of its recipe, with their settings."""
        folder = Path(self.folder)
        run = load_run(folder)
        has_unknown = self.unknown is not None
        usual = (*run.recipe.audits, *((NEEDS_UNKNOWN,) if has_unknown else ()))
        asked = AuditPlan.of(
            request.audits,
            request.settings,
            usual=usual,
            defaults=run.recipe.audit_settings,
            unknown=has_unknown,
        )
        recipe = replace(run.recipe, root=self.root or run.recipe.root)
        plan = RunPlan(recipe, run.method, run.seed, audits=asked)
        data = run.data(self.root)
        others = None
        if has_unknown:
            others = unknown_images(self.unknown, data.test, cache=self.cache, root=recipe.root)
        ready = plan.resolved_audits(
            data, folder.resolve().parent, unknown=others, images=request.images, slices=request.slices
        )
        seed = run.seed if request.seed is None else request.seed
        model = run.model.to(device_named(self.device))
        return Target(model, data, ready, seed, run.method, sources=asked.sources)


def run_audit(source: Source | Target, request: AuditRequest, again: Again) -> Card:
    """Prepare, audit, and make the card.

    A source may be a target that is prepared; `again` gives the command that the card names.

    Raises:
        FileNotFoundError: If a file or folder does not exist.
        ValueError: If model, images and request do not fit together, or the budget leaves no time for one audit.
    """
    began = time.monotonic()
    budget = None if request.budget is None else Budget(seconds_of(request.budget))
    found = source if isinstance(source, Target) else source.target(request)
    if request.export is not None:
        check_exportable(found.model)
    seconds = {READING: time.monotonic() - began}
    with spread_over(request.engine) as workers:
        images = (found.data.train, found.data.test, found.seed, found.data.new_classes, workers)
        subject = KeptSubject(found.model, *images, cache=found.cache)
        with in_float32(found.model, few_images(found.data.test, device_of(found.model))[:1]):
            queue = by_usefulness(found.audits)
            done = bounded_audits(subject, queue, budget, request.progress, keep=request.keep)
            failed = _exported(subject, done.findings, request)
    where = (found.data.test.name, found.name, found.seed)
    exhibits = [e for f in done.findings for e in f.exhibits]
    kept = [e for e in exhibits if request.include_images or e.kind != IMAGES]
    records = RunFindings(
        None,
        tuple(Record(*where, m) for f in done.findings for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for e in kept),
    )
    made_on = {audit: {SOURCE: method} for audit, method in found.sources.items()}
    settings = {
        **found.facts,
        "dataset": found.data.test.name,
        "seed": found.seed,
        "audits": [
            {"type": describe(type(audit)), **described(audit), **made_on.get(audit.name, {})}
            for audit in done.audits
        ],
        "seconds": {name: round(spent, 2) for name, spent in {**seconds, **done.seconds}.items()},
        **_left(found.model, done, budget, again, found.data.test, pictures=len(exhibits) - len(kept)),
        **({} if failed is None else {"export_failed": failed}),
    }
    return Card(report_with(settings, [records], again(None)))


def _exported(subject: Subject, findings: list[Findings], request: AuditRequest) -> str | None:
    """Export, if that was asked for; what failed, so that the audits before it are not lost."""
    if request.export is None:
        return None
    try:
        request.say(export(subject, findings, request.export))
    except KeyboardInterrupt:
        if not request.keep:
            raise
        return "interrupted"
    except Exception as error:  # noqa: BLE001 - of whatever the model raises
        said = error.strerror if isinstance(error, OSError) else None  # without folders of this machine
        return f"{type(error).__name__}: {said or error}"
    return None


def check_held_out(data: RunData) -> None:
    """Raise if all test images are training images; warn if more than a few are.

    Sets that stay on disk are only compared as a whole, without reading their pixels.

    Raises:
        ValueError: If every test image is a training image, pixel for pixel.

    Warns:
        UserWarning: If more than `SHARED` of them are. A few are in most large datasets.
    """
    if any(isinstance(part, StoredImageSet) for part in (data.train, data.test)):
        shared = len(data.test) if data.train.digest() == data.test.digest() else 0
    else:
        shared = shared_images(data.test, data.train)
    if shared == len(data.test):
        raise ValueError(
            f"`test` must be images that the model was not trained on; got the {shared} images of `train`, or some "
            "of them. Give other images: results on these say nothing about new images."
        )
    if shared > SHARED * len(data.test):
        warnings.warn(
            f"{shared} of {len(data.test)} test images are among the training images, pixel for pixel: "
            "results on them say nothing about new images. Remove them from one of the two.",
            UserWarning,
            stacklevel=3,
        )


def _check_size(model: Classifier, given: Any, found: ImageSet) -> None:
    """Raise for pictures of another size than the model's example, if nobody said how to resize them.

    Warns:
        UserWarning: For other images, which are never resized.
    """
    size, how = model.example_size, model.preprocessing
    pictures = isinstance(given, str) and given.startswith("folder:")
    as_told = how is not None and found.shape[1:] == (how.size, how.size)
    if size is None or as_told or found.shape[1:] == size:
        return
    (height, width), (high, wide) = found.shape[1:], size
    if not pictures:
        warnings.warn(
            f"the images are {width}x{height}, and the example of the model was {wide}x{high}. If the model was made "
            "for that size, resize the images in the Dataset; else give wrap an example of theirs.",
            UserWarning,
            stacklevel=5,
        )
        return
    raise ValueError(
        f"the pictures of {given} are {width}x{height}, and the example of the model was {wide}x{high}. Say how "
        f"they are resized, in wrap(..., preprocessing=clearance.data.Preprocessing(size={min(size)}, "
        f"short_side={min(size)})), or give an example of the right size."
    )


def takes_colour(module: Any, values: int) -> bool:
    """Whether the module takes three channels: by the values of its normalisation, or else its first convolution."""
    if values > 1:
        return values == 3
    parts = module.modules() if isinstance(module, nn.Module) else ()
    return next((part.in_channels for part in parts if isinstance(part, nn.Conv2d)), None) == 3


def warn_of_absent(test: ImageSet) -> None:
    """Warn of classes without a test image.

    Warns:
        UserWarning: If there are such classes.
    """
    counts = torch.bincount(test.labels, minlength=test.class_count).tolist()
    absent = [name for name, count in zip(test.classes, counts, strict=True) if count == 0]
    if absent:
        numbers = "Labels must be the numbers of the model's outputs. " if test.files is None else ""
        shown = ", ".join(map(repr, absent[:5])) + (" ..." if len(absent) > 5 else "")
        warnings.warn(
            f"`test` has no image of {len(absent)} of the {test.class_count} classes, {shown}: nothing is known of "
            f"them, and some audits need every class. {numbers}Add images if there are some.",
            UserWarning,
            stacklevel=3,
        )


def _call(audits: "Sequence[str | Audit] | None") -> str:
    return "clearance.audit(...)" if audits is None else f"clearance.audit(..., audits={list(audits)})"


def _first_logits(model: Classifier, images: ImageSet) -> Tensor:
    device = device_of(model)
    with evaluating(model):
        return answered(model, images.batch(torch.tensor([0]))[0].to(device), images, 0)


def _left(
    model: Classifier, done: Done, budget: Budget | None, again: Again, test: ImageSet, pictures: int
) -> dict[str, Any]:
    """The settings that say what was left out; empty if nothing was."""
    found: dict[str, Any] = {}
    if budget is not None:
        found["budget"] = {"seconds": budget.seconds, "spent": round(budget.spent, 1)}
    found |= fewer_images(done.audits, test)
    if lacking := lacks(model):
        found["black_box"] = f"without {' and '.join(lacking)}"
    if done.left_out:
        found["audits_left_out"] = [each.setting() for each in done.left_out]
        possible = [each.audit for each in done.left_out if each.why != IMPOSSIBLE]
        found["audits_left_out_command"] = again(possible)
    empty = [
        audit.name
        for audit, result in zip(done.audits, done.findings, strict=True)
        if not (result.measurements or result.exhibits)
    ]
    if empty:
        found["audits_without_numbers"] = empty
    if pictures:
        found["pictures_left_out"] = pictures
    return found
