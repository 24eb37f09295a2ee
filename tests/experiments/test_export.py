"""The exported reader gives, with torch alone, what the audit measured: classes, calibrated confidence, rejection."""

import ast
import copy
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Accuracy, Audit, Calibration, OutOfDistribution, Subject
from clearance.audits.out_of_distribution import neighbour_score
from clearance.cli.__main__ import main
from clearance.data import gaussian_images
from clearance.experiments.audit import AuditRequest, Target, run_audit
from clearance.experiments.build import RunData
from clearance.experiments.class_order import InOrder, in_order_of
from clearance.experiments.export import export
from clearance.models.black_box import black_box
from clearance.models.cut import SummedHeads


def trained():
    train = cl.load_dataset("digits")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module((train.images - 0.3) / 0.4), train.labels).backward()
        optimizer.step()
    return module.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A module as its owner has it, its audit's subject and calibration, and what was exported."""
    module, folder = trained(), tmp_path_factory.mktemp("deploy")
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    model = cl.wrap(module, example=test.images[:4], mean=0.3, std=0.4, verbose=False)
    subject = Subject(model, train, test)
    found = Calibration().examine(subject)
    said = export(subject, [found], folder)
    assert "threshold" in said
    return module, subject, {m.name: m for m in found.measurements}, folder


