"""Answers that are no class: of outputs beyond the classes, and of logits that are not finite."""

import re

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.data import gaussian_images
from clearance.models import Classifier
from clearance.report.audits import all_findings
from clearance.report.findings import Findings

pytestmark = pytest.mark.filterwarnings("error")

TRAIN, TEST = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
USUAL = ["accuracy", "preprocessing", "confusions", "linear_probe", "calibration", "class_scatter"]


def trained(outputs: int, head: type[nn.Linear] = nn.Linear) -> Classifier:
    """A linear classifier of three classes that is right on most images."""
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), head(64, outputs))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(TRAIN.images), TRAIN.labels).backward()
        optimizer.step()
    return model


def with_further_outputs() -> Classifier:
    """The fifth output wins over the third on some images of the third class."""
    model = trained(5)
    head = model.head
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        weight, bias = head.weight, head.bias
        weight[4], bias[4] = weight[2], bias[2]
        weight[4, ::2] += 0.3
        weight[4, 1::2] -= 0.3
    answers = model(TEST.images).argmax(dim=1)
    assert 0 < int((answers >= 3).sum()) < len(TEST)
    return model


class NaNAbove(nn.Linear):
    """Logits are NaN where the first feature is above `limit`."""

    limit = float("inf")

    def forward(self, features):
        return torch.where(features[:, :1] > self.limit, torch.nan, super().forward(features))


def sentences(card):
    return {one.title: one for one in all_findings(Findings(card.report, TEST.name))}


def test_the_default_audit_of_a_network_with_more_outputs_than_classes():
    card = cl.audit(with_further_outputs(), train=TRAIN, test=TEST, audits=[*USUAL, "neural_collapse"])
    found = {m.name: m.value for m in card.measurements if m.audit == "confusions"}
    assert found["outside_share"] == 1.0
    assert found["worst_share"] == 0.0
    line = sentences(card)["Outputs without a class"]
    assert line.severity == "problem"
    words = " ".join(line.said.striptags().split())
    assert re.fullmatch(
        r"[\d.]+ % \([\d.]+ to [\d.]+ %\) of the mistakes are answers of an output beyond the classes\.",
        words,
    ), words
    assert "an output beyond the classes" in card.to_html()


def test_images_without_finite_logits_are_counted_and_named():
    model = trained(3, NaNAbove)
    first = model.extractor((TEST.images - model.mean) / model.std)[:, 0]
    order = first.argsort()
    assert isinstance(model.head, NaNAbove)
    model.head.limit = float(first[order[-15]])
    card = cl.audit(model, train=TRAIN, test=TEST, audits=USUAL)
    (share,) = [m for m in card.measurements if m.name == "not_finite" and m.context["split"] == "test"]
    assert share.value * share.n == pytest.approx(14)
    (which,) = [e for e in card.exhibits if e.name == "not_finite" and e.context["split"] == "test"]
    assert [k for k, there in enumerate(which.columns["value"]) if there] == sorted(order[-14:].tolist())
    logits, pair = sentences(card)["Logits"], sentences(card)["Worst pair"]
    assert logits.severity == "problem"
    assert (
        f"14: index {', '.join(map(str, sorted(order[-14:].tolist())[:10]))}, ..." in logits.said.striptags()
    )
    assert "No test image is wrong" not in pair.said
    assert "logits are not finite" in pair.said
    assert "14: index" in card.to_html().replace("<code>", "").replace("</code>", "")
