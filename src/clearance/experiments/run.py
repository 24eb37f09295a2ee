"""One run, a method under a seed: its plan, training, audits, and records of what was found."""

import copy
import dataclasses
import json
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
from clearance._rng import derived_seed
from clearance.audits import Audit, Findings, WeightScale
from clearance.audits.weight_scale import decayed_parameters
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.auditing import audit_model
from clearance.experiments.build import RunData, build_optimizer, build_schedule, build_way, drawn_data
from clearance.experiments.method import Method
from clearance.experiments.peak_memory import PeakMemory
from clearance.experiments.recipe import Recipe, identifier, to_tree
from clearance.experiments.saved import FACTS, build_model, extractor_name
from clearance.models import Classifier
from clearance.models._running import with_channels_last
from clearance.records import ExhibitRecord, Record, RunNote
from clearance.runs import write_json
from clearance.runs.describe import describe
from clearance.training import FitResult, WayOfTraining, fit
from clearance.training.fit import Progress
from clearance.vocabulary import Exhibit, Measurement, Outcome

FIRST_SOURCE = 1000
"""The seed of the network for seed 0 that audits make images on: above every seed that a comparison reaches."""


@dataclass(frozen=True)
class RunPlan:
    """What one run is: a method of a recipe under one seed.

    Args:
        recipe: The whole comparison; only what concerns this run identifies it.
        method: Name of the method.
        seed: Decides first weights, batch order, partial sets.
        way: Takes the place of the method's way of training (for losses and ways of training written by users).
        model: Builds a fresh classifier in place of the recipe's; called under the run's seed.
        audits: In place of the recipe's.
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
        """The method's numbers."""
        return self.recipe.methods[self.method]

    @property
    def title(self) -> str:
        """What people who wait for it are told."""
        return f"{self.method}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Name of the run's directory: it changes when anything changes that can move the run's numbers."""
        shared = to_tree(self.recipe)
        for name in ("methods", "seeds", "audits", "audit_settings", "root"):
            del shared[name]
        told = {"recipe": shared, "name": self.method, "method": to_tree(self.settings)}
        told["way"] = describe(self.way)
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.method)
        return f"{safe}-seed{self.seed}-{identifier(told)}"

    @property
    def audit_plan(self) -> AuditPlan:
        """What is asked of the trained network.

        Raises:
            ValueError: If the recipe has a name, setting or source that nothing has.
        """
        return AuditPlan.of_recipe(self.recipe) if self.audits is None else self.audits

    def resolved_audits(self, data: RunData, directory: Path | None, **given: Any) -> tuple[Audit, ...]:
        """The audits with all that they need.

        Args:
            data: What was drawn for the run's seed. Images kept back whose labels are noisy are not chosen by.
            directory: Where runs are kept: those of `sources` must be among them.
            given: What else :meth:`AuditPlan.resolved` takes.

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
            size=self.recipe.size,
            **given,
        )

    @property
    def sources(self) -> Mapping[str, "RunPlan"]:
        """The run of the network that an audit makes its images on, by audit.

        ``audit_settings: {robustness: {source: plain}}`` in a recipe asks for it. It is one more run of
        the method that is named, under a seed that nothing else has: alike for all methods of a seed, and never the
        network itself that is attacked.

        Raises:
            ValueError: If the recipe names a method that it does not have.

        >>> recipe = Recipe(audits=("robustness",), audit_settings={"robustness": {"source": "plain"}},
        ...                 methods={"plain": Method(), "mine": Method(lr=0.1)})
        >>> [(audit, run.method, run.seed) for audit, run in RunPlan(recipe, "mine", 2).sources.items()]
        [('robustness', 'plain', 1002)]
        """
        bare = dataclasses.replace(self.recipe, audits=(), audit_settings={})
        named = self.audit_plan.sources
        return {audit: RunPlan(bare, name, FIRST_SOURCE + self.seed) for audit, name in named.items()}


def sources_of(plans: Iterable[RunPlan]) -> list[RunPlan]:
    """The runs whose networks the audits of `plans` need, each once, in the order in which they are needed.

    >>> sources_of([RunPlan(Recipe(methods={"plain": Method()}), "plain", 0)])
    []
    """
    return list({run.folder: run for plan in plans for run in plan.sources.values()}.values())


NOT_LOSSES = ("epoch", "step", "lr", "validation_error", "test_error")


def training_findings(result: FitResult, memory: float | None = None) -> Findings:
    """Time, steps, memory and weak heads of a run, and its curves.

    Args:
        result: What ``fit`` gave.
        memory: What training added, at its highest, to what its process held before it, MiB; None where others
            shared the process.

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
        terms = [name for name in result.history[0] if name not in NOT_LOSSES]
        columns = {
            "step": [row["step"] for row in result.history],
            "loss": [sum(row[term] for term in terms) for row in result.history],
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


def epoch_findings(result: FitResult, test_images: int) -> Findings:
    """The errors after every epoch as a picture, and the test error at the epoch that validation would choose.

    Nothing is chosen by the test curve: the verdict is that of the last epoch. Beside it stands the first epoch with
    the lowest error on the validation images, whose labels are as noisy as those of the training images are.

    Args:
        result: What ``fit`` gave with ``watched={"test": ...}``; without, there is nothing to say.
        test_images: What the test error was taken over.

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
        "Errors after every epoch, that of validation against labels as noisy as those trained on. The test error is "
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
    """A row for each parameter of the network: what the optimiser of the run does to it.

    Args:
        model: The network.
        way: Says which parameters are moved.
        build: Makes the optimiser from them, as it was made for training.

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
    named = plan.way is None and plan.model is None  # then the folder's name says everything
    if directory is not None and named and (kept := _kept(plan, data, directory)) is not None:
        return kept
    folder = None if directory is None else directory / plan.folder
    # what was begun before was measured by nobody
    memory = PeakMemory() if own_process and (folder is None or not folder.exists()) else None
    model = _fresh_model(plan, data)
    # a copy: no seed may start from what the caller's loss learnt under the one before
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
        return kept  # fit found that the caller's model and way of training are those of the finished run
    # before audits add theirs
    training = training_findings(result, _memory_before(folder) if memory is None else memory.added())
    findings = audit_model(model, data, audits, plan.seed, on_audit)
    epochs = epoch_findings(result, len(data.test))
    if WeightScale.name in plan.audit_plan.names:
        findings.append(decay_findings(result.model, way, stepper))
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
