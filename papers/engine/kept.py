"""Results kept line by line in a small file, which is committed: a study goes on another day where it stopped."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance.research import (
    Engine,
    Listener,
    Record,
    RunData,
    RunFindings,
    RunPlan,
    decode,
    describe,
    encode,
    identifier,
    run_grid,
    versions_here,
)
from papers.engine.tasks import Tree

RUNS = "runs.jsonl"
FAILED = "failed:"  # the start of the note of a run that is tried again


class Kept:
    """Plain values by key, one JSON object a line, each written as soon as it is there.

    Args:
        path: The file; a line that was cut off while it was written does not count, and the next one takes its place.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     Kept(Path(name) / "runs.jsonl").add("plain, seed 0", {"error": 0.02})
    ...     Kept(Path(name) / "runs.jsonl").found
    {'plain, seed 0': {'error': 0.02}}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text("utf-8") if path.exists() else ""
        rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        self.found: dict[str, Tree] = {row.pop("key"): decode(row) for row in rows}

    def add(self, key: str, value: Tree) -> None:
        """Keep a value, at once and on disk."""
        self.found[key] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, **encode(value)}, allow_nan=False, ensure_ascii=False)
        with self.path.open("a+b") as file:
            file.seek(0)
            before = file.read()
            if (whole := before.rfind(b"\n") + 1) < len(before):
                file.truncate(whole)
            file.write(f"{line}\n".encode())


def run_kept(
    plans: Sequence[RunPlan],
    data: Sequence[RunData],
    kept: Kept,
    runs: Path,
    engine: Engine,
    listener: Listener,
    wanted: Callable[[Record], bool] | None = None,
) -> list[RunFindings]:
    """Run the plans that are not kept yet, in order, and keep each as soon as it ends; the findings of all.

    A run whose folder is still there is read from it, with all its exhibits; of others the curves of training are kept.
    A run that failed for a reason outside training, or one of whose audits failed, is not kept and is tried again.

    Args:
        plans: The runs.
        data: The images of each.
        kept: Where results are.
        runs: The folder of runs, which are not committed.
        engine: Where they run: processes, or how many at a time.
        listener: As :func:`clearance.research.run_grid` takes it.
        wanted: Which measurements to keep. Then what is kept is enough, and folders are not looked at; None keeps all.
    """
    keys = [key_of(plan) for plan in plans]
    missing = [
        place
        for place, (key, plan) in enumerate(zip(keys, plans, strict=True))
        if key not in kept.found or (wanted is None and (runs / plan.folder).exists())
    ]

    def keep(results: Any) -> None:
        for place, found in results.items():
            key = keys[missing[place]]
            if key not in kept.found and _ended(found):
                kept.add(key, _to_tree(found, wanted))

    made = run_grid(
        [plans[place] for place in missing],
        [data[place] for place in missing],
        runs,
        engine,
        listener,
        on_result=keep,
    )
    new = dict(zip(missing, made, strict=True))
    return [new.get(place) or RunFindings.from_json(kept.found[key]) for place, key in enumerate(keys)]


def _ended(found: RunFindings) -> bool:
    failed = found.note is None or found.note.status.startswith(FAILED)
    return not failed and not found.left_out


def findings_in(kept: Kept, plan: RunPlan) -> RunFindings | None:
    """The kept findings of a run; None if it is not finished."""
    row = kept.found.get(key_of(plan))
    return None if row is None else RunFindings.from_json(row)


def versions_of(kept: Kept, plans: Sequence[RunPlan], here: Mapping[str, str]) -> dict[str, str]:
    """The versions in `here`, beside those of the runs where they were made with others.

    >>> versions_of(Kept(Path("nothing")), [], {"torch": "2.13.0"})
    {'torch': '2.13.0'}
    """
    rows = [kept.found[key] for plan in plans if (key := key_of(plan)) in kept.found]
    made = {name: {row["versions"][name] for row in rows if name in row["versions"]} for name in here}
    return {
        name: own if made[name] <= {own} else f"{' and '.join(sorted(made[name]))} (runs), {own} (ledger)"
        for name, own in here.items()
    }


def key_of(plan: RunPlan) -> str:
    """A run's name, which changes with every setting of its training and of its audits."""
    return f"{plan.folder}-{identifier(json.loads(json.dumps(describe(plan.audit_plan.audits))))}"


def _to_tree(found: RunFindings, wanted: Callable[[Record], bool] | None) -> Tree:
    return {
        "versions": versions_here(),
        "note": None if found.note is None else found.note.to_json(),
        "records": [record.to_json() for record in found.records if wanted is None or wanted(record)],
        "exhibits": [
            one.to_json() for one in found.exhibits if wanted is None and one.exhibit.audit == "training"
        ],
    }
