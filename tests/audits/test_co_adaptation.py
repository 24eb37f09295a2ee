"""Fresh heads on frozen features, against slow loops, other libraries and exact worlds."""

import math
import statistics

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from torch import nn

from audits.draws import partial_sets, trained_alone
from audits.pixel_world import SEED, WORLD
from clearance.audits import CoAdaptation
from clearance.audits._heads import head_training
from clearance.audits.co_adaptation import Cloud
from clearance.data.synthetic import GaussianClasses
from clearance.heads import MLP, HeadStack
from clearance.models import Classifier
from clearance.models.features import extract_features, predictions
from clearance.research import generator
from data.bayes import bayes_error, log_posterior


def pixels():
    """A classifier whose features are the pixels, so that everything about them is known."""
    torch.manual_seed(0)
    return Classifier(nn.Flatten(), nn.Linear(16, 3), mean=0.5, std=0.05)


@pytest.fixture(scope="module")
def audit():
    return CoAdaptation(per_class=(1, 5), repetitions=(4, 3), hidden=(8, 7))


@pytest.fixture(scope="module")
def found(audit, train, held_out):
    """Measurements by (name, head, samples)."""
    return by_key(audit(pixels(), train, held_out, seed=SEED))


def by_key(findings):
    return {(m.name, m.context["head"], m.context["samples"]): m for m in findings.measurements}


def slow_errors(architecture, name, sets, train, held_out):
    """Test errors of heads on pixels, float64, in a unit computed here."""
    features = ((train.images - 0.5) / 0.05).flatten(1).double()
    queries = ((held_out.images - 0.5) / 0.05).flatten(1).double()
    unit = (features.square().sum() / features.numel()).sqrt() * (features.shape[1] / 128) ** 0.5
    first = HeadStack.initialised(
        architecture, len(sets.rows), generator(SEED, "fresh heads", name, sets.samples)
    )
    settings = head_training(sets.samples, 0.03)
    stream = generator(SEED, "head batches", name, sets.samples)
    order = [torch.arange(sets.samples)] * settings.steps if sets.samples <= 128 else []
    while len(order) < settings.steps:
        order += torch.randperm(sets.samples, generator=stream).split(128)
    errors = []
    for k, rows in enumerate(sets.rows):
        head = first[k].double().requires_grad_(requires_grad=True)
        trained_alone(head, features[rows] / unit, train.labels[rows], order[: settings.steps], settings.lr)
        errors.append(float((head(queries / unit).argmax(dim=1) != held_out.labels).double().mean()))
    return errors


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("name", ["retrained", "linear"])
def test_heads_are_those_of_a_loop_of_modules(found, train, held_out, audit, name, place):
    sets = partial_sets(train, audit.per_class, audit.repetitions, SEED)[place]
    architecture = MLP((16, 8, 7, 3)) if name == "retrained" else nn.Linear(16, 3)
    expected = slow_errors(architecture, name, sets, train, held_out)
    measured = found["error", name, sets.samples]
    assert measured.n == len(expected)
    # float32 against float64: at most one image on the edge of a boundary
    assert measured.value == pytest.approx(statistics.mean(expected), abs=1.01 / len(held_out))
    if len(expected) > 1:
        assert measured.spread == pytest.approx(statistics.stdev(expected), abs=2 / len(held_out))


def test_all_images_are_learnt_in_minibatches():
    assert head_training(3, 0.1).steps == 200
    assert head_training(128 * 11, 0.1).steps == 220
    assert head_training(60000, 0.1).steps == 3000
    assert head_training(60000, 0.1).batch_size == 128


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning:sklearn")  # one image a class
def test_class_means_are_those_of_scikit_learn(found, train, held_out, audit):
    def features(data, unit_length):
        rows = ((data.images - 0.5) / 0.05).flatten(1)
        return (F.normalize(rows) if unit_length else rows).numpy()

    for head, unit_length in (("class mean", False), ("class mean, unit length", True)):
        for sets in partial_sets(train, audit.per_class, audit.repetitions, SEED):
            errors = []
            for rows in sets.rows:
                centroid = NearestCentroid().fit(features(train, unit_length)[rows], train.labels[rows])
                named = centroid.predict(features(held_out, unit_length))
                errors.append(float((named != held_out.labels.numpy()).mean()))
            assert found["error", head, sets.samples].value == pytest.approx(
                statistics.mean(errors), abs=1e-9
            )


