"""Each defect planted in a set of photographs rings, alone and with the others, and none rings without it."""

import pytest

import clearance as cl
from clearance.report.audits import all_findings
from clearance.report.findings import Findings, datasets
from planted import DEFECTS, FLIPS, INPUT, LEAK, LEAKED, PAIR, planted

AUDITS = ["accuracy", "duplicates", "set_facts", "label_suspects", "preprocessing"]
RINGS = {FLIPS: "Labels", PAIR: "Labels", LEAK: "Duplicates", INPUT: "Input"}

pytestmark = pytest.mark.filterwarnings("error", "ignore:30 of 412 test images:UserWarning")


def audited(root, defects, seed):
    made = planted(root, defects, seed)
    return made, cl.audit(made.model, train=made.train, test=made.test, audits=AUDITS)


def alarms(card):
    """The problems on the first screen, in words."""
    (dataset,) = datasets(card.report)
    found = all_findings(Findings(card.report, dataset))
    return {one.title: " ".join(one.said.striptags().split()) for one in found if one.severity == "problem"}


@pytest.mark.parametrize(
    "defects",
    [
        pytest.param((), id="none", marks=pytest.mark.slow),
        *(pytest.param((one,), id=one, marks=pytest.mark.long) for one in DEFECTS),
        pytest.param(DEFECTS, id="all", marks=pytest.mark.slow),
    ],
)
def test_what_was_planted_rings_and_nothing_else(data_root, defects):
    made, card = audited(data_root, defects, seed=0)
    found = alarms(card)
    assert {RINGS[one] for one in defects} <= found.keys()
    assert found.keys() & set(RINGS.values()) <= {RINGS[one] for one in defects}
    if PAIR in defects:
        words = found["Labels"]
        assert (
            f"of {made.pair[0]} look like {made.pair[1]}" in words
            or f"of {made.pair[1]} look like {made.pair[0]}" in words
        )
    if LEAK in defects:
        assert found["Duplicates"].startswith(f"{LEAKED} of ")
    if FLIPS in defects:
        assert "almost surely wrong" in found["Labels"]


@pytest.mark.long
def test_the_list_has_most_of_the_wrong_labels_and_few_others(data_root):
    made, card = audited(data_root, (FLIPS,), seed=0)
    listed = [row["number"] for row in card.table("label_suspects", "suspects") if row["set"] == "train"]
    right = made.wrong[listed].double()
    needed = round(0.7 * int(made.wrong.sum()))
    first = int((right.cumsum(0) < needed).sum()) + 1
    assert right.sum() >= needed
    assert right[:first].mean() >= 0.8


@pytest.mark.long
def test_ten_clean_sets_ring_at_most_once(data_root):
    rung = [alarms(audited(data_root, (), seed)[1]).keys() & set(RINGS.values()) for seed in range(10)]
    assert sum(map(len, rung)) <= 1


@pytest.mark.long
@pytest.mark.parametrize("defects", [*((one,) for one in DEFECTS), DEFECTS], ids="+".join)
def test_each_defect_rings_on_five_other_seeds(data_root, defects):
    for seed in range(1, 6):
        _, card = audited(data_root, defects, seed)
        assert {RINGS[one] for one in defects} <= alarms(card).keys(), seed
