"""The support vector machines of Tanay and Griffin (2018): numbers, files, verdicts and the ledger, on digits."""

import csv
import json

import numpy as np
import pytest

from clearance.linear import adversarial_distance, error_distance, svm_path, tilting_plane
from clearance.linear.hyperplane import wrong
from papers.engine.reproduce import reproduce
from papers.engine.study import StudyRequest
from papers.tanay_2018 import svm
from papers.tanay_2018.svm import (
    EXACT,
    FIELDS,
    angle_errors,
    differences,
    exact_differences,
    lambdas,
    numbers_to_meet,
    pair_points,
    readings,
    solved_pair,
    svm_judgements,
)

SHEET = ["P0-1", "P2-3", "P7-9", "P1-8", "P4-9", "P3-5", "P3-8", "P5-8", "S1", "S2", "S3", "S4", "S5", "N1",
         "N2", "N2b", "N7", "N9", "N10", "N8", "N11", "N3", "N4", "N5", "N6", "A1", "A1b", "A2", "D1", "D2",
         "B1", "B2"]  # fmt: skip
"""Every claim of the article, in the ledger's order."""

TASK = {"dataset": "digits", "pair": [2, 3], "tolerance": 1e-6}


@pytest.fixture(scope="module")
def solved():
    return solved_pair(TASK)


def test_numbers_are_those_of_the_linear_theory_one_model_at_a_time(solved):
    x, y = pair_points("digits", (2, 3), "train", None)
    held_out, classes = pair_points("digits", (2, 3), "test", None)
    fits = svm_path(x, y, lambdas()[[0, 17, 40, 80]])
    # one path for all, so that the models themselves are those of the file to their gaps
    found = readings(fits, x, y, held_out, classes)
    for k, fit in enumerate(fits):
        seen = tilting_plane(fit.plane, x, y)
        expected = {
            "log10_lambda": (2.0, 0.3, -2.0, -6.0)[k],
            "theta_rad": seen.angle,
            "b_mid": seen.offset,
            "margin": 1 / fit.plane.scale,
            "d_adv": adversarial_distance(fit.plane, x, y),
            "d_err": error_distance(fit.plane, x, y),
            "n_err_train": int(wrong(fit.plane, x, y).sum()),
            "n_err_test": int(wrong(fit.plane, held_out, classes).sum()),
        }
        for name, value in expected.items():
            assert found[name][k] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        assert solved["models"]["d_adv"][(0, 17, 40, 80)[k]] == pytest.approx(found["d_adv"][k], abs=1e-3)


def test_points_are_the_first_of_each_class_and_balanced():
    from clearance.experiments.datasets import load_dataset

    x, y = pair_points("digits", (4, 9), "train", None)
    data = load_dataset("digits", "train")
    assert y.sum() == 0
    assert (np.diff(y) >= 0).all()
    first = data.images[data.labels == 4].flatten(1).double().numpy()
    np.testing.assert_array_equal(x[0], first[0])
    _, classes = pair_points("digits", (4, 9), "test", None)
    assert len(classes) == int(((load_dataset("digits", "test").labels % 5) == 4).sum())


class TestTruth:
    def test_without_a_folder_there_is_nothing_to_meet(self, monkeypatch):
        monkeypatch.delenv("CLEARANCE_TRUTH", raising=False)
        assert numbers_to_meet("l2_truth") == {}

    def test_a_difference_beyond_its_tolerance_is_counted_where_it_is(self, solved, tmp_path, monkeypatch):
        """The numbers found, rounded and put in any order, are met; moved by more than is allowed, they are not."""
        folder = tmp_path / "l2"
        folder.mkdir()
        names = ("theta_rad", "d_adv", "b_mid", "margin", "n_err_train", "n_err_test", "d_err")
        with (folder / "l2_truth.csv").open("w", encoding="utf-8") as text:
            writer = csv.writer(text)
            writer.writerow(("i", "j", "col", *names))
            for column in reversed(range(81)):
                writer.writerow((2, 3, column, *(solved["models"][name][column] for name in names)))
        monkeypatch.setenv("CLEARANCE_TRUTH", str(tmp_path))
        truth = numbers_to_meet("l2_truth")[2, 3]
        article = differences(solved["models"], truth)
        assert not any(missed for *_, missed in article.values())
        assert all(apart <= EXACT[name] for name, apart in exact_differences(solved["models"], truth).items())
        truth["theta_rad"][80] += 1.9e-3
        truth["d_adv"][[3, 70]] += 2e-3
        moved = differences(solved["models"], truth)
        assert moved["theta_rad"][1:] == (pytest.approx(1.9e-3), 0)
        assert [round(value, 9) for value in moved["d_adv"]] == [2e-3, 2e-3, 1]


