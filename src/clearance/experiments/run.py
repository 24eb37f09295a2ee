"""One run, a method under a seed: its plan, training, audits, and the records of its findings."""

import copy
import dataclasses
import hashlib
import json
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from clearance._checks import check_count
from clearance._describe import describe
from clearance._processes import from_first, process_rank
from clearance._rng import cuda_in_use, derived_seed
from clearance.audits import Audit, Findings, Subject, WeightScale
from clearance.audits.weight_scale import decayed_parameters
from clearance.data import ImageSet
from clearance.experiments.audit_plan import OTHER, VALIDATION, AuditPlan, named_images
from clearance.experiments.auditing import bounded_audits
from clearance.experiments.build import RunData, build_optimizer, build_schedule, build_way, drawn_data
from clearance.experiments.method import Method
from clearance.experiments.peak_memory import PeakMemory
from clearance.experiments.recipe import Recipe, identifier, to_tree
from clearance.experiments.saved import FACTS, build_model, extractor_name, started_from
from clearance.experiments.spread import spread_over
from clearance.models import Classifier
from clearance.models._running import device_named, with_channels_last
from clearance.records import ExhibitRecord, Record, RunNote
from clearance.records.record import LeftOut
from clearance.runs import check_finished, read_file, write_files
from clearance.runs.directory import MODEL, RUN
from clearance.training import Execution, FitResult, Limits, WayOfTraining, fit
from clearance.training.fit import Progress
from clearance.vocabulary import Exhibit, Measurement, Outcome

FIRST_SOURCE = 1000
"""For seed 0, the seed of the network that audits make images on; above all seeds of a comparison."""


@dataclass(frozen=True)
class RunPlan:
    """The plan of one run: a method of a recipe under one seed.

    Args:
        recipe: The whole comparison; only the settings of this run identify it.
        method: Name of the method.
        seed: Seed of first weights, batch order and partial sets.
        way: Replaces the method's way of training (for users' own losses and ways of training).
        model: Builds a fresh classifier that replaces the recipe's; called under the run's seed.
        audits: Replace the recipe's.
    """

    recipe: Recipe
    method: str
    seed: int
    way: WayOfTraining | None = None
    model: Callable[[], Classifier] | None = None
    audits: AuditPlan | None = None

    def __post_init__(self) -> None:
        check_count("seed", self.seed, minimum=0)

    @property
    def settings(self) -> Method:
        """The method's settings."""
        return self.recipe.methods[self.method]

    @property
    def title(self) -> str:
        """The run's name in progress output."""
        return f"{self.method}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Name of the run's directory; it changes with every setting that can change the run's numbers."""
        shared = to_tree(self.recipe)
        for name in ("methods", "seeds", "audits", "audit_settings", "root"):
            del shared[name]
        settings = {"recipe": shared, "name": self.method, "method": to_tree(self.settings)}
        settings["way"] = describe(self.way)
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.method)
        return f"{safe}-seed{self.seed}-{identifier(settings)}"

    @property
    def is_named(self) -> bool:
        """Whether the folder's name identifies the run, which has no network, loss or way of the caller's."""
        return self.way is None and self.model is None

    @property
    def audit_plan(self) -> AuditPlan:
        """The audits of the trained network.

        Raises:
            ValueError: If the recipe has an unknown name, setting or source.
        """
        return AuditPlan.of_recipe(self.recipe) if self.audits is None else self.audits

    def resolved_audits(self, data: RunData, directory: Path | None, **given: Any) -> tuple[Audit, ...]:
        """The audits with everything they need.

        Args:
            data: The images drawn for the run's seed. A validation set with noisy labels is not used for choices.
            directory: The folder for runs; it must contain those of `sources`.
            given: More arguments of :meth:`AuditPlan.resolved`.

        Raises:
            ValueError, FileNotFoundError: As :meth:`AuditPlan.resolved`.
        """
        folders = {
            audit: None if directory is None else directory / run.folder
            for audit, run in self.sources.items()
        }
        return self.audit_plan.resolved(
            test=data.test,
            validation=data.validation if self.recipe.label_noise == 0 else None,
            networks=folders,
            root=self.recipe.root,
            **given,
        )

    @property
    def sources(self) -> Mapping[str, "RunPlan"]:
        """The run of the network that an audit makes its images on, by audit.

        ``audit_settings: {robustness: {source: plain}}`` in a recipe asks for it. It is an additional run of
        the named method, under a seed that no other run has: the same for all methods of a seed, and never the
        attacked network itself.

        Raises:
            ValueError: If the recipe does not have the named method.

        >>> recipe = Recipe(audits=("robustness",), audit_settings={"robustness": {"source": "plain"}},
        ...                 methods={"plain": Method(), "mine": Method(lr=0.1)})
        >>> [(audit, run.method, run.seed) for audit, run in RunPlan(recipe, "mine", 2).sources.items()]
        [('robustness', 'plain', 1002)]
        """
        bare = dataclasses.replace(self.recipe, audits=(), audit_settings={})
        named = self.audit_plan.sources
        return {audit: RunPlan(bare, name, FIRST_SOURCE + self.seed) for audit, name in named.items()}


