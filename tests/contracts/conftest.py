"""Attacks under test: all of them, those that the scale of logits must not matter to, those in a ball."""

import pytest

from attack_cases import ATTACKS


@pytest.fixture(params=list(ATTACKS))
def case(request):
    """Every attack."""
    return ATTACKS[request.param]


@pytest.fixture(params=[name for name, case in ATTACKS.items() if case.scale_free])
def scale_free(request):
    """Those whose loss ignores the scale of logits."""
    return ATTACKS[request.param]


@pytest.fixture(params=[name for name, case in ATTACKS.items() if case.at_radius])
def in_a_ball(request):
    """Those that have a radius."""
    return ATTACKS[request.param]
