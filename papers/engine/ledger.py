"""Ledgers: what a study or a whole paper came to, as Markdown and JSON.

A `Ledger` has every claim of a paper with its verdict; a `JudgedStudy` is one study that some claims are judged on;
`save` writes the ledger of a study that judges none. All of them share the tables, the provenance and the cost.
"""

import dataclasses
import hashlib
import json
import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from clearance import Measurement
from clearance.research import (
    THIN,
    Comparison,
    Outcome,
    Recipe,
    Record,
    Report,
    RunData,
    RunNote,
    Scalar,
    SummaryRow,
    compare_seeds,
    encode,
    markdown_table,
    printed,
    report_of,
    summarise,
    write_bytes,
)
from papers.engine.catalogue import paper_claims
from papers.engine.claims import Claim, PaperClaims
from papers.engine.judging import (
    ClaimVerdict,
    Compared,
    JudgedReading,
    Judgement,
    Series,
    judge,
)
from papers.engine.study import NO_DATA, NoDataError, StudyRequest, data_if_there, missing_files

HERE = "here, mean ± sd over seeds (and how many times better)"
SCHEMA = 2  # 1 had no seeds' values, commit or digest


def mean_and_spread(mean: float, spread: float | None, unit: str) -> str:
    """A mean ± sd over seeds; only the mean for one seed.

    >>> mean_and_spread(0.0312, 0.004, "fraction")
    '3.1 % ± 0.4 %'
    """
    return in_unit(mean, unit) + ("" if spread is None else f" ± {in_unit(spread, unit)}")


def in_unit(value: float, unit: str) -> str:
    """A number with its unit, with ordinary spaces.

    >>> in_unit(0.031, "fraction")
    '3.1 %'
    """
    return printed(value, unit).replace(THIN, " ")


def seeds_in_words(count: int) -> str:
    """How many seeds, for a sentence.

    >>> seeds_in_words(1), seeds_in_words(5)
    ('1 seed', '5 seeds')
    """
    return f"{count} seed{'' if count == 1 else 's'}"


def write_ledger_files(out: Path, text: str, tree: Mapping[str, Any]) -> Path:
    """Write ``ledger.md`` and ``ledger.json`` into a folder; the path of the first.

    Args:
        out: The folder; it is made where it is missing.
        text: Markdown, as it is.
        tree: Plain values; numbers that JSON does not have are encoded. The digest of the text joins them.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "ledger.json", json_text({**tree, "page": page_digest(text)}).encode())
    write_bytes(out / "ledger.md", text.encode())
    return out / "ledger.md"


def json_text(tree: Mapping[str, Any]) -> str:
    """A ``ledger.json`` of plain values."""
    return json.dumps(encode(tree), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def page_digest(text: str) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a ``ledger.md``, which the ``ledger.json`` beside it keeps."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def made_from(report: Report) -> dict[str, str]:
    """The commit of the checkout and the digest of the recipe: sixteen hexadecimal digits of its JSON's SHA-256."""
    recipe = json.dumps(encode(report.recipe), sort_keys=True)
    return {"commit": _commit(), "recipe": hashlib.sha256(recipe.encode()).hexdigest()[:16]}


def _commit() -> str:
    """The commit of the checkout, and whether files differ from it; "no checkout" outside of one."""
    try:
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "no checkout"
    return f"{commit} with changes" if changes else commit


def _git(*words: str) -> str:
    command = ("git", "-C", str(Path(__file__).parent), *words)
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed words
    return done.stdout.strip()


def origin_in_words(report: Report) -> str:
    """The commit and the recipe's digest as a sentence."""
    origin = made_from(report)
    return f"Commit: {origin['commit']}; recipe: {origin['recipe']}."


Quantities = list[dict[str, Any]]


