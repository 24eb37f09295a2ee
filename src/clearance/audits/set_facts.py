"""Is anything odd about the sets themselves: errors, files, sizes, colours, class sizes?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits.performance import difference_interval
from clearance.data import ImageSet
from clearance.vocabulary import Exhibit, Measurement

SMALLER, LONGER = 0.5, 2.0  # of the median: a shorter side or a proportion from which on a picture is odd
_BATCH = 64
COLOUR = 2 / 255  # difference of channels up to which an image is grey


@dataclass(frozen=True)
class SetFacts(Audit):
    """What can be seen of the training and test set without a second model, each with the images that it concerns.

    ``train_minus_test``: the error on train less the error on test, with Newcombe's 95 % interval. Above 0, the
    model is worse on what it learned from: labels of train are wrong, or train is not what it was trained on, or
    test is easier or was trained on. It is 0 where both are all right or all wrong.

    For each ``split``: ``class_imbalance``, images of the largest class over images of the smallest that has any (n
    counts these classes); ``empty_classes``, how many have none, if there are such; of colour images ``grey_images``,
    whose channels differ by at most 2 of 255 levels (none if both sets are grey); where the set was read from a folder
    ``unreadable_files``, and ``odd_sizes``, pictures with a short side below half the median, or more than twice as
    long or as wide for their height as the median picture. Exhibits: ``odd_images`` lists the last four by name,
    ``class_sizes`` counts the images of each class.

    Source of the interval: Newcombe, Statistics in Medicine 17 (1998), method 10.

    Misleads where pictures of all sizes and proportions are ordinary, and where train is augmented or has noisy
    labels on purpose.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = SetFacts()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.value) for m in found.measurements][1:]
    [('class_imbalance', 1.0), ('class_imbalance', 1.0)]
    """

    name: ClassVar[str] = "set_facts"

    def examine(self, subject: Subject) -> Findings:
        """Compare the errors, then look at each set."""
        sets = {"train": subject.train, "test": subject.test}
        grey = {
            split: grey_images(data) if data.shape[0] == 3 else torch.zeros(len(data), dtype=torch.bool)
            for split, data in sets.items()
        }
        colours = not all(bool(rows.all()) for rows in grey.values())  # grey pictures alone were made so
        odd = {split: list(_odd_images(data, grey[split] & colours)) for split, data in sets.items()}
        numbers = [self._difference(subject)]
        for split, data in sets.items():
            numbers += self._of_set(split, data, [what for what, _, _ in odd[split]])
        columns: dict[str, list[Any]] = {
            "set": [split for split, found in odd.items() for _ in found],
            "what": [what for found in odd.values() for what, _, _ in found],
            "image": [image for found in odd.values() for _, image, _ in found],
            "detail": [detail for found in odd.values() for _, _, detail in found],
        }
        caption = (
            "Classes without images, unreadable files, pictures of odd sizes, and grey ones among colours."
        )
        sizes: dict[str, list[Any]] = {"class": list(subject.train.classes)}
        for split, data in sets.items():
            sizes[f"{split} images"] = torch.bincount(data.labels, minlength=data.class_count).tolist()
        return Findings(
            tuple(numbers),
            (
                Exhibit(self.name, "odd_images", "table", columns, caption),
                Exhibit(self.name, "class_sizes", "table", sizes, "Images of each class."),
            ),
        )

    def _difference(self, subject: Subject) -> Measurement:
        wrong = [
            (subject.train_predictions != subject.train.labels), (subject.test_predictions != subject.test.labels)
        ]  # fmt: skip
        train, test = ((int(each.sum()), len(each)) for each in wrong)
        low, high = difference_interval(train, test)
        value = train[0] / train[1] - test[0] / test[1]
        return Measurement(
            self.name, "train_minus_test", value, "fraction", len(wrong[1]), low=low, high=high, better="lower",
            context={"interval": "newcombe 95 %"},
        )  # fmt: skip

    def _of_set(self, split: str, data: ImageSet, odd: list[str]) -> Iterator[Measurement]:
        counts = torch.bincount(data.labels, minlength=data.class_count)
        counts = counts[counts > 0]
        imbalance = int(counts.max()) / int(counts.min())
        yield Measurement(
            self.name,
            "class_imbalance",
            imbalance,
            "factor",
            len(counts),
            better="lower",
            context={"split": split},
        )
        kinds = {"grey_images": (GREY, len(data))} if data.shape[0] == 3 else {}
        if len(counts) < data.class_count:
            kinds["empty_classes"] = (EMPTY, data.class_count)
        if data.files is not None:
            kinds["unreadable_files"] = (UNREADABLE, len(data) + len(data.files.unreadable))
            kinds["odd_sizes"] = (SIZE, len(data))
        for name, (what, images) in kinds.items():
            yield Measurement(
                self.name, name, odd.count(what), "count", images, better="lower", context={"split": split}
            )


UNREADABLE, SIZE, GREY = "cannot be read", "odd size", "grey among colours"
EMPTY = "class without images"


def _odd_images(data: ImageSet, grey: Tensor) -> Iterator[tuple[str, str, str]]:
    """What is odd, the image's or class's name, and a detail."""
    counts = torch.bincount(data.labels, minlength=data.class_count).tolist()
    for name, count in zip(data.classes, counts, strict=True):
        if count == 0:
            yield EMPTY, name, ""
    if data.files is not None:
        for name, why in data.files.unreadable:
            yield UNREADABLE, name, why
        for row in odd_sizes(data.files.sizes):
            width, height = data.files.sizes[row]
            yield SIZE, data.name_of(row), f"{width}x{height}"
    for row in grey.nonzero().flatten().tolist():
        yield GREY, data.name_of(row), ""


def odd_sizes(sizes: tuple[tuple[int, int], ...]) -> list[int]:
    """Places of pictures much smaller than the others, or of another proportion.

    >>> odd_sizes(((100, 80), (90, 80), (100, 90), (30, 25), (400, 80)))
    [3, 4]
    """
    width, height = np.array(sizes, dtype=float).T
    short, proportion = np.minimum(width, height), width / height
    apart = proportion / np.median(proportion)
    odd = (short < SMALLER * np.median(short)) | (apart > LONGER) | (apart < 1 / LONGER)
    return [int(place) for place in np.flatnonzero(odd)]


def grey_images(data: ImageSet) -> Tensor:
    """Which images have equal channels, (N,) bool, on the CPU."""
    found = []
    for images, _ in data.batches(_BATCH):
        spread = images.amax(dim=1) - images.amin(dim=1)
        found.append((spread.flatten(1).amax(dim=1) <= COLOUR).cpu())
    return torch.cat(found)
