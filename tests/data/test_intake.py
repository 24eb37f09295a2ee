"""Datasets, loaders and tables of any kind give the same set as the tensors in them."""

import gc
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from clearance import compare
from clearance.data import ImageSet, Preprocessing, StoredImageSet, open_images
from clearance.data.intake import open_unlabelled, unnormalised
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit

BYTES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
PIXELS = torch.from_numpy(BYTES).permute(0, 3, 1, 2).float() / 255
LABELS = [0, 1, 2, 0, 1, 2]


class Picture:
    """Stands for Hugging Face's feature of that name."""


Picture.__name__ = "Image"


class ClassLabel:
    names = ("ant", "bee", "cow")


class Table(torch.utils.data.Dataset[Any]):
    """A Hugging Face dataset, as far as anybody looks at it."""

    def __init__(self, image="image", label="label", kinds=(Picture, ClassLabel)):
        self.features = {"id": object(), image: kinds[0](), label: kinds[1]()}
        self.names = image, label

    def __len__(self):
        return 6

    def __getitem__(self, i):
        image, label = self.names
        return {"id": i, image: Image.fromarray(BYTES[i]), label: LABELS[i]}


class Transformed(Table):
    """The same after ``with_transform``: items have the columns that the transform makes, `features` the old ones."""

    def __init__(self, keep=()):
        super().__init__()
        self.keep = keep

    def __getitem__(self, i):
        item = super().__getitem__(i)
        return {"pixel_values": PIXELS[i], "label": LABELS[i]} | {name: item[name] for name in self.keep}


def stacked(items):
    """A collating function as in the guides to Hugging Face's Trainer."""
    images = [torch.from_numpy(np.array(item["image"])).permute(2, 0, 1) / 255 for item in items]
    return {"pixel_values": torch.stack(images), "labels": torch.tensor([item["label"] for item in items])}


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Named(Items):
    classes = ("ant", "bee", "cow")


def loader(**settings):
    return DataLoader(TensorDataset(PIXELS, torch.tensor(LABELS)), batch_size=4, **settings)


SOURCES = {
    "tensors in pairs": lambda: list(zip(PIXELS, LABELS, strict=True)),
    "bytes in pairs": lambda: list(zip(BYTES, LABELS, strict=True)),
    "byte tensors": lambda: [((PIXELS[i] * 255).to(torch.uint8), LABELS[i]) for i in range(6)],
    "pictures in pairs": lambda: [(Image.fromarray(BYTES[i]), LABELS[i]) for i in range(6)],
    "dictionaries": lambda: [
        {"pixel_values": PIXELS[i], "labels": torch.tensor(LABELS[i])} for i in range(6)
    ],
    "loader": loader,
    "loader of dictionaries": lambda: DataLoader(
        Items([{"img": PIXELS[i], "y": LABELS[i]} for i in range(6)]), batch_size=4
    ),
    "Hugging Face": Table,
    "other columns": lambda: Table("photo", "species"),
    "usual names, other types": lambda: Table("img", "fine_label", (object, object)),
    "with_transform": Transformed,
    "with_transform that keeps the picture": lambda: Transformed(keep=("image",)),
    "collating loader": lambda: DataLoader(Table(), batch_size=4, collate_fn=stacked),
    "loader of lists": lambda: DataLoader(
        Table(), 4, collate_fn=lambda items: ([i["image"] for i in items], [i["label"] for i in items])
    ),
    "part of classes": lambda: Subset(Named(zip(PIXELS, LABELS, strict=True)), range(6)),
    "part of a part of Hugging Face": lambda: Subset(Subset(Table(), range(6)), range(6)),
    "loader of a part": lambda: DataLoader(Subset(Named(zip(PIXELS, LABELS, strict=True)), range(6)), 4),
    "pair": lambda: (PIXELS, LABELS),
    "classes": lambda: Named(zip(PIXELS, LABELS, strict=True)),
}


