"""Equal runs have equal fingerprints and digests; others differ, and the place is named."""

import hashlib
import math
import struct

import pytest
import torch

from clearance._describe import digest
from clearance.runs.directory import differences

WEIGHTS = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "steps": torch.tensor(7)}


def test_digest_against_bytes_written_by_hand():
    content = b'["steps", "torch.int64", []]' + struct.pack("<q", 7)
    content += b'["weight", "torch.float32", [2, 2]]' + struct.pack("<4f", 1, 2, 3, 4)
    assert digest(WEIGHTS.items()) == hashlib.sha256(content).hexdigest()


def test_digest_ignores_order_and_layout():
    weight = WEIGHTS["weight"]
    others = [("weight", weight.t().contiguous().t()), ("steps", WEIGHTS["steps"])]
    assert not others[0][1].is_contiguous()
    assert digest(others) == digest(WEIGHTS.items())


@pytest.mark.parametrize(
    "change",
    [
        {"weight": WEIGHTS["weight"].nextafter(torch.tensor(9.0))},
        {"weight": WEIGHTS["weight"].t()},
        {"weight": WEIGHTS["weight"].reshape(4)},
        {"weight": WEIGHTS["weight"].view(torch.int32)},
        {"bias": torch.empty(0)},
    ],
    ids=["one ulp", "transposed", "shape", "dtype", "empty tensor"],
)
def test_digest_sees(change):
    assert digest({**WEIGHTS, **change}.items()) != digest(WEIGHTS.items())


def test_digest_sees_the_name_and_the_sign_of_zero():
    assert digest([("a", torch.zeros(1))]) != digest([("b", torch.zeros(1))])
    assert digest([("a", torch.zeros(1))]) != digest([("a", -torch.zeros(1))])


def test_digest_refuses_a_name_twice():
    with pytest.raises(ValueError, match="got a more than once"):
        digest([("a", torch.zeros(1)), ("b", torch.zeros(1)), ("a", torch.ones(1))])


def test_equal_fingerprints_do_not_differ():
    one = {"a": {"b": [1, {"c": math.nan}], "d": None}, "e": math.inf}
    assert differences(one, {"e": math.inf, "a": {"d": None, "b": [1, {"c": math.nan}]}}) == []


def test_differences_name_the_place_and_both_values():
    there = {"fit": {"seed": 0, "flag": 1, "lr": 0.1}, "widths": [64, 32], "old": None, "kind": {"a": 1}}
    here = {"fit": {"seed": 1, "flag": True, "lr": 0.1}, "widths": [32, 64], "new": None, "kind": "a"}
    assert differences(there, here) == [
        "fit.flag: 1 there, true here",
        "fit.seed: 0 there, 1 here",
        'kind: {"a": 1} there, "a" here',
        "new: absent there, null here",
        "old: null there, absent here",
        "widths: [64, 32] there, [32, 64] here",
    ]


def test_long_values_are_cut():
    (line,) = differences({"a": "x" * 500}, {"a": "y"})
    assert len(line) < 100
    assert line.endswith('... there, "y" here')
