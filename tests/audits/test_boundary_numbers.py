"""Distances under the names of the linear case: on a linear network they are those of `clearance.linear`."""

import math

import pytest
import torch
from torch import nn

from class_planes import class_plane, nearest_distances
from clearance import linear
from clearance._first_order import dual_norm
from clearance.audits import BoundaryDistance, boundary_distance
from clearance.audits.boundary_distance import (
    NearestRival,
    bisected_distances,
    centroid_ways,
    class_balanced_mean,
    first_crossing,
    mirror_images,
    mirror_sheet,
    nearest_rivals,
    nearest_sample_ways,
    tilting_angles,
    unreliable,
)
from clearance.data import ImageSet
from clearance.linear.hyperplane import mirrored
from clearance.models import Classifier

NORMS = {"inf": math.inf, "2": 2.0, "1": 1.0}


def world(classes=2, count=40, seed=0):
    """A linear network in float64, images to train on and others, classes of unequal sizes, some of them wrong."""
    draws = torch.Generator().manual_seed(seed)
    head = nn.Linear(9, classes)
    with torch.no_grad():
        head.weight.copy_(torch.randn(classes, 9, generator=draws))
        head.bias.copy_(-head.weight.sum(1) / 2)
    sets = []
    for _ in range(2):
        images = 0.5 + 0.1 * torch.randn(count, 1, 3, 3, generator=draws).clamp(-4, 4)
        labels = head(images.flatten(1)).argmax(1).detach()
        labels[:7] = (labels[:7] + 1) % classes
        sets.append(ImageSet(images, labels, tuple("abc"[:classes])))
    return Classifier(nn.Flatten(), head).double().eval(), *sets


def found_of(audit, *given):
    return {
        (m.name, m.context.get("norm", m.context.get("direction"))): m.value
        for m in audit(*given).measurements
        if "class" not in m.context
    }


def first_order(model, train, test, norm):
    """The audit's first number, over all images, at the input."""
    audit = BoundaryDistance(norms=(norm,), layers=("input",), searched=40, steps=2)
    found = [m for m in audit(model, train, test).measurements if m.name == "first_order_distance"]
    (value,) = [m.value for m in found if m.context["class"] == "all" and m.context["layer"] == "input"]
    return value


@pytest.mark.parametrize("norm", NORMS)
def test_p02_two_classes_have_the_linear_theory_s_numbers(norm):
    model, train, test = world()
    found = found_of(
        BoundaryDistance(norms=(norm,), layers=("input",), searched=40, steps=2), model, train, test
    )
    plane = class_plane(model.head, 0, 1)
    x, y = test.images.flatten(1).double(), 2.0 * test.labels.double() - 1
    p = NORMS[norm]
    expected = {
        "adversarial_distance": linear.adversarial_distance(plane, x, y, p, class_balanced=True),
        "error_distance": linear.error_distance(plane, x, y, p, class_balanced=True),
        "local_scale": float(dual_norm(plane.weight.unsqueeze(0), p)),
        "bisected_distance": float(linear.hyperplane.margins(plane, x, y, p).clamp(min=0).median()),
        "unreliable_share": 0.0,
        "mirror_share": 1.0,
        "mirror_stretch": 1.0,
    }
    for name, value in expected.items():
        assert found[name, norm] == pytest.approx(value, rel=1e-10, abs=1e-10), name
    assert first_order(model, train, test, norm) == pytest.approx(
        float(linear.hyperplane.margins(plane, x, y, p).median()), rel=1e-10, abs=1e-10
    )
    signs = 2.0 * train.labels.double() - 1
    angle = linear.tilting_angle(plane, train.images.flatten(1).double(), signs)
    assert found["tilting_angle", "centroid"] == pytest.approx(angle, abs=1e-10)


@pytest.mark.parametrize("norm", NORMS)
def test_three_classes_have_the_distance_to_the_nearest_rival(norm):
    model, train, test = world(classes=3)
    found = found_of(
        BoundaryDistance(norms=(norm,), layers=("input",), searched=40, steps=2), model, train, test
    )
    x = test.images.flatten(1).double()
    nearest = nearest_distances(model.head, x, test.labels, NORMS[norm])
    assert first_order(model, train, test, norm) == pytest.approx(float(nearest.median()), abs=1e-10)
    by_class = [nearest[test.labels == k] for k in range(3)]
    assert found["adversarial_distance", norm] == pytest.approx(
        sum(float(d.mean()) for d in by_class) / 3, abs=1e-10
    )
    errors = sum(float((-d).clamp(min=0).mean()) for d in by_class) / 3
    assert errors > 0
    assert found["error_distance", norm] == pytest.approx(errors, abs=1e-10)


