"""One method, one seed: train, audit, and turn what was found into records."""

import copy
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearance._rng import derived_seed
from clearance.audits import Findings, WeightScale
from clearance.experiments.auditing import audit_model
from clearance.experiments.build import RunData, build_model, build_regime
from clearance.experiments.decay_findings import decay_findings
from clearance.experiments.draws import drawn_data
from clearance.experiments.epoch_findings import epoch_findings
from clearance.experiments.optimizer import build_optimizer, build_schedule
from clearance.experiments.peak_memory import PeakMemory
from clearance.experiments.plan import RunPlan
from clearance.experiments.recipe import to_tree
from clearance.experiments.trained_start import FACTS, extractor_name
from clearance.experiments.training_findings import training_findings
from clearance.models import Classifier
from clearance.models._channels_last import with_channels_last
from clearance.records import ExhibitRecord, Record, RunNote
from clearance.regimes import FitResult, fit
from clearance.regimes.describe import describe
from clearance.regimes.fit import Progress
from clearance.runs import write_json
from clearance.vocabulary import Outcome

FINDINGS = "findings.json"


_GIVEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # layers to train that callers' functions have built


@dataclass(frozen=True)
class RunFindings:
    """What one run left behind; `note` is None for a model that was not trained here."""

    note: RunNote | None
    records: tuple[Record, ...]
    exhibits: tuple[ExhibitRecord, ...]


def run_method(
    plan: RunPlan,
    data: RunData,
    directory: Path | None = None,
    on_step: Callable[[Progress], object] | None = None,
    on_audit: Callable[[str], object] | None = None,
    own_process: bool = False,
) -> RunFindings:
    """Train and audit; what is finished in `directory` already is read back, not done again.

    Args:
        plan: What to run.
        data: Its images, before what is drawn for the seed.
        directory: Where runs are kept, each in a folder of its own; None keeps nothing.
        on_step: Told of the progress of training.
        on_audit: Told the name of each audit before it starts.
        own_process: Whether this process does nothing else, so that its memory is that of the run.
    """
    data = drawn_data(plan.recipe, data, plan.seed)
    audits = plan.resolved_audits(data, directory)  # a wrong name, a source that is not there: found at once
    named = plan.regime is None and plan.model is None  # then the folder's name says everything
    if directory is not None and named and (kept := _kept(plan, data, directory)) is not None:
        return kept
    folder = None if directory is None else directory / plan.folder
    # what was begun before was measured by nobody
    memory = PeakMemory() if own_process and (folder is None or not folder.exists()) else None
    model = _fresh_model(plan, data)
    # a copy: no seed may start from what the caller's objective learnt under the one before
    regime = (
        copy.deepcopy(plan.regime) if plan.regime is not None else build_regime(plan.settings, model=model)
    )
    stepper = build_optimizer(plan.settings, model)
    result = fit(
        model,
        regime,
        data.train,
        epochs=plan.recipe.epochs if plan.recipe.steps is None else None,
        steps=plan.recipe.steps,
        batch_size=plan.recipe.batch_size,
        optimizer=stepper,
        schedule=build_schedule(plan.recipe),
        validation=data.validation,
        watched={"test": data.test} if plan.recipe.label_noise > 0 or data.validation is not None else None,
        clip_norm=plan.settings.clip_norm,
        max_norm=plan.settings.max_norm,
        seed=plan.seed,
        autocast=torch.bfloat16 if plan.recipe.autocast else None,
        compile_extractor=plan.recipe.compile_extractor,
        label_noise=plan.recipe.label_noise,
        run_dir=folder,
        on_step=on_step,
    )
    if directory is not None and (kept := _kept(plan, data, directory)) is not None:
        return kept  # fit found that the caller's model and regime are those of the finished run
    # before audits add theirs
    training = training_findings(result, _memory_before(folder) if memory is None else memory.added())
    findings = audit_model(model, data, audits, plan.seed, on_audit)
    epochs = epoch_findings(result, len(data.test))
    if WeightScale.name in plan.audit_plan.names:
        findings.append(decay_findings(result.model, regime, stepper))
    found = _as_records(plan, data, result, [training, epochs, *findings])
    if folder is not None:
        _keep(found, plan, data, folder)
    return found


def _memory_before(folder: Path | None) -> float | None:
    """What training added when it ran, of a run that is audited anew; None where nobody measured it."""
    kept = () if folder is None or (tree := _tree_in(folder)) is None else _from_tree(tree).records
    own = (r.measurement for r in kept if (r.measurement.audit, r.measurement.name) == ("training", "memory"))
    return next((found.value for found in own), None)


