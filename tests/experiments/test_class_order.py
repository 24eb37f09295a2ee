"""The outputs of a model that knows the names of its classes, and images whose classes have names."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import clearance as cl
from clearance.data import gaussian_images
from clearance.experiments.class_order import _names_of
from cli.terminal import run

NAMES = ("ant", "bee", "cat")


def images(seed, classes=NAMES):
    found = gaussian_images(class_count=3, per_class=30, seed=seed)
    return cl.ImageSet(found.images, found.labels, classes)


class Nearest(nn.Module):
    """The nearest class mean as a linear head, its outputs in this order; it keeps their names as a library does."""

    def __init__(self, names, keep, hidden=()):
        super().__init__()
        data = images(0)
        means = {n: data.images[data.labels == k].mean(0).flatten() for k, n in enumerate(NAMES)}
        rows = torch.stack([means.get(name.split(",")[0], torch.full((64,), -1.0)) for name in names])
        self.flatten, linear = nn.Flatten(), nn.Linear(64, len(names))
        self.last = nn.Sequential(linear, *hidden)
        with torch.no_grad():
            linear.weight.copy_(rows)
            linear.bias.copy_(-0.5 * rows.square().sum(1))
        keep(self, names)

    def forward(self, shown):
        return self.last(self.flatten(shown))


def hugging_face(module, names):
    module.config = SimpleNamespace(id2label=dict(enumerate(names)))


def timm(module, names):
    module.pretrained_cfg = {"label_names": list(names)}


def plainly(module, names):
    module.classes = names


def error(module, test=None):
    test = images(1) if test is None else test
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    card = cl.audit(model, train=cl.ImageSet(images(0).images, images(0).labels, test.classes), test=test,
                    audits=["accuracy"])  # fmt: skip
    return card.measurements[0].value


@pytest.mark.parametrize("keep", [hugging_face, timm, plainly])
@pytest.mark.parametrize(
    "names",
    [NAMES, ("cat", "ant", "bee"), ("cat, Felis catus", "ant", "bee"), ("dog", "cat", "eel", "bee", "ant")],
)
def test_outputs_are_matched_by_name(keep, names):
    in_order = error(Nearest(NAMES, hugging_face))
    assert in_order < 0.1
    module = Nearest(names, keep)
    before = module.get_parameter("last.0.weight").clone()
    assert error(module) == pytest.approx(in_order, abs=0.05 * (len(names) > 3))
    assert torch.equal(module.get_parameter("last.0.weight"), before)


@pytest.mark.parametrize("names", [tuple(sorted(map(str, range(12)))), tuple("bcd")])
def test_labels_without_names_are_numbers_of_outputs(names):
    """Kaggle's folders 0 to 42 are in the order of words in a model that ImageFolder trained."""
    count = len(names)
    module = nn.Sequential(nn.Flatten(), nn.Linear(count, count, bias=False))
    module[1].weight.data = torch.eye(count)
    module.classes = names
    data = cl.ImageSet(torch.eye(count)[:, None, None], torch.arange(count), tuple(map(str, range(count))))
    test = cl.ImageSet(data.images * 0.9, data.labels, data.classes)
    model = cl.wrap(module, example=data.images, verbose=False)
    with pytest.warns(UserWarning, match="outputs are taken in the order of"):
        card = cl.audit(model, train=data, test=test, audits=["accuracy"])
    assert card.measurements[0].value == 0


def test_further_outputs_of_a_model_that_has_names_are_no_guess():
    module, test = Nearest(("dog", "cat", "eel", "bee", "ant"), plainly), images(1)
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    card = cl.audit(model, train=images(0), test=test, audits=["accuracy"])
    assert card.report.recipe["outputs"] == {"of the model": 5, "classes": 3, "by": "name"}
    page = " ".join(re.sub("<[^>]+>", "", card.to_html()).split())
    assert "those of the 3 classes were found by their names" in page
    assert "in another order" not in page


def test_spelling_does_not_matter():
    assert error(Nearest(("cat", "ant", "bee"), plainly), images(1, ("Ant", "BEE", "cat_"))) < 0.1


