"""Descriptions of settings: different for different settings, the same in another process."""

import importlib
import json
import linecache
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from clearance._describe import code_of, describe, digest, unsourced
from clearance.data import gaussian_images
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit


@dataclass(frozen=True)
class Setting:
    rate: float
    names: tuple[str, ...] = ()


class Plain:
    def __init__(self, value):
        self.value = value

    def draw(self, architecture, features, labels, generator, least_unit=None):
        raise NotImplementedError


class Called(Plain):
    def __call__(self, images, generator):
        return images


class Layer(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value


class Linear(nn.Linear):
    """A layer whose form does not show its setting."""

    def __init__(self, value):
        super().__init__(2, 2)
        self.value = value


def closed_over(value):
    return lambda parameters: torch.optim.SGD(parameters, lr=value)


def with_default(value):
    return lambda parameters, lr=value: torch.optim.SGD(parameters, lr=lr)


def with_keyword_default(value):
    return lambda parameters, *, lr=value: torch.optim.SGD(parameters, lr=lr)


def with_constant(value):
    made: dict = {}
    exec(f"RATE = {value!r}\ndef make(p):\n    return torch.optim.SGD(p, lr=RATE)", made)
    return made["make"]


MAKERS = [
    lambda value: value,
    lambda value: [1, value],
    lambda value: (1, value),
    lambda value: {"a": value},
    lambda value: {value, 7},
    lambda value: Setting(value),
    lambda value: Setting(0.0, (str(value),)),
    lambda value: partial(torch.optim.SGD, lr=value),
    lambda value: partial(torch.optim.lr_scheduler.StepLR, value),
    lambda value: partial(closed_over(value)),
    lambda value: torch.tensor([value, 0.0]),
    lambda value: torch.cat([torch.zeros(9999), torch.tensor([value]), torch.zeros(9999)]),
    Plain,
    Called,
    lambda value: Called(value).__call__,
    lambda value: nn.Dropout(value),
    Layer,
    lambda value: Layer([value]),
    lambda value: Layer({"a": value}),
    lambda value: Layer(torch.tensor(value)),
    lambda value: Layer(closed_over(value)),
    lambda value: nn.Sequential(nn.ReLU(), Layer(value)),
    Linear,
    closed_over,
    with_default,
    with_keyword_default,
    with_constant,
    lambda value: EndToEnd(head_noise=value),
    lambda value: FOCA(weak_heads=Plain(value)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_equal_settings_are_described_alike_and_others_are_not(make):
    description = describe(make(0.25))
    assert json.loads(json.dumps(description)) == description
    assert describe(make(0.25)) == description
    assert describe(make(0.75)) != description


def test_functions_that_differ_in_a_name_alone_differ():
    first, second = (
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    )
    assert describe(first)["code"] != describe(second)["code"]


def test_functions_that_differ_within_an_inner_function_differ():
    first, second = (
        lambda parameters: [(lambda x: x + 1)(p) for p in parameters],
        lambda parameters: [(lambda x: x + 2)(p) for p in parameters],
    )
    assert describe(first)["code"] != describe(second)["code"]


WRITTEN = """
def build(parameters):{note}
    return {made}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function in a file of its own."""

    def write(name, **parts):
        (tmp_path / f"{name}.py").write_text(WRITTEN.format(**parts))
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module(name).build

    yield write
    for name in ("first_file", "second_file"):
        sys.modules.pop(name, None)


def test_a_comment_is_no_change_and_a_statement_is(written):
    first = written("first_file", note="", made="list(parameters)")
    commented = written("second_file", note="  # all of them", made="list( parameters )")
    assert describe(first)["code"] == describe(commented)["code"]
    sys.modules.pop("second_file")
    linecache.clearcache()
    changed = written("second_file", note="", made="tuple(parameters)")
    assert describe(first)["code"] != describe(changed)["code"]


@pytest.mark.parametrize(
    "function",
    [lambda x: (x) if x else (x + 1), lambda: None, lambda x: "ä" + (x), lambda x: x],
    ids=["choice", "nothing", "letters", "parenthesis"],
)
def test_every_lambda_of_a_file_has_a_source(function):
    assert not unsourced(describe(function))
    assert not unsourced(describe(Setting(0.5)))


def test_a_run_of_code_without_a_source_is_not_resumed(tmp_path):
    made: dict = {}
    exec("def build(parameters):\n    import torch\n    return torch.optim.SGD(parameters, lr=0.1)", made)
    data = gaussian_images(per_class=4)

    def train():
        torch.manual_seed(0)
        model = Classifier(nn.Flatten(), nn.Linear(64, 3))
        return fit(model, EndToEnd(), data, epochs=1, optimizer=made["build"], run_dir=tmp_path / "run")

    assert train().status.step == 1
    with pytest.raises(
        ValueError, match=r"source of a function is missing.* got no source for optimizer\.code"
    ):
        train()


def test_a_mode_and_private_attributes_are_not_settings():
    layer = Layer(1)
    description = describe(layer)
    vars(layer)["_cache"] = 5
    assert describe(layer.eval()) == description


def test_things_that_contain_themselves_are_described():
    layer, plain = Layer(None), Plain(None)
    layer.value = [layer]  # in a list, so that it is no submodule
    plain.value = {"me": plain}
    for thing in (layer, plain):
        assert "that holds this" in json.dumps(describe(thing))


SCRIPT = """
import json, torch
from functools import partial
from torch import nn
from clearance.training import FOCA
from clearance._describe import describe

class Plain:
    def __init__(self):
        self.names, self.stream = {"anna", "bert", "carl", "dora"}, torch.Generator()

    def draw(self, architecture, features, labels, generator, least_unit=None):
        raise NotImplementedError

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.chosen = Plain(), lambda x: x in {"anna", "bert", "carl", "dora"}

text = json.dumps(describe([Plain(), Layer(), FOCA(weak_heads=Plain()), partial(Plain().__init__)]))
"""


def test_descriptions_are_the_same_in_every_process():
    here = {"__name__": "__main__"}
    exec(SCRIPT, here)
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT + "\nprint(text)"], check=True, capture_output=True, text=True
    )  # which orders its sets in another way
    assert there.stdout.strip() == here["text"]
    assert " at 0x" not in there.stdout


SHARPNESS = 0.1


def helper(value):
    return value * SHARPNESS


class Reading:
    """Its method reads a module constant, once by itself and once through a helper."""

    def __call__(self, value):
        return helper(value) + SHARPNESS


@pytest.mark.parametrize(
    "thing", [Reading(), helper, lambda value: helper(value)], ids=["object", "function", "caller"]
)
def test_a_constant_of_the_module_that_a_method_or_its_helper_reads_is_a_setting(thing, monkeypatch):
    before = describe(thing)
    assert describe(thing) == before
    monkeypatch.setitem(globals(), "SHARPNESS", 0.9)
    assert describe(thing) != before


OPTIONS = Namespace(lr=0.1, run="a", weights={"near": 1.0, "far": (2.0, object())})


class Attributes:
    """Settings that stand in the class, or in what is no plain method."""

    weight = 1.0

    @staticmethod
    def fixed():
        return 1.0

    @property
    def shown(self):
        return 1.0

    @classmethod
    def made(cls):
        return 1.0


def reading_options(value):
    return value * OPTIONS.lr + OPTIONS.weights["far"][0]


@pytest.mark.parametrize(
    "changed",
    [
        {"lr": 0.2},
        {"weights": {"near": 1.0, "far": (3.0, None)}},
    ],
)
def test_what_is_read_from_a_namespace_is_a_setting_and_the_rest_of_it_is_not(changed, monkeypatch):
    before = describe(reading_options)
    monkeypatch.setitem(globals(), "OPTIONS", Namespace(**{**vars(OPTIONS), "run": "b"}))
    assert describe(reading_options) == before
    monkeypatch.setitem(globals(), "OPTIONS", Namespace(**{**vars(OPTIONS), **changed}))
    assert describe(reading_options) != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", 10.0),
        ("fixed", staticmethod(lambda: 2.0)),
        ("shown", property(lambda self: 2.0)),
        ("made", classmethod(lambda cls: 2.0)),
    ],
)
def test_what_stands_in_a_class_is_a_setting(name, value, monkeypatch):
    before = describe(Attributes())
    monkeypatch.setattr(Attributes, name, value)
    assert describe(Attributes()) != before


def test_so_is_what_a_helper_does(monkeypatch):
    before = describe(Reading())
    monkeypatch.setitem(globals(), "helper", lambda value: value)
    changed = describe(Reading())
    assert changed != before


def test_what_is_no_tensor_has_no_digest():
    """As a module's `get_extra_state` may put into its state."""
    with pytest.raises(
        ValueError, match=r"`head\._extra_state` must be a dense tensor .*; got dict\. Convert it first"
    ):
        digest([("head._extra_state", {"version": 1})])  # type: ignore[list-item]


def test_a_helper_that_comes_from_no_module():
    """As `exec` into a bare dictionary makes them."""
    made: dict = {}
    exec("def doubled(x):\n    return 2 * x\ndef build(x):\n    return doubled(x)\n", made)
    assert "doubled" in json.dumps(describe(made["build"]))


def test_a_module_whose_name_begins_as_a_librarys_is_the_users():
    """`abc` is Python's, `abcnet` is not; an edited loss there must not pass for the old one."""

    class Loss:
        def forward(self):
            return 1

    for module, own in (("abcnet", True), ("typingtools.losses", True), ("abc", False), ("torch.nn", False)):
        Loss.__module__ = module
        assert bool(code_of(Loss())) is own
