"""The studies of Wan et al. (2018), small: what they vary, what they share, what their ledgers say."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import nn

from clearance.attacks import FGSM
from clearance.experiments import reproduce as reproduce_module
from clearance.experiments.build import build_data
from clearance.experiments.catalogue import AUDITS, STUDIES
from clearance.experiments.papers import paper_claims, paper_datasets, paper_recipe
from clearance.experiments.plan import RunPlan
from clearance.experiments.reproduce import reproduce
from clearance.experiments.reproductions.sato_2019.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018 import (
    accuracy,
    fgsm,
    fgsm_attacks,
    protocol,
    study,
    verification,
)
from clearance.experiments.run import run_method
from clearance.heads import GaussianMixture
from clearance.models import Classifier
from clearance.objectives import CrossEntropyLoss, GaussianMixtureLoss
from clearance.records import Record, Report
from clearance.report.numbers import THIN
from clearance.runs import read_result
from clearance.vocabulary import Measurement

CLAIMS = paper_claims("wan-2018")
SHEET = [
    *(f"C{k}" for k in range(1, 13)),
    "I1",
    "I2",
    "I3",
    "I4",
    "L1",
    "A0",
    "A1",
    "A2",
    "A3",
    "V1",
    "V2",
    "Q1",
]
METHODS = ("softmax", "center", "l-softmax", "gm", "lgm")
PRINTED = {  # CIFAR-100 plainly, and with crop and mirror
    "softmax": (25.61, 21.60), "center": (24.85, 21.05), "l-softmax": (24.83, 20.98),
    "lgm-0.1": (23.74, 20.94), "lgm-0.2": (23.04, 20.85), "lgm": (23.80, 20.76),
}  # fmt: skip
FGSM_ERRORS = {
    "softmax": (0.68, 24.08, 75.56, 84.87), "center": (0.47, 43.13, 67.17, 85.49), "lgm": (0.39, 23.63, 64.40, 81.62)
}  # fmt: skip


class Unrendered:
    """A card that writes its report and draws no page, which takes longer than the runs."""

    def __init__(self, report):
        self.report = report

    def save_folder(self, out):
        self.report.save(out)


@pytest.fixture
def quick(monkeypatch):
    """All methods on 130 digits for a few steps, in this process; the plans that were run."""
    plans = []

    def run_grid(given, data, directory, jobs, listener):
        plans.extend(given)
        return [run_method(plan, data, directory) for plan in given]

    full = protocol.base_recipe

    def recipe(dataset="digits", root=None, seeds=None, condition="all"):
        start = full(dataset, root, seeds or 1, condition)
        return dataclasses.replace(start, epochs=4, steps=None, batch_size=16, train_fraction=0.1)

    monkeypatch.setattr(study, "Card", Unrendered)
    monkeypatch.setattr("clearance.experiments.reproductions.elsayed_2018.conditions.run_grid", run_grid)
    monkeypatch.setattr(fgsm, "run_grid", run_grid)
    monkeypatch.setattr(verification, "run_grid", run_grid)
    for module in (protocol, fgsm, verification):
        monkeypatch.setattr(module, "base_recipe", recipe)
    asked = fgsm.attacked_recipe

    def briefly(*given):
        start = asked(*given)
        verdict = {**start.audit_settings["robustness"], "steps": 2, "queries": 2}
        return dataclasses.replace(start, audit_settings={"robustness": verdict})

    monkeypatch.setattr(fgsm, "attacked_recipe", briefly)
    small = dataclasses.replace(protocol.PROTOCOLS["digits"], epsilons=(0.1, 0.3), verdict_images=10)
    monkeypatch.setitem(protocol.PROTOCOLS, "digits", small)
    return plans


def verdicts(folder):
    told = json.loads((folder / "ledger.json").read_text("utf-8"))
    return {row["id"]: row for row in told["claims"]}


def measured(folder, audit, name, **context):
    """{method: value} of the measurement with these settings."""
    told = json.loads((folder / "report.json").read_text("utf-8"))
    return {
        row["method"]: row["value"]
        for row in told["measurements"]
        if (row["audit"], row["name"]) == (audit, name)
        and all(row["context"].get(key) == value for key, value in context.items())
    }


def rows_below(text, title):
    """The cells of the table under a heading, by the first of each row."""
    lines = text[text.index(title) :].splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("|"))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[name] = cells
    return found


class TestClaims:
    def test_every_row_of_the_sheet_is_there_with_its_source(self):
        assert [claim.id for claim in CLAIMS.claims] == SHEET
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
        assert named | {"search", "combinations"} == set(STUDIES["wan-2018"])


class TestRecipes:
    @pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10", "cifar100"])
    def test_methods_differ_in_loss_and_head_alone(self, dataset):
        methods = paper_recipe("wan-2018", dataset).methods
        expected = ("softmax", "center", "l-softmax", "gm", "lgm")
        assert tuple(n for n in methods if n not in ("lgm-0.1", "lgm-0.2")) == expected
        bare = [
            dataclasses.replace(m, objective="", objective_settings={}, mixture="none", means_lr=1.0)
            for m in methods.values()
        ]
        assert all(method == bare[0] for method in bare)

    def test_alpha_is_as_released(self):
        settings = {d: paper_recipe("wan-2018", d).methods for d in paper_datasets("wan-2018")}
        assert {m["gm"].objective_settings["alpha"] for m in settings.values()} == {0.0}
        most = {d: m["lgm"].objective_settings["alpha"]["most"] for d, m in settings.items()}
        assert most == {"digits": 1.0, "mnist": 1.0, "cifar10": 0.3, "cifar100": 0.3}
        weights = {d: m["lgm"].objective_settings["likelihood_weight"] for d, m in settings.items()}
        assert weights == {"digits": 0.03, "mnist": 0.03, "cifar10": 0.1, "cifar100": 0.1}
        assert {m["lgm"].means_lr for m in settings.values()} == {0.3, 2.0}

    def test_mnist_keeps_to_its_budget(self):
        recipe = paper_recipe("wan-2018", "mnist")
        assert recipe.steps is not None
        assert recipe.steps <= 4000
        assert recipe.model == "lenet-plus"

    @pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10", "cifar100"])
    def test_a_shorter_run_has_the_same_margins_at_the_same_parts_of_it(self, dataset):
        start = protocol.base_recipe(dataset)
        before = start.steps or start.epochs * protocol.STEPS_AN_EPOCH[dataset]
        half = protocol.paced(start, before // 2)
        alpha, shorter = (r.methods["lgm"].objective_settings["alpha"] for r in (start, half))
        assert shorter["every"] == pytest.approx(alpha["every"] / 2, abs=1)
        fading, faster = (r.methods["l-softmax"].objective_settings["softmax_weight"] for r in (start, half))
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
        fading = mnist.methods["l-softmax"].objective_settings["softmax_weight"]
        assert fading["rate"] == pytest.approx(2.5e-5)
        assert (hundred.epochs, hundred.schedule, hundred.batch_size) == (307, "tenths", 128)
        assert hundred.methods["lgm"].objective_settings["alpha"]["every"] == pytest.approx(5000, rel=0.01)
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
        monkeypatch.setattr(protocol, "learning_rates", lambda dataset, condition: {"lgm": 0.7})
        found = protocol.base_recipe("digits").methods
        assert found["lgm"].lr == 0.7
        assert found["gm"].lr == paper_recipe("wan-2018", "digits").methods["gm"].lr


class TestAccuracy:
    def test_a_table_of_errors_and_a_ledger_with_every_claim(self, quick, tmp_path):
        path = accuracy.run(tmp_path, seeds=2, jobs=1, listener=reproduce_module.silent)
        assert [(p.method, p.seed) for p in quick] == [(m, s) for s in (0, 1) for m in METHODS]
        text = path.read_text("utf-8")
        assert list(verdicts(tmp_path)) == SHEET
        told = json.loads((tmp_path / "report.json").read_text("utf-8"))
        rows = rows_below(text, "## Errors")
        assert tuple(rows) == METHODS
        for method in METHODS:
            errors = [
                row["value"]
                for row in told["measurements"]
                if (row["method"], row["audit"], row["context"].get("split"), row["context"].get("augmented"))
                == (method, "accuracy", "test", False)
            ]
            assert len(errors) == 2
            assert rows[method][0].startswith(f"{50 * sum(errors):.1f} % ± ")
            assert ("[" in rows[method][0]) == (method != "softmax")

    def test_only_cifar100_is_run_with_and_without_crop_and_mirror(self):
        recipes = protocol.accuracy_recipes("cifar100")
        assert [(r.augment_flip, r.augment_pad) for r in recipes.values()] == [(False, 0), (True, 4)]
        assert list(protocol.accuracy_recipes("cifar10")) == [True]


class TestFgsm:
    def test_errors_grow_with_the_radius_and_the_verdict_stands_beside(self, quick, tmp_path):
        path = fgsm.run(tmp_path, seeds=1, jobs=1, listener=reproduce_module.silent)
        for method in METHODS:
            right = [
                measured(tmp_path, "attacked", "accuracy", box="white", epsilon=epsilon)[method]
                for epsilon in (0.0, 0.1, 0.3)
            ]
            assert right[0] >= right[1] >= right[2]
            clean = measured(tmp_path, "accuracy", "error", split="test")[method]
            assert right[0] == pytest.approx(1 - clean)
        text = path.read_text("utf-8")
        rows = rows_below(text, "## Errors under FGSM")
        assert tuple(rows) == METHODS
        shown = measured(tmp_path, "attacked", "accuracy", box="white", epsilon=0.3)["lgm"]
        assert rows["lgm"][2] == f"{100 * (1 - shown):.1f} %"
        worst = rows_below(text, "## Errors under the worst attack")
        robust = measured(tmp_path, "robustness", "robust_accuracy", norm="inf", epsilon=0.1)
        assert {m: cells[0] for m, cells in worst.items()} == {
            m: f"{100 * (1 - robust[m]):.1f} %" for m in METHODS
        }
        assert verdicts(tmp_path)["A1"]["reason"].startswith("1 seed")
        assert verdicts(tmp_path)["V2"]["verdict"] in ("cannot tell", "not run")
        # without margin and likelihood both gradients are the same
        own, whole = (
            measured(tmp_path, "attacked", "accuracy", box=box, epsilon=0.1)
            for box in ("white", "white, training loss")
        )
        assert own["softmax"] == whole["softmax"]

    def test_a_training_loss_is_as_training_left_it(self, tmp_path):
        start = protocol.base_recipe("digits", seeds=1)
        recipe = dataclasses.replace(start, epochs=1, train_fraction=0.1, audits=("accuracy",))
        data = build_data(recipe)
        losses: dict[str, Any] = {}
        kept = {}
        for name in ("center", "lgm"):
            plan = RunPlan(recipe, name, 0)
            run_method(plan, data, tmp_path)
            losses[name] = fgsm_attacks.training_loss(tmp_path / plan.folder)
            kept[name], _ = read_result(tmp_path / plan.folder)
        assert torch.equal(losses["center"].centres, kept["center"]["objective.centres"])
        assert bool(losses["center"].centres.any(dim=1).all())  # they start at 0
        assert int(losses["lgm"].steps) == 3  # batches of 64 of 130 images

    def test_with_cross_entropy_alone_it_is_the_librarys_attack(self):
        torch.manual_seed(0)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), nn.Linear(8, 3)).eval()
        images, labels = torch.rand(40, 1, 4, 4), torch.arange(40) % 3
        expected = FGSM(0.15)(model, images, labels).images
        found = fgsm_attacks.signed_steps(model, CrossEntropyLoss(), images, labels, 0.15)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        assert not torch.equal(found, images)

    def test_a_likelihood_pulls_the_attack_elsewhere(self):
        torch.manual_seed(0)
        head = GaussianMixture(8, 3)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), head).eval()
        images = torch.rand(40, 1, 4, 4)
        labels = model(images).argmax(dim=1)
        plain, whole = (
            fgsm_attacks.signed_steps(model, loss, images, labels, 0.1)
            for loss in (GaussianMixtureLoss(0.0, 0.0), GaussianMixtureLoss(1.0, 10.0))
        )
        farther = [head.own_half_distance(model.features(x), labels).detach().mean() for x in (plain, whole)]
        assert farther[1] > farther[0]


class TestVerification:
    @pytest.mark.skipif("likelihood" not in AUDITS, reason="the catalogue has no audit of likelihoods")
    def test_areas_of_every_method(self, quick, tmp_path):
        path = verification.run(tmp_path, seeds=1, jobs=1, listener=reproduce_module.silent)
        assert verification.AUDIT in quick[0].recipe.audits
        assert "Nothing was measured" not in path.read_text("utf-8")

    def test_every_kind_of_detection_is_a_table_over_the_radii(self):
        contexts = [
            {"attack": attack, "score": "own", "epsilon": epsilon}
            for attack in ("FGSM", "IFGSM")
            for epsilon in (0.1, 0.2)
        ]
        contexts.append({"against": "fashion-mnist", "score": "own"})
        records = tuple(
            Record(
                "digits",
                method,
                0,
                Measurement("likelihood", "auroc", value, "fraction", 10, context=context),
            )
            for context in contexts
            for method, value in (("softmax", 0.5), ("lgm", 0.5 + context.get("epsilon", 0.3)))
        )
        report = Report({"methods": {"softmax": {}, "lgm": {}}}, {}, "", "", records=records)
        text = "\n\n".join(verification.sections(report, "digits"))
        assert text.count("### ") == 3
        rows = rows_below(text, "### attack IFGSM, score own")
        assert {m: [c.replace(THIN, " ") for c in cells] for m, cells in rows.items()} == {
            "softmax": ["50.0 %", "50.0 %"], "lgm": ["60.0 %", "70.0 %"]
        }  # fmt: skip
        assert rows_below(text, "### against fashion-mnist, score own")["lgm"][0].startswith("80.0")
        nothing = Report({"methods": {"softmax": {}}}, {}, "", "")
        assert verification.sections(nothing, "digits")[-1] == "Nothing was measured."

    def test_without_the_audit_it_says_what_is_missing(self, quick, monkeypatch, tmp_path):
        monkeypatch.setattr(verification, "AUDITS", {"accuracy": AUDITS["accuracy"]})
        with pytest.raises(ValueError, match="`audit` must be one of 'accuracy'; got 'likelihood'"):
            verification.run(tmp_path, seeds=1, jobs=1, listener=reproduce_module.silent)
        assert not quick


@pytest.mark.parametrize("name", ["accuracy", "fgsm"])
def test_without_data_the_ledger_says_so_with_the_command(name, quick, tmp_path):
    found = reproduce("wan-2018", "mnist", only=name, out=tmp_path)
    assert not quick
    rows = verdicts(tmp_path)
    assert rows["A1"]["reason"] == "no data"
    assert rows["A1"]["run"] == "clearance reproduce wan-2018 --only fgsm --dataset mnist --root ROOT"
    assert rows["L1"]["verdict"] == "not run"
    assert f"--only {name} --dataset mnist" in found.ledger.read_text("utf-8")


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
    quantity = Quantity("", "attacked", "accuracy", better="higher",
                        context={"attack": "FGSM", "box": "white", "epsilon": 0.1})  # fmt: skip
    text = study.method_table(report, [study.Column("0.1", quantity, flipped=True)], "mnist")
    assert "| softmax | 75.0 % ± 5.0 % (paper: 24.1 %) |" in text.replace(THIN, " ")
    assert "| lgm | 85.0 % ± 5.0 % [worse] (paper: 23.6 %) |" in text.replace(THIN, " ")
