"""The studies of Elsayed et al. (2018), small: what they vary, what they share, what their ledgers say."""

import dataclasses
import json
import math
from importlib.metadata import version

import pytest
import torch
from torch import nn

from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import build_data
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, failed
from clearance.report import Card
from papers.elsayed_2018 import attacked, causes, noise, protocol, published, small_data
from papers.elsayed_2018.attacked import with_verdict
from papers.engine import study as engine
from papers.engine.catalogue import full_recipe, paper_claims, paper_recipe
from papers.engine.claims import RECALLED
from papers.engine.reproduce import reproduce
from papers.engine.study import StudyRequest
from papers.engine.verify import verified
from studies.small_runs import Unrendered, cells, grids_here, interval, ledger_rows, verdict

CLAIMS = paper_claims("elsayed_2018")
SHEET = ["1", "2a", "2b", "2c", "3", "4", "5a", "5b", "6", "7a", "7b", "8a", "8b", "9a", "9b", "10", "11", "12",
         "13", "14", "15", "16", "toy", "17"]  # fmt: skip
RATES, SIZES = (0.0, 0.8), (20, 40)
METHODS = ("cross-entropy", "hinge", "margin-l1", "margin-l2", "margin-linf", "margin-l2-input")
MORE = ("margin-l1-input", "margin-linf-input")  # not on MNIST, for the time that they take on a CPU


@pytest.fixture
def quick(monkeypatch):
    """All six methods as plain training on 130 digits, in this process; the plans that were run."""
    plans: list[RunPlan] = []

    def recipe(dataset="digits", root=None, seeds=None, condition="clean", epochs=1):
        methods = {
            name: Method(hidden=(), lr=0.1 + 0.01 * k, clip_norm=1.0) for k, name in enumerate(METHODS)
        }
        return Recipe(dataset=dataset, root=root, epochs=epochs, batch_size=16, train_fraction=0.1,
                      seeds=seeds or 1, audits=("accuracy",), methods=methods)  # fmt: skip

    monkeypatch.setattr(engine, "Card", Unrendered)
    grids_here(monkeypatch, plans)
    monkeypatch.setattr(protocol, "base_recipe", recipe)
    # enough to be more than chance: others are not attacked
    monkeypatch.setattr(attacked, "base_recipe", lambda d, root, seeds: recipe(d, root, seeds, epochs=4))
    small = dataclasses.replace(
        protocol.PROTOCOLS["digits"], noise=RATES, samples=SIZES, steps=3, draws=1, epsilons=(0.1, 0.2)
    )
    monkeypatch.setitem(protocol.PROTOCOLS, "digits", small)
    monkeypatch.setattr(attacked, "IMAGES", 40)
    # the verdict takes its time, and has tests of its own
    monkeypatch.setattr(attacked, "with_verdict", lambda recipe, box: recipe)
    return plans


@pytest.fixture
def planned(monkeypatch):
    """The plans that would be run; each fails instead."""
    plans: list[RunPlan] = []

    def nothing(given, *_):
        plans.extend(given)
        return [failed(plan, "not today") for plan in given]

    monkeypatch.setattr(engine, "run_grid", nothing)
    return plans


def as_tuple(value):
    return value if isinstance(value, tuple | list) else (value,)


def verdicts(folder):
    ledger = json.loads((folder / "ledger.json").read_text("utf-8"))
    return {row["id"]: row for row in ledger["claims"]}


class TestClaims:
    def test_every_row_of_the_sheet_is_there_with_its_source(self):
        assert [claim.id for claim in CLAIMS.claims] == SHEET
        assert all(claim.source for claim in CLAIMS.claims)

    def test_what_is_known_from_memory_alone_is_recalled_and_nothing_else(self):
        alone = {claim.id for claim in CLAIMS.claims if claim.source == "[M]"}
        assert alone == {claim.id for claim in CLAIMS.claims if claim.recalled}
        assert alone == {"2c", "3", "7b", "8b", "9b", "10", "11", "12", "16"}
        assert all(claim.quoted.startswith(RECALLED) for claim in CLAIMS.claims if claim.recalled)

    def test_the_printed_numbers_are_those_of_the_sheet(self):
        (first,) = [claim for claim in CLAIMS.claims if claim.id == "1"]
        numbers = [reading.value for reading in first.readings if reading.value is not None]
        assert numbers == pytest.approx([1 - 0.964, 1 - 0.939])


