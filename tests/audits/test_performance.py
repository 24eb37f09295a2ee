"""Precision, recall and accuracy of slices by scikit-learn and slow counting; intervals against Newcombe's table."""

import math

import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_score, recall_score
from torch import nn

from clearance.audits import Performance
from clearance.audits.performance import difference_interval
from clearance.data import ImageSet
from clearance.data.slices import Slices
from clearance.models import Classifier

CLASSES = ("ape", "bee", "cat")


def world(count=90, seed=0):
    """Images of three pixels, whose largest one a network answers, and labels that mostly agree."""
    stream = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.rand(count, 3, generator=stream)
    pixels[torch.arange(count), labels] += 0.3
    return ImageSet((pixels / 1.3).view(count, 1, 1, 3), labels, CLASSES)


def answering():
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.copy_(10 * torch.eye(3))
        head.bias.zero_()
    return Classifier(nn.Flatten(), head)


def found(data, **settings):
    findings = Performance(**settings)(answering(), data, data)
    numbers = {(m.name, m.context.get("class", m.context.get("slice"))): m for m in findings.measurements}
    return numbers, findings.exhibits


def test_precision_recall_and_matrix_are_those_of_scikit_learn():
    data = world()
    answers = data.images.flatten(1).argmax(dim=1)
    numbers, exhibits = found(data)
    recalls = recall_score(data.labels, answers, average=None)
    precisions = precision_score(data.labels, answers, average=None)
    for name, recall, precision in zip(CLASSES, recalls, precisions, strict=True):
        assert numbers["recall", name].value == pytest.approx(recall)
        assert numbers["precision", name].value == pytest.approx(precision)
        assert numbers["recall", name].n == 30
    matrix = torch.tensor(list(exhibits[0].columns.values())).T
    assert matrix.tolist() == confusion_matrix(data.labels, answers).tolist()


def test_behind_is_the_accuracy_of_the_others_that_are_known_less_that_of_these():
    data = world()
    right = (data.images.flatten(1).argmax(dim=1) == data.labels).double()
    sites = ["A" if k < 20 else "B" if k < 50 else None for k in range(90)]
    numbers, _ = found(data, slices=Slices("meta.csv", {"site": sites}))
    for name, rows in (("site=A", slice(0, 20)), ("site=B", slice(20, 50))):
        rest = torch.arange(90) < 50
        rest[rows] = False
        assert numbers["accuracy", name].value == pytest.approx(float(right[rows].mean()))
        assert numbers["behind", name].value == pytest.approx(float(right[rest].mean() - right[rows].mean()))


def test_a_slice_of_all_images_has_no_others():
    for sites in (["A"] * 90, ["A"] * 60 + [None] * 30):
        numbers, _ = found(world(), slices=Slices("meta.csv", {"site": sites}))
        assert ("accuracy", "site=A") in numbers
        assert ("behind", "site=A") not in numbers


def test_slices_of_another_number_of_images_are_refused():
    with pytest.raises(ValueError, match="a value for each of the 90 held-out images; got 3 in 'site'"):
        found(world(), slices=Slices("meta.csv", {"site": ["A", "B", "A"]}))


def test_numbers_of_single_images_give_the_number_of_their_group():
    data = world()
    numbers, exhibits = found(data, slices=Slices("meta.csv", {"site": ["A", "B"] * 45}))
    kept = [each for each in exhibits if each.kind == "per_image" and each.name != "answers"]
    assert len(kept) == 5
    for each in kept:
        group = each.context.get("class", each.context.get("slice"))
        values = each.columns["value"]
        assert sum(values) / len(values) == pytest.approx(numbers[each.name, group].value)


def test_answers_beyond_the_classes_have_their_own_column():
    data = world()
    head = nn.Linear(3, 5)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, 0, 0, 0, 1]))
    findings = Performance()(Classifier(nn.Flatten(), head), data, data)
    assert findings.exhibits[0].columns["no class"] == [30, 30, 30]
    assert not [m for m in findings.measurements if m.name == "precision"]


class TestInterval:
    @pytest.mark.parametrize(
        ("first", "second", "ends"),
        [  # Newcombe (1998), table II, method 10
            ((56, 70), (48, 80), (0.0524, 0.3339)),
            ((9, 10), (3, 10), (0.1705, 0.8090)),
            ((6, 7), (2, 7), (0.0582, 0.8062)),
            ((5, 56), (0, 29), (-0.0381, 0.1926)),
            ((0, 10), (0, 20), (-0.1611, 0.2775)),
            ((10, 10), (0, 20), (0.6791, 1.0)),
        ],
    )
    def test_published_examples(self, first, second, ends):
        assert difference_interval(first, second) == pytest.approx(ends, abs=5e-5)

    def test_it_covers_every_group_together(self):
        """Of ten alike groups of 50, all intervals hold 0 in at least 95 % of the worlds, but for luck."""
        stream = torch.Generator().manual_seed(0)
        worlds, hold = 400, 0
        for _ in range(worlds):
            hits = (torch.rand(10, 50, generator=stream) < 0.9).sum(dim=1).tolist()
            ends = [
                difference_interval((sum(hits) - one, 450), (one, 50), level=1 - 0.05 / 10) for one in hits
            ]
            hold += all(low <= 0 <= high for low, high in ends)
        assert hold / worlds > 0.95 - 2 * math.sqrt(0.05 * 0.95 / worlds)

    def test_a_higher_level_is_wider(self):
        narrow, wide = (difference_interval((40, 50), (30, 50), level) for level in (0.9, 0.99))
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_slices_of_other_images_are_not_taken_for_the_same():
    """As many images may have left a slice as entered it."""

    def which(site):
        exhibits = found(world(), slices=Slices("m.csv", {"site": site * 45}))[1]
        return next(one.context["images"] for one in exhibits if one.context.get("slice") == "site=A")

    assert which(["A", "B"]) == which(["A", "B"]) != which(["B", "A"])
