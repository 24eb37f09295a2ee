"""The same classifier cut later: the same logits, the same weights, another place to look."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from clearance.audits.deeper_cut import cut_deeper
from clearance.heads import MLP
from clearance.models import Classifier, small_cnn, wrap


@pytest.fixture
def images():
    return torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def classifier(head=None):
    torch.manual_seed(0)
    return Classifier(small_cnn(1, 8), head or MLP((1024, 9, 8, 3)), mean=[0.3], std=[0.4])


def cut(model) -> Classifier:
    later = cut_deeper(model)
    assert later is not None
    return later


@pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.5}, {"norm": "batch"}, {"dropout": 0.2, "norm": "batch"}]
)
def test_logits_are_the_same_to_the_bit(images, options):
    model = classifier(MLP((1024, 9, 8, 3), **options)).eval()
    later = cut(model)
    assert torch.equal(later(images), model(images))
    assert later.features(images).shape == (7, 9)


def test_features_are_what_enters_the_next_linear_layer(images):
    model = classifier()
    first, relu, second, *_ = model.head
    entering = []
    second.register_forward_pre_hook(lambda _module, args: entering.append(args[0]))
    model(images)
    later = cut(model)
    assert torch.equal(later.features(images), entering[0])
    assert torch.equal(later.features(images), relu(first(model.features(images))))
    assert next(later.head.children()) is second


def test_dropout_goes_with_the_layer_that_it_follows(images):
    """In training mode the same random numbers drop the same units."""
    model = classifier(MLP((1024, 9, 8, 3), dropout=0.5)).train()
    later = cut(model)
    torch.manual_seed(4)
    expected = model(images)
    torch.manual_seed(4)
    assert torch.equal(later(images), expected)
    assert (later.features(images) == 0).float().mean() > 0.4


def test_nothing_is_copied_and_the_model_stays_as_it_is(images):
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    later = cut(model)
    assert {id(p) for p in later.parameters()} == {id(p) for p in model.parameters()}
    assert later.mean is model.mean
    assert later.std is model.std
    later(images).sum().backward()
    assert model.head[0].weight.grad is not None
    assert len(model.head) == 5
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_every_part_keeps_its_mode(training):
    model = classifier(MLP((1024, 9, 8, 3), dropout=0.5)).train(training)
    model.head[2].train(not training)
    modes = [part.training for part in model.modules()]
    later = cut(model)
    assert [part.training for part in model.modules()] == modes
    assert later.training is training
    assert all(part.training is training for part in later.modules() if part is not model.head[2])


def test_heads_of_heads_and_what_stands_before_the_first_layer(images):
    """Dropout before the first layer, as in torchvision's VGG, and sequences inside a sequence."""
    tail = nn.Sequential(nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))
    model = classifier(
        nn.Sequential(nn.Dropout(), nn.Sequential(nn.Linear(1024, 9), nn.ReLU(inplace=True)), tail)
    )
    later = cut(model.eval())
    assert torch.equal(later(images), model(images))
    assert list(later.head.children()) == list(tail)


def test_a_wrapped_module_is_cut_too(images):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), MLP((6, 5, 4, 3)))
    model = wrap(module, "3", example=images, verbose=False)
    later = cut(model)
    assert torch.equal(later(images), module(images))
    assert later.features(images).shape == (7, 5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.inner(x)


class Reversed(nn.Sequential):
    def forward(self, x):
        for part in reversed(list(self)):
            x = part(x)
        return x


def hooked():
    head = MLP((4, 4, 3))
    head.register_forward_hook(lambda _module, _args, output: 2 * output)
    return head


def tied():
    head = MLP((4, 4, 4))
    head[2].weight = head[0].weight
    return head


NOT_CUT: dict[str, Callable[[], nn.Module]] = {
    "one layer": lambda: nn.Linear(4, 3),
    "no linear layer": nn.Identity,
    "hidden layers": lambda: nn.Sequential(nn.Linear(4, 4), Block(), nn.Linear(4, 3)),
    "other order": lambda: Reversed(nn.Linear(4, 3), nn.Linear(4, 4)),
    "hook": hooked,
    "tied": tied,
}


@pytest.mark.parametrize("name", NOT_CUT)
def test_other_heads_are_not_cut(name):
    assert cut_deeper(Classifier(nn.Flatten(), NOT_CUT[name]())) is None
