"""Which labels look wrong, one by one and between two classes?"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, relu, unfold

from clearance._checks import check_count
from clearance._rng import generator
from clearance.audits._audit import WILSON, Audit, Findings, Subject, named_class, share_of, wilson_interval
from clearance.audits._change_sheet import picture_pixels
from clearance.audits._samples import fixed_rows
from clearance.audits.calibration import fitted_temperature
from clearance.data import ImageSet
from clearance.vocabulary import Better, Exhibit, Measurement

SIDE, SMALL = 32, 16  # pixels: larger images are averaged, smaller ones are compared pixel by pixel
PATCH, STRIDE, FILTERS, GRID, DRAWN = 6, 2, 256, 4, 20_000
FLOOR, WHITENING, DEAD_ZONE = 0.01, 0.1, 0.5
RIDGE = 0.1
BLOCK = 6000  # images that are compared with one another: more take time and memory with the square
SURE = 0.01  # probability of the given label below which a suspect is sure, or a tenth of guessing if that is less
FEW = 5  # images of a class in a block below which its labels are not judged
PICTURED = 24
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LabelSuspects(Audit):
    r"""Labels that other images contradict: confident learning on probabilities from images that were left out.

    The probabilities do not come from the audited classifier, which may have learned the wrong labels, but from
    kernel ridge regression on patch features of the images, for each image without its own label. With K the
    Gaussian kernel whose width is the median distance, Y one-hot labels:

    f_i = y_i - [(K + 0.1 I)^-1 Y]_i / [(K + 0.1 I)^-1]_ii,    p = softmax(f / T)

    T has the least cross-entropy. Patch features: responses of 256 whitened random patches of 6 x 6, both signs with a
    dead zone, averaged over 4 x 4 fields; images below 16 pixels are compared by their pixels. Train and test are
    scored together, in blocks of at most 6,000 images; copies of an image with the same label are one, so that none
    confirms another.

    Sources: Northcutt, Jiang and Chuang, *Confident Learning* (2021), equations 1 and 2, by cleanlab; Coates, Lee
    and Ng, *An Analysis of Single-Layer Networks in Unsupervised Feature Learning* (2011), for features of patches;
    Rifkin and Lippert, *Notes on Regularized Least Squares* (2007), for predictions that leave one out. Kernel and
    numbers were chosen on seeds apart against a cross-fitted last layer, linear and Gaussian kernels on pixels, and
    a small cross-fitted network.

    Measurements, for each ``split``: ``suspects``, the share of images in the list: confident learning doubts their
    label, by itself or as one of a pair of classes, or they are sure; ``sure``, the share whose given label has a
    probability below 0.01 (0.1 / C with more than ten classes) and is not the likeliest, with 95 % Wilson intervals;
    ``model_agrees``, of the suspects the share for which the audited classifier, too, predicts the class that they
    look like; ``left_out``, the share that was not looked at, where there is one. Over both sets: ``worst_pair``, the
    largest share of a class that looks like one other class, ``agreement``, the share of labels that the regression
    predicts, and ``not_judged``, the share of labels of which fewer than five of the class are in a block of images,
    where there is one. Exhibits: ``suspects``,
    the list, the surest first; ``pairs``, shares of classes that look like another; ``pictures`` of the first suspects.

    Args:
        images: Of each set: at most, but one of every class at least; a class-balanced choice by the seed.

    Raises:
        ImportError: If cleanlab is not installed.

    Misleads where classes overlap: on Fashion-MNIST, where shirts look like coats, about half of the suspects have the
    label of the set. A class of which two fifths are filed as another is noticed as a pair, but half of its images
    are not in the list, and which of the two classes has the wrong ones is open. Labels of classes with fewer than
    five images are not judged.

    >>> from torch import nn
    >>> from clearance import load_dataset
    >>> from clearance.data import ImageSet
    >>> from clearance.models import Classifier
    >>> train, test = load_dataset("digits").per_class(100, seed=0), load_dataset("digits", split="test")
    >>> labels = train.labels.clone()
    >>> labels[:10] = (labels[:10] + 5) % 10  # wrong
    >>> wrong = ImageSet(train.images, labels, train.classes)
    >>> found = LabelSuspects()(Classifier(nn.Flatten(), nn.Linear(64, 10)), wrong, test)
    >>> {f"image {number}" for number in range(10)} <= set(found.exhibits[0].columns["image"][:12])
    True
    """

    name: ClassVar[str] = "label_suspects"
    images: int = 5000

    def __post_init__(self) -> None:
        check_count("images", self.images)

    def examine(self, subject: Subject) -> Findings:
        """Score both sets together, let confident learning judge, and ask the classifier."""
        _cleanlab()  # before what takes time
        sets = {"train": subject.train, "test": subject.test}
        rows = {split: fixed_rows(data, self.images, subject.seed).cpu() for split, data in sets.items()}
        images = torch.cat([_read(data, rows[split]) for split, data in sets.items()])
        labels = np.concatenate([data.labels.cpu()[rows[split]].numpy() for split, data in sets.items()])
        chances, judged = probabilities(images, labels, subject.classes, subject.seed, subject.progress)
        doubted = Doubts.of(chances, labels, judged)
        answers = np.concatenate(
            [
                given.cpu()[rows[split]].numpy()
                for split, given in (("train", subject.train_predictions), ("test", subject.test_predictions))
            ]
        )
        place = np.concatenate([np.full(len(rows[split]), number) for number, split in enumerate(sets)])
        shares = pair_shares(doubted, labels, subject.classes)
        list_ = self._list(subject, doubted, labels, place, rows, answers)
        numbers = [
            one
            for number, split in enumerate(sets)
            for one in self._of_split(doubted, answers, place == number, split)
        ]
        numbers += self._unseen(sets, rows, labels, judged)
        numbers += [self._worst(shares, labels), *self._agreement(doubted, labels, judged)]
        pairs = self._pairs(shares, labels, subject.train.classes)
        return Findings(tuple(numbers), (list_, pairs, *_pictures(list_, sets)))

    def _worst(self, shares: Floats, labels: Ints) -> Measurement:
        """The largest share, with its interval over the images of the class, adjusted for the number of pairs."""
        names = np.unique(labels)  # some may have no image
        given = max(names, key=lambda name: float(shares[name].max()))
        images = int((labels == given).sum())
        count, pairs = round(float(shares.max()) * images), len(names) * (len(names) - 1)
        low, high = wilson_interval(count, images, z=NormalDist().inv_cdf(1 - 0.025 / max(pairs, 1)))
        return Measurement(
            self.name, "worst_pair", count / images, "fraction", images, low=low, high=high, better="lower",
            context={"interval": f"{WILSON}, adjusted for all pairs"},
        )  # fmt: skip

    def _agreement(self, found: "Doubts", labels: Ints, judged: NDArray[np.bool_]) -> Iterator[Measurement]:
        """How often the regression predicts the given label: where it rarely does, it cannot tell the classes apart."""
        agrees = (found.likeliest == labels)[judged]
        if len(agrees):
            yield share_of(self.name, "agreement", int(agrees.sum()), len(agrees), "neither", {})

    def _unseen(
        self, sets: dict[str, ImageSet], rows: dict[str, Tensor], labels: Ints, judged: NDArray[np.bool_]
    ) -> Iterator[Measurement]:
        """Where there are any: images that were not looked at, and labels of classes too small to be judged."""
        for split, data in sets.items():
            if left := len(data) - len(rows[split]):
                yield share_of(self.name, "left_out", left, len(data), "neither", {"split": split})
        if small := int((~judged).sum()):
            yield share_of(self.name, "not_judged", small, len(labels), "neither", {})

    def _of_split(
        self, found: "Doubts", answers: Ints, mine: NDArray[np.bool_], split: str
    ) -> Iterator[Measurement]:
        agrees = (answers == found.likeliest)[mine & found.listed]
        for name, chosen in (
            ("suspects", found.listed[mine]),
            ("sure", found.sure[mine]),
            ("model_agrees", agrees),
        ):
            if len(chosen):
                better: Better = "neither" if name == "model_agrees" else "lower"
                yield share_of(self.name, name, int(chosen.sum()), len(chosen), better, {"split": split})

    def _list(
        self,
        subject: Subject,
        found: "Doubts",
        labels: Ints,
        place: Ints,
        rows: dict[str, Tensor],
        answers: Ints,
    ) -> Exhibit:
        sets, classes = (subject.train, subject.test), subject.train.classes
        which = np.concatenate([own.numpy() for own in rows.values()])
        order = found.order
        columns: dict[str, list[Any]] = {
            "set": [("train", "test")[place[i]] for i in order],
            "image": [sets[place[i]].name_of(int(which[i])) for i in order],
            "number": [int(which[i]) for i in order],
            "given": [classes[labels[i]] for i in order],
            "looks like": [classes[found.likeliest[i]] for i in order],
            "probability of given": [round(float(found.own[i]), 4) for i in order],
            "probability of looks like": [round(float(found.best[i]), 4) for i in order],
            "model predicts": [named_class(classes, int(answers[i])) for i in order],
        }
        caption = "Images whose labels look wrong, the surest first."
        return Exhibit(self.name, "suspects", "table", columns, caption)

    def _pairs(self, shares: Floats, labels: Ints, classes: Sequence[str]) -> Exhibit:
        sizes = np.bincount(labels, minlength=len(classes))
        ends = [
            divmod(int(k), len(classes))
            for k in np.argsort(-shares, axis=None, kind="stable")
            if shares.flat[k] > 0
        ]
        columns: dict[str, list[Any]] = {
            "given": [classes[a] for a, _ in ends],
            "looks like": [classes[b] for _, b in ends],
            "images": [round(float(shares[a, b]) * int(sizes[a])) for a, b in ends],
            "share of given": [round(float(shares[a, b]), 4) for a, b in ends],
        }
        caption = "Of the images of a class, the share that looks like another class, the largest first."
        return Exhibit(self.name, "pairs", "table", columns, caption)


def _pictures(suspects: Exhibit, sets: dict[str, ImageSet]) -> tuple[Exhibit, ...]:
    columns = suspects.columns
    names = ("set", "number", "image", "given", "looks like")
    first = list(zip(*(columns[name] for name in names), strict=True))[:PICTURED]
    if not first:
        return ()
    images = torch.cat([sets[split].batch(torch.tensor([row]))[0].cpu() for split, row, *_ in first])
    split, _, file, given, other = (list(column) for column in zip(*first, strict=True))
    shown = {
        "image": picture_pixels(images),
        "set": split,
        "file": file,
        "given": given,
        "looks like": other,
    }
    caption = "The surest suspects: the given label, and the class that the image looks like."
    return (Exhibit(suspects.audit, "pictures", "images", shown, caption),)


@dataclass(frozen=True)
class Doubts:
    """What confident learning says of each image.

    Args:
        own: Probability of the given label, (N,).
        best: Probability of the likeliest class, `likeliest`, (N,).
        single: Whether the label is doubted, (N,) bool: as many as the joint counts say, by `own`.
        paired: Whether the image is counted off the diagonal of the confident joint, (N,) bool.
        sure: Whether `own` is below `SURE`, or 0.1 / C, and the likeliest class is another one, (N,) bool.
    """

    own: Floats
    best: Floats
    likeliest: Ints
    single: NDArray[np.bool_]
    paired: NDArray[np.bool_]
    sure: NDArray[np.bool_]

    @classmethod
    def of(cls, chances: Floats, labels: Ints, judged: NDArray[np.bool_]) -> "Doubts":
        """Ask cleanlab.

        `chances` are probabilities without the own label, (N, C); `judged` tells which of the labels, (N,), are asked
        about.

        Raises:
            ImportError: If cleanlab is not installed.
        """
        own, likeliest = chances[np.arange(len(labels)), labels], chances.argmax(axis=1)
        single, paired = (np.zeros(len(labels), dtype=bool) for _ in range(2))
        single[judged], paired[judged] = _by_cleanlab(chances[judged], labels[judged])
        other = likeliest != labels
        sure = judged & other & (own < min(SURE, 0.1 / chances.shape[1]))
        return cls(own, chances.max(axis=1), likeliest, single & other, paired & other, sure)

    @property
    def listed(self) -> NDArray[np.bool_]:
        """The images with any of the three, (N,) bool: what is counted as suspects, and listed."""
        return self.single | self.paired | self.sure

    @property
    def order(self) -> Ints:
        """The listed images, the least probable label first."""
        some = np.flatnonzero(self.listed)
        return some[np.argsort(self.own[some], kind="stable")]


def _cleanlab() -> Any:
    """Its search for wrong labels.

    Raises:
        ImportError: If cleanlab is not installed.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError as error:
        raise ImportError(
            "audit 'label_suspects' needs cleanlab, which is not installed; pip install cleanlab, or leave the "
            "audit out."
        ) from error
    return find_label_issues


