"""``clearance check`` on flip distances: audits of linear networks whose every distance is known."""

import dataclasses

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import MinimalPerturbation
from cli.terminal import run

pytestmark = pytest.mark.filterwarnings("error")


def grey(distances):
    """Images of four equal pixels, 0.5 + d or 0.5 - d by turns."""
    sides = torch.where(torch.arange(len(distances)) % 2 == 0, 1.0, -1.0)
    pixels = (0.5 + sides * distances)[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    return cl.ImageSet(pixels, (sides < 0).long(), ("bright", "dark"))


def tilted(nearer, data):
    """Right on every grey image, and nearer to each by this share than the network that takes the mean.

    With weights (1, 1, 1, -e) an image's distance is d |3 - e| / (3 + e), because all four pixels may move.
    """
    e = 3 * nearer / (2 - nearer)
    weights = torch.tensor([1.0, 1.0, 1.0, -e])
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.copy_(torch.stack([weights, -weights]))
        head.bias.copy_(0.5 * torch.tensor([-1.0, 1.0]) * weights.sum())
    return cl.Classifier(nn.Flatten(), head)


IMAGES, TRAIN = grey(torch.linspace(0.02, 0.3, 60)), grey(torch.linspace(0.03, 0.3, 60))


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    """Audits of networks that are nearer by these shares, and of the first on other images."""
    folder = tmp_path_factory.mktemp("audits")
    for name, nearer, data in (
        ("last", 0.0, IMAGES),
        ("nearer-by-5", 0.05, IMAGES),
        ("nearer-by-20", 0.2, IMAGES),
        ("elsewhere", 0.0, grey(torch.linspace(0.02, 0.25, 60))),
    ):
        card = cl.audit(
            tilted(nearer, data), train=TRAIN, test=data, audits=["accuracy", "minimal_perturbation"]
        )
        card.save_folder(folder / name)
    return folder


def check(audits, name, *more):
    words = ("--against", str(audits / "last"), "--fail-if", "flip_distance drops 10%", *more)
    return run("check", str(audits / name), *words)


@pytest.mark.parametrize(
    ("name", "status", "start"),
    [
        ("last", 0, "passed: flip_distance drops 10%; 0.1"),
        ("nearer-by-5", 0, "passed: flip_distance drops 10%; 0.1"),
        ("nearer-by-20", 1, "failed: flip_distance drops 10%; 0.1"),
        ("elsewhere", 3, "not measured: flip_distance drops 10% (the reports are of different images"),
    ],
)
def test_the_same_images_are_compared_one_by_one(audits, name, status, start):
    found, shown, complaint = check(audits, name)
    assert (found, complaint) == (status, "")
    assert shown.startswith(start)
    assert ("paired over 60 images" in shown) == (status != 3)


def test_the_change_is_the_known_one(audits):
    _, shown, _ = check(audits, "nearer-by-20")
    low, high = map(float, shown.split("change ")[1].split(" %")[0].split(" to "))
    assert (low, high) == (pytest.approx(-20, abs=0.5), pytest.approx(-20, abs=0.5))


def test_images_that_one_is_wrong_on_are_left_out(audits, tmp_path):
    """A network that calls every image bright: the half of the images that it is right on is compared."""
    biased = tilted(0.0, IMAGES)
    with torch.no_grad():
        biased.head.bias.copy_(torch.tensor([10.0, -10.0]))
    card = cl.audit(biased, train=TRAIN, test=IMAGES, audits=["accuracy", "minimal_perturbation"])
    card.save_folder(tmp_path)
    status, shown, _ = run(
        "check", str(tmp_path), "--against", str(audits / "last"),
        "--fail-if", "flip_distance drops 10%", "--fail-if", "accuracy drops 1pt",
    )  # fmt: skip
    assert status == 1
    distance, accuracy = shown.splitlines()
    assert "paired over the 30 of 60 images that have a number in both" in distance
    assert accuracy.startswith("failed: accuracy drops 1pt; 100 % -> 50 %")


def test_another_effort_of_the_search_is_no_comparison(audits, tmp_path):
    hasty = dataclasses.replace(MinimalPerturbation(), steps=4)
    cl.audit(tilted(0.0, IMAGES), train=TRAIN, test=IMAGES, audits=[hasty]).save_folder(tmp_path)
    status, shown, _ = check(audits, "last", "--quiet")
    assert (status, shown) == (0, "")
    status, shown, _ = run(
        "check", str(tmp_path), "--against", str(audits / "last"), "--fail-if", "flip_distance drops 10%"
    )
    assert status == 3
    assert "measured them in different ways" in shown
