"""FOCA says so when features have grown out of all proportion since it began."""

import warnings

import pytest
import torch

from clearance.heads import GaussianMixtureHeads, GradientHeads, HeadTraining
from clearance.training import FOCA


@pytest.mark.parametrize("heads", [GradientHeads(), GaussianMixtureHeads()])
@pytest.mark.parametrize(("factor", "warned"), [(50.0, False), (200.0, True)])
def test_features_that_have_run_away_are_told_at_the_end(data, make_model, heads, factor, warned):
    model, final = make_model(widths=(6, 3)), HeadTraining(steps=2)
    way = FOCA(weak_heads=heads, per_class=2, final_head=final)
    optimizer = torch.optim.SGD(way.trainable(model), lr=1e-6)
    training = way.start(model, data, optimizer, way.generators(0))
    training.step(data.images[:20], data.labels[:20])
    inner = model.extractor.forward
    model.extractor.forward = lambda x: factor * inner(x)
    if warned:
        with pytest.warns(UserWarning, match=r"features are \d+ times as large as when FOCA began"):
            training.finish()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            training.finish()
