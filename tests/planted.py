"""Sets of photographs with planted defects, and networks that were trained on them."""

import functools
import io
import tempfile
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from clearance.data import ImageSet, Preprocessing, open_images
from clearance.models import Classifier, wrap

FLIPS, PAIR, LEAK, INPUT = "wrong labels", "misfiled class", "leaked images", "wrong normalisation"
DEFECTS = (FLIPS, PAIR, LEAK, INPUT)
WRONG, MISFILED, LEAKED = 0.05, 0.4, 30
SIDE, EPOCHS, BATCH = 32, 12, 64


@dataclass(frozen=True)
class Planted:
    """Two sets, a network trained on the first, and what is wrong.

    Args:
        train: Its labels are those that the network learned.
        test: Held out, but for the leaked images.
        model: As the user wraps it.
        wrong: Whether each training label is wrong, (N,) bool.
        pair: The class that is filed in part as the other, and that other.
    """

    train: ImageSet
    test: ImageSet
    model: Classifier
    wrong: torch.Tensor
    pair: tuple[str, str]


@functools.cache
def photographs(root):
    """All of them."""
    archive = root / "sign-language-digits.zip"
    if not archive.is_file():
        pytest.skip(f"no real data: {archive.name} is not in CLEARANCE_DATA")
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(archive).extractall(folder)
        found = open_images(f"folder:{folder}/sign-language-digits", Preprocessing(size=SIDE), cache=folder)
        return found.in_memory()


@functools.cache
def planted(root, defects, seed):
    """The sets and the network with these defects; all that is drawn depends on the seed alone.

    Args:
        root: The folder of real data.
        defects: A tuple of some of `DEFECTS`.
        seed: Decides the split, the defects and the training.
    """
    right, test = photographs(root).split(0.2, seed)
    given, network, pair = _learned(root, tuple(one for one in defects if one in (FLIPS, PAIR)), seed)
    if LEAK in defects:
        test = _with_leaks(right, test, np.random.default_rng((seed, 1)))
    mean, std = (0.0, 1.0) if INPUT in defects else (0.5, 0.25)
    model = wrap(network, example=test.images[:4], mean=mean, std=std)
    return Planted(given, test, model, given.labels != right.labels, pair)


@functools.cache
def _learned(root, defects, seed):
    """Training images with wrong labels of these kinds, the network that learned them, and the misfiled pair."""
    train, _ = photographs(root).split(0.2, seed)
    stream = np.random.default_rng(seed)
    labels = train.labels.numpy().copy()
    first, second = stream.choice(train.class_count, 2, replace=False)
    of_first = np.flatnonzero(labels == first)
    misfiled = stream.choice(of_first, round(MISFILED * len(of_first)), replace=False)
    flipped = stream.choice(len(labels), round(WRONG * len(labels)), replace=False)
    others = stream.integers(1, train.class_count, len(flipped))
    if PAIR in defects:
        labels[misfiled] = second
    if FLIPS in defects:
        labels[flipped] = (labels[flipped] + others) % train.class_count
    given = ImageSet(train.images, torch.from_numpy(labels), train.classes, train.name)
    return given, _trained(given, seed), (train.classes[first], train.classes[second])


def _with_leaks(train, test, stream):
    """Test with some training images in place of its own, half of them saved as JPEG again, with their right labels."""
    into = torch.from_numpy(stream.choice(len(test), LEAKED, replace=False))
    of = torch.from_numpy(stream.choice(len(train), LEAKED, replace=False))
    images, labels = test.images.clone(), test.labels.clone()
    images[into], labels[into] = train.images[of], train.labels[of]
    for place in into[: LEAKED // 2].tolist():
        images[place] = _saved_again(images[place])
    return ImageSet(images, labels, test.classes, test.name)


def _saved_again(image):
    file = io.BytesIO()
    Image.fromarray((255 * image).round().byte().permute(1, 2, 0).numpy()).save(file, "JPEG", quality=85)
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1).float() / 255


def _trained(data, seed):
    """A small convolutional network, trained by code that knows nothing of Clearance."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, data.class_count))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
        steps = EPOCHS * -(-len(data) // BATCH)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        images = (data.images - 0.5) / 0.25
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(data)).split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images[rows]), data.labels[rows]).backward()
                optimizer.step()
                schedule.step()
    return network.eval()
