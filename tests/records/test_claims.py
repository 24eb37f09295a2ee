"""Claims of a paper: read from their file, and judged on records made up to bring about each verdict."""

import dataclasses
import json
import math
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from clearance.records.claims import parse_claims
from clearance.records.judgement import MINIMUM_SEEDS, judge, not_run
from clearance.records.record import Record
from clearance.vocabulary import Measurement

FOLDER = resources.files("clearance.experiments.reproductions.sato_2019")
SATO = parse_claims(FOLDER.joinpath("claims.toml").read_text("utf-8"))
METHODS = ("plain", "noisy", "dropout", "batchnorm", "foca")
SHEET = ["T1", "T2", "A1", "A2", "A3", "A4", "A5", "A6", "G1", "G2", "G3", "G4", "P1", "P2", "F1"]
EMPIRICAL = {"metric": "empirical", "features": "rms", "temperature": "as trained"}

CLAIM = """
paper = "x-2020"
reference = ""
method = "foca"
rivals = ["plain", "dropout"]
[[claim]]
id = "A"
kind = "KIND"
words = "Fewest errors."
value = ""
where = "Fig. 1"
datasets = ["digits"]
reading = [READING]
"""
LOWER = '{is = "lower", audit = "co_adaptation", measure = "error", context = {samples = SAMPLES}EXTRA}'


def one_claim(samples="10", kind="order", extra=""):
    reading = LOWER.replace("SAMPLES", samples).replace("EXTRA", extra)
    return parse_claims(CLAIM.replace("KIND", kind).replace("READING", reading))


def series(audit, name, context, methods, dataset="digits", seeds=MINIMUM_SEEDS, noise=0.01):
    """Records of one quantity: a number by method, with a little noise that differs by seed and method."""
    drawn = np.random.default_rng(len(name) + len(context))
    return [
        Record(
            dataset, method, seed, Measurement(audit, name, value * (1 + noise * drawn.standard_normal()),
                                               "fraction", n=10, context=context),
        )
        for method, value in methods.items()
        for seed in range(seeds)
    ]  # fmt: skip


def errors(samples=10, seeds=MINIMUM_SEEDS, **methods):
    return series("co_adaptation", "error", {"head": "retrained", "samples": samples}, methods, seeds=seeds)


def verdict(claims, records, dataset="digits"):
    (found,) = judge(claims, records, dataset)
    return found.verdict, found.reason


def replaced(records, method, value):
    """The same records with every number of one method replaced (a little different for each seed)."""
    return [
        dataclasses.replace(r, measurement=dataclasses.replace(r.measurement, value=value + 1e-4 * r.seed))
        if r.method == method
        else r
        for r in records
    ]


class TestTheFile:
    def test_every_row_of_the_sheet_is_there_in_its_order(self):
        assert [claim.id for claim in SATO.claims] == SHEET

    @pytest.mark.parametrize("claim", SATO.claims, ids=lambda claim: claim.id)
    def test_every_claim_is_judged_on_something_or_says_what_to_run(self, claim):
        judged = [reading for reading in claim.readings if reading.role == "verdict"]
        assert bool(judged) != bool(claim.command)
        assert claim.words
        assert claim.value
        assert claim.where

    def test_what_the_paper_prints(self):
        by_id = {claim.id: claim for claim in SATO.claims}
        assert "247.28" in by_id["T1"].value
        assert by_id["T1"].readings[0].factor == 33
        assert by_id["G1"].readings[0].factor == 40
        assert by_id["G2"].readings[0].factor == 3
        assert [r.value for r in (*by_id["A1"].readings, *by_id["A4"].readings)] == [0.1445, None, 0.4603]

    def test_g1_and_g3_have_each_metric_the_papers_judged(self):
        for claim in SATO.claims:
            if claim.id in ("G1", "G3"):
                shown = {(r.context["metric"], r.context["temperature"]): r.role for r in claim.readings[:4]}
                assert shown == {
                    ("empirical", "as trained"): "verdict",
                    ("model", "as trained"): "control",
                    ("euclidean", "as trained"): "control",
                    ("empirical", "calibrated"): "control",
                }

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("paper =", "paper", "must be TOML"),
            ('id = "A"\n', "", "claim 0 must have id"),
            ('{is = "lower", ', "{", "claim A must have is"),
            ('"lower"', '"lowest"', "claim A: `is` must be one of.*Did you mean 'lower'"),
            ("measure", "mesure", "'mesure'. Did you mean 'measure'"),
            ('kind = "order"', 'kind = "ratio"', "must have a `factor`"),
            ('kind = "order"', 'kind = "value"', "held against a `value`"),
            ("{samples = 10}", "{samples = {most = 10}}", "`samples` of a context must be"),
            ("{samples = 10}", "{samples = 10}, value = 0.1, factor = 2", "against `value` must name no"),
            ("{samples = 10}", '{samples = 10}, methods = ["plane"]', "claim A.*Did you mean 'plain'"),
        ],
    )
    def test_a_file_of_another_form_is_refused(self, old, new, message):
        text = CLAIM.replace("KIND", "order").replace(
            "READING", LOWER.replace("SAMPLES", "10").replace("EXTRA", "")
        )
        assert old in text
        with pytest.raises(ValueError, match=message):
            parse_claims(text.replace(old, new))

    def test_an_id_twice_is_refused(self):
        with pytest.raises(ValueError, match="id once; got A more"):
            dataclasses.replace(one_claim(), claims=one_claim().claims * 2)


