"""The sentences of the first screen, from made-up reports whose truth is known."""

import re
from dataclasses import replace
from typing import Any

import pytest

from clearance.records.record import Record, RunNote
from clearance.records.store import Report
from clearance.report.findings import Findings
from clearance.report.first_screen import first_screen, plain_text
from clearance.vocabulary import Measurement, Outcome


def report_of(errors, head="retrained", dataset="digits", extra=()):
    """A report with one partial-data error per method and seed: {method: [error of seed 0, ...]}."""
    found = [
        Record(dataset, method, seed, Measurement(
            "co_adaptation", "error", value, "fraction", 150, better="lower",
            context={"head": head_of, "samples": 10},
        ))
        for head_of, table in ((head, errors), *extra)
        for method, values in table.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return Report({}, {}, "", "", records=tuple(found))


def said(report, part="sentence"):
    words = first_screen(Findings(report, report.records[0].dataset))
    value: Any = getattr(words, part)
    return plain_text(value) if part != "failures" else [plain_text(line) for line in value]


CLEAR = {"plain": [0.18, 0.19, 0.176], "foca": [0.03, 0.035, 0.034]}
CLOSE = {"plain": [0.18, 0.10, 0.14], "mine": [0.12, 0.13, 0.15]}


def test_a_difference_that_the_seeds_carry():
    assert said(report_of(CLEAR)) == (
        "Retrained on one image per digit, FOCA is wrong on 3.3 %, plain training on 18.2 %."
    )


def test_a_difference_that_they_do_not():
    assert said(report_of(CLOSE)) == (
        "Retrained on one image per digit, mine is wrong on 13.3 %, plain training on 14.0 %; "
        "3 seeds do not separate them."
    )


def test_one_seed_never_tells():
    single = {method: values[:1] for method, values in CLEAR.items()}
    assert said(report_of(single)).endswith("; one seed is not enough to compare them.")


def test_the_first_method_leads_where_it_is_lower():
    assert said(report_of({"a": [0.01, 0.011, 0.012], "b": [0.3, 0.31, 0.33]})) == (
        "Retrained on one image per digit, a is wrong on 1.1 %, b on 31.3 %."
    )


def test_holm_takes_back_what_one_pair_alone_would_carry():
    # p about 0.02 in the pair: significant with one rival, not with four
    pair = {"plain": [0.20, 0.22, 0.21], "mine": [0.15, 0.184, 0.154]}
    others = {f"other {k}": [0.25, 0.20, 0.30] for k in range(4)}
    assert "do not separate" not in said(report_of(pair))
    assert "3 seeds do not separate" in said(report_of(pair | others))


def test_other_datasets_have_classes_and_heads_have_names():
    assert "one image per class" in said(report_of(CLEAR, dataset="cifar10"))
    assert said(report_of(CLEAR, head="linear")).startswith("With one linear layer from one image per digit")


def test_rivals_are_named_by_what_the_seeds_can_tell():
    errors = CLEAR | {"dropout": [0.15, 0.16, 0.152], "near": [0.034, 0.031, 0.036]}
    assert said(report_of(errors), "also") == (
        "FOCA is also ahead of dropout; the seeds do not separate FOCA from near."
    )


def test_heads_are_named_by_what_the_seeds_can_tell():
    extra = [
        ("linear", {"plain": [0.16, 0.17, 0.163], "foca": [0.03, 0.035, 0.034]}),
        ("class mean", {"plain": [0.03, 0.03, 0.04], "foca": [0.03, 0.035, 0.034]}),
        ("own idea", {"plain": [0.01, 0.012, 0.011], "foca": [0.3, 0.35, 0.34]}),
    ]
    assert said(report_of(CLEAR, extra=extra), "also") == (
        "With one linear layer as last layers, FOCA stays ahead of plain training. "
        "With own idea as last layers, plain training is ahead of FOCA. "
        "With the nearest class average as last layers, the seeds do not separate FOCA from plain training."
    )


def test_what_a_later_cut_makes_of_it_is_said():
    report = report_of(CLEAR)
    later = [
        Record("digits", method, seed, Measurement(
            "deeper_cut", "error", value, "fraction", 20, better="lower",
            context={"head": "retrained", "samples": 10, "cut": 1},
        ))
        for method, values in {"plain": [0.014, 0.015, 0.013], "foca": [0.022, 0.024, 0.023]}.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    words = (
        "Cut one layer later (the first of the last layers is kept), plain training is wrong on 1.4 %, FOCA on 2.3 "
        "%"
    )
    assert said(replace(report, records=(*report.records, *later)), "also") == f"{words}."
    once = replace(report, records=(*report.records, *(one for one in later if one.seed == 0)))
    assert said(once, "also") == f"{words.replace('2.3', '2.2')}; one seed is not enough to compare them."


def test_one_common_seed_is_one():
    report = report_of(CLEAR | {"foca": [0.03]})
    assert said(report, "failures") == [
        "FOCA and plain training are compared over the one seed that both have."
    ]


def test_failed_runs_and_lost_seeds_are_said():
    report = report_of(CLEAR | {"foca": [0.03, 0.035]})
    good = RunNote("plain", 2, Outcome.FINISHED, "finished at step 900")
    runs = (good, RunNote("foca", 2, Outcome.DIVERGED, "diverged at step 12: the loss is not finite"))
    assert said(replace(report, runs=runs), "failures") == [
        "FOCA: seed 2 diverged at step 12: the loss is not finite.",
        "FOCA and plain training are compared over the 2 seeds that both have.",
    ]


def test_rebuilt_layers_that_gave_no_answer_are_said():
    bad = Measurement(
        "co_adaptation",
        "diverged_heads",
        3,
        "count",
        150,
        better="lower",
        context={"head": "retrained", "samples": 10},
    )
    report = report_of(CLEAR)
    report = replace(report, records=(*report.records, Record("digits", "foca", 0, bad)))
    assert said(report, "failures") == [
        "FOCA: of 150 last layers retrained on one image per digit, 3 failed to train; they count as guessing."
    ]


def test_a_method_that_was_never_measured_does_not_spoil_the_sentence():
    report = report_of(CLEAR | {"lost": [float("nan")] * 3})
    assert said(report).startswith("Retrained on one image per digit, FOCA is wrong on 3.3 %")


def test_without_rebuilt_layers_the_own_errors_are_said():
    own = Measurement("accuracy", "error", 0.1, "fraction", 50, better="lower", context={"split": "test"})
    report = Report({}, {}, "", "", records=(Record("digits", "a", 0, own), Record("digits", "b", 0, own)))
    assert said(report) == "Of the test images, a is wrong on 10.0 % and b is wrong on 10.0 %."


@pytest.mark.parametrize("word", ["co-adapt", "epoch", "logit", "cdnv", "extractor", "feature", " head"])
def test_no_term_of_art_on_the_first_screen(comparison, word):
    words = first_screen(Findings(comparison, "digits"))
    text = " ".join(map(plain_text, (words.sentence, words.paragraph, words.also, words.foot)))
    assert word not in text.lower()


def test_every_number_in_a_sentence_is_in_a_data_element(comparison):
    words = first_screen(Findings(comparison, "digits"))
    for part in (words.sentence, words.paragraph, words.also):
        bare = re.sub(r"<data .*?</data>", "", part).replace("95 %", "")
        assert not re.search(r"\d", bare)
