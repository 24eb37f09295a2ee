"""What the audit of likelihood measured, as measurements."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from clearance.audits._detection import detection, lowest_for_nan
from clearance.audits._evasion import Evaded
from clearance.audits._likelihood_sets import NormalImages, Scores, Seen
from clearance.audits._pixel_scores import pixel_scores
from clearance.audits.accuracy import wilson_interval
from clearance.vocabulary import Better, Measurement, Scalar

AUDIT = "likelihood"
WILSON = "wilson 95 %"
BETTER: Mapping[str, Better] = {"auroc": "higher", "aupr": "higher", "fpr95": "lower"}
ADAPTIVE = "adaptive"
ALL, SUCCESSFUL = "all", "successful"
ORIGINALS, NOISE = "originals", "noise"


def told_apart(normal: Scores, abnormal: Scores, context: dict[str, Scalar]) -> Iterator[Measurement]:
    """AUROC, AUPR and FPR95 of every score that both have; nothing where one set is empty."""
    for score, values in abnormal.items():
        if score not in normal or not (len(values) and len(normal[score])):
            continue
        for name, value in detection(normal[score], values).items():
            found = {**context, "score": score}
            yield Measurement(AUDIT, name, value, "fraction", len(values), better=BETTER[name], context=found)


def share(
    name: str, counted: Tensor, context: dict[str, Scalar], better: Better = "lower"
) -> Iterator[Measurement]:
    """How many of the images are so, with a Wilson interval; nothing where there are none."""
    if len(counted):
        number, count = int(counted.sum()), len(counted)
        low, high = wilson_interval(number, count)
        found = {**context, "interval": WILSON}
        yield Measurement(
            AUDIT, name, number / count, "fraction", count, low=low, high=high, better=better, context=found
        )


def under_attack(normal: NormalImages, seen: Seen, noisy: Tensor) -> Iterator[Measurement]:
    """How many images the attack broke, and how well each score finds it out.

    Args:
        normal: With the originals.
        seen: All of them after the attack.
        noisy: All of them under noise as large.
    """
    changed = seen.changed
    context: dict[str, Scalar] = {"attack": changed.attack, "epsilon": changed.epsilon}
    yield from share("fooled", changed.fooled[normal.right], context)
    originals = normal.scores(changed.epsilon)
    after = {**seen.scores, **pixel_scores(changed.images, changed.epsilon)}
    hit = _rows(after, changed.fooled)
    for negatives, unchanged in ((ORIGINALS, originals), (NOISE, normal.of(noisy, changed.epsilon))):
        yield from told_apart(unchanged, after, {**context, "counted": ALL, "negatives": negatives})
        counted: dict[str, Scalar] = {**context, "counted": SUCCESSFUL, "negatives": negatives}
        yield from told_apart(_rows(unchanged, changed.fooled), hit, counted)
    for score, limit in normal.thresholds(changed.epsilon).items():
        yield from share("caught", below(hit[score], limit), {**context, "score": score}, "higher")


def evaded(
    normal: NormalImages, originals: Tensor, found: Evaded, score: str, epsilon: float, noisy: Tensor
) -> Iterator[Measurement]:
    """How often an attack that knows a score passes its threshold, and how well every score finds its images out.

    Args:
        normal: Gives scores and thresholds.
        originals: The images that were attacked.
        found: What was made of them.
        score: The one that the attack knew.
        epsilon: Its radius.
        noisy: The originals under noise as large.
    """
    beyond = found.beyond(normal.thresholds(epsilon)[score])
    yield from share("evasion", beyond, {"epsilon": epsilon, "score": score})
    wrong = found.scores > -float("inf")
    if not bool(wrong.any()):
        return
    # the attacked score as the attack read it, so that its evasion and its areas are about the same numbers
    after = {**normal.of(found.images[wrong], epsilon), score: found.scores[wrong]}
    for negatives, unchanged in ((ORIGINALS, originals), (NOISE, noisy)):
        context: dict[str, Scalar] = {
            "attack": ADAPTIVE, "attacked": score, "epsilon": epsilon, "counted": SUCCESSFUL, "negatives": negatives,
        }  # fmt: skip
        yield from told_apart(normal.of(unchanged[wrong], epsilon), after, context)


def unseen(normal: NormalImages, images: Tensor, name: str, epsilon: float) -> Iterator[Measurement]:
    """How well each score tells images that were never learned from normal ones."""
    after = normal.of(images, epsilon)
    yield from told_apart(normal.scores(epsilon), after, {"unseen": name})
    for score, limit in normal.thresholds(epsilon).items():
        yield from share("caught", below(after[score], limit), {"unseen": name, "score": score}, "higher")


def rejected(normal: NormalImages, epsilon: float) -> Iterator[Measurement]:
    """How many normal images each score's threshold rejects: 5 % at most was asked for."""
    limits = normal.thresholds(epsilon)
    for score, values in normal.scores(epsilon).items():
        yield from share("rejected", below(values, limits[score]), {"score": score})


def below(values: Tensor, limit: float) -> Tensor:
    """Which scores a threshold rejects: one that is not a number looks like nothing that was learned."""
    return lowest_for_nan(values) < limit


def _rows(scores: Scores, chosen: Tensor) -> Scores:
    return {name: values[chosen] for name, values in scores.items()}
