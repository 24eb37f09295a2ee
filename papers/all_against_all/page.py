"""The page of a dataset: one table of every method and question, what is significant, and how rates were chosen."""

from collections.abc import Mapping
from pathlib import Path

from clearance.research import (
    LEVEL,
    THIN,
    Comparison,
    Outcome,
    compare_seeds,
    holm,
    markdown_table,
    printed,
    summarise,
    write_bytes,
)
from papers.all_against_all.matrix import QUESTIONS, ROUNDS, Question, Work, read_matrix
from papers.engine.judging import Better
from papers.engine.ledger import mean_cell
from papers.engine.study import DEFAULT_DATASET
from papers.engine.verify import Verified

PAGE = "ledger.md"
BASELINE = "plain"
Values = Mapping[str, Mapping[int, float]]  # by method and seed
LOGARITHM = ("nats",)  # units whose ratios are compared


def write_page(folder: Path) -> Path:
    """Write the page of a folder of results from the lines in it; its path."""
    path = folder / PAGE
    write_bytes(path, page(folder).encode())
    return path


def verified_page(path: Path) -> Verified:
    """A page made again from its ``runs.jsonl``: every mean, interval and comparison."""
    kept = path.with_name(PAGE).read_text("utf-8")
    problems = () if kept == page(path.parent) else (f"{PAGE} is not what its lines give",)
    return Verified(path, problems, path.read_text("utf-8").count("\n"))


def page(folder: Path) -> str:
    """The Markdown page of a folder of results, which is called as its dataset."""
    dataset = folder.name
    work = Work(read_matrix(dataset), folder)
    root = "" if dataset == DEFAULT_DATASET else " --root FOLDER"
    command = f"python -m papers.all_against_all {dataset}{root}"
    seeds = work.matrix.seeds
    done = sum(len(work.found(c, m)) for c in work.matrix.conditions for m in work.matrix.methods)
    runs = len(work.matrix.conditions) * len(work.matrix.methods) * seeds
    over = f"{seeds} seeds" if done == runs else f"the finished ones of {seeds} seeds"
    parts = [
        f"# Every method under every question: {dataset}",
        f"`{command}`: {done} of {runs} runs are finished. Means over {over}, on test images. **Bold**: better "
        f"than {BASELINE}, *italics*: worse, where the 95 % t interval of the difference, paired over seeds, excludes "
        "zero; one in twenty cells without a difference is marked by chance.",
        _table(work),
        "\n".join(f"- **{one.title}**: {one.words}" for one in QUESTIONS),
        f"Time and memory are in units of plain training's, each the least of a method's training runs: the processor "
        f"time of one thread, of {ROUNDS['seconds']}, and what training adds to a new process at its peak, of "
        f"{ROUNDS['MiB']}.",
        "## Who is best",
        "The lowest mean (or the highest, where that is better), and the others among which the best may be: with 95 % "
        "confidence it is one of all these, by t tests paired over seeds at 5 % divided by the number of other methods "
        "(Bonferroni). Methods with a run that collapsed or diverged are left out.",
        _best(work),
        f"## Who is better than {BASELINE}",
        "After Holm's adjustment for all methods of a line. Runs that collapsed or diverged count.",
        _against_plain(work),
        "## Intervals",
        "Means with 95 % t intervals over seeds.",
        _intervals(work),
        "## Runs that collapsed or diverged",
        _unfinished(work),
        "## Learning rates",
        "Chosen on a quarter of the training images that was held out; the test set was not read. In brackets the "
        "number of trials.",
        _rates(work),
    ]
    return "\n\n".join(parts).replace(THIN, " ") + "\n"


def _answers(work: Work, question: Question) -> tuple[Values, str, Better]:
    """Values by method and seed, their unit, and which direction is better."""
    found = {method: question.values(work, method) for method in work.matrix.methods}
    any_one = next((one for row in found.values() for one in row.values()), None)
    better: Better = "higher" if any_one is not None and any_one.better == "higher" else "lower"
    values = {name: {seed: one.value for seed, one in row.items()} for name, row in found.items() if row}
    return values, any_one.unit if any_one else "", better


