"""Ratios of spread within classes to distance between them, and the picture."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from clearance.audits import ClassScatter
from clearance.audits.class_scatter import PICTURED_IMAGES
from clearance.data import ImageSet, gaussian_images
from clearance.data.synthetic import GaussianClasses
from clearance.geometry import class_scatter, nc1, within_between_ratio
from clearance.geometry.scatter import class_distance_normalised_variances
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=4, shape=(1, 3, 3), separation=3.0, noise=0.05)


def pixels(features=9, classes=4):
    return Classifier(nn.Flatten(), nn.Linear(features, classes))


def ratios(findings, split="test"):
    return {m.name: m for m in findings.measurements if m.context["split"] == split}


def test_ratios_are_their_definitions_on_both_sets():
    sets = {"train": WORLD.images(11, seed=0), "test": WORLD.images(30, seed=1)}
    findings = ClassScatter()(pixels(), sets["train"], sets["test"])
    for split, data in sets.items():
        features = data.images.flatten(1).double(), data.labels, 4
        pairs = class_distance_normalised_variances(class_scatter(*features))
        within_between = within_between_ratio(class_scatter(*features))
        expected = {"within_between": within_between, "cdnv": float(pairs.mean()), "nc1": nc1(*features)}
        found = ratios(findings, split)
        assert {name: m.value for name, m in found.items()} == pytest.approx(expected, rel=1e-4)
        assert found["cdnv"].spread == pytest.approx(float(pairs.std()), rel=1e-4)
        assert found["cdnv"].n == 6
        assert found["nc1"].n == found["within_between"].n == len(data)


def test_two_classes_have_one_pair_and_no_spread():
    data = gaussian_images(class_count=2, per_class=9, shape=(1, 2, 2))
    found = ratios(ClassScatter()(pixels(4, 2), data, data))
    assert found["cdnv"].n == 1
    assert found["cdnv"].spread is None


def points(places, labels):
    """Images of two pixels at these places."""
    images = torch.tensor(places).view(-1, 1, 1, 2)
    return ImageSet(images, torch.tensor(labels), tuple("abc"[: max(labels) + 1]))


def test_points_have_ratio_0_and_two_classes_in_one_point_have_none():
    apart = points(
        [[0.0, 0.0], [0.0, 0.0], [0.5, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1, 2, 2]
    )
    findings = ClassScatter()(pixels(2, 3), apart, apart)
    assert {m.value for m in findings.measurements} == {0.0}
    merged = points(
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1, 2, 2]
    )
    found = ratios(ClassScatter()(pixels(2, 3), merged, merged))
    assert found["cdnv"].value == float("inf")
    assert found["cdnv"].spread is None


def test_the_picture_is_that_of_scikit_learn_up_to_sign():
    data = WORLD.images(20, seed=1)
    (picture,) = ClassScatter()(pixels(), WORLD.images(5, seed=0), data).exhibits
    assert picture.kind == "scatter"
    fitted = PCA(2, svd_solver="full").fit(data.images.flatten(1).double().numpy())
    expected = fitted.transform(data.images.flatten(1).double().numpy())
    # the sign that makes the largest entry of each axis positive
    largest = np.take_along_axis(fitted.components_, np.abs(fitted.components_).argmax(1)[:, None], 1)[:, 0]
    expected = expected * np.sign(largest)
    np.testing.assert_allclose(picture.columns["x"], expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(picture.columns["y"], expected[:, 1], atol=1e-5)
    assert picture.columns["label"] == [data.classes[k] for k in data.labels]


def test_the_picture_takes_a_part_of_many_images_from_every_class():
    data = WORLD.images(PICTURED_IMAGES, seed=1)
    (picture,) = ClassScatter()(pixels(), WORLD.images(5, seed=0), data).exhibits
    labels = picture.columns["label"]
    assert len(labels) == PICTURED_IMAGES
    assert {labels.count(name) for name in data.classes} <= set(range(100, 150))


def test_a_single_feature_is_drawn_on_a_line():
    data = points([[0.0, 0.0], [0.2, 0.0], [1.0, 0.0]], [0, 0, 1])
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(2, 1)), nn.Linear(1, 2))
    (picture,) = ClassScatter()(model, data, data).exhibits
    assert set(picture.columns["y"]) == {0.0}
    assert len(set(picture.columns["x"])) == 3