class TestNoise:
    def test_a_ledger_of_runs_made_elsewhere_names_their_versions(self, quick, tmp_path):
        noise.run(StudyRequest(tmp_path, seeds=1))
        kept, here = tmp_path / "runs.jsonl", version("torch")
        kept.write_text(kept.read_text("utf-8").replace(f'"torch": "{here}"', '"torch": "2.6.0"'), "utf-8")
        text = noise.run(StudyRequest(tmp_path, seeds=1)).read_text("utf-8")
        assert f"torch 2.6.0 (runs), {here} (ledger)" in text

    def test_a_ledger_with_every_claim_and_the_papers_figure(self, quick, tmp_path):
        path = noise.run(StudyRequest(tmp_path, seeds=1))
        assert [(p.recipe.label_noise, p.method) for p in quick] == [(r, m) for r in RATES for m in METHODS]
        rows = verdicts(tmp_path)
        assert list(rows) == SHEET
        for name in ("1", "2a", "2b"):
            assert rows[name]["verdict"] == "not comparable"
            assert rows[name]["readings"][0]["compared"][0]["seeds"] == 1
        assert rows["4"]["run"] == "python -m papers elsayed_2018 --only small-data --dataset digits"
        assert rows["15"]["reason"] == "judged by --only white-box"
        text = path.read_text("utf-8")
        assert "## Test accuracy after the last epoch" in text
        assert "| | noise 0 | noise 0.8 |".replace("| |", "|  |") in text
        cost = text[text.index("## Cost") :].splitlines()
        for rate in (
            "0.0",
            "0.8",
        ):  # a column for each: margins count other rivals without noise than with it
            assert cost[2].count(f"| training time, noise {rate}, cross-entropy = 1× (95 % interval)") == 1
        assert text.count("](figure.svg)") == 1
        assert (tmp_path / "figure.svg").read_text("utf-8").startswith("<svg")

        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        said = report["recipe"]["conditions"]  # the recipe beside it is that of the first
        assert said["0.0"] == {}
        assert said["0.8"]["label_noise"] == 0.8
        found = {
            (row["method"], row["context"]["noise"]): row["value"]
            for row in report["measurements"]
            if (row["audit"], row["name"], row["context"].get("split")) == ("accuracy", "error", "test")
        }
        assert set(found) == {(m, r) for m in METHODS for r in RATES}
        table = text[text.index("## Test accuracy after the last epoch") :].splitlines()
        shown = next(line for line in table if line.startswith("| hinge | "))
        right = [f"{100 * (1 - found['hinge', rate]):.1f} %" for rate in RATES]
        assert shown == f"| hinge | {right[0]} | {right[1]} |"
        for rate, expected in zip(("0", "0.8"), right, strict=True):
            epochs = text[text.index(f"## Test accuracy after every epoch, noise {rate}\n") :].splitlines()
            assert epochs[2] == "|  | epoch 1 |"
            assert [line.split(" | ")[0].strip("| ") for line in epochs[4 : 4 + len(METHODS)]] == list(
                METHODS
            )
            assert f"| hinge | {expected} |" in epochs[4 : 4 + len(METHODS)]
        assert verified(tmp_path / "ledger.json").problems == ()


class TestSmallData:
    def test_methods_share_the_images_and_steps_do_not_depend_on_them(self, quick, monkeypatch, tmp_path):
        monkeypatch.setattr(engine, "Card", Card)
        small_data.run(StudyRequest(tmp_path, seeds=1))
        assert {(p.recipe.samples, p.recipe.steps, p.recipe.balanced) for p in quick} == {
            (20, 3, False), (40, 3, False)
        }  # fmt: skip
        assert "<html" in (tmp_path / "index.html").read_text("utf-8")
        row = verdicts(tmp_path)["4"]
        sides = {
            (one["first"]["method"], one["first"]["context"]["samples"])
            for one in row["readings"][0]["compared"]
        }
        assert sides == {(m, n) for m in ("margin-l1", "margin-l2", "margin-linf") for n in SIZES}


