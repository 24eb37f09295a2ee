"""What other libraries keep about a model's input, in the forms in which they keep it."""

import enum
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import Preprocessing, preprocessing_of
from clearance.data.preprocessing import short_side_of, transformed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Mode(enum.Enum):
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Resize:
    def __init__(self, size, interpolation=Mode.BICUBIC, max_size=None):
        self.size, self.interpolation, self.max_size = size, interpolation, max_size


class CenterCrop:
    size = (224, 224)


@dataclass
class SizeDict:
    """As transformers 5 keeps a size: no mapping, with None for what is not given."""

    height: int | None = None
    width: int | None = None
    longest_edge: int | None = None
    shortest_edge: int | None = None


class ToTensor:
    pass


class Normalize:
    mean, std = MEAN, STD


def preset(**changes):
    """As torchvision's ImageClassification: sizes in lists."""
    given = {"mean": list(MEAN), "std": list(STD), "crop_size": [224], "resize_size": [232]}
    return SimpleNamespace(**given, interpolation=Mode.BILINEAR, **changes)


TIMM = {"mean": MEAN, "std": STD, "input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bicubic"}
HF = {"image_mean": list(MEAN), "image_std": list(STD), "do_resize": True, "resample": 2}

FORMS = {
    "timm, dictionary": (TIMM, (224, 256, "bicubic")),
    "timm, object": (SimpleNamespace(**TIMM), (224, 256, "bicubic")),
    "timm, model": (SimpleNamespace(pretrained_cfg=TIMM), (224, 256, "bicubic")),
    "timm of old": (SimpleNamespace(default_cfg={**TIMM, "crop_pct": None}), (224, 224, "bicubic")),
    "torchvision's transforms": (preset(), (224, 232, "bilinear")),
    "torchvision's weights": (SimpleNamespace(transforms=preset), (224, 232, "bilinear")),
    "composition": (
        SimpleNamespace(transforms=[Resize(256), CenterCrop(), ToTensor(), Normalize()]),
        (224, 256, "bicubic"),
    ),
    "composition without a crop": (
        SimpleNamespace(transforms=[Resize((96, 96)), ToTensor(), Normalize()]),
        (96, 96, "bicubic"),
    ),
    "ViT's processor": (
        SimpleNamespace(**HF, size={"height": 224, "width": 224}, do_center_crop=None, crop_size=None),
        (224, 224, "bilinear"),
    ),
    "ResNet's processor": (
        {**HF, "size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3},
        (224, 256, "bicubic"),
    ),
    "CLIP's processor": (
        {
            **HF,
            "size": {"shortest_edge": 256},
            "do_center_crop": True,
            "crop_size": {"height": 224, "width": 224},
        },
        (224, 256, "bilinear"),
    ),
    "old processor of ConvNeXt": (
        {**HF, "size": 224, "feature_extractor_type": "ConvNextFeatureExtractor"},
        (224, 224, "bilinear"),
    ),
    "CLIP's processor, transformers 5": (
        SimpleNamespace(**HF, size=SizeDict(shortest_edge=224), crop_size=SizeDict(height=224, width=224)),
        (224, 224, "bilinear"),
    ),
}


@pytest.mark.parametrize(("source", "expected"), FORMS.values(), ids=FORMS.keys())
def test_every_form_is_read(source, expected):
    found = preprocessing_of(source)
    assert (found.mean, found.std) == (MEAN, STD)
    assert (found.size, found.short_side, found.interpolation) == expected


SQUASHED = {
    "height and width": {**HF, "size": {"height": 64, "width": 64}},
    "height and width, transformers 5": SimpleNamespace(**HF, size=SizeDict(height=64, width=64)),
    "old processor of Swin": {**HF, "size": 64, "feature_extractor_type": "ViTFeatureExtractor"},
    "Resize of two sides": SimpleNamespace(transforms=[Resize((64, 64)), ToTensor(), Normalize()]),
    "timm's crop mode": {**TIMM, "input_size": (3, 64, 64), "crop_pct": 1.0, "crop_mode": "squash"},
}


@pytest.mark.parametrize("source", SQUASHED.values(), ids=SQUASHED.keys())
def test_a_resize_of_both_sides_cuts_nothing_off(source):
    pixels = np.zeros((100, 200, 3), np.uint8)
    pixels[:, :50] = 255  # the left quarter, outside of a square in the middle
    picture, how = Image.fromarray(pixels), preprocessing_of(source)
    assert how.squash
    assert "squashed" in str(how)
    expected = picture.resize((64, 64), Image.Resampling[how.interpolation.upper()])
    assert np.array_equal(transformed(picture, how), np.asarray(expected).transpose(2, 0, 1))


@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"ViT's processor", "composition without a crop"}))
def test_other_resizes_keep_the_proportions(name):
    assert not preprocessing_of(FORMS[name][0]).squash


