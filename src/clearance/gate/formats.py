"""Rulings for other programs: a Markdown table for a pull request, and a JUnit file, which every CI service shows."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from clearance._text import visible
from clearance.gate.ruling import Outcome, Ruling
from clearance.records.markdown import markdown_table, markdown_text


def markdown(rulings: Sequence[Ruling]) -> str:
    """A heading with the verdict, and a row for each tolerance.

    >>> from clearance.gate import Tolerance
    >>> print(markdown([Ruling(Tolerance.parse("accuracy drops 1pt"), Outcome.UNMEASURED, reason="no seeds")]))
    ### clearance check: not measured
    <BLANKLINE>
    | fails if | verdict | before -> now | change, 95 % interval |  |
    | --- | --- | --- | --- | --- |
    | accuracy drops 1pt | not measured |  |  | no seeds |
    <BLANKLINE>
    """
    rows: list[tuple[str, ...]] = [("fails if", "verdict", "before -> now", "change, 95 % interval", "")]
    for ruling in rulings:
        remark = "; ".join(part for part in (ruling.over or ruling.reason, ruling.doubt) if part)
        cells = (ruling.tolerance.text, str(ruling.outcome), ruling.numbers, ruling.changed, remark)
        rows.append(tuple(map(markdown_text, cells)))
    return f"### clearance check: {verdict(rulings)}\n\n{markdown_table(rows)}\n"


def verdict(rulings: Sequence[Ruling]) -> Outcome:
    """Of all together: failed if one failed, else not measured if one is, else passed."""
    outcomes = {ruling.outcome for ruling in rulings}
    return next(
        each
        for each in (Outcome.FAIL, Outcome.UNMEASURED, Outcome.PASS)
        if each in outcomes or each is Outcome.PASS
    )


def junit(rulings: Sequence[Ruling]) -> str:
    """The text of a JUnit file; a broken tolerance is a failure, one that could not be measured an error.

    >>> from clearance.gate import Tolerance
    >>> print(junit([Ruling(Tolerance.parse("accuracy drops 1pt"), Outcome.UNMEASURED, reason="no seeds")]))
    <?xml version='1.0' encoding='utf-8'?>
    <testsuites>
      <testsuite name="clearance check" tests="1" failures="0" errors="1">
        <testcase classname="clearance.check" name="accuracy drops 1pt">
          <error message="not measured: accuracy drops 1pt (no seeds)" />
        </testcase>
      </testsuite>
    </testsuites>
    """
    counts = {outcome: sum(ruling.outcome is outcome for ruling in rulings) for outcome in Outcome}
    root = Element("testsuites")
    suite = SubElement(
        root,
        "testsuite",
        name="clearance check",
        tests=str(len(rulings)),
        failures=str(counts[Outcome.FAIL]),
        errors=str(counts[Outcome.UNMEASURED]),
    )
    for ruling in rulings:
        case = SubElement(suite, "testcase", classname="clearance.check", name=visible(ruling.tolerance.text))
        if ruling.outcome is Outcome.PASS:
            SubElement(case, "system-out").text = visible(str(ruling))
        else:
            SubElement(
                case, "failure" if ruling.outcome is Outcome.FAIL else "error", message=visible(str(ruling))
            )
    indent(root)
    return tostring(root, encoding="utf-8", xml_declaration=True).decode()
