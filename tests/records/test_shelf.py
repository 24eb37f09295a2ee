"""Records on a shelf: the same as in a tuple, in a fraction of the memory."""

import copy
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clearance.records import Record, Report
from clearance.records.shelf import IN_MEMORY, Shelf, ShelvedColumns, ShelvedRecords
from clearance.vocabulary import Measurement


def records_of(seed, count=100, method="plain"):
    return tuple(
        Record(
            "digits", method, seed, Measurement("accuracy", f"error {i}", 0.01 * i + seed, "fraction", n=500)
        )
        for i in range(count)
    )


@pytest.fixture
def runs():
    return [records_of(seed, count) for seed, count in enumerate((3, 1, 0, 4))]


@pytest.fixture
def whole(runs):
    return tuple(record for run in runs for record in run)


@pytest.fixture
def shelved(runs):
    shelf = Shelf()
    return ShelvedRecords.joined(ShelvedRecords.put(shelf, run) for run in runs)


def test_they_are_the_tuple(shelved, whole):
    assert shelved == whole
    assert whole == shelved
    assert shelved != whole[1:]
    assert len(shelved) == 8
    assert [shelved[i] for i in range(-8, 8)] == [whole[i] for i in range(-8, 8)]
    assert shelved[1:6:2] == whole[1:6:2]
    assert whole[3] in shelved
    with pytest.raises(IndexError):
        shelved[8]


def test_elsewhere_they_are_a_tuple(shelved, whole):
    for copied in (pickle.loads(pickle.dumps(shelved)), copy.deepcopy(shelved)):
        assert type(copied) is tuple
        assert copied == whole


def test_several_shelves_and_tuples_are_joined(runs, whole):
    apart = [ShelvedRecords.put(Shelf(), run) for run in runs]
    assert ShelvedRecords.joined(apart) == whole
    assert ShelvedRecords.joined([*apart[:2], *runs[2:]]) == whole
    assert ShelvedRecords.joined([]) == ()


def test_a_report_of_them_is_that_of_the_tuple(shelved, whole):
    ours, plain = (Report({}, {}, "", "", records=records) for records in (shelved, whole))
    assert ours.to_json() == plain.to_json()
    assert ours.summary == plain.summary


def test_their_texts_are_visible():
    (found,) = ShelvedRecords.put(Shelf(), records_of(0, 1, "pl\x1bain"))
    assert found.method == "pl\\x1bain"


def test_a_quantity_twice_is_an_error_on_a_shelf_too(runs):
    once = ShelvedRecords.put(Shelf(), runs[0])
    with pytest.raises(ValueError, match="once"):
        Report({}, {}, "", "", records=ShelvedRecords.joined([once, once]))


def test_columns_are_the_mapping():
    columns: dict[str, list[Any]] = {"x": [1, 2], "label": ["a", "b"]}
    shelved = ShelvedColumns(Shelf(), columns)
    assert dict(shelved) == columns
    assert len(shelved) == 2
    assert pickle.loads(pickle.dumps(shelved)) == columns


@pytest.mark.parametrize("size", [10, IN_MEMORY // 100])
def test_threads_read_it_while_it_grows(size):
    """In memory, and where most of it is in the file."""
    shelf = Shelf()
    places = [shelf.put((number, bytes(size))) for number in range(300)]

    def wrong():
        shelf.put("more")
        return sum(shelf.at(place) != (number, bytes(size)) for number, place in enumerate(places))

    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(wrong) for _ in range(4)]
    assert not any(one.result() for one in found)


def test_a_shelf_takes_less_memory_than_objects():
    def taken(keep):
        tracemalloc.start()
        kept = [keep(records_of(seed)) for seed in range(100)]
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == 100
        return used

    shelf = Shelf()
    assert taken(lambda run: ShelvedRecords.put(shelf, run)) < 0.4 * taken(tuple)
