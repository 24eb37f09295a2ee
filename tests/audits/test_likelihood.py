"""The audit of likelihood as a whole: which images meet which, halves, sets never seen, pictures, refusals."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from audits.draws import first_half
from clearance.audits import Likelihood, Subject, rejection_threshold
from clearance.audits.likelihood import (
    Evasion,
    NormalImages,
    Scorer,
    Seen,
    contact_sheets,
    pixel_steps,
    sign_noise,
)
from clearance.audits.rejection import detection
from clearance.data import ImageSet, gaussian_images
from clearance.data.synthetic import GaussianClasses
from clearance.heads import GaussianMixture
from clearance.models import Classifier
from clearance.research import fixed_images

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=4.0, noise=0.03)
TRAIN, TEST = WORLD.images(30, seed=0), WORLD.images(80, seed=1)
SCORES = ("likelihood", "class mean", "mahalanobis", "max softmax", "energy", "neighbours")
PIXELS = ("small pixels", "pixel steps")


def pixels():
    """The classifier that is right whenever anything can be: the nearest true mean."""
    head = nn.Linear(16, 3)
    means = WORLD.means().flatten(1).float()
    with torch.no_grad():
        head.weight.copy_(means / WORLD.noise**2)
        head.bias.copy_(-0.5 * means.square().sum(dim=1) / WORLD.noise**2)
    return Classifier(nn.Flatten(), head)


def mixture(covariance="diagonal"):
    head = GaussianMixture(16, 3, covariance)
    head.fit_statistics(TRAIN.images.flatten(1), TRAIN.labels)
    return Classifier(nn.Flatten(), head)


def audited(model=None, test=TEST, new_classes=None, **settings):
    settings = {"epsilons": (0.05,), "adaptive": (), **settings}
    return Likelihood(**settings)(pixels() if model is None else model, TRAIN, test, new_classes=new_classes)


def values(findings, name):
    return {
        tuple(v for k, v in m.context.items() if k != "interval"): m.value
        for m in findings.measurements
        if m.name == name
    }


def test_every_score_meets_every_attack():
    found = values(audited(), "auroc")
    counted = [(count, negatives) for count in ("all", "successful") for negatives in ("originals", "noise")]
    assert set(found) == {
        (attack, 0.05, *how, score)
        for attack in ("FGSM", "IFGSM")
        for how in counted
        for score in SCORES + PIXELS
    }
    assert ("FGSM", 0.05, "all", "originals", "density") in values(audited(mixture()), "auroc")


def test_images_that_fooled_a_linear_classifier_are_those_within_reach_of_its_boundary():
    """For a linear classifier, away from black and white, FGSM breaks what is nearer than epsilon in norm inf."""
    model, half = pixels(), first_half(TEST.labels, 0)
    with torch.no_grad():
        rows, labels = TEST.images[~half], TEST.labels[~half]
        logits = model(rows).double()
    weight = model.head.weight.detach().double()
    others = [[k for k in range(3) if k != y] for y in labels.tolist()]
    gaps = [min(float(z[y] - z[k]) / float((weight[y] - weight[k]).abs().sum()) for k in rest)
            for z, y, rest in zip(logits, labels.tolist(), others, strict=True)]  # fmt: skip
    right = [gap > 0 for gap in gaps]
    epsilon = round(sorted(gap for gap in gaps if gap > 0)[60], 4)
    within = [0 < gap < epsilon for gap in gaps]
    found = audited(epsilons=(epsilon,))
    expected = sum(within) / sum(right)
    assert 0.4 < expected < 0.6
    # cross-entropy of three classes is no margin: one step may leave a few of these
    assert values(found, "fooled")["FGSM", epsilon] == pytest.approx(expected, abs=0.05)
    assert values(found, "fooled")["IFGSM", epsilon] == pytest.approx(expected, abs=0.03)


def test_numbers_under_attack_are_those_of_the_images_that_they_name():
    """Roughness needs no network: made by hand, of the half that is measured."""
    model, rows = pixels(), ~first_half(TEST.labels, 0)
    images, labels = TEST.images[rows], TEST.labels[rows]
    data = TEST.subset(rows.nonzero()[:, 0])
    scorer = Scorer.fitted(Subject(model.eval(), TRAIN, TEST), 5000, 3)
    changed = NormalImages(scorer, data, data).after("FGSM", 0.03, steps=1)
    right = model(images).argmax(dim=1) == labels
    assert 0 < int(changed.fooled.sum()) < int(right.sum()) < len(labels)
    made = changed.images
    noisy = sign_noise(images, made - images, 0)
    hit = changed.fooled
    expected = {
        ("all", "originals"): detection(pixel_steps(images), pixel_steps(made)),
        ("all", "noise"): detection(pixel_steps(noisy), pixel_steps(made)),
        ("successful", "originals"): detection(pixel_steps(images[hit]), pixel_steps(made[hit])),
        ("successful", "noise"): detection(pixel_steps(noisy[hit]), pixel_steps(made[hit])),
    }
    found = audited(epsilons=(0.03,))
    for name in ("auroc", "aupr", "fpr95"):
        mine = [values(found, name)["FGSM", 0.03, *how, "pixel steps"] for how in expected]
        assert mine == [one[name] for one in expected.values()]
        assert name == "fpr95" or len(set(mine)) == 4
    counted = {m.context["attack"]: m.n for m in found.measurements if m.name == "fooled"}
    assert counted["FGSM"] == int(right.sum())
    assert values(found, "fooled")["FGSM", 0.03] == int(hit.sum()) / int(right.sum())
    limit = rejection_threshold(pixel_steps(TEST.images[~rows]))
    caught = float((pixel_steps(made[hit]) < limit).double().mean())
    assert values(found, "caught")["FGSM", 0.03, "pixel steps"] == pytest.approx(caught)


def test_one_half_of_the_held_out_images_decides_and_the_other_is_measured():
    found = audited()
    kept = {m.n for m in found.measurements if m.name == "rejected"}
    half = first_half(TEST.labels, 0)
    assert kept == {int((~half).sum())} == {120}
    # a half whose every image is the same decides on thresholds that say nothing else
    images = TEST.images.clone()
    images[half] = 0.5
    moved = audited(test=ImageSet(images, TEST.labels, TEST.classes))
    assert values(moved, "auroc") == values(found, "auroc")
    assert values(moved, "rejected") != values(found, "rejected")


def test_thresholds_reject_five_in_a_hundred_normal_images():
    test = WORLD.images(1000, seed=2)
    found = values(audited(test=test, images=1500, adaptive=()), "rejected")
    for score in SCORES:
        assert found[(score,)] == pytest.approx(0.05, abs=0.025), score


def test_images_of_another_dataset():
    """Noise of its own mean colour far from all classes: a density sees it, a logit of a linear layer need not."""
    other = ImageSet(torch.rand(60, 1, 4, 4), torch.arange(60) % 2, ("a", "b"), "noise")
    found = values(audited(mixture(), other=other), "auroc")
    assert found["noise", "density"] == 1.0
    assert found["noise", "mahalanobis"] == 1.0
    assert values(audited(mixture(), other=other), "caught")["noise", "density"] == 1.0
    with pytest.raises(ValueError, match=r"`other` must have images of shape \(1, 4, 4\).*got \(1, 8, 8\)"):
        audited(other=gaussian_images(per_class=3))
    with pytest.raises(
        ValueError, match=r"`other` must be images by now; got the name 'mnist'.*load_dataset"
    ):
        audited(other="mnist")


def test_classes_that_were_left_out():
    bright = WORLD.images(10, seed=3)
    new = ImageSet(bright.images + 0.2, bright.labels, ("x", "y", "z"))
    found = values(audited(mixture(), new_classes=(new, new)), "auroc")
    assert found["classes left out", "density"] == 1.0
    assert not any("classes left out" in key for key in values(audited(mixture()), "auroc"))


def test_v1_the_adaptive_attack_evades_what_finds_fgsm():
    """A mixture's density finds large steps, and none of these once they are taken with an eye to it."""
    settings = {
        "epsilons": (0.05, 0.1),
        "adaptive_images": 20,
        "adaptive_steps": 20,
        "betas": (0.1, 1.0, 10.0),
    }
    found = audited(mixture(), adaptive=("density",), **settings)
    evasion = values(found, "evasion")
    assert evasion[0.1, "density"] >= evasion[0.05, "density"]
    naive = values(found, "caught")["IFGSM", 0.1, "density"]
    assert evasion[0.1, "density"] > 1 - naive
    aurocs = values(found, "auroc")
    assert aurocs["adaptive", "density", 0.1, "successful", "originals", "density"] < aurocs[
        "IFGSM", 0.1, "successful", "originals", "density"]  # fmt: skip
    (n,) = {m.n for m in found.measurements if m.name == "evasion"}
    assert n in range(18, 21)
    # a score that this head does not have is attacked nowhere
    assert not values(audited(adaptive=("density",)), "evasion")