def by_quantity(records: Iterable[Record], dataset: str) -> Quantities:
    """Measurements on a dataset as rows of ``ledger.json``, each with its value under every seed and the mean."""
    rows: dict[str, dict[str, Any]] = {}
    for record in (one for one in records if one.dataset == dataset):
        found = record.measurement
        row = {
            "audit": found.audit,
            "name": found.name,
            "method": record.method,
            "context": dict(found.context),
            "unit": found.unit,
            "better": found.better,
        }
        rows.setdefault(json.dumps(encode(row)), row | {"values": {}})["values"][record.seed] = found.value
    return with_means(rows.values())


def with_means(rows: Iterable[Mapping[str, Any]]) -> Quantities:
    """The rows with the means of their values; where one is infinite, of the finite ones, too."""
    return [{**row, **_means(list(row["values"].values()))} for row in rows]


def _means(values: Sequence[float]) -> dict[str, float]:
    finite = [value for value in values if math.isfinite(value)]
    more = {"mean of the finite": fmean(finite)} if 0 < len(finite) < len(values) else {}
    return {"mean": fmean(values), **more}


def records_in(rows: Quantities, dataset: str) -> list[Record]:
    """The records of such rows; how many images were counted is not kept."""
    return [
        Record(
            dataset,
            row["method"],
            int(seed),
            Measurement(
                row["audit"],
                row["name"],
                value,
                row["unit"],
                n=1,
                better=row["better"],
                context=row["context"],
            ),
        )
        for row in rows
        for seed, value in row["values"].items()
    ]


def report_in(tree: Mapping[str, Any], dataset: str) -> Report:
    """The report that a ``ledger.json`` was made from, as far as it is kept there: not the recipe's settings."""
    records = records_in(tree["measurements"] if "measurements" in tree else tree["rows"], dataset)
    runs = tuple(RunNote.from_json(row) for row in tree["runs"])
    return Report({}, tree["versions"], tree["command"], tree["created"], tuple(records), runs=runs)


def versions_in_words(report: Report) -> str:
    """The versions of everything that the numbers depend on."""
    return ", ".join(f"{name} {version}" for name, version in report.versions.items())


def unfinished_in_words(report: Report) -> str:
    """How many runs of each method ended otherwise than they should; empty where none did."""
    bad = Counter(
        (note.method, str(note.outcome)) for note in report.runs if note.outcome != Outcome.FINISHED
    )
    return ", ".join(f"{method}: {count} {outcome}" for (method, outcome), count in bad.items())


def measured(
    records: Iterable[Record], audit: str, name: str, context: Mapping[str, Scalar] | None = None
) -> Iterator[Record]:
    """The records of a number; `context` are settings that identify it, among others that it may have."""
    for record in records:
        one, wanted = record.measurement, (context or {}).items()
        if (one.audit, one.name) == (audit, name) and all(one.context.get(k) == v for k, v in wanted):
            yield record


def by_seed(
    records: Iterable[Record], method: str, audit: str, name: str, context: Mapping[str, Scalar] | None = None
) -> dict[int, float]:
    """A method's number under each seed.

    Args:
        records: Where it is looked for.
        method: Whose it is.
        audit: The audit that measured it.
        name: What was measured.
        context: The settings that identify it, among others that it may have.
    """
    return {
        r.seed: r.measurement.value for r in measured(records, audit, name, context) if r.method == method
    }


@dataclass(frozen=True)
class TableRow:
    """A row of a study's table.

    Args:
        label: What the table calls it.
        audit: The audit that measured it.
        name: What was measured.
        unit: Its unit; two fractions are compared by their difference, all else by its factor.
        context: The settings that identify it.
        better: Which direction is better.
    """

    label: str
    audit: str
    name: str = "error"
    unit: str = "fraction"
    context: Mapping[str, Scalar] = field(default_factory=dict)
    better: Literal["lower", "higher"] = "lower"

    def of(self, report: Report, method: str) -> dict[int, float]:
        """The method's number under each seed."""
        return by_seed(report.records, method, self.audit, self.name, self.context)

    def compared(self, report: Report, method: str, baseline: str) -> Comparison | None:
        """The method against the baseline, paired over seeds; None where one has no number, or no factor."""
        own, other = self.of(report, method), self.of(report, baseline)
        as_factor = self.unit != "fraction"
        if not own or not other or (as_factor and min(*own.values(), *other.values()) <= 0):
            return None
        return compare_seeds(own, other, better=self.better, log=as_factor)


