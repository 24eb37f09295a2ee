"""The search of Elsayed et al. (2018): every method's rates are chosen with the loss that its study trains with."""

import dataclasses

import pytest

from clearance.experiments.catalogue import resolve
from clearance.experiments.reproductions import rate_search
from clearance.experiments.reproductions.elsayed_2018 import search_rates
from clearance.experiments.reproductions.elsayed_2018.protocol import (
    PROTOCOLS,
    base_recipe,
    learning_rates,
    noise_recipe,
    noise_recipes,
    small_data_recipes,
)
from clearance.experiments.reproductions.elsayed_2018.search_rates import searched_recipes
from clearance.experiments.search import Trial
from clearance.experiments.studies import STUDIES
from clearance.experiments.study_request import StudyRequest

RUN_HERE = ("digits", "mnist")


def losses(recipe):
    return {name: dataclasses.replace(method, lr=1.0) for name, method in recipe.methods.items()}


@pytest.mark.parametrize("dataset", RUN_HERE)
class TestSearchedAsStudied:
    def test_noise_0_is_searched_with_clean_labels(self, dataset):
        assert losses(searched_recipes(dataset)["clean"]) == losses(noise_recipes(dataset)[0.0])

    def test_noise_is_searched_at_one_rate_for_all(self, dataset):
        searched = searched_recipes(dataset)["noisy"]
        assert searched.label_noise == PROTOCOLS[dataset].searched_noise > 0
        for rate, studied in noise_recipes(dataset).items():
            assert rate == 0 or losses(searched) == losses(studied), rate

    def test_the_others_too(self, dataset):
        searched = searched_recipes(dataset)
        assert losses(searched["clean"]) == losses(base_recipe(dataset, None))
        for studied in small_data_recipes(dataset).values():
            assert losses(searched["few"]) == losses(studied)


@pytest.mark.parametrize("dataset", RUN_HERE)
def test_a_study_takes_the_rates_of_its_own_condition(dataset):
    def rates(recipe):
        return {name: method.lr for name, method in recipe.methods.items()}

    assert rates(noise_recipe(dataset, 0.0)) == learning_rates(dataset, "clean")
    assert rates(noise_recipe(dataset, 0.8)) == learning_rates(dataset, "noisy")
    assert rates(base_recipe(dataset, None)) == learning_rates(dataset, "clean")
    assert {tuple(rates(r).items()) for r in small_data_recipes(dataset).values()} == {
        tuple(learning_rates(dataset, "few").items())
    }


@pytest.mark.parametrize(("dataset", "first"), [("digits", None), ("mnist", 1)])
def test_first_trials_are_short_where_training_is_long_and_the_best_two_go_on(
    monkeypatch, tmp_path, dataset, first
):
    asked = []

    def searched(recipe, *_, **settings):
        asked.append((recipe, settings))
        return [Trial(name, 0.1, 1, recipe.epochs, None, None, 0.5, ("finished",)) for name in recipe.methods]

    monkeypatch.setattr(rate_search, "search", searched)
    monkeypatch.setattr(rate_search, "data_if_there", lambda recipe: recipe)
    search_rates.run(StudyRequest(tmp_path, dataset=dataset))
    epochs = {recipe.label_noise: recipe.epochs for recipe, _ in asked if recipe.steps is None}
    assert (
        epochs[PROTOCOLS[dataset].searched_noise] == noise_recipe(dataset, 0.8).epochs
    )  # of finalists: the study's
    assert epochs[0.0] == base_recipe(dataset, None).epochs
    for recipe, settings in asked:
        assert settings["trial_epochs"] == (first if recipe.steps is None else None)
        assert settings["finalists"] == 2


@pytest.mark.parametrize("condition", ["clean", "noisy", "few"])
def test_each_condition_is_a_study_of_its_own(monkeypatch, tmp_path, condition):
    asked = []
    monkeypatch.setattr(search_rates, "search_rates", lambda recipes, *_, **__: asked.extend(recipes))
    resolve("only", f"search-{condition}", STUDIES["elsayed-2018"])(StudyRequest(tmp_path))
    assert asked == [condition]
