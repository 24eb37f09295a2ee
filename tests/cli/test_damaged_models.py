"""Four damages done on purpose to a sound network: the first screen says each, and the gate fails where it should.

A network of one hidden layer on the embedded digits: its last layer broken for two classes, trained with the labels
of two classes mixed up, fed with a normalisation that it was not trained with, and with logits times 50.
"""

import copy
import dataclasses
import re

import pytest
import torch
from markupsafe import escape

from clearance.experiments.audit import AuditRequest, Target, run_audit
from clearance.experiments.audit_plan import MODEL_AUDITS, AuditPlan
from clearance.experiments.build import RunData
from clearance.models import Classifier
from clearance.report.audit_page import SEVERITIES
from clearance.report.audits import all_findings
from clearance.report.findings import Findings
from cli.terminal import plain_text, run
from digits_nets import digits, network, trained

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error")]

FEW: dict[str, dict[str, object]] = {
    "co_adaptation": {"per_class": [1, 50], "repetitions": [5, 2], "pixel_limit": 0},
    "minimal_perturbation": {"images": 60, "steps": 20, "queries": 20},
    "linear_probe": {"heads": 2},
}
MIXED = (3, 8)


def broken_last_layer():
    """Noise on the weights of two classes, twice as large as weights are."""
    model = copy.deepcopy(network())
    weight = model.head.weight
    noise = torch.randn(2, weight.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weight[list(MIXED)] += 2 * weight.std() * noise
    return model


def mixed_labels():
    """The training set with half of the images of two classes called the other."""
    train, _ = digits()
    labels = train.labels.clone()
    heads = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)) < 0.5
    swapped = torch.isin(labels, torch.tensor(MIXED)) & heads
    labels[swapped] = sum(MIXED) - labels[swapped]
    return dataclasses.replace(train, labels=labels)


def fed_wrongly():
    """Trained on its images' own mean and deviation, and fed with others."""
    train, _ = digits()
    right = trained(train, mean=float(train.images.mean()), std=float(train.images.std()))
    return Classifier(right.extractor, right.head, mean=0.9, std=0.2).eval()


def loud(factor=50.0):
    """The same predictions, with logits fifty times as large."""
    model = copy.deepcopy(network())
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter *= factor
    return model


class Audits:
    """Audits on disk, with the sentences of their first screens."""

    def __init__(self, folder):
        self.folder = folder
        self.said = {}

    def add(self, name, model: Classifier, train=None):
        known, test = digits()
        target = Target(
            model,
            RunData(train or known, test),
            AuditPlan.of([*MODEL_AUDITS, "few-labels"], FEW).audits,
            0,
            "network",
        )
        card = run_audit(target, AuditRequest(), lambda _: "clearance audit")
        card.save_folder(self.folder / name)
        self.said[name] = all_findings(Findings(card.report, "digits"))

    def titled(self, name, title):
        return next(finding for finding in self.said[name] if finding.title == title)

    def text(self, name, title):
        return re.sub(r"[\u202f\s]+", " ", self.titled(name, title).said.striptags())

    def check(self, name, *tolerances):
        words = [word for tolerance in tolerances for word in ("--fail-if", tolerance)]
        return run("check", str(self.folder / name), "--against", str(self.folder / "sound"), *words)


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    found = Audits(tmp_path_factory.mktemp("audits"))
    found.add("sound", network())
    found.add("broken", broken_last_layer())
    mixed = mixed_labels()
    found.add("mixed", trained(mixed), mixed)
    found.add("fed", fed_wrongly())
    found.add("loud", loud())
    return found


NAMES = ("sound", "broken", "mixed", "fed", "loud")
RINGS = {"broken": "Linear probe", "mixed": "Labels", "fed": "Input", "loud": "Confidence"}


@pytest.mark.parametrize("name", NAMES)
def test_the_sentences_stand_on_the_page_in_words(audits, name):
    page = (audits.folder / name / "index.html").read_text("utf-8")
    screen = page[: page.index('<section class="details">')]
    words = plain_text(screen)
    for finding in audits.said[name]:
        assert str(finding.said) in screen
        assert escape(finding.todo) in screen
    for word in ("NLL", "co-adaptation", "tilting", "norm"):
        assert not re.search(rf"\b{word}\b", words), word


