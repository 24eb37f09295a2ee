"""The sentences of the first screen, from made-up reports whose truth is known."""

import re
from dataclasses import replace
from typing import Any

import pytest

from clearance.records.record import Record, RunNote
from clearance.records.store import Report
from clearance.report.findings import Findings
from clearance.report.first_screen import first_screen
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
    return value.striptags() if part != "failures" else [line.striptags() for line in value]


CLEAR = {"plain": [0.18, 0.19, 0.176], "foca": [0.03, 0.035, 0.034]}
CLOSE = {"plain": [0.18, 0.10, 0.14], "mine": [0.12, 0.13, 0.15]}


def test_a_difference_that_the_seeds_carry():
    assert said(report_of(CLEAR)) == (
        "To retrain last layers on one image per digit, train with FOCA rather than plain training: 3.3 % errors "
        "against 18.2 %."
    )


def test_a_difference_that_they_do_not():
    assert said(report_of(CLOSE)) == (
        "Retrained on one image per digit, mine is wrong on 13.3 %, plain training on 14.0 %; "
        "3 seeds do not separate them. More than 100 would be needed: treat them as alike."
    )


def test_of_one_seed_no_other_heads_are_said_to_be_told_apart():
    extra = [("linear", {"plain": [0.2], "foca": [0.1]})]
    assert said(report_of({"plain": [0.2], "foca": [0.1]}, extra=extra), "also") == ""


def test_one_seed_never_tells():
    single = {method: values[:1] for method, values in CLEAR.items()}
    assert said(report_of(single)).endswith("; one seed is not enough to compare them.")


def test_the_first_method_leads_where_it_is_lower():
    assert said(report_of({"a": [0.01, 0.011, 0.012], "b": [0.3, 0.31, 0.33]})) == (
        "To retrain last layers on one image per digit, train with a rather than b: 1.1 % errors against 31.3 %."
    )


