"""A Dataset as it was trained on, normalised, gives the audit that its images in [0, 1] give."""

import pytest
import torch
from torch import nn

import clearance as cl


def test_the_same_numbers_as_from_images_that_are_not_normalised():
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model = cl.wrap(module, example=test.images[:4], mean=0.3, std=0.4)

    def normalised(data):
        return list(zip((data.images - 0.3) / 0.4, data.labels.tolist(), strict=True))

    plain = cl.audit(model, train=train, test=test, unknown=test.images.flip(2), audits=AUDITS)
    given = {"train": normalised(train), "test": normalised(test)}
    unknown = (test.images.flip(2) - 0.3) / 0.4
    found = cl.audit(model, **given, unknown=unknown, audits=AUDITS, normalised=True)
    assert [m.value for m in found.measurements] == pytest.approx(
        [m.value for m in plain.measurements], abs=1e-5
    )


AUDITS = ["accuracy", "duplicates", "out_of_distribution"]
