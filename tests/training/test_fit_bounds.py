"""Bounds on gradients and weights, against bounds by hand."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import ImageSet
from clearance.heads import MLP
from clearance.models import Classifier, small_cnn
from clearance.training import FOCA, EndToEnd, fit

PLAIN = partial(torch.optim.SGD, lr=0.1)


def test_clip_norm_bounds_the_whole_gradient_and_keeps_its_direction(data, make_model):
    def moved(bound):
        model = make_model()
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        fit(model, EndToEnd(), data, epochs=1, batch_size=24, optimizer=PLAIN, clip_norm=bound)
        return (before - nn.utils.parameters_to_vector(model.parameters()).detach()) / 0.1

    free = moved(None)
    size = float(free.norm())
    assert size > 0.01
    torch.testing.assert_close(moved(size / 4), free / 4, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(moved(size * 2), free, rtol=1e-6, atol=1e-7)


def test_clip_norm_comes_before_momentum(data, make_model):
    model = make_model()
    sizes = []
    last = nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    def note(progress):
        nonlocal last
        now = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        sizes.append(float((now - last).norm()))
        last = now

    fit(model, EndToEnd(), data, epochs=2, batch_size=24, clip_norm=1e-3, on_step=note,
        optimizer=partial(torch.optim.SGD, lr=1.0, momentum=0.9))  # fmt: skip
    assert sizes == pytest.approx([1e-3, 1.9e-3], rel=0.01)


def test_max_norm_bounds_every_unit_after_every_step():
    torch.manual_seed(0)
    head: Any = MLP((1024, 3, 2))
    model = Classifier(small_cnn(1, 8), head)
    data = ImageSet(torch.rand(6, 1, 8, 8), torch.arange(6) % 2, ("a", "b"))
    with torch.no_grad():
        head[0].bias.fill_(7.0)
    free = copy.deepcopy(model)
    fit(free, EndToEnd(), data, epochs=1, batch_size=6, optimizer=PLAIN)
    norms: list[float] = []

    def note(progress):
        norms.extend(float(p.detach().flatten(1).norm(dim=1).max()) for p in model.parameters() if p.ndim > 1)

    fit(model, EndToEnd(), data, epochs=1, batch_size=6, optimizer=PLAIN, max_norm=0.9, on_step=note)
    assert len(norms) == 5
    assert max(norms) <= 0.9 * (1 + 1e-6)
    for (name, bounded), loose in zip(model.named_parameters(), free.parameters(), strict=True):
        expected = loose.detach().clone()
        if expected.ndim > 1:
            for unit in expected:  # a row, or a filter
                unit *= min(1.0, 0.9 / float(unit.norm()))
        torch.testing.assert_close(bounded.detach(), expected, rtol=1e-6, atol=1e-8, msg=name)
    assert float(head[0].bias.detach().min()) > 6.0  # a bias is no incoming weight


def test_max_norm_bounds_filters_in_any_layout_of_memory(data):
    torch.manual_seed(0)
    filters = nn.Conv2d(1, 4, 3)
    with torch.no_grad():
        filters.weight.mul_(10)
    model = Classifier(nn.Sequential(filters, nn.Flatten()), nn.Linear(16, 3))
    model = model.to(memory_format=torch.channels_last)
    fit(model, EndToEnd(), data, epochs=1, batch_size=24, optimizer=PLAIN, max_norm=0.5)
    torch.testing.assert_close(filters.weight.detach().flatten(1).norm(dim=1), torch.full((4,), 0.5))


def test_max_norm_under_foca_leaves_heads_alone(data, make_model):
    model = make_model()
    fit(model, FOCA(per_class=2), data, epochs=1, batch_size=8, max_norm=0.3)
    assert float(model.extractor[1].weight.detach().norm(dim=1).max()) <= 0.3 * (1 + 1e-6)
    assert float(model.head[0].weight.detach().norm(dim=1).max()) > 0.3
