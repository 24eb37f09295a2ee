"""The studies of Wan et al. (2018), small: what they measure, and what their ledgers say."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import nn

from clearance.attacks import FGSM
from clearance.experiments.build import build_data
from clearance.experiments.run import RunPlan, run_method
from clearance.heads import GaussianMixture
from clearance.losses import CrossEntropyLoss, GaussianMixtureLoss
from clearance.models import Classifier
from clearance.records import Record, Report
from clearance.report.numbers import THIN, printed
from clearance.runs import read_result
from clearance.vocabulary import Measurement
from papers.engine import study
from papers.engine.reproduce import reproduce
from papers.engine.study import StudyRequest
from papers.wan_2018 import accuracy, fgsm, protocol, verification
from studies.small_runs import Unrendered, grids_here, interval, number, stored, verdict

SHEET = [*(f"C{k}" for k in range(1, 13)), "I1", "I2", "I3", "I4", "L1", "A0", "A1", "A2", "A3", "V1", "V2", "V3", "Q1",
         "Q2", "M1", "K1", "K2", "K3"]  # fmt: skip
BRIEF = {"images": 40, "steps": 2, "adaptive_images": 4, "adaptive_steps": 2, "betas": [1.0], "reference": 50}
METHODS = ("softmax", "center", "l-softmax", "gm", "lgm")


@pytest.fixture
def quick(monkeypatch):
    """All methods on 130 digits for a few steps, in this process; the plans that were run."""
    plans: list[RunPlan] = []

    full = protocol.base_recipe

    def recipe(dataset="digits", root=None, seeds=None, condition="all"):
        start = full(dataset, root, seeds or 1, condition)
        return dataclasses.replace(start, epochs=4, steps=None, batch_size=16, train_fraction=0.1)

    monkeypatch.setattr(study, "Card", Unrendered)
    grids_here(monkeypatch, plans)
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
    ledger = json.loads((folder / "ledger.json").read_text("utf-8"))
    return {row["id"]: row for row in ledger["claims"]}


def measured(folder, audit, name, **context):
    """{method: value} of the measurement with these settings."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return {
        row["method"]: row["value"]
        for row in report["measurements"]
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


class TestAccuracy:
    def test_a_table_of_errors_and_a_ledger_with_every_claim(self, quick, tmp_path):
        path = accuracy.run(StudyRequest(tmp_path, seeds=2))
        assert all(set(accuracy.AUDITS) < set(p.recipe.audits) for p in quick)
        assert [(p.method, p.seed) for p in quick] == [(m, s) for s in (0, 1) for m in METHODS]
        text = path.read_text("utf-8")
        assert list(verdicts(tmp_path)) == SHEET
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        rows = rows_below(text, "## Errors")
        assert tuple(rows) == METHODS
        for method in METHODS:
            errors = [
                row["value"]
                for row in report["measurements"]
                if (row["method"], row["audit"], row["context"].get("split"), row["context"].get("augmented"))
                == (method, "accuracy", "test", False)
            ]
            assert len(errors) == 2
            assert rows[method][0].startswith(f"{50 * sum(errors):.1f} % ± ")
            assert ("[" in rows[method][0]) == (method != "softmax")
        assert verdicts(tmp_path)["V3"]["verdict"] == "not judged"
        paired = {
            method: [
                number(rows, "accuracy", "error", split="test")
                for (name, _), rows in stored(tmp_path, quick).items()
                if name == method
            ]
            for method in ("lgm", "gm")
        }
        low, high = interval([a - b for a, b in zip(paired["lgm"], paired["gm"], strict=True)])[1:]
        margin = text[text.index("## Whether the margin adds anything: lgm against gm") :].split("##")[1]
        assert f"- test error: **{verdict(low, high)}** (difference " in margin
        assert "2 seeds" in margin
        probable = rows_below(text, "## Whether probabilities are right")
        assert tuple(probable) == METHODS
        assert "[" in probable["lgm"][0]
        assert not any(p.recipe.validation for p in quick)  # why the ledger owns up to a departure
        assert "A departure: " in text
        assert "from one half of the test images, measured on the other" in text
        for title in ("## The same as expected calibration error", "## Whether classes are Gaussian"):
            shown = rows_below(text, title)
            assert tuple(shown) == METHODS
            assert not any("[" in cell for cells in shown.values() for cell in cells)
        assert shown["softmax"][3:] == ["–"] * 3  # no mixture, no statistics of its own
        assert "–" not in shown["lgm"]

    def test_only_cifar100_is_run_with_and_without_crop_and_mirror(self):
        recipes = protocol.accuracy_recipes("cifar100")
        assert [(r.augment_flip, r.augment_pad) for r in recipes.values()] == [(False, 0), (True, 4)]
        assert list(protocol.accuracy_recipes("cifar10")) == [True]


