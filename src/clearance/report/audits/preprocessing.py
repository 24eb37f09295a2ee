"""The page on images prepared in another way: whether a network is fed other images than it was trained on."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import CLOSE, Action, AuditPage, Term, points_with_ends
from clearance.report.findings import Findings

AUDIT = "preprocessing"
TITLE = "Input"


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
        todo = f"{columns['remedy'][0]} Then audit again."
        return Action(TITLE, said.format(better), todo, alarm=True, alone=True)
    said = Markup("Perhaps this network is not fed what it was trained on: {}.").format(better)
    return Action(TITLE, said, f"See how its training prepared images. {columns['remedy'][0]}")


def _gain(findings: Findings) -> SummaryRow | None:
    """What other images gain, where that is more than nothing and not less than what a new last layer gains."""
    gain, probe = findings.row("mean", AUDIT, "gain"), findings.row("mean", "linear_probe", "gain")
    if gain is None or gain.low is None or gain.high is None or gain.low <= 0:
        return None
    if probe is not None and probe.low is not None and probe.low > gain.high:
        return None
    return gain


PAGE = AuditPage(
    title="With images prepared in another way",
    reading=(
        "A gain whose interval lies above zero says that the model was trained on images prepared in another way "
        "than those it is fed here."
    ),
    place=20,
    glossary={
        "gain": Term(
            "Gain from other preprocessing",
            "Usual ways to prepare images (other means and deviations, values up to 255, another order of colours) are "
            "tried on each half of the images; how many more images of the other half are right with the best of them.",
            "Zero or below is right. Clearly above zero, the network is fed with something else than it was trained "
            "on.",
            "Size, crop and interpolation are not tried: zero does not prove that the input is right.",
        ),
    },
    action=input_action,
)
