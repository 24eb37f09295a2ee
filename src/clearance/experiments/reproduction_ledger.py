"""The ledger of a reproduction: every claim of a paper, what was found, and what it cost; as Markdown and JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.cut_table import cut_table
from clearance.records import Report
from clearance.records.claims import Compared, Judgement, Outcome, PaperClaims, Series
from clearance.records.encoding import encode
from clearance.records.markdown import markdown_table
from clearance.records.summary import summarise
from clearance.report.numbers import THIN, printed

SCHEMA = 1


@dataclass(frozen=True)
class Ledger:
    """Every claim of a paper on one dataset.

    Args:
        claims: The claims.
        dataset: What they were tried on.
        judgements: One for each claim.
        report: The comparison that they were judged on; without measurements where nothing was run.
    """

    claims: PaperClaims
    dataset: str
    judgements: tuple[Judgement, ...]
    report: Report

    def save(self, directory: Path) -> Path:
        """Write ``ledger.md`` and ``ledger.json`` into `directory`; the path of the first."""
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        write_bytes(directory / "ledger.json", text.encode())
        write_bytes(directory / "ledger.md", self.to_markdown().encode())
        return directory / "ledger.md"

    def counts(self) -> dict[str, int]:
        """How many claims hold, are refuted, cannot be told and were not run; how many are only recalled."""
        found = Counter(judgement.verdict for judgement in self.judgements)
        told = {verdict: found[verdict] for verdict in ("holds", "refuted", "cannot tell", "not run")}
        return told | ({"no verdict": found["no verdict"]} if found["no verdict"] else {})

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
                "scaled": self.claims.scaled.get(self.dataset, ""),
                "runs": [note.to_json() for note in self.report.runs],
                "verdicts": self.counts(),
                "claims": [j.to_json() | {"run": self._command(j)} for j in self.judgements],
                "cost": [row.to_json() for row in _cost(self.report)],
            }
        )

    def to_markdown(self) -> str:
        """The content of ``ledger.md``."""
        parts = [
            f"# {self.claims.paper} on {self.dataset}",
            self.claims.reference,
            _listed([f"Made by `{self.report.command}`, {self.report.created}.", *self._provenance()]),
            ", ".join(f"{verdict}: {count}" for verdict, count in self.counts().items()) + ".",
            markdown_table(
                [
                    ("id", "claim", "the paper", "here, mean ± sd over seeds", "verdict", "note"),
                    *self._rows(),
                ]
            ),
        ]
        beside = self._beside()
        if beside:
            columns = ("claim", "reading", "verdict", "ordering alone", "here, mean ± sd over seeds")
            parts += ["## Beside the verdicts", markdown_table([columns, *beside])]
        cuts = cut_table(self.report)
        if cuts:
            parts += ["## At both cuts", markdown_table([cuts[0], *cuts[1]])]
        cost = _cost_table(self.report)
        if cost:
            parts += ["## Cost", cost]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _provenance(self) -> list[str]:
        versions = ", ".join(f"{name} {version}" for name, version in self.report.versions.items())
        scaled = self.claims.scaled.get(self.dataset, "")
        outcomes = Counter((note.method, str(note.outcome)) for note in self.report.runs)
        bad = [f"{method}: {count} {how}" for (method, how), count in outcomes.items() if how != "finished"]
        told = f"{len(self.report.runs)} runs" + (f", of which not finished: {', '.join(bad)}" if bad else "")
        runs = f"{told}." if self.report.runs else ""
        return [
            line
            for line in (f"Versions: {versions}.", f"Not as in the paper: {scaled}" if scaled else "", runs)
            if line
        ]

    def _rows(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = []
        for judgement in self.judgements:
            claim = judgement.claim
            told = (_found(o) for o in judgement.outcomes if o.reading.role == "verdict")
            ours = "<br>".join(filter(None, told))
            verdict = f"**{judgement.verdict}**" + (f", {judgement.remark}" if judgement.remark else "")
            reason = f": {judgement.reason}" if judgement.reason else ""
            run = self._command(judgement)
            note = " ".join(part for part in (claim.note, f"Run `{run}`." if run else "") if part)
            rows.append((claim.id, claim.words, claim.told, ours, verdict + reason, note))
        return rows

    def _beside(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = []
        for judgement in self.judgements:
            if judgement.claim.recalled:
                continue
            about = [o for o in judgement.outcomes if o.reading.role != "verdict" or o.order != o.verdict]
            for outcome in about:
                reason = f": {outcome.reason}" if outcome.reason else ""
                label = outcome.reading.label or outcome.reading.measure
                row = (judgement.claim.id, label, outcome.verdict + reason, outcome.order, _found(outcome))
                rows.append(row)
        return rows

    def _command(self, judgement: Judgement) -> str:
        """What to run for a claim that was not run here."""
        claim = judgement.claim
        if judgement.verdict != "not run" or claim.command == "-":
            return ""
        dataset = self.dataset if self.dataset in (*claim.datasets, *claim.also) else claim.datasets[0]
        return claim.command or reproduce_command(self.claims.paper, dataset, only=claim.study)


def reproduce_command(paper: str, dataset: str, seeds: int | None = None, only: str = "") -> str:
    """The command line of a reproduction; names no folder of this machine.

    >>> reproduce_command("sato-2019", "cifar10")
    'clearance reproduce sato-2019 --dataset cifar10 --root ROOT'
    """
    words = ["clearance", "reproduce", paper, *(["--only", only] if only else []), "--dataset", dataset]
    words += [] if dataset == "digits" else ["--root", "ROOT"]
    return " ".join(words + ([] if seeds is None else ["--seeds", str(seeds)]))


def _found(outcome: Outcome) -> str:
    """The numbers of a reading: each first side, then what it was held against."""
    sides: dict[int, tuple[Series, list[Compared]]] = {}
    for one in outcome.compared:
        sides.setdefault(id(one.first), (one.first, []))[1].append(one)
    return "<br>".join(
        f"{_side(first, first.title)} against "
        + ", ".join(_other(one, outcome) for one in compared)
        + f"; {seeds_in_words(min(one.comparison.seeds for one in compared))}"
        for first, compared in sides.values()
    )


def _other(one: Compared, outcome: Outcome) -> str:
    if one.second.method == one.first.method:
        itself = outcome.reading.itself
        title = f"its own {itself.get('audit', '')} {itself.get('measure', '')}".strip()
    else:
        same = dict(one.second.context) == dict(one.first.context)
        title = one.second.method if same else one.second.title
    shown = _side(one.second, title)
    times = one.times(outcome.reading)
    if times is None:
        return shown
    middle, low, high = (_number(value, "factor") for value in times)
    return f"{shown} ({middle}, {low} to {high})"


def _side(series: Series, title: str) -> str:
    over = summarise(series.values)
    mean, unit = over.mean, series.unit
    spread = "" if not over.spread else f" ± {_number(over.spread, unit)}"
    return f"{title} {_number(mean, unit)}{spread}"


COST = {"seconds": "training time", "memory": "memory that training adds"}


def _cost(report: Report) -> list[Any]:
    """Training time and memory of each method as factors of the first one's."""
    return [
        row for row in report.summary if (row.kind, row.audit) == ("ratio", "training") and row.name in COST
    ]