class TestOrder:
    records = errors(foca=0.05, plain=0.20, dropout=0.15)

    def test_holds_where_every_rival_is_told_apart(self):
        assert verdict(one_claim(), self.records) == ("holds", "")

    def test_one_better_rival_refutes(self):
        altered = replaced(self.records, "dropout", 0.02)
        assert verdict(one_claim(), altered) == ("refuted", "refuted by dropout (samples 10)")

    def test_one_rival_that_is_not_told_apart_leaves_it_open(self):
        own = {r.seed: r.measurement.value for r in self.records if r.method == "foca"}
        altered = [
            dataclasses.replace(
                r,
                measurement=dataclasses.replace(r.measurement, value=own[r.seed] + 0.001 * (-1) ** r.seed),
            )
            if r.method == "plain"
            else r
            for r in self.records
        ]
        assert verdict(one_claim(), altered) == ("cannot tell", "not told apart from plain (samples 10)")

    def test_one_altered_record_changes_the_verdict(self):
        bad = dataclasses.replace(self.records[0].measurement, value=0.9)
        altered = [dataclasses.replace(self.records[0], measurement=bad), *self.records[1:]]
        assert verdict(one_claim(), altered)[0] == "cannot tell"

    @pytest.mark.parametrize("seeds", [1, 2, 4])
    def test_fewer_than_five_seeds_judge_nothing(self, seeds):
        found = verdict(one_claim(), errors(foca=0.05, plain=0.20, dropout=0.15, seeds=seeds))
        assert found == ("cannot tell", f"{seeds} seed{'' if seeds == 1 else 's'}; a verdict needs 5")

    def test_seeds_are_those_that_both_have(self):
        four = [r for r in self.records if (r.method, r.seed) != ("dropout", 3)]
        assert verdict(one_claim(), four) == ("cannot tell", "4 seeds; a verdict needs 5")

    def test_a_rival_without_numbers_is_not_run(self):
        some = [r for r in self.records if r.method != "plain"]
        assert verdict(one_claim(), some) == (
            "not run",
            "co_adaptation error was not measured for plain at samples 10",
        )

    def test_a_size_that_was_not_measured_is_not_run(self):
        assert verdict(one_claim("30"), self.records)[0] == "not run"
        assert verdict(one_claim("{rank = 1}"), self.records) == (
            "not run",
            "no samples fits {'rank': 1}: measured were [10]",
        )

    def test_records_of_another_dataset_are_not_read(self):
        other = [dataclasses.replace(r, dataset="mnist") for r in self.records]
        assert verdict(one_claim(), other) == ("not run", "co_adaptation error was not measured")
        assert verdict(one_claim(), self.records, "mnist") == ("not run", "about digits; this is mnist")

    def test_settings_that_fit_two_measurements_are_refused(self):
        linear = series(
            "co_adaptation", "error", {"head": "linear", "samples": 10}, {"foca": 0.1, "plain": 0.2}
        )
        with pytest.raises(ValueError, match=r"must name one measurement.*linear"):
            judge(one_claim(), [*self.records, *linear], "digits")

    def test_rivals_are_paid_for(self):
        """A rival with p about 0.02 is enough alone and not among three that are no better known."""
        drawn = np.random.default_rng(0)
        own = 0.1 + 0.01 * drawn.standard_normal(5)
        near = own + np.array([0.01, 0.02, 0.015, 0.004, 0.03])
        p = stats.ttest_rel(own, near).pvalue
        assert 0.05 / 2 > p > 0.05 / 4

        def records(names):
            numbers = {"foca": own, **dict.fromkeys(names, near)}
            return [
                Record("digits", method, seed, Measurement("co_adaptation", "error", float(value), "fraction", 1,
                                                           context={"samples": 10}))
                for method, values in numbers.items()
                for seed, value in enumerate(values)
            ]  # fmt: skip

        two, four = (
            dataclasses.replace(one_claim(), rivals=names) for names in (("a",), ("a", "b", "c", "d"))
        )
        (alone,) = judge(two, records(two.rivals), "digits")
        (among,) = judge(four, records(four.rivals), "digits")
        assert (alone.verdict, among.verdict) == ("holds", "cannot tell")
        assert among.outcomes[0].compared[0].adjusted == pytest.approx(4 * p)


