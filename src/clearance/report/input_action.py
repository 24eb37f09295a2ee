"""The sentence about a network that is most likely fed with other images than it was trained on."""

from markupsafe import Markup

from clearance.report.action import CLOSE, Action
from clearance.report.findings import Findings
from clearance.report.numbers import half_width, points


def fed_wrongly(findings: Findings) -> bool:
    """Whether another preprocessing gains clearly, and at least as much as a new last layer would.

    A broken last layer, too, may be a little better on images that it was never meant to see; then a new one gains more.

    >>> from clearance.records import Report
    >>> fed_wrongly(Findings(Report({}, {}, "", ""), "digits"))
    False
    """
    gain = findings.row("mean", "preprocessing", "gain")
    if gain is None or gain.low is None or gain.high is None or gain.low <= CLOSE:
        return False
    refit = findings.row("mean", "refit", "gain")
    return refit is None or refit.low is None or refit.low <= gain.high


def input_action(findings: Findings) -> Action | None:
    """Names the way of preparing images that is better; nothing where none is."""
    gain = findings.row("mean", "preprocessing", "gain")
    named = findings.exhibits("preprocessing", "ways")
    if not fed_wrongly(findings) or gain is None or gain.low is None or gain.high is None or not named:
        return None
    columns, half = named[0].exhibit.columns, half_width(gain.low, gain.high)
    said = Markup(
        "Most likely this network is not fed what it was trained on, and every other number here is about that: with {} "
        "it is right on {} more of the images ({} to {})."
    ).format(
        columns["way"][0], points(gain.value, half), points(gain.low, half), points(gain.high, half)
    )
    return Action("Input", said, f"{columns['remedy'][0]} Then audit again.", alarm=True)
