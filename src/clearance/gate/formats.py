"""Results for other programs: a Markdown table for a pull request, and a JUnit file, which every CI service shows."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from clearance._text import visible
from clearance.gate.results import GateResult, GateStatus
from clearance.records.markdown import markdown_table, markdown_text


def markdown(results: Sequence[GateResult]) -> str:
    """A heading with the overall result, and a row for each tolerance.

    >>> from clearance.gate import Tolerance
    >>> print(markdown([GateResult(Tolerance.parse("accuracy drops 1pt"), GateStatus.UNMEASURED, reason="no seeds")]))
    ### clearance check: not measured
    <BLANKLINE>
    | fails if | result | before -> now | change, 95 % interval |  |
    | --- | --- | --- | --- | --- |
    | accuracy drops 1pt | not measured |  |  | no seeds |
    <BLANKLINE>
    """
    rows: list[tuple[str, ...]] = [("fails if", "result", "before -> now", "change, 95 % interval", "")]
    for result in results:
        remark = "; ".join(part for part in (result.reason or result.over, result.doubt) if part)
        cells = (result.tolerance.text, str(result.status), result.numbers, result.changed, remark)
        rows.append(tuple(map(markdown_text, cells)))
    return f"### clearance check: {overall(results)}\n\n{markdown_table(rows)}\n"


def overall(results: Sequence[GateResult]) -> GateStatus:
    """Of all together: failed if one failed, else not measured if one is, else passed."""
    found = {result.status for result in results}
    return next((each for each in (GateStatus.FAIL, GateStatus.UNMEASURED) if each in found), GateStatus.PASS)


def junit(results: Sequence[GateResult]) -> str:
    """The text of a JUnit file; a failed tolerance is a failure, one that could not be measured an error.

    >>> from clearance.gate import Tolerance
    >>> print(junit([GateResult(Tolerance.parse("accuracy drops 1pt"), GateStatus.UNMEASURED, reason="no seeds")]))
    <?xml version='1.0' encoding='utf-8'?>
    <testsuites>
      <testsuite name="clearance check" tests="1" failures="0" errors="1">
        <testcase classname="clearance.check" name="accuracy drops 1pt">
          <error message="not measured: accuracy drops 1pt (no seeds)" />
        </testcase>
      </testsuite>
    </testsuites>
    """
    counts = {status: sum(result.status is status for result in results) for status in GateStatus}
    root = Element("testsuites")
    suite = SubElement(
        root,
        "testsuite",
        name="clearance check",
        tests=str(len(results)),
        failures=str(counts[GateStatus.FAIL]),
        errors=str(counts[GateStatus.UNMEASURED]),
    )
    for result in results:
        case = SubElement(suite, "testcase", classname="clearance.check", name=visible(result.tolerance.text))
        if result.status is GateStatus.PASS:
            SubElement(case, "system-out").text = visible(str(result))
        else:
            SubElement(
                case,
                "failure" if result.status is GateStatus.FAIL else "error",
                message=visible(str(result)),
            )
    indent(root)
    return tostring(root, encoding="utf-8", xml_declaration=True).decode()