def _by_cleanlab(chances: Floats, labels: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    find_label_issues = _cleanlab()
    if len(np.unique(labels)) < 2:
        none = np.zeros(len(labels), dtype=bool)
        return none, none
    kept, numbered = np.unique(labels, return_inverse=True)  # cleanlab wants every class to occur
    own = chances[:, kept] / chances[:, kept].sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes in which it keeps some labels whatever they are
        single, paired = (
            np.asarray(find_label_issues(numbered, own, filter_by=rule, n_jobs=1), dtype=bool)
            for rule in ("low_self_confidence", "confident_learning")
        )
    return single, paired


def pair_shares(found: Doubts, labels: Ints, classes: int) -> Floats:
    """Of the images of each class the share that looks like each other one, (C, C)."""
    counts = np.zeros((classes, classes))
    some = found.paired
    np.add.at(counts, (labels[some], found.likeliest[some]), 1)
    return counts / np.maximum(np.bincount(labels, minlength=classes), 1)[:, None]


def probabilities(
    images: Tensor,
    labels: Ints,
    classes: int,
    seed: int,
    on_progress: Callable[[int, int], object] | None = None,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Probabilities of each image from the others' labels, and which labels there are others enough for.

    Images are (N, C, H, W), on the CPU, labels (N,). `seed` decides which images share a block, and patches;
    `on_progress` is called after each block with how many of how many are done.

    Shapes:
        returns (N, C) float64 and (N,) bool.

    >>> images = torch.cat([torch.zeros(20, 1, 8, 8), torch.ones(20, 1, 8, 8)]) + 0.01 * torch.rand(40, 1, 8, 8)
    >>> labels = np.repeat([0, 1], 20)
    >>> labels[0] = 1  # a wrong one
    >>> chances, _ = probabilities(images, labels, 2, seed=0)
    >>> bool(chances[0, 1] < 0.1 and (chances[1:20, 0] > 0.9).all())
    True
    """
    images = _averaged(images)
    one, copy_of = _without_copies(images, labels)
    images, labels = images[torch.from_numpy(one)], labels[one]
    filters = patch_filters(images, seed)
    scores = np.zeros((len(labels), classes))
    judged = np.zeros(len(labels), dtype=bool)
    blocks = _blocks(labels, seed)
    for done, rows in enumerate(blocks, start=1):
        features = patch_features(images[torch.from_numpy(rows)], filters)
        scores[rows] = left_out_scores(features, labels[rows], classes)
        judged[rows] = np.bincount(labels[rows], minlength=classes)[labels[rows]] >= FEW
        if on_progress is not None:
            on_progress(done, len(blocks))
    temperature = fitted_temperature(torch.from_numpy(scores), torch.from_numpy(labels))
    return np.asarray(softmax(scores / temperature, axis=1))[copy_of], judged[copy_of]


def _without_copies(images: Tensor, labels: Ints) -> tuple[Ints, Ints]:
    """The first of each image with each label, and to which of these every image belongs.

    A copy with the same wrong label would confirm it.
    """
    first: dict[tuple[bytes, int], int] = {}
    rows: list[int] = []
    belongs: list[int] = []
    for row, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        key = hashlib.sha256(image.contiguous().numpy().tobytes()).digest(), label
        if key not in first:
            first[key] = len(rows)
            rows.append(row)
        belongs.append(first[key])
    return np.array(rows), np.array(belongs)


def _blocks(labels: Ints, seed: int) -> list[Ints]:
    """Rows in blocks of about `BLOCK`, every class spread over all of them, or over as many as get `FEW` of it each."""
    order = torch.randperm(len(labels), generator=generator(seed, "audits", "label blocks")).numpy()
    dealt = order[np.argsort(labels[order], kind="stable")]
    count = -(-len(labels) // BLOCK)
    _, first, number, size = np.unique(
        labels[dealt], return_index=True, return_inverse=True, return_counts=True
    )
    place = np.arange(len(dealt)) - first[number]  # in its class
    spread = np.clip(size // FEW, 1, count)[number]
    block = (first[number] + place % spread) % count
    return [np.sort(dealt[block == one]) for one in range(count)]


def left_out_scores(features: NDArray[np.float32], labels: Ints, classes: int) -> Floats:
    """What kernel ridge regression says of each row when it is left out, (n, C), close to one-hot where it is sure.

    f_i = y_i - a_i / g_i,    A = (K + 0.1 I)^-1 Y,    g = diag((K + 0.1 I)^-1),    K_ij = exp(-|x_i - x_j|^2 / median)

    Source: Rifkin and Lippert, *Notes on Regularized Least Squares* (2007), the section on leaving one out.

    Features are (n, D), labels (n,).
    """
    centred = features - features.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * centred @ centred.T, 0)
    middle = float(np.median(distances[:: max(1, len(labels) // 500)]))
    kernel = np.exp(-distances / (middle if middle > 0 else 1)).astype(np.float64)
    base = 1 / classes
    targets = np.eye(classes)[labels] - base
    kernel[np.diag_indices_from(kernel)] += RIDGE
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(kernel))).numpy()
    left_out: Floats = targets - (inverse @ targets) / np.diag(inverse)[:, None] + base
    return left_out


Filters = tuple[Tensor, Tensor]


def patch_features(images: Tensor, filters: Filters | None) -> NDArray[np.float32]:
    """Averages of the responses to filters, both signs with a dead zone; without filters the pixels.

    Source: Coates, Lee and Ng (2011), with patches drawn rather than learned.

    Images are (n, C, H, W); `patch_filters` makes the filters.

    Shapes:
        returns (n, 8192) float32, or (n, C H W).
    """
    if filters is None:
        return np.asarray(images.flatten(1).numpy())
    weights, offset = filters
    size = [(side - PATCH) // STRIDE + 1 for side in images.shape[2:]]
    found = []
    for part in images.split(64):
        seen = _standardised(unfold(part, PATCH, stride=STRIDE))
        response = (weights.T @ seen - offset[:, None]).unflatten(2, size)
        both = torch.cat([relu(response - DEAD_ZONE), relu(-response - DEAD_ZONE)], dim=1)
        found.append(adaptive_avg_pool2d(both, GRID).flatten(1).sqrt())
    return np.asarray(torch.cat(found).numpy())


def patch_filters(images: Tensor, seed: int) -> Filters | None:
    """Weights (D, K) and offsets (K,) that give the responses to random whitened patches of unit length.

    Images are (N, C, H, W); None for those with a side below 16 pixels. `seed` decides which patches.
    """
    if min(images.shape[2:]) < SMALL:
        return None
    stream = generator(seed, "audits", "label patches")
    rows = torch.randint(len(images), (DRAWN,), generator=stream)
    top, left = (torch.randint(side - PATCH + 1, (DRAWN,), generator=stream) for side in images.shape[2:])
    windows = images.unfold(2, PATCH, 1).unfold(3, PATCH, 1)
    patches = _standardised(windows[rows, :, top, left].flatten(1))
    mean = patches.mean(dim=0)
    values, vectors = torch.linalg.eigh((patches - mean).T @ (patches - mean) / DRAWN)
    whitening = vectors @ torch.diag((values.clamp(min=0) + WHITENING).rsqrt()) @ vectors.T
    white = (patches - mean) @ whitening
    length = white.norm(dim=1)
    lively = white[length >= length.median() / 2]
    chosen = lively[torch.randperm(len(lively), generator=stream)[:FILTERS]]
    chosen = chosen / chosen.norm(dim=1, keepdim=True).clamp(min=1e-6)
    weights = whitening @ chosen.T
    return weights, mean @ weights


def _standardised(patches: Tensor) -> Tensor:
    centred = patches - patches.mean(dim=1, keepdim=True)
    return centred / (centred.square().mean(dim=1, keepdim=True) + FLOOR).sqrt()


def _averaged(images: Tensor) -> Tensor:
    """Images with no side above 32 pixels, by averages over rectangles."""
    height, width = (min(SIDE, side) for side in images.shape[2:])
    return images if max(images.shape[2:]) <= SIDE else adaptive_avg_pool2d(images, (height, width))


def _read(data: ImageSet, rows: Tensor) -> Tensor:
    """Images at `rows` on the CPU, large ones averaged, a batch at a time."""
    return torch.cat([_averaged(data.batch(part)[0].cpu()) for part in rows.split(256)])