UNNAMED = {
    "tensors in pairs", "bytes in pairs", "byte tensors", "pictures in pairs", "dictionaries", "loader",
    "loader of dictionaries", "usual names, other types", "pair",
}  # fmt: skip


@pytest.mark.parametrize("memory", [2**30, 1000])  # 1,000 bytes hold four images
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_images(source, memory, memory_for_images):
    memory_for_images(memory)
    data = open_images(SOURCES[source](), name="mine")
    assert isinstance(data, StoredImageSet) == (memory == 1000 and source != "pair")
    assert torch.equal(torch.cat([images for images, _ in data.batches(4)]), PIXELS)
    assert data.labels.tolist() == LABELS
    assert data.name == "mine"
    assert data.classes == (("0", "1", "2") if source in UNNAMED else ("ant", "bee", "cow"))


def test_what_is_on_disk_goes_with_the_set(memory_for_images):
    memory_for_images(1000)
    data = open_images(loader())
    assert isinstance(data, StoredImageSet)
    part = data.subset(torch.arange(5))
    folder = data.store.path.parent
    assert folder.is_dir()
    del data
    gc.collect()
    assert torch.equal(part.batch(torch.tensor([4]))[0], PIXELS[4:5])  # a subset keeps the file
    del part
    gc.collect()
    assert not folder.exists()


def test_pictures_of_a_dataset_are_resized_and_cropped():
    pictures = [(Image.new("L", (20 + i, 16)), i % 2) for i in range(4)]
    assert open_images(pictures, Preprocessing(size=8, short_side=9)).shape == (1, 8, 8)
    with pytest.raises(
        ValueError, match=r"got \(1, 16, 20\) of uint8 at index 0 and \(1, 16, 21\) of uint8 at index 1; gi"
    ):
        open_images(pictures)


def test_named_sources(tmp_path):
    np.savez(tmp_path / "toy.npz", images=BYTES, labels=LABELS)
    assert torch.equal(open_images(f"npz:{tmp_path}/toy.npz").images, PIXELS)
    for label in range(3):
        (tmp_path / "toy" / f"c{label}").mkdir(parents=True)
        Image.fromarray(BYTES[label]).save(tmp_path / "toy" / f"c{label}" / "a.png")
    assert torch.equal(open_images(f"folder:{tmp_path}/toy", cache=tmp_path).images, PIXELS[:3])
    with pytest.raises(ValueError, match="not resized and must have `size` 8; got 4x5"):
        open_images(f"npz:{tmp_path}/toy.npz", Preprocessing(size=8, short_side=8))


def test_an_image_set_stays_what_it_is():
    data = ImageSet(PIXELS, torch.tensor(LABELS), ("a", "b", "c"))
    assert open_images(data) is data


def test_random_split_keeps_the_classes():
    whole = Named([*zip(PIXELS, LABELS, strict=True)] * 8)
    parts = random_split(whole, [24, 24], torch.Generator().manual_seed(0))
    assert {open_images(part).classes for part in parts} == {("ant", "bee", "cow")}


class Renumbered(Named):
    """Labels that a `target_transform` has changed, as ImageFolder's does."""

    def __init__(self, items, target_transform):
        super().__init__(items)
        self.target_transform = target_transform

    def __getitem__(self, i):
        image, label = super().__getitem__(i)
        return image, self.target_transform(label)


class Around(list):
    """A dataset around another one; it changes images, and perhaps labels."""

    def __init__(self, dataset, change):
        super().__init__([(image, change(label)) for image, label in dataset])
        self.dataset = dataset


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda k: k, ("ant", "bee", "cow")),
        (lambda k: (k + 1) % 3, ("cow", "ant", "bee")),
        (lambda k: min(k, 1), ("0", "1")),
    ],
)
def test_names_of_classes_follow_labels_that_are_renumbered(change, expected):
    items = [*zip(PIXELS, LABELS, strict=True)] * 3
    assert open_images(Renumbered(items, change)).classes == expected
    around = open_images(Around(Named(items), change)).classes
    assert around == (expected if expected[0] == "ant" else tuple(map(str, range(len(expected)))))