OWN_HEAD = TableRow("own head", "accuracy", context={"split": "test"})
ONE_IMAGE = TableRow(
    "retrained on one image of each class", "co_adaptation", context={"head": "retrained", "samples": 10}
)
COST = (
    TableRow("training time", "training", "seconds", "seconds"),
    TableRow("memory that training adds", "training", "memory", "MiB"),
)
COST_TITLES = {one.name: one.label for one in COST}


def provenance(report: Report) -> str:
    """The command, the day, the commit, the recipe, the versions, and how many runs did not end well."""
    unfinished = unfinished_in_words(report)
    bad = sum(note.outcome != Outcome.FINISHED for note in report.runs)
    runs = f" {bad} of {len(report.runs)} runs did not finish ({unfinished})." if unfinished else ""
    made = f"Made by `{report.command}`, {report.created}. {origin_in_words(report)}"
    return f"{made} Versions: {versions_in_words(report)}.{runs}"


def table(report: Report, rows: Sequence[TableRow], methods: Sequence[str], baseline: str) -> str:
    """A row for each quantity, a column for each method: mean, interval, and how it stands to the baseline."""
    cells = [["", *methods]]
    cells += [[row.label, *(_cell(report, row, method, baseline) for method in methods)] for row in rows]
    return markdown_table(cells)


def cost_in_words(report: Report, method: str, baseline: str) -> str:
    """Time and memory of a method as factors of the baseline's; empty where neither was measured."""
    compared = ((quantity.label, quantity.compared(report, method, baseline)) for quantity in COST)
    return " and ".join(
        f"{factor(one)} the {label}"
        for label, one in compared
        if one is not None and one.difference is not None
    )


def cost_cells(report: Report, method: str, baseline: str) -> list[str]:
    """Time and memory of a method as factors of the baseline's, a cell each; a dash where one was not measured."""
    if method == baseline:
        return ["1×"] * len(COST)
    compared = [quantity.compared(report, method, baseline) for quantity in COST]
    return ["–" if one is None or one.difference is None else factor(one) for one in compared]


def in_words(report: Report, quantity: TableRow, method: str, baseline: str) -> str:
    """The paired verdict with the difference that it rests on."""
    one = quantity.compared(report, method, baseline)
    if one is None or one.difference is None:
        return "not measured"
    if one.low is None or one.high is None:
        return f"no verdict from {seeds_in_words(one.seeds)} (difference {in_unit(one.difference, quantity.unit)})"
    low, high = (in_unit(end, quantity.unit) for end in (one.low, one.high))
    left_out = f", {one.dropped} without a partner" if one.dropped else ""
    return (
        f"**{one.verdict}** (difference {in_unit(one.difference, quantity.unit)}, {low} to {high}; "
        f"{seeds_in_words(one.seeds)}{left_out})"
    )


def save(
    report: Report, text: str, rows: Sequence[TableRow], baselines: Sequence[str], out: Path, **more: Any
) -> Path:
    """Write ``ledger.md`` and, with every number of its table for each seed, ``ledger.json``; the first's path."""
    values = {
        "schema": SCHEMA, "command": report.command, "created": report.created, "versions": report.versions,
        **made_from(report),
        "runs": [note.to_json() for note in report.runs], **more,
        "rows": [_as_json(report, row, method, baselines) for row in rows for method in report.methods],
    }  # fmt: skip
    return write_ledger_files(out, text.replace(THIN, " ") + "\n", values)


