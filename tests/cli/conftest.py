"""One small comparison that the tests of commands share, run once."""

import numpy as np
import pytest

from clearance.data.synthetic import GaussianClasses
from cli.terminal import run

RECIPE = """
dataset: {dataset}
epochs: 6
batch_size: 12
seeds: 2
audits: [accuracy, co_adaptation, class_scatter]
audit_settings:
  co_adaptation: {{per_class: [1], repetitions: [3], hidden: [4], all_images: false}}
methods:
  plain: {{base: none, hidden: [8], lr: 0.1}}
  foca: {{base: none, way: foca, hidden: [8], lr: 0.02, per_class: 1, head_steps: 4}}
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with a small dataset and a recipe for it."""
    folder = tmp_path_factory.mktemp("home-of-ann")
    images = GaussianClasses(class_count=3, separation=5.0).images(25, seed=0)
    np.savez(folder / "world.npz", images=images.images.numpy(), labels=images.labels.numpy())
    (folder / "mine.yaml").write_text(RECIPE.format(dataset=f"npz:{folder}/world.npz"))
    return folder


@pytest.fixture(scope="session")
def words(home):
    """The words of that comparison."""
    return ["compare", "--recipe", str(home / "mine.yaml"), "--out", str(home / "report"), "--jobs", "2"]


@pytest.fixture(scope="session")
def compared(words, home):
    """What a comparison printed; its files are in ``home / "report"``."""
    status, shown, complaint = run(*words)
    assert (status, complaint) == (0, "")
    return shown
