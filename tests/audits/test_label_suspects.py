"""Wrong labels are found by other images alone, one by one and between two classes; right ones are left alone."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

import clearance as cl
from clearance import load_dataset
from clearance.audits import LabelSuspects, label_suspects
from clearance.audits.label_suspects import (
    BLOCK,
    Doubts,
    _blocks,
    left_out_scores,
    patch_features,
    patch_filters,
    probabilities,
)
from clearance.data import ImageSet
from clearance.models import Classifier
from clearance.report.audits import all_findings
from clearance.report.audits.label_suspects import PAIR_AT_LEAST
from clearance.report.findings import Findings, datasets
from clearance.report.pictures import Gallery

pytestmark = pytest.mark.filterwarnings("error")


def digits(labels=None, count=100):
    data = load_dataset("digits").per_class(count, seed=0)
    return data if labels is None else ImageSet(data.images, labels, data.classes)


def found(train, test, **settings):
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), nn.Linear(train.images[0].numel(), train.class_count))
    findings = LabelSuspects(**settings)(model, train, test)
    numbers = {(m.name, m.context.get("split")): m for m in findings.measurements}
    return numbers, {exhibit.name: exhibit.columns for exhibit in findings.exhibits}


@pytest.fixture(scope="module")
def flipped():
    """A twentieth of the labels is wrong."""
    labels = digits().labels.clone()
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[: len(labels) // 20]
    labels[rows] = (labels[rows] + 1 + torch.arange(len(rows)) % 9) % 10
    return set(rows.tolist()), found(digits(labels), load_dataset("digits", split="test"))


def test_wrong_labels_are_listed_first(flipped):
    rows, (numbers, exhibits) = flipped
    listed = exhibits["suspects"]
    of_train = [
        number for name, number in zip(listed["set"], listed["number"], strict=True) if name == "train"
    ]
    assert len(set(of_train[:35]) & rows) >= 34
    assert len(set(of_train) & rows) >= 45
    assert numbers["sure", "train"].value > 0.02
    assert numbers["sure", "test"].value <= 0.01


def test_a_row_says_all_there_is_to_know(flipped):
    _, (_, exhibits) = flipped
    columns = exhibits["suspects"]
    probabilities_given = columns["probability of given"]
    assert probabilities_given == sorted(probabilities_given)
    data = digits()
    row = columns["set"].index("train")
    assert columns["image"][row] == f"image {columns['number'][row]}"
    assert columns["looks like"][row] == data.classes[data.labels[columns["number"][row]]]
    assert columns["given"][row] != columns["looks like"][row]
    assert len(exhibits["pictures"]["image"]) == 24
    for shown, listed in (
        ("set", "set"),
        ("file", "image"),
        ("given", "given"),
        ("looks like", "looks like"),
    ):
        assert exhibits["pictures"][shown] == columns[listed][:24]


@pytest.fixture(scope="module")
def card():
    """Of right labels but for the first one, which the page shows beside those that only look wrong."""
    labels = digits().labels.clone()
    labels[0] = (labels[0] + 5) % 10
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), nn.Linear(64, 10))
    test = load_dataset("digits", split="test")
    return cl.audit(model, train=digits(labels), test=test, audits=["label_suspects"])


def test_below_a_picture_are_its_name_its_label_and_what_it_looks_like(card):
    (dataset,) = datasets(card.report)
    (finding,) = all_findings(Findings(card.report, dataset))
    (gallery,) = finding.pictures
    assert isinstance(gallery, Gallery)
    shown = {tuple(shot.words) for shot in gallery.shots}
    assert (
        "train image 0",
        f"given {(digits().labels[0] + 5) % 10}",
        f"looks like {digits().labels[0]}",
    ) in shown
    assert {len(words) for words in shown} == {3}


def test_what_is_listed_is_what_is_counted_everywhere(card, flipped):
    (dataset,) = datasets(card.report)
    (finding,) = all_findings(Findings(card.report, dataset))
    listed = card.table("label_suspects", "suspects")
    assert finding.said.striptags().startswith(f"{len(listed)} labels are worth a look")
    _, (numbers, exhibits) = flipped
    for found, names in (
        ({(m.name, m.context.get("split")): m for m in card.measurements}, [row["set"] for row in listed]),
        (numbers, exhibits["suspects"]["set"]),
    ):
        for split in ("train", "test"):
            counted = found["suspects", split]
            assert round(counted.value * counted.n) == names.count(split)
            assert found["sure", split].value <= counted.value
            if ("model_agrees", split) in found:
                assert found["model_agrees", split].n == names.count(split)


def test_a_class_that_is_filed_in_part_as_another_is_named():
    labels = digits().labels.clone()
    fours = (labels == 4).nonzero().flatten()
    labels[fours[: int(0.4 * len(fours))]] = 9
    numbers, exhibits = found(digits(labels), load_dataset("digits", split="test"))
    pair = {exhibits["pairs"]["given"][0], exhibits["pairs"]["looks like"][0]}
    assert pair == {"4", "9"}
    assert numbers["worst_pair", None].value >= 0.05
    assert exhibits["pairs"]["share of given"][0] == pytest.approx(
        numbers["worst_pair", None].value, abs=1e-4
    )


def test_right_labels_have_few_suspects():
    numbers, _ = found(digits(), load_dataset("digits", split="test"))
    assert numbers["sure", "train"].value + numbers["sure", "test"].value <= 0.01
    assert numbers["worst_pair", None].value <= 0.05
    assert numbers["agreement", None].value >= 0.95


def test_the_worst_of_many_pairs_is_expected_to_be_large():
    """Two of ten images of one of a hundred classes look like another: of 9,900 pairs, one will."""
    shares, labels = np.zeros((100, 100)), np.repeat(np.arange(100), 10)
    shares[3, 7] = 0.2
    (two,) = [LabelSuspects()._worst(shares, labels)]
    assert (two.value, two.n) == (0.2, 10)
    assert two.low is not None
    assert two.low < PAIR_AT_LEAST
    shares[3, 7] = 0.8
    assert (LabelSuspects()._worst(shares, labels).low or 0) > PAIR_AT_LEAST


def test_labels_that_nothing_tells_are_not_predicted():
    labels = digits().labels[torch.randperm(len(digits()), generator=torch.Generator().manual_seed(0))]
    numbers, _ = found(digits(labels), load_dataset("digits", split="test"))
    assert numbers["agreement", None].value <= 0.5


def test_the_classifier_has_no_say_in_who_is_a_suspect():
    train, test = digits(), load_dataset("digits", split="test")
    models = [Classifier(nn.Flatten(), nn.Linear(64, 10)) for _ in range(2)]
    lists = [LabelSuspects()(model, train, test).exhibits[0].columns["image"] for model in models]
    assert lists[0] == lists[1]


def test_scores_equal_those_of_fits_without_each_row():
    stream = np.random.default_rng(0)
    features = stream.normal(size=(30, 4)).astype(np.float32)
    labels = np.arange(30) % 3
    scores = left_out_scores(features, labels, 3)
    squares = ((features[:, None] - features[None]) ** 2).sum(axis=2)
    kernel = np.exp(-squares / np.median(squares))
    targets = np.eye(3)[labels] - 1 / 3
    for row in range(30):
        rest = np.delete(np.arange(30), row)
        weights = np.linalg.solve(kernel[np.ix_(rest, rest)] + 0.1 * np.eye(29), targets[rest])
        np.testing.assert_allclose(scores[row], kernel[row, rest] @ weights + 1 / 3, atol=1e-5)


def test_a_rare_class_is_not_dealt_so_thinly_that_none_of_it_is_judged():
    labels = np.concatenate([np.arange(30_000) % 10, np.full(13, 10), np.full(3, 11)])
    blocks = _blocks(labels, seed=3)
    assert len(blocks) == 6
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(labels)))
    counts = np.array([np.bincount(labels[rows], minlength=12) for rows in blocks])
    assert sorted(counts[:, 10].tolist()) == [0, 0, 0, 0, 6, 7]
    assert sorted(counts[:, 11].tolist()) == [0, 0, 0, 0, 0, 3]
    assert counts[:, :10].min() == 500
    assert max(map(len, blocks)) <= BLOCK + 10


def test_blocks_hold_every_row_once_and_share_the_classes():
    labels = np.repeat(np.arange(10), [BLOCK // 2, *[BLOCK // 5] * 9])
    blocks = _blocks(labels, seed=3)
    assert len(blocks) > 2
    assert max(map(len, blocks)) <= BLOCK
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(len(labels)))
    counts = np.stack([np.bincount(labels[rows], minlength=10) for rows in blocks])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 16, 40), (1, 17, 17), (4, 20, 20), (3, 100, 60)])
def test_images_of_any_shape_have_features(shape):
    images = torch.rand(12, *shape)
    features = patch_features(images, patch_filters(images, seed=0))
    assert features.shape[0] == 12
    assert np.isfinite(features).all()
    flat = torch.zeros(12, *shape)
    assert np.isfinite(patch_features(flat, patch_filters(flat, seed=0))).all()


def test_labels_of_tiny_classes_are_not_judged():
    images = torch.rand(30, 1, 4, 4)
    labels = np.array([0] * 14 + [1] * 14 + [2] * 2)
    _, judged = probabilities(images, labels, 3, seed=0)
    assert judged[:28].all()
    assert not judged[28:].any()
    data = ImageSet(images[[0, 1, 28]], torch.tensor([0, 1, 1]), ("a", "b"))
    numbers, exhibits = found(data, data)  # nobody is judged
    assert exhibits["suspects"]["image"] == []
    assert numbers["suspects", "train"].value == 0


def test_a_class_without_images_is_not_the_worst():
    worst = LabelSuspects()._worst(np.zeros((3, 3)), np.array([1, 2, 2]))
    assert (worst.value, worst.n) == (0.0, 1)


def test_without_cleanlab_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    monkeypatch.setattr(label_suspects, "probabilities", lambda *_: pytest.fail("it took time first"))
    with pytest.raises(ImportError, match=r"needs cleanlab, which is not installed; pip install cleanlab"):
        found(digits(), load_dataset("digits", split="test"))


def test_at_most_as_many_images_as_asked_for():
    numbers, _ = found(digits(), load_dataset("digits", split="test"), images=200)
    assert numbers["suspects", "train"].n == numbers["suspects", "test"].n == 200
    with pytest.raises(ValueError, match="`images`"):
        LabelSuspects(images=0)


def test_what_was_not_looked_at_is_counted():
    numbers, _ = found(digits(), load_dataset("digits", split="test"), images=200)
    left = numbers["left_out", "train"]
    assert (round(left.value * left.n), left.n) == (len(digits()) - 200, len(digits()))
    assert ("left_out", "train") not in found(digits(), load_dataset("digits", split="test"))[0]


def test_classes_too_small_to_be_judged_are_not_called_right(tmp_path):
    few = digits().per_class(2, seed=0)
    test = load_dataset("digits", split="test").per_class(2, seed=0)
    card = cl.audit(
        Classifier(nn.Flatten(), nn.Linear(64, 10)),
        train=few,
        test=test,
        audits=["label_suspects"],
        verbose=False,
    )
    names = {one.name: one.value for one in card.measurements}
    assert names["not_judged"] == 1
    assert "agreement" not in names
    page = card.save(tmp_path / "page.html").read_text("utf-8")
    assert "No label was judged" in page
    assert "No label looks wrong" not in page


def test_with_many_classes_a_label_that_is_no_likelier_than_others_is_not_surely_wrong():
    """Guessing among 200 gives each label less than 0.01."""
    chances = np.full((50, 200), 1 / 200)
    chances[:, 7] += 1e-3
    labels = np.arange(50) + 10
    found = Doubts.of(chances / chances.sum(axis=1, keepdims=True), labels, np.ones(50, dtype=bool))
    assert not found.sure.any()
    chances[:, 10:60] /= 30
    found = Doubts.of(chances / chances.sum(axis=1, keepdims=True), labels, np.ones(50, dtype=bool))
    assert found.sure.all()


def test_a_copy_does_not_confirm_a_wrong_label():
    """As in an oversampled class: every image is there three times."""
    data = digits(count=40)
    labels = data.labels.clone()
    wrong = torch.arange(0, len(labels), 20)
    labels[wrong] = (labels[wrong] + 1) % 10
    single, _ = probabilities(data.images, labels.numpy(), 10, seed=0)
    three, _ = probabilities(data.images.repeat(3, 1, 1, 1), labels.repeat(3).numpy(), 10, seed=0)
    np.testing.assert_array_equal(three, np.concatenate([single] * 3))
