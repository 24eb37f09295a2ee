"""Bad images, labels and classes, and bad ways to draw sets from good ones: each is one clear error."""

import pytest
import torch

from clearance.data import Augmentation, ImageSet, gaussian_images
from clearance.data.synthetic import GaussianClasses
from data.small_images import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    GOOD,
    LABELS,
)

CLASSES = ("ape", "bee")


def image_set(images=GOOD, labels=LABELS, classes=CLASSES):
    return ImageSet(images, labels, classes)


def changed(value):
    images = GOOD.clone()
    images[2, 0, 1, 1] = value
    return images


SETS = {
    "float64": (lambda _: image_set(GOOD.double()), "must be a float32 tensor; got torch.float64"),
    "uint8": (lambda _: image_set((GOOD * 255).byte()), "as_image_set.* scales uint8 by 1/255"),
    "array": (lambda _: image_set(GOOD.numpy()), "must be a float32 tensor; got ndarray"),
    "three axes": (lambda _: image_set(GOOD[:, 0]), r"4 axes \(N, C, H, W\); got shape \(4, 3, 3\)"),
    "five axes": (lambda _: image_set(GOOD[None]), r"4 axes .* got shape \(1, 4, 1, 3, 3\)"),
    "no image": (lambda _: image_set(GOOD[:0], LABELS[:0]), "at least one pixel"),
    "NaN": (
        lambda _: image_set(changed(float("nan"))),
        "NaN or infinity in 1 of 4 images, the first at index 2",
    ),
    "infinity": (lambda _: image_set(changed(float("inf"))), "NaN or infinity in 1 of 4 images"),
    "0 to 255": (lambda _: image_set(GOOD * 255), r"got values from 0 to 255; divide by 255"),
    "normalised": (lambda _: image_set(GOOD * 2 - 1), "got values from -1 to 1; undo the normalisation"),
    "a little above 1": (lambda _: image_set(changed(1.001)), "got values from 0 to 1.001"),
    "lengths": (lambda _: image_set(labels=LABELS[:3]), "got 4 images and 3 labels"),
    "label above": (
        lambda _: image_set(labels=LABELS + 1),
        "0..1 because there are 2 classes; got labels from 1 to 2",
    ),
    "label below": (lambda _: image_set(labels=LABELS - 1), "got labels from -1 to 0"),
    "float labels": (
        lambda _: image_set(labels=LABELS.float()),
        "`labels` must be an int64 tensor; got torch.float32",
    ),
    "list of labels": (
        lambda _: image_set(labels=[0, 1, 0, 1]),
        "`labels` must be an int64 tensor; got list",
    ),
    "one-hot": (
        lambda _: image_set(labels=torch.eye(2).long()[LABELS]),
        r"1 axis \(N,\); got shape \(4, 2\)",
    ),
    "empty class": (
        lambda _: image_set(classes=("ape", "bee", "cat")),
        r"got none of 'cat' \(1 of 3 classes\)",
    ),
    "one class": (lambda _: image_set(labels=LABELS * 0, classes=("ape",)), "at least 2 classes"),
    "double name": (lambda _: image_set(classes=("ape", "ape")), "must all differ; got 'ape'"),
    "list of classes": (lambda _: image_set(classes=["ape", "bee"]), "must be a tuple of strings"),
    "number as class": (lambda _: image_set(classes=(0, 1)), "must be a tuple of strings"),
}

METHODS = {
    "per_class": (lambda _: image_set().per_class(3, 0), "got 3 but class 'ape' has 2; ask for fewer"),
    "per_class of an absent class": (
        lambda _: image_set().subset(torch.tensor([0, 2])).per_class(1, 0),
        "class 'bee' has 0",
    ),
    "per_class of none": (
        lambda _: image_set().per_class(0, 0),
        "`count` must be a whole number of at least 1",
    ),
    "split at 0": (lambda _: image_set().split(0.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split at 1": (lambda _: image_set().split(1.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split too small": (lambda _: image_set().split(0.25, 0), "leaves none of 'bee'"),
    "split too large": (
        lambda _: image_set().split(0.75, 0),
        "leaves none of 'ape' .it has 2.; .*add images",
    ),
    "fraction at 0": (lambda _: image_set().fraction(0.0, 0), r"`fraction` must lie in \(0, 1\]"),
    "fraction too small": (lambda _: image_set().fraction(0.01, 0), "leaves none of 'ape'"),
    "noise": (lambda _: image_set().with_label_noise(1.1, 0), "`rate` must lie in"),
    "seed": (lambda _: image_set().split(0.5, -1), "`seed` must be a whole number of at least 0"),
    "index": (
        lambda _: image_set().subset(torch.tensor([0, 4])),
        r"must lie in 0..3; got numbers from 0 to 4",
    ),
    "negative index": (lambda _: image_set().subset(torch.tensor([-1])), "got numbers from -1"),
    "mask": (lambda _: image_set().subset(LABELS == 0), r"got torch.bool .* mask.nonzero\(\)"),
    "no index": (lambda _: image_set().subset(LABELS[:0]), "at least one"),
    "negative pad": (lambda _: Augmentation(pad=-1), "`pad` must be a whole number of at least 0; got -1"),
    "half a pixel": (
        lambda _: Augmentation(cutout=0.5),  # type: ignore[arg-type]
        "`cutout` must be a whole number",
    ),
    "more classes than pixels": (
        lambda _: gaussian_images(5, shape=(1, 2, 2)),
        "must not exceed the 4 pixels",
    ),
    "too much noise": (lambda _: GaussianClasses(noise=0.2), "5 standard deviations around the means within"),
    "no separation": (
        lambda _: GaussianClasses(separation=0.0),
        "`separation` must be a finite number above 0",
    ),
}

BAD = {**SETS, **METHODS}


@pytest.mark.parametrize(("attempt", "fragment"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)


def test_the_good_set_beside_the_bad_is_good():
    assert len(image_set()) == 4
