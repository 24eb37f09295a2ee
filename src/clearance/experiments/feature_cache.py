"""A cache on disk of features by extractor and images, checked on a few images before use."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from clearance._describe import describe
from clearance._files import make_private, write_bytes
from clearance.audits import Subject
from clearance.data import ImageSet
from clearance.data.subsets import evenly_spaced
from clearance.models import Classifier, extract_features
from clearance.models._running import device_of, evaluating

_NAME, _CHECKSUM = "features", "sha256"
_PROBED = 4  # images whose features are computed again to check the cache
_CLOSE = 1e-3  # of the largest feature: batches of other sizes round differently


class FeatureCache:
    """Features by extractor and images, one file each.

    A file's name is the hash of the extractor's weights, buffers, form and normalisation (not of the head) and of the
    images. A hash does not cover the code of a forward pass. So the features of a few images are computed again, and
    if they differ, all are.

    The folder is created when the first file is written.

    >>> import tempfile
    >>> from clearance.data import gaussian_images
    >>> model, data = Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), gaussian_images()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = FeatureCache(Path(folder)).features(model, data)
    ...     torch.equal(FeatureCache(Path(folder)).features(model, data), first), len(list(Path(folder).iterdir()))
    (True, 1)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def features(
        self,
        model: Classifier,
        data: ImageSet,
        extract: Callable[[Classifier, ImageSet], Tensor] = extract_features,
    ) -> Tensor:
        """Features of every image, shape (N, D): read from the cache, or extracted and stored."""
        try:
            path = self.folder / f"features-{self.key(model, data)}.safetensors"
        except ValueError:  # the extractor holds what has no digest, such as complex numbers
            return extract(model, data)
        kept = _read(path)
        if kept is not None and _proved(model, data, kept):
            return kept.to(device_of(model))
        found = extract(model, data)
        features = found.cpu().contiguous()
        content = safetensors.torch.save({_NAME: features}, {_CHECKSUM: _checksum(features)})
        with suppress(OSError):  # full, or closed to this user: features are extracted again the next time
            make_private(self.folder)
            write_bytes(path, content, private=True)
        return found

    @staticmethod
    def key(model: Classifier, data: ImageSet) -> str:
        """The hash of everything that features depend on."""
        found = hashlib.sha256(json.dumps(describe(model.extractor)).encode())
        for name, value in (*model.extractor.state_dict().items(), ("mean", model.mean), ("std", model.std)):
            if isinstance(value, Tensor):
                found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
                found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        found.update(data.digest().encode())
        return found.hexdigest()[:24]


def _read(path: Path) -> Tensor | None:
    """The features in a file; None if it is missing, or not as it was written."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            features: Tensor = file.get_tensor(_NAME)
            expected = (file.metadata() or {}).get(_CHECKSUM)
    except (OSError, KeyError, safetensors.SafetensorError):
        return None
    return features if expected == _checksum(features) else None


def _checksum(features: Tensor) -> str:
    return hashlib.sha256(features.view(-1).view(torch.uint8).numpy().data).hexdigest()


def _proved(model: Classifier, data: ImageSet, kept: Tensor) -> bool:
    if len(kept) != len(data):
        return False
    rows = evenly_spaced(len(data), _PROBED)
    device = device_of(model)
    with evaluating(model):
        again = model.features(data.batch(rows)[0].to(device)).cpu()
    if again.shape != kept[rows].shape or again.dtype != kept.dtype:
        return False
    return float((again - kept[rows]).abs().max()) <= _CLOSE * float(again.abs().max())


class KeptSubject(Subject):
    """A subject of audits whose features come from a cache, if there is one."""

    def __init__(self, *arguments: Any, cache: FeatureCache | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cache = cache

    def features(self, data: ImageSet) -> Tensor:
        """Features of any images, shape (N, D)."""
        uncached = super().features
        if self.cache is None:
            return uncached(data)
        return self.cache.features(self.model, data, lambda _, images: uncached(images))
