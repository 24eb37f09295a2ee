"""as_image_set on everything that people have."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from clearance.data import gaussian_images
from clearance.data.intake import as_image_set

COLOUR = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
EXPECTED = torch.from_numpy(COLOUR).permute(0, 3, 1, 2).float() / 255
LABELS = [0, 1, 1, 0]


class Pairs(Dataset):
    """A map-style Dataset as people write them."""

    def __init__(self, images, labels=LABELS, classes=None):
        self.images, self.labels = images, labels
        if classes:
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
    "uint8 arrays": (COLOUR, LABELS),
    "uint8 tensors": (torch.from_numpy(COLOUR).permute(0, 3, 1, 2), torch.tensor(LABELS, dtype=torch.uint8)),
    "float tensors": (EXPECTED, torch.tensor(LABELS)),
    "double tensors": (EXPECTED.double(), np.array(LABELS, dtype=np.uint8)),
    "float arrays": (EXPECTED.numpy(), LABELS),
    "read-only float arrays": (read_only(EXPECTED.numpy()), LABELS),
    "read-only uint8 arrays": (read_only(COLOUR), LABELS),
    "Dataset of tensors": TensorDataset(EXPECTED, torch.tensor(LABELS)),
    "Dataset of arrays": Pairs(COLOUR, np.array(LABELS)),
    "Dataset of pictures": Pairs([Image.fromarray(each) for each in COLOUR]),
    "list of pairs": [(image, label) for image, label in zip(EXPECTED, LABELS, strict=True)],
    "two lists' worth of Subset": Subset(
        TensorDataset(EXPECTED.flip(0), torch.tensor(LABELS[::-1])), [3, 2, 1, 0]
    ),
}


@pytest.mark.parametrize("data", SAME_DATA.values(), ids=SAME_DATA.keys())
def test_everything_becomes_the_same_set(data):
    found = as_image_set(data)
    assert found.images.dtype == torch.float32
    torch.testing.assert_close(found.images, EXPECTED, atol=0, rtol=0)
    assert found.labels.tolist() == LABELS
    assert found.classes == ("0", "1")


def test_an_image_set_comes_back_itself():
    data = gaussian_images()
    assert as_image_set(data) is data
    assert torch.equal(as_image_set(Subset(data, range(len(data)))).images, data.images)


def test_grey_stays_grey():
    grey = COLOUR[..., 0]
    expected = torch.from_numpy(grey).float().unsqueeze(1) / 255
    forms = [
        (grey, LABELS),
        (torch.from_numpy(grey), LABELS),
        Pairs([Image.fromarray(each) for each in grey]),
    ]
    for form in forms:
        torch.testing.assert_close(as_image_set(form).images, expected, atol=0, rtol=0)


def test_classes_of_a_dataset_are_kept():
    assert as_image_set(Pairs(COLOUR, classes=["ape", "bee"])).classes == ("ape", "bee")


def test_nothing_of_a_graph_is_kept():
    images = EXPECTED.clone().requires_grad_()
    assert not as_image_set((images, LABELS)).images.requires_grad
