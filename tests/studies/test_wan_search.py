"""The search and the combinations of the L-GM studies: what is tried, what is combined, what their files say."""

import dataclasses
import tomllib

import pytest

from clearance.experiments.build import build_data, build_optimizer, build_way
from clearance.experiments.method import Method
from clearance.experiments.run import RunPlan
from clearance.experiments.saved import build_model
from clearance.experiments.search import Trial
from clearance.heads.scale import feature_unit
from clearance.training import Limits, fit
from papers.engine import rate_search
from papers.engine.catalogue import learning_rates
from papers.engine.reproduce import reproduce
from papers.engine.study import NoDataError, StudyRequest
from papers.wan_2018 import combinations, protocol, search_rates
from studies.small_runs import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    cells,
    grids_here,
    interval,
    number,
    stored,
)

SEEDS = 2
FULL = combinations.combinations_recipe


class TestSearch:
    def test_every_condition_is_that_of_its_study(self):
        found = search_rates.searched_recipes("digits")
        assert list(found["all"].methods) == list(protocol.base_recipe("digits").methods)
        assert {m.features for m in found["plane"].methods.values()} == {2}
        assert list(found["combinations"].methods) == list(combinations.combinations_recipe().methods)
        assert {r.seeds for r in found.values()} == {2}

    def test_trials_on_mnist_are_shorter_and_margins_grow_as_fast(self):
        (whole, plane) = search_rates.searched_recipes("mnist").values()
        assert whole.steps == plane.steps == 600
        every, before = (
            recipe.methods["lgm"].loss_settings["alpha"]["every"]
            for recipe in (whole, protocol.base_recipe("mnist"))
        )
        assert every / 600 == pytest.approx(before / 2000, rel=0.01)

    def test_the_files_say_what_was_tried_and_what_is_best(self, monkeypatch, tmp_path):
        asked = []

        def search(recipe, directory, jobs, listener, *, per_class, criterion, widenings, **rest):
            assert len(per_class) == 1  # FOCA's methods get no more trials than others
            asked.append((list(recipe.methods), criterion))
            return [
                Trial(
                    name,
                    method.lr * factor,
                    method.per_class,
                    recipe.epochs,
                    None,
                    None,
                    error,
                    ("finished",),
                )
                for name, method in recipe.methods.items()
                for factor, error in ((0.5, 0.2), (1.0, 0.1), (2.0, 0.3))
            ]

        monkeypatch.setattr(rate_search, "search_settings", search)
        path = search_rates.run(StudyRequest(tmp_path))
        assert [criterion for _, criterion in asked] == ["own_error"] * 3
        text = path.read_text("utf-8")
        blocks = [part.split("```")[0] for part in text.split("```toml")[1:]]
        rates = tomllib.loads("\n".join(blocks))["digits"]
        for condition, recipe in search_rates.searched_recipes("digits").items():
            assert rates[condition] == {name: method.lr for name, method in recipe.methods.items()}
            lines = (tmp_path / f"search-{condition}.csv").read_text("utf-8").splitlines()
            assert len(lines) == 1 + 3 * len(recipe.methods)

    def test_without_files_nothing_is_searched(self, tmp_path):
        with pytest.raises(NoDataError, match="needs the files of mnist"):
            search_rates.run(StudyRequest(tmp_path, dataset="mnist"))

    def test_the_rates_that_were_chosen_name_methods_that_are_there(self):
        for dataset in protocol.PROTOCOLS:
            for condition, recipe in search_rates.searched_recipes(dataset).items():
                assert set(learning_rates("wan_2018", dataset, condition)) <= set(recipe.methods)


class TestCombinations:
    def test_a_combination_is_the_sum_of_what_it_stands_beside(self):
        methods = FULL().methods
        both, lgm, margin = (methods[name] for name in (combinations.BOTH, "lgm", combinations.MARGIN))
        parts = both.loss_settings["parts"]
        assert parts["lgm"] == {"loss": "gaussian-mixture", **lgm.loss_settings}
        assert parts["margin"] == {
            "loss": "large-margin", **margin.loss_settings, "cross_entropy_weight": 0.0
        }  # fmt: skip
        assert dataclasses.replace(both, loss="", loss_settings={}, lr=1.0) == dataclasses.replace(
            lgm, loss="", loss_settings={}, lr=1.0
        )
        foca, mixtures = methods[combinations.FOCA], methods[combinations.FOCA_GM]
        assert (mixtures.weak_heads, mixtures.mixture, foca.weak_heads, foca.mixture) == (
            "mixture", "scalar", "gradient", "none"
        )  # fmt: skip
        differs = {name for name in vars(foca) if getattr(foca, name) != getattr(mixtures, name)}
        assert differs <= {"weak_heads", "mixture", "lr"}

    def test_one_table_with_every_method_and_every_combination_against_its_parts(self, monkeypatch, tmp_path):
        plans: list[RunPlan] = []
        grids_here(monkeypatch, plans)
        monkeypatch.setattr(combinations, "combinations_recipe", small)
        reproduce("wan_2018", only="combinations", seeds=SEEDS, out=tmp_path)
        found = stored(tmp_path, plans)
        row = cells(tmp_path)[combinations.OWN_HEAD.label]
        assert tuple(row) == tuple(FULL().methods)
        for method in row:
            errors = [number(found[method, seed], "accuracy", "error", split="test") for seed in range(SEEDS)]
            assert row[method].startswith(f"{100 * interval(errors)[0]:.1f}")
        text = (tmp_path / "ledger.md").read_text("utf-8")
        for combined, part in combinations.PAIRS:
            assert f"- {combined} against {part}, own head: " in text
        assert all(note in text for note in ("training time", combinations.UNDER_ATTACK.label))


def small(seeds=None):
    """A few steps on a tenth of the digits, audited briefly."""
    recipe = FULL(seeds)
    methods: dict[str, Method] = {
        name: dataclasses.replace(method, final_head_steps=3, head_steps=2, features=8)
        for name, method in recipe.methods.items()
    }
    few = {"per_class": [1], "repetitions": [2], "all_images": False, "hidden": [4]}
    few |= {"least_steps": 2, "passes": 1, "most_steps": 5}
    attacks = {"epsilons": {"inf": [0.1]}, "images": 10, "steps": 2, "queries": 5}
    settings = {"co_adaptation": few, "robustness": attacks}
    return dataclasses.replace(recipe, epochs=1, train_fraction=0.1, methods=methods, audit_settings=settings)


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
