"""What a claim is called off its dataset, where it is only expected, and where nothing is judged."""

import dataclasses

import pytest

from papers.engine.judging import judge
from studies.claim_records import errors, one_claim, replaced

RECORDS = errors(foca=0.05, plain=0.20, dropout=0.15)
WORSE = replaced(RECORDS, "dropout", 0.02)


def judged(claims, records, **changes):
    """The judgement of one claim with changes to it; records are of digits."""
    (claim,) = claims.claims
    (found,) = judge(
        dataclasses.replace(claims, claims=(dataclasses.replace(claim, **changes),)), records, "digits"
    )
    return found


def test_about_another_dataset_it_is_not_comparable_and_the_ordering_stands_beside():
    elsewhere = {"datasets": ("cifar10",), "also": ("digits",)}
    words = [judged(one_claim(), records, **elsewhere).words for records in (RECORDS, WORSE)]
    assert words == ["not comparable; ordering here: holds", "not comparable; ordering here: does not hold"]
    factor = one_claim(kind="ratio", extra=", factor = 33")
    found = judged(factor, RECORDS, **elsewhere)
    assert found.words == "not comparable; ordering here: holds", "the factor is the other dataset's"
    assert found.readings[0].verdict == "not comparable"
    assert judged(one_claim("30"), RECORDS, **elsewhere).words == "not run"


def test_where_only_the_ordering_was_tested_the_word_says_so():
    assert judged(one_claim(), RECORDS).words == "ordering holds"
    assert judged(one_claim(kind="ratio", extra=", factor = 2"), RECORDS).words == "holds"


def test_what_the_paper_only_expects_is_not_counted():
    assert judged(one_claim(), RECORDS, expected=True).words == "expected only; ordering here: holds"
    assert judged(one_claim(), WORSE, expected=True).words == "expected only; ordering here: does not hold"


def test_nothing_is_judged_where_the_sheet_says_so():
    found = judged(one_claim(), RECORDS, not_judged={"digits": "no rate was searched"})
    assert (found.words, found.reason) == ("not judged", "no rate was searched")
    assert found.readings[0].compared, "the numbers are shown"
    assert found.readings[0].verdict == "not judged"


def test_a_claim_is_refuted_where_one_that_it_contains_is():
    """One comparison alone is significant and among several it is not: both say the same all the same."""
    claims = one_claim(extra=", against = {dropout = {}}")
    (part,) = claims.claims
    readings = (dataclasses.replace(part.readings[0], against={"plain": {}}),)
    whole = dataclasses.replace(part, id="B", readings=readings, includes=("A",))
    both = dataclasses.replace(claims, claims=(part, whole))
    assert [j.verdict for j in judge(both, RECORDS, "digits")] == ["ordering holds", "ordering holds"]
    first, second = judge(both, WORSE, "digits")
    assert (first.verdict, second.verdict) == ("refuted", "refuted")
    assert second.reason == "it contains claim A, which is refuted"
    with pytest.raises(ValueError, match="a claim that B includes"):
        dataclasses.replace(claims, claims=(whole,))


def test_cells_below_the_floor_are_left_out_and_named():
    many = [*RECORDS, *errors(100, foca=0.0005, plain=0.0001, dropout=0.0001)]
    assert judged(one_claim("[10, 100]"), many).verdict == "refuted"
    found = judged(one_claim("[10, 100]", extra=", floor = 0.005"), many)
    assert found.verdict == "ordering holds"
    assert found.reason == "left out, with less than 0.005 on the other side: samples 100"
    assert len(found.readings[0].compared) == len(found.readings[0].below_floor) == 2
    assert judged(one_claim("100", extra=", floor = 0.005"), many).verdict == "not run"


def test_no_more_seeds_are_judged_than_were_fixed():
    """Seeds that are added until a verdict pleases would change nothing."""
    claims = dataclasses.replace(one_claim(), seeds={"recipe": 5})
    more = errors(foca=0.05, plain=0.20, dropout=0.15, seeds=9)
    found = judged(claims, more)
    assert {one.comparison.seeds for one in found.readings[0].compared} == {5}
    fewer = judged(dataclasses.replace(claims, seeds={"recipe": 10}), more)
    assert (fewer.verdict, fewer.reason) == ("cannot tell", "9 seeds; a verdict needs 10")
    here = {"recipe": 10, f"recipe on {more[0].dataset}": 5, "recipe on elsewhere": 7}
    assert judged(dataclasses.replace(claims, seeds=here), more) == found