class TestSizes:
    records = (
        *errors(10, foca=0.05, plain=0.20, dropout=0.15),
        *errors(100, foca=0.04, plain=0.10, dropout=0.03),
        *errors(1000, foca=0.03, plain=0.02, dropout=0.02),
    )

    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            ("{rank = 0}", "holds"),
            ("{at_most = 99}", "holds"),
            ("{at_most = 100}", "refuted"),
            ("{rank = -1}", "refuted"),
            ("[10]", "holds"),
            ("[10, 1000]", "refuted"),
            ("{by_dataset = {digits = 10}}", "holds"),
            ("{by_dataset = {mnist = 10}}", "not run"),
        ],
    )
    def test_which_sizes_are_read(self, samples, expected):
        assert verdict(one_claim(samples), self.records)[0] == expected

    def test_the_size_that_refutes_is_named(self):
        _, reason = verdict(one_claim("{at_most = 100}"), self.records)
        assert reason == "refuted by dropout (samples 100)"

    def test_every_size_is_a_try_at_refuting_and_is_paid_for(self):
        """p about 0.02 at one size refutes a claim about that size, and not one about three."""
        drawn = np.random.default_rng(0)
        own = 0.1 + 0.01 * drawn.standard_normal(5)
        gap = np.array([0.01, 0.02, 0.015, 0.004, 0.03])
        assert 0.05 / 2 > stats.ttest_rel(own + gap, own).pvalue > 0.05 / 3
        records = [
            Record("digits", method, seed, Measurement("co_adaptation", "error", float(value), "fraction", 1,
                                                       context={"samples": samples}))
            for samples, rival in ((10, own), (30, own + gap), (100, own + gap[::-1]))
            for method, values in (("foca", own if samples > 10 else own + gap), ("plain", rival))
            for seed, value in enumerate(values)
        ]  # fmt: skip
        for samples, expected in (("10", "refuted"), ("{at_most = 100}", "cannot tell")):
            claims = dataclasses.replace(one_claim(samples), rivals=("plain",))
            assert verdict(claims, records)[0] == expected

    def test_a_rival_may_be_read_at_another_size(self):
        against = ", against = {plain = {samples = {rank = -1}}}"
        assert verdict(one_claim("10", extra=against), self.records)[0] == "refuted"
        against = ", against = {plain = {samples = 100}}"
        assert verdict(one_claim("10", extra=against), self.records)[0] == "holds"


