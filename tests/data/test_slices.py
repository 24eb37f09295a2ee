"""A CSV file about images: which lines are about which image, and what is refused in one line."""

from dataclasses import replace

import pytest
import torch

from clearance.data import ImageSet, gaussian_images
from clearance.data.image_set import PictureFiles
from clearance.data.slices import read_slices


@pytest.fixture
def data():
    names = ("ape/1.png", "ape/2.png", "bee/1.png", "bee/3.png")
    return ImageSet(
        torch.zeros(4, 1, 2, 2),
        torch.tensor([0, 0, 1, 1]),
        ("ape", "bee"),
        files=PictureFiles(names, ((2, 2),) * 4),
    )


def written(folder, *lines):
    path = folder / "meta.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_names_are_found_with_the_folder_without_it_and_at_the_end_of_a_path(data, tmp_path):
    path = written(
        tmp_path, "file,site", "bee/3.png,A", "2.png,B", r"old\val\ape\1.png,C", "nowhere.png,D", "1.png,E"
    )
    with pytest.warns(UserWarning, match=r"meta\.csv has no line for 1 of 4 images; they are in no slice"):
        found = read_slices(path, data)
    assert found.columns == {"site": ("C", "B", None, "A")}


def test_a_line_about_a_file_of_that_name_in_another_folder_is_about_another_image(data, tmp_path):
    """Sets are divided, and most tools number the pictures of each class."""
    path = written(tmp_path, "file,site", "ape/1.png,A", "ape/3.png,B", "cow/2.png,C")
    with pytest.warns(UserWarning, match="no line for 3 of 4 images"):
        assert read_slices(path, data).columns == {"site": ("A", None, None, None)}
    with pytest.raises(ValueError, match=r"must have the names of the images, such as 'ape/1\.png'"):
        read_slices(written(tmp_path, "file,site", "ape/3.png,B", "cow/2.png,C"), data)


def test_lines_of_the_training_images_are_about_other_images_than_those_of_val(data, tmp_path):
    val = replace(data, name="val")
    own = [f"val/{name},{site}" for name, site in zip(data.files.names, "ABCD", strict=True)]
    others = [f"train/{name},E" for name in data.files.names]
    path = written(tmp_path, "file,site", *others, *own)
    assert read_slices(path, val).columns == {"site": tuple("ABCD")}
    with pytest.raises(ValueError, match="must have the names of the images"):
        read_slices(written(tmp_path, "file,site", *others), val)
    path = written(tmp_path, "file,site", *others, *own)
    with pytest.raises(
        ValueError, match=r"several folders: 'train', 'val'; got 'photos'.*Keep the lines of one"
    ):
        read_slices(path, replace(data, name="photos"))


def test_empty_cells_have_no_value_and_names_are_in_order_of_value(data, tmp_path):
    lines = ("ape/1.png,,", "2.png,,x", "bee/1.png,,", "3.png,B,y")
    slices = read_slices(written(tmp_path, "file,site,camera", *lines), data)
    assert slices.columns == {"site": (None, None, None, "B"), "camera": (None, "x", None, "y")}
    assert slices.named() == [("site=B", [3], [3]), ("camera=x", [1], [1, 3]), ("camera=y", [3], [1, 3])]


def test_images_without_file_names_may_be_numbered(tmp_path):
    data = gaussian_images(class_count=2, per_class=2)
    path = written(tmp_path, "row,site", "3,B", "2,B", "1,A", "0,A")
    assert read_slices(path, data).columns == {"site": ("A", "A", "B", "B")}
    assert (
        read_slices(written(tmp_path, "row,site", "5,A", "7,B", "8,B", "9,B"), data).columns["site"][0] == "A"
    )
    with pytest.raises(
        ValueError, match="must have the numbers of the images, 0 to 3, or follow their order"
    ):
        read_slices(written(tmp_path, "row,site", "4,B", "3,B", "2,A", "1,A"), data)


def test_many_numbers_are_cut_at_their_quartiles(tmp_path):
    many = gaussian_images(class_count=2, per_class=100)
    path = written(tmp_path, "row,age,id", *(f"{k},{k},name{k}" for k in range(200)))
    columns = read_slices(path, many).columns
    assert list(columns) == ["age"]  # every image has its own id
    groups = [columns["age"].count(value) for value in dict.fromkeys(columns["age"])]
    assert sum(groups) == 200
    assert all(45 <= count <= 55 for count in groups)
    late = written(tmp_path, "row,time", *(f"{k},{1_700_000_000 + k}" for k in range(200)))
    assert len(set(read_slices(late, many).columns["time"])) == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("file,site",), "a line for each image; got 1 lines"),
        (("file,site,site", "1,2,3"), "different column names"),
        (("file,site, site", "1,2,3"), "different column names"),
        (("file,a,a=b", "2.png,b=c,", "3.png,,c"), "different slices; 'a=b=c' is one of two columns"),
        (("file,site", "3.png"), "2 cells in every line; got 1 in line 2"),
        (("ape/1.png,A", "2.png,B"), "must name the columns; got 'ape/1.png', the name of an image"),
        (("file,site", "x.png,A"), "the names of the images, such as 'ape/1.png'"),
        (("file,site", "3.png,A", "bee/3.png,B"), "one line for each image; got two for 'bee/3.png'"),
        (("file", "3.png"), "a column besides the first"),
    ],
)
def test_what_is_no_such_table_is_refused(data, tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        read_slices(written(tmp_path, *lines), data)


def test_other_files_are_refused(data, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*meta\.csv; give a CSV file"):
        read_slices(tmp_path / "meta.csv", data)
    (tmp_path / "meta.csv").write_bytes(b"file,site\n\xff\xfe,A\n")
    with pytest.raises(ValueError, match="must be a CSV file in UTF-8"):
        read_slices(tmp_path / "meta.csv", data)
    with pytest.raises(ValueError, match="a line for each of the 60 images, in their order"):
        read_slices(written(tmp_path, "row,site", "0,A"), gaussian_images(per_class=20))


def test_numbers_may_be_missing_and_what_is_left_out_is_said(tmp_path):
    many = gaussian_images(class_count=2, per_class=100)
    ages = ["NA" if k == 7 else k for k in range(200)]
    path = written(tmp_path, "row,age,patient", *(f"{k},{age},p{k % 60}" for k, age in enumerate(ages)))
    with pytest.warns(UserWarning, match="'patient' left out: more than 50 values"):
        columns = read_slices(path, many).columns
    assert list(columns) == ["age"]
    assert columns["age"].count(None) == 1