def test_every_score_is_asked_about_the_images_of_an_attack_that_knows_one():
    """Also those that see no network, against the originals and noise as large."""
    model, epsilon = mixture().eval(), 0.1
    settings = {"adaptive_images": 15, "adaptive_steps": 5, "betas": (1.0,)}
    found = audited(model, epsilons=(epsilon,), adaptive=("density", "energy"), **settings)
    aurocs = values(found, "auroc")
    assert {key[1:] for key in aurocs if key[0] == "adaptive"} == {
        (attacked, epsilon, "successful", negatives, score)
        for attacked in ("density", "energy")
        for negatives in ("originals", "noise")
        for score in (*SCORES, *PIXELS, "density")
    }
    # by hand: the same images, attacked and looked at again
    half = first_half(TEST.labels, 0)
    scorer = Scorer.fitted(Subject(model, TRAIN, TEST), reference=5000, neighbours=5)
    normal = NormalImages(scorer, TEST.subset((~half).nonzero()[:, 0]), TEST.subset(half.nonzero()[:, 0]))
    data = fixed_images(normal.data, 15, 0, among=normal.right)
    attack = Evasion(normal.scorer, "density", normal.margin(), normal.spread("density"), (1.0,), 5)
    evaded = attack(data.images, data.labels, epsilon)
    wrong = evaded.scores > -math.inf
    assert bool(wrong.any())
    noisy = sign_noise(data.images, evaded.images - data.images, 0)
    for negatives, images in (("originals", data.images), ("noise", noisy)):
        expected = detection(pixel_steps(images[wrong]), pixel_steps(evaded.images[wrong]))["auroc"]
        assert aurocs["adaptive", "density", epsilon, "successful", negatives, "pixel steps"] == expected
        before, after = (model(each[wrong]).double().logsumexp(dim=1) for each in (images, evaded.images))
        expected = detection(before.detach(), after.detach())["auroc"]
        assert aurocs["adaptive", "density", epsilon, "successful", negatives, "energy"] == pytest.approx(
            expected
        )


