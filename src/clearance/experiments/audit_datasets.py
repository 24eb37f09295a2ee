"""Images that an audit looks at besides training and test images: other datasets, unknown things, those kept back."""

import dataclasses
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from clearance.audits import Audit
from clearance.audits._samples import first_half
from clearance.audits.out_of_distribution import check_enough
from clearance.data import ImageSet, Preprocessing, open_unlabelled
from clearance.experiments.datasets import check_not_a_path, load_dataset
from clearance.experiments.recipe import Recipe

OTHER, VALIDATION = "other", "validation"


def with_datasets(audits: Sequence[Audit], root: str | None, size: int | None = None) -> list[Audit]:
    """The audits, each with the test images of the dataset that its setting names in place of the name.

    ``audit_settings: {likelihood: {other: fashion-mnist}}`` asks for images of Fashion-MNIST beside the recipe's own.

    Args:
        audits: As the recipe has them.
        root: The folder of folders that holds the datasets' files.
        size: Side in pixels to which image folders are resized.

    Raises:
        ValueError: If there is no such dataset, or its files are damaged.
        FileNotFoundError: If they are not there.

    >>> from clearance.audits import Likelihood
    >>> with_datasets([Likelihood(other="digits")], root=None)[0].other
    ImageSet('digits', 497 images of shape (1, 8, 8), 10 classes)
    """
    ready = []
    for audit in audits:
        name = getattr(audit, OTHER, None)
        if isinstance(name, str):
            resized = size if name.startswith("folder:") else None
            given: Any = {OTHER: load_dataset(name, "test", root, resized)}
            audit = dataclasses.replace(audit, **given)  # type: ignore[type-var]  # every audit is a dataclass
        ready.append(audit)
    return ready


def with_validation(audits: Sequence[Audit], recipe: Recipe, kept: ImageSet | None) -> list[Audit]:
    """The audits, each that takes images which the model was not trained on with those that the recipe kept back.

    None is given where labels are noisy: those of the images kept back are, too.

    Args:
        audits: As the recipe has them.
        recipe: Read for ``label_noise``.
        kept: The images kept back, None where there are none.

    >>> from clearance.audits import Calibration
    >>> from clearance.data import gaussian_images
    >>> with_validation([Calibration()], Recipe(validation=0.1), gaussian_images(per_class=3))[0].validation
    ImageSet('gaussian', 9 images of shape (1, 8, 8), 3 classes)
    """
    if kept is None or recipe.label_noise > 0:
        return list(audits)
    given: Any = {VALIDATION: kept}
    return [
        dataclasses.replace(audit, **given)  # type: ignore[type-var]  # every audit is a dataclass
        if getattr(audit, VALIDATION, kept) is None
        else audit
        for audit in audits
    ]


def unknown_images(
    given: Any,
    test: ImageSet,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    root: str | Path | None = None,
) -> ImageSet:
    """Images of things that a model never saw, as it gets its test images.

    Args:
        given: ``"folder:PATH"``, ``"npz:PATH"``, the name of a dataset, whose test images are taken, or anything else
            that :func:`clearance.data.open_unlabelled` takes.
        test: The test images.
        preprocessing: Theirs.
        cache: Folder for decoded pictures.
        root: The folder that holds the files of a named dataset.

    Raises:
        ValueError: If the images are not of the size of the test images, there is no such dataset, or the test images
            are too few to choose a threshold on.
        FileNotFoundError: If files are not there.

    >>> from clearance.data import gaussian_images
    >>> unknown_images("digits", gaussian_images())
    ImageSet('digits', 497 images of shape (1, 8, 8), 1 classes)
    """
    check_enough(int(first_half(test.labels, seed=0).sum()))
    if isinstance(given, str) and ":" not in given:
        check_not_a_path("unknown", given)
        given = load_dataset(given, "test", root)
    return open_unlabelled(given, test, preprocessing, cache=cache)


def with_unknown(audits: Sequence[Audit], unknown: ImageSet | None) -> list[Audit]:
    """The audits, those that can look at another dataset and have none with these images.

    Raises:
        ValueError: If there are such images, and no audit that looks at them.

    >>> from clearance.audits import Accuracy, Likelihood
    >>> from clearance.data import gaussian_images
    >>> [getattr(each, "other", None) for each in with_unknown([Accuracy(), Likelihood()], gaussian_images())]
    [None, ImageSet('gaussian', 60 images of shape (1, 8, 8), 3 classes)]
    """
    if unknown is None:
        return list(audits)
    if not any(hasattr(audit, OTHER) for audit in audits):
        raise ValueError(
            f"images of unknown things were given, and none of the audits {[audit.name for audit in audits]} looks at "
            "them; add out_of_distribution or likelihood, or leave these images out."
        )
    given: Any = {OTHER: unknown}
    return [
        dataclasses.replace(audit, **given)  # type: ignore[type-var]  # every audit is a dataclass
        if getattr(audit, OTHER, ...) is None
        else audit
        for audit in audits
    ]
