"""open_images on everything that people have, and what cannot become an image set."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from clearance.data import gaussian_images, open_images
from data.small_images import GOOD, LABELS, U8

COLOUR = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
EXPECTED = torch.from_numpy(COLOUR).permute(0, 3, 1, 2).float() / 255
ALTERNATING = [0, 1, 1, 0]


class Pairs(Dataset):
    """A map-style Dataset as people write them."""

    def __init__(self, images, labels=ALTERNATING, classes=None):
        self.images, self.labels = images, labels
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


SAME_DATA = {
    "uint8 arrays": (COLOUR, ALTERNATING),
    "uint8 tensors": (
        torch.from_numpy(COLOUR).permute(0, 3, 1, 2),
        torch.tensor(ALTERNATING, dtype=torch.uint8),
    ),
    "float tensors": (EXPECTED, torch.tensor(ALTERNATING)),
    "double tensors": (EXPECTED.double(), np.array(ALTERNATING, dtype=np.uint8)),
    "float arrays": (EXPECTED.numpy(), ALTERNATING),
    "read-only float arrays": (read_only(EXPECTED.numpy()), ALTERNATING),
    "read-only uint8 arrays": (read_only(COLOUR), ALTERNATING),
    "Dataset of tensors": TensorDataset(EXPECTED, torch.tensor(ALTERNATING)),
    "Dataset of arrays": Pairs(COLOUR, np.array(ALTERNATING)),
    "Dataset of pictures": Pairs([Image.fromarray(each) for each in COLOUR]),
    "list of pairs": [(image, label) for image, label in zip(EXPECTED, ALTERNATING, strict=True)],
    "two lists' worth of Subset": Subset(
        TensorDataset(EXPECTED.flip(0), torch.tensor(ALTERNATING[::-1])), [3, 2, 1, 0]
    ),
}


@pytest.mark.parametrize("data", SAME_DATA.values(), ids=SAME_DATA.keys())
def test_everything_becomes_the_same_set(data):
    found = open_images(data)
    assert found.images.dtype == torch.float32
    torch.testing.assert_close(found.images, EXPECTED, atol=0, rtol=0)
    assert found.labels.tolist() == ALTERNATING
    assert found.classes == ("0", "1")


def test_an_image_set_comes_back_itself():
    data = gaussian_images()
    assert open_images(data) is data
    assert torch.equal(open_images(Subset(data, range(len(data)))).images, data.images)


def test_grey_stays_grey():
    grey = COLOUR[..., 0]
    expected = torch.from_numpy(grey).float().unsqueeze(1) / 255
    forms = [
        (grey, ALTERNATING),
        (torch.from_numpy(grey), ALTERNATING),
        Pairs([Image.fromarray(each) for each in grey]),
    ]
    for form in forms:
        torch.testing.assert_close(open_images(form).images, expected, atol=0, rtol=0)


def test_classes_of_a_dataset_are_kept():
    assert open_images(Pairs(COLOUR, classes=["ape", "bee"])).classes == ("ape", "bee")


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (np.array(["ape", "bee"]), ("ape", "bee")),
        ({1: "bee", 0: "ape"}, ("ape", "bee")),
        (2, ("0", "1")),
        ({"bee", "ape"}, ("0", "1")),  # has no order
        ({"bee": 1, "ape": 0}, ("ape", "bee")),
        ({"ape": 5, "bee": 7}, ("0", "1")),
        ([b"ape", b"bee"], ("ape", "bee")),
        (dict.fromkeys(("ape", "bee")).keys(), ("ape", "bee")),
    ],
)
def test_other_forms_of_classes(classes, expected):
    assert open_images(Pairs(COLOUR, classes=classes)).classes == expected


def test_truth_values_as_bytes_are_warned_of():
    with pytest.warns(UserWarning, match=r"must be from 0 to 255; got none above 1.*Convert .* to floats"):
        open_images(((COLOUR > 127).astype(np.uint8), ALTERNATING))


def test_nothing_of_a_graph_is_kept():
    images = EXPECTED.clone().requires_grad_()
    assert not open_images((images, ALTERNATING)).images.requires_grad


# Other people's data that cannot become an image set: each kind is one clear error.


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield GOOD[0], 0


class CountedStream(Stream):
    def __len__(self):
        return 4


CONVERSIONS = {
    "counted stream": (
        lambda _: open_images(CountedStream()),
        r"with one label\. For single images use .*DataLoader",
    ),
    "path": (lambda _: open_images("folder"), "folder:PATH or npz:PATH; got 'folder'"),
    "images alone": (lambda _: open_images(GOOD), "got Tensor"),
    "stream": (lambda _: open_images(Stream()), r"with one label\. For single images use .*DataLoader"),
    "dictionary": (lambda _: open_images({"images": GOOD}), "got dict"),
    "nothing": (lambda _: open_images([]), "at least one image; got none"),
    "lists": (lambda _: open_images(([[0.0]], [0])), "must be a tensor or a NumPy array; got list"),
    "integers": (lambda _: open_images((GOOD.long(), LABELS)), "uint8 or floats in .* got torch.int64"),
    "integer array": (lambda _: open_images((U8.astype(int), [0, 1])), "uint8 or floats in .* got int64"),
    "channels first": (
        lambda _: open_images((U8.transpose(0, 3, 1, 2), [0, 1])),
        r"\(N, H, W, C\).*transpose",
    ),
    "channels last": (lambda _: open_images((torch.zeros(2, 6, 6, 3), [0, 1])), r"permute\(0, 3, 1, 2\)"),
    "truth values": (
        lambda _: open_images((U8 > 3, [0, 1])),
        "got bool. Give floats, divided by the value of white",
    ),
    "channels first in a Dataset": (
        lambda _: open_images(Pairs(COLOUR.transpose(0, 3, 1, 2))),
        r"\(H, W\) or \(H, W, C\) .* got shape \(3, 5, 6\) at index 0; use .*transpose",
    ),
    "transparency in a Dataset": (
        lambda _: open_images(Pairs(np.zeros((4, 5, 6, 4), np.uint8))),
        "1 or 3 channels",
    ),
    "two axes": (lambda _: open_images((torch.zeros(2, 64), [0, 1])), r"3 axes .* got shape \(2, 64\)"),
    "float labels in a pair": (
        lambda _: open_images((GOOD, [0.0, 1.0, 0.5, 1.0])),
        r"whole numbers; got float64; .* torch\.as_tensor\(labels\)\.long\(\)",
    ),
    "float labels as a tensor": (
        lambda _: open_images((GOOD, LABELS.float())),
        r"got torch.float32; if they are numbers of classes, write labels\.long\(\)",
    ),
    "few labels": (lambda _: open_images((GOOD, [3, 8])), "equally long; got 4 images and 2 labels"),
    "bool labels": (lambda _: open_images((GOOD, LABELS == 0)), "whole numbers; got torch.bool"),
    "gap": (
        lambda _: open_images((GOOD, [0, 2, 0, 2])),
        "got none of '1' .* Do not renumber the labels of a trained",
    ),
    "labels from 1": (
        lambda _: open_images((GOOD, [1, 2, 1, 2])),
        r"numbered from 0; got 1 \.\. 2\. Number the classes from 0; .* outputs keep theirs",
    ),
    "huge label": (
        lambda _: open_images((GOOD, [0, 1, 0, 10**12])),
        "without gaps; got a label 1000000000000",
    ),
    "no pair": (lambda _: open_images([GOOD[0], GOOD[1], GOOD[2]]), "a dictionary with both; got Tensor at"),
    "sizes in a Dataset": (
        lambda _: open_images([(GOOD[0], 0), (GOOD[1, :, :2], 1)]),
        r"\(1, 3, 3\) of float32 at index 0 and \(1, 2, 3\) of float32 at index 1",
    ),
    "text for an image": (lambda _: open_images([("a.png", 0)]), "got str at index 0"),
    "vector for an image": (
        lambda _: open_images([(torch.zeros(9), 0)]),
        r"got Tensor of shape \(9,\) at index 0",
    ),
    "vector for a label": (
        lambda _: open_images([(GOOD[0], [0, 1])]),
        r"one whole number; got shape \(2,\)",
    ),
    "text for a label": (lambda _: open_images([(GOOD[0], "ape")]), "`labels` must be whole numbers"),
    "16-bit picture": (
        lambda _: open_images([(Image.new("I;16", (3, 3)), 0)]),
        "8 bits per channel; got mode 'I;16'",
    ),
}


@pytest.mark.parametrize(("attempt", "fragment"), CONVERSIONS.values(), ids=CONVERSIONS.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_floats_with_their_channels_last_are_refused(channels):
    with pytest.raises(ValueError, match=r"channels on axis 1; got shape \(10, 8, 8, \d\)"):
        open_images((np.zeros((10, 8, 8, channels), np.float32), np.arange(10) % 2))