def test_the_nearest_mean_of_classes_that_have_images_is_named(train, held_out):
    lacking = train.subset((train.labels != 1).nonzero().flatten())
    audit = CoAdaptation(per_class=(1,), repetitions=(2,), hidden=(4,))
    found = by_key(audit(pixels(), lacking, held_out, seed=SEED))
    centroid = NearestCentroid().fit(lacking.images.flatten(1).numpy(), lacking.labels.numpy())
    wrong = centroid.predict(held_out.images.flatten(1).numpy()) != held_out.labels.numpy()
    for head in ("class mean", "class mean, pixels"):
        assert found["error", head, len(lacking)].value == pytest.approx(wrong.mean())


@pytest.mark.parametrize("head", ["nearest pixel", "class mean, pixels", "nearest neighbour"])
def test_untrained_heads_are_those_of_scikit_learn(found, train, held_out, audit, head):
    def points(data):  # the features of this classifier are the pixels in another unit
        pixels = data.images.flatten(1)
        return ((pixels - 0.5) / 0.05 if head == "nearest neighbour" else pixels).numpy()

    for sets in partial_sets(train, audit.per_class, audit.repetitions, SEED):
        errors = []
        for rows in sets.rows:
            own, labels = points(train)[rows], train.labels[rows].numpy()
            if (
                head == "class mean, pixels"
            ):  # NearestCentroid warns where all images of a class agree in a pixel
                own = np.stack([own[labels == c].mean(axis=0) for c in range(3)])
                labels = np.arange(3)
            named = KNeighborsClassifier(1).fit(own, labels).predict(points(held_out))
            errors.append(float((named != held_out.labels.numpy()).mean()))
        assert found["error", head, sets.samples].value == pytest.approx(statistics.mean(errors))


def test_nearest_pixels_have_a_limit_and_do_not_look_at_the_model(train, held_out, found):
    torch.manual_seed(7)
    other = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), nn.Linear(4, 3))
    audit = CoAdaptation(per_class=(1, 5), repetitions=(4, 3), hidden=(4,), pixel_limit=15)
    elsewhere = by_key(audit(other, train, held_out, seed=SEED))
    for samples in (3, 15):
        assert elsewhere["error", "nearest pixel", samples] == found["error", "nearest pixel", samples]
    assert ("error", "nearest pixel", 180) not in elsewhere
    assert ("error", "class mean, pixels", 180) not in elsewhere
    assert ("error", "class mean", 180) in elsewhere


def test_class_means_of_many_images_reach_the_bayes_error():
    """Isotropic Gaussian classes of equal size: the nearest mean is the Bayes classifier once means are known."""
    train, test = WORLD.images(per_class=2000, seed=4), WORLD.images(per_class=4000, seed=5)
    audit = CoAdaptation(per_class=(1,), repetitions=(30,), hidden=(8,), pixel_limit=3)
    found = by_key(audit(pixels(), train, test))
    bayes = bayes_error(WORLD)
    deviation = (bayes * (1 - bayes) / len(test)) ** 0.5
    assert found["error", "class mean", 6000].value == pytest.approx(bayes, abs=4 * deviation)
    # one image a class is far from enough here, and no head can be better than Bayes
    assert found["error", "class mean", 3].value > bayes + 0.05
    for (name, _, _), m in found.items():
        assert name != "error" or m.value > bayes - 4 * deviation


class ClassPoints(nn.Module):
    """Every image goes to the point of the class that it most probably belongs to."""

    def __init__(self, world, offset):
        super().__init__()
        self.world, self.offset = world, offset

    def forward(self, images):
        named = log_posterior(self.world, images).argmax(dim=1)
        return (self.world.means() - 0.5).float().flatten(1)[named] + self.offset


def audited_points(offset):
    """One-image heads on features that are one point a class, all of them moved by `offset`."""
    world = GaussianClasses(class_count=4, shape=(1, 4, 4), separation=10.0, noise=0.02)
    model = Classifier(ClassPoints(world, offset), nn.Linear(16, 4))
    audit = CoAdaptation(per_class=(1,), repetitions=(20,), all_images=False)
    return by_key(audit(model, world.images(10, seed=0), world.images(20, seed=1)))


