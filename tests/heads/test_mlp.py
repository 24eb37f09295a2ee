"""The multi-layer head is what its formula says."""

import pytest
import torch
from torch import nn

from clearance.heads import MLP


def test_logits_follow_the_formula():
    torch.manual_seed(0)
    head = MLP((6, 5, 4, 3)).double()
    features = torch.randn(7, 6, dtype=torch.float64)
    weights = [layer for layer in head if isinstance(layer, nn.Linear)]
    expected = torch.zeros(7, 3, dtype=torch.float64)
    for i in range(7):
        hidden = features[i]
        for layer in weights[:-1]:
            hidden = (layer.weight @ hidden + layer.bias).clamp(min=0)
        expected[i] = weights[-1].weight @ hidden + weights[-1].bias
    torch.testing.assert_close(head(features), expected)


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        ({}, ["Linear", "ReLU", "Linear", "ReLU", "Linear"]),
        ({"dropout": 0.5}, ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]),
        ({"norm": "batch"}, ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear"]),
        (
            {"norm": "batch", "dropout": 0.2},
            ["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 2 + ["Linear"],
        ),
    ],
)
def test_layers_stand_in_the_documented_order(settings, layers):
    head = MLP((6, 5, 4, 3), **settings)
    assert [type(layer).__name__ for layer in head] == layers
    assert head.widths == (6, 5, 4, 3)


def test_widths_and_dropout_reach_the_layers():
    head = MLP([6, 5, 4, 3], dropout=0.2, norm="batch")
    assert [(m.in_features, m.out_features) for m in head if isinstance(m, nn.Linear)] == [
        (6, 5),
        (5, 4),
        (4, 3),
    ]
    assert [m.num_features for m in head if isinstance(m, nn.BatchNorm1d)] == [5, 4]
    assert {m.p for m in head if isinstance(m, nn.Dropout)} == {0.2}


def test_two_widths_are_one_linear_layer():
    (layer,) = MLP((6, 3))
    assert (layer.in_features, layer.out_features) == (6, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": (6,)}, r"`widths` must be at least two numbers, features and classes; got \(6,\)"),
        ({"widths": (6, 0, 3)}, "`widths` must be a whole number of at least 1; got 0"),
        ({"widths": (6, 2.5, 3)}, "`widths` must be a whole number of at least 1; got 2.5"),
        ({"widths": (6, 3), "dropout": 1.0}, r"`dropout` must lie in \[0, 1\); got 1.0"),
        ({"widths": (6, 3), "dropout": -0.1}, r"`dropout` must lie in \[0, 1\); got -0.1"),
        ({"widths": (6, 3), "norm": "layer"}, "`norm` must be one of 'none', 'batch'; got 'layer'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MLP(**settings)


@pytest.mark.parametrize("part", [slice(0, -1), slice(1, 3), slice(None)])
def test_some_of_its_layers_are_an_ordinary_sequence_of_the_same_layers(part):
    head = MLP((6, 5, 4, 3))
    found = head[part]
    assert type(found) is nn.Sequential
    assert list(found) == list(head)[part]
    assert list(found.state_dict()) == [n for n in head.state_dict() if head[int(n.split(".")[0])] in found]
