"""Audit one trained classifier, from Python."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearance.audits import Audit
from clearance.data import ImageSet, open_images
from clearance.experiments.audit_sources import SETTING
from clearance.experiments.auditing import audit_model, chosen_audits
from clearance.experiments.build import RunData
from clearance.experiments.catalogue import named_audits
from clearance.experiments.compare import report_with
from clearance.experiments.feature_cache import FeatureCache
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings
from clearance.models import Classifier
from clearance.models._observe import evaluating
from clearance.records import ExhibitRecord, Record
from clearance.regimes._inputs import check_classifier, check_logits
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
        train: The images that it was trained on: an ImageSet, (images, labels), a map-style Dataset, a DataLoader, a
            Hugging Face dataset, ``"folder:PATH"`` or ``"npz:PATH"``; see :func:`clearance.data.open_images`.
        test: Held-out images with the same classes.
        audits: Names of audits; by default accuracy, co_adaptation and class_scatter. ``["all"]`` is every one.
        seed: Decides partial sets and first weights of fresh heads.
        name: What the card calls the model.

    Raises:
        TypeError: If `model` is not a Classifier.
        ValueError: If an audit is unknown, the data are not as they should be, or the model has fewer outputs than
            the data have classes.

    >>> import torch
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> card = audit(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), train=train, test=test,
    ...              audits=["accuracy"])
    >>> [m.context["split"] for m in card.measurements]
    ['test', 'train']
    """
    check_classifier(model)
    data = RunData(open_images(train), open_images(test))
    check_logits(_first_logits(model, data.test), data.test)
    names = Recipe().audits if audits is None else audits
    return audited(model, data, chosen_audits(named_audits(names)), seed, name, "clearance.audit(...)")


def _first_logits(model: Classifier, images: ImageSet) -> Tensor:
    device = next(model.parameters()).device
    with evaluating(model):
        logits: Tensor = model(images.batch(torch.tensor([0]))[0].to(device))
    return logits


def audited(
    model: Classifier,
    data: RunData,
    audits: Sequence[Audit],
    seed: int,
    name: str,
    command: str,
    sources: Mapping[str, str] | None = None,
    told: Mapping[str, Any] | None = None,
    cache: FeatureCache | None = None,
) -> Card:
    """The card of one classifier.

    Args:
        model: The classifier.
        data: The images that it was trained on, and held-out ones.
        audits: What is asked.
        seed: Decides whatever the audits draw.
        name: What the card calls the model.
        command: What makes the report again.
        sources: By audit, which method's network images were made on.
        told: Further settings for the report to keep.
        cache: Where features are kept.
    """
    findings = audit_model(model, data, audits, seed, cache=cache)
    where = (data.test.name, name, seed)
    found = RunFindings(
        None,
        tuple(Record(*where, m) for f in findings for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for f in findings for e in f.exhibits),
    )
    named = {name: {SETTING: source} for name, source in (sources or {}).items()}
    settings = {
        **(told or {}),
        "dataset": data.test.name,
        "seed": seed,
        "audits": [{**describe(audit), **named.get(audit.name, {})} for audit in audits],
    }
    return Card(report_with(settings, [found], command))