class TestCauses:
    def test_each_column_changes_one_thing_and_cross_entropy_is_the_ruler(self, quick, monkeypatch, tmp_path):
        margin = Method(
            hidden=(),
            lr=0.01,
            loss="large-margin",
            loss_settings={"layers": ["input"], "top_k": 1, "cross_entropy_weight": 0.0},
        )
        plain = protocol.small_data_recipes

        def recipes(*given):
            return {
                n: dataclasses.replace(r, methods={**r.methods, "margin-l2": margin})
                for n, r in plain(*given).items()
            }

        monkeypatch.setattr(protocol, "small_data_recipes", recipes)
        causes.run_small_data(StudyRequest(tmp_path, seeds=2))
        settings = {p.method: p.recipe.methods[p.method].loss_settings for p in quick}
        assert list(settings) == [
            "cross-entropy",
            "margin-l2",
            *(f"margin-l2, {name}" for name in causes.RIVALS),
        ]
        own = settings["margin-l2"]
        assert settings["margin-l2, all rivals"] == {**own, "top_k": None}
        assert settings["margin-l2, with cross-entropy"] == {**own, "cross_entropy_weight": 1.0}

        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        errors = {
            (row["method"], row["seed"], row["context"]["samples"]): row["value"]
            for row in report["measurements"]
            if (row["audit"], row["name"], row["context"].get("split")) == ("accuracy", "error", "test")
        }
        rows, shown = ledger_rows(tmp_path), cells(tmp_path)
        for count in SIZES:
            label = f"{count} images"
            for method in settings:
                values = [errors[method, seed, count] for seed in range(2)]
                assert rows[label, method]["over_seeds"]["mean"] == pytest.approx(sum(values) / 2)
            gaps = [
                errors["margin-l2, all rivals", seed, count] - errors["cross-entropy", seed, count]
                for seed in range(2)
            ]
            _, low, high = interval(gaps)
            assert f"[{verdict(low, high)}]" in shown[label]["margin-l2, all rivals"]
            assert [method for method, cell in shown[label].items() if "[" not in cell] == ["cross-entropy"]

    def test_under_noise_cross_entropy_takes_steps_as_long_as_those_of_the_margin(self, quick, tmp_path):
        causes.run_clipping(StudyRequest(tmp_path, seeds=2))
        ran = {p.method: p for p in quick}
        assert list(ran) == ["cross-entropy", "margin-l2", "cross-entropy, steps of margin-l2"]
        assert {p.recipe.label_noise for p in quick} == {max(RATES)}
        plain, margin, control = (p.settings for p in ran.values())
        own_steps = {"lr": plain.lr, "clip_norm": plain.clip_norm, "weight_decay": plain.weight_decay}
        assert dataclasses.replace(control, **own_steps) == plain
        assert control.lr * control.weight_decay == pytest.approx(margin.lr * margin.weight_decay)
        assert control.lr * control.clip_norm == pytest.approx(margin.lr * margin.clip_norm)
        assert control.clip_norm < margin.clip_norm

        shown = cells(tmp_path)
        label = f"{max(RATES)} of the training labels wrong"
        assert {m for m, cell in shown[label].items() if "[" in cell} == set(ran) - {"cross-entropy"}
        against = shown[f"{label}, against margin-l2"]
        assert {m for m, cell in against.items() if "[" in cell} == set(ran) - {"margin-l2"}
        assert verified(tmp_path / "ledger.json").problems == ()

    def test_of_the_denominator_nothing_else_is_changed(self, quick, monkeypatch, tmp_path):
        margin = Method(hidden=(), lr=0.01, loss="large-margin", loss_settings={"layers": ["input"]})
        plain = protocol.noise_recipe

        def recipe(*given):
            found = plain(*given)
            return dataclasses.replace(found, methods={**found.methods, "margin-l2": margin})

        monkeypatch.setattr(protocol, "noise_recipe", recipe)
        causes.run_denominator(StudyRequest(tmp_path, seeds=2))
        assert {p.recipe.label_noise for p in quick} == set(RATES)
        ran = {p.method: p.settings for p in quick}
        assert list(ran) == ["cross-entropy", "margin-l2", "margin-l2, denominator in full"]
        changed = {**margin.loss_settings, "denominator": "full"}
        assert ran["margin-l2, denominator in full"] == dataclasses.replace(margin, loss_settings=changed)
        assert verified(tmp_path / "ledger.json").problems == ()