def small():
    torch.manual_seed(0)
    extractor = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 8), torch.nn.ReLU())
    return Classifier(extractor, torch.nn.Linear(8, 3))


FORMS = ["Hugging Face", "with_transform", "collating loader", "loader"]


@pytest.mark.parametrize("form", FORMS)
def test_fit_and_foca_take_what_an_audit_takes(form):
    model = small()
    result = fit(model, EndToEnd(), SOURCES[form](), epochs=1, batch_size=4, validation=SOURCES[form]())
    assert "validation_error" in result.history[0]
    way = FOCA(per_class=1)
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.1)
    training: Any = way.start(model, SOURCES[form](), optimizer, way.generators(0))
    assert len(training.data) == 6


@pytest.mark.parametrize("form", FORMS)
def test_compare_takes_what_an_audit_takes(form):
    held_out = Table()
    held_out.__class__ = type("Brighter", (Table,), {"__getitem__": brighter})
    test = held_out if form != "loader" else (1 - PIXELS, LABELS)
    card = compare(["plain"], SOURCES[form](), test, model=small, seeds=1, epochs=1, audits=["accuracy"])
    assert {record.measurement.context.get("split") for record in card.records} >= {"train", "test"}


def brighter(table, i):
    return {"image": Image.fromarray(255 - BYTES[i]), "label": LABELS[i]}


class Wrong(Table):
    def __init__(self, *names):
        self.features = dict.fromkeys(names, object())


WRONG = {
    "word": ("imagenet", "folder:PATH or npz:PATH; got 'imagenet'"),
    "no path": ("folder:", "folder:PATH or npz:PATH; got 'folder:'"),
    "number": (3, "a map-style Dataset or a DataLoader; got int"),
    "images alone": (PIXELS, "got Tensor"),
    "no columns of images": (Wrong("id", "label"), "must have a column of images, .*; got 'id', 'label'"),
    "no columns of labels": (Wrong("image", "id"), "must have a column of labels, .*; got 'image', 'id'"),
    "dictionary without": (
        [{"image": PIXELS[0], "text": "a"}],
        "a column of labels, .*; got 'image', 'text'",
    ),
    "no pair": ([PIXELS[0]], "a dictionary with both; got Tensor at 0"),
    "empty": ([], "at least one image; got none"),
    "text for an image": ([("a.png", 0)], "got str at index 0"),
    "label in words": ([(PIXELS[0], "cat")], "`labels` must be whole numbers"),
    "two labels": ([(PIXELS[0], [0, 1])], r"one whole number; got shape \(2,\) at index 0.*a DataLoader"),
    "normalised": ([(PIXELS[0] * 9 - 3, 0)], "must lie in .* take the normalisation out"),
    "loader of images": (DataLoader(TensorDataset(PIXELS)), "a dictionary with both; got list of 1 at 0"),
    "loader of vectors": (
        DataLoader(TensorDataset(PIXELS[:, 0, 0], torch.tensor(LABELS)), batch_size=2),
        r"images \(B, C, H, W\); got Tensor of shape \(2, 4\) with 2 labels",
    ),
}


@pytest.mark.parametrize(("data", "fragment"), WRONG.values(), ids=WRONG.keys())
def test_bad_input_is_one_clear_error(data, fragment):
    with pytest.raises(ValueError, match=fragment):
        open_images(data)


def test_missing_files(tmp_path):
    for kind in ("folder", "npz"):
        with pytest.raises(FileNotFoundError):
            open_images(f"{kind}:{tmp_path}/nothing")


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(zip(PIXELS, LABELS, strict=True))


@pytest.mark.parametrize("labels", [LABELS, torch.tensor(LABELS)])
def test_single_images_where_batches_are_expected_are_refused_with_the_remedy(labels):
    single = [(image, label) for image, label in zip(PIXELS, labels, strict=True)]
    for data in (Stream(), (pair for pair in single)):
        with pytest.raises(
            ValueError, match=r"with one label\. For single images use .*DataLoader\(data, 256\)"
        ):
            open_images(data)
    assert len(open_images(DataLoader(Stream(), 4))) == 6


