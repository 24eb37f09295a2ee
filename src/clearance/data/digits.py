"""The handwritten digits inside scikit-learn: real images without a download."""

import torch

from clearance._checks import check_choice
from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.data.stratified import draw_stratified

_TEST_COUNT = 497  # of 1,797, which leaves 1,300 for training


def read_digits(split: str) -> ImageSet:
    """8x8 grey handwritten digits: 1,300 to train on and 497 to test on.

    Source: the test part of the UCI set *Optical Recognition of Handwritten Digits* (Alpaydin and Kaynak
    1998), from sklearn.datasets.load_digits; pixels 0..16 are divided by 16. scikit-learn gives no split: this
    one is stratified, drawn from a fixed seed and the same everywhere. The same writers occur in both parts, so
    the test error does not measure new writers.

    `split` is ``"train"`` or ``"test"``.

    Shapes:
        images (1300 or 497, 1, 8, 8).

    Raises:
        ValueError: If `split` is another word.

    >>> read_digits("train")
    ImageSet('digits', 1300 images of shape (1, 8, 8), 10 classes)
    """
    from sklearn.datasets import load_digits  # slow to import, and only this reader needs it

    check_choice("split", split, ("train", "test"))
    found = load_digits()
    images = torch.from_numpy(found.images).float().div_(16).unsqueeze(1)
    labels = torch.from_numpy(found.target).long()
    held_out = draw_stratified(labels, 10, _TEST_COUNT, generator(0, "data", "digits"))
    chosen = held_out if split == "test" else ~held_out
    return ImageSet(images[chosen], labels[chosen], tuple(str(digit) for digit in range(10)), name="digits")