def sources_of(plans: Iterable[RunPlan]) -> list[RunPlan]:
    """The runs whose networks the audits of `plans` need, each once, in the order of their first use.

    >>> sources_of([RunPlan(Recipe(methods={"plain": Method()}), "plain", 0)])
    []
    """
    return list({run.folder: run for plan in plans for run in plan.sources.values()}.values())


NOT_LOSSES = ("epoch", "step", "lr", "validation_error", "test_error")


def training_findings(result: FitResult, memory: float | None = None) -> Findings:
    """Time, steps, memory and weak heads of a run, and its curves.

    Args:
        result: The result of ``fit``.
        memory: Peak memory of training minus the process's memory before it, in MiB; None if the process is shared.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> from clearance.models import Classifier
    >>> from clearance.vocabulary import Outcome, Status
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> found = training_findings(FitResult(model, Status(Outcome.FINISHED, 3), seconds=1.5), memory=30.0)
    >>> [(m.name, m.value) for m in found.measurements]
    [('seconds', 1.5), ('steps', 3), ('memory', 30.0)]
    """
    steps = result.status.step
    found = [
        Measurement("training", "seconds", result.seconds, "seconds", max(steps, 1), better="lower"),
        Measurement("training", "steps", steps, "count", 1),
    ]
    if memory is not None:
        found.append(Measurement("training", "memory", memory, "MiB", 1, better="lower"))
    if result.counts.get("drawn_heads"):
        drawn, bad = result.counts["drawn_heads"], result.counts["diverged_heads"]
        found.append(Measurement("training", "diverged_heads", bad, "count", drawn, better="lower"))
    return Findings(tuple(found), _curves(result))


def _curves(result: FitResult) -> tuple[Exhibit, ...]:
    curves = []
    if result.history:
        columns = {
            "step": [row["step"] for row in result.history],
            "loss": [sum(v for name, v in row.items() if name not in NOT_LOSSES) for row in result.history],
        }
        caption = "Training loss, averaged over each pass through the training images."
        curves.append(Exhibit("training", "curve", "curve", columns, caption))
    if result.diagnostics:
        names = [name for name in result.diagnostics[0] if name != "epoch"]
        columns = {name: [row[name] for row in result.diagnostics] for name in names}
        caption = "Weak heads on images that they were not trained on: accuracy, and the share at chance."
        curves.append(Exhibit("training", "weak_heads", "curve", columns, caption))
    return tuple(curves)


LABELS = {"validation_error": "validation error", "test_error": "test error"}


def _epoch_sets(recipe: Recipe, data: RunData) -> dict[str, ImageSet]:
    """The sets measured after every epoch: validation images, and with these or with noisy labels the test set."""
    kept = {} if data.validation is None else {"validation": data.validation}
    return {**kept, "test": data.test} if kept or recipe.label_noise > 0 else {}


