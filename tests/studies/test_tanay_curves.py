"""How errors of LeNet went epoch by epoch, held against the article's curves."""

import pytest

from clearance.records import Record
from clearance.vocabulary import Measurement
from papers.engine.ledger import JudgedStudy
from papers.tanay_2018.lenet import LANDMARKS, errors_on_the_way

ARTICLE = {
    ("low-decay", "test"): {5: 0.0245, 10: 0.0170, 20: 0.0158},
    ("high-decay", "test"): {5: 0.0164, 10: 0.0117, 20: 0.0112},
    ("high-decay", "train"): {5: 0.0098, 9: 0.0058, 10: 0.0058, 20: 0.0070},
    ("low-decay", "train"): {5: 0.0148, 10: 0.002},
}


def networks(curves, seeds=5):
    """What was found of each network, and the tasks: errors after thirty epochs of which some are given, 0 else."""
    found, tasks = {}, {}
    for method, decay in (("high-decay", 0.1), ("low-decay", 1e-4)):
        last = [
            Measurement("accuracy", "error", 0.0, "fraction", n, context={"split": split})
            for split, n in (("train", 50_000), ("test", 10_000))
        ]
        rows = [
            {"epoch": epoch, **{f"{s}_error": curves.get((method, s), {}).get(epoch, 0.0) for s in ("train", "test")}}
            for epoch in range(1, 31)
        ]  # fmt: skip
        for seed in range(seeds):
            # seeds must differ, or no interval is known
            moved = [
                {**row, **{key: row[key] * (1 + 0.01 * seed) for key in row if key != "epoch"}}
                for row in rows
            ]
            name = f"{method}-{seed}"
            records = [Record("mnist", method, seed, one).to_json() for one in last]
            found[name] = {"records": records, "history": moved}
            tasks[name] = {"dataset": "mnist", "decay": decay, "seed": seed, "init": "he"}
    return errors_on_the_way(found, tasks)


def verdicts(curves):
    judged = JudgedStudy("tanay_2018", ("lenet",), "mnist").judgements(networks(curves))
    return {one.claim.id: one.verdict for one in judged}


def test_errors_stand_at_the_landmarks_with_the_images_that_they_are_of():
    records = networks(ARTICLE, seeds=1)
    found = {
        (r.method, r.measurement.context["split"], r.measurement.context["epoch"]): r.measurement
        for r in records
    }
    assert {epoch for *_, epoch in found} == set(LANDMARKS)
    assert found["high-decay", "train", 9].value == 0.0058
    assert found["high-decay", "train", 9].n == 3000  # those that training watched
    assert found["low-decay", "test", 5].n == 10_000


def test_the_article_s_own_curves_hold():
    found = verdicts(ARTICLE)
    assert (found["N9"], found["N10"]) == ("holds", "holds")
    assert found["N1"] == "not run"


@pytest.mark.parametrize(
    ("which", "changed", "claim"),
    [
        (("high-decay", "train"), {5: 0.0098, 9: 0.0080, 10: 0.0058, 20: 0.0070}, "N9"),  # no rise
        (("low-decay", "train"), {15: 0.002}, "N9"),
        (("low-decay", "test"), {5: 0.0245, 10: 0.0170, 20: 0.0110}, "N10"),
        (("high-decay", "test"), {5: 0.0100, 10: 0.0117, 20: 0.0112}, "N10"),
    ],
)
def test_other_curves_refute(which, changed, claim):
    assert verdicts({**ARTICLE, which: changed})[claim] == "refuted"
