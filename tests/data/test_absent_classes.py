"""Test images that lack a class: classes keep the numbers that they have in the training images."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import clearance as cl
from clearance.data import ImageSet, Preprocessing, open_images
from clearance.data import stored as storage

TRAIN = open_images((torch.rand(8, 1, 4, 4), torch.arange(8) % 4))
PIXELS = torch.rand(4, 1, 4, 4)
NAMES = ("ant", "bee", "cow")


def npz(folder, labels, **more):
    np.savez(folder / "toy.npz", images=PIXELS.numpy(), labels=labels.numpy(), **more)
    return f"npz:{folder}/toy.npz"


FORMS = {
    "pair": lambda _, labels: (PIXELS, labels),
    "arrays": lambda _, labels: (PIXELS.numpy(), labels.tolist()),
    "npz": npz,
    "dataset": lambda _, labels: TensorDataset(PIXELS, labels),
    "loader": lambda _, labels: DataLoader(TensorDataset(PIXELS, labels), 3),
}


@pytest.mark.parametrize("absent", range(4))
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_the_other_classes_keep_their_numbers(tmp_path, form, absent):
    labels = torch.tensor([k for k in range(4) if k != absent] + [(absent + 1) % 4])
    found = open_images(form(tmp_path, labels), like=TRAIN)
    assert found.classes == TRAIN.classes
    assert torch.equal(found.labels, labels)
    if absent != 3:  # without the training images the last class cannot be known
        with pytest.raises(ValueError, match=r"got none of|numbered from 0"):
            open_images(form(tmp_path, labels))


def test_labels_that_are_no_class_and_other_names_are_refused_as_before(tmp_path):
    with pytest.raises(
        ValueError, match=r"must lie in 0\.\.3 because there are 4 classes; got labels from 0 to 4"
    ):
        open_images((PIXELS, torch.tensor([0, 4, 4, 3])), like=TRAIN)
    named = npz(tmp_path, torch.tensor([0, 2, 2, 0]), classes=np.array(NAMES))
    with pytest.raises(ValueError, match="got none of 'bee'"):
        open_images(named, like=TRAIN)
    known = ImageSet(torch.rand(3, 1, 4, 4), torch.arange(3), NAMES)
    assert open_images(named, like=known).classes == NAMES
    with pytest.raises(ValueError, match="got none of '1'"):
        open_images((PIXELS, torch.tensor([0, 2, 2, 0])), like=known)  # numbers say nothing of names
    with pytest.raises(ValueError, match=r"there are 3 classes; got labels from 0 to 3"):
        open_images(npz(tmp_path, torch.arange(4), classes=np.array(NAMES)), like=known)


def test_a_label_beyond_the_names_of_a_dataset_is_refused():
    class Pets(TensorDataset):
        classes = NAMES

    for like in (None, ImageSet(torch.rand(3, 1, 4, 4), torch.arange(3), NAMES)):
        with pytest.raises(ValueError, match=r"there are 3 classes; got labels from 0 to 3"):
            open_images(Pets(PIXELS, torch.arange(4)), like=like)


@pytest.fixture
def pets(tmp_path):
    for split in ("train", "val"):
        for name in NAMES:
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for i in range(2):
                if (split, name) != ("val", "bee"):
                    pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path


@pytest.mark.parametrize("largest", [2**30, 0], ids=["in memory", "on disk"])
def test_an_empty_or_missing_folder_is_a_class_without_images(pets, monkeypatch, largest):
    monkeypatch.setattr(storage, "IN_MEMORY", largest)
    how, cache = Preprocessing(size=8), pets / "cache"
    train = open_images(f"folder:{pets}/train", how, cache=cache)
    with pytest.raises(
        ValueError, match=r"got none in .*bee .*only among the test images of clearance.audit"
    ):
        open_images(f"folder:{pets}/val", how, cache=cache)
    for _ in range(2):  # empty, then missing
        found = open_images(f"folder:{pets}/val", how, cache=cache, like=train)
        assert (found.classes, found.labels.tolist()) == (NAMES, [0, 0, 2, 2])
        if (pets / "val" / "bee").is_dir():
            (pets / "val" / "bee").rmdir()


def test_a_class_whose_pictures_cannot_be_read_and_a_folder_of_nothing_are_errors(pets):
    how, cache = Preprocessing(size=8), pets / "cache"
    train = open_images(f"folder:{pets}/train", how, cache=cache)
    (pets / "val" / "bee" / "0.png").write_text("text")
    with pytest.raises(ValueError, match=r"that can be read; got none of 'bee'"):
        open_images(f"folder:{pets}/val", how, cache=cache, like=train)
    (pets / "none" / "bee").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"must hold pictures .*; got none"):
        open_images(f"folder:{pets}/none", how, cache=cache, like=train)


def test_an_audit_warns_and_measures_the_other_classes(tmp_path):
    train, test = cl.load_dataset("digits"), cl.load_dataset("digits", split="test")
    torch.manual_seed(0)
    model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    kept = test.labels != 3
    with pytest.warns(UserWarning, match=r"`test` has no image of 1 of the 10 classes, '3'"):
        card = cl.audit(
            model,
            train=train,
            test=(test.images[kept], test.labels[kept]),
            audits=["accuracy", "performance", "set_facts"],
        )
    recalls = {m.context["class"]: m.value for m in card.measurements if m.name == "recall"}
    right = model.eval()(test.images).argmax(dim=1) == test.labels
    assert recalls == {
        str(k): pytest.approx(float(right[test.labels == k].double().mean())) for k in range(10) if k != 3
    }
    facts = {
        m.name: m for m in card.measurements if m.audit == "set_facts" and m.context.get("split") == "test"
    }
    assert facts["empty_classes"].value == 1
    counts = test.labels[kept].bincount()
    assert facts["class_imbalance"].value == int(counts.max()) / int(counts[counts > 0].min())
    assert "1 class of test has no image ('3')" in str(card)
    pages = card.save_folder(tmp_path).parent
    assert "class of test has no image (&#39;3&#39;)" in (pages / "index.html").read_text("utf-8")
    assert "class of test has no image" in (pages / "share.html").read_text("utf-8")
