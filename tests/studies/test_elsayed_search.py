"""The search of Elsayed et al. (2018): every method's rates are chosen with the loss that its study trains with."""

import dataclasses

import pytest

from clearance.experiments.search import Trial
from papers.elsayed_2018 import search_rates
from papers.elsayed_2018.protocol import (
    PROTOCOLS,
    base_recipe,
    noise_recipe,
    noise_recipes,
    searched_at,
    searched_under,
    small_data_recipes,
)
from papers.elsayed_2018.search_rates import searched_recipes
from papers.engine import rate_search
from papers.engine.catalogue import learning_rates, paper_study, with_settings
from papers.engine.study import StudyRequest

RUN_HERE = ("digits", "mnist")


def losses(recipe):
    return {name: dataclasses.replace(method, lr=1.0) for name, method in recipe.methods.items()}


@pytest.mark.parametrize("dataset", RUN_HERE)
class TestSearchedAsStudied:
    def test_noise_0_counts_the_rivals_that_its_study_counts(self, dataset):
        searched, studied = searched_recipes(dataset)["noiseless"], noise_recipes(dataset)[0.0]
        assert losses(searched) == losses(studied)
        assert (searched.label_noise, searched.train_fraction) == (0, studied.train_fraction)

    def test_noise_is_searched_as_it_is_studied(self, dataset):
        searched = searched_recipes(dataset)
        for rate, studied in noise_recipes(dataset).items():
            own = searched[searched_under(dataset, rate)]
            assert losses(own) == losses(studied), rate
            assert (own.epochs, own.train_fraction) == (studied.epochs, studied.train_fraction)
        for rate in PROTOCOLS[dataset].searched_noise:
            assert searched[searched_under(dataset, rate)].label_noise == rate > 0

    def test_the_others_too(self, dataset):
        searched = searched_recipes(dataset)
        assert losses(searched["clean"]) == losses(base_recipe(dataset, None))
        for count, studied in small_data_recipes(dataset).items():
            own = searched[searched_at(dataset, count)]
            assert losses(own) == losses(studied)
            assert own.samples in PROTOCOLS[dataset].searched_samples


@pytest.mark.parametrize("dataset", RUN_HERE)
def test_a_study_takes_the_rates_of_its_own_condition(dataset):
    def rates(recipe):
        return {name: method.lr for name, method in recipe.methods.items()}

    assert rates(noise_recipe(dataset, 0.0)) == learning_rates("elsayed_2018", dataset, "noiseless")
    assert rates(noise_recipe(dataset, 0.8)) == learning_rates("elsayed_2018", dataset, "noisy-80")
    assert rates(base_recipe(dataset, None)) == learning_rates("elsayed_2018", dataset, "clean")
    for count, recipe in small_data_recipes(dataset).items():
        assert rates(recipe) == learning_rates("elsayed_2018", dataset, searched_at(dataset, count)) != {}


def test_few_images_take_the_rates_of_the_nearest_number_that_was_searched():
    assert [searched_at("digits", n) for n in (20, 300)] == ["few-68", "few-68"]
    assert [searched_at("mnist", n) for n in (68, 550, 5500, 10**5)] == [
        "few-68",
        "few-550",
        "few-5500",
        "few-5500",
    ]


@pytest.mark.parametrize("dataset", RUN_HERE)
def test_trials_are_as_long_as_the_study(monkeypatch, tmp_path, dataset):
    asked = []

    def searched(recipe, *_, **settings):
        asked.append((recipe, settings))
        return [Trial(name, 0.1, 1, recipe.epochs, None, None, 0.5, ("finished",)) for name in recipe.methods]

    monkeypatch.setattr(rate_search, "search_settings", searched)
    monkeypatch.setattr(rate_search, "needed_data", lambda recipe: recipe)
    search_rates.run(StudyRequest(tmp_path, dataset=dataset))
    conditions = [name for name in searched_recipes(dataset) if not name.startswith("gamma-")]
    for condition, (_, settings) in zip(conditions, asked, strict=True):
        assert settings["factors"] == PROTOCOLS[dataset].search_factors
        varied = PROTOCOLS[dataset]
        few = varied.finalist_draws if condition.startswith("few-") else varied.finalist_seeds
        assert settings["finalist_seeds"] == (None if condition == "clean" else few)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("search-clean", ["clean"]),
        ("search-noise", ["noiseless", "noisy-40", "noisy-80"]),
        ("search-gamma", ["gamma-40", "gamma-80"]),
        ("search-few", ["few-68", "few-550", "few-5500"]),
        ("search", ["clean", "noiseless", "noisy-40", "noisy-80", "few-68", "few-550", "few-5500"]),
    ],
)
def test_the_search_of_a_study_alone(monkeypatch, tmp_path, only, expected):
    asked = []
    monkeypatch.setattr(search_rates, "search_rates", lambda recipes, *_, **__: asked.extend(recipes))
    paper_study("elsayed_2018", only).run(StudyRequest(tmp_path, dataset="mnist"))
    assert asked == expected


@pytest.mark.parametrize("dataset", RUN_HERE)
def test_gamma_is_searched_for_every_margin_under_noise_with_nothing_else_changed(dataset):
    studied, searched = noise_recipe(dataset, 0.8).methods, searched_recipes(dataset)["gamma-80"].methods
    margins = {name: method for name, method in studied.items() if "gamma" in method.loss_settings}
    assert 4 <= len(margins) < len(studied)
    assert searched == {
        f"{name}, gamma {gamma}": with_settings(method, {"gamma": gamma})
        for name, method in margins.items()
        for gamma in (100, 1000, 100_000)
    }
