"""What running documents and examples shares."""

import contextlib
import warnings
from functools import partial

import pytest

from clearance.audits import co_adaptation
from clearance.heads import HeadTraining

with warnings.catch_warnings(), contextlib.suppress(ImportError):
    warnings.simplefilter("ignore")  # a document imports it, and it imports from places that SciPy has moved
    import foolbox  # noqa: F401


@pytest.fixture
def quick_heads(monkeypatch):
    """The audit of fresh heads draws one set of each size and takes five steps: enough to see that it runs."""
    drawn = vars(co_adaptation)["partial_sets"]

    def one_draw(train, per_class, repetitions, seed):
        return drawn(train, per_class, (1,) * len(repetitions), seed)

    monkeypatch.setattr(co_adaptation, "partial_sets", one_draw)
    few = partial(HeadTraining, steps=5, batch_size=128)
    monkeypatch.setattr(co_adaptation, "head_training", lambda samples, lr, *_, **__: few(lr=lr))
