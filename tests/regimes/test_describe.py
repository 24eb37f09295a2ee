"""Descriptions of settings: different for different settings, the same in another process."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from clearance.regimes import FOCA, EndToEnd
from clearance.regimes.describe import describe


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
    told = describe(make(0.25))
    assert json.loads(json.dumps(told)) == told
    assert describe(make(0.25)) == told
    assert describe(make(0.75)) != told


def test_functions_that_differ_in_a_name_alone_differ():
    first, second = (
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    )
    assert first.__code__.co_code == second.__code__.co_code
    assert describe(first)["code"] != describe(second)["code"]


def test_functions_that_differ_within_an_inner_function_differ():
    first, second = (
        lambda parameters: [(lambda x: x + 1)(p) for p in parameters],
        lambda parameters: [(lambda x: x + 2)(p) for p in parameters],
    )
    assert describe(first)["code"] != describe(second)["code"]


def test_a_mode_and_private_attributes_are_no_settings():
    layer = Layer(1)
    told = describe(layer)
    vars(layer)["_cache"] = 5
    assert describe(layer.eval()) == told


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
from clearance.regimes import FOCA
from clearance.regimes.describe import describe

class Plain:
    def __init__(self):
        self.names, self.stream = {"anna", "bert", "carl", "dora"}, torch.Generator()

    def draw(self, architecture, features, labels, generator, least_unit=None):
        raise NotImplementedError

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.chosen = Plain(), lambda x: x in {"anna", "bert", "carl", "dora"}

told = json.dumps(describe([Plain(), Layer(), FOCA(weak_heads=Plain()), partial(Plain().__init__)]))
"""


def test_descriptions_are_the_same_in_every_process():
    here = {"__name__": "__main__"}
    exec(SCRIPT, here)
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT + "\nprint(told)"], check=True, capture_output=True, text=True
    )  # which orders its sets in another way
    assert there.stdout.strip() == here["told"]
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


def test_so_is_what_a_helper_does(monkeypatch):
    before = describe(Reading())
    monkeypatch.setitem(globals(), "helper", lambda value: value)
    changed = describe(Reading())
    assert changed != before


def test_a_helper_that_comes_from_no_module():
    """As `exec` into a bare dictionary makes them."""
    made: dict = {}
    exec("def doubled(x):\n    return 2 * x\ndef build(x):\n    return doubled(x)\n", made)
    assert "doubled" in json.dumps(describe(made["build"]))
