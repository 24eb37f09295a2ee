"""Other people's data that cannot become an image set: each kind is one clear error."""

import pytest
import torch
from PIL import Image

from clearance.data.intake import as_image_set
from data.small_images import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    GOOD,
    LABELS,
    U8,
)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield GOOD[0], 0


CONVERSIONS = {
    "path": (lambda _: as_image_set("folder"), "must be an ImageSet, a tuple .* got str"),
    "images alone": (lambda _: as_image_set(GOOD), "got Tensor"),
    "stream": (lambda _: as_image_set(Stream()), "got Stream; read a stream"),
    "dictionary": (lambda _: as_image_set({"images": GOOD}), "got dict"),
    "nothing": (lambda _: as_image_set([]), "got a Dataset of length 0"),
    "lists": (lambda _: as_image_set(([[0.0]], [0])), "must be a tensor or a NumPy array; got list"),
    "integers": (lambda _: as_image_set((GOOD.long(), LABELS)), "uint8 or floats in .* got torch.int64"),
    "integer array": (lambda _: as_image_set((U8.astype(int), [0, 1])), "uint8 or floats in .* got int64"),
    "channels first": (
        lambda _: as_image_set((U8.transpose(0, 3, 1, 2), [0, 1])),
        r"\(N, H, W, C\).*transpose",
    ),
    "channels last": (lambda _: as_image_set((torch.zeros(2, 6, 6, 3), [0, 1])), r"permute\(0, 3, 1, 2\)"),
    "two axes": (lambda _: as_image_set((torch.zeros(2, 64), [0, 1])), r"3 axes .* got shape \(2, 64\)"),
    "float labels in a pair": (
        lambda _: as_image_set((GOOD, [0.0, 1.0, 0.5, 1.0])),
        "whole numbers; got float64",
    ),
    "bool labels": (lambda _: as_image_set((GOOD, LABELS == 0)), "whole numbers; got torch.bool"),
    "gap": (lambda _: as_image_set((GOOD, [0, 2, 0, 2])), "got none of '1'"),
    "huge label": (
        lambda _: as_image_set((GOOD, [0, 1, 0, 10**12])),
        "without gaps; got a label 1000000000000",
    ),
    "no pair": (lambda _: as_image_set([GOOD[0], GOOD[1], GOOD[2]]), r"\(image, label\); got Tensor at"),
    "sizes in a Dataset": (
        lambda _: as_image_set([(GOOD[0], 0), (GOOD[1, :, :2], 1)]),
        r"\(1, 3, 3\) at index 0 and \(1, 2, 3\) at index 1",
    ),
    "text for an image": (lambda _: as_image_set([("a.png", 0)]), "got str at index 0"),
    "vector for an image": (
        lambda _: as_image_set([(torch.zeros(9), 0)]),
        r"got Tensor of shape \(9,\) at index 0",
    ),
    "vector for a label": (
        lambda _: as_image_set([(GOOD[0], [0, 1])]),
        r"one whole number; got shape \(2,\)",
    ),
    "text for a label": (lambda _: as_image_set([(GOOD[0], "ape")]), "`labels` must be whole numbers"),
    "16-bit picture": (
        lambda _: as_image_set([(Image.new("I;16", (3, 3)), 0)]),
        "8 bits per channel; got mode 'I;16'",
    ),
}


@pytest.mark.parametrize(("attempt", "fragment"), CONVERSIONS.values(), ids=CONVERSIONS.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)