def test_a_sound_network_rings_nothing(audits):
    assert not [one for one in audits.said["sound"] if one.severity in ("problem", "warning")]
    assert audits.text("sound", "Linear probe").startswith(
        "A new last layer (linear probe) gives no significant gain"
    )
    assert audits.text("sound", "Confidence").startswith("Confidence matches accuracy")
    assert audits.titled("sound", "Input").severity == "fine"


@pytest.mark.parametrize(("name", "title"), RINGS.items())
def test_each_damage_rings_before_what_is_fine(audits, name, title):
    first, *rest = audits.said[name]
    assert first.title == "Accuracy"
    assert title in {one.title for one in rest if one.severity in ("problem", "warning")}
    order = [SEVERITIES.index(one.severity) for one in rest]
    assert order == sorted(order)


def test_a_broken_last_layer(audits):
    text = audits.text("broken", "Linear probe")
    gain = float(text.partition("gains ")[2].partition(" points")[0])
    assert gain > 20
    assert audits.titled("broken", "Linear probe").todo == "Retrain the last layer before you deploy."
    assert "Input" not in {finding.title for finding in audits.said["broken"]}


def test_mixed_labels(audits):
    text = audits.text("mixed", "Worst pair")
    assert text.startswith("3 and 8: ")
    assert (
        "Look at the images of 3 and 8 and at their labels first" in audits.titled("mixed", "Worst pair").todo
    )
    assert re.search("of (3 look like 8|8 look like 3)", audits.text("mixed", "Labels"))
    # the last layer is as good as one could be made from these labels
    assert audits.text("mixed", "Linear probe").startswith(
        "A new last layer (linear probe) gives no significant gain"
    )


def test_the_wrong_normalisation(audits):
    text = audits.text("fed", "Input")
    assert text.startswith(
        "With the images' own mean and std instead of the given preprocessing, the accuracy rises"
    )
    train, _ = digits()
    todo = audits.titled("fed", "Input").todo
    mean, std = (float(each) for each in re.findall(r"--(?:mean|std) ([\d.]+\d)", todo))
    assert mean == pytest.approx(float(train.images.mean()), abs=0.02)
    assert std == pytest.approx(float(train.images.std()), abs=0.02)


def test_large_logits_change_what_is_said_of_confidence_only(audits):
    text = audits.text("loud", "Confidence")
    assert text.startswith("Overconfident: mean confidence ")
    divisor = float(audits.titled("loud", "Confidence").code.rpartition(" ")[2])
    assert 25 < divisor < 150
    sound, others = ({finding.title: finding for finding in audits.said[name]} for name in ("sound", "loud"))
    assert sound.keys() == others.keys()
    # as printed: the last bits of a distance may differ
    differ = {title for title in sound if sound[title].said.striptags() != others[title].said.striptags()}
    assert differ == {"Confidence", "Confident mistakes"}


ACCURACY, DISTANCE, SURENESS = "accuracy drops 1pt", "flip_distance drops 10%", "overconfidence rises 1pt"
STATUS = {
    "sound": {ACCURACY: 0, DISTANCE: 0, SURENESS: 0},
    "broken": {ACCURACY: 1, SURENESS: 1},
    "mixed": {ACCURACY: 1},
    "fed": {ACCURACY: 1, SURENESS: 1},
    "loud": {ACCURACY: 0, DISTANCE: 0, "accuracy changes": 0, "flip_distance changes 1%": 0, SURENESS: 1},
}


@pytest.mark.parametrize(
    ("name", "tolerance", "status"),
    [(name, tolerance, status) for name, rows in STATUS.items() for tolerance, status in rows.items()],
)
def test_the_gate_fails_where_it_should(audits, name, tolerance, status):
    found, shown, complaint = audits.check(name, tolerance)
    assert (found, complaint) == (status, ""), shown
    assert "paired over " in shown