@pytest.mark.parametrize("norm", NORMS)
def test_mirror_images_are_those_of_the_linear_theory(norm):
    model, _, test = world()
    rivals = nearest_rivals(model, test.images, test.labels, NORMS[norm])
    mirrors, stretch = mirror_images(model, rivals, NORMS[norm])
    plane = class_plane(model.head, 0, 1)
    expected = mirrored(plane, test.images.flatten(1).double(), NORMS[norm])
    torch.testing.assert_close(mirrors.flatten(1), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(stretch, torch.ones_like(stretch), rtol=0, atol=1e-10)


def test_the_sheet_has_images_and_mirror_images_in_one_range():
    model, _, test = world(count=9)
    rivals = nearest_rivals(model, test.images, test.labels, 2.0)
    mirrors, _ = mirror_images(model, rivals, 2.0)
    mirrors[1] = test.images[1]  # as where none was found
    sheet = mirror_sheet(rivals, mirrors, test.classes, "2").columns
    shown = torch.tensor(sheet["image"], dtype=torch.float64)
    assert shown.shape == (12, 1, 3, 3)
    assert (float(shown.min()), float(shown.max())) == (0.0, 1.0)
    both = torch.cat([test.images[:6], mirrors[:6]])
    scaled = (both - both.min()) / (both.max() - both.min())
    torch.testing.assert_close(shown[::2], scaled[:6].double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(shown[1::2], scaled[6:].double(), rtol=0, atol=1e-4)
    own = [test.classes[k] for k in test.labels[:6].tolist()]
    other = ["ab"[1 - k] for k in test.labels[:6].tolist()]
    assert sheet["label"][::2] == own
    assert sheet["label"][1] == f"{own[0]} as {other[0]}"
    assert sheet["label"][3] == "none found"


class Bent(nn.Module):
    """f(a) = a for a below 0.6 and 0.6 + (a - 0.6) / 4 above, as the single feature."""

    def forward(self, x):
        a = x.flatten(1)[:, :1]
        return a.clamp(max=0.6) + (a - 0.6).clamp(min=0) / 4


def bent():
    """Class 1 where f > 0.65, so at a > 0.8; an image at a = 0.5 has m = 0.3 and d = 0.15, both for a slope of 2.

    A pixel x is at a = x + 0.2.
    """
    head = nn.Linear(1, 2).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[-1.0], [1.0]]).double())
        head.bias.copy_(torch.tensor([0.65, -0.65], dtype=torch.float64))
    return Classifier(Bent(), head, mean=-0.2).double().eval()


def test_the_way_along_the_gradient_is_the_true_one_on_a_bent_network():
    images = torch.tensor([0.3, 0.3, 1.0], dtype=torch.float64).view(3, 1, 1, 1)
    labels = torch.tensor([0, 1, 1])
    rivals = nearest_rivals(bent(), images, labels, 2.0)
    assert rivals.distance.tolist() == pytest.approx([0.15, -0.15, 0.4])
    assert rivals.slope.tolist() == pytest.approx([2.0, 2.0, 0.5])
    # up to the boundary at 0.8; wrong already; back to it
    assert bisected_distances(bent(), rivals, 2.0).tolist() == pytest.approx([0.3, 0.0, 0.4], abs=1e-6)
    mirrors, stretch = mirror_images(bent(), rivals, 2.0)
    # f = 0.8 is at a = 1.4, three times as far as 2 x 0.15; f = 0.55 is before the bend, nearer than 2 x 0.4
    assert (mirrors + 0.2).flatten().tolist() == pytest.approx([1.4, 1.4, 0.55], abs=1e-6)
    gaps = bent()(mirrors)
    mirrored = gaps[torch.arange(3), labels] - gaps[torch.arange(3), 1 - labels]
    assert mirrored.tolist() == pytest.approx([-0.3, 0.3, -0.2], abs=1e-6)
    assert stretch.tolist() == pytest.approx([3.0, 3.0, 0.8125])


