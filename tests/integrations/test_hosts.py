"""Margins, L-GM and FOCA in every trainer, as benchmarks/in_your_trainer.py has them: two epochs of digits."""

import importlib.util

import pytest
from benchmarks import in_your_trainer as hosts

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of other packages
    pytest.mark.filterwarnings("error::clearance.losses.TrainingWarning"),
]
PACKAGES = {"scikit-learn": "sklearn"}


@pytest.mark.parametrize("name", hosts.OBJECTIVES)
@pytest.mark.parametrize("title", hosts.HOSTS)
def test_it_learns_in_two_epochs_within_eight_lines(title, name):
    package, host, foca = hosts.HOSTS[title]
    if importlib.util.find_spec(PACKAGES.get(package, package)) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
    called = foca if name == "FOCA" else host
    task = hosts.Task(name, seed=0, epochs=2)
    with hosts.quiet():
        model = called(task)
    assert hosts.error(model) < (0.06 if name == "FOCA" else 0.2)
    assert hosts.lines_added(called) <= 8
    assert all(weight.dtype.itemsize == 4 for weight in model.parameters())