OWN_WAYS = {  # what these processors of transformers 4.57 do, to the pixel
    "ConvNeXt from 384 on": ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (384, 384, True)),
    "PoolFormer": ({"size": {"shortest_edge": 224}, "crop_size": 224, "crop_pct": 0.9}, (224, 248, False)),
    "LeViT": (
        {"size": {"shortest_edge": 224}, "crop_size": 224, "image_processor_type": "LevitImageProcessor"},
        (224, 256, False),
    ),
}


@pytest.mark.parametrize(("own", "expected"), OWN_WAYS.values(), ids=OWN_WAYS.keys())
def test_processors_with_a_way_of_their_own(own, expected):
    found = preprocessing_of({**HF, **own})
    assert (found.size, found.short_side, found.squash) == expected


def test_efficientnets_processor_divides_by_std_twice():
    found = preprocessing_of({**HF, "size": {"height": 224, "width": 224}, "include_top": True})
    assert found.std == tuple(value**2 for value in STD)


def test_a_resize_to_a_rectangle_is_refused():
    for source, got in (
        (SimpleNamespace(transforms=[Resize((48, 64)), Normalize()]), "48 x 64"),
        (SimpleNamespace(**{**vars(preset()), "crop_size": [224, 192]}), "224 x 192"),
        ({**TIMM, "input_size": (3, 256, 128)}, "256 x 128"),
    ):
        with pytest.raises(ValueError, match=f"make it square, and a crop must be square; got {got}"):
            preprocessing_of(source)


@pytest.mark.parametrize(
    "source",
    [
        SimpleNamespace(transforms=[CenterCrop(), ToTensor(), Normalize()]),
        {**HF, "do_resize": False, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
    ],
)
def test_a_crop_without_a_resize_is_refused(source):
    with pytest.raises(ValueError, match="a crop must follow a resize; got one to 224 pixels alone"):
        preprocessing_of(source)


class Grayscale:
    num_output_channels = 3


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)


OTHER_STEPS = {
    "a crop before the resize": ([CenterCrop(), Resize(64), ToTensor(), Normalize()], "CenterCrop, Resize"),
    "two resizes": ([Resize(256), CenterCrop(), Resize(64), ToTensor(), Normalize()], "CenterCrop, Resize"),
    "another step": ([Grayscale(), Resize(256), CenterCrop(), ToTensor()], "got Grayscale, Resize"),
    "a composition in it": (
        [Compose(Resize(256), CenterCrop(), ToTensor()), Normalize()],
        "got Compose, Normalize",
    ),
}


@pytest.mark.parametrize(("parts", "got"), OTHER_STEPS.values(), ids=OTHER_STEPS.keys())
def test_a_composition_that_the_settings_cannot_say_is_refused(parts, got):
    with pytest.raises(ValueError, match=f"Resize, CenterCrop and Normalize in this order, .*{got}"):
        preprocessing_of(Compose(*parts))


def test_a_resize_with_a_longest_side_is_refused():
    with pytest.raises(ValueError, match="a Resize with `max_size` cannot be followed"):
        preprocessing_of(Compose(Resize(256, max_size=300), CenterCrop(), Normalize()))


