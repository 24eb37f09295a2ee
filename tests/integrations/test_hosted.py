"""What every trainer's callback audits with: the same images as `clearance.audit`."""

from typing import Any

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.data import Preprocessing
from clearance.integrations._hosted import Audits, Hosted
from clearance.training import FOCA

MEAN, STD = 0.3, 0.4
ONLY: dict[str, Any] = {"audits": ["accuracy"], "verbose": False}


def pictures(split, size=8):
    """Digits as a Dataset of Pillow pictures, some classes named; larger than the network's example."""
    from PIL import Image

    images = cl.load_dataset("digits", split).subset(torch.arange(200))
    squares = (255 * images.images[:, 0]).byte().numpy()
    shown = [Image.fromarray(one).resize((size, size), Image.Resampling.NEAREST) for one in squares]
    return list(zip(shown, images.labels.tolist(), strict=True))


def network(**how):
    """A network that takes images of any size."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(72, 10)
    )
    return cl.wrap(module.eval(), example=torch.rand(2, 1, 8, 8), verbose=False, **how)


@pytest.mark.filterwarnings("ignore:.*test images are among the training images")
def test_pictures_are_resized_as_wrap_was_told():
    model = network(preprocessing=Preprocessing(size=8, short_side=8))
    train, test = pictures("train", 24), pictures("test", 24)
    watching = Audits(train, test, None, None, None, ONLY)
    assert watching.prepare(model)["test"].shape == (1, 8, 8)
    found = watching.audit(model, 1)
    assert found is not None
    assert found.measurements == cl.audit(model, train=train, test=test, **ONLY).measurements


def test_normalisation_is_undone():
    model = network(mean=MEAN, std=STD)
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    normal, normal_test = (((one.images - MEAN) / STD, one.labels) for one in (train, test))
    unknown = torch.rand(200, 1, 8, 8)
    settings: dict[str, Any] = {"audits": ["out_of_distribution"], "verbose": False}
    given = {**settings, "normalised": True, "unknown": (unknown - MEAN) / STD}
    watching = Audits(normal, normal_test, None, None, None, given)
    card = cl.audit(model, train=train, test=test, unknown=unknown, **settings)
    found = watching.audit(model, 1)
    assert found is not None
    assert found.measurements == card.measurements
    torch.testing.assert_close(watching.prepare(model)["unknown"].images, unknown, atol=1e-6, rtol=0)


def test_images_are_read_once():
    class Counted(list):
        asked = 0

        def __getitem__(self, place):
            self.asked += 1
            return super().__getitem__(place)

    model, test = network(), Counted(pictures("test"))
    watching = Audits(pictures("train"), test, None, None, None, ONLY)
    watching.prepare(model)
    once = test.asked
    for epoch in (1, 2):
        with torch.no_grad():
            model.head.weight.add_(0.1)
        watching.audit(model, epoch)
    assert len(watching.cards) == 2
    assert test.asked == once


def test_a_second_training_with_the_same_callback_gets_cards_of_its_own():
    first, second = network(), network()
    with torch.no_grad():
        second.head.bias.add_(torch.arange(10.0))
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    watching = Audits(train, test, None, None, None, ONLY)
    cards = [watching.audit(first, epoch) for epoch in (3, 3)]
    assert cards[1] is None
    found = watching.audit(second, 1)
    assert found is watching.cards[1]
    assert found.measurements == cl.audit(second, train=train, test=test, **ONLY).measurements


def test_another_model_has_images_as_it_was_told():
    watching = Audits(pictures("train", 24), pictures("test", 24), None, None, None, ONLY)
    for size in (8, 12):
        model = network(preprocessing=Preprocessing(size=size, short_side=size))
        assert watching.prepare(model)["test"].shape == (1, size, size)


def test_foca_has_images_as_wrap_was_told():
    model = network(preprocessing=Preprocessing(size=8, short_side=8))
    hosted = Hosted(FOCA(), model, pictures("train", 24))
    assert hosted.images.shape == (1, 8, 8)
