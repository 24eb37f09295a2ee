"""What tells whether two sets hold the same images: in memory and on disk the same digest, to the bit."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor


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
