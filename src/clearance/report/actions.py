"""What somebody who ships one classifier should know first: a few sentences, each with what to do about it.

Every number is one of the report's summary. A sentence claims no more than its interval carries: what an interval
leaves open is said to be open, and a size of change comes with its alarm.
"""

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from scipy.stats import binom

from clearance.records.row import SummaryRow
from clearance.report.findings import FEW, Findings
from clearance.report.numbers import data, half_width, interval, points

CLOSE = 0.02  # how near a new last layer must come to the network's own: two points
LEVEL = 0.05
ALARM = 0.02  # share of images from which on a sign of hidden gradients is said
LAST_LAYER = "linear"
NEIGHBOUR = "nearest neighbour"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to know.

    Args:
        title: What it is about, in a word or two.
        said: The sentence, with its numbers.
        todo: What to do about it; empty where there is nothing to do.
        alarm: Whether the number cannot be trusted, or asks to act at once.
    """

    title: str
    said: Markup
    todo: str = ""
    alarm: bool = False


def actions(findings: Findings) -> list[Action]:
    """The sentences that a report about one network carries, in the order in which to read them.

    >>> from clearance.records import Report
    >>> actions(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    if len(findings.methods) != 1:
        return []
    makers: tuple[Callable[[Findings], Action | None], ...] = (
        _accuracy, _label_cost, _refit, _worst_pair, _flip_size, _unknowns,
    )  # fmt: skip
    return [action for make in makers if (action := make(findings)) is not None]


def _accuracy(findings: Findings) -> Action | None:
    row = findings.own_error(findings.methods[0])
    if row is None:
        return None
    said = Markup("{} of {} test images get a wrong answer").format(_with_ends(row), data(row.n, "count"))
    expected = findings.report.recipe.get("expected_accuracy")
    if expected is not None:
        said += Markup("; its owner says that {} get a right one").format(data(expected, "fraction"))
    return Action("Accuracy", said + ".")


def _label_cost(findings: Findings) -> Action | None:
    gaps = {int(row.context["samples"]): row for row in findings.rows("mean", FEW, "gap", head=LAST_LAYER)}
    if not gaps:
        return None
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
    if enough == fewest:
        return Action(title, said + ".")
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
    half = half_width(row.low, row.high)
    gain, ends = (
        points(row.value, half),
        Markup("{} to {}").format(points(row.low, half), points(row.high, half)),
    )
    if row.low > 0:
        said = Markup("A new last layer, trained on all training images, gains {} ({}).").format(gain, ends)
        return Action("Free refit", said, "Refit the last layer before you ship.", alarm=row.low > CLOSE)
    if row.high < 0:
        said = Markup("Nothing to gain: a new last layer is right less often, by {} ({}).").format(gain, ends)
        return Action("Free refit", said)
    return Action(
        "Free refit", Markup("Nothing to gain that these images would tell: {} ({}).").format(gain, ends)
    )


def _worst_pair(findings: Findings) -> Action | None:
    share = findings.row("mean", "class_pairs", "worst_share")
    closeness = findings.row("mean", "class_pairs", "worst_closeness")
    named = findings.exhibits("class_pairs", "pairs")
    if share is None or closeness is None or not named or not share.n:
        return None
    columns = named[0].exhibit.columns
    errors, pair, pairs = int(columns["errors"][0]), str(columns["pair"][0]), int(closeness.n or 1)
    # picked out of all pairs: it stands out where that many errors are unlikely for any of them
    if errors == 0 or min(1.0, pairs * float(binom.sf(errors - 1, share.n, 1 / pairs))) > LEVEL:
        return Action("Worst pair", Markup("No two classes stand out among the wrong answers."))
    said = Markup("{} make up {} of the wrong answers, and lie {} nearer than the median pair.").format(
        pair, _with_ends(share), data(closeness.value, "factor")
    )
    return Action("Worst pair", said, f"Look at the labels and images of {pair} first.")


def _flip_size(findings: Findings) -> Action | None:
    size = findings.row("mean", "flip_size", "median_flip")
    noise = findings.row("mean", "flip_size", "noise_flipped")
    if size is None or noise is None:
        return None
    said = Markup(
        "Half of the images it is right on can be flipped by changing every pixel by at most {} of the range from "
        "black to white; random noise of that size flips {}."
    ).format(data(size.value, "ratio"), data(noise.value, noise.unit))
    doubts = [
        words.format(data(row.value, row.unit))
        for name, words in DOUBTS.items()
        if (row := findings.row("mean", "flip_size", name)) is not None and row.value > ALARM
    ]
    if doubts:
        said += Markup(" ALARM: ") + Markup("; ").join(doubts) + Markup(". The true size is smaller.")
        return Action("Flip size", said, "Do not call this network robust.", alarm=True)
    return Action("Flip size", said, "Do not rely on it where somebody gains from a wrong answer.")


def _unknowns(findings: Findings) -> Action | None:
    rejected = findings.row("mean", "unknowns", "rejected")
    kept = findings.row("mean", "unknowns", "kept")
    if rejected is None or kept is None or rejected.low is None or kept.low is None:
        return None
    said = Markup(
        "The threshold that keeps 95 % of the test images rejects {} of “{}”; of test images that it was not chosen on "
        "it keeps {}. It goes by how far an image's features lie from those of the training images."
    ).format(_with_ends(rejected), rejected.context["unknown"], _with_ends(kept))
    if rejected.low <= 1 - kept.low:  # no more than it may reject of the test images
        said += Markup(" That is no more than it may reject of the test images.")
        return Action("Unknowns", said, "Expect an answer to anything it is shown.", alarm=True)
    return Action("Unknowns", said, "This is not a defence: other unknown things may pass.")


DOUBTS = {
    "missed_flips": Markup("a search without gradients flips {} of the others within it"),
    "no_gradient": Markup("{} of the images have no gradient"),
}


def _with_ends(row: SummaryRow) -> Markup:
    shown = data(row.value, row.unit, half_width(row.low, row.high))
    if row.low is None:
        return shown
    return shown + Markup(" ({})").format(interval(row.low, row.high, row.unit))
