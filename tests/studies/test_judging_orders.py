"""Claims that something is lower than in all rivals, judged on records made up to bring about each verdict."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from clearance.records.record import Record
from clearance.vocabulary import Measurement
from papers.engine.judging import judge
from studies.claim_records import errors, one_claim, replaced, series, verdict


class TestOrder:
    records = errors(foca=0.05, plain=0.20, dropout=0.15)

    def test_holds_where_every_rival_is_told_apart(self):
        assert verdict(one_claim(), self.records) == ("ordering holds", "")

    def test_one_better_rival_refutes(self):
        altered = replaced(self.records, "dropout", 0.02)
        assert verdict(one_claim(), altered) == ("refuted", "because of dropout (samples 10)")

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
        assert verdict(one_claim(), altered) == ("cannot tell", "inconclusive against plain (samples 10)")

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
        assert (alone.verdict, among.verdict) == ("ordering holds", "cannot tell")
        assert among.readings[0].compared[0].adjusted == pytest.approx(4 * p)


class TestSizes:
    records = (
        *errors(10, foca=0.05, plain=0.20, dropout=0.15),
        *errors(100, foca=0.04, plain=0.10, dropout=0.03),
        *errors(1000, foca=0.03, plain=0.02, dropout=0.02),
    )

    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            ("{rank = 0}", "ordering holds"),
            ("{at_most = 99}", "ordering holds"),
            ("{at_most = 100}", "refuted"),
            ("{rank = -1}", "refuted"),
            ("[10]", "ordering holds"),
            ("[10, 1000]", "refuted"),
            ("{by_dataset = {digits = 10}}", "ordering holds"),
            ("{by_dataset = {mnist = 10}}", "not run"),
        ],
    )
    def test_which_sizes_are_read(self, samples, expected):
        assert verdict(one_claim(samples), self.records)[0] == expected

    def test_the_size_that_refutes_is_named(self):
        _, reason = verdict(one_claim("{at_most = 100}"), self.records)
        assert reason == "because of dropout (samples 100)"

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
        assert verdict(one_claim("10", extra=against), self.records)[0] == "ordering holds"
