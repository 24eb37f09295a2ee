"""How many planted wrong labels the audit `label_suspects` lists, and how many of the listed ones are wrong.

    python benchmarks/label_suspects.py --root DATA                      # all three sets, five seeds
    python benchmarks/label_suspects.py --root DATA --sets mnist --seeds 1

DATA holds `mnist/` and `fashion-mnist/` as for `--root`, and `sign-language-digits.zip`, an image folder. Of each set
5,000 training images (all photographs but a fifth) and 1,000 test images (the last fifth) are drawn by the seed. Two
defects are planted in the training labels, one at a time: 5 % become another class at random, or 40 % of one
class is filed as one other class. A convolutional network learns the wrong labels for 60 epochs.

Printed for each: precision at recall 0.7 along the list, precision and recall of the whole list, and for misfiled
classes whether the worst pair is the planted one. "audit" is the audit, whose scores do not read the network. The
others are the same rule on probabilities of a last layer that is cross-fitted on features of the network, after 5
and after 60 epochs: the features have seen the labels. Seeds are 0 to 4; the scorer was chosen on others.
"""

import argparse
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler
from torch import nn

import clearance as cl
from clearance.audits.label_suspects import Doubts, pair_shares, probabilities
from clearance.data import ImageSet, Preprocessing, open_images

SETS = ("mnist", "fashion-mnist", "photographs")
TRAIN, TEST, WRONG, MISFILED, RECALL = 5000, 1000, 0.05, 0.4, 0.7
EPOCHS, BATCH = (5, 60), 64
Labels = NDArray[np.int64]


def drawn(name: str, root: Path, seed: int) -> tuple[ImageSet, ImageSet]:
    """Training and test images of one seed."""
    if name != "photographs":
        stream = torch.Generator().manual_seed(seed)
        parts = [(cl.load_dataset(name, split, root), n) for split, n in (("train", TRAIN), ("test", TEST))]
        train, test = (data.subset(torch.randperm(len(data), generator=stream)[:n]) for data, n in parts)
        return train, test
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(root / "sign-language-digits.zip").extractall(folder)
        found = open_images(f"folder:{folder}/sign-language-digits", Preprocessing(size=32), cache=folder)
        return found.in_memory().split(0.2, seed)


def planted(right: Labels, classes: int, kind: str, seed: int) -> tuple[Labels, tuple[int, int]]:
    """Labels with one kind of defect, and the class that is misfiled with the one that it is filed as."""
    stream = np.random.default_rng((seed, 29))
    labels = right.copy()
    first, second = (int(k) for k in stream.choice(classes, 2, replace=False))
    if kind == "misfiled":
        members = np.flatnonzero(right == first)
        labels[stream.choice(members, round(MISFILED * len(members)), replace=False)] = second
    else:
        rows = stream.choice(len(right), round(WRONG * len(right)), replace=False)
        labels[rows] = (labels[rows] + stream.integers(1, classes, len(rows))) % classes
    return labels, (first, second)


def network(data: ImageSet) -> nn.Sequential:
    """Three convolutions with batch normalisation, and a linear layer."""
    layers: list[nn.Module] = []
    for before, after in ((data.shape[0], 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    side = data.shape[1] // 8
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * side * side, data.class_count))


def features_after(data: ImageSet, seed: int) -> dict[int, NDArray[np.float64]]:
    """Features of the training images after each number of epochs of one training."""
    torch.manual_seed(seed)
    net = network(data)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    images = (data.images - 0.5) / 0.25
    found = {}
    for epoch in range(1, EPOCHS[-1] + 1):
        net.train()
        for rows in torch.randperm(len(data)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), data.labels[rows]).backward()
            optimizer.step()
        if epoch in EPOCHS:
            net.eval()
            with torch.no_grad():
                parts = [net[:-1](part) for part in images.split(500)]
            found[epoch] = torch.cat(parts).double().numpy()
    return found


def cross_fitted(features: NDArray[np.float64], labels: Labels) -> NDArray[np.float64]:
    """Probabilities of each image by a last layer that was fitted without its fold."""
    scaled = StandardScaler().fit_transform(features)
    found = cross_val_predict(
        LogisticRegression(C=0.01, max_iter=200), scaled, labels, cv=5, method="predict_proba"
    )
    return np.asarray(found)


def judged(doubts: Doubts, labels: Labels, right: Labels, classes: int, pair: tuple[int, int]) -> str:
    """Precision at the asked recall, that of the whole list, its recall, and whether the planted pair is named."""
    wrong = labels != right
    order = doubts.order[
        doubts.order < len(right)
    ]  # the list is of both sets; the planted labels are in train
    hits = np.cumsum(wrong[order])
    needed = int(np.ceil(RECALL * wrong.sum()))
    at = f"{needed / (np.searchsorted(hits, needed) + 1):.2f}" if len(hits) and hits[-1] >= needed else "none"
    found = int(hits[-1]) if len(hits) else 0
    shares = pair_shares(doubts, labels, classes)
    worst = divmod(int(shares.argmax()), classes)
    named = "yes" if set(worst) == set(pair) else "no"
    return f"{at:>6}  {found / max(1, len(order)):5.2f}  {found / wrong.sum():5.2f}  {named:>5}"


def measure(name: str, root: Path, seed: int, *, rivals: bool) -> None:
    """One line for each defect and scorer."""
    train, test = drawn(name, root, seed)
    right, classes = train.labels.numpy(), train.class_count
    for kind in ("flips", "misfiled"):
        labels, pair = planted(right, classes, kind, seed)
        both = np.concatenate([labels, test.labels.numpy()])
        chances, asked = probabilities(torch.cat([train.images, test.images]), both, classes, seed)
        scored = {"audit": Doubts.of(chances, both, asked)}
        if rivals:
            given = ImageSet(train.images, torch.from_numpy(labels), train.classes)
            for epochs, features in features_after(given, seed).items():
                fitted = cross_fitted(features, labels)
                scored[f"features, {epochs}"] = Doubts.of(fitted, labels, np.ones(len(labels), dtype=bool))
        for scorer, doubts in scored.items():
            every = both if len(doubts.own) == len(both) else labels
            truth = np.concatenate([right, test.labels.numpy()])[: len(every)]
            shown = judged(doubts, every, truth, classes, pair)
            print(f"{name:14} {kind:9} {seed:4}  {scorer:13} {shown}", flush=True)


def main() -> None:
    """Measure every set and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--rivals", type=int, default=1, help="of how many seeds the networks are trained")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'set':14} {'defect':9} {'seed':>4}  {'scorer':13} {'p@0.7':>6}  {'p':>5}  {'r':>5}  {'pair':>5}")
    for name in options.sets:
        for place, seed in enumerate(options.seeds):
            measure(name, options.root, seed, rivals=place < options.rivals)


if __name__ == "__main__":
    main()
