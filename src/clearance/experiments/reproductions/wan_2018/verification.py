"""Whether likelihoods tell FGSM images from ordinary ones (the paper's figure 4), by the audit of likelihoods.

The audit is named, not imported: where the catalogue does not have it, nothing is trained.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

from clearance._checks import check_choice
from clearance.experiments.catalogue import AUDITS
from clearance.experiments.grid import Listener, plans_of, run_grid
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.sato_2019.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018.protocol import base_recipe
from clearance.experiments.reproductions.wan_2018.study import Column, StudyOf, method_table, seeds_told
from clearance.records import Report

AUDIT = "likelihood"
SETTINGS: dict[str, Any] = {}  # of the audit that differ from its defaults
CURVE = "auroc"


def run(
    out: Path,
    *,
    seeds: int | None,
    jobs: int,
    listener: Listener,
    dataset: str = "digits",
    root: str | None = None,
) -> Path:
    """Train every method, audit its likelihoods, and write the ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, report and runs are kept.
        seeds: Runs of each method; those of the recipe, 5, by default.
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: digits, mnist, cifar10 or cifar100.
        root: The folder that holds its files. Without them the ledger says "not run: no data".

    Raises:
        ValueError: If the catalogue has no audit of likelihoods.
    """
    check_choice("audit", AUDIT, AUDITS)
    recipe = verification_recipe(dataset, root, seeds)
    study = StudyOf("verification", dataset, partial(sections, dataset=dataset))
    if (data := data_if_there(recipe)) is None:
        return study.without_data(recipe, seeds, out)
    found = run_grid(plans_of(recipe), data, out / "runs", jobs, listener)
    return study.written(recipe, found, seeds, out)


def verification_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The paper's recipe, audited for likelihoods.

    >>> verification_recipe("digits").audits
    ('accuracy', 'likelihood')
    """
    start = base_recipe(dataset, root, seeds)
    settings = {**start.audit_settings, AUDIT: SETTINGS} if SETTINGS else start.audit_settings
    return dataclasses.replace(start, audits=(*start.audits, AUDIT), audit_settings=settings)


def sections(report: Report, dataset: str) -> list[str]:
    """For every measurement of detection that the audit made, a row of areas under the ROC curve."""
    text = [
        "## How well likelihoods tell attacked images from ordinary ones",
        "Area under the ROC curve (0.5 is chance, 1 apart). Each method's own likelihood is in a unit of its own: "
        f"areas can be compared, log-densities cannot. An attacker who knows of it can evade it. {seeds_told(report)}",
    ]
    contexts = {
        tuple(sorted(r.measurement.context.items(), key=str)): dict(r.measurement.context)
        for r in report.records
        if (r.measurement.audit, r.measurement.name) == (AUDIT, CURVE)
    }
    tables: dict[str, list[Column]] = {}
    for context in contexts.values():
        rest = ", ".join(
            f"{key} {value}" for key, value in context.items() if key not in ("epsilon", "interval")
        )
        quantity = Quantity("", AUDIT, CURVE, "fraction", context, better="higher")
        head = f"epsilon {context['epsilon']:g}" if isinstance(context.get("epsilon"), float) else "area"
        tables.setdefault(rest, []).append(Column(head, quantity))
    for rest, columns in tables.items():
        text += [f"### {rest}", method_table(report, columns, dataset)]
    return text if tables else [*text, "Nothing was measured."]