def _as_json(report: Report, row: TableRow, method: str, baselines: Sequence[str]) -> dict[str, Any]:
    own = row.of(report, method)
    against = {name: row.compared(report, method, name) for name in baselines if name != method}
    return {
        **asdict(row),
        "method": method,
        "values": own,
        "over_seeds": asdict(summarise(own)) if own else None,
        "against": {name: asdict(one) for name, one in against.items() if one is not None},
    }


def mean_cell(values: Mapping[int, float], unit: str) -> str:
    """A mean over seeds with its interval, as the tables of studies have it.

    >>> mean_cell({0: 0.02, 1: 0.03, 2: 0.04}, "fraction")
    '3.0 % (0.5 % to 5.5 %)'
    """
    over = summarise(values)
    text = in_unit(over.mean, unit)
    if over.low is None or over.high is None:
        return text
    most = 1.0 if unit == "fraction" else math.inf
    # none lies outside; what lies inside still covers
    low, high = max(0.0, over.low), min(most, over.high)
    return f"{text} ({in_unit(low, unit)} to {in_unit(high, unit)})"


def _cell(report: Report, row: TableRow, method: str, baseline: str) -> str:
    own = row.of(report, method)
    if not own:
        return "–"
    text = mean_cell(own, row.unit)
    one = None if method == baseline else row.compared(report, method, baseline)
    if one is None or one.difference is None:
        return text
    if row.unit != "fraction":
        return f"{text}, {factor(one)}"
    return f"{text} [{one.verdict if one.low is not None else 'no verdict: ' + seeds_in_words(one.seeds)}]"


def factor(one: Comparison) -> str:
    """A comparison of logarithms as a factor with its interval."""
    assert one.difference is not None
    middle = in_unit(math.exp(one.difference), "factor")
    if one.low is None or one.high is None:
        return middle
    return f"{middle} ({in_unit(math.exp(one.low), 'factor')} to {in_unit(math.exp(one.high), 'factor')})"


def command_line(paper: str, dataset: str, seeds: int | None = None, only: str = "") -> str:
    """What makes a ledger again, from a checkout; names no folder of this machine.

    >>> command_line("sato_2019", "cifar10")
    'python -m papers sato_2019 --dataset cifar10 --root ROOT'
    """
    words = ["python -m papers", paper, *(["--only", only] if only else []), "--dataset", dataset]
    words += [] if dataset == "digits" else ["--root", "ROOT"]
    return " ".join(words + ([] if seeds is None else ["--seeds", str(seeds)]))


SCALED = "Not as in the paper: "
ALWAYS_COUNTED: tuple[ClaimVerdict, ...] = ("holds", "ordering holds", "refuted", "cannot tell", "not run")
BESIDE = "## Beside the verdicts"


