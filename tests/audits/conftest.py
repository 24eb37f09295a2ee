"""Images of overlapping classes that several audits are tested on, and what one of them found there."""

import pytest

from audits.pixel_world import AUDIT, SEED, WORLD, pixels


@pytest.fixture(scope="session")
def train():
    """60 images of each of three classes."""
    return WORLD.images(per_class=60, seed=0)


@pytest.fixture(scope="session")
def held_out():
    """100 others of each."""
    return WORLD.images(per_class=100, seed=1)


@pytest.fixture(scope="session")
def geodesic_findings(train, held_out):
    """What the audit of ways found on the pixels."""
    return AUDIT(pixels(), train, held_out, seed=SEED)
