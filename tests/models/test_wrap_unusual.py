"""Modules that already have something unusual done to them: cut, hooked, shared, traced, compiled."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.models import wrap
from models.wrap_modules import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    VGG,
    ResNet,
    cnn,
)

pytestmark = pytest.mark.usefixtures("seeded")


def test_a_cut_module_can_be_cut_again(images):
    inner = wrap(VGG().eval(), "classifier.6", example=images, verbose=False)
    again = wrap(inner, example=images, verbose=False)
    assert torch.equal(again(images), inner(images))
    whole = wrap(nn.Sequential(inner, nn.Linear(5, 2)).eval(), example=images, verbose=False)
    assert torch.equal(whole.features(images), inner(images))


def test_the_signal_of_an_inner_cut_is_not_mistaken(images):
    """The head to cut runs inside an extractor that is itself cut further on."""
    inner = wrap(VGG().eval(), example=images, verbose=False)
    with pytest.raises(ValueError, match="something follows the head"):
        wrap(inner, "extractor.module.classifier.4", example=images)


def test_nothing_of_a_forward_pass_stays_alive(images):
    model = wrap(ResNet().eval(), example=images, verbose=False)
    kept = []
    model.get_submodule("extractor.module.stem").register_forward_hook(
        lambda _m, _i, output: kept.append(weakref.ref(output))
    )
    gc.disable()
    try:
        with torch.no_grad():
            model(images)
        assert len(kept) == 1
        assert kept[0]() is None
    finally:
        gc.enable()


def test_user_hooks_still_run(images):
    module = ResNet().eval()
    module.fc.register_forward_pre_hook(lambda _module, args: (2 * args[0],))
    module.layers.register_forward_hook(lambda _module, _args, output: output + 1)
    model = wrap(module, example=images, verbose=False)
    assert torch.equal(model(images), module(images))
    assert torch.equal(F.linear(2 * model.features(images), module.fc.weight, module.fc.bias), module(images))


def test_alias_of_the_head_is_cut_as_well(images):
    module = ResNet().eval()
    module.alias = module.fc
    model = wrap(module, "alias", example=images, verbose=False)
    assert model.head is module.fc
    assert not {"extractor.module.fc.weight", "extractor.module.alias.weight"} & set(model.state_dict())


def test_container_under_two_names_stays_one(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = ResNet()

        def forward(self, x):
            return self.a(x)

    module = Twice().eval()
    model = wrap(module, head="a.fc", example=images, verbose=False)
    assert torch.equal(model(images), module(images))
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in module.parameters())
    assert model.extractor.get_submodule("module.a") is model.extractor.get_submodule("module.b")


def test_layers_shared_inside_the_extractor_are_fine(images):
    conv = nn.Conv2d(3, 3, 3, padding=1)
    module = nn.Sequential(conv, nn.ReLU(), conv, nn.Flatten(), nn.Linear(192, 5)).eval()
    assert torch.equal(wrap(module, example=images, verbose=False)(images), module(images))


def test_traced_and_scripted_parts(images):
    traced = torch.fx.symbolic_trace(ResNet().eval())
    model = wrap(traced, example=images, verbose=False)
    assert torch.equal(model(images), traced(images))
    assert torch.equal(copy.deepcopy(model)(images), traced(images))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_child_is_fine_but_a_scripted_module_is_refused(images):
    module = nn.Sequential(torch.jit.script(nn.Flatten()), nn.Linear(192, 5)).eval()
    assert torch.equal(wrap(module, example=images, verbose=False)(images), module(images))
    with pytest.raises(ValueError, match="scripted and cannot be cut"):
        wrap(torch.jit.script(cnn()), example=images)


def test_the_extractor_compiles(images):
    extractor = wrap(ResNet().eval(), example=images, verbose=False).extractor
    # Older releases may break the graph at the signal and go on in plain Python.
    compiled = torch.compile(extractor, backend="eager", fullgraph=torch.__version__ >= "2.13")
    assert torch.equal(compiled(images), extractor(images))


def test_works_on_the_way_through_checkpointing_and_function_transforms(images):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = ResNet()

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.net, x, use_reentrant=False)

    module = Checkpointed().eval()
    model = wrap(module, example=images, verbose=False)
    model(images).sum().backward()
    grads: list = [parameter.grad for parameter in model.parameters()]
    plain = wrap(module.net, example=images, verbose=False)
    expected = torch.autograd.grad(plain(images).sum(), list(plain.parameters()))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(grads, expected, strict=True))
    jacobian = torch.func.vmap(torch.func.jacrev(lambda image: plain(image[None])[0]))(images)
    assert jacobian.shape == (6, 5, 3, 8, 8)


def test_module_that_works_on_its_input_in_place(images):
    class Shifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(192, 5)

        def forward(self, x):
            return self.fc(x.sub_(0.5).flatten(1))

    before = images.clone()
    module = Shifting()
    model = wrap(module, example=images, verbose=False)
    assert torch.equal(images, before)
    assert torch.equal(model(images), module(images.clone()))
