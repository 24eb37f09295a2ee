"""Copies are found whatever was done to them, and nothing else is: on pictures that are drawn here, and real ones."""

import io
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import nn

from clearance import load_dataset
from clearance.audits import Duplicates
from clearance.audits.duplicates import Copies, near_duplicates, perceptual_hashes
from clearance.data import ImageSet, gaussian_images
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")


def scene(seed, side=48):
    """A picture of soft shapes, another one for each seed."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (side, side), tuple(rng.integers(0, 255, 3)))
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        x, y, w, h = rng.uniform([0, 0, side / 8, side / 8], [side, side, side / 2, side / 2])
        draw.ellipse((x, y, x + w, y + h), fill=tuple(rng.integers(0, 255, 3)))
    return picture


def again(picture, quality):
    kept = io.BytesIO()
    picture.save(kept, "JPEG", quality=quality)
    return Image.open(io.BytesIO(kept.getvalue()))


def resized(picture, share):
    small = tuple(round(share * side) for side in picture.size)
    return picture.resize(small, Image.Resampling.BICUBIC).resize(picture.size, Image.Resampling.BILINEAR)


def mirrored(picture):
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


CHANGES = {
    "saved again": lambda picture: again(picture, 75),
    "resized": lambda picture: resized(picture, 0.75),
    "mirrored": mirrored,
    "mirrored and saved again": lambda picture: again(mirrored(picture), 75),
    "brighter": lambda picture: picture.point(lambda value: 40 + 0.8 * value),
}


def pixels(pictures):
    return torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1).float() / 255 for one in pictures])


def labelled(images, name="images", labels=None):
    return ImageSet(images, torch.arange(len(images)) % 2 if labels is None else labels, ("a", "b"), name)


def model(shape):
    torch.manual_seed(0)
    return Classifier(nn.Flatten(), nn.Linear(int(np.prod(shape)), 2))


def found(train, test, **settings):
    findings = Duplicates(**settings)(model(train.shape), train, test)
    counts = {
        (m.name, m.context.get("sets", m.context.get("images"))): m.value for m in findings.measurements
    }
    return counts, {exhibit.name: exhibit.columns for exhibit in findings.exhibits}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_a_near_duplicate(change):
    scenes = [scene(seed) for seed in range(40)]
    copies = [CHANGES[change](one) for one in scenes[:10]]
    train, test = labelled(pixels(scenes[:30])), labelled(pixels([*scenes[30:], *copies]))
    counts, exhibits = found(train, test)
    assert counts["near_duplicates", "test in train"] == 10
    assert counts["exact_duplicates", "test in train"] == 0
    assert counts["near_duplicates", "train"] == counts["near_duplicates", "test"] == 0
    listed = exhibits["duplicates"]
    assert listed["first image"] == [f"image {number}" for number in range(10)]
    assert listed["second image"] == [f"image {number}" for number in range(10, 20)]
    assert set(listed["kind"]) == {"mirrored" if "mirrored" in change else "near"}
    assert len(exhibits["pairs"]["image"]) == 16


def test_every_copy_of_a_photograph_is_found_and_nothing_else(data_root):
    with zipfile.ZipFile(data_root / "sign-language-digits.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.lower().endswith((".jpg", ".jpeg")))[::7]
        photographs = [Image.open(archive.open(name)).convert("RGB").resize((64, 64)) for name in names]
    known, fresh = photographs[:200], photographs[200:]
    exact = known[:20]
    near = [change(one) for k, change in enumerate(CHANGES.values()) for one in known[20 * k :][:20]]
    counts, _ = found(labelled(pixels(known)), labelled(pixels([*fresh, *exact, *near])))
    assert len(fresh) > 50
    assert counts["exact_duplicates", "test in train"] == len(exact)
    assert counts["near_duplicates", "test in train"] == len(near)


def test_different_clothes_are_no_duplicates(data_root):
    drawn = load_dataset("fashion-mnist", "train", data_root).per_class(100, seed=0)
    assert Copies.of([drawn]).pairs == ()


def test_copies_within_a_set_count_beyond_the_first():
    images = pixels([scene(seed) for seed in range(12)])
    train = labelled(images[[0, 1, 2, 0, 0, 1]], labels=torch.tensor([0, 1, 0, 1, 0, 1]))
    counts, exhibits = found(train, labelled(images[6:]))
    assert counts["exact_duplicates", "train"] == 3
    assert counts["exact_duplicates", "test"] == counts["exact_duplicates", "test in train"] == 0
    assert counts["conflicting_labels", None] == 3  # the three copies of the first image
    pairs = zip(exhibits["duplicates"]["first image"], exhibits["duplicates"]["second image"], strict=True)
    assert list(pairs) == [("image 0", "image 3"), ("image 0", "image 4"), ("image 1", "image 5")]


def test_the_error_without_leaked_images_is_that_of_the_others():
    torch.manual_seed(1)
    images = torch.rand(60, 1, 8, 8)
    labels = torch.randint(2, (60,))
    train = labelled(images[:30], labels=labels[:30])
    test = labelled(images[20:], labels=labels[20:])
    classifier = model((1, 8, 8))
    findings = Duplicates()(classifier, train, test)
    errors = {m.context["images"]: (m.value, m.n) for m in findings.measurements if m.name == "error"}
    wrong = classifier(test.images).argmax(dim=1) != test.labels
    assert errors["all"] == (pytest.approx(wrong.double().mean().item()), 40)
    assert errors["in train"] == (pytest.approx(wrong[:10].double().mean().item()), 10)
    assert errors["not in train"] == (pytest.approx(wrong[10:].double().mean().item()), 30)


def test_unknown_images_are_compared_too():
    images = pixels([scene(seed) for seed in range(20)])
    train, test = labelled(images[:8]), labelled(images[8:16])
    other = labelled(torch.cat([images[16:], images[:1], images[8:9].flip(3), images[16:17]]))
    counts, exhibits = found(train, test, other=other)
    assert counts["exact_duplicates", "unknown in train or test"] == 1
    assert counts["near_duplicates", "unknown in train or test"] == 1
    assert counts["exact_duplicates", "unknown"] == 1
    assert set(exhibits["duplicates"]["second set"]) == {"unknown"}
    with pytest.raises(ValueError, match="`other` must have images of shape"):
        found(train, test, other=gaussian_images())


@pytest.mark.parametrize("name", ["digits", "gaussian", "scenes", "noise"])
def test_different_images_are_no_duplicates(name):
    sets = {
        "digits": lambda: load_dataset("digits"),
        "gaussian": lambda: gaussian_images(per_class=300),
        "scenes": lambda: labelled(pixels([scene(seed) for seed in range(200)])),
        "noise": lambda: labelled(torch.rand(500, 1, 8, 8, generator=torch.Generator().manual_seed(0))),
    }
    assert Copies.of([sets[name]()]).pairs == ()


def test_flat_and_tiny_images_have_no_near_duplicates():
    flat = torch.linspace(0, 1, 9)[:, None, None, None].expand(-1, 3, 16, 16).contiguous()
    assert not perceptual_hashes(flat).any()
    assert Copies.of([labelled(flat)]).pairs == ()
    tiny = torch.rand(50, 1, 2, 2)
    assert Copies.of([labelled(tiny)]).pairs == ()
    assert near_duplicates([labelled(flat)], np.arange(1)) == []
    model = Classifier(nn.Flatten(), nn.Linear(4, 2))
    names = {
        one.name
        for one in Duplicates()(model, labelled(tiny), labelled(torch.rand(50, 1, 2, 2))).measurements
    }
    assert "near_duplicates" not in names, "nobody looked for them"
    assert "exact_duplicates" in names


def test_pictures_of_equal_shape_and_other_colours_are_different():
    image = pixels([scene(3)])
    assert Copies.of([labelled(torch.cat([image, image.flip(1)]))]).pairs == ()


def test_many_copies_of_one_image_cost_no_pair_for_each_two():
    image = pixels([scene(0)])
    assert len(Copies.of([labelled(image.expand(300, -1, -1, -1).contiguous())]).pairs) == 299
    noise = 0.002 * torch.rand(300, *image.shape[1:], generator=torch.Generator().manual_seed(0))
    nearly = Copies.of([labelled((image * 0.9 + noise).clamp(0, 1))])
    assert len(nearly.pairs) <= 300 * 8
    assert len(np.unique(nearly.group)) <= 5


def test_the_list_has_a_bound():
    images = torch.rand(4, 1, 8, 8)
    train = labelled(images[[0, 1, 2, 3, 0, 1, 2, 3]])
    _, exhibits = found(train, labelled(torch.rand(4, 1, 8, 8)), listed=2)
    assert len(exhibits["duplicates"]["kind"]) == 2
    with pytest.raises(ValueError, match="`listed`"):
        Duplicates(listed=0)
