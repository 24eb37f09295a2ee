"""One set divided by a file of the user's: the images of each side are those that the file names."""

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import gaussian_images, open_images
from clearance.data.slices import read_slices
from clearance.data.split import read_split

ROWS = torch.randperm(60, generator=torch.Generator().manual_seed(0)).tolist()
TRAIN, VAL, TEST = ROWS[:40], ROWS[40:50], ROWS[50:]


def written(folder, name):
    """A split in each form."""
    path = folder / name
    if name.endswith(".pt"):
        sides = {"train_idx": torch.tensor(TRAIN), "val_idx": TEST, "seed": 3}
        torch.save(sides if name == "words.pt" else TRAIN, path)
    elif name.endswith(".npz"):
        np.savez(path, train=TRAIN, test=TEST, val=VAL)
    elif name.endswith(".npy"):
        np.save(path, np.isin(np.arange(60), TRAIN) if name == "mask.npy" else TRAIN)
    elif name.endswith(".txt"):
        path.write_text("\n".join(map(str, TRAIN)))
    else:
        side = {**dict.fromkeys(TRAIN, "Train"), **dict.fromkeys(VAL, "unused"), **dict.fromkeys(TEST, "val")}
        path.write_text("number,split,site\n" + "\n".join(f"{k},{side[k]},A" for k in range(60)))
    return path


@pytest.mark.parametrize(
    ("name", "held_out"),
    [
        *((name, TEST) for name in ("words.pt", "sides.npz", "lines.csv")),
        *((name, VAL + TEST) for name in ("list.pt", "list.npy", "mask.npy", "list.txt")),
    ],
)
def test_every_form_gives_the_images_that_it_names(tmp_path, name, held_out):
    data = gaussian_images()
    train, test = read_split(written(tmp_path, name), data)
    for found, rows in ((train, TRAIN), (test, held_out)):
        assert {image.numpy().tobytes() for image in found.images} == {
            data.images[row].numpy().tobytes() for row in rows
        }
        assert len(found) == len(rows)


@pytest.mark.parametrize(
    ("name", "held_out"),
    [
        *(
            (name, True)
            for name in (
                "test_idx.npy",
                "val.npy",
                "held_out.npy",
                "holdout.npy",
                "TestIndices.npy",
                "valset.npy",
                "xtest.npy",
                "dev-set.npy",
            )
        ),
        *(
            (name, False)
            for name in (
                "train_test_split.npy",
                "trainset_no_test.npy",
                "latest.npy",
                "values.npy",
                "held_in.npy",
            )
        ),
    ],
)
def test_one_list_is_held_out_if_the_file_s_name_says_so(tmp_path, name, held_out):
    np.save(tmp_path / name, np.array(TEST))
    train, test = read_split(tmp_path / name, gaussian_images())
    assert (len(train), len(test)) == ((50, 10) if held_out else (10, 50))


def test_images_without_files_keep_the_numbers_that_they_had_before_the_split(tmp_path):
    train, test = read_split(written(tmp_path, "sides.npz"), gaussian_images())
    assert [test.name_of(i) for i in range(len(test))] == [f"image {row}" for row in TEST]
    assert train.subset(torch.tensor([3, 1])).name_of(0) == f"image {TRAIN[3]}"
    lines = "\n".join(f"{row},{'AB'[row % 2]}" for row in range(60))
    (tmp_path / "meta.csv").write_text(f"number,site\n{lines}")
    found = read_slices(tmp_path / "meta.csv", test)
    assert found.columns["site"] == tuple("AB"[row % 2] for row in TEST)
    for order in (TEST[::-1], sorted(TEST)):  # the lines of these images alone, in any order
        lines = "\n".join(f"{row},{'AB'[row % 2]}" for row in order)
        (tmp_path / "meta.csv").write_text(f"number,site\n{lines}")
        assert read_slices(tmp_path / "meta.csv", test).columns == found.columns
    others = "\n".join(f"{row},A" for row in TRAIN[: len(TEST)])
    (tmp_path / "meta.csv").write_text(f"number,site\n{others}")
    with pytest.raises(ValueError, match="must have the names of the images"):
        read_slices(tmp_path / "meta.csv", test)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pets")
    for number, name in enumerate(("cats/a.png", "cats/b.png", "dogs/a.png", "dogs/c.png")):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 40 * number).save(folder / name)
    return open_images(f"folder:{folder}", cache=tmp_path_factory.mktemp("cache"))


def names(data):
    return [data.name_of(i) for i in range(len(data))]


def test_files_by_name(pictures, tmp_path):
    (tmp_path / "split.csv").write_text(
        "path,subset\n/data/cats/a.png,train\ncats/b.png,val\ndogs/a.png,train\nc.png,val\n"
    )
    train, test = read_split(tmp_path / "split.csv", pictures)
    assert names(train) == ["cats/a.png", "dogs/a.png"]
    assert names(test) == ["cats/b.png", "dogs/c.png"]
    (tmp_path / "train.txt").write_text("cats/a.png\ndogs/a.png\n")
    assert names(read_split(tmp_path / "train.txt", pictures)[1]) == names(test)