def epoch_findings(result: FitResult, test_images: int) -> Findings:
    """The errors after every epoch as a picture, and the test error at the epoch that validation chooses.

    Nothing is chosen by the test curve: the verdict is that of the last epoch. The error at the first epoch with the
    lowest validation error is measured too; validation labels are as noisy as training labels.

    `result` is that of ``fit`` with ``validation={"test": ...}``; without it there are no findings. `test_images` is
    the number of images of the test error.

    >>> from clearance.heads import MLP
    >>> from clearance.models import Classifier
    >>> from clearance.vocabulary import Outcome, Status
    >>> import torch
    >>> rows = [{"epoch": 1, "validation_error": 0.4, "test_error": 0.1},
    ...         {"epoch": 2, "validation_error": 0.5, "test_error": 0.05}]
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> found = epoch_findings(FitResult(model, Status(Outcome.FINISHED, 2), rows), 20)
    >>> [(m.name, m.value) for m in found.measurements]
    [('early_stopped_error', 0.1), ('early_stopped_epoch', 1)]
    """
    rows = [row for row in result.history if "test_error" in row]
    if not rows:
        return Findings(())
    shown = [name for name in LABELS if name in rows[0]]
    columns = {
        "epoch": [row["epoch"] for row in rows],
        **{LABELS[name]: [row[name] for row in rows] for name in shown},
    }
    caption = (
        "Errors after every epoch; validation labels are as noisy as training labels. The test error is "
        "for the picture only: nothing was chosen by it."
    )
    picture = Exhibit("training", "epochs", "curve", columns, caption)
    if "validation_error" not in rows[0]:
        return Findings((), (picture,))
    best = min(rows, key=lambda row: row["validation_error"])
    context = {"chosen_on": "validation"}
    error = Measurement(
        "training", "early_stopped_error", best["test_error"], "fraction", test_images, better="lower", context=context
    )  # fmt: skip
    epoch = Measurement("training", "early_stopped_epoch", best["epoch"], "count", len(rows), context=context)
    return Findings((error, epoch), (picture,))


def decay_findings(model: Classifier, way: WayOfTraining, build: Callable[..., Optimizer]) -> Findings:
    """One row for each parameter of the network: what weight decay the run's optimiser applies to it.

    The way selects the trained parameters; `build` makes the optimiser from them, as for training.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> from clearance.losses import CrossEntropyLoss
    >>> from clearance.training import EndToEnd
    >>> model = Classifier(torch.nn.Flatten(), MLP((4, 2)))
    >>> build = lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1)
    >>> decay_findings(model, EndToEnd(CrossEntropyLoss()), build).exhibits[0].columns["how"]
    ['decoupled', 'decoupled']
    """
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    rows = decayed_parameters(model, build(list(way.trainable(model))))
    columns: dict[str, Sequence[Any]] = {
        "name": [row.name for row in rows],
        "role": [row.role for row in rows],
        "numbers": [sizes[row.name] for row in rows],
        "weight_decay": [row.weight_decay for row in rows],
        "how": [row.how for row in rows],
    }
    caption = "What weight decay did to each parameter of the network while it was trained."
    return Findings((), (Exhibit(WeightScale.name, "decay", "curve", columns, caption),))


FINDINGS = "findings.json"


_GIVEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # trainable layers that callers' functions have built


