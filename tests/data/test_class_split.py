"""Sets cut by class: nothing lost, nothing renamed, bad requests refused."""

import pytest
import torch

from clearance.data import gaussian_images
from clearance.data.subsets import draw_classes, split_classes


def test_the_two_sides_hold_every_image_once_under_its_own_name():
    data = gaussian_images(class_count=6, per_class=5, seed=3)
    known, new = split_classes(data, (4, 1))
    assert new.classes == (data.classes[1], data.classes[4])
    for side in (known, new):
        for k, name in enumerate(side.classes):
            wanted = data.images[data.labels == data.classes.index(name)]
            assert torch.equal(side.images[side.labels == k], wanted)
    assert len(known) + len(new) == len(data)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ((0, 6), "from 0 to 5"),
        ((1, 1), "each once"),
        ((), "at least 1"),
        ((0, 1, 2, 3, 4), "leave at least 2"),
    ],
)
def test_what_is_no_split_is_refused(left_out, message):
    with pytest.raises(ValueError, match=message):
        split_classes(gaussian_images(class_count=6), left_out)


def test_a_single_class_is_left_out():
    data = gaussian_images(class_count=4, per_class=5, seed=3)
    known, new = split_classes(data, (2,))
    assert (known.classes, new.classes) == (("0", "1", "3"), ("2",))
    assert torch.equal(new.images, data.images[data.labels == 2])
    assert new.labels.tolist() == [0] * 5
    assert new.name == data.name
    without = data.subset((data.labels != 2).nonzero().flatten())
    with pytest.raises(ValueError, match="every class must have at least one image; got none of '2'"):
        split_classes(without, (2,))


def test_draws_follow_the_seed_and_vary():
    draws = [draw_classes(10, 3, seed) for seed in range(8)]
    assert draws == [draw_classes(10, 3, seed) for seed in range(8)]
    assert len(set(draws)) > 4
    assert all(len(set(drawn)) == 3 and list(drawn) == sorted(drawn) for drawn in draws)
    with pytest.raises(ValueError, match="must leave at least 2"):
        draw_classes(4, 3, seed=0)
    assert {draw_classes(4, 1, seed) for seed in range(40)} == {(0,), (1,), (2,), (3,)}
