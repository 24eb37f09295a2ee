"""Hugging Face's datasets themselves, wherever images with labels are taken."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, random_split

import clearance as cl

datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
NAMES = tuple(f"digit {k}" for k in range(10))


def made(data):
    """Pictures with class names, and a column that is of no use."""
    pictures = [Image.fromarray((one[0].numpy() * 255).round().astype(np.uint8)) for one in data.images]
    columns = {
        "id": datasets.Value("int64"), "image": datasets.Image(), "label": datasets.ClassLabel(names=list(NAMES)),
    }  # fmt: skip
    rows = {"id": list(range(len(data))), "image": pictures, "label": data.labels.tolist()}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(columns))


def as_pixels(batch):
    """As an image processor behind `with_transform` gives a batch."""
    pixels = [torch.from_numpy(np.asarray(one) / 255).float()[None] for one in batch["image"]]
    return {"pixel_values": pixels, "labels": batch["label"]}


def collated(items):
    return {
        "pixel_values": torch.stack([one["pixel_values"] for one in items]),
        "labels": torch.tensor([one["labels"] for one in items]),
    }


@pytest.fixture(scope="module")
def digits():
    return cl.load_dataset("digits").per_class(30, seed=0), cl.load_dataset("digits", split="test")


FORMS = {
    "dataset": made,
    "transform": lambda data: made(data).with_transform(as_pixels),
    "loader": lambda data: DataLoader(made(data).with_transform(as_pixels), 64, collate_fn=collated),
}


@pytest.mark.parametrize("form", FORMS)
def test_images_labels_and_class_names_arrive(digits, form):
    found = cl.data.open_images(FORMS[form](digits[0]))
    torch.testing.assert_close(
        found.batch(torch.arange(300))[0], digits[0].images, rtol=0, atol=0.5 / 255 + 1e-6
    )
    assert torch.equal(found.labels, digits[0].labels)
    assert found.classes == NAMES


@pytest.mark.parametrize("form", FORMS)
def test_training_audits_and_foca_take_them(digits, form):
    train, test = (FORMS[form](some) for some in digits)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )
    model = cl.wrap(module, example=digits[1].images[:4], verbose=False)
    foca = cl.training.FOCA()
    session = foca.start(model, train, torch.optim.SGD(foca.trainable(model), 0.05), foca.generators(seed=0))
    assert bool(session.step(*digits[0].batch(torch.arange(64))).total.isfinite())
    result = cl.fit(model, cl.training.EndToEnd(), train, epochs=15, batch_size=32, validation=test)
    card = cl.audit(model, train=train, test=test, audits=["accuracy"])
    assert card.measurements[0].value == pytest.approx(result.history[-1]["validation_error"], abs=1e-6)
    assert card.measurements[0].value < 0.2


def test_a_comparison_takes_them(digits):
    train, test = (made(some) for some in digits)
    card = cl.compare(
        {"plain": "plain", "margin": cl.losses.LargeMarginLoss(("input",))}, train, test, seeds=2, epochs=1,
        audits=["accuracy"],
    )  # fmt: skip
    assert card.report.methods == ("plain", "margin")


def test_a_random_part_keeps_the_names_of_the_classes(digits):
    part, _ = random_split(made(digits[0]), [200, 100])
    assert cl.data.open_images(part).classes == NAMES