def test_names_that_differ_in_capitals_alone_are_different_names():
    kept = ("A", "a", "B", "b")
    module = Nearest(("ant", "x", "bee", "y"), lambda module, _: plainly(module, kept))
    data, test = (of_two_classes(images(seed)) for seed in (0, 1))
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    assert cl.audit(model, train=data, test=test, audits=["accuracy"]).measurements[0].value < 0.1


def of_two_classes(data):
    kept = data.labels < 2
    return cl.ImageSet(data.images[kept], data.labels[kept], ("A", "B"))


def test_names_that_the_model_keeps_wrongly_are_to_be_corrected():
    """The outputs are those of the classes, and were turned round by the names."""
    module = Nearest(NAMES, lambda module, _: hugging_face(module, ("cat", "ant", "bee")))
    model = cl.wrap(module, example=images(1).images[:4], verbose=False)
    card = cl.audit(model, train=images(0), test=images(1), audits=["accuracy"])
    (table,) = [shown for shown in card.exhibits if shown.name == "order"]
    assert table.columns["output"] == [0, 1, 2], "outputs of the module itself"
    page = " ".join(re.sub("<[^>]+>", "", card.to_html()).split())
    assert "Correct the names of classes that the model keeps" in page
    assert "logits = logits[:" not in page


def test_names_of_which_none_fits_are_said_and_ignored():
    module = Nearest(NAMES, lambda module, _: hugging_face(module, ("x", "y", "z")))
    with pytest.warns(
        UserWarning, match=r"names of classes \('x', 'y', 'z'\) are none of the images' \('ant', "
    ):
        assert error(module) < 0.1


@pytest.mark.parametrize("names", [("LABEL_0", "LABEL_1", "LABEL_2"), ("ant", "y", "z")])
def test_names_that_do_not_contradict_the_order_leave_it(names):
    module = Nearest(NAMES, lambda module, _: hugging_face(module, names))
    assert error(module) < 0.1


def test_names_that_contradict_the_order_in_part_are_refused():
    module = Nearest(("cat", "ant", "wasp"), hugging_face)
    with pytest.raises(
        ValueError, match="'ant' is class 0 of the images and output 1 of the model, and 'bee' is"
    ):
        error(module)


def test_a_head_with_something_after_its_last_layer_is_reordered_too():
    norm = nn.LayerNorm(3)
    norm.weight.data.copy_(torch.tensor([1.0, 2.0, 3.0]))  # of outputs in this order
    module = Nearest(("cat", "ant", "bee"), hugging_face, hidden=[norm])
    test = images(1)
    model = cl.wrap(module, "last", example=test.images[:4], verbose=False)
    card = cl.audit(model, train=images(0), test=test, audits=["accuracy"])
    order = [("cat", "ant", "bee").index(name) for name in test.classes]
    wrong = model(test.images)[:, order].argmax(dim=1) != test.labels
    assert card.measurements[0].value == pytest.approx(float(wrong.double().mean()))


CODE = """
import torch
from torch import nn
from types import SimpleNamespace

class Net(nn.Sequential):
    config = SimpleNamespace(id2label={0: "cat", 1: "ant", 2: "bee"})

def net():
    torch.manual_seed(0)
    return Net(nn.Flatten(), nn.Linear(64, 3))
"""


def test_the_command_says_so_without_an_expected_accuracy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    for name, seed in (("train", 0), ("test", 1)):
        data = images(seed)
        np.savez(tmp_path / name, images=data.images.numpy(), labels=data.labels.numpy(), classes=NAMES)
    words = ("--train", "npz:train.npz", "--test", "npz:test.npz", "--audits", "accuracy")
    status, shown, complaint = run("audit", "net.py:net", *words)
    assert status == 0, complaint
    assert "classes: the model's outputs were put in the order of the images' classes, by name" in shown


def test_names_of_outputs_by_number_as_text_are_in_the_order_of_the_numbers():
    names = [f"kind {letter}" for letter in "abcdefghijkl"]
    module: Any = nn.Linear(4, 12)
    module.config = SimpleNamespace(id2label={str(place): name for place, name in enumerate(names)})
    assert _names_of(module, 12) == tuple(names)
