"""What somebody who ships one classifier should know first: a few sentences, each with what to do about it.

Every number is one of the report's summary. A sentence claims no more than its interval carries: what an interval
leaves open is said to be open, and a size of change comes with its alarm.
"""

from collections.abc import Callable
from dataclasses import replace

from markupsafe import Markup
from scipy.stats import binom

from clearance.records.derived import SummaryRow
from clearance.report.action import ALARM, CLOSE, Action, points_with_ends, with_ends
from clearance.report.findings import FEW, Findings
from clearance.report.input_action import INPUT, input_action, input_in_doubt
from clearance.report.numbers import data, half_width, levels, points, rest, rest_interval
from clearance.report.sureness_action import sureness_action
from clearance.report.unknowns_action import unknowns_action

LEVEL = 0.05
MOST = 0.5  # share of the wrong answers from which on a pair of classes is an alarm ...
FEW_PAIRS = 3  # ... where there are more pairs than this
NEARER = 1.05  # times: less is told as no nearer
ACCURACY = "Accuracy"
LAST_LAYER = "linear"
NEIGHBOUR = "nearest neighbour"


def actions(findings: Findings) -> list[Action]:
    """The sentences that a report about one network carries, in the order in which to read them: alarms come early.

    >>> from clearance.records import Report
    >>> actions(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    if len(findings.methods) != 1:
        return []
    makers: tuple[Callable[[Findings], Action | None], ...] = (
        _accuracy, input_action, _label_cost, _refit, _worst_pair, _flip_size, unknowns_action, sureness_action,
    )  # fmt: skip
    found = [action for make in makers if (action := make(findings)) is not None]
    if any(action.title == INPUT and action.alarm for action in found):  # nothing else is worth doing before
        found = [action if action.title == INPUT else replace(action, todo="") for action in found]
    return sorted(found, key=lambda action: (action.title != ACCURACY, not action.alarm))


def _accuracy(findings: Findings) -> Action | None:
    row = findings.own_error(findings.methods[0])
    if row is None:
        return None
    said = Markup("{} of {} test images get the right answer").format(_right(row), data(row.n, "count"))
    expected = findings.report.recipe.get("expected_accuracy")
    if expected is not None:
        said += Markup("; its owner says {}").format(data(expected, "fraction"))
    return Action(ACCURACY, said + "." + _further_outputs(findings))


def _further_outputs(findings: Findings) -> Markup:
    """What was taken for granted of a network that has more outputs than there are classes."""
    outputs = findings.report.recipe.get("outputs")
    if outputs is None:
        return Markup("")
    return Markup(
        " It has {} outputs: the first {} are taken for the classes in the order of their names, and any other answer "
        "is wrong. Where that is not their order, no number here is about this network."
    ).format(data(outputs["of the model"], "count"), data(outputs["classes"], "count"))


def _right(error: SummaryRow) -> Markup:
    """The share of right answers with its interval, as its owner says it, too."""
    if error.low is None or error.high is None:
        return rest(error.value)
    shown = rest(error.value, half_width(error.low, error.high))
    return Markup("{} ({})").format(shown, rest_interval(error.low, error.high))


def _label_cost(findings: Findings) -> Action | None:
    gaps = {int(row.context["samples"]): row for row in findings.rows("mean", FEW, "gap", head=LAST_LAYER)}
    if not gaps:
        return None
    if findings.images is not None and findings.images * CLOSE < 1:
        return Action(
            "Label cost",
            Markup("{} test images are too few to tell: each is more than two points.").format(
                data(findings.images, "count")
            ),
        )
    fewest = min(gaps)
    enough = next((n for n in sorted(gaps) if gaps[n].value <= CLOSE), None)
    lost = Markup("with {} it loses {}{}").format(
        data(fewest, "count"), _points(gaps[fewest]), _neighbour(findings, fewest)
    )
    title, reach = "Label cost", "train a new last layer to within two points of the network's own"
    if enough is None:
        said = Markup("A new last layer stays more than two points behind the network's own; {}.").format(
            lost
        )
        return Action(title, said, "Do not expect to adapt it by the last layer alone.")
    said = Markup("{} labelled images, equally many of each class, {}").format(data(enough, "count"), reach)
    if outdone(findings):  # it is held against a last layer that is worse than need be
        return Action(title, said + Markup(", which is worse than it need be: see the alarm."))
    if enough == fewest:
        return Action(title, said + ".")
    below = max(n for n in gaps if n < enough)
    if below != fewest:
        said += Markup(" ({} do not)").format(data(below, "count"))
    return Action(title, said + Markup("; {}.").format(lost), "Plan that many labels for a new last layer.")


def _neighbour(findings: Findings, samples: int) -> Markup:
    row = findings.row("mean", FEW, "gap", head=NEIGHBOUR, samples=samples)
    return Markup("") if row is None else Markup(", a nearest neighbour {}").format(_points(row))


def _points(row: SummaryRow) -> Markup:
    """A loss, with the standard deviation from one draw of images to the next."""
    shown = points(row.value)
    return (
        shown
        if row.within is None
        else shown + Markup(" (± {} from draw to draw)").format(points(row.within))
    )


def _refit(findings: Findings) -> Action | None:
    row = findings.row("mean", "refit", "gain")
    if row is None or row.low is None or row.high is None:
        return None
    gain = points_with_ends(row)
    if row.low > 0:
        said = Markup("A new last layer, trained on all training images, gains {}.").format(gain)
        if input_in_doubt(findings):
            return Action("Free refit", said, "Mend the input first: that may be all of it.")
        todo = "Refit the last layer before you ship."
        if outdone(findings):
            return Action("Free refit", said + DAMAGED, todo, alarm=True)
        return Action("Free refit", said, todo)
    if row.high < 0:
        return Action(
            "Free refit",
            Markup("Nothing to gain, a new last layer is right less often: {}.").format(gain),
        )
    return Action("Free refit", Markup("Nothing to gain that these images would tell: {}.").format(gain))


def outdone(findings: Findings) -> bool:
    """Whether a new last layer is clearly better than the network's own, and its input is not the reason."""
    row = findings.row("mean", "refit", "gain")
    return row is not None and row.low is not None and row.low > CLOSE and not input_in_doubt(findings)


