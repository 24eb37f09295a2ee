"""Whether the last layers move little, or are only sure: where other measures turn the order of methods round.

The paper's measure is small wherever last layers are sure of their answers, whether or not they moved little.
"""

from typing import Any

from markupsafe import Markup, escape

from clearance.report.distances import AUDIT, DISTANCES, main_reading
from clearance.report.findings import Findings
from clearance.report.names import listed, strong
from clearance.report.over_seeds import rows_of, stored
from clearance.report.reference import reference

Verdicts = dict[str, str]  # rival: whether it moves farther, less far, or is not told apart
OTHERS = (
    ("when sureness is evened out", "empirical", "calibrated"),
    ("counted by changed answers without looking at labels", "model", "as trained"),
    ("by plain distance between weights", "euclidean", "as trained"),
)
SURE = (
    "The paper's measure is small wherever last layers are sure of their answers, whether or not they moved "
    "little; the table therefore has other measures beside it."
)


def confidence(findings: Findings) -> list[Markup]:
    """A paragraph about what the paper's measure says, and where the others take it back.

    A method is said to move less far only where the 95 % interval of the paired ratio over seeds lies on one
    side of 1.

    >>> from clearance.records import Report
    >>> confidence(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    record = stored(findings, AUDIT, DISTANCES)
    rows = [] if record is None else [row for row in rows_of(record) if row["layer"] == "all"]
    known = {
        (row["metric"], row["temperature"]): _verdicts(rows, row)
        for row in rows
        if row["features"] == main_reading(findings)
    }
    paper = known.get(("empirical", "as trained"), {})
    if not paper:
        return []
    best = reference(findings)
    sentences = [_of_paper(best, paper), escape(SURE)]
    ahead = [rival for rival, verdict in paper.items() if verdict == "farther"]
    for words, metric, temperature in OTHERS:
        verdicts = known.get((metric, temperature), {})
        sentences += _of_other(best, ahead, verdicts, words)
    return [Markup(" ").join(sentences)]


def _verdicts(rows: list[dict[str, Any]], like: dict[str, Any]) -> Verdicts:
    """What a measure says of each rival: a ratio's "worse" is a longer way than the reference's."""
    words = {"worse": "farther", "better": "less far"}
    keys = ("metric", "features", "temperature")
    return {
        row["method"]: words.get(row["verdict"], "not told apart")
        for row in rows
        if row["verdict"] is not None and all(row[key] == like[key] for key in keys)
    }


def _of_paper(best: str, verdicts: Verdicts) -> Markup:
    """Says "A move less far than B; the seeds cannot tell them from C." of the last layers of each."""
    whose = Markup("the last layers of {}").format(strong(best))
    parts = []
    for outcome in ("farther", "less far", "not told apart"):
        rivals = [strong(rival) for rival, verdict in verdicts.items() if verdict == outcome]
        if not rivals:
            continue
        if outcome == "not told apart":
            parts.append(Markup("the seeds cannot tell {} from those of {}").format(whose, listed(rivals)))
        else:
            how = "less far" if outcome == "farther" else "farther"
            subject = whose if not parts else "they"
            parts.append(Markup("{} move {} than those of {}").format(subject, how, listed(rivals)))
        whose = Markup("them")
    return Markup("As the paper measures it, ") + Markup("; ").join(parts) + Markup(".")


def _of_other(best: str, ahead: list[str], verdicts: Verdicts, words: str) -> list[Markup]:
    """Where another measure turns round, or does not carry, what the paper's says."""
    turned = [strong(rival) for rival in ahead if verdicts.get(rival) == "less far"]
    unsure = [strong(rival) for rival in ahead if verdicts.get(rival) == "not told apart"]
    name = strong(best)
    found = []
    if turned:
        start = Markup("But {} those of {} move less far than those of {}: ").format(
            words, listed(turned), name
        )
        found.append(start + Markup("there {} is ahead by confidence only.").format(name))
    if unsure:
        first = words[0].upper() + words[1:]
        found.append(Markup("{}, the seeds cannot tell {} from {}.").format(first, name, listed(unsure)))
    return found