def _table(work: Work) -> str:
    columns = [_answers(work, one) for one in QUESTIONS]
    costs = work.times(), work.memory()
    rows = [["method", "time", "memory", *(question.title for question in QUESTIONS)]]
    for method in work.matrix.methods:
        factors = [
            f"{cost[method] / cost[BASELINE]:.1f}×" if {method, BASELINE} <= set(cost) else "–"
            for cost in costs
        ]
        cells = [_cell(method, *answers, work.matrix.seeds) for answers in columns]
        rows.append([method, *factors, *cells])
    return markdown_table(rows)


def _cell(method: str, values: Values, unit: str, better: Better, seeds: int) -> str:
    if method not in values:
        return "–"
    mean = summarise(values[method]).mean
    plain = values.get(BASELINE, {})
    text = printed(mean, unit)
    if method == BASELINE or min(len(values[method]), len(plain)) < seeds:  # unfinished: not judged
        return text
    found = compare_seeds(values[method], plain, better=better, log=unit in LOGARITHM)
    if (
        found.dropped
    ):  # a seed without a finite number, as the smallest change of a collapsed network: not judged
        return text
    return {"better": f"**{text}**", "worse": f"*{text}*"}.get(found.verdict, text)


def _best(work: Work) -> str:
    rows = [["question", "lowest or highest", "others that may be the best"]]
    for question in QUESTIONS:
        values, unit, better = _answers(work, question)
        values = {name: row for name, row in values.items() if not _bad(work, question.condition, name)}
        means = {name: summarise(row).mean for name, row in values.items()}
        whole = bool(values) and all(len(row) == work.matrix.seeds for row in values.values())
        if not whole:
            continue
        best = (min if better == "lower" else max)(means, key=lambda name: means[name])
        compared, _ = _compared(values, best, unit, better)
        alike = [name for name, one in compared.items() if one.p is None or one.p * len(compared) >= LEVEL]
        rows.append([question.title, f"{best}, {printed(means[best], unit)}", "; ".join(alike) or "none"])
    return markdown_table(rows)


def _against_plain(work: Work) -> str:
    rows = [["question", "better", "worse"]]
    for question in QUESTIONS:
        values, unit, better = _answers(work, question)
        if BASELINE not in values or any(len(row) < work.matrix.seeds for row in values.values()):
            continue
        compared, adjusted = _compared(values, BASELINE, unit, better)
        sure = {
            name: one.verdict
            for name, one in compared.items()
            if adjusted[name] < LEVEL and not one.dropped  # a seed without a finite number is not judged
        }
        told = [
            "; ".join(name for name, v in sure.items() if v == word) or "none" for word in ("better", "worse")
        ]
        rows.append([question.title, *told])
    return markdown_table(rows)


def _compared(
    values: Values, other: str, unit: str, better: Better
) -> tuple[dict[str, Comparison], dict[str, float]]:
    """Every method against one of them, and its p value adjusted for all."""
    found = {
        name: compare_seeds(row, values[other], better=better, log=unit in LOGARITHM)
        for name, row in values.items()
        if name != other
    }
    return found, holm({name: one.p for name, one in found.items()})


def _intervals(work: Work) -> str:
    columns = [(one, *_answers(work, one)) for one in QUESTIONS]
    rows = [["method", *(question.title for question, *_ in columns)]]
    for method in work.matrix.methods:
        cells = [
            mean_cell(values[method], unit) if method in values else "–" for _, values, unit, _ in columns
        ]
        rows.append([method, *cells])
    return markdown_table(rows)


def _unfinished(work: Work) -> str:
    """Runs that collapsed or diverged, a line for each method and condition; what was measured of them counts."""
    lines = []
    for method in work.matrix.methods:
        for condition in work.matrix.conditions:
            if bad := _bad(work, condition, method):
                runs = len(work.found(condition, method))
                lines.append(f"- {method}, {condition}: {len(bad)} of {runs} runs, the first {bad[0]}")
    return "\n".join(lines) or "None."


def _bad(work: Work, condition: str, method: str) -> list[str]:
    """The status of each run that collapsed or diverged."""
    notes = [one.note for one in work.found(condition, method).values() if one.note is not None]
    return [note.status for note in notes if note.outcome is not Outcome.FINISHED]


def _rates(work: Work) -> str:
    conditions = list(work.matrix.conditions)
    rows = [["method", *conditions]]
    for method in work.matrix.methods:
        cells = []
        for condition in conditions:
            plan = work.plan(condition, method, 0)
            trials = work.trials(method)
            cells.append(f"{plan.settings.lr:g} ({len(trials)})" if plan and trials else "–")
        rows.append([method, *cells])
    return markdown_table(rows)
