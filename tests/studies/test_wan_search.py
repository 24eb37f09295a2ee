"""The search and the combinations of the L-GM studies: what is tried, what is combined, what their files say."""

import csv
import dataclasses
import tomllib

import pytest

from clearance.experiments.build import build_data, build_optimizer, build_way
from clearance.experiments.method import Method
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.saved import build_model
from clearance.experiments.search import Trial
from clearance.heads.scale import feature_unit
from clearance.records import Record
from clearance.training import Limits, fit
from clearance.vocabulary import Measurement
from papers.engine import rate_search
from papers.engine.catalogue import learning_rates, paper_recipe, with_settings
from papers.engine.reproduce import reproduce
from papers.engine.study import NoDataError, StudyRequest
from papers.engine.verify import ROOT, verified
from papers.wan_2018 import combinations, covariance, protocol, search_rates, search_settings
from studies.small_runs import cells, grids_here, interval, number, stored, with_changes

pytestmark = pytest.mark.filterwarnings("ignore:the final head is right on")  # after a few steps

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

    def test_on_cifar100_every_method_is_tried_with_two_values_of_one_setting(self):
        (searched,) = search_rates.searched_recipes("cifar100").values()
        second = protocol.PROTOCOLS["cifar100"].search_settings
        own = paper_recipe("wan_2018", "cifar100").methods
        assert list(second) == list(own)
        for name, settings in second.items():
            ((key, value),) = settings.items()
            before, after = searched.methods[name], searched.methods[f"{name}, {key} {value:g}"]
            assert before == own[name]
            assert after != before
            assert after == with_settings(before, {key: value})
        assert len(searched.methods) == 2 * len(own)

    def test_what_studies_of_cifar100_use_is_the_best_of_the_committed_trials(self):
        with (ROOT / "wan_2018/results/search/cifar100-all.csv").open(encoding="utf-8") as file:
            trials = list(csv.DictReader(file))
        second = protocol.PROTOCOLS["cifar100"].search_settings
        for name, method in protocol.base_recipe("cifar100").methods.items():
            own = [trial for trial in trials if trial["method"].split(", ")[0] == name]
            best = min(own, key=lambda trial: float(trial["own_error"]))
            settings = second[name] if "," in best["method"] else {}
            start = paper_recipe("wan_2018", "cifar100").methods[name]
            assert method == with_settings(start, {"lr": float(best["lr"]), **settings}), name

    def test_what_studies_of_cifar10_use_is_the_best_of_the_committed_trials(self):
        with (ROOT / "wan_2018/results/search/cifar10-all.csv").open(encoding="utf-8") as file:
            trials = list(csv.DictReader(file))
        for name, method in protocol.base_recipe("cifar10").methods.items():
            own = [trial for trial in trials if trial["method"] == name]
            rates = sorted(float(trial["lr"]) for trial in own)
            best = float(min(own, key=lambda trial: float(trial["own_error"]))["lr"])
            assert method.lr == best, name
            assert rates[0] < best < rates[-1], name

    def test_the_rates_that_were_chosen_name_methods_that_are_there(self):
        for dataset in protocol.PROTOCOLS:
            for condition, recipe in search_rates.searched_recipes(dataset).items():
                assert set(learning_rates("wan_2018", dataset, condition)) <= set(recipe.methods)


