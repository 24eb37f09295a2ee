"""Pairs of classes: counted by hand."""

import itertools

import pytest
import torch
from torch import nn

from clearance.audits import Confusions
from clearance.audits.confusions import pair_errors
from clearance.data import ImageSet
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")


def placed(means: list[float], spread: float = 0.01) -> ImageSet:
    """Images of one pixel: two of each class, `spread` to both sides of its mean."""
    pixels = torch.tensor([m + side * spread for m in means for side in (-1, 1)])
    labels = torch.arange(len(means)).repeat_interleave(2)
    return ImageSet(pixels[:, None, None, None], labels, tuple("abcd"[: len(means)]))


class Answers(nn.Module):
    """A head that answers by thresholds on the one feature."""

    def __init__(self, thresholds: list[float]) -> None:
        super().__init__()
        self.thresholds = torch.tensor(thresholds)
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, features):
        answer = (features > self.thresholds).sum(dim=1)
        return nn.functional.one_hot(answer, len(self.thresholds) + 1).float() + 0 * self.unused


def found(images: ImageSet, thresholds: list[float]):
    findings = Confusions()(Classifier(nn.Flatten(), Answers(thresholds)), images, images)
    return {m.name: m for m in findings.measurements}, findings.exhibits[0].columns


def test_errors_are_counted_by_pair_both_ways():
    generator = torch.Generator().manual_seed(0)
    answers = torch.randint(-1, 4, (200,), generator=generator)
    labels = torch.randint(0, 4, (200,), generator=generator)
    counted, others = pair_errors(answers, labels, 4)
    by_hand = [
        sum({int(a), int(b)} == {i, j} for a, b in zip(answers, labels, strict=True))
        for i, j in itertools.combinations(range(4), 2)
    ]
    assert counted.tolist() == by_hand
    assert others == {"unanswered": int((answers < 0).sum())}


def test_the_worst_pair_is_named_with_its_share():
    numbers, named = found(placed([0.1, 0.2, 0.5]), [0.15, 0.505])  # the second threshold lies inside c
    assert named["pair"] == ["b and c", "a and b", "a and c"]
    assert named["errors"] == [1, 0, 0]
    assert numbers["worst_share"].value == 1.0


def test_without_errors_the_share_is_nothing():
    numbers, named = found(placed([0.1, 0.2, 0.5]), [0.15, 0.35])
    assert numbers["worst_share"].value == 0.0
    assert (numbers["worst_share"].low, numbers["worst_share"].high) == (0.0, 1.0)
    assert named["errors"] == [0, 0, 0]


def test_two_classes_are_one_pair():
    numbers, _ = found(placed([0.2, 0.6]), [0.61])
    assert numbers["worst_share"].value == 1.0


def test_at_most_so_many_pairs_are_named():
    images = placed([0.1, 0.2, 0.5])
    model = Classifier(nn.Flatten(), Answers([0.15, 0.35]))
    findings = Confusions(shown=2)(model, images, images)
    assert len(findings.exhibits[0].columns["pair"]) == 2
    with pytest.raises(ValueError, match="`shown`"):
        Confusions(shown=0)


def test_answers_beyond_the_classes_are_a_category_of_their_own():
    counted, others = pair_errors(torch.tensor([3, 3]), torch.tensor([0, 0]), 3)
    assert counted.tolist() == [0, 0, 0]
    assert others == {"outside": 2}


def test_a_network_with_more_outputs_than_classes_blames_no_pair_for_them():
    images = placed([0.1, 0.2, 0.5])
    numbers, named = found(images, [0.15, 0.35, 0.4])  # every c is given the fourth output
    assert numbers["worst_share"].value == 0.0
    assert numbers["outside_share"].value == 1.0
    assert numbers["outside_share"].n == 2
    assert named["pair"][-1] == "an output beyond the classes"
    assert named["errors"] == [0, 0, 0, 2]


def test_images_without_finite_logits_are_errors_of_no_pair_with_their_own_share():
    class Broken(Answers):
        def forward(self, features):
            return torch.where(features > 0.4, torch.nan, super().forward(features))

    images = placed([0.1, 0.2, 0.5])
    findings = Confusions()(Classifier(nn.Flatten(), Broken([0.105, 0.35])), images, images)
    numbers = {m.name: m.value for m in findings.measurements}
    assert numbers["worst_share"] == pytest.approx(1 / 3)
    assert numbers["unanswered_share"] == pytest.approx(2 / 3)
    assert findings.exhibits[0].columns["errors"][-1] == 2
