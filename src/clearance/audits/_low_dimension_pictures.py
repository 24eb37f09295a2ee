"""What the audit `low_dimension` shows."""

import torch
from torch import Tensor

from clearance.audits._fresh_heads import evenly_spaced
from clearance.data import ImageSet
from clearance.geometry.spectrum import covariance_spectrum, principal_axes
from clearance.vocabulary import Exhibit

PICTURED_AXES = 50
PICTURED_IMAGES = 500


def spectrum(audit: str, features: Tensor, data: ImageSet) -> Exhibit:
    """Share of variance on each of the first principal axes, of all features and within a class.

    Args:
        audit: Name of the audit.
        features: Held-out features, (N, D), finite.
        data: Held-out images.
    """
    count = min(PICTURED_AXES, features.shape[1])
    own = [_shares(features[data.labels == k], count) for k in data.labels.unique()]
    columns = {
        "axis": list(range(1, count + 1)),
        "all features": _shares(features, count).tolist(),
        "within a class (mean)": torch.stack(own).mean(dim=0).tolist(),
    }
    caption = "Share of variance on each principal axis of held-out features, of all and within a class."
    return Exhibit(audit, "spectrum", "curve", columns, caption, {"split": "test"})


def line(audit: str, scores: Tensor, data: ImageSet) -> Exhibit:
    """Held-out features along the direction that sets the first class apart, a row for each class.

    Args:
        audit: Name of the audit.
        scores: Projections, (N,).
        data: Held-out images.
    """
    rows = evenly_spaced(len(data), PICTURED_IMAGES)
    labels = data.labels.cpu()[rows].tolist()
    first = data.classes[0]
    columns = {
        "x": scores.cpu()[rows].tolist(),
        "y": labels,  # one axis is all there is: a second one would be arbitrary
        "label": [first if k == 0 else "other classes" for k in labels],
    }
    caption = (
        f"Held-out features of unit length along the one direction that sets class {first} apart from the "
        "others in training, a row for each class."
    )
    return Exhibit(audit, "lda", "scatter", columns, caption, {"class": first, "split": "test"})


def plane(audit: str, features: Tensor, data: ImageSet) -> Exhibit:
    """Some training features on the first two principal axes of all of them.

    Args:
        audit: Name of the audit.
        features: Training features, (N, D), finite.
        data: Training images.
    """
    rows = evenly_spaced(len(data), PICTURED_IMAGES).to(features.device)
    centre = features.double().mean(dim=0)
    places = ((features[rows].double() - centre) @ principal_axes(features, 2).T).cpu()
    columns = {
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "label": [data.classes[k] for k in data.labels[rows].tolist()],
    }
    caption = "Training features on the first two principal axes of all of them, each point an image."
    return Exhibit(audit, "plane", "scatter", columns, caption, {"split": "train"})


def _shares(features: Tensor, count: int) -> Tensor:
    found = covariance_spectrum(features)
    shares = (found / found.sum() if float(found.sum()) > 0 else found)[:count]
    return torch.nn.functional.pad(shares.cpu(), (0, count - len(shares)))
