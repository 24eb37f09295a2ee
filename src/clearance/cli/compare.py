"""``clearance compare``: train methods side by side, audit each, and write one page."""

import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clearance.cli._ending import FAILED
from clearance.cli._options import OptionalCount, OptionalNumber, OptionalPath, OptionalText

if TYPE_CHECKING:
    from clearance.cli._console import Console
    from clearance.experiments.recipe import Recipe
    from clearance.report import Card


@dataclass(frozen=True)
class CompareCommand:
    """Train methods side by side, audit each, and write one page.

    With no options: plain, dropout, lgm and foca on scikit-learn's digits, 5 seeds each. An
    interrupted comparison resumes with the same command. Status: 0 all runs and audits have a result (a training that
    diverged is one), 1 a run or an audit failed, 2 usage, 130 interrupted.

    Args:
        methods: Names separated by commas; the others are compared with the first
            (default: plain,dropout,lgm,foca, or those of the recipe file).
        dataset: A name from `clearance list`, folder:PATH or npz:PATH (default: digits).
        root: The folder with the dataset's files; datasets are never downloaded.
        size: Resize an image folder's short side to this many pixels and crop the centre.
        seeds: How many seeds (default: 5, or those of the recipe file).
        model: A name from `clearance list` (default: small-cnn, or that of the recipe file).
        epochs: Passes over the training images (default: those of the recipe).
        steps: Total updates, instead of epochs; the same for few images as for all.
        label_noise: Share of training labels switched to another class, in [0, 1); equal for all methods (default: 0).
        samples: Training images drawn for each seed, the same for all methods (default: all).
        audits: Names separated by commas, few-labels, or all (default: accuracy,co_adaptation,deeper_cut,class_scatter;
            with --sweep also boundary_distance and weight_scale).
        sweep: One numeric setting at several values, FIELD=LOW:HIGH:COUNT (equal ratios) or FIELD=A,B,C; for
            example weight_decay=1e-5:1e-1:9, or of the methods' loss loss_settings.margin=0.5,1,2. The page plots
            all results against it.
        recipe: A YAML file with any of these settings, and more.
        jobs: Runs at a time, each a process with one thread (default: one per core).
        engine: Where runs execute: local, ray (the Ray of RAY_ADDRESS or of this machine, else a new one on its
            cores) or ray://HOST:PORT. Every node must see --out and the dataset's files under the same paths.
        cpus_per_run: Cores that Ray keeps for each run.
        gpus_per_run: GPUs that Ray keeps for each run; 0.5 lets two runs share one.
        out: The folder for the report and its runs, or an address such as s3://bucket/prefix (extra `cloud`).
        dry_run: Print the plan and stop.
    """

    methods: OptionalText = None
    dataset: OptionalText = None
    root: OptionalText = None
    size: OptionalCount = None
    seeds: OptionalCount = None
    model: OptionalText = None
    epochs: OptionalCount = None
    steps: OptionalCount = None
    label_noise: OptionalNumber = None
    samples: OptionalCount = None
    audits: OptionalText = None
    sweep: OptionalText = None
    recipe: OptionalPath = None
    jobs: OptionalCount = None
    engine: str = "local"
    cpus_per_run: int = 1
    gpus_per_run: float = 0.0
    out: str = "clearance-report"
    dry_run: bool = False

    def run(self) -> None:
        """Compare."""
        from clearance.cli._console import Console
        from clearance.cli._options import check_engine_options, check_out, chosen_engine, places, runs_at
        from clearance.experiments.engines import on_processes
        from clearance.experiments.sweep import parse_sweep, swept_recipes

        console = Console()
        check_out(self.out, report=True)
        recipe = self._recipe()
        sweep = None if self.sweep is None else parse_sweep(self.sweep)
        where = (self.engine, self.jobs, self.cpus_per_run, self.gpus_per_run)
        check_engine_options(*where)
        if self.dry_run:
            values = 1 if sweep is None else len(swept_recipes(recipe, sweep))
            _print_plan(console, recipe, self.out, values, places(*where))
            return
        with chosen_engine(*where) as chosen, on_processes(chosen) as engine:
            from clearance.cli._progress import listening  # slow, beside the imports of local processes
            from clearance.experiments.compare import Comparison

            comparison = Comparison(recipe, sweep, command=_command(recipe))
            with listening(console, comparison.count) as listener:
                card = comparison.run(
                    engine, listener, runs_at(self.out), on_seed=partial(_save_partial, console, self.out)
                )
        page = _saved(card, self.out)
        _print_result(console, card, page)
        if not _is_complete(card):
            sys.exit(FAILED)

    def _recipe(self) -> "Recipe":
        from clearance.cli._options import chosen_recipe, default_methods, split_names
        from clearance.experiments.sweep import with_swept_audits

        audits = None if self.audits is None else split_names(self.audits, "--audits")
        recipe = chosen_recipe(
            self.recipe,
            self.dataset,
            default_methods(self.methods, self.recipe),
            root=self.root,
            size=self.size,
            seeds=self.seeds,
            model=self.model,
            epochs=self.epochs,
            steps=self.steps,
            label_noise=self.label_noise,
            samples=self.samples,
            audits=audits,
        )
        return recipe if self.sweep is None or audits is not None else with_swept_audits(recipe)


