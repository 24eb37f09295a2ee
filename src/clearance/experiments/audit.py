"""Audit one trained classifier, from Python."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearance.audits import Audit
from clearance.data import ImageSet, open_images
from clearance.data.image_set import image_digests
from clearance.data.stored import StoredImageSet
from clearance.experiments.audit_plan import (
    NEEDS_UNKNOWN,
    SOURCE,
    AuditPlan,
    Settings,
    looked_at,
    unknown_images,
)
from clearance.experiments.auditing import Budget, Done, bounded_audits, seconds_of, subject_of
from clearance.experiments.build import RunData
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.provenance import described, report_with
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.saved import load_run
from clearance.models import Classifier
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import check_classifier
from clearance.records import ExhibitRecord, Record
from clearance.report import Card
from clearance.training._way import check_logits

PICTURES = "images"  # the kind of exhibit that shows images themselves
SHARED = 0.05  # of the test images: small pictures repeat by chance
Again = Callable[[Sequence[str] | None], str]
"""The command that makes a report again; for names of audits, the one that adds these."""


def audit(
    model: Classifier,
    *,
    train: Any,
    test: Any,
    unknown: Any = None,
    audits: "Sequence[str | Audit] | None" = None,
    audit_settings: Settings | None = None,
    images: int | None = None,
    budget: str | float | None = None,
    include_images: bool = False,
    seed: int = 0,
    name: str = "this model",
) -> Card:
    """Audit a trained classifier and return a card that shows itself in a notebook.

    Args:
        model: A Classifier; make one of any ``nn.Module`` with :func:`clearance.wrap`.
        train: The images that it was trained on: an ImageSet, (images, labels), a map-style Dataset, a DataLoader, a
            Hugging Face dataset, ``"folder:PATH"`` or ``"npz:PATH"``; see :func:`clearance.data.open_images`.
        test: Held-out images with the same classes.
        unknown: Images of things that the model never saw, of the size of `test`, without labels or with: a folder of
            pictures, a tensor, the name of a dataset or whatever `test` may be; see
            :func:`clearance.data.open_unlabelled`. The audits `out_of_distribution` and `likelihood` look at them.
        audits: Names of audits, or audits with settings of your own, as in ``[MinimalPerturbation(norm=2)]``; by
            default those that the first screen of one network needs, as on the command line. ``["all"]`` is every one.
        audit_settings: Settings of audits by audit and name, as in
            ``{"minimal_perturbation": {"steps": 20}}``, where they differ from the defaults.
        images: Held-out images that attacks and the like look at, at most, equally many of each class; by default
            each audit's own number.
        budget: A time, ``"90s"``, ``"5m"``, ``"2h"`` or seconds, after which no audit starts; one that has begun is
            finished, and the card says which were left out.
        include_images: Whether the card may show the images themselves.
        seed: Decides partial sets and first weights of fresh heads.
        name: What the card calls the model.

    Raises:
        TypeError: If `model` is not a Classifier.
        ValueError: If an audit is unknown, the data are not as they should be, `test` is `train`, the model has fewer
            outputs than the data have classes, or a limit is out of range.

    >>> import torch
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> card = audit(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), train=train, test=test,
    ...              audits=["accuracy"])
    >>> [m.context["split"] for m in card.measurements]
    ['test', 'train']
    """
    check_classifier(model)
    if audits is not None and not isinstance(audits, str):  # one word is refused by what reads names
        audits = list(audits)
    deadline = None if budget is None else Budget(seconds_of(budget))
    data = RunData(open_images(train), open_images(test))
    check_held_out(data)
    check_logits(_first_logits(model, data.test), data.test)
    others = None if unknown is None else unknown_images(unknown, data.test)
    plan = AuditPlan.of(audits, audit_settings, unknown=others is not None)
    ready = plan.resolved(test=data.test, unknown=others, images=images)
    return audited(model, data, ready, seed, name, _call, budget=deadline, include_images=include_images)


def audit_run(
    run_dir: str | Path,
    audits: Sequence[str] | None,
    again: "Callable[[str, Sequence[str] | None], str]",
    *,
    seed: int | None = None,
    unknown: Any = None,
    root: str | None = None,
    cache: Path | None = None,
    settings: Settings | None = None,
    images: int | None = None,
    **how_to_run: Any,
) -> Card:
    """The card of a finished run.

    Args:
        run_dir: Its directory.
        audits: Names; None is those of its recipe, and `out_of_distribution` where such images are given.
        again: Gives, for the name of the directory and names of audits, the command that makes the report again.
        seed: Decides whatever the audits draw; None is the run's.
        unknown: Images of things that the model never saw.
        root: The folder of datasets' files, if it has moved.
        cache: Folder for decoded pictures.
        settings: Of audits, on top of the recipe's.
        images: Test images that attacks and the like look at, at most.
        how_to_run: Budget and the like, as :func:`audited` takes them.

    Raises:
        FileNotFoundError: If there is no such run, or files are not there.
        ValueError: If the run is not finished, or anything that is asked for cannot be.
    """
    folder = Path(run_dir)
    run = load_run(folder)
    own = run.recipe.audit_settings
    usual = (*run.recipe.audits, *(() if unknown is None else (NEEDS_UNKNOWN,)))
    asked = AuditPlan.of(audits, settings, usual=usual, defaults=own, unknown=unknown is not None)
    plan = RunPlan(run.recipe, run.method, run.seed, audits=asked)
    data = run.data(root)
    others = None
    if unknown is not None:
        others = unknown_images(unknown, data.test, cache=cache, root=root or run.recipe.root)
    ready = plan.resolved_audits(data, folder.resolve().parent, unknown=others, images=images)
    return audited(
        run.model,
        data,
        ready,
        run.seed if seed is None else seed,
        run.method,
        lambda more: again(folder.name, more),
        sources=asked.sources,
        **how_to_run,
    )


def check_held_out(data: RunData) -> None:
    """Refuse test images that the training images hold, all of them; warn of more than a few.

    Of sets that stay on disk only whether they are the same one: nobody reads their pixels for this.

    Raises:
        ValueError: If every test image is a training image, pixel for pixel.

    Warns:
        UserWarning: If more than `SHARED` of them are. A few are in most large datasets.
    """
    if any(isinstance(part, StoredImageSet) for part in (data.train, data.test)):
        shared = len(data.test) if data.train.digest() == data.test.digest() else 0
    else:
        known = set(image_digests(data.train))
        shared = sum(image in known for image in image_digests(data.test))
    if shared == len(data.test):
        raise ValueError(
            f"`test` must be images that the model was not trained on; got the {shared} images of `train`, or some "
            "of them. Give others: what is measured on these says nothing of new ones."
        )
    if shared > SHARED * len(data.test):
        warnings.warn(
            f"{shared} of {len(data.test)} test images are among the training images, pixel for pixel: what is "
            "measured on them says nothing of new ones. Take them out of one of the two.",
            UserWarning,
            stacklevel=3,
        )


def _call(audits: "Sequence[str | Audit] | None") -> str:
    return "clearance.audit(...)" if audits is None else f"clearance.audit(..., audits={list(audits)})"


def _first_logits(model: Classifier, images: ImageSet) -> Tensor:
    device = device_of(model)
    with evaluating(model):
        logits: Tensor = model(images.batch(torch.tensor([0]))[0].to(device))
    return logits


def audited(
    model: Classifier,
    data: RunData,
    audits: Sequence[Audit],
    seed: int,
    name: str,
    again: Again,
    *,
    sources: Mapping[str, str] | None = None,
    told: Mapping[str, Any] | None = None,
    cache: FeatureCache | None = None,
    budget: Budget | None = None,
    keep: bool = False,
    include_images: bool = False,
    on_audit: Callable[[str], object] | None = None,
) -> Card:
    """The card of one classifier.

    Args:
        model: The classifier.
        data: The images that it was trained on, and held-out ones.
        audits: What is asked.
        seed: Decides whatever the audits draw.
        name: What the card calls the model.
        again: Gives what makes the report again, or for names of audits what adds these.
        sources: By audit, which method's network images were made on.
        told: Further settings for the report to keep.
        cache: Where features are kept.
        budget: Until when audits may start.
        keep: Whether an interruption keeps what is done.
        include_images: Whether the card may show the images themselves.
        on_audit: Told the name of each audit before it starts.
    """
    done = bounded_audits(subject_of(model, data, seed, cache), audits, budget, on_audit, keep=keep)
    where = (data.test.name, name, seed)
    exhibits = [e for f in done.findings for e in f.exhibits]
    shown = [e for e in exhibits if include_images or e.kind != PICTURES]
    found = RunFindings(
        None,
        tuple(Record(*where, m) for f in done.findings for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for e in shown),
    )
    named = {name: {SOURCE: source} for name, source in (sources or {}).items()}
    settings = {
        **(told or {}),
        "dataset": data.test.name,
        "seed": seed,
        "audits": [{**described(audit), **named.get(audit.name, {})} for audit in done.audits],
        **_left(done, budget, again, data.test, pictures=len(exhibits) - len(shown)),
    }
    return Card(report_with(settings, [found], again(None)))


def _left(done: Done, budget: Budget | None, again: Again, test: ImageSet, pictures: int) -> dict[str, Any]:
    """What the report says about what was left out; nothing where nothing was."""
    told: dict[str, Any] = {}
    if budget is not None:
        told["budget"] = {"seconds": budget.seconds, "spent": round(budget.spent, 1)}
    told |= looked_at(done.audits, test)
    if done.left_out:
        told["audits_left_out"] = [dataclasses.asdict(each) for each in done.left_out]
        told["audits_left_out_command"] = again([each.audit for each in done.left_out])
    empty = [
        audit.name
        for audit, found in zip(done.audits, done.findings, strict=True)
        if not (found.measurements or found.exhibits)
    ]
    if empty:
        told["audits_without_numbers"] = empty
    if pictures:
        told["pictures_left_out"] = pictures
    return told