class TestRatio:
    claims = one_claim(kind="ratio", extra=", factor = 3")

    def test_the_factor_is_judged_and_the_ordering_beside(self):
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.20, dropout=0.30), "digits")
        assert (found.verdict, found.outcomes[0].order) == ("holds", "holds")
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.10, dropout=0.30), "digits")
        assert (found.verdict, found.outcomes[0].order) == ("refuted", "holds")
        assert found.reason.endswith("the ordering alone holds")
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.01, dropout=0.30), "digits")
        assert (found.verdict, found.outcomes[0].order) == ("refuted", "refuted")

    def test_the_factor_that_was_found_has_the_interval_of_log_ratios(self):
        records = errors(foca=0.05, plain=0.20, dropout=0.30, noise=0.1)
        (found,) = judge(self.claims, records, "digits")
        by_method = {m: [r.measurement.value for r in records if r.method == m] for m in ("foca", "plain")}
        oracle = stats.ttest_rel(np.log(by_method["plain"]), np.log(by_method["foca"]))
        interval = oracle.confidence_interval(0.95)
        middle = math.exp(np.mean(np.log(by_method["plain"]) - np.log(by_method["foca"])))
        first = found.outcomes[0].compared[0]
        assert first.times(found.outcomes[0].reading) == pytest.approx(
            (middle, math.exp(interval.low), math.exp(interval.high))
        )

    def test_higher_by_a_factor(self):
        higher = parse_claims(
            CLAIM.replace("KIND", "ratio").replace(
                "READING", '{is = "higher", audit = "a", measure = "b", factor = 3}'
            )
        )
        high = series("a", "b", {}, {"foca": 40.0, "plain": 10.0, "dropout": 2.0})
        assert verdict(higher, high)[0] == "holds"
        (found,) = judge(higher, replaced(high, "plain", 20.0), "digits")
        assert (found.verdict, found.outcomes[0].order) == ("refuted", "holds")
        middle, low, rest = found.outcomes[0].compared[0].times(found.outcomes[0].reading) or (0, 0, 0)
        assert low < middle < rest
        assert middle == pytest.approx(2, rel=0.02)

    def test_zero_has_no_ratio(self):
        records = replaced(errors(foca=0.05, plain=0.2, dropout=0.3), "plain", 0.0)
        assert verdict(self.claims, records) == ("cannot tell", "a number that is not above 0 has no ratio")


class TestValue:
    claims = one_claim(kind="value", extra=", value = 0.1, within = 0.1")

    @pytest.mark.parametrize(
        ("value", "noise", "expected"),
        [(0.1, 0.01, "holds"), (0.05, 0.01, "holds"), (0.12, 0.01, "refuted"), (0.11, 0.1, "cannot tell")],
    )
    def test_the_interval_lies_below_above_or_across(self, value, noise, expected):
        records = series("co_adaptation", "error", {"samples": 10}, {"foca": value}, noise=noise)
        assert verdict(self.claims, records)[0] == expected

    def test_a_number_of_another_dataset_is_not_judged(self):
        claim = dataclasses.replace(self.claims.claims[0], also=("mnist",))
        records = series("co_adaptation", "error", {"samples": 10}, {"foca": 0.01}, dataset="mnist")
        (found,) = judge(dataclasses.replace(self.claims, claims=(claim,)), records, "mnist")
        assert (found.verdict, found.reason) == ("not run", "a number of digits; this is mnist")


class TestSeveralReadings:
    """A claim of three parts; what holds, what is refuted, what is open and what is missing in any order."""

    records = (
        *errors(10, foca=0.05, plain=0.20, dropout=0.15),
        *errors(30, foca=0.05, plain=0.01, dropout=0.15),
        *errors(100, foca=0.05, plain=0.20, dropout=0.15, seeds=4),
    )
    holds, refuted, open_, missing = 10, 30, 100, 300

    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ((holds, holds), "holds"),
            ((holds, refuted), "refuted"),
            ((missing, open_, refuted), "refuted"),
            ((holds, open_), "cannot tell"),
            ((open_, missing, holds), "not run"),
        ],
    )
    def test_one_refuted_part_refutes_and_all_must_hold(self, parts, expected):
        (claim,) = one_claim().claims
        readings = [dataclasses.replace(claim.readings[0], context={"samples": n}) for n in parts]
        claims = dataclasses.replace(one_claim(), claims=[dataclasses.replace(claim, readings=readings)])
        assert verdict(claims, self.records)[0] == expected


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
    return records + quantity("low_dimension", "first_axis_share", {"class": "mean"}, 0.9, 0.3)


