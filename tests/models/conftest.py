"""What the tests of models share: a seed for weights, and a few images."""

import pytest
import torch


@pytest.fixture
def seeded():
    """The same weights in every test."""
    torch.manual_seed(0)


@pytest.fixture
def images():
    """Six images of three channels in [0, 1]."""
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
