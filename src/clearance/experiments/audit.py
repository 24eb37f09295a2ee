"""Audit one trained classifier, from Python."""

from collections.abc import Sequence
from typing import Any

from clearance.audits import Audit
from clearance.data import as_image_set
from clearance.experiments.auditing import audit_model, chosen_audits
from clearance.experiments.build import RunData
from clearance.experiments.catalogue import named_audits
from clearance.experiments.compare import report_with
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings
from clearance.models import Classifier
from clearance.records import ExhibitRecord, Record
from clearance.regimes.describe import describe
from clearance.report import Card


def audit(
    model: Classifier,
    *,
    train: Any,
    test: Any,
    audits: Sequence[str] | None = None,
    seed: int = 0,
    name: str = "this model",
) -> Card:
    """Audit a trained classifier and return a card that shows itself in a notebook.

    Args:
        model: A Classifier; make one of any ``nn.Module`` with :func:`clearance.wrap`.
        train: The images that it was trained on: an ImageSet, a map-style Dataset, or (images, labels).
        test: Held-out images with the same classes.
        audits: Names of audits; by default accuracy, co_adaptation and class_scatter. ``["all"]`` is every one.
        seed: Decides partial sets and first weights of fresh heads.
        name: What the card calls the model.

    Raises:
        TypeError: If `model` is not a Classifier.
        ValueError: If an audit is unknown or the data are not as they should be.

    >>> import torch
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> card = audit(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), train=train, test=test,
    ...              audits=["accuracy"])
    >>> [m.context["split"] for m in card.measurements]
    ['test', 'train']
    """
    if not isinstance(model, Classifier):
        raise TypeError(
            f"`model` must be a clearance Classifier; got {type(model).__name__}. Make one with "
            "clearance.wrap(module, example=images)."
        )
    data = RunData(as_image_set(train), as_image_set(test))
    names = Recipe().audits if audits is None else audits
    return audited(model, data, chosen_audits(named_audits(names)), seed, name, "clearance.audit(...)")


def audited(
    model: Classifier, data: RunData, audits: Sequence[Audit], seed: int, name: str, command: str
) -> Card:
    """The card of one classifier under the given audits."""
    findings = audit_model(model, data, audits, seed)
    where = (data.test.name, name, seed)
    found = RunFindings(
        None,
        tuple(Record(*where, m) for f in findings for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for f in findings for e in f.exhibits),
    )
    settings = {"dataset": data.test.name, "seed": seed, "audits": describe(list(audits))}
    return Card(report_with(settings, [found], command))
