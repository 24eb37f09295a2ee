"""What studies of several papers share: verdicts on their own claims alone, ledgers, numbers under each seed."""

import json

import pytest

from clearance.records import Record, Report
from clearance.report.numbers import THIN
from clearance.vocabulary import Measurement
from papers.engine.catalogue import paper_claims
from papers.engine.ledger import JudgedStudy, by_seed, cut_table, heads_table, mean_and_spread

NOISE = JudgedStudy("elsayed_2018", ("noise",), "mnist")


def record(method, seed, value, rate, name="error"):
    context = {"split": "test", "noise": rate}
    return Record(
        "mnist", method, seed, Measurement("accuracy", name, value, "fraction", 100, context=context)
    )


def records(seeds=5):
    """Margins err less than cross-entropy at every rate."""
    return [
        record(method, seed, value + rate / 4 + 0.001 * seed * (method == "margin-l1"), rate)
        for seed in range(seeds)
        for rate in (0.0, 0.2, 0.4, 0.6, 0.8)
        for method, value in (("cross-entropy", 0.3), ("hinge", 0.4), ("margin-l1", 0.1), ("margin-l2", 0.1),
                              ("margin-linf", 0.1), ("margin-l2-input", 0.1))
    ]  # fmt: skip


def test_only_claims_of_the_study_get_a_verdict():
    found = {j.claim.id: j for j in NOISE.judgements(records())}
    assert found["1"].verdict == "ordering holds"
    others = [j for j in found.values() if j.claim.study != "noise" and not j.claim.recalled]
    assert {j.verdict for j in others} == {"not run"}
    both = JudgedStudy("elsayed_2018", ("noise", "small-data"), "mnist")
    assert [j.verdict for j in both.judgements(records())] == [j.verdict for j in found.values()]
    assert both.command() == "python -m papers elsayed_2018 --only noise --dataset mnist --root ROOT"


def test_sections_follow_the_verdicts_a_blank_line_apart(tmp_path):
    report = Report({}, {}, "the command", "today", tuple(records()), (), ())
    path = NOISE.write_ledger(report, ["## One\n", "", f"| 5{THIN}% |"], tmp_path)
    text = path.read_text("utf-8")
    assert text.endswith("\n\n## One\n\n| 5 % |\n")
    assert text.startswith("# elsayed_2018 on mnist\n\n")
    assert "\n\n\n" not in text
    ledger = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
    assert [row["id"] for row in ledger["claims"] if row["verdict"] == "ordering holds"][:1] == ["1"]


def test_numbers_are_those_of_one_method_quantity_and_setting():
    mixed = [*records(2), record("cross-entropy", 7, 0.9, 0.2, name="loss")]
    assert by_seed(mixed, "cross-entropy", "accuracy", "error", {"noise": 0.2}) == pytest.approx(
        {0: 0.35, 1: 0.35}
    )
    assert by_seed(mixed, "cross-entropy", "accuracy", "error", {"noise": 0.3}) == {}


def test_one_seed_has_no_spread():
    assert mean_and_spread(0.25, None, "fraction") == "25.0 %"
    assert mean_and_spread(0.25, 0.013, "fraction") == "25.0 % ± 1.3 %"


def cut_record(method, seed, audit, head, samples, value):
    context = {"head": head, "samples": samples} | ({"cut": 1} if audit == "deeper_cut" else {})
    measurement = Measurement(audit, "error", value, "fraction", 5, better="lower", context=context)
    return Record("digits", method, seed, measurement)


def report_of(cut_records):
    return Report({}, {}, "", "", records=tuple(cut_records))


@pytest.fixture
def cut_records():
    """Two methods and seeds, 10 and 100 images; the later cut knows no neighbours."""
    worth = {"retrained": 0.2, "class mean": 0.3, "nearest neighbour": 0.4}
    found = []
    for method, factor in (("plain", 1.0), ("foca", 0.6)):
        for seed in (0, 1):
            for samples in (10, 100):
                small = factor * (1 + 0.1 * seed) * 10 / samples
                found += [
                    cut_record(method, seed, "co_adaptation", h, samples, small * w) for h, w in worth.items()
                ]
                found.append(
                    cut_record(method, seed, "co_adaptation", "nearest pixel", samples, 5.5 / samples)
                )
                found.append(cut_record(method, seed, "deeper_cut", "retrained", samples, small * 0.1))
    return found


def test_each_number_is_the_mean_over_seeds_of_its_head_method_and_cut(cut_records):
    columns, lines = cut_table(report_of(cut_records)) or ([], [])
    assert columns == [
        "from 10 images",
        "plain, as trained",
        "plain, later",
        "foca, as trained",
        "foca, later",
    ]
    assert lines == [
        ["retrained", "21.0 %", "10.5 %", "12.6 %", "6.3 %"],
        ["class mean", "31.5 %", "–", "18.9 %", "–"],
        ["nearest neighbour", "42.0 %", "–", "25.2 %", "–"],
        ["nearest pixel, no network", "55.0 %", "", "", ""],
    ]


def test_a_method_without_a_later_cut_has_one_column(cut_records):
    left = [r for r in cut_records if (r.method, r.measurement.audit) != ("foca", "deeper_cut")]
    columns, lines = cut_table(report_of(left)) or ([], [])
    assert columns == ["from 10 images", "plain, as trained", "plain, later", "foca, as trained"]
    assert lines[0] == ["retrained", "21.0 %", "10.5 %", "12.6 %"]


def test_errors_of_retrained_heads_stand_beside_that_of_the_own_head(cut_records):
    own = [
        Record(
            "digits",
            "plain",
            seed,
            Measurement("accuracy", "error", value, "fraction", 5, context={"split": split}),
        )
        for seed in (0, 1)
        for split, value in (("test", 0.0125), ("train", 0.9))
    ]
    lines = heads_table(report_of([*own, *cut_records])).splitlines()
    assert lines[0] == "|  | own head, training images | own head | 10 images | 100 images |"
    assert lines[2:] == ["| plain | 90.0 % | 1.2 % | 21.0 % | 2.1 % |", "| foca | – | – | 12.6 % | 1.3 % |"]
    assert heads_table(report_of(own)) == ""


def test_a_verdict_of_an_experiment_smaller_than_the_papers_says_so(tmp_path):
    path = NOISE.write_ledger(Report({}, {}, "", "", tuple(records())), [], tmp_path)
    text, tree = path.read_text("utf-8"), json.loads((tmp_path / "ledger.json").read_text("utf-8"))
    scaled = {row["id"] for row in tree["claims"] if row["scaled"]}
    assert "1" in scaled
    assert not scaled & {
        row["id"] for row in tree["claims"] if row["verdict"] in ("not run", "not comparable")
    }
    assert text.count("**, scaled") == len(scaled)
    claims = paper_claims("tanay_2018")
    assert claims.scaled_in("svm", "mnist") == ""  # as in the article
    assert claims.scaled_in("lenet", "mnist").startswith("LeNet: the first 5,000 images of each class")


def test_one_cut_is_no_table(cut_records):
    assert cut_table(report_of(r for r in cut_records if r.measurement.audit != "deeper_cut")) is None
