"""Two audits on one page: which way each number went, how sure that is, and which images flipped."""

import dataclasses
import math
import re

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.experiments.diff import KINDS, Change, _verdict, diff
from clearance.gate.results import GateResult, GateStatus, paired_fractions
from clearance.gate.tolerance import Quantity, Tolerance
from cli.terminal import run

pytestmark = pytest.mark.filterwarnings("error")

CLASSES = ("ape", "bee", "cat")
USUAL = ["accuracy", "performance", "mistakes", "calibration"]


def images(count=300, seed=0):
    """Images of three pixels; the label is the largest one."""
    pixels = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed))
    return cl.ImageSet(pixels.view(count, 1, 1, 3), pixels.argmax(dim=1), CLASSES, "pixels")


def network(scale=5.0, against=0.0):
    """Right on every image; `against` is taken from the logit of cats."""
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.copy_(scale * torch.eye(3))
        head.bias.copy_(torch.tensor([0.0, 0.0, -scale * against]))
    return cl.Classifier(nn.Flatten(), head)


def card(name, test=None, audits=USUAL, **settings):
    return cl.audit(
        network(**settings), train=images(seed=1), test=test or images(), audits=audits, name=name
    )


@pytest.fixture(scope="module")
def cards():
    return {"sound": card("sound"), "blind": card("blind", against=0.5), "loud": card("loud", scale=50.0)}


def said(found):
    return {one.title: re.sub(r"[\u202f\s]+", " ", one.said.striptags()) for one in found.findings}


def severities(found):
    return {one.title: one.severity for one in found.findings}


def test_the_class_that_became_worse_is_a_problem_with_its_interval(cards):
    found = diff(cards["sound"], cards["blind"])
    assert severities(found)["Recall by class"] == severities(found)["Accuracy"] == "problem"
    assert said(found)["Recall by class"].startswith("cat: 100.0 % →")
    (recall,) = [one for one in found.changes if one.quantity.context.get("class") == "cat"]
    last, now = (torch.tensor(values(cards[name], "cat")).numpy() for name in ("sound", "blind"))
    assert (recall.result.low, recall.result.high) == pytest.approx(
        paired_fractions(last, now, level=1 - 0.05 / 3), abs=1e-9
    )


def test_a_slice_that_is_the_only_one_is_named_too(tmp_path):
    test = images(100)
    table = tmp_path / "sites.csv"
    table.write_text("\n".join(["row,site", *(f"{k},{'A' if k % 2 else ''}" for k in range(100))]), "utf-8")
    older, newer = (
        cl.audit(
            network(against=against), train=images(seed=1), test=test, audits=["performance"], slices=table
        )
        for against in (0.0, 0.5)
    )
    assert said(diff(older, newer))["Accuracy by slice"].startswith("site=A: 100.0 % →")


def values(card, name):
    (exhibit,) = [e for e in card.exhibits if e.name == "recall" and e.context["class"] == name]
    return exhibit.columns["value"]


def test_the_other_way_round_it_is_better_and_fine(cards):
    found = diff(cards["blind"], cards["sound"])
    assert severities(found)["Accuracy"] == severities(found)["Recall by class"] == "fine"
    assert "better" in said(found)["Accuracy"]
    assert said(found)["Recall by class"] == "None of 3 is significantly worse. Better: cat."


def test_logits_that_grew_change_confidence_alone(cards):
    found = diff(cards["sound"], cards["loud"])  # underconfident before: every image is right
    assert said(found)["Accuracy"].startswith("100.0 % → 100.0 %, no significant change: 0.0 points")
    assert "better" in said(found)["Confidence minus accuracy"]
    assert severities(diff(cards["loud"], cards["sound"]))["Confidence minus accuracy"] == "problem"


def test_flipped_images_are_those_of_the_labels(cards):
    found = diff(cards["sound"], cards["blind"])
    test = images()
    wrong = network(against=0.5)(test.images).argmax(dim=1) != test.labels
    assert found.flips is not None
    assert [row["file"] for row in found.flips["lost"]] == [
        f"image {k}" for k in wrong.nonzero().flatten().tolist()
    ]
    assert {row["given"] for row in found.flips["lost"]} == {"cat"}
    assert all(row["before"] == "cat" != row["now"] for row in found.flips["lost"])
    assert found.flips["won"] == found.flips["other"] == []
    assert said(found)["Flipped images"].startswith(
        f"{int(wrong.sum())} images that were right are wrong now, 0"
    )


def test_text_page_and_command_say_the_same(cards, tmp_path):
    for name in ("sound", "blind"):
        cards[name].save_folder(tmp_path / name)
    status, shown, complaint = run(
        "diff", str(tmp_path / "sound"), str(tmp_path / "blind"), "--out", str(tmp_path / "diff")
    )
    assert (status, complaint) == (0, "")
    found = diff(tmp_path / "sound", tmp_path / "blind")
    page = (tmp_path / "diff" / "index.html").read_text("utf-8")
    words = " ".join(shown.split())
    assert "blind against sound: 2 problems, 1 fine" in words
    for one in found.findings:
        assert str(one.said) in page
        assert " ".join(f"{one.title}: {one.said.striptags()}".split()) in words
    assert "data:image/png" in page
    assert "Without an interval of the change" in page  # the error on training images, for example
    shared = (tmp_path / "diff" / "share.html").read_text("utf-8")
    assert "data:image" not in shared
    assert not re.search(r"image \d+<", shared)


def test_other_images_are_refused(cards):
    with pytest.raises(ValueError, match=r"cannot be compared: .* Audit both models on the same test images"):
        diff(cards["sound"], card("elsewhere", test=images(seed=2)))


