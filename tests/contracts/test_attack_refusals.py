"""What every attack refuses, and in which words; the list of attacks is in attack_cases.py."""

import math

import pytest
import torch
from torch import nn

from attack_cases import batch
from digits_nets import network


def in_training():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def partly_in_training():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)).eval()
    model[1].train()
    return model


REFUSED = {
    "training": (lambda m, x, y: (in_training(), x, y), "evaluation mode .* call `model.eval\\(\\)` first"),
    "above": (
        lambda m, x, y: (m, 2 * x, y),
        r"`images` must lie in \[0, 1\]; got values from 0 to 2; normalise",
    ),
    "below": (lambda m, x, y: (m, x - 0.5, y), r"`images` must lie in \[0, 1\]; got values from -0.5 to 0.5"),
    "not a number": (
        lambda m, x, y: (m, x * math.nan, y),
        r"`images` must lie in \[0, 1\]; got values from nan",
    ),
    "flat": (lambda m, x, y: (m, x[0, 0, 0], y), r"`images` must be of shape \(B, ...\); got \(8,\)"),
    "few labels": (
        lambda m, x, y: (m, x, y[1:]),
        r"`labels` must be of shape \(40,\), one for each image; got \(39,\)",
    ),
    "label too large": (lambda m, x, y: (m, x, y + 1), r"`labels` must lie in 0 ... 9 .* 10 logits; got 10"),
    "label below 0": (lambda m, x, y: (m, x, y - 1), r"`labels` must lie in 0 ... 9 .* 10 logits; got -1"),
    "logits": (lambda m, x, y: (lambda x: x, x, y), r"`model` must return logits of shape \(B, C\)"),
    "one class": (
        lambda m, x, y: (lambda x: m(x)[:, :1], x, y),
        "`model` must return logits .* at least 2 classes",
    ),
}


@pytest.mark.parametrize("reason", list(REFUSED))
def test_bad_arguments_are_refused_with_a_reason(case, reason):
    change, message = REFUSED[reason]
    with pytest.raises(ValueError, match=message):
        case.make()(*change(network(), *batch()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: ((255 * x).to(torch.uint8), y), "floating point numbers; got torch.uint8"),
        (lambda x, y: (x.numpy(), y), "floating point numbers; got ndarray"),
        (lambda x, y: (x, y.float()), "`labels` must be a tensor of whole numbers; got torch.float32"),
        (lambda x, y: (x, y.tolist()), "`labels` must be a tensor of whole numbers; got list"),
    ],
)
def test_what_is_no_batch_is_refused(case, change, message):
    with pytest.raises(TypeError, match=message):
        case.make()(network(), *change(*batch()))


def test_one_part_in_training_mode_is_enough(case):
    with pytest.raises(ValueError, match="its '1' is in training mode"):
        case.make()(partly_in_training(), *batch())


@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (-0.1, "`epsilon` must be a finite number of at least 0; got -0.1"),
        (math.nan, "`epsilon` must be a finite"),
    ],
)
def test_a_radius_that_is_none_is_refused(in_a_ball, radius, message):
    with pytest.raises(ValueError, match=message):
        in_a_ball.at_radius(radius)