def with_costs(report, seconds, own):
    """The report with training times, and errors with own last layers, by method and seed."""
    found = [
        Record("digits", method, seed, Measurement(audit, name, value, unit, n, better="lower", context=context))
        for table, audit, name, unit, n, context in (
            (seconds, "training", "seconds", "seconds", 1, {}),
            (own, "accuracy", "error", "fraction", 497, {"split": "test"}),
        )
        for method, values in table.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return replace(report, records=(*report.records, *found))


THREE = CLEAR | {"lgm": [0.012, 0.014, 0.013], "dropout": [0.18, 0.17, 0.19]}
SECONDS = {"plain": [2.0, 2.1, 2.2], "foca": [5.4, 5.6, 6.0], "lgm": [2.0, 2.1, 2.2]}


def test_the_lowest_of_those_ahead_is_advised_with_its_cost_and_the_others_are_named():
    report = with_costs(report_of(THREE), SECONDS, {})
    assert said(report) == (
        "To retrain last layers on one image per digit, train with L-GM rather than plain training: 1.3 % errors "
        "against 18.2 %, in about 1× the training time; FOCA: 3.3 % in 2.7×."
    )
    assert said(report, "also") == (
        "The seeds do not separate dropout from plain training. L-GM is also ahead of FOCA and dropout."
    )


def test_what_the_advice_costs_with_its_own_last_layers_is_said_where_the_seeds_carry_it():
    costly = {"plain": [0.010, 0.011, 0.012], "foca": [0.020, 0.022, 0.022]}
    assert said(with_costs(report_of(CLEAR), SECONDS, costly)).endswith(
        ", in 2.7× the training time; but with its own last layers it is wrong on 2.1 %, plain training on 1.1 %."
    )
    alike = {"plain": [0.010, 0.021, 0.012], "foca": [0.020, 0.012, 0.022]}
    assert said(with_costs(report_of(CLEAR), SECONDS, alike)).endswith(", in 2.7× the training time.")


def test_times_that_are_not_told_apart_are_about_the_same():
    seconds = {"plain": [2.0, 2.1, 2.2], "foca": [2.4, 2.0, 2.1]}
    assert said(with_costs(report_of(CLEAR), seconds, {})).endswith(", in about 1× the training time.")


def test_a_time_that_was_hardly_measured_is_not_named():
    unsure = {"plain": [2.0, 9.0, 2.2], "foca": [2.4, 5.6, 19.0]}
    assert said(with_costs(report_of(CLEAR), unsure, {})).endswith("3.3 % errors against 18.2 %.")


def test_one_that_is_lower_only_by_chance_is_not_advised():
    noisy = {"plain": [0.18, 0.19, 0.176], "mine": [0.01, 0.001, 0.15], "foca": [0.08, 0.085, 0.084]}
    assert "train with FOCA rather than plain training" in said(report_of(noisy))
    assert "The seeds do not separate mine from plain training." in said(report_of(noisy), "also")


def test_where_the_first_is_ahead_of_some_the_rest_is_open():
    errors = {
        "a": [0.010, 0.011, 0.012],
        "b": [0.30, 0.31, 0.33],
        "c": [0.20, 0.22, 0.21],
        "d": [0.01, 0.02, 0.01],
    }
    assert said(report_of(errors)) == (
        "To retrain last layers on one image per digit, train with a rather than c or b: 1.1 % errors against "
        "21.0 % and 31.3 %."
    )
    assert said(report_of(errors), "also").startswith("The seeds do not separate d from a.")


def test_how_many_seeds_would_settle_it_is_what_the_power_of_the_test_says():
    near = {"plain": [0.18, 0.15, 0.17], "mine": [0.15, 0.15, 0.14]}
    report = report_of(near)
    row = next(row for row in report.summary if row.kind == "difference")
    assert row.needed is not None
    assert said(report).endswith(
        f"3 seeds do not separate them. About {row.needed} would, if the difference stays as it is."
    )


def test_a_method_of_which_every_run_failed_does_not_change_the_advice():
    report = report_of(CLEAR)
    runs = tuple(
        RunNote(method, seed, Outcome.FINISHED if method != "lost" else Outcome.DIVERGED, "step 3")
        for method in ("plain", "lost", "foca")
        for seed in range(3)
    )
    report = replace(report, runs=runs)
    assert said(report).startswith(
        "To retrain last layers on one image per digit, train with FOCA rather than"
    )
    assert said(report, "failures") == ["lost: seed 0 step 3; seed 1 step 3; seed 2 step 3."]
    pair = {"plain": [0.20, 0.22, 0.21], "mine": [0.15, 0.184, 0.154]}  # p about 0.02
    assert "do not separate" not in said(report_of(pair))
    runs = tuple(replace(note, method="mine") if note.method == "foca" else note for note in runs)
    lost = [replace(note, method=f"lost {k}") for note in runs if note.method == "lost" for k in range(2)]
    assert "3 seeds do not separate" in said(replace(report_of(pair), runs=(*runs, *lost)))


def test_the_family_of_comparisons_is_stated():
    own = {method: [0.010, 0.011, 0.012] for method in THREE}
    assert said(with_costs(report_of(THREE), {}, own), "paragraph").endswith(
        "Every other method was compared with plain training, seed by seed; a difference counts if a paired t test "
        "finds it at 5.0 % after Holm's adjustment for the 3 comparisons."
    )
    two, one = {name: own[name] for name in CLEAR}, {"plain": own["plain"]}
    assert said(with_costs(report_of(CLEAR), {}, two), "paragraph").endswith(
        " FOCA was compared with plain training, seed by seed; a difference counts if a paired t test finds it at "
        "5.0 %."
    )
    alone = report_of({"plain": CLEAR["plain"]})
    assert "compared" not in said(with_costs(alone, {}, one), "paragraph")


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


def test_a_method_without_a_later_cut_is_named_as_such():
    """L-GM ends in one layer: its few layers that are discarded must not pass for better features."""
    later = [
        Record("digits", "plain", seed, Measurement(
            "deeper_cut", "error", 0.014, "fraction", 20, better="lower",
            context={"head": "retrained", "samples": 10, "cut": 1},
        ))
        for seed in range(3)
    ]  # fmt: skip
    report = report_of({"plain": CLEAR["plain"], "lgm": [0.012, 0.014, 0.013]})
    report = replace(report, records=(*report.records, *later))
    assert said(report).endswith(": 1.3 % errors against 18.2 % (1.4 % if cut one layer later).")
    assert said(report, "also") == (
        "Cut one layer later (the first of the last layers is kept), plain training is wrong on 1.4 %; L-GM has no "
        "later cut."
    )


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
    assert "train with FOCA rather than plain training: 3.3 % errors against 18.2 %." in said(report)


def test_without_rebuilt_layers_the_own_errors_are_said():
    own = Measurement("accuracy", "error", 0.1, "fraction", 50, better="lower", context={"split": "test"})
    report = Report({}, {}, "", "", records=(Record("digits", "a", 0, own), Record("digits", "b", 0, own)))
    assert said(report) == "Of the test images, a is wrong on 10.0 % and b is wrong on 10.0 %."


@pytest.mark.parametrize(
    ("errors", "end"),
    [
        ({"a": [0.1, 0.11, 0.09], "b": [0.1, 0.09, 0.11]}, "b is wrong on 10.0 %; 3 seeds do not separate it from a."),
        ({"a": [0.1, 0.11, 0.09], "b": [0.2, 0.21, 0.19]}, "b is wrong on 20.0 %. b differs significantly from a."),
    ],
)  # fmt: skip
def test_whether_own_errors_differ_is_said(errors, end):
    def own(value):
        context = {"split": "test"}
        return Measurement("accuracy", "error", value, "fraction", 50, better="lower", context=context)

    records = [
        Record("digits", method, seed, own(value))
        for method, values in errors.items()
        for seed, value in enumerate(values)
    ]
    assert said(Report({}, {}, "", "", records=tuple(records))).endswith(end)


@pytest.mark.parametrize("word", ["co-adapt", "epoch", "logit", "cdnv", "extractor", "feature", " head"])
def test_no_term_of_art_on_the_first_screen(comparison, word):
    words = first_screen(Findings(comparison, "digits"))
    text = " ".join(part.striptags() for part in (words.sentence, words.paragraph, words.also, words.foot))
    assert word not in text.lower()


def test_every_number_in_a_sentence_is_in_a_data_element(comparison):
    words = first_screen(Findings(comparison, "digits"))
    for part in (words.sentence, words.paragraph, words.also):
        bare = re.sub(r"<data .*?</data>", "", part).replace("95 %", "")
        assert not re.search(r"\d", bare)


def test_rebuilt_layers_that_gave_no_answer_under_one_seed_are_a_mean():
    context: dict[str, str | int] = {"head": "retrained", "samples": 10}
    bad = [
        Measurement("co_adaptation", "diverged_heads", count, "count", 150, better="lower", context=context)
        for count in (3, 0, 0)
    ]
    report = report_of(CLEAR)
    more = tuple(Record("digits", "foca", seed, one) for seed, one in enumerate(bad))
    (line,) = said(replace(report, records=(*report.records, *more)), "failures")
    assert "1 failed to train on average over 3 seeds; they count as guessing." in line


def test_a_page_of_a_sweep_says_which_value_it_is_about():
    swept = replace(report_of(CLEAR), recipe={"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}})
    assert said(swept, "paragraph").startswith("All of this is at lr 0.2, one of 2 values.")
    assert "All of this" not in said(report_of(CLEAR), "paragraph")
