"""Claims of a paper, read from their file."""

import dataclasses

import pytest

from papers.engine.claims import parse_claims
from studies.claim_records import CLAIM, LOWER, SATO, SHEET, one_claim


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
        by_id = {claim.id: claim for claim in SATO.claims}
        for name in ("G1", "G3"):
            readings = by_id[name].readings[:4]
            assert {(r.context["metric"], r.context["temperature"]): r.role for r in readings} == {
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
            ('kind = "order"', 'kind = "value"', "needs a `value` to compare with"),
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