def _cost_table(report: Report) -> str:
    """A line for each method, a column for each cost and condition that was measured; empty without any."""
    cost = _cost(report)
    columns = dict.fromkeys((name, _context(row)) for name in COST for row in cost if row.name == name)
    cells = {
        (row.method, row.name, _context(row)): f"{_number(row.value, row.unit)} ({_ends(row)})"
        for row in cost
    }
    rows = [
        (method, *(cells.get((method, *column), "–") for column in columns))
        for method in dict.fromkeys(row.method for row in cost)
    ]
    titles = [
        f"{COST[name]}{context and f', {context}'}, {report.methods[0]} = 1× (95 % interval)"
        for name, context in columns
    ]
    return markdown_table([("method", *titles), *rows]) if rows else ""


def _context(row: Any) -> str:
    """In which condition a cost was measured, in words; nothing where there is one for all."""
    return ", ".join(f"{name} {value}" for name, value in row.context.items())


def _ends(row: Any) -> str:
    if row.low is None or row.high is None:
        return f"no interval: {seeds_in_words(row.seeds)}"
    return f"{_number(row.low, row.unit)} to {_number(row.high, row.unit)}"


def seeds_in_words(count: int) -> str:
    """How many seeds, for a sentence.

    >>> seeds_in_words(1), seeds_in_words(5)
    ('1 seed', '5 seeds')
    """
    return f"{count} seed{'' if count == 1 else 's'}"


def _number(value: float, unit: str) -> str:
    return printed(value, unit).replace(THIN, " ")


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
