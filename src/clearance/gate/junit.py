"""Rulings as a JUnit file, which every CI service shows: one test case for each tolerance."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from clearance.gate.ruling import Outcome, Ruling


def junit(rulings: Sequence[Ruling]) -> str:
    """The text of a JUnit file; a broken tolerance is a failure, one that could not be measured an error.

    >>> from clearance.gate import Tolerance
    >>> print(junit([Ruling(Tolerance.parse("accuracy drops 1pt"), Outcome.UNMEASURED, reason="no seeds")]))
    <?xml version='1.0' encoding='utf-8'?>
    <testsuites>
      <testsuite name="clearance check" tests="1" failures="0" errors="1">
        <testcase classname="clearance.check" name="accuracy drops 1pt">
          <error message="could not measure: accuracy drops 1pt (no seeds)" />
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
        case = SubElement(suite, "testcase", classname="clearance.check", name=ruling.tolerance.text)
        if ruling.outcome is Outcome.PASS:
            SubElement(case, "system-out").text = str(ruling)
        else:
            SubElement(case, "failure" if ruling.outcome is Outcome.FAIL else "error", message=str(ruling))
    indent(root)
    return tostring(root, encoding="utf-8", xml_declaration=True).decode()