def _worst_pair(findings: Findings) -> Action | None:
    share = findings.row("mean", "class_pairs", "worst_share")
    closeness = findings.row("mean", "class_pairs", "worst_closeness")
    named = findings.exhibits("class_pairs", "pairs")
    if share is None or closeness is None or not named or not share.n:
        return None
    columns = named[0].exhibit.columns
    errors, pair, pairs = int(columns["errors"][0]), str(columns["pair"][0]), int(closeness.n or 1)
    if errors == 0:
        return Action(
            "Worst pair", Markup("No two classes are taken for each other: no test image is wrong.")
        )
    # picked out of all pairs: it stands out where that many errors are unlikely for any of them
    if min(1.0, pairs * float(binom.sf(errors - 1, share.n, 1 / pairs))) > LEVEL:
        return Action("Worst pair", Markup("No two classes stand out among the wrong answers."))
    near = Markup("{} nearer than").format(data(closeness.value, "factor"))
    said = Markup("{} make up {} of the wrong answers, and lie {} the median pair.").format(
        pair, with_ends(share), near if closeness.value >= NEARER else "no nearer than"
    )
    if outdone(findings):  # whatever the last layer mixes up, its inputs may not
        return Action("Worst pair", said)
    todo = f"Look at the labels and images of {pair} first: mixed-up labels do this, and classes that look alike."
    most = share.low is not None and share.low > MOST
    return Action("Worst pair", said, todo, alarm=most and pairs > FEW_PAIRS)


def _flip_size(findings: Findings) -> Action | None:
    size = findings.row("mean", "flip_size", "median_flip")
    noise = findings.row("mean", "flip_size", "noise_flipped")
    if size is None or noise is None:
        return None
    said = Markup(
        "Half of the images it is right on can be flipped by changing every pixel by at most {} of the range from "
        "black to white; random noise of that size flips {}."
    ).format(_size_with_ends(size), data(noise.value, noise.unit))
    doubts = [
        words.format(data(row.value, row.unit))
        for name, words in DOUBTS.items()
        if (row := findings.row("mean", "flip_size", name)) is not None and row.value > ALARM
    ]
    if doubts:
        said += Markup(" ALARM: ") + Markup("; ").join(doubts) + Markup(". The true size is smaller.")
        return Action("Flip size", said, "Do not call this network robust.", alarm=True)
    return Action("Flip size", said, "Do not rely on it where somebody gains from a wrong answer.")


def _size_with_ends(size: SummaryRow) -> Markup:
    half = half_width(size.low, size.high)
    if size.low is None or size.high is None or half is None:
        return levels(size.value)
    ends = Markup("{} to {}").format(levels(size.low, half), levels(size.high, half))
    return Markup("{} ({})").format(levels(size.value, half), ends)


DAMAGED = Markup(
    " What enters the last layer tells the classes apart better than the layer does: the layer was damaged, or not "
    "trained to the end, or on other images or labels."
)
DOUBTS = {
    "missed_flips": Markup("a search without gradients flips {} of the others within it"),
    "no_gradient": Markup("{} of the images have no gradient"),
}
