"""Targeted gradient ascent to a confidence, against the article's rule step by step."""

import pytest
import torch

from clearance.attacks import TargetedAscent
from digits_nets import digits, network


def batch(count=12):
    _, test = digits()
    return test.batch(torch.arange(count))


def slow(model, image, target, *, confidence, step, steps, temperature=1.0):
    """One image, the gradient of the probability itself, in float64."""
    x = image.double().unsqueeze(0)
    for _ in range(steps):
        leaf = x.clone().requires_grad_()
        p = (model(leaf) / temperature).softmax(dim=1)[0, target]
        if p >= confidence:
            return x[0], True
        (g,) = torch.autograd.grad(p, leaf)
        x = (x + step * g / g.norm()).clamp(0, 1)
    return x[0], bool((model(x) / temperature).softmax(dim=1)[0, target] >= confidence)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_images_are_the_articles(temperature):
    images, labels = batch()
    model = network()
    try:
        model.double()
        attack = TargetedAscent(confidence=0.9, step=0.1, steps=14, temperature=temperature)
        hit = attack(model, images.double(), labels)
        settings = {"confidence": 0.9, "step": 0.1, "steps": 14, "temperature": temperature}
        for row in range(len(images)):
            expected, reached = slow(model, images[row], (int(labels[row]) + 1) % 10, **settings)
            torch.testing.assert_close(hit.images[row], expected, rtol=0, atol=1e-8)
            assert bool(hit.success[row]) is reached
        assert 0 < hit.success.sum() < len(images)
        torch.testing.assert_close(hit.distance, (hit.images - images).flatten(1).norm(dim=1))
    finally:
        model.float()


def test_success_is_the_confidence_and_not_the_first_place():
    images, labels = batch()
    targets = (labels + 5) % 10
    hit = TargetedAscent(confidence=0.99, step=0.1, steps=60)(network(), images, labels, targets)
    p = network()(hit.images).softmax(dim=1).gather(1, targets.unsqueeze(1)).squeeze(1)
    assert torch.equal(hit.success, p >= 0.99)
    few = TargetedAscent(confidence=0.99, step=0.1, steps=8)(network(), images, labels, targets)
    leads = network()(few.images).argmax(dim=1) == targets
    assert (leads & ~few.success).any()


def test_an_image_that_is_sure_already_stays():
    images, _ = batch()
    named = network()(images).argmax(dim=1)
    hit = TargetedAscent(confidence=0.2)(network(), images, (named + 1) % 10, named)
    assert torch.equal(hit.images, images)
    assert hit.success.all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, r"`confidence` must lie in \(0, 1\); got 1.0"),
        ({"step": 0.0}, "`step` must be a finite number above 0"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1"),
        ({"temperature": -1.0}, "`temperature` must be a finite number above 0"),
        ({"norm": 3}, "`norm` must be one of inf, 2, 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TargetedAscent(**settings)