class TestSettings:
    def test_every_method_has_as_many_trials_at_the_studys_length(self):
        for dataset in ("digits", "mnist"):
            recipe, study = search_settings.candidates(dataset), protocol.base_recipe(dataset)
            assert (recipe.epochs, recipe.steps) == (study.epochs, study.steps)
            assert recipe.held_out > 0
            assert [label.split()[0] for label in recipe.methods] == [
                m for m in study.methods for _ in range(4)
            ]
            for label, method in recipe.methods.items():
                name, setting = label.split()
                key, value = setting.split("=")
                given = {**vars(method), **method.loss_settings}[key]
                assert given == float(value)
                bare = dataclasses.replace(method, means_lr=1.0, weight_decay=0.0, loss_settings={})
                start = study.methods[name]
                assert bare == dataclasses.replace(start, means_lr=1.0, weight_decay=0.0, loss_settings={})

    def test_the_rule_reads_error_first_and_then_detection(self, tmp_path):
        trials = [
            search_settings.Tried(name, value, error, area, ("finished",))
            for name, (_, values) in search_settings.SETTING.items()
            for value, error, area in zip(
                values, (0.01, 0.014, 0.012, 0.03), (0.5, 0.8, 0.7, 0.9), strict=True
            )
        ]
        path = search_settings.write_trials(trials, "digits", tmp_path)
        text = path.read_text("utf-8")
        found = tomllib.loads(text.split("```toml")[1].split("```")[0])["digits"]["all"]
        second = {name: values[1] for name, (_, values) in search_settings.SETTING.items()}
        assert {name: found[name][search_settings.SETTING[name][0]] for name in found} == second
        rates = {name: method.lr for name, method in protocol.base_recipe("digits").methods.items()}
        assert {name: settings["lr"] for name, settings in found.items()} == rates
        assert len((tmp_path / "search-all.csv").read_text("utf-8").splitlines()) == 1 + len(trials)

    def test_a_run_is_read_by_its_own_score_and_a_failed_one_is_the_worst(self):
        def record(audit, name, value, **context):
            return Record("digits", "x", 0, Measurement(audit, name, value, "fraction", 10, context=context))

        attack = {"attack": "FGSM", "counted": "all", "negatives": "originals"}
        records = [
            record("accuracy", "error", 0.02, split="test"),
            record("accuracy", "error", 0.5, split="train"),
        ]
        for epsilon, own, other in ((0.1, 0.6, 0.9), (0.2, 0.8, 0.9)):
            records.append(record("likelihood", "auroc", own, **attack, epsilon=epsilon, score="class mean"))
            records.append(
                record("likelihood", "auroc", other, **attack, epsilon=epsilon, score="likelihood")
            )
        good, bad = RunFindings(None, tuple(records), ()), RunFindings(None, (), ())
        trial = search_settings.tried("center", {"weight": 0.1}, [good])
        assert (trial.own_error, trial.area, trial.value) == (0.02, pytest.approx(0.7), 0.1)
        trial = search_settings.tried("lgm", {"means_lr": 3.0}, [good, bad])
        assert (trial.own_error, trial.area) == (pytest.approx(0.51), pytest.approx(0.45))


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

    @pytest.mark.slow
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


def test_variances_alone_differ_and_every_row_is_in_the_table(monkeypatch, tmp_path):
    recipe = covariance.covariance_recipe()
    forms = {name: method.mixture for name, method in recipe.methods.items()}
    assert list(forms.values()) == ["identity", *covariance.LEARNED]
    fixed, *learned = recipe.methods.values()
    assert all(dataclasses.replace(one, mixture=fixed.mixture) == fixed for one in learned)
    plans: list[RunPlan] = []
    grids_here(monkeypatch, plans)
    few = {"per_class": [1], "repetitions": [2], "all_images": False, "hidden": [4], "most_steps": 5}
    brief = dataclasses.replace(
        recipe, seeds=SEEDS, epochs=2, train_fraction=0.2, audit_settings={"co_adaptation": few}
    )
    monkeypatch.setattr(covariance, "covariance_recipe", lambda seeds: brief)
    reproduce("wan_2018", only="covariance", seeds=SEEDS, out=tmp_path)
    found, shown = stored(tmp_path, plans), cells(tmp_path)
    assert list(shown) == [row.label for row in covariance.ROWS]
    for method in recipe.methods:
        values = [
            number(found[method, seed], "calibration", "nll", temperature="as trained")
            for seed in range(SEEDS)
        ]
        assert shown[covariance.ROWS[1].label][method].startswith(f"{interval(values)[0]:.3g} nats")
    assert verified(tmp_path / "ledger.json").problems == ()


def small(seeds=None):
    """A few steps on a tenth of the digits, audited briefly."""
    recipe = FULL(seeds)
    methods: dict[str, Method] = {
        name: with_changes(
            method,
            final_head_steps=3,
            features=8,
            **({"head_steps": 2} if method.weak_heads == "gradient" else {}),
        )
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
