"""What the ledgers of studies share: where they come from, and a table of errors with verdicts and cost."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from clearance._files import write_bytes
from clearance.experiments.reproduction_ledger import seeds_in_words
from clearance.experiments.reproductions.cells import markdown_table
from clearance.records import Record, Report
from clearance.records.encoding import encode
from clearance.records.summary import Comparison, compare, summarise
from clearance.report.numbers import THIN, printed
from clearance.vocabulary import Outcome, Scalar

SCHEMA = 1


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
    wanted = context or {}
    return {
        record.seed: record.measurement.value
        for record in records
        if (record.method, record.measurement.audit, record.measurement.name) == (method, audit, name)
        and all(record.measurement.context.get(key) == value for key, value in wanted.items())
    }


@dataclass(frozen=True)
class Quantity:
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
        return compare(own, other, better=self.better, log=as_factor)


OWN_HEAD = Quantity("own head", "accuracy", context={"split": "test"})
ONE_IMAGE = Quantity(
    "retrained on one image of each class", "co_adaptation", context={"head": "retrained", "samples": 10}
)
COST = (
    Quantity("training time", "training", "seconds", "seconds"),
    Quantity("memory that training adds", "training", "memory", "MiB"),
)


def provenance(report: Report) -> str:
    """The command, the day, the versions, and how many runs did not end well."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    bad = Counter(
        (note.method, str(note.outcome)) for note in report.runs if note.outcome != Outcome.FINISHED
    )
    told = ", ".join(f"{method}: {count} {outcome}" for (method, outcome), count in bad.items())
    runs = f" {sum(bad.values())} of {len(report.runs)} runs did not finish ({told})." if told else ""
    return f"Made by `{report.command}`, {report.created}. Versions: {versions}.{runs}"


def table(report: Report, rows: Sequence[Quantity], methods: Sequence[str], baseline: str) -> str:
    """A row for each quantity, a column for each method: mean, interval, and how it stands to the baseline."""
    cells = [["", *methods]]
    cells += [[row.label, *(_cell(report, row, method, baseline) for method in methods)] for row in rows]
    return markdown_table(cells)


def cost_in_words(report: Report, method: str, baseline: str) -> str:
    """Time and memory of a method as factors of the baseline's; empty where neither was measured."""
    told = []
    for quantity in COST:
        one = quantity.compared(report, method, baseline)
        if one is not None and one.difference is not None:
            told.append(f"{_factor(one)} the {quantity.label}")
    return " and ".join(told)


def cost_cells(report: Report, method: str, baseline: str) -> list[str]:
    """Time and memory of a method as factors of the baseline's, a cell each; a dash where one was not measured."""
    if method == baseline:
        return ["1×"] * len(COST)
    compared = [quantity.compared(report, method, baseline) for quantity in COST]
    return ["–" if one is None or one.difference is None else _factor(one) for one in compared]


def in_words(report: Report, quantity: Quantity, method: str, baseline: str) -> str:
    """The paired verdict with the difference that it rests on."""
    one = quantity.compared(report, method, baseline)
    if one is None or one.difference is None:
        return "not measured"
    if one.low is None or one.high is None:
        return f"no verdict from {seeds_in_words(one.seeds)} (difference {_shown(one.difference, quantity.unit)})"
    low, high = (_shown(end, quantity.unit) for end in (one.low, one.high))
    left_out = f", {one.dropped} without a partner" if one.dropped else ""
    return (
        f"**{one.verdict}** (difference {_shown(one.difference, quantity.unit)}, {low} to {high}; "
        f"{seeds_in_words(one.seeds)}{left_out})"
    )


def save(
    report: Report, text: str, rows: Sequence[Quantity], baselines: Sequence[str], out: Path, **more: Any
) -> Path:
    """Write ``ledger.md`` and, with every number of its table for each seed, ``ledger.json``; the first's path."""
    told = {
        "schema": SCHEMA, "command": report.command, "created": report.created, "versions": report.versions,
        "runs": [note.to_json() for note in report.runs], **more,
        "rows": [_as_json(report, row, method, baselines) for row in rows for method in report.methods],
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    json_text = json.dumps(encode(told), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_bytes(out / "ledger.json", json_text.encode())
    write_bytes(out / "ledger.md", (text.replace(THIN, " ") + "\n").encode())
    return out / "ledger.md"


def _as_json(report: Report, row: Quantity, method: str, baselines: Sequence[str]) -> dict[str, Any]:
    own = row.of(report, method)
    against = {name: row.compared(report, method, name) for name in baselines if name != method}
    return {
        **asdict(row),
        "method": method,
        "values": own,
        "over_seeds": asdict(summarise(own)) if own else None,
        "against": {name: asdict(one) for name, one in against.items() if one is not None},
    }


def _cell(report: Report, row: Quantity, method: str, baseline: str) -> str:
    own = row.of(report, method)
    if not own:
        return "–"
    over = summarise(own)
    text = _shown(over.mean, row.unit)
    if over.low is not None and over.high is not None:
        most = 1.0 if row.unit == "fraction" else math.inf
        # none lies outside; what lies inside still covers
        low, high = max(0.0, over.low), min(most, over.high)
        text += f" ({_shown(low, row.unit)} to {_shown(high, row.unit)})"
    one = None if method == baseline else row.compared(report, method, baseline)
    if one is None or one.difference is None:
        return text
    if row.unit != "fraction":
        return f"{text}, {_factor(one)}"
    return f"{text} [{one.verdict if one.low is not None else 'no verdict: ' + seeds_in_words(one.seeds)}]"


def _factor(one: Comparison) -> str:
    """A comparison of logarithms as a factor with its interval."""
    assert one.difference is not None
    middle = _shown(math.exp(one.difference), "factor")
    if one.low is None or one.high is None:
        return middle
    return f"{middle} ({_shown(math.exp(one.low), 'factor')} to {_shown(math.exp(one.high), 'factor')})"


def _shown(value: float, unit: str) -> str:
    return printed(value, unit).replace(THIN, " ")