@dataclass(frozen=True)
class RunFindings:
    """The results of one run; `note` is None for a model that was not trained here, `left_out` are failed audits."""

    note: RunNote | None
    records: Sequence[Record]
    exhibits: tuple[ExhibitRecord, ...]
    left_out: tuple[LeftOut, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The findings as JSON values."""
        return {
            "note": None if self.note is None else self.note.to_json(),
            "records": [record.to_json() for record in self.records],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "left_out": [dataclasses.asdict(left) for left in self.left_out],
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "RunFindings":
        """The findings that `to_json` wrote; failed audits may be missing.

        Raises:
            LookupError, TypeError, ValueError: Something else is missing, or of another form.

        >>> found = RunFindings(None, (), ())
        >>> RunFindings.from_json(found.to_json()) == found
        True
        """
        return cls(
            None if tree["note"] is None else RunNote.from_json(tree["note"]),
            tuple(Record.from_json(row) for row in tree["records"]),
            tuple(ExhibitRecord.from_json(row) for row in tree["exhibits"]),
            tuple(LeftOut(**row) for row in tree.get("left_out", [])),
        )


_warn = logging.getLogger(__name__).warning  # reaches stderr unless logging is configured otherwise


def run_method(
    plan: RunPlan,
    data: RunData,
    directory: Path | None = None,
    on_step: Callable[[Progress], object] | None = None,
    on_audit: Callable[[str], object] | None = None,
    own_process: bool = False,
) -> RunFindings:
    """Train and audit; a run that is finished in `directory` is read back instead.

    `data` are the images before the seed's sample and noise are drawn. `directory` has a subfolder for each run; None
    stores no runs. `on_audit` is called with the name of each audit before it starts. `own_process` means that this
    process only does this run, so that its memory can be measured.
    """
    data = drawn_data(plan.recipe, data, plan.seed)
    audits = plan.resolved_audits(data, directory)  # raises early for a wrong name or a missing source
    if (
        directory is not None
        and plan.is_named
        and (kept := _kept_by_first(plan, data, directory)) is not None
    ):
        return kept
    folder = None if directory is None else directory / plan.folder
    # of a resumed run the earlier memory is unknown
    memory = PeakMemory() if own_process and (folder is None or not (folder / RUN).exists()) else None
    model = _fresh_model(plan, data).to(device_named("auto"))
    # a copy: no seed may start from the caller's loss as another seed trained it
    way = copy.deepcopy(plan.way) if plan.way is not None else build_way(plan.settings, model=model)
    stepper = build_optimizer(plan.settings, model)
    result = fit(
        model,
        way,
        data.train,
        epochs=plan.recipe.epochs if plan.recipe.steps is None else None,
        steps=plan.recipe.steps,
        batch_size=plan.recipe.batch_size,
        optimizer=stepper,
        schedule=build_schedule(plan.recipe),
        validation=_epoch_sets(plan.recipe, data),
        limits=Limits(plan.settings.clip_norm, plan.settings.max_norm),
        execution=Execution(torch.bfloat16 if plan.recipe.autocast else None, plan.recipe.compile_extractor),
        seed=plan.seed,
        label_noise=plan.recipe.label_noise,
        run_dir=folder,
        on_step=on_step,
    )
    if directory is not None and (kept := _kept_by_first(plan, data, directory)) is not None:
        return kept  # fit found that the caller's model and way of training are those of the finished run
    # before audits add theirs
    training = training_findings(result, _memory_before(folder) if memory is None else memory.added())
    with spread_over(None) as workers:
        subject = Subject(model, data.train, data.test, plan.seed, data.new_classes, workers)
        done = bounded_audits(subject, audits, on_audit=on_audit)
    for left in done.left_out:
        _warn(f"audit {left.audit} failed: {left.reason}")
    findings = list(done.findings)
    epochs = epoch_findings(result, len(data.test))
    if WeightScale.name in plan.audit_plan.names:
        findings.append(decay_findings(result.model, way, stepper))
    found = dataclasses.replace(
        _as_records(plan, data, result, [training, epochs, *findings]), left_out=tuple(done.left_out)
    )
    if folder is not None and process_rank() == 0:
        _keep(found, plan, data, folder)
    return found


def _kept_by_first(plan: RunPlan, data: RunData, directory: Path) -> RunFindings | None:
    """What the first of the processes that train together reads, so that all of them do the same."""
    kept: RunFindings | None = from_first(_kept(plan, data, directory) if process_rank() == 0 else None)
    return kept


def _memory_before(folder: Path | None) -> float | None:
    """The memory of training, for a run that is audited again; None if it was not measured."""
    kept = () if folder is None or (stored := _stored(folder)) is None else stored[1].records
    own = (r.measurement for r in kept if (r.measurement.audit, r.measurement.name) == ("training", "memory"))
    return next((found.value for found in own), None)


def _keep(found: RunFindings, plan: RunPlan, data: RunData, folder: Path) -> None:
    """Write the facts for rebuilding the model, then the findings for `_kept`."""
    files: dict[str, Any] = {} if plan.model is not None else {FACTS: _model_facts(plan, data)}
    files[FINDINGS] = {"identity": _identity(plan, data), **found.to_json()}
    write_files(
        folder, {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in files.items()}
    )


def _fresh_model(plan: RunPlan, data: RunData) -> Classifier:
    if plan.model is None:
        model = build_model(plan.recipe.model, plan.settings, data.train, plan.seed)
        return with_channels_last(model) if plan.recipe.channels_last else model
    with torch.random.fork_rng(devices=cuda_in_use()):  # the function may build on a GPU
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
    """Raise for trainable layers that were returned before; frozen layers may be shared."""
    trained = [
        layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))
    ]
    if any(layer in _GIVEN for layer in trained):
        raise ValueError(
            "`model` must build a fresh classifier at every call; it returned layers of an earlier call, which "
            "all methods would then train. Build them inside the function."
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
    """Everything needed to rebuild the trained model without its data."""
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
    """The findings of a finished run in `directory`, if it was audited in the same way on the same images.

    `data` are the images before the seed's sample and noise are drawn.

    Raises:
        ValueError: If its trained weights, or what was logged, are missing or damaged.
    """
    if not plan.is_named:  # `fit` knows whether it is the same
        return None
    if not (directory / plan.folder / FINDINGS).exists():
        return None
    return _kept(plan, drawn_data(plan.recipe, data, plan.seed), directory)


def _kept(plan: RunPlan, data: RunData, directory: Path) -> RunFindings | None:
    folder = directory / plan.folder
    stored, now = _stored(folder), _identity(plan, data)
    if stored is not None and isinstance(stored[0], dict) and "start" not in now:
        stored[0].pop("start", None)  # the run that it started from is gone
    if stored is None or stored[0] != now or stored[1].left_out:
        return None  # also if an audit failed: it is tried again
    check_finished(folder)
    if plan.model is None:
        try:
            read_file(folder, FACTS)
        except ValueError:  # missing or damaged: it is written again with new findings
            return None
    return stored[1]


def _stored(folder: Path) -> tuple[Any, RunFindings] | None:
    """The findings in a run's folder, and what they depend on.

    None if there are none or the file is damaged: the run is then audited again.
    """
    try:
        tree = json.loads(read_file(folder, FINDINGS))
        return tree["identity"], RunFindings.from_json(tree)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _identity(plan: RunPlan, data: RunData) -> Any:
    """Everything that findings depend on, except the run itself, as JSON values."""
    audits = describe(plan.audit_plan.audits)
    versions = {name: version(name) for name in ("torch-clearance", "torch")}
    found = {"audits": audits, "test": data.test.digest(), "train": data.train.digest(), "versions": versions}
    if plan.sources:
        found["sources"] = {audit: run.folder for audit, run in plan.sources.items()}
    if data.train.augmentation is not None:
        found["augmentation"] = describe(data.train.augmentation)
    if data.new_classes is not None:
        found["new classes"] = [images.digest() for images in data.new_classes]
    named = {
        f"{audit.name}.{setting}": named_images(setting, given, data.test).digest()
        for audit in plan.audit_plan.audits
        for setting in (OTHER, VALIDATION)
        if isinstance(given := getattr(audit, setting, None), str) and ":" in given
    }
    if named:
        found["named images"] = named
    start = started_from(plan.recipe.model)
    if start is not None and (weights := start / MODEL).exists():
        found["start"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    return json.loads(json.dumps(found))


FAILED_RUN = "failed:"  # the start of its note


def failed(plan: RunPlan, reason: str) -> RunFindings:
    """The record of a run that failed before it could be measured."""
    return RunFindings(RunNote(plan.method, plan.seed, Outcome.STOPPED, f"{FAILED_RUN} {reason}"), (), ())