class TestNormalised:
    """Normalisation is undone on request, to the byte."""

    MEAN, STD = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)

    @pytest.mark.parametrize("form", ["dataset", "loader", "pair", "arrays"])
    def test_every_form(self, form):
        torch.manual_seed(0)
        images, labels = torch.randint(256, (12, 3, 5, 5)) / 255, torch.arange(12) % 2
        given = (images - self.MEAN) / self.STD
        pairs: Any = list(zip(given, labels, strict=True))
        data = {
            "dataset": pairs,
            "loader": torch.utils.data.DataLoader(pairs, batch_size=5),
            "pair": (given, labels),
            "arrays": (given.numpy(), labels.numpy()),
        }[form]
        assert torch.equal(open_images(data, normalised=(self.MEAN, self.STD)).images, images)

    def test_pictures_and_bytes_are_never_normalised(self):
        picture = Image.fromarray(np.full((4, 4, 3), 51, dtype=np.uint8))
        found = open_images([(picture, 0), (picture, 1)], normalised=(self.MEAN, self.STD))
        assert torch.equal(found.images, torch.full((2, 3, 4, 4), 0.2))

    @pytest.mark.parametrize("form", ["dataset", "pair", "unlabelled"])
    def test_images_that_were_not_normalised_are_refused(self, form):
        images, labels = torch.rand(6, 3, 5, 5), torch.arange(6) % 2

        def opened():
            if form == "unlabelled":
                like = open_images((images, labels))
                return open_unlabelled(images, like, normalised=(self.MEAN, self.STD))
            data: Any = list(zip(images, labels, strict=True)) if form == "dataset" else (images, labels)
            return open_images(data, normalised=(self.MEAN, self.STD))

        with pytest.raises(ValueError, match=r"got values from 0\.0\S* to 0\.9.*Leave it out"):
            opened()

    def test_wrong_numbers_are_an_error_that_says_what_to_do(self):
        given = (torch.rand(4, 3, 2, 2) - self.MEAN) / self.STD
        with pytest.raises(ValueError, match="normalised=True"):
            open_images((given, torch.arange(4) % 2))

    def test_other_numbers_than_it_was_normalised_with_are_named(self):
        given = (torch.rand(4, 3, 2, 2) - self.MEAN) / self.STD
        told = torch.tensor([0.0]), torch.tensor([1.0])
        said = r"undoes mean 0 and std 1, those of the model.*lie in -\d.* to \d.*Give wrap the mean and std that they"
        with pytest.raises(ValueError, match=said):
            open_images((given, torch.arange(4) % 2), normalised=told)


class Shifted(Table):
    """Every image is moved at random each time it is read."""

    def __getitem__(self, i):
        moved = np.roll(BYTES[i], int(torch.randint(1, 5, ())), axis=0)
        return {**super().__getitem__(i), "image": Image.fromarray(moved)}


class Normalised(Shifted):
    """The same, and then normalised: its values are no pixels."""

    def __getitem__(self, i):
        item = super().__getitem__(i)
        return {**item, "image": torch.from_numpy(np.array(item["image"])).permute(2, 0, 1) / 127.5 - 1}


def test_random_transforms_before_a_normalisation_are_warned_of_too():
    half = torch.tensor(0.5)
    for given in (Normalised(), DataLoader(Normalised(), batch_size=4)):
        with pytest.warns(UserWarning, match="the Dataset has random transforms"):
            open_images(given, normalised=(half, half))


@pytest.mark.parametrize("given", [Shifted(), Subset(Shifted(), range(6))])
def test_random_transforms_are_warned_of(given):
    with pytest.warns(
        UserWarning, match="is another each time it is read: the Dataset has random transforms"
    ) as caught:
        open_images(given)
    assert caught[0].filename == __file__
    pairs = [(item["image"], item["label"]) for item in (given[i] for i in range(6))]
    open_images(pairs)


