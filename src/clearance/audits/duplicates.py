"""Which images are there more than once, and how accurate is the classifier without the test images among them?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject, share_of
from clearance.audits._change_sheet import picture_pixels
from clearance.audits._samples import other_images
from clearance.data import ImageSet
from clearance.data.image_set import CHUNK, GREY, image_digests
from clearance.vocabulary import Exhibit, Measurement, Scalar

SIDE = 32  # pixels to which a larger image is averaged before its transform
BLOCK = 8  # frequencies along each axis
CANDIDATES = 0.1  # distance of two hashes up to which images are compared pixel by pixel
MANY = 20_000  # images from which on only hashes as near as `NEAR` are candidates, which takes a fifth of the time
NEAR, SHARP = 0.045, 0.08  # near duplicates: distance of hashes, and 1 - correlation of pixels, at most
BLURRED = 0.005  # or this, after the sharper one is blurred by one of
BLURS = (0.5, 0.7, 0.9, 1.1)  # pixels, standard deviation
FLAT = 2 / 255  # standard deviation of an image's low frequencies below which it has nothing to compare
NEIGHBOURS = 8  # of one hash, at most
PICTURED = 8  # pairs
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Duplicates(Audit):
    """Exact and near duplicates within and across the sets, and the error with and without those between them.

    Exact duplicates have equal pixels (SHA-256 of each image as the classifier gets it). Near duplicates have nearly
    equal perceptual hashes, unit vectors of the low frequencies of an image without the mean, as they are or
    mirrored, and are then compared pixel by pixel, because resizing blurs also with a blurred copy:

    h(x) = (DCT(grey x)_uv, u, v < 8, not both 0) / norm
    |h(x) - h(y)| <= 0.045 and 1 - corr(x, y) <= 0.08,    or    |h(x) - h(y)| <= 0.1 and 1 - corr(blur x, y) <= 0.005

    The blur is the best of four, on either side. A mirrored image has the same hash but for the signs of odd
    horizontal frequencies. Features are never read: a classifier makes images of one class alike. Images that are
    near duplicates of the same image form a group.

    Source: Zauner, *Implementation and Benchmarking of Perceptual Image Hash Functions* (2010), for a hash of the
    low frequencies of the DCT; here it keeps their values, not only signs, because two pairs of trousers have equal
    signs. Both limits were chosen on halves of the training images of MNIST and Fashion-MNIST.

    Measurements, each a ``count``; n counts the images of the set: ``exact_duplicates`` and ``near_duplicates`` of
    ``sets`` "train" and "test" (images less different images), "test in train" (test images that are also training
    images), and with unknown images also "unknown" and "unknown in train or test"; ``conflicting_labels``, images
    of train and test that have a duplicate with another label; ``error`` on ``images`` "all", "not in train" and
    "in train", with a 95 % Wilson interval, where there are such images. Exhibit ``duplicates`` lists the pairs,
    those between test and train first, then those with two labels; exhibit ``pairs`` shows the first of them.

    Args:
        other: Unknown images, of the same shape, that are compared too; a recipe gives the name of a dataset.
        listed: The most pairs in the list.

    Raises:
        ValueError: If `other` has images of another shape.

    Misleads where different images are nearly alike by nature, such as frames of one film or blank pages: these are
    listed too. Among more than 20,000 images, copies that were resized to much less than their size are missed.
    Near duplicates with a side below 8 pixels, flat images, crops, and images that were turned or moved are not
    found. Images that differ in brightness and contrast alone are near duplicates.

    >>> import torch
    >>> from torch import nn
    >>> from clearance.data import ImageSet
    >>> from clearance.models import Classifier
    >>> images, labels = torch.rand(40, 1, 8, 8), torch.arange(40) % 2
    >>> train = ImageSet(images[:20], labels[:20], ("a", "b"))
    >>> test = ImageSet(torch.cat([images[20:], images[:3], images[3:5].flip(3)]), torch.arange(25) % 2, ("a", "b"))
    >>> found = Duplicates()(Classifier(nn.Flatten(), nn.Linear(64, 2)), train, test)
    >>> {m.name: m.value for m in found.measurements if m.context.get("sets") == "test in train"}
    {'exact_duplicates': 3, 'near_duplicates': 2}
    """

    name: ClassVar[str] = "duplicates"
    other: ImageSet | str | None = None
    listed: int = 10_000

    def __post_init__(self) -> None:
        check_count("listed", self.listed)

    def examine(self, subject: Subject) -> Findings:
        """Find the pairs, count them by set, and count errors with and without them."""
        sets = self._sets(subject)
        found = Copies.of(list(sets.values()))
        rows = dict(zip(sets, found.rows(), strict=True))
        numbers = [self._counted(found, name, own) for name, own in rows.items()]
        numbers.append(self._counted(found, "test in train", rows["test"], rows["train"]))
        if "unknown" in rows:
            known = np.concatenate([rows["train"], rows["test"]])
            numbers.append(self._counted(found, "unknown in train or test", rows["unknown"], known))
        labels = np.concatenate([data.labels.cpu().numpy() for data in (subject.train, subject.test)])
        conflicting = found.conflicting(labels)
        pairs = self._ordered(found, labels, len(subject.train), len(labels))
        return Findings(
            (
                *(one for both in numbers for one in both),
                Measurement(
                    self.name, "conflicting_labels", int(conflicting.sum()), "count", len(labels), better="lower"
                ),
                *self._errors(subject, np.isin(found.group[rows["test"]], found.group[rows["train"]])),
            ),
            self._exhibits(sets, pairs[: self.listed]),
        )  # fmt: skip

    def _sets(self, subject: Subject) -> dict[str, ImageSet]:
        sets = {"train": subject.train, "test": subject.test}
        return sets if self.other is None else {**sets, "unknown": other_images(self.other, subject.test)}

    def _counted(
        self, found: "Copies", name: str, rows: Rows, among: Rows | None = None
    ) -> list[Measurement]:
        """How many images at `rows` are duplicates of others there, or of images at `among`."""
        if among is None:
            exact = len(rows) - len(np.unique(found.original[rows]))
            either = len(rows) - len(np.unique(found.group[rows]))
        else:
            exact = int(np.isin(found.original[rows], found.original[among]).sum())
            either = int(np.isin(found.group[rows], found.group[among]).sum())
        context: dict[str, Scalar] = {"sets": name}
        kinds = [("exact_duplicates", exact)]
        kinds += [] if found.too_small else [("near_duplicates", either - exact)]
        return [
            Measurement(self.name, kind, count, "count", len(rows), better="lower", context=context)
            for kind, count in kinds
        ]

    def _errors(self, subject: Subject, leaked: NDArray[np.bool_]) -> Iterator[Measurement]:
        wrong = (subject.test_predictions != subject.test.labels).cpu().numpy()
        parts = {"all": np.ones_like(leaked), "not in train": ~leaked, "in train": leaked}
        for name, chosen in parts.items():
            count, images = int(wrong[chosen].sum()), int(chosen.sum())
            if images:
                yield share_of(self.name, "error", count, images, "lower", {"images": name})

    def _ordered(self, found: "Copies", labels: NDArray[np.int64], train: int, known: int) -> list["Pair"]:
        """Pairs of a test and a training image first, then those with two labels, then the others."""

        def key(pair: Pair) -> tuple[bool, bool, int, int]:
            between = pair.first < train <= pair.second < known
            two = pair.second < known and labels[pair.first] != labels[pair.second]
            return not between, not two, pair.first, pair.second

        return sorted(found.pairs, key=key)

    def _exhibits(self, sets: dict[str, ImageSet], pairs: Sequence["Pair"]) -> tuple[Exhibit, ...]:
        ends = [[_image_at(sets, row) for row in (pair.first, pair.second)] for pair in pairs]
        columns: dict[str, list[Any]] = {"kind": [pair.kind for pair in pairs]}
        for place, word in enumerate(("first", "second")):
            named = [both[place] for both in ends]
            columns[f"{word} set"] = [name for name, _ in named]
            columns[f"{word} image"] = [sets[name].name_of(row) for name, row in named]
            columns[f"{word} class"] = [_class_of(sets[name], row, name) for name, row in named]
        caption = "Pairs of duplicates: those between test and train first, then those with two labels."
        listed = Exhibit(self.name, "duplicates", "table", columns, caption)
        if not pairs:
            return (listed,)
        shown = [one for both in ends[:PICTURED] for one in both]
        pixels = torch.cat([sets[name].batch(torch.tensor([row]))[0].cpu() for name, row in shown])
        pictures = {
            "image": picture_pixels(pixels),
            "label": [f"{name} {_class_of(sets[name], row, name)}".strip() for name, row in shown],
            "pair": [number // 2 + 1 for number in range(len(shown))],
        }
        caption = "The first pairs of the list, side by side: set and class of each image."
        return listed, Exhibit(self.name, "pairs", "images", pictures, caption)


@dataclass(frozen=True, order=True)
class Pair:
    """Two images, by their place among all sets one after the other, and whether their pixels are equal."""

    first: int
    second: int
    kind: str


@dataclass(frozen=True)
class Copies:
    """The duplicates among several sets, one after the other.

    Args:
        sizes: Images of each set.
        original: For each image the first one with the same pixels, (N,).
        group: A number for each image, equal for duplicates, exact or near, (N,).
        pairs: Each image with its original, and every pair of near duplicates among originals.
        too_small: Whether the images have too few pixels to look for near duplicates.
    """

    sizes: tuple[int, ...]
    original: Rows
    group: Rows
    pairs: tuple[Pair, ...]
    too_small: bool

    @classmethod
    def of(cls, sets: Sequence[ImageSet]) -> "Copies":
        """Hash every image, and compare those whose hashes are near.

        All images have one shape.

        >>> images = torch.rand(4, 1, 8, 8)
        >>> data = ImageSet(torch.cat([images, images[:1]]), torch.arange(5) % 2, ("a", "b"))
        >>> Copies.of([data]).pairs
        (Pair(first=0, second=4, kind='exact'),)
        """
        digests = [digest for data in sets for digest in image_digests(data)]
        first: dict[bytes, int] = {}
        original = np.array([first.setdefault(digest, row) for row, digest in enumerate(digests)])
        here = np.arange(len(original))
        exact = [Pair(int(original[row]), int(row), "exact") for row in here[original != here]]
        too_small = min(sets[0].shape[1:]) < BLOCK
        near = [] if too_small else near_duplicates(sets, here[original == here])
        pairs = (*exact, *near)
        ends = np.array([(pair.first, pair.second) for pair in pairs], dtype=np.int64).reshape(-1, 2)
        links = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(here), len(here)))
        _, group = connected_components(links, directed=False)
        return cls(tuple(map(len, sets)), original, group.astype(np.int64), pairs, too_small)

    def rows(self) -> list[Rows]:
        """The places of each set's images."""
        return np.split(np.arange(len(self.original)), np.cumsum(self.sizes)[:-1])

    def conflicting(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the first images, those with labels, have a duplicate with another label."""
        group = self.group[: len(labels)]
        kinds = np.unique(np.stack([group, labels], axis=1), axis=0)[:, 0]
        return np.asarray(np.bincount(kinds, minlength=len(self.original))[group] > 1)


def near_duplicates(sets: Sequence[ImageSet], rows: Rows) -> list[Pair]:
    """Pairs of near duplicates, "near" or "mirrored", among images whose pixels differ.

    Memory: 63 numbers for each image, and `NEIGHBOURS` candidates; pixels are read in batches. All images have one
    shape; `rows` are places among all sets one after the other, ascending.

    >>> images = torch.rand(6, 1, 16, 16)
    >>> images[4], images[5] = (0.8 * images[0] + 0.1), images[1].flip(2)
    >>> near_duplicates([ImageSet(images, torch.arange(6) % 2, ("a", "b"))], np.arange(6))
    [Pair(first=0, second=4, kind='near'), Pair(first=1, second=5, kind='mirrored')]
    """
    if len(rows) < 2:
        return []
    hashes = np.concatenate([perceptual_hashes(images) for images in _read(sets, rows)])
    some = np.flatnonzero(hashes.any(axis=1))
    hashes, rows = hashes[some], rows[some]
    if len(rows) < 2:
        return []
    tree = cKDTree(hashes)
    kept: dict[tuple[int, int], str] = {}
    for kind, signs in (("near", 1.0), ("mirrored", _mirror_signs())):
        candidates = _candidates(
            tree, (hashes * signs).astype(np.float32), CANDIDATES if len(rows) <= MANY else NEAR
        )
        for chunk in _chunked(candidates, sets[0]):
            first, second = (_pixels_at(sets, rows[chunk[:, end]]) for end in range(2))
            apart = np.linalg.norm(hashes[chunk[:, 0]] * signs - hashes[chunk[:, 1]], axis=1)
            same = alike(first, second.flip(3) if kind == "mirrored" else second, torch.from_numpy(apart))
            for a, b in rows[chunk[same.numpy()]].tolist():
                kept.setdefault((a, b), kind)
    return [Pair(a, b, kind) for (a, b), kind in sorted(kept.items())]


def perceptual_hashes(images: Tensor) -> NDArray[np.float32]:
    """Unit vectors of the low frequencies of grey images without their mean, (N, 63); zeros for a flat image.

    Images are (N, C, H, W), with sides of at least 8.

    >>> images = torch.rand(2, 3, 40, 40)
    >>> bool(np.abs(perceptual_hashes(0.5 * images + 0.2) - perceptual_hashes(images)).max() < 1e-5)
    True
    """
    colours = GREY if images.shape[1] == 3 else [1 / images.shape[1]] * images.shape[1]
    grey = (images * torch.tensor(colours, device=images.device).view(-1, 1, 1)).sum(dim=1, keepdim=True)
    height, width = (min(SIDE, side) for side in images.shape[2:])
    if (height, width) != tuple(images.shape[2:]):
        grey = adaptive_avg_pool2d(grey, (height, width))
    low = dctn(grey[:, 0].cpu().numpy(), axes=(1, 2), norm="ortho")[:, :BLOCK, :BLOCK]
    low = low.reshape(len(images), -1)[:, 1:]
    length = np.linalg.norm(low, axis=1, keepdims=True)
    plain = length <= FLAT * np.sqrt(height * width)
    return np.where(plain, 0, low / np.where(plain, 1, length)).astype(np.float32)


def _mirror_signs() -> NDArray[np.float32]:
    """What mirroring does to a hash: odd horizontal frequencies change their sign."""
    return np.tile((-1.0) ** np.arange(BLOCK), BLOCK)[1:].astype(np.float32)


def _candidates(tree: cKDTree, hashes: NDArray[np.float32], reach: float) -> Rows:
    """Pairs of different places whose hashes are near, each once, the smaller first, (P, 2)."""
    found = []
    for start in range(0, len(hashes), 4096):
        part = hashes[start : start + 4096]
        _, places = tree.query(part, k=NEIGHBOURS + 1, distance_upper_bound=reach)
        here = np.repeat(np.arange(start, start + len(part)), NEIGHBOURS + 1)
        there = places.reshape(-1)
        real = (there < tree.n) & (there != here)
        found.append(np.sort(np.stack([here[real], there[real]], axis=1), axis=1))
    return np.unique(np.concatenate(found), axis=0)


def alike(first: Tensor, second: Tensor, apart: Tensor) -> Tensor:
    """Whether two images each are near duplicates, (N,) bool.

    Images are (N, C, H, W); `apart`, (N,), are the distances of their hashes, at most `CANDIDATES`.
    """
    found = (apart <= NEAR) & (1 - correlation(first, second) <= SHARP)
    for sharp, soft in ((first, second), (second, first)):
        for width in BLURS:
            rest = (~found).nonzero().flatten()
            if len(rest):
                blurred = gaussian_filter(sharp[rest].numpy(), (0, 0, width, width), mode="nearest")
                found[rest] = 1 - correlation(torch.from_numpy(blurred), soft[rest]) <= BLURRED
    return found


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """The correlation of the pixels of two images each, (N,), float64; 0 for a flat one.

    >>> images = torch.rand(2, 1, 4, 4)
    >>> correlation(images, 1 - images).round(decimals=6)
    tensor([-1., -1.], dtype=torch.float64)
    """
    a, b = (images.flatten(1).double() for images in (first, second))
    a, b = (x - x.mean(dim=1, keepdim=True) for x in (a, b))
    scale = (a.square().sum(dim=1) * b.square().sum(dim=1)).sqrt()
    return (a * b).sum(dim=1) / torch.where(scale > 0, scale, 1)


def _chunked(rows: Rows, data: ImageSet) -> Iterator[Rows]:
    """Parts of `rows` whose images take a few megabytes."""
    channels, height, width = data.shape
    size = max(1, CHUNK // (4 * channels * height * width))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _read(sets: Sequence[ImageSet], rows: Rows) -> Iterator[Tensor]:
    return (_pixels_at(sets, part) for part in _chunked(rows, sets[0]))


def _pixels_at(sets: Sequence[ImageSet], rows: Rows) -> Tensor:
    """Images at places among all sets one after the other, on the CPU."""
    found = torch.empty(len(rows), *sets[0].shape, dtype=torch.float32)
    start = 0
    for data in sets:
        mine = torch.from_numpy((rows >= start) & (rows < start + len(data)))
        if mine.any():
            found[mine] = data.batch(torch.from_numpy(rows)[mine] - start)[0].cpu()
        start += len(data)
    return found


def _image_at(sets: dict[str, ImageSet], row: int) -> tuple[str, int]:
    """The set that holds an image, and its place there."""
    for name, data in sets.items():
        if row < len(data):
            return name, row
        row -= len(data)
    raise AssertionError(row)


def _class_of(data: ImageSet, row: int, name: str) -> str:
    return "" if name == "unknown" else data.classes[int(data.labels[row])]