def _command(recipe: "Recipe") -> str:
    """The command line as it was given, without folders of this machine."""
    words = ["clearance", *sys.argv[1:]]
    shown = ["ROOT" if word == recipe.root else _without_folders(word) for word in words]
    return shlex.join(shown)


def _without_folders(word: str) -> str:
    """A word of a command line with the path in it as `shown_path`; an address stays.

    >>> _without_folders("--dataset=folder:/home/ann/pets"), _without_folders("results/one")
    ('--dataset=folder:pets', 'results/one')
    >>> _without_folders("run:/home/ann/runs/plain"), _without_folders("s3://bucket/runs")
    ('run:plain', 's3://bucket/runs')
    """
    from clearance._files import is_remote
    from clearance.experiments.provenance import shown_path

    start = re.match(r"(?:--[\w-]+=)?(?:folder:|npz:|run:)?", word)
    assert start is not None
    path = word[start.end() :]
    return word if "/" not in path or is_remote(path) else start.group() + shown_path(path)


def _saved(card: "Card", out: str) -> str:
    """Save a report at a path or an address; where its page is."""
    from clearance._files import is_remote

    if not is_remote(out):
        return str(card.save_folder(Path(out)))
    from clearance.runs.remote import RemoteRuns

    with tempfile.TemporaryDirectory(prefix="clearance-") as scratch:
        card.save_folder(Path(scratch))
        RemoteRuns(out).write_folder(Path(scratch))
    return f"{out.rstrip('/')}/index.html"


def _save_partial(console: "Console", out: str, card: "Card") -> None:
    """Write the page of the seeds so far, and say where it is; a full disk must not end the runs."""
    try:
        page = _saved(card, out)
    except OSError as error:
        console.print(f"No partial report: {error}", soft_wrap=True)
        return
    seeds = "{seeds} of {of}".format(**card.report.recipe["partial"])
    console.print(f"Partial report, {seeds} seeds: {page}", soft_wrap=True)


def _print_plan(console: "Console", recipe: "Recipe", out: str, values: int, where: str) -> None:
    import yaml

    from clearance.experiments.recipe import to_tree

    chosen = [recipe.audit_settings.get(name, {}) for name in recipe.audits]
    sources = {one["source"] for one in chosen if isinstance(one.get("source"), str)}  # further networks
    runs = (len(recipe.methods) + len(sources)) * recipe.seeds * values
    console.print(f"{runs} runs, {where}, into {out}")
    console.print(yaml.safe_dump(to_tree(recipe), sort_keys=False))


def _is_complete(card: "Card") -> bool:
    """Whether every run was measured, and by every audit."""
    from clearance.report.left_out import has_failed
    from clearance.vocabulary import Outcome

    stopped = any(note.outcome is Outcome.STOPPED for note in card.report.runs)
    return bool(card.records) and not stopped and not has_failed(card.report.recipe)


def _print_result(console: "Console", card: "Card", page: str) -> None:
    from clearance.report.left_out import left_out_lines
    from clearance.report.terminal import first_text

    console.print(f"\n{first_text(card.report, console.width)}\n", soft_wrap=True)
    recipe = dict(card.report.recipe)
    if "audits_left_out_command" in recipe:  # without folders of this machine; here as it was typed
        recipe["audits_left_out_command"] = shlex.join(["clearance", *sys.argv[1:]])
    for line in left_out_lines(recipe):
        console.print(line, soft_wrap=True)
    console.print(f"Report: {page}", soft_wrap=True)
