"""A set that was read from a folder keeps the names and sizes of its files, through every way to choose from it."""

import pytest
import torch
from PIL import Image

from clearance.data import Preprocessing, open_images
from clearance.data.image_set import PictureFiles
from clearance.data.intake import open_unlabelled
from clearance.data.stored import StoredImageSet, write_pixels

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def folder(tmp_path):
    for number, (name, size) in enumerate(
        (("ape/1.png", (9, 12)), ("ape/2.png", (8, 8)), ("bee/3.png", (20, 8)), ("bee/4.png", (8, 8)))
    ):
        file = tmp_path / "zoo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size, 40 * number).save(file)
    return tmp_path


def opened(folder):
    return open_images(f"folder:{folder}/zoo", Preprocessing(size=8), cache=folder / "cache")


def test_names_and_sizes_are_those_of_the_files(folder):
    data = opened(folder)
    assert [data.name_of(i) for i in range(4)] == ["ape/1.png", "ape/2.png", "bee/3.png", "bee/4.png"]
    assert data.files.sizes == ((9, 12), (8, 8), (20, 8), (8, 8))
    assert opened(folder).files == data.files  # from the cache


def test_unreadable_files_are_named_and_have_no_place(folder):
    (folder / "zoo/ape/0.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match=r"ape/0\.png"):
        data = opened(folder)
    assert len(data) == len(data.files.names) == 4
    assert data.name_of(0) == "ape/1.png"
    assert data.files.unreadable == (("ape/0.png", "not a picture, or damaged"),)


def test_every_choice_keeps_the_right_names(folder):
    data = opened(folder)
    some = data.subset(torch.tensor([3, 0]))
    assert some.files.names == ("bee/4.png", "ape/1.png")
    assert some.files.sizes == ((8, 8), (9, 12))
    kept = data.per_class(1, seed=0)
    for i in range(2):
        original = data.files.names.index(kept.name_of(i))
        assert torch.equal(kept.images[i], data.images[original])
    assert data.with_label_noise(0.5, seed=0).files is data.files
    assert data.unlabelled().files is data.files
    assert data.to("cpu").in_memory().files is data.files


def test_a_set_on_disk_keeps_them_too(folder):
    files = PictureFiles(("a/1", "a/2", "b/3"), ((1, 2), (3, 4), (5, 6)))
    store = write_pixels(folder / "x.pixels", [torch.zeros(3, 2, 2).byte().numpy()] * 3)
    data = StoredImageSet(store, torch.tensor([0, 0, 1]), ("a", "b"), files=files)
    assert data.to("cpu").subset(torch.tensor([2])).files == PictureFiles(("b/3",), ((5, 6),))
    assert data.in_memory().files == files
    assert data.unlabelled().files == files


def test_pictures_without_labels_have_names_too(folder):
    like = opened(folder)
    data = open_unlabelled(f"folder:{folder}/zoo", like, Preprocessing(size=8), cache=folder / "cache")
    assert data.name_of(2) == "bee/3.png"


def test_other_images_have_numbers():
    data = open_images((torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])))
    assert data.files is None
    assert data.name_of(2) == "image 2"