def test_file_names_without_their_ending_are_names_also_where_they_are_digits(tmp_path):
    for number in range(8):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 30 * number).save(path)
    data = open_images(f"folder:{tmp_path / 'set'}", cache=tmp_path / "cache")
    listed = ["000000", "000001", "000002", "000003"]
    (tmp_path / "train.txt").write_text("\n".join(listed))
    train, test = read_split(tmp_path / "train.txt", data)
    assert sorted(name[2:8] for name in names(train)) == listed
    assert sorted(name[2:8] for name in names(test)) == [f"{k:06}" for k in range(4, 8)]


WRONG = {
    "nothing there": (None, "no file"),
    "one side": ("file,split\ncats/a.png,train\ndogs/a.png,train\n", "'test' or 'val'; got 'train'"),
    "other words": ("file,split\ncats/a.png,A\ndogs/a.png,B\n", "got 'a', 'b'"),
}


@pytest.mark.parametrize(("content", "fragment"), WRONG.values(), ids=WRONG)
def test_what_divides_nothing_is_one_error(pictures, tmp_path, content, fragment):
    if content is not None:
        (tmp_path / "split.csv").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=fragment):
        read_split(tmp_path / "split.csv", pictures)


def test_an_image_on_both_sides_and_numbers_that_do_not_exist(tmp_path):
    np.savez(tmp_path / "split.npz", train=[0, 1, 2], test=[2, 3])
    with pytest.raises(ValueError, match="got 1 on both sides, such as image 2"):
        read_split(tmp_path / "split.npz", gaussian_images())
    np.savez(tmp_path / "split.npz", train=[0, 1, 99], test=[2, 3])
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 59.*got int64 from 0 to 99"):
        read_split(tmp_path / "split.npz", gaussian_images())
    np.save(tmp_path / "all.npy", np.arange(60))
    with pytest.raises(ValueError, match="got none"):
        read_split(tmp_path / "all.npy", gaussian_images())


@pytest.mark.parametrize("name", ["train.npy", "is_train.txt", "test.npy"])
def test_yes_or_no_in_numbers_is_not_read_as_images_0_and_1(tmp_path, name):
    mask = np.isin(np.arange(60), TRAIN).astype(int)
    if name.endswith("npy"):
        np.save(tmp_path / name, mask)
    else:
        (tmp_path / name).write_text("\n".join(map(str, mask)))
    with pytest.raises(
        ValueError, match=r"each image once; got 60 numbers, 2 of them different.*True and False"
    ):
        read_split(tmp_path / name, gaussian_images())


def test_a_file_that_would_run_code_does_not(tmp_path):
    class Evil:
        def __reduce__(self):
            return exec, ("raise AssertionError('was run')",)

    torch.save({"train": Evil()}, tmp_path / "split.pt")
    with pytest.raises(ValueError, match=r"split.pt must hold numbers of images"):
        read_split(tmp_path / "split.pt", gaussian_images())


def test_numbers_are_refused_where_files_are_missing(pictures, tmp_path):
    from dataclasses import replace

    lacking = replace(pictures, files=replace(pictures.files, unreadable=(("cats/x.png", "broken"),)))
    np.save(tmp_path / "train.npy", [0, 1])
    with pytest.raises(ValueError, match=r"1 files of .* cannot be read"):
        read_split(tmp_path / "train.npy", lacking)


def test_names_that_are_no_images_are_counted(pictures, tmp_path):
    file = tmp_path / "split.csv"
    names = [pictures.name_of(place) for place in range(len(pictures))]
    lines = [f"{name},{('train', 'test')[place % 2]}" for place, name in enumerate(names)]
    file.write_text("\n".join(["file,split", *lines, "gone.png,train", "lost.png,test"]))
    with pytest.warns(UserWarning, match=f"2 of {len(names) + 2} lines of split.csv are passed over"):
        train, test = read_split(file, pictures)
    assert len(train) + len(test) == len(names)


def test_a_table_without_a_line_of_columns_is_refused(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (4, 4), (number, 0, 90)).save(tmp_path / "all" / name / f"{name}{number}.png")
    data = open_images(f"folder:{tmp_path}/all", cache=tmp_path / "cache")
    assert data.files is not None
    sides = ["train", "train", "test"] * 2
    for prefix in (True, False):
        names = [name if prefix else name.split("/")[1] for name in data.files.names]
        lines = [f"{name},{side}" for name, side in zip(names, sides, strict=True)]
        (tmp_path / "split.csv").write_text("\n".join(lines))
        with pytest.raises(
            ValueError, match=r"the first line of .* must name the columns; got '.*ant0\.png'"
        ):
            read_split(tmp_path / "split.csv", data)
