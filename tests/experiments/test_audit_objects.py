"""`audit` with audits that come as objects, with settings of their own, among names."""

from typing import Any

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Accuracy, Audit, Findings, MinimalPerturbation, OutOfDistribution, Robustness
from clearance.data import gaussian_images
from clearance.experiments.audit import AuditRequest, InMemory
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.catalogue import AUDITS
from clearance.heads import MLP
from clearance.vocabulary import Measurement

QUICK: Any = {"epsilons": {"inf": (0.03,)}, "steps": 3, "queries": 5}


class MeanPixel(Audit):
    """An audit of one's own, which the catalogue does not know."""

    name = "mean_pixel"

    def examine(self, subject):
        value = float(subject.test.images.mean())
        return Findings((Measurement("mean_pixel", "mean", value, "fraction", 1, better="neither"),))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 3)))


def audited(model, audits, **given):
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    return cl.audit(model, train=train, test=test, audits=audits, **given)


def radii(card):
    return {m.context["epsilon"] for m in card.measurements if m.name == "robust_accuracy"}


def test_an_audit_may_come_with_settings_of_its_own(model):
    card = audited(model, ["accuracy", Robustness(**QUICK)])
    assert radii(card) == {0.03}
    assert "accuracy" in {m.audit for m in card.measurements}


def test_also_from_what_can_be_read_once(model):
    """A generator had been read for the names, and its settings lost."""
    once: Any = (each for each in [Robustness(**QUICK)])
    assert radii(audited(model, once)) == {0.03}


def test_two_settings_of_one_audit_are_two_calls(model):
    both = [Robustness(epsilons={"inf": (epsilon,)}) for epsilon in (0.03, 0.1)]
    asks: Any = (both, [both[0], "robustness"])
    for asked in asks:
        with pytest.raises(ValueError, match="`audits` must have each audit once; got 'robustness' twice"):
            audited(model, asked)


def test_all_of_them_and_one_with_settings():
    own = Robustness(**QUICK)
    found = {audit.name: audit for audit in AuditPlan.of(["all", own], unknown=False).audits}
    assert {*found} == {*AUDITS} - {"out_of_distribution"}
    assert found["robustness"] is own
    assert {*AuditPlan.of(["all"]).names} == {*AUDITS}


def test_an_audit_that_nobody_else_knows(model):
    card = audited(model, [MeanPixel(), "accuracy"])
    assert [m.name for m in card.measurements if m.audit == "mean_pixel"] == ["mean"]


def test_unknown_images_may_come_with_their_audit(model):
    other = gaussian_images(per_class=10, seed=2).unlabelled()
    rows = {m.name: m for m in audited(model, [OutOfDistribution(other=other)]).measurements}
    assert rows["rejected"].n == 30
    with pytest.raises(ValueError, match="audit 'out_of_distribution' needs out-of-distribution images"):
        audited(model, [OutOfDistribution()])


def test_no_audit_twice_among_those_with_defaults(model):
    assert AuditPlan.of([Accuracy(), "class_scatter"], unknown=False).names == ("accuracy", "class_scatter")


def test_audits_share_one_pass_over_the_images(model):
    """Many audits send as many images through the network as one does."""
    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    seen = {}
    for audits in (["accuracy"], ["accuracy", "performance", "mistakes", "calibration", "class_scatter"]):
        images = []
        hook = model.extractor.register_forward_hook(lambda _, given, __: images.append(len(given[0])))  # noqa: B023
        cl.audit(model, train=train, test=test, audits=audits)
        hook.remove()
        seen[len(audits)] = sum(images)
    assert seen[5] == seen[1] < 1.5 * (len(train) + len(test))


def wide(channels):
    """A network of 8 x 8 x 9 x channels^2 multiply-adds an image, and a few more."""
    body = [nn.Conv2d(1, channels, 1), nn.Conv2d(channels, channels, 3, padding=1), nn.AdaptiveAvgPool2d(1)]
    return cl.Classifier(nn.Sequential(*body, nn.Flatten()), MLP((channels, 3)))


@pytest.mark.parametrize(("channels", "images"), [(32, 200), (200, 128), (240, 64), (400, 64)])
def test_a_large_network_is_asked_fewer_images_for_the_smallest_change(channels, images):
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    source = InMemory(wide(channels), train, test)
    said: list[str] = []

    def chosen(**asked: Any) -> Any:
        audit: Any = source.target(AuditRequest(say=said.append, **asked)).audits[0]
        return audit.images

    assert chosen(audits=["minimal_perturbation"]) == images
    assert len(said) == (images < 200)
    assert chosen(audits=["minimal_perturbation"], images=30) == 30
    assert chosen(audits=[MinimalPerturbation(images=50)]) == 50
    given = {"minimal_perturbation": {"images": 70}}
    assert chosen(audits=["minimal_perturbation"], settings=given) == 70