def test_features_that_are_points_need_one_image_of_a_class():
    found = audited_points(offset=0.0)
    for head in ("retrained", "linear", "class mean", "class mean, unit length"):
        assert found["error", head, 4].value == 0.0
        assert found["error", head, 4].spread == 0.0
    for head in ("retrained", "linear"):
        assert found["unfitted_heads", head, 4].value == 0
        assert found["diverged_heads", head, 4].value == 0


def test_heads_that_a_large_common_offset_keeps_from_learning_are_counted():
    """Points 0.2 apart and 2 from the origin: no class is hard, but this training does not get there.

    The error alone would blame the features; every head that is wrong on its own images must be counted.
    """
    found = audited_points(offset=0.5)
    assert found["error", "class mean", 4].value == 0.0
    # features of a class are equal here, so a head that is wrong on test images is wrong on its own
    assert found["error", "retrained", 4].value > 0.1
    assert found["unfitted_heads", "retrained", 4].value >= 20 * found["error", "retrained", 4].value


def test_all_images_can_be_left_out(train, held_out):
    audit = CoAdaptation(per_class=(1, 5), repetitions=(2, 2), hidden=(4,), all_images=False)
    assert {samples for _, _, samples in by_key(audit(pixels(), train, held_out))} == {3, 15}


def test_the_gap_is_to_the_models_own_head(found, held_out):
    own = float((predictions(pixels(), held_out) != held_out.labels).double().mean())
    gaps = {key: m for key, m in found.items() if key[0] == "gap"}
    assert {head for _, head, _ in gaps} == {
        "retrained",
        "linear",
        "class mean",
        "class mean, unit length",
        "nearest neighbour",
    }
    for (_, head, samples), gap in gaps.items():
        error = found["error", head, samples]
        assert gap.value == pytest.approx(error.value - own, abs=1e-12)
        assert gap.spread == error.spread


def test_heads_that_diverge_count_as_chance_and_are_counted(train, held_out):
    audit = CoAdaptation(per_class=(1, 5), repetitions=(4, 3), hidden=(8,), lr=1e30)
    found = by_key(audit(pixels(), train, held_out))
    for samples, draws in ((3, 4), (15, 3), (180, 1)):
        assert found["diverged_heads", "retrained", samples].value == draws
        assert found["error", "retrained", samples].value == pytest.approx(2 / 3)
    assert found["unfitted_heads", "retrained", 3].value == 4
    assert found["error", "class mean", 3].value < 2 / 3


def test_heads_that_do_not_learn_their_own_images_are_counted(train, held_out):
    """With steps of almost nothing a head keeps its first weights: count by hand which are wrong somewhere."""
    audit = CoAdaptation(per_class=(1, 10, 20), repetitions=(30, 4, 4), hidden=(8,), lr=1e-30)
    found = by_key(audit(pixels(), train, held_out, seed=SEED))
    sets = partial_sets(train, audit.per_class, audit.repetitions, SEED)[0]
    features = extract_features(pixels(), train)
    first = HeadStack.initialised(nn.Linear(16, 3), 30, generator(SEED, "fresh heads", "linear", 3))
    wrong = [
        bool((first[k](features[r]).argmax(1) != train.labels[r]).any()) for k, r in enumerate(sets.rows)
    ]
    assert 0 < sum(wrong) < 30
    assert found["unfitted_heads", "linear", 3].value == sum(wrong)
    assert ("unfitted_heads", "linear", 30) in found
    assert ("unfitted_heads", "linear", 60) in found
    assert ("unfitted_heads", "linear", 180) not in found  # above 100 images a head need not fit them all


def test_a_test_image_without_features_is_wrong_and_no_more():
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(20) % 2
    train = torch.randn(20, 3, generator=draws) + 9 * labels[:, None]
    test = train.clone()
    test[0, 0] = math.nan
    cloud = Cloud(train, test, labels, labels, 2)
    assert cloud.errors(labels[None]).tolist() == [1 / 20]
    train = train.clone()
    train[0, 0] = math.nan
    assert Cloud(train, test, labels, labels, 2).errors(labels[None]).tolist() == [1 / 2]
