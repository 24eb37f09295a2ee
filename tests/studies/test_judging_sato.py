"""The claims of Sato et al. (2019), judged on records as the paper has them and on altered ones."""

import dataclasses
import json
import math

import pytest

from papers.engine.judging import MINIMUM_SEEDS, judge
from studies.claim_records import SATO, SHEET, series

METHODS = ("plain", "noisy", "dropout", "batchnorm", "foca")
EMPIRICAL = {"metric": "empirical", "features": "raw", "temperature": "as trained"}
NEVER_MEASURED = ("A1", "G2", "F1", "W1", "W2", "W3", "W4", "L3.1", "L3.2")


def sato_records(dataset="digits", seeds=MINIMUM_SEEDS):
    """Records of everything that the claims read, as the paper has it."""
    rivals = METHODS[:-1]

    def quantity(audit, name, context, own, other):
        numbers = {**dict.fromkeys(rivals, other), "foca": own}
        return series(audit, name, context, numbers, dataset=dataset, seeds=seeds)

    records = []
    for rank, samples in enumerate((10, 30, 100, 300, 1300)):
        own, other = 0.05 - 0.005 * rank, 0.5 - 0.1 * rank
        context = {"head": "retrained", "samples": samples}
        records += quantity("co_adaptation", "error", context, own, other)
        records += quantity("co_adaptation", "error", {**context, "head": "class mean"}, own, other)
        records += quantity("deeper_cut", "error", {**context, "cut": 1}, own, other)
    records += quantity("accuracy", "error", {"split": "test", "interval": "w"}, 0.02, 0.03)
    for metric in ("empirical", "model", "euclidean"):
        for features, temperature in (("rms", "as trained"), ("rms", "calibrated"), ("raw", "as trained")):
            for layer in ("1", "2", "3", "all"):
                context = {"metric": metric, "layer": layer, "features": features, "temperature": temperature}
                records += quantity("geodesic", "distance", context, 0.01, 1.0)
    for features in ("rms", "raw"):
        for name in ("path_error_rise", "worst_path_error"):
            context = {"features": features, "temperature": "as trained"}
            records += quantity("geodesic", name, context, 0.01, 0.2)
    for split in ("test", "train"):
        context = {"class": "0", "regulariser": 0.001}
        records += quantity("low_dimension", "lda_eigenvalue", {**context, "split": split}, 247.28, 5.0)
        records += quantity("low_dimension", "threshold_error", {**context, "chosen_on": split}, 0.02, 0.028)
    for name in ("plane_axis_share", "first_axis_share"):
        records += quantity("low_dimension", name, {"class": "mean"}, 0.9, 0.3)
    return records


def changed(records, method, value, **wanted):
    """Records in which one quantity of a method is another number."""

    def hit(record):
        found = record.measurement
        described = {"audit": found.audit, "measure": found.name, **found.context}
        return record.method == method and all(described.get(key) == entry for key, entry in wanted.items())

    return [
        dataclasses.replace(r, measurement=dataclasses.replace(r.measurement, value=value * (1 + 0.001 * r.seed)))
        if hit(r)
        else r
        for r in records
    ]  # fmt: skip


class TestSato:
    records = sato_records()

    def judged(self, records=None, dataset="digits"):
        return {j.claim.id: j for j in judge(SATO, self.records if records is None else records, dataset)}

    def test_on_digits_all_orderings_hold_where_the_records_are_the_papers(self):
        found = {name: (j.verdict, j.ordering) for name, j in self.judged().items()}
        expected = dict.fromkeys(SHEET, ("not comparable", "holds"))
        assert found == expected | dict.fromkeys(NEVER_MEASURED, ("not run", ""))
        assert self.judged()["A1"].reason == "about cifar10; this is digits"

    @pytest.mark.parametrize(
        ("claim", "method", "value", "wanted"),
        [
            ("T1", "noisy", 300.0, {"measure": "lda_eigenvalue", "split": "train"}),
            ("T2", "batchnorm", 0.01, {"measure": "threshold_error", "chosen_on": "test"}),
            ("A2", "noisy", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 100}),
            ("A3", "plain", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 30}),
            ("A4", "dropout", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 1300}),
            ("A5", "plain", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 1300}),
            ("A6", "plain", 0.9, {"audit": "accuracy"}),
            ("G1", "plain", 0.001, {**EMPIRICAL, "layer": "2"}),
            ("G3", "plain", 0.001, {**EMPIRICAL, "layer": "2"}),
            ("G4", "dropout", 0.001, {"measure": "path_error_rise", "features": "raw"}),
            ("P1", "noisy", 0.95, {"measure": "plane_axis_share"}),
            ("P2", "noisy", 500.0, {"measure": "lda_eigenvalue", "split": "train"}),
        ],
    )  # fmt: skip
    def test_one_number_refutes_its_claim(self, claim, method, value, wanted):
        found = self.judged(changed(self.records, method, value, **wanted))
        assert (found[claim].verdict, found[claim].ordering) == ("not comparable", "does not hold")
        assert method in found[claim].reason

    @pytest.mark.parametrize("claim", ["G1", "G3"])
    def test_a_control_that_orders_otherwise_is_said(self, claim):
        assert self.judged()[claim].remark == ""
        far = changed(self.records, "foca", 9.0, metric="euclidean", temperature="as trained", features="rms")
        found = self.judged(far)[claim]
        assert (found.ordering, found.remark) == ("holds", "a control orders the methods otherwise")
        raw = changed(self.records, "foca", 9.0, metric="empirical", features="raw")
        raw_found = self.judged(raw)[claim]
        assert raw_found.ordering == "does not hold", "the paper's metric is that of raw features"
        assert raw_found.remark == "a control orders the methods as claimed"

    def test_beside_is_shown_and_judges_nothing(self):
        worse = changed(self.records, "foca", 0.9, measure="threshold_error", chosen_on="train")
        found = self.judged(worse)["T2"]
        assert found.ordering == "holds"
        assert [(o.reading.label, o.order) for o in found.readings] == [
            ("chosen on test", "holds"),
            ("chosen on training", "refuted"),
        ]

    def test_three_seeds_cannot_tell(self):
        found = self.judged(sato_records(seeds=3))
        assert {j.ordering for name, j in found.items() if name not in NEVER_MEASURED} == {"cannot tell"}

    def test_the_toy_says_what_to_run(self):
        claim = self.judged()["F1"].claim
        assert claim.command == "python -m papers sato_2019 --only fig1"

    def test_without_records_nothing_was_run_and_nothing_is_dropped(self):
        assert [j.verdict for j in judge(SATO, [], "cifar10")] == ["not run"] * len(SHEET)

    def test_a_judgement_is_plain_json(self):
        far = changed(self.records, "foca", math.inf, metric="empirical", features="raw")
        rows = [j.to_json() for j in judge(SATO, far, "digits")]
        back = json.loads(json.dumps(rows, allow_nan=False))
        assert [row["id"] for row in back] == SHEET
        assert back[0]["readings"][0]["compared"][0]["first"]["mean"] == pytest.approx(247.28, rel=0.02)
