"""What the audit of likelihood shows: histograms as in Wan et al. (2018), Fig. 3 and 4, and a sheet of images."""

import torch
from torch import Tensor

from clearance.audits._detection import lowest_for_nan
from clearance.audits._likelihood_findings import AUDIT, below
from clearance.audits._likelihood_scores import CLASS_MEAN, LIKELIHOOD, named_class
from clearance.audits._likelihood_sets import NormalImages, Seen
from clearance.audits.rejection import p_values
from clearance.vocabulary import Exhibit, Scalar

BARS, TAIL = 40, 0.01  # of a histogram; share of the scores beyond either end, which the last bars hold
SHEET = 8  # images caught, and as many missed


def histograms(normal: NormalImages, seen: Seen) -> list[Exhibit]:
    """The likelihood, the distance to the class mean and the largest probability, before and after an attack.

    Fig. 4 and 3 of the paper, whose likelihood of a network trained with center loss is that distance. Empty where no
    score is finite.
    """
    before, before_logits = normal.seen
    changed, after, after_logits = seen.changed, seen.scores, seen.logits
    context: dict[str, Scalar] = {"attack": changed.attack, "epsilon": changed.epsilon}
    pairs = {
        LIKELIHOOD: (before[LIKELIHOOD], after[LIKELIHOOD]),
        CLASS_MEAN: (before[CLASS_MEAN], after[CLASS_MEAN]),
        "probability": tuple(_sureness(each) for each in (before_logits, after_logits)),
    }
    captions = {
        LIKELIHOOD: "Likelihood at the predicted class, in this model's own unit",
        CLASS_MEAN: "Minus half the squared distance to the predicted class's mean, in this model's own unit",
        "probability": "Largest probability",
    }
    found = []
    for name, (clean, moved) in pairs.items():
        columns = _histogram(clean, moved, whole=name == "probability")
        if columns:
            caption = f"{captions[name]}: share of images before and after the attack."
            found.append(Exhibit(AUDIT, name, "histogram", columns, caption, context))
    return found


def contact_sheets(normal: NormalImages, seen: Seen) -> list[Exhibit]:
    """Images that fooled the classifier: some that a score caught at its 5 % threshold, some that it missed.

    One sheet for the likelihood and one for the distance to the class mean, which is the likelihood of a network
    trained with center loss. Of each kind the first images in the set's order, which nobody chose. ``p``: the share
    of normal images that are as unlikely.
    """
    found = (_contact_sheet(normal, seen, score) for score in (LIKELIHOOD, CLASS_MEAN))
    return [sheet for sheet in found if sheet is not None]


def _contact_sheet(normal: NormalImages, seen: Seen, score: str) -> Exhibit | None:
    changed, after = seen.changed, lowest_for_nan(seen.scores[score])
    caught = below(after, normal.thresholds(changed.epsilon)[score])
    rows = torch.cat(
        [(changed.fooled & kind).nonzero().flatten()[:SHEET] for kind in (caught, ~caught)]
    ).cpu()
    if not len(rows):
        return None
    classes = normal.data.classes
    columns = {
        "image": [_nested(changed.images[row]) for row in rows],
        "caught": caught.cpu()[rows].tolist(),
        "class": [classes[k] for k in normal.data.labels.cpu()[rows].tolist()],
        "taken for": [named_class(classes, k) for k in changed.predicted.cpu()[rows].tolist()],
        "p": p_values(normal.seen_held_out[0][score], after).cpu()[rows].tolist(),
    }
    caption = "Images that fooled the classifier: some that this score caught, some that it missed."
    context: dict[str, Scalar] = {"attack": changed.attack, "epsilon": changed.epsilon, "score": score}
    return Exhibit(AUDIT, "sheet", "images", columns, caption, context)


def _sureness(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1).amax(dim=1)


def _histogram(clean: Tensor, moved: Tensor, *, whole: bool) -> dict[str, list[float]]:
    """Shares of both in bars of one width, beginning at ``from``; a score that is not finite is in none."""
    clean, moved = (each[each.isfinite()].double().cpu() for each in (clean, moved))
    if not (len(clean) and len(moved)):
        return {}
    both = torch.cat([clean, moved])
    ends = torch.quantile(both, torch.tensor([TAIL, 1 - TAIL], dtype=torch.float64))
    low, high = (0.0, 1.0) if whole else (float(ends[0]), float(ends[1]))
    high = high if high > low else low + 1.0
    width = (high - low) / BARS
    shares = [
        torch.bincount(((each - low) / width).floor().clamp(0, BARS - 1).long(), minlength=BARS) / len(each)
        for each in (clean, moved)
    ]
    return {
        "from": [low + width * k for k in range(BARS)],
        "before": shares[0].tolist(),
        "after": shares[1].tolist(),
    }


def _nested(image: Tensor) -> list[object]:
    """Pixels with three decimals, which is finer than a grey level."""
    found: list[object] = (image.double().cpu() * 1000).round().div(1000).tolist()
    return found
