"""Where an item keeps its image and its label: pairs, dictionaries, and the columns of Hugging Face's datasets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

IMAGES = ("image", "img", "images", "pixel_values", "x")
LABELS = ("label", "labels", "fine_label", "class", "target", "y")


@dataclass(frozen=True)
class Columns:
    """Names of the columns that hold images and labels, and of the classes; empty where items are pairs."""

    image: str = ""
    label: str = ""
    classes: tuple[str, ...] = ()


def columns_of(data: Any) -> Columns:
    """The columns of a dataset that says what they are, as Hugging Face's do by `features`; else none.

    A column whose feature is called Image holds images; one whose feature has `names` holds labels, and these are
    the classes. The usual names (`IMAGES`, `LABELS`) come first where there are several.

    Raises:
        ValueError: If it has features, and none for images or none for labels.

    >>> columns_of([(0, 1)])
    Columns(image='', label='', classes=())
    """
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return Columns()
    images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    labels = [name for name, kind in features.items() if getattr(kind, "names", None)]
    image = _chosen("images", IMAGES, images, list(features))
    label = _chosen("labels", LABELS, labels, list(features))
    return Columns(image, label, tuple(str(name) for name in getattr(features[label], "names", None) or ()))


def pair_of(item: Any, columns: Columns, place: int) -> tuple[Any, Any]:
    """(image, label) of an item that is a pair or a dictionary.

    Raises:
        ValueError: If it is neither, or lacks one of the two.

    >>> pair_of({"img": "pixels", "label": 3, "id": 7}, Columns(), 0)
    ('pixels', 3)
    """
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, Mapping):
        known = list(item)
        image = columns.image or _chosen("images", IMAGES, [], known)
        label = columns.label or _chosen("labels", LABELS, [], known)
        return item[image], item[label]
    raise ValueError(
        "every item of `data` must be a pair (image, label), or a dictionary with both; got "
        f"{type(item).__name__} at {place}."
    )


def _chosen(what: str, usual: tuple[str, ...], typed: list[str], known: list[str]) -> str:
    """The usual name among those of the right type, else the first of these, else the usual name among all."""
    found = [name for name in usual if name in typed] + typed + [name for name in usual if name in known]
    if not found:
        raise ValueError(
            f"`data` must have a column of {what}, called {', '.join(map(repr, usual))}; got "
            f"{', '.join(map(repr, known)) or 'none'}. Rename it."
        )
    return found[0]
