"""The sentence about a network that is most likely fed with other images than it was trained on."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.action import CLOSE, Action, points_with_ends
from clearance.report.findings import Findings

AUDIT = "preprocessing"
INPUT = "Input"


def input_in_doubt(findings: Findings) -> bool:
    """Whether the network is right more often when it is fed otherwise, and a new last layer gains no more than that.

    A broken last layer, too, may be a little better on images that it was never meant to see; then a new one gains
    more.

    >>> from clearance.records import Report
    >>> input_in_doubt(Findings(Report({}, {}, "", ""), "digits"))
    False
    """
    return _gain(findings) is not None


def input_action(findings: Findings) -> Action | None:
    """Names the way of preparing images that is better; nothing where none is."""
    gain, named = _gain(findings), findings.exhibits(AUDIT, "ways")
    if gain is None or gain.low is None or not named:
        return None
    columns = named[0].exhibit.columns
    better = Markup("with {} it is right on {} more of the images").format(
        columns["way"][0], points_with_ends(gain)
    )
    if gain.low > CLOSE:
        said = Markup(
            "Most likely this network is not fed what it was trained on, and every other number here is about that: {}."
        )
        return Action(INPUT, said.format(better), f"{columns['remedy'][0]} Then audit again.", alarm=True)
    said = Markup("Perhaps this network is not fed what it was trained on: {}.").format(better)
    return Action(INPUT, said, f"See how its training prepared images. {columns['remedy'][0]}")


def _gain(findings: Findings) -> SummaryRow | None:
    """What other images gain, where that is more than nothing and not less than what a new last layer gains."""
    gain, refit = findings.row("mean", AUDIT, "gain"), findings.row("mean", "refit", "gain")
    if gain is None or gain.low is None or gain.high is None or gain.low <= 0:
        return None
    if refit is not None and refit.low is not None and refit.low > gain.high:
        return None
    return gain