def test_undone_normalisation_of_floats_that_are_no_bytes_stays_within_the_range():
    mean, std = (
        torch.tensor(three).view(3, 1, 1) for three in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    )
    images = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images[:, :, :2], images[:, :, 2:4] = 0.0, 1.0
    for dtype, exact in ((torch.float32, 1e-6), (torch.float16, 2e-3)):
        found = unnormalised(((images - mean) / std).to(dtype), mean, std)
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
        torch.testing.assert_close(found, images, atol=exact, rtol=0)


def test_a_grey_picture_among_coloured_ones_becomes_coloured():
    def picture(mode, level):
        return Image.new(mode, (8, 8), level if mode == "L" else (level, level, level))

    pictures = [
        (picture("RGB", 10 * place) if place != 3 else picture("L", 30), place % 2) for place in range(6)
    ]
    found = open_images(pictures)
    assert found.shape == (3, 8, 8)
    assert found.batch(torch.tensor([3]))[0].unique().tolist() == pytest.approx([30 / 255])
    with pytest.raises(ValueError, match="convert all to one mode"):
        open_images(pictures[3:])


def test_one_channel_turned_round_is_still_one_channel():
    images = np.random.default_rng(0).random((4, 1, 4, 4), dtype=np.float32)
    turned = open_images((images[:, ::-1], [0, 1, 0, 1]))  # from BGR to RGB
    assert torch.equal(turned.images, torch.from_numpy(images))


class TestLoaders:
    DATA = TensorDataset(PIXELS, torch.tensor(LABELS))

    @pytest.mark.parametrize(
        "settings",
        [
            {"shuffle": True},
            {"drop_last": True},
            {"shuffle": True, "drop_last": True},
            {"sampler": SubsetRandomSampler(range(6))},
        ],
        ids=["shuffled", "cut short", "both", "all of a subset"],
    )
    def test_images_have_their_place_in_the_dataset(self, settings):
        found = open_images(DataLoader(self.DATA, batch_size=4, **settings))
        assert torch.equal(found.images, PIXELS)
        assert found.labels.tolist() == LABELS

    def test_a_sampler_of_a_part_gives_that_part(self):
        found = open_images(DataLoader(self.DATA, batch_size=2, sampler=SubsetRandomSampler([4, 2, 0])))
        assert torch.equal(found.images, PIXELS[[4, 2, 0]])

    def test_images_of_another_sampler_are_numbered_as_it_draws_and_this_is_said(self):
        sampler = WeightedRandomSampler([1.0] * 6, 12)
        with pytest.warns(UserWarning, match=r"WeightedRandomSampler draws them.*loader\.dataset"):
            assert len(open_images(DataLoader(self.DATA, sampler=sampler))) == 12

    def test_a_batch_sampler_is_no_other_way_in(self):
        shuffled = BatchSampler(RandomSampler(range(6)), 4, drop_last=True)
        found = open_images(DataLoader(self.DATA, batch_sampler=shuffled))
        assert torch.equal(found.images, PIXELS)
        repeated = BatchSampler(RandomSampler(range(6), replacement=True, num_samples=12), 4, drop_last=False)
        with pytest.warns(UserWarning, match=r"RandomSampler draws them.*loader\.dataset"):
            open_images(DataLoader(self.DATA, batch_sampler=repeated))


def test_reading_a_dataset_with_random_transforms_leaves_the_random_numbers_alone():
    class Noisy(Table):
        def __getitem__(self, i):
            torch.rand(3)
            return super().__getitem__(i)

    before = torch.get_rng_state()
    open_images(Noisy())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_column_with_a_usual_name_holds_the_labels_whatever_else_has_names():
    class Sites(Table):
        def __init__(self):
            super().__init__()
            self.features = {"image": Picture(), "label": object(), "site": ClassLabel()}

        def __getitem__(self, i):
            return {**super().__getitem__(i), "site": 0}

    assert open_images(Sites()).labels.tolist() == LABELS
