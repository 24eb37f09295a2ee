"""The wrong images: which are shown, in which order, and what is said of each."""

import math

import pytest
import torch
from torch import nn

from clearance.audits import Mistakes
from clearance.data import ImageSet
from clearance.data.image_set import PictureFiles
from clearance.models import Classifier

CLASSES = ("ape", "bee", "cat")


def images_of(rows, files=True):
    """Images of three pixels (the logits / 20) with labels."""
    pixels = torch.tensor([row for row, _ in rows]).view(len(rows), 1, 1, 3)
    names = PictureFiles(tuple(f"a/{k}.png" for k in range(len(rows))), ((3, 1),) * len(rows))
    return ImageSet(
        pixels, torch.tensor([label for _, label in rows]), CLASSES, files=names if files else None
    )


def audited(rows, files=True, **settings):
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.copy_(20 * torch.eye(3))
        head.bias.zero_()
    model = Classifier(nn.Flatten(), head)
    data = images_of(rows, files)
    found = Mistakes(**settings)(model, data, data)
    return found.measurements[0], {exhibit.name: exhibit.columns for exhibit in found.exhibits}


ROWS = [
    ([1.0, 0.0, 0.0], 0),  # right
    ([0.6, 0.5, 0.0], 1),  # bee called ape, unsure
    ([0.0, 1.0, 0.0], 1),  # right
    ([1.0, 0.0, 0.0], 1),  # bee called ape, sure
    ([0.0, 0.9, 0.0], 0),  # ape called bee, sure
    ([0.2, 0.1, 0.0], 2),  # cat called ape, unsure
    ([0.0, 0.0, 1.0], 2),  # right
]


def test_the_most_confident_come_first_with_names_classes_and_confidence():
    share, shown = audited(ROWS)
    columns = shown["confident"]
    assert columns["file"] == ["a/3.png", "a/4.png", "a/1.png", "a/5.png"]
    assert list(zip(columns["given"], columns["predicted"], strict=True)) == [
        ("bee", "ape"), ("ape", "bee"), ("bee", "ape"), ("cat", "ape"),
    ]  # fmt: skip
    logits = [20 * torch.tensor(ROWS[k][0], dtype=torch.float64) for k in (3, 4, 1, 5)]
    assert columns["confidence"] == pytest.approx([float(each.softmax(0).max()) for each in logits], rel=1e-6)
    assert columns["image"][0] == [[[1.0, 0.0, 0.0]]]
    assert (share.value, share.n) == (0.5, 4)


def test_a_pair_has_the_errors_of_both_ways_and_one_error_is_no_pair():
    columns = audited(ROWS)[1]["pairs"]
    assert columns["pair"] == ["ape and bee"] * 3
    assert columns["file"] == ["a/3.png", "a/4.png", "a/1.png"]


def test_numbers_stand_where_no_files_have_names():
    assert audited(ROWS, files=False)[1]["confident"]["file"] == ["image 3", "image 4", "image 1", "image 5"]


def test_no_more_than_asked_for():
    shown = audited(ROWS, shown=2, of_a_pair=1)[1]
    assert len(shown["confident"]["file"]) == 2
    assert shown["pairs"]["file"] == ["a/3.png"]


def test_without_a_mistake_nothing_is_shown():
    share, shown = audited([row for row in ROWS if row[0].index(max(row[0])) == row[1]])
    assert (share.value, share.low, share.high, shown) == (0.0, 0.0, 1.0, {})


def test_logits_that_are_not_finite_are_confident_and_wrong():
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.fill_(math.nan)
    model = Classifier(nn.Flatten(), head)
    data = images_of(ROWS)
    (share,) = (found := Mistakes()(model, data, data)).measurements
    assert (share.value, share.n) == (1.0, len(ROWS))
    (exhibit,) = found.exhibits
    assert set(exhibit.columns["predicted"]) == {"no finite logits"}