def _keep(found: RunFindings, plan: RunPlan, data: RunData, folder: Path) -> None:
    """What `_kept` reads back, after what a model is built from again."""
    if plan.model is None:
        write_json(folder / FACTS, _model_facts(plan, data))
    write_json(folder / FINDINGS, {"identity": _identity(plan, data), **_to_tree(found)})


def _fresh_model(plan: RunPlan, data: RunData) -> Classifier:
    if plan.model is None:
        model = build_model(plan.recipe.model, plan.settings, data.train, plan.seed)
        return with_channels_last(model) if plan.recipe.channels_last else model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(plan.seed, "model"))
        model = plan.model()
    if not isinstance(model, Classifier):
        raise TypeError(
            f"`model` must build a clearance Classifier; got {type(model).__name__}. Return one, or "
            "clearance.wrap(module, example=images)."
        )
    _check_fresh(model)
    return model


def _check_fresh(model: Classifier) -> None:
    """Refuse layers that were given before; what is frozen may be shared, and so may what has no weights."""
    trained = [
        layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))
    ]
    if any(layer in _GIVEN for layer in trained):
        raise ValueError(
            "`model` must build a fresh classifier at every call; it returned layers that it had returned before, "
            "which would train on from method to method. Build them inside the function."
        )
    _GIVEN.update(trained)


def _as_records(plan: RunPlan, data: RunData, result: FitResult, findings: Sequence[Findings]) -> RunFindings:
    where = (data.train.name, plan.method, plan.seed)
    return RunFindings(
        RunNote(plan.method, plan.seed, result.status.outcome, str(result.status)),
        tuple(Record(*where, m) for f in findings for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for f in findings for e in f.exhibits),
    )


def _model_facts(plan: RunPlan, data: RunData) -> dict[str, Any]:
    """What it takes to build the trained model again without its data."""
    return {
        "model": extractor_name(plan.recipe.model),
        "method": to_tree(plan.settings),
        "shape": list(data.train.shape),
        "classes": list(data.train.classes),
        "recipe": to_tree(plan.recipe),
        "seed": plan.seed,
        "name": plan.method,
    }


def kept_findings(plan: RunPlan, data: RunData, directory: Path) -> RunFindings | None:
    """What a finished run left in `directory`, if it was audited in the same way on the same images.

    Args:
        plan: The run.
        data: Its images, before what is drawn for the seed.
        directory: Where runs are kept.
    """
    if not (directory / plan.folder / FINDINGS).exists():
        return None
    return _kept(plan, drawn_data(plan.recipe, data, plan.seed), directory)


def _kept(plan: RunPlan, data: RunData, directory: Path) -> RunFindings | None:
    kept = _tree_in(directory / plan.folder)
    return _from_tree(kept) if kept is not None and kept["identity"] == _identity(plan, data) else None


def _tree_in(folder: Path) -> dict[str, Any] | None:
    """The findings in a run's folder; None where there are none, or half a file, which is then measured again."""
    try:
        tree: dict[str, Any] = json.loads((folder / FINDINGS).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return tree


def _identity(plan: RunPlan, data: RunData) -> Any:
    """What findings depend on besides the run itself, as JSON gives it back (lists for tuples)."""
    audits = describe(plan.audit_plan.audits)
    versions = {name: version(name) for name in ("torch-clearance", "torch")}
    told = {"audits": audits, "test": data.test.digest(), "train": data.train.digest(), "versions": versions}
    if plan.sources:
        told["sources"] = {audit: run.folder for audit, run in plan.sources.items()}
    if data.train.augmentation is not None:
        told["augmentation"] = describe(data.train.augmentation)
    return json.loads(json.dumps(told))


def _to_tree(found: RunFindings) -> dict[str, Any]:
    return {
        "note": None if found.note is None else found.note.to_json(),
        "records": [record.to_json() for record in found.records],
        "exhibits": [exhibit.to_json() for exhibit in found.exhibits],
    }


def _from_tree(tree: Mapping[str, Any]) -> RunFindings:
    return RunFindings(
        None if tree["note"] is None else RunNote.from_json(tree["note"]),
        tuple(Record.from_json(row) for row in tree["records"]),
        tuple(ExhibitRecord.from_json(row) for row in tree["exhibits"]),
    )


def failed(plan: RunPlan, reason: str) -> RunFindings:
    """What is recorded of a run that broke down before it could be measured."""
    return RunFindings(RunNote(plan.method, plan.seed, Outcome.STOPPED, f"failed: {reason}"), (), ())
