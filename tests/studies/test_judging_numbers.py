"""Claims of a factor or of a number, and claims of several parts."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from papers.engine.claims import parse_claims
from papers.engine.judging import judge
from studies.claim_records import CLAIM, errors, one_claim, replaced, series, verdict


class TestRatio:
    claims = one_claim(kind="ratio", extra=", factor = 3")

    def test_the_factor_is_judged_and_the_ordering_beside(self):
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.20, dropout=0.30), "digits")
        assert (found.verdict, found.readings[0].order) == ("holds", "holds")
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.10, dropout=0.30), "digits")
        assert (found.verdict, found.readings[0].order) == ("refuted", "holds")
        assert found.reason.endswith("the ordering alone holds")
        (found,) = judge(self.claims, errors(foca=0.05, plain=0.01, dropout=0.30), "digits")
        assert (found.verdict, found.readings[0].order) == ("refuted", "refuted")

    def test_the_factor_that_was_found_has_the_interval_of_log_ratios(self):
        records = errors(foca=0.05, plain=0.20, dropout=0.30, noise=0.1)
        (found,) = judge(self.claims, records, "digits")
        by_method = {m: [r.measurement.value for r in records if r.method == m] for m in ("foca", "plain")}
        oracle = stats.ttest_rel(np.log(by_method["plain"]), np.log(by_method["foca"]))
        interval = oracle.confidence_interval(0.95)
        middle = math.exp(np.mean(np.log(by_method["plain"]) - np.log(by_method["foca"])))
        first = found.readings[0].compared[0]
        assert first.times(found.readings[0].reading) == pytest.approx(
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
        assert (found.verdict, found.readings[0].order) == ("refuted", "holds")
        middle, low, rest = found.readings[0].compared[0].times(found.readings[0].reading) or (0, 0, 0)
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

    @pytest.mark.parametrize(
        ("value", "noise", "expected"),
        [
            (0.1, 0.01, "holds"), (0.105, 0.005, "holds"), (0.05, 0.01, "refuted"), (0.12, 0.01, "refuted"),
            (0.11, 0.1, "cannot tell"), (0.1, 0.3, "cannot tell"),
        ],
    )  # fmt: skip
    def test_about_a_number_is_neither_above_nor_below_it(self, value, noise, expected):
        (claim,) = self.claims.claims
        about = dataclasses.replace(
            claim, readings=[dataclasses.replace(claim.readings[0], direction="about")]
        )
        claims = dataclasses.replace(self.claims, claims=[about])
        records = series("co_adaptation", "error", {"samples": 10}, {"foca": value}, noise=noise)
        found = judge(claims, records, "digits")[0]
        assert found.verdict == expected
        ends = [(one.second.method, set(one.second.values.values())) for one in found.readings[0].compared]
        assert [name for name, _ in ends] == ["the paper's +10 %", "the paper's -10 %"]
        assert [end for _, one in ends for end in one] == pytest.approx([0.11, 0.09])
        if expected == "refuted":
            assert found.reason == f"because of the paper's {'-' if value < 0.1 else '+'}10 %"

    def test_about_needs_a_number_and_room_to_miss_it(self):
        (reading,) = self.claims.claims[0].readings
        for lacking in ({"value": None, "within": 0.1}, {"value": 0.1, "within": 0.0}):
            with pytest.raises(ValueError, match=r"`value` and a `within` above 0"):
                dataclasses.replace(reading, direction="about", **lacking)

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
            ((holds, holds), "ordering holds"),
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
