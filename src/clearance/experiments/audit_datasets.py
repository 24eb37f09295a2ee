"""Other datasets that an audit looks at: named in a recipe, read where the recipe's own files are."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from clearance.audits import Audit
from clearance.experiments.datasets import load_dataset

OTHER = "other"


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