class TestFgsm:
    @pytest.mark.slow
    def test_errors_grow_with_the_radius_and_the_verdict_stands_beside(self, quick, tmp_path):
        path = fgsm.run(StudyRequest(tmp_path, seeds=1))
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
        assert verdicts(tmp_path)["V2"]["verdict"] == "not run"  # epsilon 0.2 was not asked for
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
            losses[name] = fgsm.training_loss(tmp_path / plan.folder)
            kept[name], _ = read_result(tmp_path / plan.folder)
        assert torch.equal(losses["center"].centres, kept["center"]["loss.centres"])
        assert bool(losses["center"].centres.any(dim=1).all())  # they start at 0
        assert int(losses["lgm"].steps) == 3  # batches of 64 of 130 images

    def test_with_cross_entropy_alone_it_is_the_librarys_attack(self):
        torch.manual_seed(0)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), nn.Linear(8, 3)).eval()
        images, labels = torch.rand(40, 1, 4, 4), torch.arange(40) % 3
        expected = FGSM(0.15)(model, images, labels).images
        found = fgsm.signed_steps(model, CrossEntropyLoss(), images, labels, 0.15)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        assert not torch.equal(found, images)

    def test_a_likelihood_pulls_the_attack_elsewhere(self):
        torch.manual_seed(0)
        head = GaussianMixture(8, 3)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh()), head).eval()
        images = torch.rand(40, 1, 4, 4)
        labels = model(images).argmax(dim=1)
        plain, whole = (
            fgsm.signed_steps(model, loss, images, labels, 0.1)
            for loss in (GaussianMixtureLoss(0.0, 0.0), GaussianMixtureLoss(1.0, 10.0))
        )
        farther = [head.own_half_distance(model.features(x), labels).detach().mean() for x in (plain, whole)]
        assert farther[1] > farther[0]


