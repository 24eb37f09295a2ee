"""Rulings as a Markdown table, for a pull request or a job's summary."""

from collections.abc import Sequence

from clearance.gate.ruling import Outcome, Ruling


def markdown(rulings: Sequence[Ruling]) -> str:
    """A heading with the verdict, and a row for each tolerance.

    >>> from clearance.gate import Tolerance
    >>> print(markdown([Ruling(Tolerance.parse("accuracy drops 1pt"), Outcome.UNMEASURED, reason="no seeds")]))
    ### clearance check: could not measure
    <BLANKLINE>
    | fails if | verdict | before -> now | change, 95 % interval | |
    |---|---|---|---|---|
    | accuracy drops 1pt | could not measure |  |  | no seeds |
    <BLANKLINE>
    """
    lines = [
        f"### clearance check: {verdict(rulings)}",
        "",
        "| fails if | verdict | before -> now | change, 95 % interval | |",
        "|---|---|---|---|---|",
    ]
    for ruling in rulings:
        cells = (
            ruling.tolerance.text,
            ruling.outcome,
            ruling.numbers,
            ruling.changed,
            "; ".join(part for part in (ruling.over or ruling.reason, ruling.doubt) if part),
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def verdict(rulings: Sequence[Ruling]) -> Outcome:
    """Of all together: broken if one is, not to be told if one is and none is broken."""
    outcomes = {ruling.outcome for ruling in rulings}
    return next(
        each
        for each in (Outcome.FAIL, Outcome.UNMEASURED, Outcome.PASS)
        if each in outcomes or each is Outcome.PASS
    )
