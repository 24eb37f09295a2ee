"""``python -m papers``: test every claim of a paper, or run one of its studies, and write the ledger."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearance.research import Console
    from papers.engine.reproduce import Reproduction

FAILED = 1

ABOUT = """\
Run a paper's recipe, judge each of its claims, and write the ledger; or run one of its studies. An interrupted command
resumes. Without the dataset's files the ledger says "not run: no data" and the status is 0. `python -m papers list`
names papers and studies. `python -m papers verify` recomputes every mean, interval, p value and verdict of the
committed ledgers.
"""


def main(words: list[str] | None = None) -> None:
    """Read the options, run the command, and turn errors that users can fix into one line."""
    given = _parser().parse_args(words)
    from clearance.research import one_line_errors

    with one_line_errors("papers", resumes=True):
        if given.paper == "list":
            _print_list()
        elif given.paper == "verify":
            _verify(given.write, given.read_again)
        elif given.full_protocol:
            _print_full_protocol(given)
        else:
            _try(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m papers", description=ABOUT, allow_abbrev=False)
    parser.add_argument(
        "paper", help="for example sato_2019; or list, which names papers and their studies; or verify"
    )
    parser.add_argument(
        "--dataset",
        help="a dataset that the paper or study has a recipe for: digits, mnist, fashion-mnist, cifar10 or cifar100 "
        "(default: digits)",
    )
    parser.add_argument("--root", help="the folder with the dataset's files; datasets are never downloaded")
    parser.add_argument(
        "--seeds", type=int, help="number of seeds (default: the recipe's; a verdict needs 5)"
    )
    parser.add_argument(
        "--jobs", type=int, help="runs at a time, each a process with one thread (default: one per core)"
    )
    parser.add_argument("--engine", default="local", help="where runs execute: local, ray or ray://HOST:PORT")
    parser.add_argument("--cpus-per-run", type=int, default=1, help="cores that Ray keeps for each run")
    parser.add_argument("--gpus-per-run", type=float, default=0.0, help="GPUs that Ray keeps for each run")
    parser.add_argument(
        "--out",
        type=Path,
        help="the folder for ledger, report and runs "
        "(default: clearance-PAPER/DATASET, or STUDY or STUDY-DATASET in it)",
    )
    parser.add_argument("--only", metavar="STUDY", help="a study of the paper to run instead")
    parser.add_argument(
        "--full-protocol",
        action="store_true",
        help="print the recipe in full size, for a GPU, and stop: elsayed_2018 on mnist and cifar10, wan_2018 on "
        "mnist and cifar100, sato_2019 on cifar10. `clearance compare --recipe FILE` runs it",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="with verify: judge what the ledgers keep by today's claims first, and write ledgers and tables",
    )
    parser.add_argument(
        "--read-again",
        action="store_true",
        help="with verify: the sentences about changed ledgers were read again; note the ledgers' present numbers",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    return parser


def _print_list() -> None:
    from rich.table import Table

    from clearance.research import Console
    from papers.engine.catalogue import PAPERS, paper

    console = Console()
    for name in PAPERS:
        about = paper(name)
        table = Table(
            title=f"{name}: {about.title}",
            title_justify="left",
            title_style="bold",
            show_header=False,
            box=None,
        )
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        for study, one in about.studies.items():
            on = f" (--dataset {', '.join(one.datasets)})" if one.datasets else ""
            table.add_row(study, f"{one.summary}{on}")
        console.print(table)
    console.print("python -m papers.all_against_all: every method under every question (--help)")


def _verify(write: bool, again: bool) -> None:
    """Recompute the committed ledgers, and say what is wrong."""
    from papers.all_against_all.page import verified_page
    from papers.engine.verify import ROOT, read_again, rewrite, verify

    for path in (*(rewrite() if write else ()), *(read_again() if again else ())):
        sys.stdout.write(f"written: {path.relative_to(ROOT.parent)}\n")
    found = [*verify(), *map(verified_page, sorted(ROOT.glob("all_against_all/results/*/runs.jsonl")))]
    for one in found:
        name = one.path.relative_to(ROOT.parent)
        sys.stdout.writelines(f"wrong: {name}: {problem}\n" for problem in one.problems)
    problems, checked = sum(len(one.problems) for one in found), sum(one.checked for one in found)
    sys.stdout.write(f"{checked} readings and rows recomputed, {problems} wrong\n")
    if problems:
        sys.exit(FAILED)


def _print_full_protocol(given: argparse.Namespace) -> None:
    import yaml

    from clearance.research import to_tree
    from papers.engine.catalogue import full_recipe

    if given.only is not None:
        raise ValueError(
            f"--full-protocol is of a paper, not of one study; got --only {given.only}. Drop it."
        )
    recipe = full_recipe(given.paper, given.dataset or "mnist", given.root, given.seeds)
    sys.stdout.write(yaml.safe_dump(to_tree(recipe), sort_keys=False))


def _try(given: argparse.Namespace) -> None:
    """Run a paper or a study; wrong names are found before anything starts."""
    import yaml

    from clearance.research import (
        Console,
        check_count,
        check_engine_options,
        check_report_folder,
        chosen_engine,
        engine_in_words,
        listening,
        to_tree,
    )
    from papers.engine.catalogue import paper_claims, paper_study, whole_recipe
    from papers.engine.reproduce import reproduce
    from papers.engine.study import DEFAULT_DATASET

    console = Console()
    if given.seeds is not None:
        check_count("seeds", given.seeds)
    if given.only is None:
        recipe = whole_recipe(given.paper, given.dataset or DEFAULT_DATASET, given.root, given.seeds)
        runs, name = len(recipe.methods) * recipe.seeds, recipe.dataset
    else:
        study = paper_study(given.paper, given.only, given.dataset, given.root)
        runs = None
        name = f"{given.only}-{given.dataset or DEFAULT_DATASET}" if study.datasets else given.only
    if given.root is not None and not Path(given.root).is_dir():
        raise ValueError(
            f"--root must be a folder; got {given.root}, which is none. Correct it, or leave it out."
        )
    where = (given.engine, given.jobs, given.cpus_per_run, given.gpus_per_run)
    check_engine_options(*where)
    out = given.out or Path(f"clearance-{given.paper}") / name
    check_report_folder("out", out)
    if given.dry_run and given.only is not None:
        console.print(f"{given.only}: {study.summary}; {engine_in_words(*where)}, into {out}")
        return
    if given.dry_run:
        console.print(f"{len(paper_claims(given.paper).claims)} claims of {given.paper}")
        console.print(f"{runs} runs, {engine_in_words(*where)}, into {out}")
        console.print(yaml.safe_dump(to_tree(recipe), sort_keys=False))
        return
    with chosen_engine(*where) as engine, listening(console, runs) as listener:
        found = reproduce(
            given.paper,
            given.dataset,
            root=given.root,
            seeds=given.seeds,
            engine=engine,
            out=out,
            only=given.only,
            listener=listener,
        )
    _print_result(console, found)
    if found.card is not None and not found.card.records:
        sys.exit(FAILED)


def _print_result(console: "Console", found: "Reproduction") -> None:
    from rich.table import Table

    if found.judgements:
        table = Table("claim", "verdict", "", box=None, pad_edge=False)
        for judgement in found.judgements:
            remarks = ", ".join(part for part in (judgement.remark, judgement.reason) if part)
            table.add_row(judgement.claim.id, judgement.words, remarks)
        console.print(table)
    if found.missing:
        console.print(
            f"Nothing was run: no data ({found.missing.rstrip('.')}). The ledger says which command runs it.",
            soft_wrap=True,
        )
    console.print(f"Ledger: {found.ledger}", soft_wrap=True)


if __name__ == "__main__":
    main()