@pytest.mark.parametrize(
    "source",
    [
        {
            **HF,
            "size": {"height": 224, "width": 224},
            "crop_size": 256,
        },  # Perceiver's: it crops, and resizes then
        {**HF, "size": {"shortest_edge": 64}, "crop_size": 178},
    ],
)
def test_a_crop_larger_than_the_resized_picture_is_refused(source):
    with pytest.raises(ValueError, match=r"`short_side` must be at least `size`.*; got short_side="):
        preprocessing_of(source)


def test_a_short_side_alone_changes_nothing_and_is_refused():
    with pytest.raises(
        ValueError, match=r"`short_side` must be at least `size`.*short_side=10 and size=None"
    ):
        Preprocessing(short_side=10)


def test_channels_turned_round_are_refused():
    with pytest.raises(ValueError, match="must keep red, green and blue in their order"):
        preprocessing_of({**HF, "size": {"shortest_edge": 64}, "do_flip_channel_order": True})
    with pytest.raises(ValueError, match="must keep red, green and blue in their order"):
        preprocessing_of(
            {**HF, "size": {"height": 64, "width": 64}, "image_processor_type": "PPLCNetImageProcessor"}
        )


@pytest.mark.parametrize("value", [5, "hamming"])
def test_an_interpolation_that_is_not_known_is_refused(value):
    with pytest.raises(ValueError, match=f"an interpolation must be one of nearest, .*; got {value!r}"):
        preprocessing_of({**TIMM, "interpolation": value})


def test_a_resize_that_is_not_understood_is_refused():
    with pytest.raises(
        ValueError, match=r"must resize to `shortest_edge`, or to `height` and `width`; got .*800"
    ):
        preprocessing_of(SimpleNamespace(**HF, size=SizeDict(longest_edge=800)))


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_means_in_arrays_and_tensors(kind):
    found = preprocessing_of({**TIMM, "mean": kind(MEAN), "std": kind(STD)})
    assert found.mean == pytest.approx(MEAN)
    assert found.std == pytest.approx(STD)


def test_a_processor_that_does_not_normalise():
    found = preprocessing_of({**HF, "size": 224, "do_normalize": False})
    assert (found.mean, found.std) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    bytes_ = preprocessing_of({**HF, "size": 224, "do_normalize": False, "do_rescale": False})
    assert bytes_.std == pytest.approx((1 / 255,) * 3)
    signed = {"do_normalize": False, "rescale_offset": True, "rescale_factor": 1 / 127.5}
    found = preprocessing_of({**HF, "size": 224, **signed})  # x / 127.5 - 1
    assert (found.mean, found.std) == (pytest.approx((0.5,) * 3), pytest.approx((0.5,) * 3))


@pytest.mark.parametrize(
    "source", [{}, None, 3, "resnet", torch.nn.Linear(2, 2), {"mean": (0.5,)}, {"transforms": []}]
)
def test_nothing_to_read_is_one_error(source):
    with pytest.raises(ValueError, match=r"`preprocessing` must be a timm model .*; got "):
        preprocessing_of(source)


@pytest.mark.parametrize("crop", [0, -1, 1.5, float("nan")])
def test_a_crop_is_a_share(crop):
    with pytest.raises(ValueError, match=r"`crop` must lie in \(0, 1\]"):
        short_side_of(224, crop)


def test_an_interpolation_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"`interpolation` must be one of .*Did you mean 'bicubic'"):
        Preprocessing(size=8, short_side=8, interpolation="bicubik")


def test_a_mean_is_one_value_per_channel():
    number: Any = 0.5
    with pytest.raises(ValueError, match=r"`mean` must be a tuple, one value per channel; got 0\.5"):
        Preprocessing(mean=number)


def test_in_words():
    assert str(Preprocessing(MEAN, STD, 224, 256)) == (
        "images 256 -> 224 px (bilinear), mean 0.485, 0.456, 0.406, std 0.229, 0.224, 0.225"
    )
    assert str(Preprocessing(size=8)) == "images 8 -> 8 px (bilinear)"
    assert str(Preprocessing()) == "images unchanged"
    assert str(Preprocessing(mean=(0.5,))) == "images unchanged, mean 0.5"
