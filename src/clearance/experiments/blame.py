"""Why a model is less accurate here than its owner says: what its input may have to be, tried on a few images."""

from collections.abc import Callable, Iterator, Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from clearance.audits.accuracy import wilson_interval
from clearance.data import ImageSet
from clearance.models import Classifier, predictions
from clearance.models._observe import evaluating

TRIED_ON = 400  # images
_CLEAR = 0.05  # what a way must gain before it is blamed
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CAFFE = (103.939, 116.779, 123.68)  # mean of blue, green, red in 0..255
Way = Callable[[Tensor], Tensor]


class AccuracyMissedError(ValueError):
    """The measured accuracy is not the one that was expected; the message says what may be wrong."""


def check_accuracy(model: Classifier, test: ImageSet, expected: float, slack: float = 0.005) -> str:
    """One line about the measured accuracy; refused where it misses what its owner says.

    It misses where it is lower by more than `slack` and its 95 % Wilson interval ends below. Then ways in which a
    model's input may differ are tried on a few images: normalisation, order of channels, values up to 255, and
    whether the classes stand in another order.

    Args:
        model: The model, with the normalisation that was asked for.
        test: Held-out images.
        expected: The accuracy that its owner says, in (0, 1].
        slack: What other versions of image libraries may cost.

    Raises:
        ValueError: If `expected` is not in (0, 1].
        AccuracyMissedError: If the measured accuracy misses it.
    """
    if not 0 < expected <= 1:
        raise ValueError(f"`expect_accuracy` must lie in (0, 1]; got {expected}. Write 0.915 for 91.5 %.")
    named = predictions(model, test)
    right = int((named == test.labels.to(named.device)).sum())
    accuracy = right / len(test)
    low, high = wilson_interval(right, len(test))
    told = f"accuracy {accuracy:.1%} ({low:.1%} to {high:.1%}, {len(test)} images), expected {expected:.1%}"
    if high >= expected or accuracy >= expected - slack:
        return told
    raise AccuracyMissedError(f"{told}. Nothing else is measured. {_blame(model, test, named, accuracy)}")


def _blame(model: Classifier, test: ImageSet, named: Tensor, accuracy: float) -> str:
    few = test if len(test) <= TRIED_ON else test.subset(torch.linspace(0, len(test) - 1, TRIED_ON).long())
    before = _accuracy(model, few, None)
    tried = [(_accuracy(model, few, way), said, remedy) for said, remedy, way in _ways(model, test.shape[0])]
    best, said, remedy = max(tried)
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
        f"{', '.join(said for _, said, _ in tried)} does better. Look at --image-size and --crop, at --weights, and "
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


def _ways(model: Classifier, channels: int) -> Iterator[tuple[str, str, Way]]:
    """Inputs that models are trained with, from images in [0, 1]: what it is, what to do, and the input itself."""

    def normalised(mean: Sequence[float], std: Sequence[float]) -> Way:
        shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        return lambda images: (images - shift.to(images)) / scale.to(images)

    def as_given(images: Tensor) -> Tensor:
        return (images - model.mean) / model.std

    yield "no normalisation", "Leave out --mean and --std.", lambda images: images
    yield "mean 0.5 and std 0.5", "Give --mean 0.5 --std 0.5.", normalised([0.5], [0.5])
    yield (
        "values up to 255",
        f"Give --mean 0 --std {1 / 255:.9f}, and no other normalisation.",
        lambda images: 255 * images,
    )
    if channels != 3:
        return
    numbers = [",".join(map(str, values)) for values in IMAGENET]
    yield "ImageNet's mean and std", f"Give --mean {numbers[0]} --std {numbers[1]}.", normalised(*IMAGENET)
    flip = "Put a layer in front of the model that turns the channels: x.flip(1)."
    yield "channels in the order blue, green, red", flip, lambda images: as_given(images).flip(1)
    caffe = normalised([0.0], [1 / 255])
    yield (
        "Caffe's input (blue, green, red up to 255 less their mean)",
        f"{flip} Give --mean {','.join(f'{each / 255:.4f}' for each in reversed(_CAFFE))} --std {1 / 255:.9f}.",
        lambda images: caffe(images).flip(1) - torch.tensor(_CAFFE).view(-1, 1, 1).to(images),
    )


def _accuracy(model: Classifier, data: ImageSet, way: Way | None) -> float:
    """The share of right images if the module saw what `way` makes of them."""
    device = next(model.parameters()).device
    right = 0
    with evaluating(model):
        for images, labels in data.batches(64):
            images = images.to(device)
            if way is not None:  # undo the model's own normalisation, which comes next
                images = way(images) * model.std + model.mean
            right += int((model(images).argmax(dim=1).cpu() == labels.cpu()).sum())
    return right / len(data)