class TestVerdicts:
    def pairs(self, **changes):
        """One pair that does what the article says of digits 2 and 3."""
        tests = np.full(81, 50.0)
        tests[[0, 40, 80]] = 157, 44, 76
        tests[44] = 39
        trains = np.full(81, 157.0)
        trains[[0, 40, 80]] = 465, 157, 0
        models = {
            "theta_rad": np.linspace(0, 1.472, 81),
            "d_adv": np.linspace(2.172, 0.214, 81),
            "n_err_train": trains,
            "n_err_test": tests,
            "log10_lambda": 2 - np.arange(81) / 10,
            "relative_gap": np.zeros(81),
            "objective": np.ones(81),
            "margin": np.full(81, 1e-3),
            "low_variance_share": np.linspace(0.02, 0.6, 81),
        }
        return {"2-3": {"models": {**models, **changes}, "n_train": 6000, "n_test": 2042}}

    def test_the_article_s_own_numbers_hold(self):
        found = {j.claim.id: j for j in svm_judgements(self.pairs(), "mnist")}
        assert {name: found[name].verdict for name in ("P2-3", "S1", "S2", "S3", "S4", "S5")} == {
            **dict.fromkeys(("P2-3", "S2", "S4"), "holds"),
            **dict.fromkeys(("S1", "S3", "S5"), "ordering holds"),
        }
        assert found["P0-1"].verdict == "not run"
        assert found["N1"].verdict == "not run"

    @pytest.mark.parametrize(
        ("change", "refuted"),
        [
            ({"theta_rad": np.linspace(0, 1.4775, 81)}, {"P2-3"}),
            ({"theta_rad": np.linspace(1e-3, 1.472, 81)}, {"S2"}),
            ({"d_adv": np.r_[np.linspace(2.172, 0.213, 80), 0.214]}, {"S1"}),
            ({"n_err_test": np.linspace(157, 39, 81)}, {"P2-3", "S3"}),
            ({"n_err_train": np.r_[465, np.full(80, 157.0)]}, {"P2-3", "S4"}),
            ({"low_variance_share": np.linspace(0.3, 0.2, 81)}, {"S5"}),
        ],
    )
    def test_other_numbers_are_refuted(self, change, refuted):
        found = svm_judgements(self.pairs(**change), "mnist")
        assert {j.claim.id for j in found if j.verdict == "refuted"} == refuted

    def test_of_a_step_back_within_what_gaps_leave_open_nothing_can_be_told(self):
        """At lambda 10^-6 a gap of 10^-6 leaves 10^-3 radians open for weights of norm 1,000, twice a step."""
        back = {"d_adv": np.r_[np.linspace(2.172, 0.213, 80), 0.214], "relative_gap": np.full(81, 1e-6)}
        found = {j.claim.id: j for j in svm_judgements(self.pairs(**back), "mnist")}["S1"]
        assert (found.verdict, found.reason) == (
            "cannot tell",
            "0 of 80 steps go the other way; 1 more do by less than the gaps leave open",
        )
        further = {**back, "d_adv": np.r_[np.linspace(2.172, 0.213, 80), 0.219]}
        found = {j.claim.id: j for j in svm_judgements(self.pairs(**further), "mnist")}["S1"]
        assert (found.verdict, found.reason) == ("refuted", "1 of 80 steps go the other way")
        angle = angle_errors(self.pairs(**back)["2-3"]["models"])[-1]
        assert angle == pytest.approx(1e-3, rel=1e-6)

    def test_numbers_of_mnist_are_not_asked_of_other_data(self):
        found = {j.claim.id: j for j in svm_judgements(self.pairs(), "fashion-mnist")}
        assert found["P2-3"].verdict == "not run"
        assert found["S1"].words == "not comparable; ordering here: holds"


class TestLedger:
    def test_a_study_of_three_pairs_tells_what_it_found(self, tmp_path, monkeypatch):
        monkeypatch.delenv("CLEARANCE_TRUTH", raising=False)
        path = svm.study(tuple("0123456789"), [(0, 1), (2, 3)], StudyRequest(tmp_path))
        text = path.read_text("utf-8")
        assert "| 2 against 3 | " in text
        assert "Against the article's numbers" not in text
        ledger = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
        assert [row["id"] for row in ledger["claims"]] == SHEET
        with (tmp_path / "models.csv").open(encoding="utf-8") as rows:
            kept = list(csv.DictReader(rows))
        assert len(kept) == 2 * 81
        assert set(FIELDS) < set(kept[0])
        assert max(float(row["relative_gap"]) for row in kept) <= 1e-6
        for name in ("error", "angle", "distance"):
            assert (tmp_path / f"{name}.svg").read_text("utf-8").startswith("<svg")

    def test_other_data_are_not_held_against_the_article_s_numbers(self, tmp_path, monkeypatch):
        """Classes of other data have the same numbers as digits, and nothing to do with them."""
        monkeypatch.setattr(svm, "against_truth", lambda pairs: "## Against the article's numbers")
        path = svm.study(tuple("0123456789"), [(0, 1)], StudyRequest(tmp_path))
        assert "Against the article's numbers" not in path.read_text("utf-8")

    def test_without_files_nothing_is_run(self, tmp_path):
        found = reproduce("tanay_2018", "mnist", only="svm", out=tmp_path / "a")
        assert found.missing
        found = reproduce("tanay_2018", "mnist", only="svm", root=str(tmp_path), out=tmp_path / "b")
        assert "**not run**" in found.ledger.read_text("utf-8")
        assert not (tmp_path / "b" / "pairs").exists()