class TestVerification:
    @pytest.mark.slow
    def test_every_loss_is_judged_by_its_own_likelihood(self, quick, monkeypatch, tmp_path):
        asked = verification.verification_recipe

        def briefly(*given):
            start = asked(*given)
            settings = {**start.audit_settings["likelihood"], **BRIEF}
            return dataclasses.replace(start, audit_settings={"likelihood": settings})

        monkeypatch.setattr(verification, "verification_recipe", briefly)
        path = verification.run(StudyRequest(tmp_path, seeds=1))
        rows = rows_below(path.read_text("utf-8"), "## How well each loss's own likelihood")
        assert tuple(rows) == METHODS
        for method, score in (("softmax", "likelihood"), ("center", "learned centre"), ("lgm", "likelihood")):
            context = {
                "attack": "FGSM",
                "counted": "all",
                "negatives": "originals",
                "epsilon": 0.1,
                "score": score,
            }
            area = measured(tmp_path, "likelihood", "auroc", **context)[method]
            assert rows[method][0] == f"{100 * area:.1f} %"
        ledger = path.read_text("utf-8")
        for title, attack, counted, score in (
            ("## The same by Mahalanobis distances, fitted", "FGSM", "all", "mahalanobis"),
            ("## The same by the distance to the mean", "FGSM", "all", "class mean"),
            ("## The same by Mahalanobis distances, which", "adaptive", "successful", "mahalanobis"),
        ):
            where = {"attack": attack, "counted": counted, "negatives": "originals", "score": score}
            if attack == "adaptive":
                where["attacked"] = score
            areas = measured(tmp_path, "likelihood", "auroc", epsilon=0.3, **where)
            assert areas
            shown = rows_below(ledger, title)
            for method, area in areas.items():
                assert shown[method][1] == f"{100 * area:.1f} %"
        margin = ledger[ledger.index("## Whether the margin adds anything") :].split("##")[1]
        for epsilon in (0.1, 0.3):
            with_it, without = (
                measured(
                    tmp_path,
                    "likelihood",
                    "auroc",
                    **verification.ATTACKED,
                    epsilon=epsilon,
                    score="likelihood",
                )[m]
                for m in ("lgm", "gm")
            )
            shown = printed(with_it - without, "fraction").replace(THIN, " ")
            assert f"- epsilon {epsilon}: no verdict from 1 seed (difference {shown})." in margin
        known = rows_below(ledger, "## How well the likelihood separates the images of that attack")
        assert tuple(known) == METHODS
        # every score and both that see no network, of the attack on each method's own likelihood
        known_attack: dict[str, Any] = {"attack": "adaptive", "counted": "successful", "epsilon": 0.3}
        for negatives, words in (("originals", "their own originals"), ("noise", "sign noise as large")):
            title = f"## Every score: images of an attack that knows the own likelihood, against {words}, epsilon 0.3"
            every = rows_below(ledger, title)
            for method in METHODS:
                own = "class mean" if method == "center" else "likelihood"
                for score, place in (
                    ("likelihood", 0),
                    ("class mean", 2),
                    ("mahalanobis", 3),
                    ("small pixels", -2),
                ):
                    areas = measured(
                        tmp_path,
                        "likelihood",
                        "auroc",
                        **known_attack,
                        negatives=negatives,
                        attacked=own,
                        score=score,
                    )
                    shown = printed(areas[method], "fraction").replace(THIN, " ") if method in areas else "–"
                    assert every[method][place] == shown, (method, score, negatives)
        claim = verdicts(tmp_path)["V1"]
        # the fixture's radii are not all of the claim's, so that one is missing
        assert (claim["verdict"], claim["reason"]) == (
            "not run", "likelihood auroc was not measured for lgm at attack FGSM, score likelihood, counted all, "
            "negatives originals, epsilon 0.2",
        )  # fmt: skip

    def test_every_score_that_was_measured_has_a_column_and_no_other(self):
        seen: dict[str, Any] = {"unseen": "fashion-mnist"}
        attack: dict[str, Any] = {**verification.ATTACKED, "counted": "successful", "epsilon": 0.3}
        values = {"softmax": 0.5, "lgm": 0.8}
        records = tuple(
            Record(
                "digits",
                method,
                0,
                Measurement("likelihood", "auroc", value, "fraction", 10, context=context),
            )
            for context in (
                {**seen, "score": "likelihood"},
                {**seen, "score": "energy"},
                {**attack, "score": "mahalanobis"},
            )
            for method, value in values.items()
        )
        report = Report({"methods": {name: {} for name in values}}, {}, "", "", records=records)
        text = "\n\n".join(verification.sections(report, "digits"))
        assert "were not used" not in text
        without = "".join(verification.sections(report, "cifar100"))
        assert "Images of cifar10 were not used" in without
        assert "An attack that knows the likelihood: not run, budget." in without
        assert "attack that knows the likelihood finds" in text
        assert "finds a wrong one that passes" not in without
        assert "|  | likelihood | energy |" in text[text.index("images of fashion-mnist, never learned") :]
        rows = rows_below(text, "## Every score: images of fashion-mnist")
        assert [cell.replace(THIN, " ") for cell in rows["lgm"]] == ["80.0 %", "80.0 %"]

    def test_another_dataset_is_used_where_its_files_are(self, monkeypatch):
        def load(name, split, root):
            if root == "nothing":
                raise FileNotFoundError(name)

        monkeypatch.setattr(verification, "load_dataset", load)
        others = [
            verification.verification_recipe("mnist", root).audit_settings["likelihood"].get("other")
            for root in (None, "nothing", "there")
        ]
        assert others == [None, None, "fashion-mnist"]


@pytest.mark.parametrize("name", ["accuracy", "fgsm"])
def test_without_data_the_ledger_says_so_with_the_command(name, quick, tmp_path):
    found = reproduce("wan_2018", "mnist", only=name, out=tmp_path)
    assert not quick
    rows = verdicts(tmp_path)
    assert rows["A1"]["reason"] == "no data"
    assert rows["A1"]["run"] == "python -m papers wan_2018 --only fgsm --dataset mnist --root ROOT"
    assert rows["L1"]["verdict"] == "not run"
    assert f"--only {name} --dataset mnist" in found.ledger.read_text("utf-8")
