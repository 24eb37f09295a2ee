"""The interactive page of a dataset's classes, or of the features of a trained network."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from clearance._checks import check_choice, check_count
from clearance.audits._audit import check_comparable
from clearance.data import ImageSet
from clearance.experiments.datasets import load_dataset
from clearance.experiments.provenance import report_with
from clearance.experiments.run import RunFindings
from clearance.experiments.saved import load_run
from clearance.explore import scene_of
from clearance.explore.exhibits import pair_exhibits, pair_records
from clearance.explore.machines import Machines
from clearance.explore.scene import Scene
from clearance.models import Classifier, extract_features
from clearance.models._running import evaluating
from clearance.records import Report

ALL = "all"
ROWS = 4096  # of features at a time
PER_CLASS = 3000  # Tanay and Griffin (2018): the first 3000 training images of each digit
USUAL = {
    "digits": ("3", "8"),
    "mnist": ("2", "3"),
}  # a pair that is hard to separate; for other datasets the first two
FEATURE_UNIT = (
    "Distances are in units of the spread of the network's features: 1 is how far, in the root mean square, those of a "
    "training image are from their mean. Features were rounded to 256 levels before the machines were fitted."
)


def explored_dataset(
    name: str = "digits",
    classes: Sequence[str] = (),
    *,
    root: str | Path | None = None,
    size: int | None = None,
    per_class: int = PER_CLASS,
) -> Scene:
    """The scene of a dataset's images.

    Args:
        name: As for :func:`clearance.load_dataset`.
        classes: Two names, or ``("all",)`` for every pair; by default a pair that is hard to separate.
        root: The folder that holds the dataset's files.
        size: For image folders.
        per_class: At most this many training images, and this many test images, of each class, the first ones; all
            classes have as many training images as the smallest.

    Raises:
        ValueError: If a class is unknown, or one or more than two are named.

    >>> scene = explored_dataset("digits", ("3", "8"))
    >>> [(one.name, len(one.train), len(one.test)) for one in scene.classes]
    [('3', 126, 51), ('8', 126, 48)]
    """
    check_count("per_class", per_class, minimum=2)
    train = load_dataset(name, "train", root, size)
    chosen = chosen_classes(train.classes, classes or USUAL.get(name, train.classes[:2]))
    test = load_dataset(name, "test", root, size)
    check_comparable(train, test)
    most = balanced_count(train, chosen, per_class)
    parts = [
        _of_classes(train, train.images, chosen, most),
        _of_classes(test, test.images, chosen, per_class),
    ]
    names = [train.classes[index] for index in chosen]
    return scene_of(parts[0], parts[1], names, name=train.name, shape=train.shape)


def explored_run(
    run_dir: str | Path,
    classes: Sequence[str] = (),
    *,
    root: str | Path | None = None,
    per_class: int = PER_CLASS,
) -> Scene:
    """The scene of a trained network's features, the input of its last layer (of an MLP head the last hidden layer).

    Args:
        run_dir: The directory of a finished run.
        classes: As in :func:`explored_dataset`.
        root: The folder that holds the dataset's files, if it has moved.
        per_class: At most this many training images, and this many test images, of each class, the first ones.

    Features are divided by their spread over the training images, so that no number depends on their scale.

    Raises:
        FileNotFoundError: If the directory holds no finished run.
        ValueError: If a class is unknown, one or more than two are named, or all features are equal.
    """
    check_count("per_class", per_class, minimum=2)
    run = load_run(run_dir)
    data = run.data(None if root is None else str(root))
    known = data.train.classes
    chosen = chosen_classes(known, classes or USUAL.get(run.recipe.dataset, known[:2]))
    features = [_before_last_layer(run.model, part).double() for part in (data.train, data.test)]
    spread = float((features[0] - features[0].mean(dim=0)).square().sum(dim=1).mean().sqrt())
    if spread == 0:
        raise ValueError(
            "the features of all training images are equal, because the network collapsed. Use another run."
        )
    most = balanced_count(data.train, chosen, per_class)
    parts = [
        _of_classes(part, found / spread, chosen, count)
        for part, found, count in zip((data.train, data.test), features, (most, per_class), strict=True)
    ]
    name = f"{data.train.name}, features of {run.method}, seed {run.seed}"
    return scene_of(parts[0], parts[1], [known[index] for index in chosen], name=name, unit=FEATURE_UNIT)


def _before_last_layer(model: Classifier, data: ImageSet) -> Tensor:
    """The input of the head's last layer, (N, D)."""
    found = extract_features(model, data)
    if not isinstance(model.head, nn.Sequential) or len(model.head) < 2:
        return found
    inner = nn.Sequential(*list(model.head)[:-1])
    with evaluating(inner):
        return torch.cat([inner(part) for part in found.split(ROWS)])


def explored_report(scene: Scene, machines: Machines, command: str) -> Report:
    """The page's numbers of one pair as a report, for print and for other programs."""
    records, exhibits = pair_records(scene, machines), pair_exhibits(scene, machines)
    size = len(scene.classes[machines.first].train)
    settings = {"dataset": scene.name, "per_class": size, "compared": "machine"}
    return report_with(settings, [RunFindings(None, tuple(records), tuple(exhibits))], command)


def chosen_classes(known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The numbers of the classes wanted, two or all, in the order of the dataset.

    Raises:
        ValueError: If a name is unknown (the nearest is offered), one or more than two are named, or one twice.

    >>> chosen_classes(("ape", "bee", "cat"), ("cat", "ape"))
    [0, 2]
    """
    if list(wanted) == [ALL]:
        return list(range(len(known)))
    for name in wanted:
        check_choice("class", name, known)
    if len(wanted) != 2 or wanted[0] == wanted[1]:
        raise ValueError(
            f"`classes` must name two different classes, or be {ALL!r} for every pair; got {', '.join(wanted)!r}."
        )
    return sorted(known.index(name) for name in wanted)


def balanced_count(train: ImageSet, chosen: Sequence[int], per_class: int) -> int:
    """The number of training images of each chosen class: that of the smallest class, at most `per_class`.

    With classes of unequal size, strong regularisation would move the boundary outside both, because then only the
    bias lowers the loss.

    Raises:
        ValueError: If a chosen class has no training image.

    >>> from clearance.data import gaussian_images
    >>> balanced_count(gaussian_images(class_count=3, per_class=5), (0, 2), 3000)
    5
    """
    counts = [int((train.labels == index).sum()) for index in chosen]
    if not all(counts):
        missing = train.classes[chosen[counts.index(0)]]
        raise ValueError(f"every class needs training samples; got none of {missing!r}; choose another.")
    return min(per_class, *counts)


def _of_classes(
    data: ImageSet, samples: Tensor, chosen: Sequence[int], per_class: int
) -> tuple[Tensor, Tensor]:
    """The first samples of each chosen class, and their numbers within the choice."""
    rows = [(data.labels == index).nonzero().flatten()[:per_class] for index in chosen]
    labels = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(part) for part in rows]))
    return samples[torch.cat(rows)].flatten(1).cpu(), labels
