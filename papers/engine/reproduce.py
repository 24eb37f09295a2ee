"""Try the claims of a paper: run its recipe, judge every claim, and write the ledger."""

from dataclasses import dataclass, replace
from pathlib import Path

from clearance import Card
from clearance.research import (
    AuditPlan,
    Engine,
    Listener,
    Recipe,
    plans_of,
    report_of,
    silent,
    write_bytes,
)
from papers.engine.catalogue import paper_claims, paper_study, whole_recipe
from papers.engine.claims import PaperClaims
from papers.engine.judging import Judgement, judge
from papers.engine.kept import RUNS, Kept, run_kept, versions_of
from papers.engine.ledger import (
    Ledger,
    check_no_results,
    command_line,
    ledger_without_data,
    save_without_data,
)
from papers.engine.study import (
    DEFAULT_DATASET,
    NO_DATA,
    NoDataError,
    StudyRequest,
    data_if_there,
    missing_files,
)


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction left behind.

    Args:
        ledger: The path of ``ledger.md``; ``ledger.json`` is in the same folder.
        judgements: One for each claim; none for a study without claims.
        card: The comparison; None where nothing was run.
        missing: What a study did not find; empty where it was run.
    """

    ledger: Path
    judgements: tuple[Judgement, ...] = ()
    card: Card | None = None
    missing: str = ""


def reproduce(
    paper: str,
    dataset: str | None = None,
    *,
    root: str | None = None,
    seeds: int | None = None,
    engine: Engine = 1,
    out: Path = Path("papers-results"),
    only: str | None = None,
    listener: Listener = silent,
) -> Reproduction:
    """Run a paper's recipe on a dataset, judge its claims, and write ledger and report.

    Args:
        paper: Its name, for example ``"sato_2019"``.
        dataset: One that the paper has a recipe for; digits by default.
        root: The folder with the dataset's files; datasets are never downloaded.
        seeds: How many seeds; those of the recipe by default. A verdict needs five.
        engine: Processes at a time, or an Executor.
        out: Where the ledger, the report and the runs are kept; called again, finished runs are read back, also where
            only ``runs.jsonl`` is left of them.
        only: A study of the paper to run instead, by name. Some take a dataset and a root; others have a dataset
            of their own and take no other.
        listener: Told of events, as in :func:`clearance.research.run_grid`.

    Raises:
        ValueError: If a name is unknown, or the data are damaged.

    Without the dataset's files nothing is trained: the ledger says "not run: no data" with the command to run.
    """
    if only is not None:
        study = paper_study(paper, only, dataset, root)
        request = StudyRequest(out, seeds, engine, listener, dataset or DEFAULT_DATASET, root)
        try:
            return Reproduction(study.run(request))
        except NoDataError as error:
            if error.ledger is not None:
                return Reproduction(error.ledger, missing=str(error))
            command = command_line(paper, request.dataset, seeds, only=only)
            if not study.datasets:
                command = request.command(f"python -m papers {paper} --only {only} --root ROOT")
            return _study_without_data(f"{paper}: {only}", command, str(error), out)
    recipe = whole_recipe(paper, dataset or DEFAULT_DATASET, root, seeds)
    command = command_line(paper, recipe.dataset, seeds)
    return reproduce_recipe(paper_claims(paper), recipe, command, engine, out, listener)


def reproduce_recipe(
    claims: PaperClaims,
    recipe: Recipe,
    command: str,
    engine: Engine,
    out: Path,
    listener: Listener = silent,
) -> Reproduction:
    """The same for claims and a recipe of the caller's own; `command` is what the ledger says made it."""
    AuditPlan.of_recipe(recipe)  # a wrong name, before any training
    data = data_if_there(recipe)
    if data is None:
        ledger = ledger_without_data(claims, recipe, command)
        return Reproduction(save_without_data(ledger, out), ledger.judgements, missing=missing_files(recipe))
    plans = plans_of(recipe)
    kept = Kept(out / RUNS)
    findings = run_kept(plans, [data] * len(plans), kept, out / "runs", engine, listener)
    report = report_of(recipe, findings, command)
    card = Card(replace(report, versions=versions_of(kept, plans, report.versions)))
    card.save_folder(out)
    judgements = judge(claims, card.records, data.train.name)
    ledger = Ledger(claims, data.train.name, judgements, card.report)
    return Reproduction(ledger.save(out), judgements, card)


def _study_without_data(title: str, command: str, missing: str, out: Path) -> Reproduction:
    check_no_results(out)
    out.mkdir(parents=True, exist_ok=True)
    text = f"# {title}\n\n**not run**: {NO_DATA}. Run `{command}`.\n"
    write_bytes(out / "ledger.md", text.encode())
    return Reproduction(out / "ledger.md", missing=missing)