def changed(records, method, value, **wanted):
    """Records in which one quantity of a method is another number."""

    def hit(record):
        found = record.measurement
        told = {"audit": found.audit, "measure": found.name, **found.context}
        return record.method == method and all(told.get(key) == entry for key, entry in wanted.items())

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
        found = {name: j.verdict for name, j in self.judged().items()}
        expected = dict.fromkeys(SHEET, "holds") | dict.fromkeys(("A1", "G2", "F1"), "not run")
        assert found == expected
        assert self.judged()["A1"].reason == "about cifar10; this is digits"

    @pytest.mark.parametrize(
        ("claim", "method", "value", "wanted"),
        [
            ("T1", "noisy", 10.0, {"measure": "lda_eigenvalue", "split": "test"}),
            ("T2", "batchnorm", 0.01, {"measure": "threshold_error", "chosen_on": "test"}),
            ("A2", "noisy", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 100}),
            ("A3", "plain", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 30}),
            ("A4", "dropout", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 1300}),
            ("A5", "plain", 0.01, {"audit": "co_adaptation", "head": "retrained", "samples": 1300}),
            ("A6", "plain", 0.9, {"audit": "accuracy"}),
            ("G1", "plain", 0.2, {**EMPIRICAL, "layer": "2"}),
            ("G3", "plain", 0.001, {**EMPIRICAL, "layer": "2"}),
            ("G4", "dropout", 0.001, {"measure": "path_error_rise", "features": "rms"}),
            ("P1", "noisy", 0.95, {"measure": "first_axis_share"}),
            ("P2", "noisy", 500.0, {"measure": "lda_eigenvalue", "split": "train"}),
        ],
    )  # fmt: skip
    def test_one_number_refutes_its_claim(self, claim, method, value, wanted):
        found = self.judged(changed(self.records, method, value, **wanted))
        assert found[claim].verdict == "refuted"
        assert method in found[claim].reason

    @pytest.mark.parametrize("claim", ["G1", "G3"])
    def test_a_control_that_orders_otherwise_is_said(self, claim):
        assert self.judged()[claim].remark == ""
        far = changed(self.records, "foca", 9.0, metric="euclidean", temperature="as trained", features="rms")
        found = self.judged(far)[claim]
        assert (found.verdict, found.remark) == ("holds", "by confidence only")
        raw = changed(self.records, "foca", 9.0, metric="empirical", features="raw")
        assert (
            self.judged(raw)[claim].remark == ""
        )  # the same metric on features of another size is no control

    def test_beside_is_shown_and_judges_nothing(self):
        worse = changed(self.records, "foca", 0.9, measure="threshold_error", chosen_on="train")
        found = self.judged(worse)["T2"]
        assert found.verdict == "holds"
        assert [(o.reading.label, o.verdict) for o in found.outcomes] == [
            ("chosen on test", "holds"),
            ("chosen on training", "refuted"),
        ]

    def test_three_seeds_cannot_tell(self):
        found = self.judged(sato_records(seeds=3))
        assert {j.verdict for name, j in found.items() if name not in ("A1", "G2", "F1")} == {"cannot tell"}

    def test_the_toy_says_what_to_run(self):
        claim = self.judged()["F1"].claim
        assert claim.command == "clearance reproduce sato-2019 --only fig1"

    def test_without_records_nothing_was_run_and_nothing_is_dropped(self):
        assert [j.verdict for j in judge(SATO, [], "cifar10")] == ["not run"] * len(SHEET)
        assert {(j.verdict, j.reason) for j in not_run(SATO, "no data")} == {("not run", "no data")}

    def test_a_judgement_is_plain_json(self):
        far = changed(self.records, "foca", math.inf, metric="empirical", features="raw")
        rows = [j.to_json() for j in judge(SATO, far, "digits")]
        back = json.loads(json.dumps(rows, allow_nan=False))
        assert [row["id"] for row in back] == SHEET
        assert back[0]["readings"][0]["compared"][0]["first"]["mean"] == pytest.approx(247.28, rel=0.02)
