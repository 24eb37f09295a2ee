"""``clearance search``: what it prints can be put to use."""

import re
from dataclasses import replace

import yaml

from clearance.experiments import search
from clearance.experiments.recipe import read_recipe
from clearance.experiments.search import Trial
from cli.terminal import run


def printed(shown):
    """The recipe file in what the command shows."""
    (text,) = re.findall(r"^Chosen settings.*\n((?:.*\n)+)", shown, re.MULTILINE)
    return text


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
        "search",
        "--methods",
        "plain,foca",
        "--model",
        "tiny-cnn",
        "--epochs",
        "7",
        "--out",
        str(tmp_path / "found"),
    )
    assert status == 0
    assert asked[0].model == "tiny-cnn"
    text = printed(shown)
    assert yaml.safe_load(text) == {
        "model": "tiny-cnn", "epochs": 7,
        "methods": {"plain": {"lr": 0.025}, "foca": {"lr": 0.025, "per_class": 3}},
    }  # fmt: skip
    (tmp_path / "mine.yaml").write_text(text, "utf-8")
    found = read_recipe(tmp_path / "mine.yaml")
    assert (found.model, found.epochs) == ("tiny-cnn", 7)
    methods = found.methods
    assert (methods["foca"].lr, methods["foca"].per_class, methods["foca"].way) == (0.025, 3, "foca")
    assert re.search(r"^ *foca .* 0\.025\* +3 +5\.00 %", shown, re.MULTILINE)
    assert re.search(r"^ *plain .* 0\.025\* +5\.00 %", shown, re.MULTILINE), (
        "no weak heads, no images per class"
    )


def test_what_the_caller_changed_is_printed_too(monkeypatch, tmp_path):
    given = tmp_path / "given.yaml"
    given.write_text(
        "dataset: digits\nmethods: {wide: {base: dropout, hidden: [64]}, plain: {weight_decay: 0.01}}\n"
    )

    def trials(recipe, *_, **settings):
        return [Trial(n, 0.2, 1, recipe.epochs, 0.1, 0.01, 0.1, ("finished",)) for n in recipe.methods]

    monkeypatch.setattr(search, "search_settings", trials)
    status, shown, _ = run("search", "--recipe", str(given), "--out", str(tmp_path / "found"))
    assert status == 0
    text = printed(shown)
    (tmp_path / "chosen.yaml").write_text("dataset: digits\n" + text, "utf-8")
    before, after = read_recipe(given).methods, read_recipe(tmp_path / "chosen.yaml").methods
    assert after == {name: replace(method, lr=0.2) for name, method in before.items()}


def test_a_method_none_of_whose_trials_was_measured_costs_no_other(monkeypatch, tmp_path):
    def trials(recipe, *_, **settings):
        ended = {"plain": "finished", "hinge": "failed: No space left on device"}
        return [Trial(n, 0.1, 3, recipe.epochs, 0.2, 0.01, 0.2, (ended[n],)) for n in recipe.methods]

    monkeypatch.setattr(search, "search_settings", trials)
    status, shown, _ = run("search", "--methods", "plain,hinge", "--out", str(tmp_path / "found"))
    assert status == 1
    assert list(yaml.safe_load(printed(shown).split("\n1 of")[0])["methods"]) == ["plain"]
    assert "1 of 2 trials failed" in shown
    assert (tmp_path / "found" / "search.json").exists()
