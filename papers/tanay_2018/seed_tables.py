"""Tables of means over seeds, next to the article's numbers, for the studies that train networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearance.research import Record, Scalar, compare_seeds, markdown_table, summarise
from papers.engine.ledger import by_seed, factor, mean_and_spread, seeds_in_words

SAID_ONCE = ("pixel units",)  # units that stand with the row's name
Column = tuple[str, Mapping[str, Scalar]]


@dataclass(frozen=True)
class SeedRow:
    """A row of a table: what it is called, where it is measured, and what the article has."""

    label: str
    audit: str
    name: str
    context: Mapping[str, Scalar] = field(default_factory=dict)
    article: str = ""

    def of(self, records: Sequence[Record], column: Column) -> dict[int, float]:
        """The number of a column (a method and a context) under each seed."""
        method, context = column
        return by_seed(records, method, self.audit, self.name, {**self.context, **context})


def table(records: Sequence[Record], rows: Sequence[SeedRow], columns: Mapping[str, Column]) -> str:
    """Mean ± sd over seeds, a row for each quantity that was measured; the article's own number last."""
    lines = [["", *columns, "the article, on MNIST"]]
    for row in rows:
        found = {title: row.of(records, column) for title, column in columns.items()}
        if any(found.values()):
            unit = next(r.measurement.unit for r in records if r.measurement.name == row.name)
            label, unit = (f"{row.label}, {unit}", "") if unit in SAID_ONCE else (row.label, unit)
            lines.append([label, *(_cell(values, unit) for values in found.values()), row.article])
    return markdown_table(lines)


def unfinished(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which networks did not train to the end, and what became of them; nothing where all did.

    >>> unfinished({"a": {"status": "finished at step 9"}, "b": {"status": "diverged at step 2"}})
    'Did not finish: b: diverged at step 2.'
    """
    bad = [
        f"{name}: {one['status']}" for name, one in found.items() if not one["status"].startswith("finished")
    ]
    return f"Did not finish: {'; '.join(bad)}." if bad else ""


def factor_in_words(records: Sequence[Record], quantity: SeedRow, first: Column, second: Column) -> str:
    """How many times larger the first is than the second, paired over seeds, with its 95 % interval."""
    own, other = quantity.of(records, first), quantity.of(records, second)
    if not own or not other or min(*own.values(), *other.values()) <= 0:
        return "no ratio"
    one = compare_seeds(own, other, better="higher", log=True)
    return "no ratio" if one.difference is None else f"{factor(one)}, {seeds_in_words(one.seeds)}"


def _cell(values: Mapping[int, float], unit: str) -> str:
    if not values:
        return "–"
    over = summarise(values)
    return mean_and_spread(over.mean, over.spread, unit)