@dataclass(frozen=True)
class Ledger:
    """Every claim of a paper on one dataset.

    Args:
        claims: The claims.
        dataset: What they were tried on.
        judgements: One for each claim.
        report: The comparison that they were judged on; without measurements where nothing was run.
        studies: Names of the studies, if it is not the paper's recipe.
        facts: What else ``ledger.json`` holds, plain values by name.
    """

    claims: PaperClaims
    dataset: str
    judgements: tuple[Judgement, ...]
    report: Report
    studies: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def save(self, directory: Path, text: str | None = None) -> Path:
        """Write ``ledger.md``, the verdicts or a study's own `text`, and ``ledger.json``; the path of the first."""
        return write_ledger_files(directory, self.to_markdown() if text is None else text, self.to_json())

    def counts(self) -> dict[str, int]:
        """The number of claims with each verdict, with the ordering where that is what was found."""
        found = Counter(judgement.words for judgement in self.judgements)
        more = {word: found[word] for word in sorted(found) if word not in ALWAYS_COUNTED}
        return {word: found[word] for word in ALWAYS_COUNTED} | more

    def to_json(self) -> dict[str, Any]:
        """The content of ``ledger.json``."""
        return encode(
            {
                "schema": SCHEMA,
                "paper": self.claims.paper,
                "reference": self.claims.reference,
                "dataset": self.dataset,
                "command": self.report.command,
                "created": self.report.created,
                "versions": self.report.versions,
                **made_from(self.report),
                "studies": list(self.studies),
                "scaled": self.scaled,
                "runs": [note.to_json() for note in self.report.runs],
                "verdicts": self.counts(),
                "claims": self.claim_rows(),
                "measurements": by_quantity(self.report.records, self.dataset),
                "cost": [row.to_json() for row in cost_rows(self.report)],
                **self.facts,
            }
        )

    @property
    def scaled(self) -> str:
        """What differs from the paper's experiment; empty if nothing."""
        return self.claims.scaled_in(next(iter(self.studies), ""), self.dataset)

    def claim_rows(self) -> list[dict[str, Any]]:
        """A row of ``ledger.json`` for each claim."""
        return [
            j.to_json() | {"run": self._command(j), "scaled": self._is_scaled(j)} for j in self.judgements
        ]

    def _is_scaled(self, judgement: Judgement) -> bool:
        """Whether the claim was judged on a dataset of its own, in an experiment smaller than the paper's."""
        judged = judgement.verdict in ("holds", "ordering holds", "refuted", "cannot tell")
        return judged and self.scaled != "" and self.dataset in judgement.claim.datasets

    def to_markdown(self) -> str:
        """The content of ``ledger.md``."""
        parts = [
            f"# {self.claims.paper} on {self.dataset}",
            self.claims.reference,
            _listed([f"Made by `{self.report.command}`, {self.report.created}.", *self._provenance()]),
            self.verdicts_in_markdown(),
        ]
        parts += [part for section in self.sections().items() for part in section]
        return "\n\n".join(part for part in parts if part) + "\n"

    def sections(self) -> dict[str, str]:
        """What follows the verdicts: tables by their headings, as ``ledger.md`` has them."""
        cuts = cut_table(self.report)
        tables = {
            "## Errors of the own head, and of retrained heads by number of images": heads_table(self.report),
            "## At both cuts": markdown_table([cuts[0], *cuts[1]]) if cuts else "",
            "## Cost": _cost_table(self.report),
        }
        return {heading: table for heading, table in tables.items() if table}

    def verdicts_in_markdown(self) -> str:
        """The counts, every claim with its verdict, and what stands beside the verdicts."""
        columns = ("id", "claim", "the paper", HERE, "verdict", "note")
        parts = [
            self._counted(),
            markdown_table([columns, *self._rows()]),
        ]
        beside = self._beside()
        if beside:
            titles = ("claim", "reading", "verdict", "ordering alone", HERE)
            parts += [BESIDE, markdown_table([titles, *beside])]
        return "\n\n".join(part for part in parts if part).replace(THIN, " ")

    def _counted(self) -> str:
        """The counts as a line, orderings in brackets after the verdict that they stand beside."""
        verdicts = Counter(judgement.verdict for judgement in self.judgements)
        beside = Counter((judgement.verdict, judgement.ordering) for judgement in self.judgements)
        parts = []
        for verdict in dict.fromkeys([*ALWAYS_COUNTED, *verdicts]):
            orders = [
                f"{word} {count}" for (v, word), count in sorted(beside.items()) if v == verdict and word
            ]
            here = f" (ordering here: {', '.join(orders)})" if orders else ""
            parts.append(f"{verdict}: {verdicts[verdict]}{here}")
        return ", ".join(parts) + "."

    def _provenance(self) -> list[str]:
        bad = unfinished_in_words(self.report)
        total = f"{len(self.report.runs)} runs" + (f", of which not finished: {bad}" if bad else "")
        runs = f"{total}." if self.report.runs else ""
        return [
            line
            for line in (
                origin_in_words(self.report),
                f"Versions: {versions_in_words(self.report)}.",
                f"{SCALED}{self.scaled}" if self.scaled else "",
                runs,
            )
            if line
        ]

    def _rows(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = []
        for judgement in self.judgements:
            claim = judgement.claim
            found = (_found(o) for o in judgement.readings if o.reading.role == "verdict")
            ours = "<br>".join(filter(None, found))
            verdict = f"**{judgement.words}**" + (", scaled" if self._is_scaled(judgement) else "")
            verdict += f", {judgement.remark}" if judgement.remark else ""
            reason = f": {judgement.reason}" if judgement.reason else ""
            run = self._command(judgement)
            note = " ".join(part for part in (claim.note, f"Run `{run}`." if run else "") if part)
            rows.append((claim.id, claim.words, claim.quoted, ours, verdict + reason, note))
        return rows

    def _beside(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = []
        for judgement in self.judgements:
            if judgement.claim.recalled:
                continue
            about = [o for o in judgement.readings if o.reading.role != "verdict" or o.reading.factor != 1]
            for one in about:
                reason = f": {one.reason}" if one.reason else ""
                label = one.reading.label or one.reading.measure
                order = "does not hold" if one.order == "refuted" else one.order
                only_ordering = one.verdict == "holds" and one.reading.is_ordering
                verdict = "ordering holds" if only_ordering else one.verdict
                row = (judgement.claim.id, label, verdict + reason, order, _found(one))
                rows.append(row)
        return rows

    def _command(self, judgement: Judgement) -> str:
        """What to run for a claim that was not run here."""
        claim = judgement.claim
        if judgement.verdict != "not run" or claim.command == "-":
            return ""
        only_numbers = claim.readings and all(reading.value is not None for reading in claim.readings)
        here = claim.datasets if only_numbers else (*claim.datasets, *claim.also)
        dataset = self.dataset if self.dataset in here else claim.datasets[0]
        return claim.command or command_line(self.claims.paper, dataset, only=claim.study)


def _found(judged: JudgedReading) -> str:
    """The numbers of a reading: each first side, then what it was compared with."""
    sides: dict[Any, tuple[Series, list[Compared]]] = {}
    for one in judged.compared:
        key = (one.first.method, *sorted(one.first.context.items(), key=str))
        sides.setdefault(key, (one.first, []))[1].append(one)
    lines = [
        f"{_side(first, first.title)} against "
        + ", ".join(_other(one, judged) for one in compared)
        + f"; {seeds_in_words(min(one.comparison.seeds for one in compared))}"
        for first, compared in sides.values()
    ]
    return "<br>".join(lines)


def _other(one: Compared, judged: JudgedReading) -> str:
    if one.second.method == one.first.method:
        itself = judged.reading.itself
        title = f"its own {itself.get('audit', '')} {itself.get('measure', '')}".strip()
    else:
        same = dict(one.second.context) == dict(one.first.context)
        title = one.second.method if same else one.second.title
    shown = _side(one.second, title)
    times = one.times(judged.reading)
    if times is None:
        return shown
    middle, low, high = (in_unit(value, "factor") for value in times)
    return f"{shown} ({middle}, {low} to {high})"


def _side(series: Series, title: str) -> str:
    over = series.over_seeds
    mean, unit = over.mean, series.unit
    spread = "" if not over.spread else f" ± {in_unit(over.spread, unit)}"
    return f"{title} {in_unit(mean, unit)}{spread}"


def cost_rows(report: Report) -> list[Any]:
    """Training time and memory of each method as factors of the first one's."""
    return [
        row
        for row in report.summary
        if (row.kind, row.audit) == ("ratio", "training") and row.name in COST_TITLES
    ]


def _cost_table(report: Report) -> str:
    """A line for each method, a column for each cost and condition that was measured; empty without any."""
    cost = cost_rows(report)
    columns = dict.fromkeys((name, _context(row)) for name in COST_TITLES for row in cost if row.name == name)
    cells = {
        (row.method, row.name, _context(row)): f"{in_unit(row.value, row.unit)} ({_ends(row)})"
        for row in cost
    }
    rows = [
        (method, *(cells.get((method, *column), "–") for column in columns))
        for method in dict.fromkeys(row.method for row in cost)
    ]
    titles = [
        f"{COST_TITLES[name]}{context and f', {context}'}, {report.methods[0]} = 1× (95 % interval)"
        for name, context in columns
    ]
    return markdown_table([("method", *titles), *rows]) if rows else ""


def _context(row: Any) -> str:
    """The condition in which a cost was measured; empty if there is only one."""
    return ", ".join(f"{name} {value}" for name, value in row.context.items())


def _ends(row: Any) -> str:
    if row.low is None or row.high is None:
        return f"no interval: {seeds_in_words(row.seeds)}"
    return f"{in_unit(row.low, row.unit)} to {in_unit(row.high, row.unit)}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def ledger_without_data(claims: PaperClaims, recipe: Recipe, command: str) -> Ledger:
    """The ledger that says "not run: no data" of every claim that the dataset's files would help."""
    judgements = tuple(
        Judgement(row.claim, "not run", NO_DATA) if _needs_data(row.claim, recipe.dataset) else row
        for row in judge(claims, [], recipe.dataset)
    )
    return Ledger(claims, recipe.dataset, judgements, report_of(recipe, [], command))


def save_without_data(ledger: Ledger, out: Path) -> Path:
    """Write it, unless that would replace results; the path of ``ledger.md``."""
    check_no_results(out)
    return ledger.save(out)


def check_no_results(out: Path) -> None:
    """Raise ValueError if a folder has a ledger with runs."""
    path = out / "ledger.json"
    if path.exists() and json.loads(path.read_text("utf-8")).get("runs"):
        raise ValueError(
            f"nothing was run: no data; and {path} has results, which stay as they are. Correct --root, or give "
            "another --out."
        )


def _needs_data(claim: Claim, dataset: str) -> bool:
    """Whether a dataset's files would help a claim: not one about another dataset, nor one that nothing measures."""
    is_measured = bool(claim.readings or claim.study) and not claim.recalled
    return is_measured and dataset in (*claim.datasets, *claim.also)


@dataclass(frozen=True)
class JudgedStudy:
    """A study of a paper on one dataset, or several that are run as one.

    Args:
        paper: Its name in the catalogue.
        names: Of the studies, as the paper's claims call them; the first is what the command runs.
        dataset: What they are on.
    """

    paper: str
    names: tuple[str, ...]
    dataset: str

    def command(self, seeds: int | None = None) -> str:
        """What makes the ledger again.

        >>> JudgedStudy("wan_2018", ("fgsm",), "digits").command(5)
        'python -m papers wan_2018 --only fgsm --dataset digits --seeds 5'
        """
        return command_line(self.paper, self.dataset, seeds, only=self.names[0])

    def judgements(self, records: Sequence[Record]) -> tuple[Judgement, ...]:
        """The claims of these studies judged on records, every other one "not run"."""
        claims = paper_claims(self.paper)
        mine = dataclasses.replace(claims, claims=tuple(c for c in claims.claims if c.study in self.names))
        found = {j.claim.id: j for j in judge(mine, records, self.dataset)}
        # on no records every other claim says by itself whether it is about another dataset
        rest = {j.claim.id: self._elsewhere(j) for j in judge(claims, [], self.dataset)}
        return tuple(found.get(claim.id, rest[claim.id]) for claim in claims.claims)

    def _elsewhere(self, judgement: Judgement) -> Judgement:
        """A claim of another study: what it rests on may well have been measured here, but is judged there."""
        claim = judgement.claim
        here = self.dataset in (*claim.datasets, *claim.also)
        if judgement.verdict != "not run" or not claim.study or not here:
            return judgement
        return dataclasses.replace(judgement, reason=f"judged by --only {claim.study}", readings=())

    def data(self, recipe: Recipe, request: StudyRequest) -> RunData:
        """The images of a recipe; without them the ledger says that nothing was run, and NoDataError is raised."""
        if (found := data_if_there(recipe)) is not None:
            return found
        claims, command = paper_claims(self.paper), self.command(request.seeds)
        path = save_without_data(ledger_without_data(claims, recipe, command), request.out)
        raise NoDataError(missing_files(recipe), path)

    def write_ledger(self, report: Report, sections: Sequence[str], out: Path) -> Path:
        """``ledger.json``, and ``ledger.md`` with sections of the study's own after the verdicts; the latter's path.

        Args:
            report: Of this study.
            sections: Markdown; empty ones are passed over.
            out: The folder.
        """
        judgements = self.judgements(report.records)
        ledger = Ledger(paper_claims(self.paper), self.dataset, judgements, report, self.names)
        text = "\n\n".join(part.strip("\n") for part in (ledger.to_markdown(), *sections) if part)
        return ledger.save(out, f"{text}\n".replace(THIN, " "))


# A table of the errors behind both cuts of the network, which a ledger shows where both were measured.
USUAL, LATER = "co_adaptation", "deeper_cut"
HEADS = ("retrained", "linear", "class mean", "class mean, unit length", "nearest neighbour")
PIXELS = ("class mean, pixels", "nearest pixel")


def cut_table(report: Report) -> tuple[list[str], list[list[str]]] | None:
    """Columns and lines: for each method the error at the cut it was trained with, and one layer later if there is one.

    A line is a head; heads that were not measured are left out. The last lines are raw pixels, whatever the
    network. (From one image of each class the nearest class mean is the nearest neighbour.) None where only one
    cut was measured.

    >>> cut_table(Report({}, {}, "", "")) is None
    True
    """
    rows = [row for row in report.summary if row.kind == "mean" and row.name == "error"]
    fewest = min((int(row.context["samples"]) for row in rows if row.audit == LATER), default=None)
    if fewest is None:
        return None
    found = {
        (row.audit, row.context["head"], row.method): _percent(row)
        for row in rows
        if row.audit in (USUAL, LATER) and row.context["samples"] == fewest
    }
    measured = {(row.method, row.audit) for row in rows}
    methods = dict.fromkeys(row.method for row in rows if row.audit == USUAL)
    cuts = [(m, audit) for m in methods for audit in (USUAL, LATER) if (m, audit) in measured]
    columns = [
        f"from {fewest} images",
        *(f"{m}, {'later' if audit == LATER else 'as trained'}" for m, audit in cuts),
    ]
    lines = [
        [head, *(found.get((audit, head, m), "–") for m, audit in cuts)]
        for head in HEADS
        if any((audit, head, m) in found for m, audit in cuts)
    ]
    blank = [""] * (len(columns) - 2)
    for head in PIXELS:  # the same for every method
        value = next((cell for (_, name, _), cell in found.items() if name == head), None)
        lines += [] if value is None else [[f"{head}, no network", value, *blank]]
    return columns, lines


def heads_table(report: Report) -> str:
    """A line for each method: the errors of its own head, and of heads retrained on more and more images."""
    rows = [row for row in report.summary if row.kind == "mean" and row.name == "error"]
    found = {
        (row.method, int(row.context["samples"])): _percent(row)
        for row in rows
        if row.audit == USUAL and row.context["head"] == "retrained"
    }
    own = {(row.method, row.context.get("split")): _percent(row) for row in rows if row.audit == "accuracy"}
    counts = sorted({count for _, count in found})
    lines = [
        [
            method,
            *(own.get((method, split), "–") for split in ("train", "test")),
            *(found.get((method, count), "–") for count in counts),
        ]
        for method in dict.fromkeys(method for method, _ in found)
    ]
    return (
        markdown_table(
            [
                ["", "own head, training images", "own head", *(f"{count:,} images" for count in counts)],
                *lines,
            ]
        )
        if lines
        else ""
    )


def _percent(row: SummaryRow) -> str:
    return f"{100 * row.value:.1f} %"