def test_how_loud_logits_are_does_not_matter():
    """Of two classes, where FGSM goes one way; signs and orders are all that counts."""
    world = GaussianClasses(class_count=2, shape=(1, 4, 4), separation=4.0, noise=0.03)
    train, test = world.images(30, seed=0), world.images(80, seed=1)
    torch.manual_seed(0)
    head = nn.Linear(16, 2)
    louder = nn.Linear(16, 2)
    with torch.no_grad():
        louder.weight.copy_(4 * head.weight)
        louder.bias.copy_(4 * head.bias)
    audit = Likelihood(epsilons=(0.05,), adaptive_images=10, adaptive_steps=5, betas=(1.0,))
    mine, loud = (audit(Classifier(nn.Flatten(), one), train, test) for one in (head, louder))
    for one, other in zip(mine.measurements, loud.measurements, strict=True):
        assert one.context == other.context
        if one.context.get("score") not in ("max softmax", "energy"):
            assert other.value == pytest.approx(one.value, abs=1e-3), (one.name, one.context)


def test_pictures_hold_what_was_measured():
    found = audited(epsilons=(0.05, 0.1))
    names = [(e.name, e.context["epsilon"]) for e in found.exhibits[2:]]
    assert names == [
        (n, e) for e in (0.05, 0.1) for n in ("likelihood", "class mean", "probability", "sheet", "sheet")
    ]
    for shown in found.exhibits[2:]:
        assert shown.context["attack"] == "FGSM"
        if shown.kind == "histogram":
            assert sum(shown.columns["before"]) == pytest.approx(1.0)
            assert sum(shown.columns["after"]) == pytest.approx(1.0)
    distance = next(e for e in found.exhibits if e.name == "class mean").columns
    assert distance != next(e for e in found.exhibits if e.name == "likelihood").columns
    rows = ~first_half(TEST.labels, 0)
    features = TEST.images[rows].flatten(1).double()
    means = torch.stack([TRAIN.images[TRAIN.labels == k].flatten(1).double().mean(dim=0) for k in range(3)])
    named = pixels()(TEST.images[rows]).argmax(dim=1)
    halves = -0.5 * (features - means[named]).square().sum(dim=1)
    second = distance["from"][1]
    assert distance["before"][0] == pytest.approx(float((halves < second).double().mean()), abs=1e-6)


