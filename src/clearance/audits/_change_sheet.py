"""Images and what an attack made of them: the columns of a contact sheet."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from clearance.data import ImageSet
from clearance.models.classifier import Classifier
from clearance.vocabulary import Exhibit

MOST = 10  # pictures side by side
SIDE = 64  # pixels of a picture; larger ones would make a page of megabytes
DIGITS = 4


def change_sheet(
    audit: str, model: Classifier, some: ImageSet, moved: Tensor, distance: Tensor, temperature: float
) -> Exhibit:
    """The first image of each class and what it became on its way to the next class.

    Args:
        audit: Whose exhibit it is.
        model: In evaluation mode.
        some: The images as they were.
        moved: What they became, of the same shape.
        distance: How far, (N,), infinite where they did not arrive.
        temperature: By which logits are divided before they become probabilities.
    """
    rows = _first_of_each(some.labels)
    own = some.labels[rows]
    target = (own + 1) % some.class_count
    confidence = [
        _probability(model, images[rows], of, temperature)
        for images, of in ((some.images, own), (moved, target))
    ]
    change = (moved - some.images).flatten(1).norm(dim=1)
    columns: dict[str, Any] = {
        "image": picture_pixels(some.images[rows]),
        "adversarial": picture_pixels(moved[rows]),
        "label": [some.classes[k] for k in own.tolist()],
        "target": [some.classes[k] for k in target.tolist()],
        "confidence": _rounded(confidence[0]),
        "target_confidence": _rounded(confidence[1]),
        "norm": _rounded(change[rows]),
        "arrived": distance[rows].isfinite().tolist(),
    }
    caption = (
        "Images of each class (above), what they became until the network was confident in the next class (middle),"
        " and the change between them (below)."
    )
    return Exhibit(audit, "contact_sheet", "images", columns, caption)


def _first_of_each(labels: Tensor) -> Tensor:
    """Rows of the first image of each class, of at most `MOST` classes."""
    firsts = [int((labels == k).nonzero()[0]) for k in labels.unique().tolist()[:MOST]]
    return torch.tensor(firsts, device=labels.device)


def _probability(model: Classifier, images: Tensor, of: Tensor, temperature: float) -> Tensor:
    """Of one class for each image; 0 where it is not finite."""
    if not 0 < temperature < torch.inf:
        return torch.zeros(len(images))
    logits = model(images).double() / temperature
    return logits.softmax(dim=1).gather(1, of.unsqueeze(1)).squeeze(1)


def picture_pixels(images: Tensor) -> Any:
    """Images (N, C, H, W) as lists of a few digits; large ones averaged over squares, in their own shape."""
    sides = images.shape[2:]
    if max(sides) > SIDE:
        height, width = (max(1, round(side * SIDE / max(sides))) for side in sides)
        images = adaptive_avg_pool2d(images, (height, width))
    return _rounded(images)


def _rounded(values: Tensor) -> Any:
    return torch.round(values.double().cpu(), decimals=DIGITS).tolist()
