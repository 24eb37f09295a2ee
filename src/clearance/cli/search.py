"""``clearance search``: choose learning rates on a split of the training set, with the same search for every method."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearance.cli._ending import FAILED
from clearance.cli._options import OptionalCount, OptionalPath, OptionalText

if TYPE_CHECKING:
    from rich.table import Table

    from clearance.experiments.method import Method
    from clearance.experiments.recipe import Recipe
    from clearance.experiments.search import Trial

FILE = "search.json"


@dataclass(frozen=True)
class SearchCommand:
    """Choose each method's learning rate (and FOCA's images per class) on a quarter of the training set.

    Five learning rates a factor 2 apart around the recipe's, up to two more if the best is at an edge. The test
    set is not read. Of candidates within one standard error of the lowest error of heads retrained from one
    image of each class, the one with the smallest error of its own head is chosen; the table also shows
    the choice by the error of the own head only. With `--choose-by own_error` that is the only criterion.

    Status: 0 every trial has a result (a training that diverged is one), 1 a run failed, 2 usage, 130 interrupted.

    Args:
        methods: Names separated by commas (default: plain,dropout,lgm,foca, or those of the recipe file).
        dataset: A name from `clearance list`, folder:PATH or npz:PATH (default: digits).
        root: The folder with the dataset's files; datasets are never downloaded.
        size: Resize an image folder's short side to this many pixels and crop the centre.
        model: A name from `clearance list` (default: small-cnn, or that of the recipe file).
        seeds: Runs of each candidate; a recipe file's number is for comparisons.
        per_class: Images per class that FOCA's weak heads are tried with, separated by commas.
        epochs: Passes over the training images (default: those of the recipe).
        trial_epochs: Shorter first trials; the best of each method are then repeated with all epochs.
        finalists: How many of each method are repeated.
        choose_by: one_image_error, or own_error for a search that trains no other heads.
        recipe: A YAML file with any of these settings, and more.
        jobs: Runs at a time, each a process with one thread (default: one per core).
        engine: Where runs execute: local, ray (the Ray of RAY_ADDRESS or of this machine, else a new one on its
            cores) or ray://HOST:PORT. Every node must see --out and the dataset's files under the same paths.
        cpus_per_run: Cores that Ray keeps for each run.
        gpus_per_run: GPUs that Ray keeps for each run; 0.5 lets two runs share one.
        out: The folder for runs and search.json, or an address such as s3://bucket/prefix (extra `cloud`).
    """

    methods: OptionalText = None
    dataset: OptionalText = None
    root: OptionalText = None
    size: OptionalCount = None
    model: OptionalText = None
    seeds: int = 2
    per_class: str = "1,10"
    epochs: OptionalCount = None
    trial_epochs: OptionalCount = None
    finalists: int = 3
    choose_by: str = "one_image_error"
    recipe: OptionalPath = None
    jobs: OptionalCount = None
    engine: str = "local"
    cpus_per_run: int = 1
    gpus_per_run: float = 0.0
    out: str = "clearance-search"

    def run(self) -> None:
        """Search."""
        from clearance._checks import check_count
        from clearance.cli._console import Console
        from clearance.cli._options import check_out, chosen_engine, runs_at, whole_numbers
        from clearance.cli._progress import listening
        from clearance.experiments.search import search_settings

        console = Console()
        check_out(self.out)
        recipe = self._recipe()
        where = (self.engine, self.jobs, self.cpus_per_run, self.gpus_per_run)
        check_count("finalists", self.finalists)
        if self.trial_epochs is not None:
            check_count("trial_epochs", self.trial_epochs)
        per_class = whole_numbers("--per-class", self.per_class)
        with chosen_engine(*where) as engine, listening(console) as listener:
            trials = search_settings(
                recipe,
                runs_at(self.out),
                engine,
                listener,
                per_class=per_class,
                trial_epochs=self.trial_epochs,
                finalists=self.finalists,
                criterion=self.choose_by,
            )
        lost = {name for name in recipe.methods if all(one.failed for one in trials if one.method == name)}
        measured = {name: one for name, one in recipe.methods.items() if name not in lost}
        recipe = dataclasses.replace(recipe, methods=measured or recipe.methods)
        console.print(_table(trials, measured))
        console.print(f"Trials: {_saved(trials, self.out)}", soft_wrap=True)
        if measured:
            console.print("Chosen settings, as a recipe file for --recipe:")
            console.print(_as_yaml(trials, recipe, self.choose_by), soft_wrap=True)
        if failed := [trial for trial in trials if trial.failed]:
            console.print(
                f"{len(failed)} of {len(trials)} trials failed, and their methods were searched no further. "
                f"The same command repeats them. The first: {failed[0].method}, lr {failed[0].lr:g}, "
                f"{failed[0].failed}",
                soft_wrap=True,
            )
            sys.exit(FAILED)

    def _recipe(self) -> "Recipe":
        from clearance.cli._options import chosen_recipe, default_methods

        return chosen_recipe(
            self.recipe,
            self.dataset,
            default_methods(self.methods, self.recipe),
            root=self.root,
            size=self.size,
            model=self.model,
            seeds=self.seeds,
            epochs=self.epochs,
        )


def _saved(trials: "list[Trial]", out: str) -> str:
    """Save the trials at a path or an address; where they are."""
    from clearance._files import is_remote, write_bytes

    data = (json.dumps([asdict(trial) for trial in trials], indent=1) + "\n").encode()
    if is_remote(out):
        from clearance.runs.remote import RemoteRuns

        RemoteRuns(out).write(FILE, data)
        return f"{out.rstrip('/')}/{FILE}"
    path = Path(out) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return str(path)


def _as_yaml(trials: "list[Trial]", recipe: "Recipe", criterion: str) -> str:
    """The chosen settings in a recipe file's form: changes to Clearance's recipe, and whole methods of the caller."""
    import yaml

    from clearance.experiments.method import Method
    from clearance.experiments.recipe import to_tree, tuned_recipe
    from clearance.experiments.search import best_trial

    tuned, unset = tuned_recipe(recipe.dataset), to_tree(Method())
    known, as_tuned = tuned.methods, to_tree(tuned)
    training = {
        key: value
        for key, value in to_tree(recipe).items()
        if key not in NOT_OF_TRAINING and value != as_tuned[key]
    }
    chosen: dict[str, dict[str, Any]] = {}
    for name, method in recipe.methods.items():
        found = best_trial(trials, name, criterion)
        own = {key: value for key, value in to_tree(method).items() if value != unset[key]}
        given = {} if method == known.get(name) else {"base": "none", **own}
        per_class = {"per_class": found.per_class} if method.way == "foca" else {}
        chosen[name] = {**given, "lr": found.lr, **per_class}
    return yaml.safe_dump({**training, "methods": chosen}, sort_keys=False).rstrip()


NOT_OF_TRAINING = ("dataset", "root", "size", "seeds", "audits", "audit_settings", "methods")


def _table(trials: "list[Trial]", methods: "Mapping[str, Method]") -> "Table":
    from rich.table import Table

    from clearance.experiments.search import CRITERIA, at_edge, best_trial

    table = Table("method", "chosen by", "lr", "per class", "one-image error", "own error", box=None)
    for method, settings in methods.items():
        for criterion in CRITERIA:
            chosen = best_trial(trials, method, criterion)
            if criterion == CRITERIA[0] and chosen.one_image_error is None:
                continue
            few = "" if chosen.one_image_error is None else f"{100 * chosen.one_image_error:.2f} %"
            errors = (few, f"{100 * chosen.own_error:.2f} %")
            rate = f"{chosen.lr:g}"
            if at_edge(trials, chosen):
                rate += "*"
                table.caption = "* at an edge of the learning rates tried: a better one may be outside"
            per_class = str(chosen.per_class) if settings.way == "foca" else ""
            table.add_row(method, criterion.replace("_", " "), rate, per_class, *errors)
    return table