def test_what_differs_by_more_than_two_or_has_no_gradient_is_unreliable():
    def rivals(distance, slope):
        numbers = torch.tensor(distance)
        empty = torch.zeros(len(distance), 1, 1, 1)
        labels = torch.zeros(len(distance), dtype=torch.long)
        return NearestRival(empty, labels, labels + 1, numbers, empty, torch.tensor(slope), numbers)

    given = rivals([1.0, 1.0, 1.0, 1.0, -1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    length = torch.tensor([1.9, 2.1, 0.45, math.inf, 0.0, 1.0])
    assert unreliable(given, length).tolist() == [False, True, True, True, False, True]


def test_a_dead_network_has_no_distances_and_says_so():
    model, train, test = world()
    with torch.no_grad():
        model.head.weight.zero_()
    found = found_of(
        BoundaryDistance(norms=("2",), layers=("input",), searched=20, steps=2), model, train, test
    )
    assert found["unreliable_share", "2"] == 1.0
    assert found["mirror_share", "2"] == 0.0
    assert found["local_scale", "2"] == 0.0
    assert found["tilting_angle", "centroid"] == pytest.approx(math.pi / 2)


@pytest.mark.parametrize("chunk", [boundary_distance.CHUNK, 1])
def test_the_nearest_sample_is_of_the_rival_s_class_and_nearest(chunk, monkeypatch):
    monkeypatch.setattr(boundary_distance, "CHUNK", chunk)
    model, train, test = world(classes=3)
    rivals = nearest_rivals(model, test.images, test.labels, 2.0)
    ways = nearest_sample_ways(train, rivals)
    for image, rival, way in zip(test.images, rivals.rival, ways, strict=True):
        others = train.images[train.labels == rival]
        nearest = others[(others - image).flatten(1).norm(dim=1).argmin()]
        torch.testing.assert_close(way, (nearest - image).double(), rtol=0, atol=1e-6)


def test_angles_keep_their_digits_when_they_are_small():
    rivals = nearest_rivals(world()[0], world()[2].images[:1], world()[2].labels[:1], 2.0)
    along = -rivals.gradient
    across = torch.zeros_like(along)
    across.view(-1)[0], across.view(-1)[1] = -along.view(-1)[1], along.view(-1)[0]
    turned = along / along.norm() + 1e-9 * across / across.norm()
    assert float(tilting_angles(rivals, turned)) == pytest.approx(1e-9, rel=1e-6)
    assert float(tilting_angles(rivals, -along)) == pytest.approx(math.pi)
    assert math.isnan(float(tilting_angles(rivals, torch.zeros_like(along))))


def test_crossings_are_found_up_to_sixty_four_times_as_far():
    roots = torch.tensor([0.3, 1.0, 17.0, 63.0, 65.0], dtype=torch.float64)
    found = first_crossing(lambda t: roots - t, torch.zeros(5, dtype=torch.float64))
    assert found[:4].tolist() == pytest.approx(roots[:4].tolist(), abs=1e-12)
    assert found[4] == math.inf


def test_two_rivals_give_the_same_nearest_boundary_where_it_is_among_them():
    model, _, test = world(classes=3)
    few = nearest_rivals(model, test.images, test.labels, 2.0, rivals=1)
    every = nearest_rivals(model, test.images, test.labels, 2.0)
    first = model(test.images).scatter(1, test.labels[:, None], -math.inf).argmax(1)
    assert torch.equal(few.rival, first)
    assert bool((every.distance <= few.distance + 1e-12).all())
    same = every.rival == first
    assert int(same.sum()) > 0
    assert torch.equal(every.distance[same], few.distance[same])


def test_classes_count_alike():
    values, labels = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2, 2, 0])
    assert class_balanced_mean(values, labels) == 3.5
    with pytest.raises(ValueError, match="`rivals`"):
        BoundaryDistance(rivals=0)


def test_a_network_may_have_outputs_for_more_classes_than_the_images_have():
    model, train, test = world(classes=3)
    wide = nn.Linear(9, 5)
    own = model.head.state_dict()
    with torch.no_grad():
        wide.weight.copy_(torch.randn(5, 9, generator=torch.Generator().manual_seed(5)))
        wide.weight[:3] = own["weight"]
        wide.bias.copy_(-wide.weight.sum(dim=1) / 2)
    more = Classifier(nn.Flatten(), wide).double().eval()
    audit = BoundaryDistance(norms=("2",), layers=("input", "logits"), searched=20, steps=2, rivals=4)
    found = audit(more, train, test)
    labels = {text for one in found.exhibits if one.name == "mirror_images" for text in one.columns["label"]}
    assert any("output" in text for text in labels)
    rivals = nearest_rivals(more, test.images, test.labels, 2.0)
    unknown = rivals.rival >= 3
    assert 0 < int(unknown.sum()) < len(unknown)
    angles = tilting_angles(rivals, centroid_ways(train, rivals))
    assert torch.equal(angles.isnan(), unknown)


def test_a_class_without_training_images_has_no_middle():
    model, train, test = world(classes=3)
    fewer = train.subset((train.labels != 2).nonzero().flatten())
    rivals = nearest_rivals(model, test.images, test.labels, 2.0)
    angles = tilting_angles(rivals, centroid_ways(fewer, rivals))
    assert torch.equal(angles.isnan(), (rivals.rival == 2) | (test.labels == 2))
    found = BoundaryDistance(norms=("2",), layers=("input",), searched=40, steps=2)(model, fewer, test)
    counted = [m.n for m in found.measurements if m.context.get("direction") == "centroid"]
    assert counted == [int((~angles.isnan()).sum())]