def test_a_sheet_for_each_likelihood_shows_what_it_caught_and_what_it_missed():
    found = audited(epsilons=(0.05,))
    sheets = {e.context["score"]: e.columns for e in found.exhibits if e.name == "sheet"}
    assert list(sheets) == ["likelihood", "class mean"]
    assert sheets["likelihood"]["p"] != sheets["class mean"]["p"]
    for sheet in sheets.values():
        assert len(sheet["image"]) <= 16
        assert [p <= 0.05 for p in sheet["p"]] == list(sheet["caught"])
        assert all(a != b for a, b in zip(sheet["class"], sheet["taken for"], strict=True))
        assert torch.tensor(sheet["image"]).shape[1:] == TEST.shape


def test_an_image_whose_score_is_not_a_number_is_caught():
    images = TEST.images[:3]
    scores = {name: torch.tensor([math.nan, 0.5, 0.5]) for name in ("likelihood", "class mean")}
    fooled, taken_for = torch.tensor([True, True, False]), (TEST.labels[:3] + 1) % 3
    seen = Seen("FGSM", 0.1, images, scores, torch.eye(3)[taken_for], fooled)
    normal: Any = SimpleNamespace(
        data=TEST,
        seen_held_out=({name: torch.linspace(0, 1, 40) for name in scores}, None),
        thresholds=lambda epsilon: dict.fromkeys(scores, 0.05),
    )
    for sheet in contact_sheets(normal, seen):
        assert sheet.columns["caught"] == [True, False]
        assert sheet.columns["p"][0] < 0.05 < sheet.columns["p"][1]


