"""Arrays as text that a page can hold and a browser can unpack, and how large a page may become."""

import base64
import gzip
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clearance.explore.machines import LOG_LAMBDAS
from clearance.explore.scene import ClassSamples, Scene

PAIR_LIMIT, ALL_LIMIT = 8_000_000, 25_000_000  # bytes of a page with one pair, and with several
OWN = 150_000  # bytes of the page without samples and machines
SHRINKS = 0.95  # what compression leaves of float32 weights that are not 0
SPELT = 3 * 22 * len(LOG_LAMBDAS)  # bytes of a pair's scales, offsets and gaps, at most, as decimals


def packed(array: NDArray) -> str:
    r"""The array's bytes, little-endian, through gzip and base64; the same array gives the same text.

    >>> gzip.decompress(base64.b64decode(packed(np.array([1, 2], dtype=np.uint8))))
    b'\x01\x02'
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(gzip.compress(little.tobytes(), 9, mtime=0)).decode("ascii")


def packed_classes(scene: Scene) -> list[str]:
    """Each class as text: its training rows, then its test rows."""
    return [_packed_class(one) for one in scene.classes]


@lru_cache(maxsize=128)  # packed once to see that the page will not be too large, and once to write it
def _packed_class(one: ClassSamples) -> str:
    return packed(np.concatenate([one.train, one.test]))


def size_limit(scene: Scene) -> int:
    """How many bytes the page may have."""
    return PAIR_LIMIT if len(scene.classes) == 2 else ALL_LIMIT


def check_fits(scene: Scene) -> None:
    """Refuse a scene whose page would be too large: what can be known before any machine is fitted.

    Raises:
        ValueError: As `render_explorer` does.

    >>> from clearance.explore.scene import scene_of
    >>> check_fits(scene_of((np.eye(4), [0, 0, 1, 1]), (np.eye(4), [0, 0, 1, 1]), ("a", "b")))
    """
    check_size(scene, packed_classes(scene))


def check_size(scene: Scene, classes: list[str]) -> None:
    """Refuse a page that would be too large before any machine is fitted.

    Raises:
        ValueError: With the number of samples of a class that would fit, or how else to make the page smaller.
    """
    samples = sum(len(text) for text in classes)
    varied = np.zeros(scene.width, dtype=bool)
    for one in scene.classes:
        varied |= np.any(one.train != scene.classes[0].train[0], axis=0)
    pairs = math.comb(len(scene.classes), 2)
    weights = int(pairs * (len(LOG_LAMBDAS) * varied.sum() * 4 * SHRINKS * 4 / 3 + SPELT))
    limit = size_limit(scene)
    if samples + weights + OWN <= limit:
        return
    most = max(max(len(one.train), len(one.test)) for one in scene.classes)
    fit = int(0.95 * most * (limit - weights - OWN) / samples) if weights + OWN < limit else 0
    ways = [f"take at most {fit} samples of each class (--per-class {fit})"] if fit >= 2 else []
    ways += ["name two classes instead of all"] if pairs > 1 else []
    ways += ["use smaller images"] if not ways else []
    of = "1 pair" if pairs == 1 else f"{pairs} pairs"
    raise ValueError(
        f"the page would have {(samples + weights + OWN) / 1e6:.1f} MB with {of} of classes; at most "
        f"{limit / 1e6:.0f} MB are allowed; {', or '.join(ways)}."
    )


def check_page(scene: Scene, page: str) -> str:
    """The page itself, unless it became larger than it may be.

    Raises:
        ValueError: With both sizes.
    """
    size, limit = len(page.encode()), size_limit(scene)
    if size > limit:
        raise ValueError(
            f"the page has {size / 1e6:.1f} MB; at most {limit / 1e6:.0f} MB are allowed; take fewer samples of each "
            "class (--per-class), or name two classes instead of all."
        )
    return page
