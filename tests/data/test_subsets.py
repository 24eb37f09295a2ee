"""Few images of a set, and labels that are wrong at several rates: drawn, nested, refused."""

import pytest
import torch

from clearance.data import gaussian_images
from clearance.data.subsets import draw_samples

DATA = gaussian_images(class_count=3, per_class=30)


def keys(data):
    return {image.numpy().tobytes() for image in data.images}


@pytest.mark.parametrize("balanced", [True, False])
def test_a_smaller_draw_is_part_of_a_larger_one_and_of_the_set(balanced):
    draws = [draw_samples(DATA, count, 5, balanced=balanced) for count in (4, 20, 61, 90)]
    assert [len(draw) for draw in draws] == [4, 20, 61, 90]
    for small, large in zip(draws, [*draws[1:], DATA], strict=True):
        assert keys(small) <= keys(large)
    assert keys(draw_samples(DATA, 20, 6, balanced=balanced)) != keys(draws[1])


def test_balanced_means_equally_many_of_every_class():
    for count, expected in ((9, [3, 3, 3]), (10, [4, 3, 3]), (11, [4, 4, 3])):
        assert torch.bincount(draw_samples(DATA, count, 0).labels).tolist() == expected


def test_plainly_at_random_every_image_has_the_same_chance():
    """12 of 90, 300 times: 40 for each image, give or take five binomial deviations."""
    seen = torch.zeros(90)
    places = {image.numpy().tobytes(): k for k, image in enumerate(DATA.images)}
    for seed in range(300):
        for key in keys(draw_samples(DATA, 12, seed, balanced=False)):
            seen[places[key]] += 1
    assert float((seen - 40).abs().max()) < 5 * (300 * 12 / 90 * (1 - 12 / 90)) ** 0.5


def test_a_class_may_be_lost_at_random_and_keeps_its_name():
    draws = [draw_samples(DATA, 2, seed, balanced=False) for seed in range(3)]
    assert all(draw.classes == DATA.classes for draw in draws)


def test_what_there_is_not_cannot_be_drawn():
    with pytest.raises(ValueError, match=r"`count` must not exceed the number of images, 90; got 91"):
        draw_samples(DATA, 91, 0)
    uneven = DATA.subset(torch.arange(40)[torch.randperm(40, generator=torch.Generator().manual_seed(0))])
    with pytest.raises(ValueError, match=r"balanced draw; got 39, which needs 13 of class .*Ask for fewer"):
        draw_samples(uneven, 39, 0)
    with pytest.raises(ValueError, match="`count` must be a whole number of at least 2"):
        draw_samples(DATA, 1, 0)


def test_labels_wrong_at_a_lower_rate_are_wrong_in_the_same_way_at_a_higher_one():
    data = gaussian_images(class_count=10, per_class=100)
    labels = data.labels

    def noisy(rate):
        return data.with_label_noise(rate, seed=3).labels

    for low, high in ((0.1, 0.4), (0.4, 0.8), (0.8, 1.0)):
        hit = noisy(low) != labels
        assert int(hit.sum()) == round(low * 1000)
        assert torch.equal(noisy(high)[hit], noisy(low)[hit])
