"""Why a model is less accurate here than its owner says: what its input may have to be, tried on a few images."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from clearance.audits.accuracy import wilson_interval
from clearance.audits.preprocessing import InputWay, input_ways, right_when
from clearance.data import ImageSet
from clearance.models import Classifier, predictions

TRIED_ON = 400  # images
_CLEAR = 0.05  # what a way must gain before it is blamed


class AccuracyMissedError(ValueError):
    """The measured accuracy is not the one that was expected; the message says what may be wrong."""


def check_accuracy(model: Classifier, test: ImageSet, expected: float, slack: float = 0.005) -> str:
    """One line about the measured accuracy; refused where it misses what its owner says.

    It misses where it is lower by more than `slack` and its 95 % Wilson interval ends below. Then ways in which a
    model's input may differ are tried on a few images (`audits/_input_ways.py`), and whether the classes stand in
    another order.

    Args:
        model: The model, with the normalisation that was asked for.
        test: Held-out images.
        expected: The accuracy that its owner says, in (0, 1].
        slack: What other versions of image libraries may cost.

    Raises:
        ValueError: If `expected` is not in (0, 1].
        AccuracyMissedError: If the measured accuracy misses it.
    """
    check_expected(expected)
    named = predictions(model, test)
    right = int((named == test.labels.to(named.device)).sum())
    accuracy = right / len(test)
    low, high = wilson_interval(right, len(test))
    told = f"accuracy {accuracy:.1%} ({low:.1%} to {high:.1%}, {len(test)} images), expected {expected:.1%}"
    if high >= expected or accuracy >= expected - slack:
        return told
    raise AccuracyMissedError(f"{told}. Nothing else is measured. {_blame(model, test, named, accuracy)}")


def check_expected(expected: float) -> None:
    """Raise ValueError unless it is a share of images, above 0."""
    if not 0 < expected <= 1:
        raise ValueError(f"`expect_accuracy` must lie in (0, 1]; got {expected}. Write 0.915 for 91.5 %.")


def _blame(model: Classifier, test: ImageSet, named: Tensor, accuracy: float) -> str:
    few = test if len(test) <= TRIED_ON else test.subset(torch.linspace(0, len(test) - 1, TRIED_ON).long())
    images, _ = few.batch(torch.arange(len(few)))
    before = _accuracy(model, few)
    tried = [(_accuracy(model, few, way), way.name, way.remedy) for way in input_ways(model, images)]
    best, said, remedy = max(tried, key=lambda each: each[0])  # of equal ones, the first
    order = _other_order(named, test)
    if order > max(accuracy, best) + _CLEAR:
        return (
            f"With the classes in another order {order:.1%} would be right: the model's classes are not numbered as "
            "the folders are sorted. Rename the folders so that their order is that of the outputs."
        )
    if best > before + _CLEAR:
        gain = f"{said} gives {best:.1%} in place of {before:.1%}"
        return f"Preprocessing is to blame: on {len(few)} images {gain}. {remedy}"
    return (
        "Preprocessing is the first suspect: mean and std (or a model that normalises by itself), the order of "
        "channels, values up to 255, the size and the share that is cropped, the interpolation. None of "
        f"{', '.join(name for _, name, _ in tried)} does better. Look at --image-size and --crop, at --weights, and "
        "whether these are the images that the accuracy was measured on."
    )


def _other_order(named: Tensor, test: ImageSet) -> float:
    """The accuracy if every output were given to the class that makes the most of all images right."""
    known = named >= 0
    count = max(test.class_count, int(named.max()) + 1)
    pairs = test.labels.to(named.device)[known] * count + named[known]
    table = torch.bincount(pairs, minlength=count * count).view(count, count).cpu().numpy()
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum()) / len(test)


def _accuracy(model: Classifier, data: ImageSet, way: InputWay | None = None) -> float:
    return float(right_when(model, data, way).double().mean())
