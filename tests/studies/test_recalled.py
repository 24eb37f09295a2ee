"""Claims that are known second hand, or from memory alone: named as such; the latter are never judged."""

import pytest

from clearance.records import Report
from clearance.records.record import Record
from clearance.research import Recipe
from clearance.vocabulary import Measurement
from papers.engine.claims import parse_claims
from papers.engine.judging import judge
from papers.engine.ledger import Ledger, command_line, ledger_without_data

TEXT = """
paper = "x-2020"
reference = "X."
method = "new"
rivals = ["old"]

[[claim]]
id = "heard"
kind = "order"
words = "New errs less."
value = "3 % against 5 %"
where = "Fig. 1"
source = "[S] slides"
study = "noise"
datasets = ["digits"]
reading = [{is = "lower", audit = "accuracy", measure = "error"}]

[[claim]]
id = "remembered"
kind = "value"
words = "New is right on 99 %."
value = "99 %"
where = ""
recalled = true
datasets = ["digits"]
reading = [{is = "lower", audit = "accuracy", measure = "error"}]

[[claim]]
id = "elsewhere"
kind = "order"
words = "New errs less on ImageNet, too."
value = "an ordering"
where = "Fig. 9"
command = "-"
datasets = ["imagenet"]
"""
CLAIMS = parse_claims(TEXT)


def records(**errors):
    return [
        Record(
            "digits", method, seed, Measurement("accuracy", "error", value + 0.001 * seed, "fraction", 100)
        )
        for method, value in errors.items()
        for seed in range(5)
    ]


def test_what_is_recalled_is_measured_and_not_judged():
    for found in (records(new=0.02, old=0.05), records(new=0.05, old=0.02), records()):
        heard, remembered, _ = judge(CLAIMS, found, "digits")
        assert (remembered.verdict, remembered.reason) == ("no verdict", "recalled, not checked")
        assert heard.verdict != "no verdict"
    assert judge(CLAIMS, records(new=0.02, old=0.05), "digits")[0].verdict == "ordering holds"
    (judged,) = judge(CLAIMS, records(new=0.02, old=0.05), "digits")[1].readings
    assert len(judged.compared) == 1
    assert judge(CLAIMS, records(new=0.02, old=0.05), "mnist")[1].readings == ()
    absent = ledger_without_data(CLAIMS, Recipe(), "command").judgements
    assert [j.verdict for j in absent] == ["not run", "no verdict", "not run"]


def test_the_ledger_calls_it_not_the_papers():
    report = Report({}, {}, "c", "today", tuple(records(new=0.02, old=0.05)))
    judgements = judge(CLAIMS, report.records, "digits")
    ledger = Ledger(CLAIMS, "digits", judgements, report)
    rows = {
        line.split(" | ")[0].strip("| "): line for line in ledger.to_markdown().splitlines() if "|" in line
    }
    assert "3 % against 5 % (Fig. 1; [S] slides)" in rows["heard"]
    assert "| recalled, not checked: 99 % |" in rows["remembered"]
    assert "**no verdict**: recalled, not checked" in rows["remembered"]
    assert ledger.counts() == {
        "holds": 0, "ordering holds": 1, "refuted": 0, "cannot tell": 0, "not run": 1, "no verdict": 1
    }  # fmt: skip
    claims = {row["id"]: row for row in ledger.to_json()["claims"]}
    assert (claims["remembered"]["paper"], claims["remembered"]["recalled"]) == ("", "99 %")
    assert (claims["heard"]["paper"], claims["heard"]["recalled"]) == ("3 % against 5 %", "")
    assert claims["heard"]["source"] == "[S] slides"


def test_a_claim_that_was_not_run_names_its_study_or_nothing():
    ledger = Ledger(CLAIMS, "digits", judge(CLAIMS, [], "digits"), Report({}, {}, "c", "today"))
    claims = {row["id"]: row["run"] for row in ledger.to_json()["claims"]}
    assert claims == {
        "heard": "python -m papers x-2020 --only noise --dataset digits", "remembered": "", "elsewhere": ""
    }  # fmt: skip
    assert command_line("x", "mnist", 5, only="noise") == (
        "python -m papers x --only noise --dataset mnist --root ROOT --seeds 5"
    )


def test_ledgers_without_such_claims_count_as_before():
    claims = parse_claims(TEXT.replace("recalled = true\n", "").replace('kind = "value"', 'kind = "order"'))
    assert (
        "no verdict"
        not in Ledger(claims, "digits", judge(claims, [], "digits"), Report({}, {}, "", "")).counts()
    )


def test_what_is_recalled_cannot_be_held_against():
    before = 'measure = "error"}]\n\n[[claim]]\nid = "elsewhere"'
    wrong = TEXT.replace(before, before.replace("}", ", value = 0.01}"))
    assert wrong != TEXT
    with pytest.raises(ValueError, match=r"claim remembered: a recalled number must not be compared with"):
        parse_claims(wrong)