class TestAttacked:
    def test_the_white_box_leaves_no_more_than_without_attack(self, quick, tmp_path):
        attacked.run_white_box(StudyRequest(tmp_path, seeds=1))
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        for method in METHODS:
            for attack in ("FGSM", "IFGSM"):
                by_radius = [
                    row["value"]
                    for row in report["measurements"]
                    if (row["audit"], row["method"], row["context"].get("attack"))
                    == ("attacked", method, attack)
                ]
                assert len(by_radius) == 3
                assert by_radius[0] >= by_radius[1] >= by_radius[2]
        assert verdicts(tmp_path)["5a"]["reason"].startswith("1 seed")

    def test_the_black_box_attacks_another_network_of_the_same_loss(self, quick, tmp_path):
        attacked.run_black_box(StudyRequest(tmp_path, seeds=1))
        assert [(p.method, p.seed) for p in quick if p.seed >= 1000] == [("cross-entropy", 1000)]
        assert verdicts(tmp_path)["5b"]["reason"].startswith("1 seed")
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        boxes = [r["context"]["box"] for r in report["measurements"] if r["audit"] == "attacked"]
        assert boxes.count("black") == boxes.count("white") > 0

    @pytest.mark.parametrize("box", [attacked.WHITE, attacked.BLACK])
    def test_the_scale_proof_verdict_is_asked_for_at_the_radii_of_the_claims(
        self, box, quick, planned, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(attacked, "with_verdict", with_verdict)
        recipe = protocol.base_recipe("digits", None)
        attacked.attack_study("white-box", box, recipe, StudyRequest(tmp_path, seeds=1))
        targets = [plan.recipe for plan in planned if plan.seed < attacked.FIRST_SOURCE]
        assert {r.audits for r in targets} == {("accuracy", "robustness")}
        asked = targets[0].audit_settings["robustness"]["epsilons"]["inf"]
        read = {
            epsilon
            for claim in CLAIMS.claims
            if "digits" in claim.also
            for reading in claim.readings
            if reading.audit == "robustness"
            for epsilon in as_tuple(reading.context["epsilon"])
        }
        assert set(asked) == read == {0.1, 0.2}
        assert all(plan.sources["robustness"].seed == 1000 for plan in planned if plan.seed == 0)
        AuditPlan.of(targets[0].audits, targets[0].audit_settings)
        others = [plan.recipe.audits for plan in planned if plan.seed >= attacked.FIRST_SOURCE]
        assert others == ([()] if box == attacked.BLACK else [])

    def test_adversarially_trained_networks_are_trained_on_fgsm_images(self, quick, tmp_path, monkeypatch):
        monkeypatch.setattr(attacked, "ATTACKS", {"FGSM": attacked.FGSM})
        attacked.run_adversarially_trained(StudyRequest(tmp_path, seeds=1))
        assert {p.settings.adversarial for p in quick} == {0.2}
        assert verdicts(tmp_path)["6"]["verdict"] in ("cannot tell", "not run")

    @pytest.mark.parametrize(("dataset", "radii"), [("digits", [0.1, 0.2]), ("mnist", [0.2])])
    def test_their_verdict_is_asked_for_at_the_radius_trained_with(
        self, dataset, radii, planned, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(engine, "Card", Unrendered)
        monkeypatch.setattr("papers.engine.ledger.data_if_there", lambda recipe: build_data(Recipe()))
        attacked.run_adversarially_trained(StudyRequest(tmp_path, seeds=1, dataset=dataset))
        (asked,) = {str(plan.recipe.audit_settings["robustness"]["epsilons"]["inf"]) for plan in planned}
        assert asked == str(radii)
        assert {plan.settings.adversarial for plan in planned} == {radii[-1]}
        assert {plan.recipe.epochs for plan in planned} == {protocol.adversarial_recipe(dataset).epochs}


@pytest.mark.parametrize("study", ["noise", "small-data", "white-box", "black-box", "adversarially-trained"])
def test_without_data_the_ledger_says_so_with_the_command(study, quick, tmp_path):
    found = reproduce("elsayed_2018", "mnist", only=study, out=tmp_path)
    assert not quick
    rows = verdicts(tmp_path)
    assert rows["1"]["reason"] == "no data"
    assert rows["1"]["run"] == "python -m papers elsayed_2018 --only noise --dataset mnist --root ROOT"
    assert rows["3"]["verdict"] == "no verdict"
    assert f"--only {study} --dataset mnist" in found.ledger.read_text("utf-8")


def test_a_study_takes_the_datasets_that_it_names(tmp_path):
    with pytest.raises(ValueError, match="must be one of 'digits', 'mnist', 'cifar10'; got 'cifar100'"):
        reproduce("elsayed_2018", "cifar100", only="noise", out=tmp_path)
    with pytest.raises(ValueError, match="has its own dataset"):
        reproduce("elsayed_2018", "mnist", only="toy", out=tmp_path)


class TestProtocol:
    @pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10"])
    def test_methods_differ_in_the_loss_alone(self, dataset):
        recipe = full_recipe if dataset == "cifar10" else paper_recipe  # on two cores fewer
        methods = recipe("elsayed_2018", dataset).methods
        assert tuple(methods) == (METHODS if dataset == "mnist" else (*METHODS, *MORE))
        margins = [method for name, method in methods.items() if name.startswith("margin")]
        assert {m.loss for m in margins} == {"large-margin"}
        assert [float(m.loss_settings["norm"]) for m in margins][:4] == [1, 2, math.inf, 2]
        assert [float(m.loss_settings["norm"]) for m in margins][4:] in ([], [1, math.inf])
        assert [len(m.loss_settings["layers"]) for m in margins] == [4, 4, 4, *[1] * (len(margins) - 3)]
        same = [dataclasses.replace(m, loss="", loss_settings={}, lr=1.0) for m in methods.values()]
        assert all(method == same[0] for method in same)

    def test_margins_count_every_rival_where_labels_are_wrong(self):
        """With the nearest alone the true class loses: most labels pull it down."""
        recipes = protocol.noise_recipes("mnist")
        clean, noisy = recipes[0.0], recipes[0.2]
        for name, method in noisy.methods.items():
            expected = (None, "sum") if name.startswith("margin") else (None, None)
            settings = method.loss_settings
            assert (settings.get("top_k"), settings.get("aggregate")) == expected
        assert noisy.methods["hinge"].loss_settings["form"] == "sum"
        assert all(m.loss_settings.get("top_k", 1) == 1 for m in clean.methods.values())

    def test_the_full_protocol_is_the_sheets_network_with_all_nine_rivals(self):
        full = protocol.full_protocol()
        assert (full.model, full.batch_size, full.train_fraction) == ("large-margin-cnn", 128, 1.0)
        settings = full.methods["margin-l2"].loss_settings
        assert settings["layers"] == ["input", "extractor.block1", "extractor.block2"]
        assert settings["top_k"] is None
        assert set(full.methods) == {*METHODS, *MORE}
        for name in ("margin-l2-input", *MORE):
            assert full.methods[name].loss_settings["layers"] == ["input"]
            norm = name.removeprefix("margin-l").removesuffix("-input")
            assert float(full.methods[name].loss_settings["norm"]) == float(norm)
        assert full.methods["cross-entropy"].loss_settings == {}


class TestThePublishedTraining:
    def test_rmsprop_is_that_of_tensorflow_1_on_a_penalised_and_clipped_gradient(self):
        """Against the recursion in Python's numbers."""
        weights, gradients = [3.0, -0.5], [[6.0, 0.2], [-1.0, 0.1], [0.3, -8.0]]
        parameter = nn.Parameter(torch.tensor(weights, dtype=torch.float64))
        stepper = published.RMSProp([parameter], lr=0.1)
        means = [1.0, 1.0]
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient, dtype=torch.float64)
            stepper.step()
            gradient = [g + 5e-4 * w for g, w in zip(gradient, weights, strict=True)]
            scale = min(1.0, 5.0 / math.hypot(*gradient))
            for k, g in enumerate(gradient):
                means[k] = 0.9 * means[k] + 0.1 * (scale * g) ** 2
                weights[k] -= 0.1 * scale * g / math.sqrt(means[k] + 0.01)
        assert parameter.tolist() == pytest.approx(weights, rel=1e-6)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:training has exploded")  # the published formula does at first
    def test_it_learns_the_digits(self, tmp_path, capsys):
        words = ["--dataset", "digits", "--epochs", "12", "--seeds", "1", "--out", str(tmp_path)]
        published.main(words)
        said = capsys.readouterr().out
        assert said.startswith("seed 0: finished, test error ")
        assert float(said.split()[-2]) < 10
        published.main(words)  # read back
        assert capsys.readouterr().out == said
