"""Trained modules of many shapes become classifiers: the cut is exact, and the module stays as it was."""

import copy

import pytest
import torch
from torch import nn

from clearance.models import wrap
from models.wrap_modules import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    VGG,
    Nested,
    ResNet,
    cnn,
)

pytestmark = pytest.mark.usefixtures("seeded")

CASES = {
    "cnn": (cnn, None, "4", 16),
    "resnet": (ResNet, None, "fc", 4),
    "vgg": (VGG, None, "classifier.6", 8),
    "vgg, MLP head": (VGG, "classifier", "classifier", 16),
    "nested": (Nested, None, "model.top.0", 192),
    "nested in Sequential": (lambda: nn.Sequential(nn.Identity(), ResNet()), None, "1.fc", 4),
    "in-place before the head": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.ReLU(inplace=True), nn.Linear(7, 5)),
        "3",
        "3",
        7,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("training", [False, True])
def test_the_cut_is_exact_and_leaves_the_module_alone(case, training, images, capsys):
    make, head, name, width = CASES[case]
    module = make().train(training)
    next(part for part in module.modules() if part is not module).training = False  # a mode of its own
    modes = {known: part.training for known, part in module.named_modules()}
    state = copy.deepcopy(module.state_dict())
    expected = copy.deepcopy(module).eval()(images)
    model = wrap(module, head, example=images[:4])

    part = module.get_submodule(name)
    assert model.head is part
    sizes = f" {part.in_features} -> {part.out_features}" if isinstance(part, nn.Linear) else ""
    line = f"wrap: head '{name}' ({type(part).__name__}{sizes}), {width} features; "
    told = (
        capsys.readouterr().out.partition("; head='")[0].rstrip("\n")
    )  # what else could be cut: its own test
    assert told == line + "head(features(x)) equals module(x): yes (4 images)"

    assert {known: part.training for known, part in module.named_modules()} == modes
    assert model.training is model.extractor.training is training
    assert all(torch.equal(value, state[known]) for known, value in module.state_dict().items())
    assert not any(part._forward_pre_hooks for part in module.modules())

    module.eval()
    assert torch.equal(module(images), expected)
    model.eval()
    assert torch.equal(model(images), expected)
    assert model.features(images).shape == (6, width)


def test_quiet(images, capsys):
    wrap(cnn(), example=images, verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("make", "head"), [(ResNet, None), (VGG, "classifier")])
def test_every_parameter_once_and_the_heads_only_in_the_head(make, head, images):
    module = make()
    model = wrap(module, head, example=images, verbose=False)
    ids = [id(parameter) for parameter in model.parameters()]
    assert sorted(ids) == sorted(id(parameter) for parameter in module.parameters())  # shared, not copied
    assert len(model.state_dict()) == len(module.state_dict()) + 2  # mean and std
    heads = {id(parameter) for parameter in model.head.parameters()}
    assert heads
    assert heads.isdisjoint(id(parameter) for parameter in model.extractor.parameters())


def test_gradients_are_those_of_the_module(images):
    module = ResNet()
    reference = copy.deepcopy(module)
    model = wrap(module, example=images, verbose=False).train()
    model(images).square().sum().backward()
    reference.train()(images).square().sum().backward()
    grads = [[parameter.grad for parameter in part.parameters()] for part in (module, reference)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*grads, strict=True))
    # In training mode the batch statistics moved, once, and in the shared buffers.
    ours, theirs = module.state_dict(), reference.state_dict()
    assert torch.equal(ours["layers.0.bn.running_mean"], theirs["layers.0.bn.running_mean"])


def test_outputs_and_layers(images):
    module = ResNet()
    outputs = wrap(module, example=images, verbose=False).eval().outputs(images, ("extractor.module.layers",))
    assert torch.equal(outputs.activations["extractor.module.layers"], module.layers(module.stem(images)))
    assert outputs.head is module.fc


def test_deepcopy_is_a_classifier_of_its_own(images):
    module = ResNet().eval()
    model = wrap(module, example=images, verbose=False)
    twin = copy.deepcopy(model)
    expected = model(images)
    assert torch.equal(twin(images), expected)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(twin(images), expected)
    assert not torch.equal(module(images), expected)


def test_state_dict_round_trip(images):
    first = wrap(ResNet().eval(), example=images, verbose=False)
    second = wrap(ResNet().eval(), example=images, verbose=False)
    assert not torch.equal(first(images), second(images))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(images), second(images))


def test_to_train_and_eval_reach_every_part(images):
    module = ResNet()
    model = wrap(module, example=images, verbose=False).double()
    assert {value.dtype for value in model.state_dict().values() if value.is_floating_point()} == {
        torch.float64
    }
    module.eval()
    model.eval()
    assert not any(part.training for part in model.modules())
    assert torch.equal(model(images.double()), module(images.double()))
    assert (
        module.get_buffer("offset").dtype == torch.float64
    )  # the buffers of the replaced module are shared too
    model.train()
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_of_the_module(images, dtype):
    module, images = ResNet().to(dtype).eval(), images.to(dtype)
    model = wrap(module, example=images, mean=[0.4, 0.5, 0.6], std=0.25, verbose=False)
    assert model(images).dtype == dtype
