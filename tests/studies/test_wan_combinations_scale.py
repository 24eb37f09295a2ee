"""Features of the study that combines FOCA and mixtures: they keep their scale, and the network learns."""

import dataclasses

import pytest

from clearance.experiments.build import build_data, build_optimizer, build_way
from clearance.experiments.saved import build_model
from clearance.heads.scale import feature_unit
from clearance.training import Limits, fit
from papers.wan_2018 import combinations


@pytest.mark.parametrize("name", [combinations.FOCA, combinations.FOCA_GM])
def test_features_keep_their_scale_and_the_network_learns(name):
    recipe = dataclasses.replace(combinations.combinations_recipe(), train_fraction=0.3, held_out=0.25)
    data = build_data(recipe)
    method = dataclasses.replace(recipe.methods[name], lr=0.025, final_head_steps=200)
    model = build_model(recipe.model, method, data.train, 0)
    before = feature_unit(model.eval().features(data.test.images))
    fit(
        model,
        build_way(method, model=model),
        data.train,
        steps=60,
        batch_size=recipe.batch_size,
        optimizer=build_optimizer(method, model),
        limits=Limits(clip_norm=method.clip_norm),
        seed=0,
    )
    after = feature_unit(model.features(data.test.images))
    wrong = model(data.test.images).argmax(dim=1) != data.test.labels
    assert 1 / 20 < float(after / before) < 20  # without normalisation mixture heads make it hundreds
    assert float(wrong.float().mean()) < 0.2
