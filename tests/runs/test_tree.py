"""A state survives the trip through JSON and safetensors to the bit, or is refused with its place."""

import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from clearance.runs.tree import flatten, unflatten


def there_and_back(tree):
    json_tree, tensors = flatten(tree)
    return unflatten(json.loads(json.dumps(json_tree)), load(save(tensors)))


def same(first, second):
    """Equal in type, structure, order and bits; layout in memory is that of a clone."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        first = first.clone()
        alike = (first.dtype, first.shape, first.stride()) == (second.dtype, second.shape, second.stride())
        return alike and bits(first) == bits(second)
    if isinstance(first, dict):
        return [*map(key, first)] == [*map(key, second)] and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second or (first != first and second != second)


def key(value):
    return type(value), value


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


TREES = {
    "scalars": [None, True, False, 0, -1, 2**80, 0.1, -0.0, 5e-324, "", 'ä"\n\udc80'],
    "not finite": {"nan": math.nan, "inf": math.inf, "-inf": -math.inf},
    "int and str keys": {0: "int", "0": "str", -3: None, "": 1},
    "order of keys": {"b": 1, "a": 2, 3: 3, 1: 4},
    "keys that look like tags": {"tensor": "x", "stride": [1], "tuple": [], "dict": {}},
    "one key like a tag": {"tuple": [1, 2]},
    "tuples in lists": [(1, [2, (3,)]), (), []],
    "mappings of state dicts": [OrderedDict(b=1, a=2), Counter({30: 2, 80: 1})],
    "tensor alone": draw(3, 2),
    "0-dim": [torch.tensor(1.5), torch.tensor(True), torch.tensor(7)],
    "dtypes": [
        draw(5).to(d) for d in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8)
    ],
    "bool and uint8": (draw(5) > 0, torch.arange(5, dtype=torch.uint8)),
    "generator": torch.Generator().manual_seed(3).get_state(),
    "empty": [torch.empty(0), torch.empty(3, 0, 2, dtype=torch.int64), torch.empty(0)],
    "NaN, inf and -0.0 in a tensor": torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45]),
    "transposed": draw(3, 4).t(),
    "channels last": draw(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "slice": draw(6, 6)[1:5:2, ::3],
    "expanded": draw(1, 3).expand(4, 3),
    "negated view": draw(4, 2).view(2, 2, 2)[..., 0].to(torch.complex64).conj().imag,
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_round_trip(tree):
    assert same(tree, there_and_back(tree))


def test_numbers_of_numpy_come_back_as_pythons():
    """A learning rate from np.logspace, or a schedule's from np.cos."""
    found = there_and_back([np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(True)])
    assert found == [0.1, 0.5, 3, True]
    assert [type(one) for one in found] == [float, float, int, bool]


def test_tied_tensors_come_back_tied():
    weight = draw(4, 3)
    back = there_and_back({"encoder": weight, "decoder": weight, "view of it": weight[:]})
    assert torch.equal(back["encoder"], weight)
    assert back["encoder"] is back["decoder"]
    assert back["encoder"] is back["view of it"]


def test_different_views_of_one_memory_keep_their_values():
    weight = draw(4, 4)
    tree = [weight, weight.t(), weight[1:], weight[:1], weight.view(torch.int32), weight.view(2, 8)]
    tree.append(torch._neg_view(weight))
    back = there_and_back(tree)
    assert same(tree, back)
    assert len({tensor.data_ptr() for tensor in back}) == len(tree)


def test_it_is_a_snapshot():
    weight = torch.zeros(2)
    tree, tensors = flatten({"weight": weight})
    weight.add_(1)
    assert torch.equal(unflatten(tree, tensors)["weight"], torch.zeros(2))


def test_parameters_lose_their_graph():
    back = unflatten(*flatten([torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True) * 2]))
    assert [type(tensor) for tensor in back] == [torch.Tensor, torch.Tensor]
    assert not any(tensor.requires_grad for tensor in back)


class Word(enum.StrEnum):
    HERE = "here"


class Odd(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "stranger",
    [
        {1, 2},
        b"bytes",
        print,
        Word.HERE,
        1j,
        defaultdict(list),
        torch.Size([1]),
        np.ones(2),
        torch.float32,
        torch.eye(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.empty(2, device="meta"),
        torch.ones(2).as_subclass(Odd),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_a_stranger_is_refused_with_its_place(stranger):
    with pytest.raises(
        ValueError, match=r"`state\['model'\]\[1\]\[0\]` must be .*; got .*(it first|leave it out)"
    ):
        flatten({"model": [0, {0: stranger}]})


@pytest.mark.parametrize("stranger", [True, 1.0, None, (1, 2), Word.HERE], ids=repr)
def test_a_strange_key_is_refused_with_its_place(stranger):
    with pytest.raises(ValueError, match=r"the keys of `state\[0\]` must be str or int; got"):
        flatten([{stranger: 1}])


def test_a_tree_of_somebody_else_is_refused():
    with pytest.raises(ValueError, match="got a node 'set'"):
        unflatten({"set": []}, {})
    tree, _ = flatten([torch.ones(2)])
    with pytest.raises(ValueError, match=r"got none called 'state\[0\]'"):
        unflatten(tree, {})


def make_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5]),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    return model, optimizer, schedules


def steps(count, parts, generator):
    model, optimizer, schedules = parts
    for _ in range(count):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        schedules[0].step()
        schedules[1].step(loss.item())
    return model.state_dict()


def test_training_goes_on_to_the_same_bits():
    generator = torch.Generator().manual_seed(1)
    parts = make_training()
    steps(3, parts, generator)
    stored = flatten(
        {
            "model": parts[0].state_dict(),
            "optimizer": parts[1].state_dict(),
            "schedules": [schedule.state_dict() for schedule in parts[2]],
            "generator": generator.get_state(),
        }
    )
    straight = steps(4, parts, generator)

    state = unflatten(json.loads(json.dumps(stored[0])), load(save(stored[1])))
    model, optimizer, schedules = make_training()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for schedule, saved in zip(schedules, state["schedules"], strict=True):
        schedule.load_state_dict(saved)
    generator = torch.Generator()
    generator.set_state(state["generator"])
    resumed = steps(4, (model, optimizer, schedules), generator)
    assert same(dict(straight), dict(resumed))
