"""A threshold on the distance to training features, against slow counting and worlds whose answer is known."""

import numpy as np
import pytest
import torch
from torch import nn

from audit_cases import Times
from audits.draws import first_half
from clearance.audits import OutOfDistribution, Subject
from clearance.audits.out_of_distribution import USUAL
from clearance.data import ImageSet
from clearance.models import Classifier

PLAIN = Classifier(nn.Flatten(), nn.Linear(4, 2))  # features are the four pixels


def directions(centre, count, spread, seed, classes=2, name="world"):
    """Images of four pixels about one direction."""
    noise = spread * torch.rand(count, 4, generator=torch.Generator().manual_seed(seed))
    images = (torch.tensor(centre) + noise).clamp(0, 1).view(count, 1, 2, 2)
    return ImageSet(images, torch.arange(count) % classes, tuple(map(str, range(classes))), name)


TRAIN = directions([0.8, 0.8, 0.0, 0.0], 60, 0.2, 0)
TEST = directions([0.8, 0.8, 0.0, 0.0], 200, 0.2, 1)
AWAY = directions([0.0, 0.0, 0.8, 0.8], 50, 0.2, 2, name="away")
ALIKE = directions([0.8, 0.8, 0.0, 0.0], 400, 0.2, 3, name="alike")


def found(other, model=PLAIN, **settings):
    audit = OutOfDistribution(other=other, **settings)
    return {m.name: m for m in audit(model, TRAIN, TEST).measurements}


def test_what_lies_elsewhere_is_rejected_and_what_is_alike_is_not():
    away, alike = found(AWAY), found(ALIKE)
    assert (away["rejected"].value, away["auroc"].value) == (1.0, 1.0)
    assert alike["rejected"].value < 0.12  # 5 %, but for the luck of a threshold from 100 images
    assert abs(alike["auroc"].value - 0.5) < 0.08
    assert away["kept"].value == alike["kept"].value > 0.88


def test_the_numbers_are_those_of_a_slow_count():
    """Score, threshold and shares again, in numpy, one image after the other."""
    mixed = ImageSet(
        torch.cat([AWAY.images[:20], ALIKE.images[:30]]), torch.arange(50) % 2, ("a", "b"), "mixed"
    )
    subject = Subject(PLAIN, TRAIN, TEST)
    half = first_half(TEST.labels, 0).numpy()

    def unit(images):
        flat = images.flatten(1).double().numpy()
        return flat / np.linalg.norm(flat, axis=1, keepdims=True)

    known = unit(TRAIN.images)

    def score(images):
        return np.array([-np.sort(0.5 * ((known - row) ** 2).sum(1))[4] for row in unit(images)])

    seen, unknown = score(TEST.images), score(mixed.images)
    ordered = np.sort(seen[half])
    limit = ordered[int(0.05 * (len(ordered) + 1)) - 1]
    measured = {m.name: m for m in OutOfDistribution(other=mixed).examine(subject).measurements}
    assert measured["rejected"].value == pytest.approx((unknown < limit).mean())
    assert measured["kept"].value == pytest.approx((seen[~half] >= limit).mean())
    pairs = (unknown[:, None] < seen[~half][None]).mean()
    assert measured["auroc"].value == pytest.approx(pairs, abs=1e-9)


def test_neither_logits_nor_the_head_nor_the_unit_of_features_count():
    """x50 logits, another head, and features x 1000 leave every number of features as it is."""

    def of_features(*given):
        return {name: m.value for name, m in found(*given).items() if name not in USUAL}

    expected = of_features(ALIKE)
    loud = nn.Linear(4, 2)
    with torch.no_grad():
        loud.weight.mul_(50)
    for model in (
        Classifier(nn.Flatten(), loud),
        Classifier(nn.Sequential(nn.Flatten(), Times(1000.0)), nn.Linear(4, 2)),
    ):
        assert of_features(ALIKE, model) == pytest.approx(expected, abs=1e-3)


def test_the_usual_scores_stand_beside_it():
    """Of two classes and logits (x, -x), the probability and the energy order images by |x|."""
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
        head.bias.zero_()
    values = {name: m.value for name, m in found(ALIKE, Classifier(nn.Flatten(), head)).items()}
    assert values["auroc_softmax"] == pytest.approx(values["auroc_energy"], abs=1e-9)


def test_labels_of_unknown_images_are_not_read():
    """Nor is the draw of a few of them class-balanced."""
    relabelled = ImageSet(ALIKE.images, (torch.arange(400) > 300).long(), ("x", "y"), "alike")
    expected = found(ALIKE.unlabelled(), images=150)
    assert found(relabelled, images=150) == found(ALIKE, images=150) == expected
    assert expected["rejected"].n == 150


def test_no_more_images_than_asked_for():
    assert found(ALIKE, images=30)["rejected"].n == 30


def test_the_curve_passes_through_all_and_nothing():
    (curve,) = OutOfDistribution(other=AWAY)(PLAIN, TRAIN, TEST).exhibits
    kept, rejected = curve.columns.values()
    assert (kept[0], kept[-1]) == (0.5, 1.0)
    assert rejected == [1.0] * len(kept)  # all of them lie beyond every test image


def test_without_unknown_images_there_is_no_number():
    assert OutOfDistribution()(PLAIN, TRAIN, TEST).measurements == ()


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="at least 19 images for a threshold that keeps 95 %"):
        OutOfDistribution(other=AWAY)(PLAIN, TRAIN, TEST.subset(torch.arange(36)))
    with pytest.raises(ValueError, match=r"images of shape \(1, 2, 2\).*got \(1, 3, 3\)"):
        OutOfDistribution(other=ImageSet(torch.rand(4, 1, 3, 3), torch.arange(4) % 2, ("a", "b")))(
            PLAIN, TRAIN, TEST
        )
    with pytest.raises(ValueError, match="must be images by now; got the name 'mnist'"):
        OutOfDistribution(other="mnist")(PLAIN, TRAIN, TEST)
    with pytest.raises(ValueError, match="`neighbours` must be a whole number"):
        OutOfDistribution(neighbours=0)