def reader(folder):
    spec = importlib.util.spec_from_file_location("reader", folder / "reader.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Deployed


class InADictionary(torch.nn.Module):
    """A network in half precision whose logits are one of several outputs."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, images):
        return {"logits": self.module(images)}


def test_it_reads_dictionaries_and_half_precision(exported):
    module, subject, _, folder = exported
    images = subject.test.images[:20]
    found = [name for name, *_ in reader(folder)(module, folder)(images)]
    kept = json.loads((folder / "deploy.json").read_text())
    other = copy.deepcopy(module)
    (folder.parent / "other").mkdir()
    settings = {key: value for key, value in kept.items() if key != "threshold"} | {"head": None}
    (folder.parent / "other" / "deploy.json").write_text(json.dumps(settings))
    answered = reader(folder)(InADictionary(other).bfloat16(), folder.parent / "other")(images)
    assert sum(name == one for (name, *_), one in zip(answered, found, strict=True)) >= 19


class WithASecondHead(nn.Module):
    """A network that returns the logits of another head first, then its own."""

    def __init__(self, module):
        super().__init__()
        self.body, self.head = module[:-1], module[-1]
        self.other = nn.Linear(self.head.in_features, self.head.out_features)

    def forward(self, images):
        features = self.body(images)
        return self.other(features), self.head(features)


@pytest.mark.parametrize("count", [5, 200])  # without a threshold, and with one
def test_of_several_outputs_it_reads_those_of_the_audited_head(tmp_path, count):
    module, test = trained(), cl.load_dataset("digits", "test").subset(torch.arange(count))
    network = WithASecondHead(module).eval()
    model = cl.wrap(network, head="head", example=test.images[:4], verbose=False)
    export(Subject(model, cl.load_dataset("digits"), test), [], tmp_path)
    found = reader(tmp_path)(network, tmp_path)(test.images)
    assert [name for name, *_ in found] == [test.classes[k] for k in module(test.images).argmax(1)]
    assert all((usual is None) == (count == 5) for *_, usual in found)


def test_it_needs_torch_alone(exported):
    tree = ast.parse((exported[3] / "reader.py").read_text())
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    assert {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names) == {"torch"}


def test_it_is_short(exported):
    lines = (exported[3] / "reader.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and '"""' not in line]) <= 30


def test_without_a_threshold_it_does_not_say_that_an_image_is_like_the_training_images(tmp_path):
    module, test = trained(), cl.load_dataset("digits", "test").subset(torch.arange(5))
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    export(Subject(model, cl.load_dataset("digits"), test), [], tmp_path)
    assert [usual for _, _, usual in reader(tmp_path)(module, tmp_path)(test.images)] == [None] * 5


def test_a_temperature_of_a_handful_of_wrong_images_is_not_exported(tmp_path):
    module, test = trained(), cl.load_dataset("digits", "test")
    right = (module((test.images - 0.3) / 0.4).argmax(dim=1) == test.labels).nonzero().flatten()
    model = cl.wrap(module, example=test.images[:4], mean=0.3, std=0.4, verbose=False)
    subject = Subject(model, cl.load_dataset("digits"), test.subset(right))
    said = export(subject, [Calibration().examine(subject)], tmp_path)
    assert f"no temperature (of {len(right)} images 0 are wrong: too few to tell it)" in said
    assert "temperature" not in json.loads((tmp_path / "deploy.json").read_text("utf-8"))


def test_too_few_images_of_many_classes_have_no_threshold(tmp_path):
    module, train = trained(), cl.load_dataset("digits")
    rows = torch.cat([(train.labels == k).nonzero().flatten()[:3] for k in range(10)] * 2)[:39]
    model = cl.wrap(module, example=train.images[:4], verbose=False)
    known = OutOfDistribution().fitted(Subject(model, train, train.subset(rows)))[1]
    said = export(Subject(model, train, train.subset(rows)), [], tmp_path)
    assert known == -math.inf
    assert "threshold" not in said
    assert "Infinity" not in (tmp_path / "deploy.json").read_text()


def test_a_head_without_one_module_of_features_needs_no_folder(tmp_path):
    test = cl.load_dataset("digits", "test")
    module = nn.Sequential(nn.Conv2d(1, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = cl.wrap(module.eval(), example=test.images[:4], verbose=False)
    export(Subject(model, cl.load_dataset("digits"), test), [], tmp_path / "new")
    assert len(reader(tmp_path / "new")(module, tmp_path / "new")(test.images)) == len(test)


class Never(Audit):
    """An audit that nobody may ask."""

    name = "never"

    def examine(self, subject):
        raise AssertionError


def one_logit(images):
    return cl.wrap(nn.Sequential(nn.Flatten(), nn.Linear(64, 1)).eval(), example=images, verbose=False)


def one_logit_turned(images):
    model = one_logit(images)
    model.head = InOrder(model.head, [1, 0])
    return model


def boxed(images):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
    nn.init.constant_(module.get_parameter("1.bias"), -3)
    return black_box(module, example=images, verbose=False)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (one_logit, "one logit for two classes"),
        (one_logit_turned, "one logit for two classes"),
        (boxed, "a black box"),
    ],
)
def test_what_the_reader_would_misread_is_refused_before_any_audit(tmp_path, model, what):
    test = cl.load_dataset("digits", "test")
    binary = cl.data.open_images((test.images, (test.labels > 4).long()))
    with pytest.raises(ValueError, match=f"`export` must .* got .*{what}"):
        run_audit(
            Target(model(test.images[:4]), RunData(binary, binary), (Never(),), 0, "net"),
            AuditRequest(export=tmp_path / "new"),
            lambda _: "",
        )
    assert not (tmp_path / "new").exists()


def test_classes_confidence_and_rejection_are_those_of_the_audit(exported):
    module, subject, numbers, folder = exported
    known, limit = OutOfDistribution().fitted(subject)
    images = torch.cat([subject.test.images[:80], torch.rand(40, 1, 8, 8)])
    with torch.no_grad():
        logits = subject.model(images)
        scores = neighbour_score(subject.model.features(images).double(), known, 5)
    chances = (logits / numbers["temperature"].value).softmax(1).max(1)
    found = reader(folder)(module, folder)(images)
    assert [name for name, _, _ in found] == [subject.test.classes[k] for k in chances.indices]
    assert [p for _, p, _ in found] == pytest.approx(chances.values.tolist(), abs=1e-5)
    near = (scores - limit).abs() < 1e-6  # features are kept in float32
    usual = torch.tensor([usual for _, _, usual in found])
    assert bool((usual == (scores >= limit))[~near].all())
    assert sum(usual for _, _, usual in found[:80]) >= 68
    assert sum(usual for _, _, usual in found[80:]) <= 20


class Distilled(nn.Module):
    """Two heads, each with features of its own, whose logits are averaged when it is evaluated."""

    def __init__(self):
        super().__init__()
        self.body, self.other = nn.Linear(64, 8), nn.Linear(64, 8)
        self.head, self.head_dist = nn.Linear(8, 10), nn.Linear(8, 10)

    def forward(self, images):
        flat = images.flatten(1)
        return (self.head(self.body(flat)) + self.head_dist(self.other(flat))) / 2


def test_averaged_heads_are_read_without_features(tmp_path):
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    module = Distilled().eval()
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    assert any(isinstance(part, SummedHeads) for part in model.head.modules())
    export(Subject(model, train, test), [], tmp_path)
    answers = reader(tmp_path)(module, tmp_path)(test.images[:20])
    with torch.no_grad():
        assert [name for name, *_ in answers] == [test.classes[k] for k in module(test.images[:20]).argmax(1)]


def test_names_stand_in_the_order_of_the_modules_outputs(tmp_path):
    module = trained()
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    module.classes = [str(9 - k) for k in range(10)]  # its own names, another order
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    ordered = in_order_of(test.classes, model, test.images[:4])
    export(Subject(ordered, train, test), [], tmp_path)
    kept = json.loads((tmp_path / "deploy.json").read_text())
    assert kept["classes"] == module.classes
    assert "temperature" not in kept


def test_the_command_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    words = ["net.py:build", "--train", "digits", "--audits", "accuracy,calibration", "--export", "deploy"]
    main(["audit", *words, "--quiet"])
    assert {file.name for file in Path("deploy").iterdir()} == {"deploy.json", "features.pt", "reader.py"}


def test_one_deviation_for_all_channels_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    data = gaussian_images(shape=(3, 8, 8), per_class=20)
    np.savez("a.npz", images=data.images[::2].numpy(), labels=data.labels[::2].numpy())
    np.savez("b.npz", images=data.images[1::2].numpy(), labels=data.labels[1::2].numpy())
    words = [
        "net.py:build",
        "--train",
        "npz:a.npz",
        "--test",
        "npz:b.npz",
        "--audits",
        "accuracy,calibration",
    ]
    main(["audit", *words, "--mean", "0.4,0.5,0.6", "--std", "0.5", "--export", "deploy", "--quiet"])
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    mean = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    classes = module((data.images[:4] - mean) / 0.5).argmax(1)
    found = reader(Path("deploy"))(module, "deploy")(data.images[:4])
    assert [name for name, *_ in found] == [str(int(k)) for k in classes]


class AsksForever(nn.Module):
    """A head that works in the audit and not afterwards."""

    def __init__(self, error):
        super().__init__()
        self.part, self.error, self.audited = nn.Linear(64, 10), error, False

    def forward(self, features):
        if self.audited:
            raise self.error
        return self.part(features)


@pytest.mark.parametrize(
    ("error", "said"), [(KeyboardInterrupt(), "interrupted"), (TypeError("odd"), "TypeError: odd")]
)
def test_audits_are_kept_if_the_export_fails(tmp_path, monkeypatch, error, said):
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    head = AsksForever(error)
    model = cl.models.Classifier(nn.Flatten(), head)

    def fail(subject, findings, folder):
        head.audited = True
        subject.model(subject.test.images[:1])

    monkeypatch.setattr("clearance.experiments.audit.export", fail)
    target = Target(model, RunData(train, test), (Accuracy(),), 0, "net")
    card = run_audit(target, AuditRequest(export=tmp_path / "new", keep=True), lambda _: "")
    assert any(m.name == "error" for m in card.measurements)
    assert card.report.recipe["export_failed"] == said
