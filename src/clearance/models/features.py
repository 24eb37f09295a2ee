"""Features and predictions of a whole set of images, in evaluation mode."""

import torch
from torch import Tensor

from clearance.data.image_set import ImageSet
from clearance.models._observe import evaluating
from clearance.models.classifier import Classifier


def extract_features(model: Classifier, data: ImageSet, batch_size: int = 512) -> Tensor:
    """Features of every image, shape (N, D), in evaluation mode and without gradient.

    >>> from torch import nn
    >>> from clearance.data import ImageSet
    >>> images = ImageSet(torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    >>> extract_features(Classifier(nn.Flatten(), nn.Linear(4, 2)), images).shape
    torch.Size([4, 4])
    """
    device = next(model.parameters()).device
    with evaluating(model):
        parts = data.images.split(batch_size)
        first = model.features(parts[0].to(device))
        # filled in place: joining the parts at the end would hold all features twice
        features = first.new_empty((len(data), *first.shape[1:]))
        features[: len(first)] = first
        for start, part in zip(range(batch_size, len(data), batch_size), parts[1:], strict=True):
            features[start : start + len(part)] = model.features(part.to(device))
    return features


def predictions(model: Classifier, data: ImageSet, batch_size: int = 512) -> Tensor:
    """The class that the model's own head gives each image, shape (N,); -1 where logits are not finite."""
    device = next(model.parameters()).device
    with evaluating(model):
        parts = [model(part.to(device)) for part in data.images.split(batch_size)]
    logits = torch.cat(parts)
    return torch.where(logits.isfinite().all(dim=1), logits.argmax(dim=1), -1)
