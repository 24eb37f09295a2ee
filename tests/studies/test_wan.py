"""What is known of the experiments of Wan et al. (2018), and the recipes in which it is tried."""

import dataclasses

import pytest

from clearance.records import Record, Report
from clearance.report.numbers import THIN
from clearance.vocabulary import Measurement
from papers.engine import catalogue
from papers.engine.catalogue import paper, paper_claims, paper_datasets, paper_recipe
from papers.engine.ledger import TableRow
from papers.wan_2018 import accuracy, fgsm, protocol, study

CLAIMS = paper_claims("wan_2018")
PRINTED = {  # CIFAR-100 plainly, and with crop and mirror
    "softmax": (25.61, 21.60), "center": (24.85, 21.05), "l-softmax": (24.83, 20.98),
    "lgm-0.1": (23.74, 20.94), "lgm-0.2": (23.04, 20.85), "lgm": (23.80, 20.76),
}  # fmt: skip
FGSM_ERRORS = {
    "softmax": (0.68, 24.08, 75.56, 84.87), "center": (0.47, 43.13, 67.17, 85.49), "lgm": (0.39, 23.63, 64.40, 81.62)
}  # fmt: skip


class TestClaims:
    def test_every_row_has_its_source(self):
        assert all(claim.source.startswith(("[S]", "[2nd]")) for claim in CLAIMS.claims)
        assert not any(claim.recalled for claim in CLAIMS.claims)

    @pytest.mark.parametrize("augmented", [False, True])
    @pytest.mark.parametrize("method", PRINTED)
    def test_the_printed_errors_are_those_of_the_sheet(self, method, augmented):
        found = study.papers_number(accuracy.error_quantity(augmented), method, "cifar100")
        assert found == pytest.approx(PRINTED[method][augmented] / 100, abs=1e-9)

    @pytest.mark.parametrize(("place", "epsilon"), [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)])
    @pytest.mark.parametrize("method", FGSM_ERRORS)
    def test_the_printed_errors_under_attack_are_those_of_the_sheet(self, method, place, epsilon):
        quantity = fgsm.fgsm_quantity("accuracy", "white", epsilon)
        found = study.papers_number(quantity, method, "mnist")
        assert found is not None
        assert 100 * (1 - found) == pytest.approx(FGSM_ERRORS[method][place])
        assert study.papers_number(quantity, method, "digits") is None

    def test_studies_of_claims_are_there(self):
        named = {claim.study for claim in CLAIMS.claims if claim.study}
        assert named == {"accuracy", "fgsm", "verification", "fig1"}
        assert named | {"search", "search-settings", "combinations", "covariance", "left-out-class"} == set(
            paper("wan_2018").studies
        )


