"""The ledgers of the studies that train networks: verdicts of some studies, tables of means over seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.compare import report_with
from clearance.experiments.papers import paper_claims
from clearance.experiments.reproduction_ledger import Ledger, seeds_in_words
from clearance.records import Record, Report
from clearance.records.judgement import Judgement
from clearance.records.judging import judge
from clearance.records.summary import compare, summarise
from clearance.report.numbers import THIN, printed
from clearance.vocabulary import Better, Scalar

PAPER = "tanay-2018"
SAID_ONCE = ("pixel units",)  # units that stand with the row's name
Column = tuple[str, Mapping[str, Scalar]]


@dataclass(frozen=True)
class Quantity:
    """A row of a table: what it is called, where it is measured, and what the article has."""

    label: str
    audit: str
    name: str
    context: Mapping[str, Scalar] = field(default_factory=dict)
    article: str = ""

    def of(self, records: Sequence[Record], column: Column) -> dict[int, float]:
        """The number of a column (a method and a context) under each seed."""
        wanted = {**self.context, **column[1]}
        return {
            r.seed: r.measurement.value
            for r in records
            if (r.method, r.measurement.audit, r.measurement.name) == (column[0], self.audit, self.name)
            and all(r.measurement.context.get(key) == value for key, value in wanted.items())
        }


def judged(records: Sequence[Record], studies: Sequence[str], dataset: str) -> tuple[Judgement, ...]:
    """The claims of these studies judged on records, every other one "not run"."""
    claims = paper_claims(PAPER)
    mine = dataclasses.replace(claims, claims=tuple(c for c in claims.claims if c.study in studies))
    found = {j.claim.id: j for j in judge(mine, records, dataset)}
    rest = {j.claim.id: j for j in judge(claims, [], dataset)}
    return tuple(found.get(claim.id, rest[claim.id]) for claim in claims.claims)


def table(records: Sequence[Record], rows: Sequence[Quantity], columns: Mapping[str, Column]) -> str:
    """Mean ± sd over seeds, a row for each quantity that was measured; the article's own number last."""
    head = ["", *columns, "the article"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        found = {title: row.of(records, column) for title, column in columns.items()}
        if any(found.values()):
            unit = next(r.measurement.unit for r in records if r.measurement.name == row.name)
            label, unit = (f"{row.label}, {unit}", "") if unit in SAID_ONCE else (row.label, unit)
            lines.append([label, *(_cell(values, unit) for values in found.values()), row.article])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def unfinished(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which networks did not train to the end, and what became of them; nothing where all did.

    >>> unfinished({"a": {"status": "finished at step 9"}, "b": {"status": "diverged at step 2"}})
    'Did not finish: b: diverged at step 2.'
    """
    bad = [
        f"{name}: {one['status']}" for name, one in found.items() if not one["status"].startswith("finished")
    ]
    return f"Did not finish: {'; '.join(bad)}." if bad else ""


def factor_in_words(
    records: Sequence[Record], quantity: Quantity, first: Column, second: Column, better: Better = "higher"
) -> str:
    """How many times larger the first is than the second, paired over seeds, with its 95 % interval."""
    own, other = quantity.of(records, first), quantity.of(records, second)
    if not own or not other or min(*own.values(), *other.values()) <= 0 or better == "neither":
        return "no ratio"
    one = compare(own, other, better=better, log=True)
    if one.difference is None:
        return "no ratio"
    ends = [None if end is None else printed(2.718281828459045**end, "factor") for end in (one.low, one.high)]
    middle = printed(2.718281828459045**one.difference, "factor")
    told = seeds_in_words(one.seeds)
    return f"{middle} ({ends[0]} to {ends[1]}, {told})" if None not in ends else f"{middle} ({told})"


def report_of_study(settings: Mapping[str, Any], records: Sequence[Record], command: str) -> Report:
    """A report of records alone."""
    return dataclasses.replace(report_with(settings, [], command), records=tuple(records))


def written(report: Report, studies: Sequence[str], dataset: str, parts: Sequence[str], out: Path) -> Path:
    """Records and ledger, with `parts` after its verdicts; the ledger's path."""
    report.save(out)
    ledger = Ledger(paper_claims(PAPER), dataset, judged(report.records, studies, dataset), report)
    path = ledger.save(out)
    text = "\n\n".join([ledger.to_markdown().rstrip(), *(part for part in parts if part)]) + "\n"
    write_bytes(path, text.replace(THIN, " ").encode())
    return path


def _cell(values: Mapping[int, float], unit: str) -> str:
    if not values:
        return "–"
    over = summarise(values)
    spread = "" if over.spread is None else f" ± {printed(over.spread, unit)}"
    return printed(over.mean, unit) + spread