def test_several_models_are_refused(cards, tmp_path):
    report = cards["sound"].report
    two = type(report)({}, {}, "", "", (*report.records, *cards["blind"].report.records))
    with pytest.raises(ValueError, match="the audit of one model; got 2 in"):
        diff(cards["sound"], cl.Card(two))
    with pytest.raises(FileNotFoundError, match=r"a report is a folder with report\.json"):
        diff(tmp_path, cards["sound"])
    again = tuple(dataclasses.replace(record, seed=1) for record in report.records)
    seeds = type(report)({}, {}, "", "", (*report.records, *again))
    with pytest.raises(ValueError, match=r"of one network; got 2 seeds in .*clearance audit RUN_DIR"):
        diff(cards["sound"], cl.Card(seeds))


def test_models_are_audited_first():
    with pytest.raises(TypeError, match=r"got Classifier\. Audit each model first: clearance\.diff"):
        diff(network(), network())


def test_a_distance_is_compared_as_a_share():
    audits = ["accuracy", "minimal_perturbation"]
    settings = {"minimal_perturbation": {"images": 60, "steps": 20, "queries": 5}}
    cards = [
        cl.audit(
            network(against=0.02 * k),
            train=images(seed=1),
            test=images(),
            audits=audits,
            audit_settings=settings,
        )
        for k in (0, 1)
    ]
    (change,) = [one for one in diff(*cards).changes if one.quantity.name == "median_flip"]
    assert change.result.tolerance.relative
    assert change.harm is not None
    assert all(math.isfinite(end) for end in change.harm)
    assert "%" in change.interval.striptags()


def test_the_largest_drop_is_named_where_too_few_images_tell():
    """On 30 images a class may lose three tenths without an interval above none."""
    few = images(30)
    older, newer = (card(name, test=few, against=against) for name, against in (("old", 0.0), ("new", 0.1)))
    found = diff(older, newer)
    (cat,) = [one for one in found.changes if one.quantity.context.get("class") == "cat"]
    assert cat.harm is not None
    assert cat.harm[0] < 0 < cat.loss < cat.harm[1]
    drop = " ".join(cat.interval.striptags().split())
    assert severities(found)["Recall by class"] == "fine"
    assert said(found)["Recall by class"] == (
        f"None of 3 is significantly worse; largest drop: cat, {drop}; too few images to tell."
    )
    same = said(diff(older, card("same", test=few)))["Recall by class"]
    assert same == "None of 3 is significantly worse."


def test_what_became_worse_is_shown_first_and_says_what_to_look_at(cards):
    worse = network()
    with torch.no_grad():
        worse.head.bias.copy_(torch.tensor([0.0, -0.5, -1.5]))  # bees lose some, cats lose many
    found = diff(
        cards["sound"], cl.audit(worse, train=images(seed=1), test=images(), audits=USUAL, name="worse")
    )
    todos = {one.title: one.todo for one in found.findings}
    assert todos["Accuracy"] == todos["Recall by class"] == "Look at the images that are wrong now."
    assert not todos["Confidence minus accuracy"]
    (flipped,) = [one for one in found.findings if one.title == "Flipped images"]
    given = [shot.words[1] for shot in flipped.pictures[0].shots]
    assert given == sorted(given, reverse=True)
    assert given[0] == "given cat"
    assert {one.todo for one in diff(cards["blind"], cards["sound"]).findings} == {""}


def test_one_image_that_flipped_is_one():
    def flips(**kinds):
        found = diff(card("old"), card("new"))
        rows = {
            kind: [{"file": "", "given": "", "before": "", "now": ""}] * kinds.get(kind, 0) for kind in KINDS
        }
        found.__dict__["flips"] = rows
        return said(found)["Flipped images"]

    assert flips(lost=1, won=1, other=1) == (
        "1 image that was right is wrong now, 1 that was wrong is right, 1 wrong one got another answer."
    )
    assert flips(lost=2, won=0, other=2) == (
        "2 images that were right are wrong now, 0 that were wrong are right, 2 wrong ones got another answer."
    )


def test_a_difference_of_shares_is_in_points(cards):
    found = diff(cards["sound"], cards["loud"])
    assert re.match(r"−[\d.]+ points → −?[\d.]+ points, better", said(found)["Confidence minus accuracy"])


@pytest.mark.parametrize(
    ("last", "now", "worse"), [(-0.10, 0.103, 0.003), (-0.10, 0.095, -0.005), (0.02, 0.08, 0.06)]
)
def test_confidence_is_worse_by_as_much_as_it_is_farther_from_accuracy(last, now, worse):
    quantity = Quantity("calibration", "overconfidence")
    tolerance = Tolerance(quantity, "changes", 0.0, relative=False)
    ends = {"low": now - last - 0.001, "high": now - last + 0.001}
    changed = Change(quantity, "neither", GateResult(tolerance, GateStatus.PASS, last, now, **ends))
    assert changed.loss == pytest.approx(worse)
    assert changed.harm == pytest.approx((worse - 0.001, worse + 0.001))


def test_a_change_that_is_sure_is_never_called_none():
    """From as far below as above: neither nearer nor farther, and not the same."""
    tolerance = Tolerance(Quantity("calibration", "overconfidence"), "changes", 0.0, relative=False)
    crossed = Change(
        tolerance.quantity, "neither", GateResult(tolerance, GateStatus.PASS, -0.10, 0.10, 0.19, 0.21)
    )
    assert _verdict(crossed) == "changed, neither clearly better nor worse"