def test_single_scores_and_thresholds_are_there_for_programs():
    """A log-density of each image as torch.distributions has it, and the limit that 'rejected' was counted with."""
    model = mixture()
    found = audited(model)
    scores, limits = (shown.columns for shown in found.exhibits[:2])
    rows = TEST.images[~first_half(TEST.labels, 0)].flatten(1).double()
    head = model.head.double()
    spreads = head.log_variance().exp().sqrt()
    each = torch.stack([Normal(mean, spreads[0]).log_prob(rows).sum(dim=1) for mean in head.means], dim=1)
    expected = each.detach().amax(dim=1)  # classes alike, so that the predicted one is the likeliest
    assert scores["likelihood"] == pytest.approx(expected.tolist(), rel=1e-4)
    assert scores["density"] == pytest.approx(
        (each.detach().logsumexp(dim=1) - math.log(3)).tolist(), rel=1e-4
    )
    limit = dict(zip(limits["score"], limits["threshold"], strict=True))["likelihood"]
    rejected = sum(one < limit for one in scores["likelihood"]) / 120
    assert rejected == pytest.approx(values(found, "rejected")[("likelihood",)])
    assert [p <= 0.05 for p in scores["p"]] == [one < limit for one in scores["likelihood"]]
    assert len(scores["class"]) == len(scores["taken for"]) == 120


def test_bars_count_every_score_once():
    """Those beyond the ends, too: they are in the first and the last bar."""
    found = audited(epsilons=(0.05,))
    scores = torch.tensor(found.exhibits[0].columns["likelihood"], dtype=torch.float64)
    shown = next(e for e in found.exhibits if e.name == "likelihood").columns
    starts = torch.tensor(shown["from"], dtype=torch.float64)
    width, bars = float(starts[1] - starts[0]), len(starts)
    assert bool((scores < starts[0]).any() or (scores > starts[-1] + width).any())
    places = ((scores - starts[0]) / width).floor().clamp(0, bars - 1).long()
    expected = torch.bincount(places, minlength=bars) / len(scores)
    # a score on the edge of a bar may be rounded into the next one
    assert float((torch.tensor(shown["before"]) - expected).abs().sum()) <= 2.1 / len(scores)
    assert sum(shown["before"]) == pytest.approx(1.0)


def test_a_network_that_nothing_fools_has_nothing_to_be_told_apart():
    found = audited(epsilons=(1e-6,))
    assert values(found, "fooled") == {("FGSM", 1e-6): 0.0, ("IFGSM", 1e-6): 0.0}
    assert {key[2] for key in values(found, "auroc")} == {"all"}
    assert not any(e.name == "sheet" for e in found.exhibits)


def test_bad_settings_are_refused():
    with pytest.raises(
        ValueError, match=r"`epsilons` must ascend, each once, at least one; got \(0.2, 0.1\)"
    ):
        Likelihood(epsilons=(0.2, 0.1))
    with pytest.raises(ValueError, match=r"`epsilons` must lie in \(0, 1\]; got 0"):
        Likelihood(epsilons=(0.0,))
    with pytest.raises(ValueError, match=r"`adaptive` must be one of 'likelihood'.*got 'logits'"):
        Likelihood(adaptive=("logits",))
    with pytest.raises(ValueError, match="`betas` must be at least one number; got none"):
        Likelihood(betas=())
    for beta in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="`betas` must be"):
            Likelihood(betas=(1.0, beta))
    with pytest.raises(ValueError, match="`neighbours` must be a whole number of at least 1; got 0"):
        Likelihood(neighbours=0)
    one_each = ImageSet(TEST.images[[0, 80, 160]], TEST.labels[[0, 80, 160]], TEST.classes)
    with pytest.raises(ValueError, match="`test` must have at least 19 images for a threshold"):
        Likelihood().examine(Subject(pixels(), TRAIN, one_each))
    few = TEST.subset(torch.cat([(TEST.labels == k).nonzero().flatten()[:10] for k in range(3)]))
    with pytest.raises(ValueError, match=r"`test` must have at least 19 images for a threshold .* got 15"):
        Likelihood().examine(Subject(pixels(), TRAIN, few))


def test_too_few_images_for_a_threshold_are_refused():
    train, test = gaussian_images(per_class=60, seed=0), gaussian_images(per_class=60, seed=1)
    model = Classifier(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(ValueError, match=r"`images` must leave at least 19 .*; got 12"):
        Likelihood(epsilons=(0.1,), adaptive=(), images=12)(model, train, test)
