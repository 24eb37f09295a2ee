"""What is odd about a set is counted and named, and an ordinary set has nothing odd."""

import pytest
import torch
from PIL import Image
from torch import nn

from clearance.audits import SetFacts
from clearance.audits.set_facts import GREY, SIZE, UNREADABLE
from clearance.data import ImageSet, Preprocessing, gaussian_images, open_images
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")


def found(train, test):
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), nn.Linear(train.images[0].numel(), train.class_count))
    findings = SetFacts()(model, train, test)
    numbers = {(m.name, m.context.get("split")): m for m in findings.measurements}
    return model, numbers, {exhibit.name: exhibit.columns for exhibit in findings.exhibits}


def picture(file, size=(12, 10), colour=(200, 30, 90)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(file)


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "test"):
        for name in ("ape", "bee"):
            for number in range(6):
                picture(tmp_path / split / name / f"{number}.png", colour=(200, 10 * number, 90))
    return tmp_path


def opened(folder, split):
    return open_images(f"folder:{folder}/{split}", Preprocessing(size=8), cache=folder / "cache")


def test_an_ordinary_folder_has_nothing_odd(folder):
    _, numbers, exhibits = found(opened(folder, "train"), opened(folder, "test"))
    assert {name for name, _ in numbers} == {
        "train_minus_test", "class_imbalance", "grey_images", "unreadable_files", "odd_sizes"
    }  # fmt: skip
    assert all(m.value == 0 for (name, _), m in numbers.items() if m.unit == "count")
    assert exhibits["odd_images"]["image"] == []
    assert exhibits["class_sizes"] == {"class": ["ape", "bee"], "train images": [6, 6], "test images": [6, 6]}


def test_odd_images_are_counted_and_named(folder):
    picture(folder / "train/ape/small.png", (4, 4))
    picture(folder / "train/bee/wide.png", (40, 10))
    picture(folder / "test/bee/grey.png", colour=(90, 90, 90))
    (folder / "test/ape/broken.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="broken"):
        test = opened(folder, "test")
    _, numbers, exhibits = found(opened(folder, "train"), test)
    assert numbers["odd_sizes", "train"].value == 2
    assert numbers["unreadable_files", "test"].value == 1
    assert numbers["unreadable_files", "test"].n == 14
    assert numbers["grey_images", "test"].value == 1
    rows = list(zip(*exhibits["odd_images"].values(), strict=True))
    assert rows == [
        ("train", SIZE, "ape/small.png", "4x4"),
        ("train", SIZE, "bee/wide.png", "40x10"),
        ("test", UNREADABLE, "ape/broken.png", "not a picture, or damaged"),
        ("test", GREY, "bee/grey.png", ""),
    ]


def test_a_set_of_grey_pictures_alone_is_not_odd():
    images = torch.rand(8, 1, 4, 4).expand(-1, 3, -1, -1).contiguous()
    data = ImageSet(images, torch.arange(8) % 2, ("a", "b"))
    _, numbers, exhibits = found(data, data)
    assert numbers["grey_images", "train"].value == 0
    assert exhibits["odd_images"]["image"] == []


def test_a_set_of_grey_pictures_beside_one_of_colours_is_odd():
    grey = torch.rand(8, 1, 4, 4).expand(-1, 3, -1, -1).contiguous()
    labels = torch.arange(8) % 2
    train, test = (ImageSet(images, labels, ("a", "b")) for images in (torch.rand(8, 3, 4, 4), grey))
    _, numbers, _ = found(train, test)
    assert (numbers["grey_images", "train"].value, numbers["grey_images", "test"].value) == (0, 8)


def test_imbalance_is_the_largest_class_over_the_smallest():
    data = gaussian_images(per_class=30)
    rows = torch.cat([(data.labels == k).nonzero().flatten()[:count] for k, count in enumerate((30, 6, 12))])
    _, numbers, _ = found(data.subset(rows), data)
    assert numbers["class_imbalance", "train"].value == 5.0
    assert numbers["class_imbalance", "test"].value == 1.0
    assert numbers["class_imbalance", "test"].n == 3


def test_the_difference_of_errors_has_its_sign_and_interval():
    train, test = gaussian_images(per_class=40, seed=0), gaussian_images(per_class=40, seed=1)
    model, numbers, _ = found(train, test)
    errors = [
        float((model(data.images).argmax(dim=1) != data.labels).double().mean()) for data in (train, test)
    ]
    (difference,) = [m for (name, _), m in numbers.items() if name == "train_minus_test"]
    assert difference.value == pytest.approx(errors[0] - errors[1])
    assert difference.low < difference.value < difference.high
