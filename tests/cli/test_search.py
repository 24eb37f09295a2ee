"""``clearance search``: what it prints can be put to use."""

import re

import yaml

from clearance.experiments import search
from clearance.experiments.recipe import read_recipe
from clearance.experiments.search import Trial
from cli.terminal import run


def test_what_was_chosen_is_printed_as_a_recipe_takes_it(monkeypatch, tmp_path):
    asked = []

    def trials(recipe, *_, **settings):
        asked.append(recipe)
        return [
            Trial(name, lr, 3, recipe.epochs, error, 0.01, error, ("finished",))
            for name in recipe.methods
            for lr, error in ((0.1, 0.2), (0.025, 0.05), (0.4, 0.3))
        ]

    monkeypatch.setattr(search, "search_settings", trials)
    status, shown, _ = run(
        "search", "--methods", "plain,foca", "--model", "tiny-cnn", "--out", str(tmp_path / "found")
    )
    assert status == 0
    assert asked[0].model == "tiny-cnn"
    (text,) = re.findall(r"^methods:\n(?:  .*\n)+", shown, re.MULTILINE)
    assert yaml.safe_load(text) == {
        "methods": {"plain": {"lr": 0.025}, "foca": {"lr": 0.025, "per_class": 3}}
    }
    (tmp_path / "mine.yaml").write_text(text, "utf-8")
    methods = read_recipe(tmp_path / "mine.yaml").methods
    assert (methods["foca"].lr, methods["foca"].per_class, methods["foca"].way) == (0.025, 3, "foca")
