"""Tables and lists about images that no one would write: each names images of the set, or one line names the file."""

import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearance.data import ImageSet
from clearance.data.image_set import PictureFiles
from clearance.data.slices import read_slices
from clearance.data.split import read_split
from fuzz.damage import NUMBERS, WORDS, damaged_bytes, plain_values
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK
FILES = ("ape/1.png", "ape/2.png", "bee/1.png", "bee/3.png")
NAMED = ImageSet(
    torch.zeros(4, 1, 2, 2),
    torch.tensor([0, 0, 1, 1]),
    ("ape", "bee"),
    files=PictureFiles(FILES, ((2, 2),) * 4),
)
CELLS = st.one_of(
    st.sampled_from([*FILES, "train", "test", "A", "B"]),
    st.sampled_from([word for word in WORDS if word.isprintable()]),
    st.sampled_from(NUMBERS).map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
ROWS = st.tuples(st.sampled_from(FILES), CELLS, CELLS)


def as_csv(rows):
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


TABLES = st.one_of(
    st.builds(lambda head, rows: as_csv([head, *rows]), ROWS, st.lists(ROWS, max_size=5)),
    st.lists(st.lists(CELLS, max_size=4), max_size=5).map(as_csv),
    damaged_bytes(as_csv([("file", "site", "split"), *((name, "A", "train") for name in FILES)])).filter(
        bool
    ),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@cases(150)
@given(content=TABLES)
def test_tables_of_slices_and_splits(place, content):
    (place / "meta.csv").write_bytes(content)
    with one_line("meta.csv"):
        for _, rows, _ in read_slices(place / "meta.csv", NAMED).named():
            assert set(rows) <= set(range(4))
    with one_line("meta.csv"):
        train, test = read_split(place / "meta.csv", NAMED)
        assert train.files
        assert test.files
        assert not set(train.files.names) & set(test.files.names)


def saved_by_torch(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def saved_by_numpy(content):
    file = io.BytesIO()
    np.save(file, np.array(content), allow_pickle=False)
    return file.getvalue()


NUMBERS_OF_IMAGES = st.lists(st.integers(-1, 5), max_size=5)
SIDES = st.dictionaries(st.sampled_from(("train", "test", "val_idx", "x", 1)), NUMBERS_OF_IMAGES, max_size=3)
KEPT = st.one_of(SIDES, NUMBERS_OF_IMAGES, plain_values(4), st.builds(torch.tensor, NUMBERS_OF_IMAGES))
STORED = {
    "pt": st.one_of(
        KEPT.map(saved_by_torch), damaged_bytes(saved_by_torch({"train": [0, 2], "test": [1, 3]}))
    ),
    "npy": st.one_of(NUMBERS_OF_IMAGES.map(saved_by_numpy), damaged_bytes(saved_by_numpy([0, 2]))),
    "txt": st.one_of(st.lists(CELLS, max_size=5).map("\n".join).map(str.encode), st.binary(max_size=20)),
}


@cases(150)
@given(data=st.data())
def test_lists_of_images(place, data):
    kind = data.draw(st.sampled_from(sorted(STORED)))
    file = place / f"split.{kind}"
    file.write_bytes(data.draw(STORED[kind]) or b"")
    with one_line(file.name):
        train, test = read_split(file, NAMED)
        assert train.files
        assert test.files
        assert not set(train.files.names) & set(test.files.names)
