"""A sweep: what is written, what is run, and that every number says at which value it was found."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from clearance.experiments.compare import Comparison
from clearance.experiments.grid import plans_of
from clearance.experiments.method import Method
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe, tuned_recipe
from clearance.experiments.run import RunFindings, run_method
from clearance.experiments.sweep import (
    Sweep,
    at_values,
    parse_sweep,
    swept_recipes,
    swept_report,
    with_swept_audits,
)
from clearance.records.record import LeftOut
from clearance.report import Card, comparison_table
from clearance.report.sweep import at_shown


class TestWords:
    def test_a_range_has_equal_ratios_and_both_ends(self):
        swept = parse_sweep("weight_decay=1e-5:1e-1:9")
        assert len(swept.values) == 9
        assert swept.values[::8] == (1e-5, 1e-1)
        ratios = [b / a for a, b in zip(swept.values, swept.values[1:], strict=False)]
        assert ratios == pytest.approx([10**0.5] * 8)
        assert parse_sweep("lr=0.1,0.01").values == (0.1, 0.01)
        assert parse_sweep("weight-decay=0,0.1") == Sweep("weight_decay", (0.0, 0.1))

    def test_whole_numbers_stay_whole(self):
        assert parse_sweep("head_steps=1:100:3").values == (1, 10, 100)
        assert all(isinstance(value, int) for value in parse_sweep("epochs=2,4").values)
        assert parse_sweep("clip_norm=1,5").values == (1.0, 5.0)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("weight_decay", "FIELD=LOW:HIGH:COUNT"),
            ("weight_dekay=1,2", "Did you mean 'weight_decay'"),
            ("norm=1,2", "`sweep` must.*Make a separate method"),
            ("hidden=1,2", "`sweep` must"),
            ("recalibrate=0,1", "`sweep` must"),
            ("schedule=cosine,constant", "`sweep` must.*got 'schedule'"),
            ("lr=0:1:3", "0 < LOW < HIGH"),
            ("lr=0.1:1", "COUNT at least 2"),
            ("lr=0.1:1:1", "COUNT at least 2"),
            ("lr=a,b", "must be numbers"),
            ("lr=0.1,0.1", "each once"),
            ("lr=0.1", "at least two"),
            ("epochs=1:10:3", "`epochs` takes whole numbers"),
        ],
    )
    def test_wrong_words_are_one_clear_error(self, text, said):
        with pytest.raises(ValueError, match=said):
            parse_sweep(text)


class TestRecipes:
    START = Recipe(epochs=3, methods={"plain": Method(), "noisy": Method(head_noise=0.1)})

    def test_only_the_field_differs(self):
        recipes = swept_recipes(self.START, Sweep("weight_decay", (0.0, 0.1)))
        assert [r.methods["noisy"].weight_decay for r in recipes.values()] == [0.0, 0.1]
        assert {r.methods["noisy"].head_noise for r in recipes.values()} == {0.1}
        assert swept_recipes(self.START, Sweep("epochs", (1, 2)))[2].epochs == 2
        assert self.START.methods["plain"].weight_decay == 5e-4

    def test_a_sweep_measures_what_its_curves_are_of_unless_audits_are_named(self):
        assert with_swept_audits(self.START).audits == (*Recipe().audits, "boundary_distance", "weight_scale")
        assert with_swept_audits(Recipe(audits=("accuracy",))).audits == ("accuracy",)

    def test_every_value_has_runs_of_its_own(self):
        recipes = swept_recipes(self.START, Sweep("lr", (0.01, 0.02)))
        folders = {plan.folder for recipe in recipes.values() for plan in plans_of(recipe)}
        assert len(folders) == 2 * 2 * Recipe().seeds

    def test_a_setting_of_the_loss_is_changed_in_every_method(self):
        margins = {
            "a": Method(loss="hinge"),
            "b": Method(loss="hinge", loss_settings={"form": "sum"}),
        }
        recipes = swept_recipes(Recipe(methods=margins), parse_sweep("loss_settings.margin=0.5:2:3"))
        assert {v: dict(r.methods["b"].loss_settings) for v, r in recipes.items()} == {
            v: {"form": "sum", "margin": v} for v in (0.5, 1.0, 2.0)
        }
        assert Sweep("loss_settings.margin", (0.5, 1.0)).setting == "loss_margin"
        made = Method(loss="large-margin", loss_settings={"layers": ["input"]})
        changed = swept_recipes(Recipe(methods={"m": made}), parse_sweep("loss_settings.top_k=1,2"))
        assert [type(r.methods["m"].loss_settings["top_k"]) for r in changed.values()] == [int, int]
        whole = Method(
            loss="large-margin", loss_settings={"layers": ["input"], "gamma": 1}
        )  # as YAML reads 1
        changed = swept_recipes(Recipe(methods={"m": whole}), parse_sweep("loss_settings.gamma=0.5,1"))
        assert [r.methods["m"].loss_settings["gamma"] for r in changed.values()] == [0.5, 1.0]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("loss_settings.margin=1,2", "method 'plain' has the loss 'cross-entropy', which has none"),
            ("head_steps=8,16", "needs methods with `way: foca`; method 'plain' has 'end_to_end'"),
            ("train_fraction=0.5,1.5", "`train_fraction` must lie"),
        ],
    )
    def test_what_not_every_method_has_is_refused(self, text, said):
        with pytest.raises(ValueError, match=said):
            swept_recipes(self.START, parse_sweep(text))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("form=1,2", "needs a setting that is a number; got 'loss_settings.form'"),
            ("marign=1,2", "only margin"),
        ],
    )
    def test_what_the_loss_does_not_have_is_refused(self, text, said):
        hinge = Recipe(methods={"a": Method(loss="hinge")})
        with pytest.raises(ValueError, match=said):
            swept_recipes(hinge, parse_sweep(f"loss_settings.{text}"))

    def test_epochs_of_a_recipe_that_counts_steps_are_refused(self):
        with pytest.raises(ValueError, match=r"has no effect, because the length is set to 5 steps"):
            swept_recipes(dataclasses.replace(self.START, steps=5), parse_sweep("epochs=1,4"))

    def test_an_impossible_value_is_refused_by_what_gets_it(self):
        with pytest.raises(ValueError, match="`momentum` must lie"):
            swept_recipes(self.START, parse_sweep("momentum=0.9,1.5"))


@pytest.fixture(scope="module")
def report():
    from clearance.data.synthetic import GaussianClasses
    from clearance.experiments.build import RunData

    world = GaussianClasses(class_count=3, separation=5.0, noise=0.05)
    data = RunData(world.images(8, seed=0), world.images(10, seed=1))
    start = Recipe(dataset="gaussian", epochs=2, batch_size=8, seeds=2, audits=("accuracy",),
                   methods={"plain": Method(hidden=(8,)), "noisy": Method(hidden=(8,), head_noise=0.5)})  # fmt: skip
    swept = parse_sweep("lr=0.001:0.1:3")
    found = [
        (value, run_method(plan, data))
        for value, r in swept_recipes(start, swept).items()
        for plan in plans_of(r)
    ]
    return swept_report(report_of(start, at_values(found, swept), "compare"), swept, start)


def test_what_changes_the_network_is_refused_with_a_network_of_the_caller_s():
    recipe = Recipe(methods={"plain": Method()})
    with pytest.raises(ValueError, match=r"`model` must be a name with a `sweep` of 'dropout'"):
        Comparison(recipe, parse_sweep("dropout=0.1,0.5"), model=tiny_network)


def tiny_network():
    """Never built."""
    raise AssertionError


def test_from_python_it_is_the_same_words():
    from clearance.data.synthetic import GaussianClasses
    from clearance.experiments.compare import compare
    from clearance.losses import CrossEntropyLoss

    world = GaussianClasses(class_count=3, separation=5.0, noise=0.05)
    given = world.images(8, seed=0), world.images(10, seed=1)
    card = compare(["plain"], *given, seeds=1, epochs=1, audits=["accuracy"], sweep="momentum=0,0.9")
    assert {record.measurement.context["momentum"] for record in card.records} == {0.0, 0.9}
    assert "Over momentum" in card.to_html()
    with pytest.raises(ValueError, match="changes the images, but the images are given here"):
        compare(["plain"], *given, seeds=1, epochs=1, audits=["accuracy"], sweep="train_fraction=0.5,1")
    with pytest.raises(ValueError, match="`sweep` must"):
        compare(["plain"], *given, seeds=1, epochs=1, audits=["accuracy"], sweep="hidden=1,2")
    with pytest.raises(ValueError, match="`sweep` of 'head_noise' does not change mine"):
        compare({"mine": CrossEntropyLoss()}, *given, sweep="head_noise=0,5")


def test_a_failed_audit_says_at_which_value():
    lost = RunFindings(None, (), (), left_out=(LeftOut("accuracy", "failed", "ValueError: no"),))
    found = at_values([(0.1, lost), (0.2, lost)], parse_sweep("lr=0.1,0.2"))
    assert [one.left_out[0].reason for one in found] == ["ValueError: no (lr 0.1)", "ValueError: no (lr 0.2)"]


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
class TestReport:
    def test_every_number_says_its_value_and_is_compared_within_it(self, report):
        assert {record.measurement.context["lr"] for record in report.records} == {0.001, 0.01, 0.1}
        rows = [row for row in report.summary if (row.kind, row.audit) == ("difference", "accuracy")]
        assert {row.context["lr"] for row in rows} == {0.001, 0.01, 0.1}
        assert all(row.seeds == 2 for row in rows)
        assert [note.status.rpartition(" (")[2] for note in report.runs][::4] == [
            "lr 0.001)",
            "lr 0.01)",
            "lr 0.1)",
        ]
        assert json.loads(report.to_json())["recipe"]["sweep"]["values"] == [0.001, 0.01, 0.1]

    def test_the_figure_has_every_value_and_the_rest_of_the_page_one(self, report, tmp_path):
        page = Card(report).save_folder(tmp_path).read_text("utf-8")
        assert "Over lr" in page
        (curve,) = tmp_path.glob("exhibits/*over_setting*")
        shown = json.loads(curve.read_text("utf-8"))["columns"]
        means = {
            (record.method, record.seed, record.measurement.context["lr"]): record.measurement.value
            for record in report.records
            if (record.measurement.audit, record.measurement.name) == ("accuracy", "error")
            and record.measurement.context["split"] == "test"
        }
        drawn = [
            (method, value, mean)
            for method, quantity, value, mean in zip(
                shown["method"], shown["quantity"], shown["setting"], shown["mean"], strict=True
            )
            if quantity == "error"
        ]
        assert len(drawn) == 2 * 3
        for method, value, mean in drawn:
            assert mean == pytest.approx((means[method, 0, value] + means[method, 1, value]) / 2)
        # 0.05, plain's own, is not among the values: the middle one stands for the rest of the page
        here = at_shown(report)
        assert {record.measurement.context["lr"] for record in here.records} == {0.01}
        table = comparison_table(report)
        assert table == comparison_table(here)
        assert len(table.rows) == 2

    def test_a_method_s_own_value_is_the_one_that_is_shown(self):
        start = Recipe(methods={"plain": Method(lr=0.1)})
        swept = Sweep("lr", (0.1, 0.2, 0.3))
        assert swept_report(report_of(start, [], ""), swept, start).recipe["sweep"]["shown"] == 0.1


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("train_fraction=0.02,0.1", {0.02: 26, 0.1: 130}),
        ("lr=0.01,0.1", {0.01: 130, 0.1: 130}),
    ],
)
def test_each_value_was_trained_on_its_own_share(sweep, expected):
    start = tuned_recipe("digits")
    recipe = replace(
        start,
        seeds=2,
        epochs=1,
        train_fraction=0.1,
        audits=("accuracy",),
        methods={"plain": start.methods["plain"]},
    )
    with ThreadPoolExecutor(1) as engine:
        card = Comparison(recipe, parse_sweep(sweep)).run(engine)
    name = sweep.partition("=")[0]
    found = {
        (m.context[name], r.seed): m.n
        for r in card.records
        if (m := r.measurement).audit == "accuracy" and m.context["split"] == "train"
    }
    assert found == {(value, seed): count for value, count in expected.items() for seed in (0, 1)}
    ends = [note.status.rpartition("(")[2] for note in card.report.runs]
    assert sorted(ends) == sorted(f"{name} {value})" for value in expected for _ in (0, 1))