class TestRecipes:
    @pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10", "cifar100"])
    def test_methods_differ_in_loss_and_head_alone(self, dataset):
        methods = paper_recipe("wan_2018", dataset).methods
        expected = ("softmax", "center", "l-softmax", "gm", "lgm")
        assert tuple(n for n in methods if n not in ("lgm-0.1", "lgm-0.2")) == expected
        bare = [
            dataclasses.replace(m, loss="", loss_settings={}, mixture="none", means_lr=1.0, hidden=())
            for m in methods.values()
        ]
        behind = {m.hidden for m in methods.values() if m.mixture != "none"}
        assert behind == {
            (100,) if dataset == "cifar10" else ()
        }  # 2,048 features after ReLU are no Gaussian's
        assert all(method == bare[0] for method in bare)

    def test_alpha_is_as_released(self):
        settings = {d: paper_recipe("wan_2018", d).methods for d in paper_datasets("wan_2018")}
        assert {m["gm"].loss_settings["alpha"] for m in settings.values()} == {0.0}
        most = {d: m["lgm"].loss_settings["alpha"]["most"] for d, m in settings.items()}
        assert most == {"digits": 1.0, "mnist": 1.0, "cifar10": 0.3, "cifar100": 0.3}
        weights = {d: m["lgm"].loss_settings["likelihood_weight"] for d, m in settings.items()}
        assert weights == {"digits": 0.03, "mnist": 0.03, "cifar10": 0.1, "cifar100": 0.1}
        assert {m["lgm"].means_lr for m in settings.values()} == {0.3, 2.0, 10.0}

    def test_mnist_keeps_to_its_budget(self):
        recipe = paper_recipe("wan_2018", "mnist")
        assert recipe.steps is not None
        assert recipe.steps <= 4000
        assert recipe.model == "tiny-lenet-plus"

    @pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10", "cifar100"])
    def test_a_shorter_run_has_the_same_margins_at_the_same_parts_of_it(self, dataset):
        start = protocol.base_recipe(dataset)
        before = start.steps or start.epochs * protocol.STEPS_AN_EPOCH[dataset]
        half = protocol.paced(start, before // 2)
        alpha, shorter = (r.methods["lgm"].loss_settings["alpha"] for r in (start, half))
        assert shorter["every"] == pytest.approx(alpha["every"] / 2, abs=1)
        fading, faster = (r.methods["l-softmax"].loss_settings["softmax_weight"] for r in (start, half))
        for part in (0.1, 0.5, 0.9):
            left = [
                w["start"] * (1 + w["rate"] * part * steps) ** -w["power"]
                for w, steps in ((fading, before), (faster, before // 2))
            ]
            assert left[1] == pytest.approx(left[0], rel=1e-6)

    def test_the_full_protocol_is_the_released_one(self):
        mnist, hundred = (protocol.full_protocol(name) for name in ("mnist", "cifar100"))
        assert (mnist.steps, mnist.model, mnist.methods["lgm"].mixture) == (
            20_000,
            "lenet-plus",
            "class_scalar",
        )
        assert mnist.methods["softmax"].mixture == "none"
        assert mnist.methods["lgm"].loss_settings["variance_prior"] == 0  # the formula alone
        fading = mnist.methods["l-softmax"].loss_settings["softmax_weight"]
        assert fading["rate"] == pytest.approx(2.5e-5)
        assert (hundred.epochs, hundred.schedule, hundred.batch_size) == (307, "tenths", 128)
        assert hundred.methods["lgm"].loss_settings["alpha"]["every"] == pytest.approx(5000, rel=0.01)
        assert all(m.clip_norm is None for r in (mnist, hundred) for m in r.methods.values())
        with pytest.raises(ValueError, match="`dataset` must be one of 'mnist', 'cifar100'"):
            protocol.full_protocol("digits")

    def test_networks_for_pictures_have_two_features(self):
        recipe = protocol.plane_recipe("digits")
        assert {m.features for m in recipe.methods.values()} == {2}
        with pytest.raises(ValueError, match="`dataset` must be one of 'digits', 'mnist'"):
            protocol.plane_recipe("cifar10")
        assert (recipe.seeds, recipe.steps) == (1, protocol.PLANE_STEPS["digits"])

    def test_chosen_rates_take_the_place_of_the_recipes(self, monkeypatch):
        monkeypatch.setattr(catalogue, "learning_rates", lambda *_: {"lgm": 0.7})
        found = protocol.base_recipe("digits").methods
        assert found["lgm"].lr == 0.7
        assert found["gm"].lr == paper_recipe("wan_2018", "digits").methods["gm"].lr


def test_a_table_shows_mean_spread_verdict_and_the_papers_number():
    values = {"softmax": (0.2, 0.3, 0.25), "lgm": (0.1, 0.2, 0.15)}
    records = tuple(
        Record("mnist", method, seed, Measurement(
            "attacked", "accuracy", value, "fraction", 10,
            context={"attack": "FGSM", "box": "white", "epsilon": 0.1, "interval": "wilson 95 %"}))
        for method, row in values.items()
        for seed, value in enumerate(row)
    )  # fmt: skip
    report = Report({"methods": {"softmax": {}, "lgm": {}}}, {}, "", "", records=records)
    quantity = TableRow("", "attacked", "accuracy", better="higher",
                        context={"attack": "FGSM", "box": "white", "epsilon": 0.1})  # fmt: skip
    text = study.method_table(report, [study.Column("0.1", quantity, flipped=True)], "mnist")
    assert "| softmax | 75.0 % ± 5.0 % (paper: 24.1 %) |" in text.replace(THIN, " ")
    assert "| lgm | 85.0 % ± 5.0 % [worse] (paper: 23.6 %) |" in text.replace(THIN, " ")


def errors_of(softmax, lgm):
    records = tuple(
        Record(
            "digits",
            method,
            seed,
            Measurement("accuracy", "error", value, "fraction", 1000,
                        context={"split": "test", "augmented": False}),
        )
        for method, values in (("softmax", softmax), ("lgm", lgm))
        for seed, value in enumerate(values)
    )  # fmt: skip
    return Report({"methods": {"softmax": {}, "lgm": {}}}, {}, "", "", records=records)


@pytest.mark.parametrize(
    ("lgm", "words"),
    [
        ([0.011, 0.012, 0.012, 0.011, 0.011], "+0.12 (+0.06 to +0.18); **no**."),
        ([0.011, 0.012, 0.011, 0.012, 0.011], "+0.12 (+0.02 to +0.22); **cannot tell**."),
        ([0.008, 0.007, 0.008, 0.007, 0.008], "-0.26 (-0.33 to -0.19); **no**."),
        ([0.020, 0.019, 0.020, 0.021, 0.020], "**yes**."),
        ([0.012, 0.013, 0.009, 0.014, 0.010], "**cannot tell**."),
        ([0.008, 0.007, 0.008, 0.007], "**cannot tell**."),
        ([0.008], "-0.20; **cannot tell**."),
    ],
)
def test_two_tenths_of_a_point_are_allowed_for_the_whole_interval(lgm, words):
    softmax = [0.010, 0.010, 0.011, 0.010, 0.010][: len(lgm)]
    column = study.Column("test error", accuracy.error_quantity(False))
    assert accuracy.no_worse(errors_of(softmax, lgm), "lgm", column).endswith(words)
