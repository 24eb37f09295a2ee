"""What tells whether two sets hold the same images: in memory and on disk the same digest, to the bit."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import Tensor

if TYPE_CHECKING:
    from clearance.data.image_set import ImageSet

_CHUNK = 2**22  # bytes of pixels that are hashed at once: a set on disk may be larger than memory
_KEPT: "WeakKeyDictionary[ImageSet, dict[str, list[bytes]]]" = WeakKeyDictionary()


def digest_of(images: Iterable[Tensor], labels: Tensor, shape: Sequence[int], classes: Sequence[str]) -> str:
    """SHA-256 of images, labels and class names, in hexadecimal.

    Args:
        images: All of them in order, (n, C, H, W) each, in parts of any size.
        labels: (N,).
        shape: (C, H, W).
        classes: Their names.

    >>> import torch
    >>> pixels, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    >>> whole = digest_of([pixels], labels, (1, 2, 2), ("a", "b"))
    >>> whole == digest_of(pixels.split(3), labels, (1, 2, 2), ("a", "b"))
    True
    """
    found = hashlib.sha256(json.dumps([[len(labels), *shape], list(classes)]).encode())
    for part in images:
        found.update(part.cpu().contiguous().numpy().astype("<f4", copy=False).data)
    found.update(labels.cpu().contiguous().numpy().astype("<i8", copy=False).data)
    return found.hexdigest()


def image_digests(data: "ImageSet", start: str = "") -> list[bytes]:
    """`digests_of_each` of a set, which is read once however often they are asked for.

    Args:
        data: The set; it never changes.
        start: As there.

    >>> from clearance.data import gaussian_images
    >>> data = gaussian_images(per_class=2)
    >>> image_digests(data) == image_digests(data.subset([0, 1, 2, 3, 4, 5])), len(image_digests(data))
    (True, 6)
    """
    kept = _KEPT.setdefault(data, {})
    if start not in kept:
        channels, height, width = data.shape
        size = max(1, _CHUNK // (4 * channels * height * width))
        kept[start] = list(digests_of_each((images for images, _ in data.batches(size)), start))
    return kept[start]


def digests_of_each(images: Iterable[Tensor], start: str = "") -> Iterator[bytes]:
    """SHA-256 of every image's pixels, which nothing else decides: neither its place nor its company.

    Args:
        images: In parts of any size, (n, C, H, W) float32.
        start: Goes before the pixels, so that several orders can be made of the same images.

    >>> import torch
    >>> one, other, again = digests_of_each([torch.tensor([[0.0], [1.0], [-0.0]])])
    >>> one == again, one == other
    (True, False)
    """
    begin = hashlib.sha256(start.encode())
    for part in images:
        for pixels in (part.cpu() + 0.0).numpy():  # + 0.0 makes one zero of two
            found = begin.copy()
            found.update(pixels.tobytes())
            yield found.digest()
