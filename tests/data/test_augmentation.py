"""Augmentation against a loop over images with Python lists, and the fairness of its draws."""

import pytest
import torch
from scipy.stats import chisquare

from clearance.data import Augmentation

SETTINGS = [
    Augmentation(),
    Augmentation(flip=True),
    Augmentation(pad=2),
    Augmentation(cutout=3),
    Augmentation(cutout=4),
    Augmentation(flip=True, pad=1, cutout=2),
    Augmentation(flip=True, pad=9, cutout=40),
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def slow_one(image, settings, chances):
    """One image, pixel by pixel, from its five chances."""
    channels, height, width = image.shape
    mirror, top, left, row, column = (float(chance) for chance in chances)
    pixels = {
        (c, y, x): float(image[c, y, x]) for c in range(channels) for y in range(height) for x in range(width)
    }
    if settings.flip and mirror < 0.5:
        pixels = {(c, y, width - 1 - x): value for (c, y, x), value in pixels.items()}
    down = int(top * (2 * settings.pad + 1)) - settings.pad
    right = int(left * (2 * settings.pad + 1)) - settings.pad
    out = torch.zeros_like(image)
    for c, y, x in pixels:
        out[c, y, x] = pixels.get((c, y + down, x + right), 0.0)
    first_row = int(row * height) - settings.cutout // 2
    first_column = int(column * width) - settings.cutout // 2
    for c, y, x in pixels:
        if 0 <= y - first_row < settings.cutout and 0 <= x - first_column < settings.cutout:
            out[c, y, x] = 0.0
    return out


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equals_a_loop_over_images(settings):
    images = torch.rand(12, 2, 5, 7, generator=seeded(9)) + 0.1
    chances = torch.rand(5, 12, generator=seeded(), dtype=torch.float64)
    slow = torch.stack([slow_one(image, settings, chances[:, i]) for i, image in enumerate(images)])
    before = images.clone()
    assert torch.equal(settings(images, seeded()), slow)
    assert torch.equal(images, before)


def test_every_setting_draws_equally_much():
    images, ends = torch.rand(6, 1, 4, 4), []
    for settings in SETTINGS:
        generator = seeded()
        settings(images, generator)
        ends.append(generator.get_state())
    assert all(torch.equal(end, ends[0]) for end in ends)
    assert not torch.equal(ends[0], seeded().get_state())


def test_flip_alone_mirrors_about_half():
    image = torch.tensor([[1.0, 0.0, 0.0]]).view(1, 1, 1, 3)
    flipped = Augmentation(flip=True)(image.expand(2000, 1, 1, 3), seeded())
    mirrored = int(flipped[:, 0, 0, 2].sum())
    assert int(flipped[:, 0, 0, 0].sum()) == 2000 - mirrored
    assert abs(mirrored - 1000) < 4.5 * 500**0.5


def test_a_shift_alone_takes_every_offset_equally_often():
    images = torch.zeros(2500, 1, 9, 9)
    images[:, :, 4, 4] = 1.0
    places = Augmentation(pad=2)(images, seeded()).flatten(1).argmax(1)
    rows, columns = places // 9, places % 9
    counts = torch.bincount((rows - 2) * 5 + columns - 2, minlength=25)
    assert len(counts) == 25  # offsets 0..4 in both directions, no others
    assert chisquare(counts.numpy()).pvalue > 1e-4


def test_a_shift_keeps_pixels_and_brings_in_zeros():
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    crops = {tuple(padded[0, 0, y : y + 3, x : x + 3].flatten().tolist()) for y in range(3) for x in range(3)}
    found = Augmentation(pad=1)(image.expand(500, 1, 3, 3), seeded())
    assert {tuple(each.flatten().tolist()) for each in found} == crops


@pytest.mark.parametrize("side", [1, 2, 3])
def test_cutout_alone_centres_on_every_pixel_equally_often(side):
    holes = Augmentation(cutout=side)(torch.ones(2000, 1, 5, 4), seeded()) == 0
    height, width = holes.any(3).sum(2), holes.any(2).sum(2)
    assert int(height.max()) == int(width.max()) == side
    assert torch.equal(holes.flatten(1).sum(1), (height * width).flatten())  # a rectangle, nothing else
    area = torch.zeros(5, 4)
    for row in range(5):
        for column in range(4):
            top, left = row - side // 2, column - side // 2
            area[max(top, 0) : top + side, max(left, 0) : left + side] += 1 / 20
    share = holes.float().mean((0, 1))
    assert ((share - area).abs() < 4.5 * (area * (1 - area) / 2000).sqrt()).all()


def test_nothing_is_nothing():
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(Augmentation()(images, seeded()), images)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no second device here")
def test_a_seed_means_the_same_on_another_device():
    images = torch.rand(8, 3, 6, 6)
    settings = Augmentation(flip=True, pad=2, cutout=2)
    assert torch.equal(settings(images.cuda(), seeded()).cpu(), settings(images, seeded()))
