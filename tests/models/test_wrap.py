"""Trained modules of many shapes become classifiers: the cut is exact, and the module stays as it was."""

import copy
import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.models import black_box, wrap
from models.library_shapes import (
    Aux,
    DataclassOutput,
    Distilled,
    ModelOutput,
    NetworkInNetwork,
    PointHead,
    SqueezeNet,
    TwoTasks,
    ViT,
)
from models.wrap_modules import VGG, Around, Nested, ResNet, cnn

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
    printed = (
        capsys.readouterr().out.partition("; head='")[0].rstrip("\n")
    )  # what else could be cut: its own test
    assert printed == line + "head(features(x)) equals module(x): yes (4 images)"

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


def test_a_copy_of_the_part_that_replaces_the_head_still_ends_the_pass(images):
    """As torch.export calls it; a signal that nobody knows would leave the forward pass as no Exception."""
    model = wrap(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.Linear(9, 4)), example=images, verbose=False
    )
    expected = model(images)
    extractor: Any = model.extractor
    extractor.module[2] = copy.copy(extractor.tap)
    assert torch.equal(model(images), expected)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_1x1_convolution_before_pooling_is_a_head_in_every_precision(images, dtype):
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    module, images = nn.Sequential(*layers).to(dtype).eval(), images.to(dtype)
    model = wrap(module, example=images, verbose=False)
    torch.testing.assert_close(model(images), module(images), atol=0.01, rtol=0.01)


# Normalisation goes into the classifier, and what seems to normalise twice is warned of.


def test_normalisation_inside(images):
    module = ResNet().eval()
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    model = wrap(module, example=images, mean=mean, std=std, verbose=False)
    normalised = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(model(images), module(normalised))


class NormalizeLayer(nn.Module):
    def forward(self, x):
        return (x - 0.5) / 0.5


class Remembering(ResNet):
    """Keeps a mean and a std that are no normalisation."""

    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = mean, std


class Whitened(ResNet):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.std = std

    def forward(self, x):
        return super().forward((x - self.mean) / torch.as_tensor(self.std).reshape(-1, 1, 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(NormalizeLayer(), cnn()), "its first layer is a NormalizeLayer"),
        (lambda: Whitened([0.5, 0.4, 0.3], 0.25), "it keeps mean"),
        (lambda: nn.Sequential(Whitened([0.0], [0.2, 0.2, 0.3])), "submodule '0' keeps mean"),
    ],
)
def test_normalising_twice_is_warned_of(make, words, images):
    with pytest.warns(UserWarning, match=f"seems to normalise its input .{words}") as caught:
        wrap(make(), example=images, mean=0.5, std=0.5, verbose=False)
    assert caught[0].filename == __file__
    wrap(make(), example=images, verbose=False)  # without mean and std: no warning, which would be an error


@pytest.mark.parametrize("opened", [wrap, black_box])
def test_logits_that_depend_on_the_batch_are_warned_of(opened, images):
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).eval()
    with pytest.warns(UserWarning, match="depend on the other images of its batch") as caught:
        opened(module, example=images, verbose=False)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        ResNet,
        lambda: Whitened([0.0], [1.0]),
        lambda: Remembering(0.5, 0.0),  # no scale of a normalisation
        lambda: Remembering(0.5, [0.5, 0.5]),  # neither one value nor one a channel
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4), NormalizeLayer(), nn.Linear(4, 5)),
    ],
)
def test_no_false_alarm_about_normalising_twice(make, images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrap(make(), example=images, mean=0.5, std=0.5, verbose=False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mean": [0.5, 0.5]}, r"`mean` must be one value or one per channel \(3 in the example\)"),
        ({"std": [0.5, 0.5]}, "`std` must be one value"),
        ({"std": 0.0}, "`std` must be above 0"),
    ],
)
def test_normalisation_must_fit_the_images(options, reason, images):
    with pytest.raises(ValueError, match=reason):
        wrap(cnn(), example=images, **options)
    with pytest.raises(ValueError, match="`std` must be above 0"):
        wrap(cnn(), example=images, std=-1.0)


# Modules that already have something unusual done to them: cut, hooked, shared, traced, compiled.


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
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
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


# What cannot be cut is refused with the reason.


def test_typo_gets_the_nearest_name(images):
    with pytest.raises(
        ValueError, match=r"submodule of the VGG; got 'clasifier'\. Did you mean 'classifier'"
    ):
        wrap(VGG(), "clasifier", example=images)
    with pytest.raises(ValueError, match="outermost submodules: 'features', 'classifier'"):
        wrap(VGG(), "zzz", example=images)


class Conv(nn.Module):
    def __init__(self, pool=True):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x)).flatten(1)


class Classic(nn.Module):
    """As in PyTorch's own example for MNIST: trained with ``nll_loss``."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU()), nn.Linear(8, 5)

    def forward(self, x):
        return F.log_softmax(self.fc(self.body(x)), dim=1)


def test_a_log_softmax_at_the_end_leaves_the_logits_before_it(capsys):
    torch.manual_seed(0)
    module, images = Classic().eval(), torch.rand(6, 3, 4, 4)
    model = wrap(module, example=images)
    assert "before its log-softmax" in capsys.readouterr().out
    torch.testing.assert_close(model(images).log_softmax(1), module(images))
    torch.testing.assert_close(model(images), module.fc(module.body(images)))


REFUSED = {
    "softmax": (
        lambda m, f: m.fc(f).softmax(1),
        None,
        "^softmax after the head 'fc': audit logits, not prob",
    ),
    "temperature": (lambda m, f: m.fc(f) / 3, None, "differ by up to .* something follows the head"),
    "temperature in place": (lambda m, f: m.fc(f).div_(3), None, "something follows the head"),
    "pooling": (
        lambda m, f: F.avg_pool1d(m.fc(f), 5),
        None,
        r"head 'fc' returns \(6, 5\) but the module returns \(6, 1\)",
    ),
    "not the last linear": (lambda m, f: F.relu(m.fc(f)), None, "something follows the head"),
    "an earlier linear by name": (lambda m, f: m.fc(f), "body.1", "something follows the head"),
    "head twice": (lambda m, f: m.fc(m.fc(f)), None, "head 'fc' must run once.*got 2 runs"),
    "dict": (lambda m, f: {"loss": None}, None, r"got dict with keys \['loss'\]"),
    "tuple": (lambda m, f: (m.fc(f), f), None, r"one tensor of logits; got 2 \(0 \(6, 5\), 1 \(6, 5\)\)"),
    "text": (lambda m, f: "logits", None, "or an object with `.logits`; got str"),
    "nan": (lambda m, f: m.fc(f) * float("nan"), None, "finite logits"),
    "keyword": (lambda m, f: m.fc(input=f), None, "'fc' must receive one tensor as its only argument"),
    "never runs": (lambda m, f: m.fc(f), "unused", "head 'unused' must be called.*got no call"),
    "weights used directly": (
        lambda m, f: F.linear(f, m.fc.weight),
        "fc",
        "head 'fc' must be called.*got no call",
    ),
    "weights used besides": (
        lambda m, f: m.fc(f * m.fc.weight.mean()),
        None,
        "not up to it, with AttributeError.* has no attribute 'weight'",
    ),
    "noise": (lambda m, f: m.fc(F.dropout(f, 0.5, training=True)), None, "two runs on the example differ"),
    "tokens": (
        lambda m, f: m.fc(f[:, None].expand(-1, 2, -1)).mean(1),
        None,
        r"head 'fc' must receive features of shape \(B, D\); got \(6, 2, 5\) for 6 images",
    ),
    "crops in the batch": (
        lambda m, f: m.fc(f.repeat(2, 1))[:6],
        None,
        r"got \(12, 5\) for 6 images",
    ),
    "failing": (
        lambda m, f: m.fc(f @ f),
        None,
        r"must take the example .*shape \(6, 3, 8, 8\).*RuntimeError",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(case, images):
    way, head, reason = REFUSED[case]
    module = Around(way)
    module.fc.training = False
    with pytest.raises(ValueError, match=reason):
        wrap(module, head, example=images)
    assert module.training
    assert not module.fc.training
    assert not any(part._forward_pre_hooks for part in module.modules())


def test_head_reached_past_its_attribute_is_refused(images):
    module = Around(lambda m, f: m.hidden[0](f))
    module.hidden = [module.fc]  # a plain list, which torch does not register
    with pytest.raises(ValueError, match=r"ended without calling the head.* reach the head by its attribute"):
        wrap(module, example=images)


def test_head_with_an_argument_of_its_own_is_refused(images):
    class Scaled(nn.Linear):
        def forward(self, x, scale=1.0):
            return scale * super().forward(x)

    module = Around(lambda m, f: m.fc(f, scale=2.0))
    module.fc = Scaled(5, 5)
    with pytest.raises(ValueError, match="'fc' must receive one tensor as its only argument"):
        wrap(module, example=images)


def test_what_arrives_counts_not_what_a_hook_makes_of_it(images):
    module = Around(lambda m, f: m.fc(f[:, :, None]))
    module.fc.register_forward_pre_hook(lambda _module, args: (args[0].flatten(1),))
    with pytest.raises(ValueError, match=r"got \(6, 5, 1\)"):
        wrap(module, example=images)


def test_head_returning_a_tuple_is_refused(images):
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    module = Around(lambda m, f: m.fc(f)[0])
    module.fc = Pair(5, 5)
    with pytest.raises(ValueError, match="head 'fc' must return one tensor; got tuple"):
        wrap(module, example=images)


def test_convolution_over_more_than_a_point_is_no_head(images):
    with pytest.raises(
        ValueError, match=r"head 'conv' must receive .* got \(6, 3, 8, 8\), and something else"
    ):
        wrap(Conv(), "conv", example=images)
    with pytest.raises(
        ValueError,
        match=r"the Conv must run an nn\.Linear or a 1x1 convolution; got none\. Name the submodule",
    ):
        wrap(Conv(), example=images)


def test_tied_weights_are_refused(images):
    module = Around(lambda m, f: m.fc(f))
    module.body.append(nn.Linear(5, 5))
    module.body[3].weight = module.fc.weight
    with pytest.raises(ValueError, match=r"share 'module\.body\.3\.weight'"):
        wrap(module, example=images)


class FunctionalInPlace(nn.Linear):
    def forward(self, x):
        return super().forward(x.mul_(2))


def test_head_that_changes_its_features_is_refused(images):
    with pytest.raises(
        ValueError, match=r"must not change its features in place \(Dropout with inplace=True\)"
    ):
        wrap(VGG(inplace=True), "classifier", example=images)
    wrap(VGG(inplace=True), example=images, verbose=False)  # the last layer alone is a good head
    with pytest.raises(ValueError, match="head '1' must not change its features in place,"):
        wrap(nn.Sequential(nn.Flatten(), FunctionalInPlace(192, 5)), example=images)


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (
            torch.randn(4, 3, 8, 8) * 9,
            r"images in \[0, 1\]; got values from -.* give wrap `mean` and `std`",
        ),
        (torch.full((4, 3, 8, 8), float("nan")), "got values from nan"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), r"got torch\.uint8\. Divide by 255"),
        (torch.zeros(3, 8, 8), r"shape \(B, C, H, W\); got \(3, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8), r"got \(0, 3, 8, 8\)"),
        ([[0.0]], "got list"),
    ],
)
def test_example_is_a_batch_of_images(example, reason):
    with pytest.raises(ValueError, match=reason):
        wrap(cnn(), example=example)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: F.relu,
            r"must be a torch.nn.Module; got function\. .* clearance\.models\.black_box\(module",
        ),
        (lambda: nn.DataParallel(cnn()), r"DataParallel; wrap its `\.module`"),
    ],
)
def test_modules_with_a_forward_of_their_own_are_refused(make, reason, images):
    with pytest.raises(ValueError, match=reason):
        wrap(make(), example=images)


@pytest.mark.parametrize(("mean", "std"), [(127.5, 1.0), (0.5, 127.5), ((0.5, 104.0, 0.5), 1.0)])
def test_means_and_deviations_of_grey_levels_are_refused(mean, std, images):
    with pytest.raises(ValueError, match=r"must be for images in \[0, 1\].*divide both by 255"):
        wrap(cnn(), example=images, mean=mean, std=std)


# What people bring: models of torchvision, timm and Hugging Face, in small, and the packages where they are.


def logits_of(output):
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize(
    ("make", "head", "width"),
    [
        (Aux, "fc", 6),
        (lambda: Aux(always=True), "fc", 6),
        (ViT, "classifier", 8),
        (lambda: ViT(lambda logits, hidden_states: DataclassOutput(logits)), "classifier", 8),
        (
            lambda: ViT(lambda logits, hidden_states: {"logits": logits, "aux": hidden_states[0]}),
            "classifier",
            8,
        ),
        (PointHead, "fc", 6),
    ],
    ids=["auxiliary head", "auxiliary head returned", "ModelOutput", "dataclass", "dict", "1x1 convolution"],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_logits_are_found_and_the_cut_is_exact(make, head, width, training, images, capsys):
    module = make().train(training)
    model = wrap(module, head if getattr(module, "always", False) else None, example=images[:4])
    assert f"wrap: head {head!r} " in capsys.readouterr().out
    module.eval()
    model.eval()
    with torch.no_grad():
        output = module(images)
        expected = output["logits"] if type(output) is dict else logits_of(output)
        assert torch.equal(model(images), expected)
        assert model.features(images).shape == (6, width)


def test_an_output_object_may_have_no_logits(images):
    with pytest.raises(ValueError, match=r"or an object with `\.logits`; got object"):
        wrap(ViT(lambda logits, hidden_states: object()), example=images)
    assert ModelOutput(logits=1).logits == 1


def test_of_one_entry_there_is_no_doubt(images):
    module = TwoTasks(lambda a, b: {"out": a}).eval()
    assert torch.equal(wrap(module, "species", example=images, verbose=False)(images), module(images)["out"])


@pytest.mark.parametrize("kind", [lambda a, b: (a, b), lambda a, b: {"species": a, "colour": b}])
def test_of_two_heads_the_named_one_is_taken(kind, images):
    module = TwoTasks(kind).eval()
    with pytest.raises(
        ValueError, match=r"got 2 \(.* \(6, 5\), .* \(6, 3\)\)\. Name the head whose logits count"
    ):
        wrap(module, example=images)
    for place, head in enumerate(("species", "colour")):
        model = wrap(module, head, example=images, verbose=False)
        output = module(images)
        assert torch.equal(
            model(images), list(output.values() if isinstance(output, dict) else output)[place]
        )


def test_an_auxiliary_head_that_runs_last_is_not_taken_for_the_head(images):
    with pytest.raises(
        ValueError, match=r"head 'aux' is not the module's output: .* 'fc' has as many outputs"
    ):
        wrap(Aux(always=True), example=images)


@pytest.mark.parametrize("shared", [False, True])
def test_averaged_heads_are_one_head_on_their_inputs_side_by_side(images, shared, capsys):
    """Distilled DeiT; with one input for both heads (SwiftFormer) the features are there once."""
    module = Distilled(shared).eval()
    model = wrap(module, example=images)
    assert "wrap: heads 0.5 x 'head' + 0.5 x 'head_dist', " in capsys.readouterr().out
    new = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(model(new), module(new))
    body = module.body(new.flatten(1))
    expected = body if shared else torch.cat([body, body.tanh()], dim=1)
    torch.testing.assert_close(model.features(new), expected)
    assert {id(p) for p in model.parameters()} == {id(p) for p in module.parameters()}
    model(new).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())
    with pytest.raises(ValueError, match=r"'head_dist' has as many outputs\. Name that one\. An audit"):
        wrap(Distilled(), "head", example=images)


def test_heads_that_something_else_joins_are_refused(images):
    class Most(Distilled):
        def forward(self, x):
            x = self.body(x.flatten(1))
            return torch.maximum(self.head(x), self.head_dist(x.tanh()))

    with pytest.raises(ValueError, match=r"head 'head_dist' is not the module's output.*black_box"):
        wrap(Most(), example=images)


@pytest.mark.parametrize("squeezed", [False, True])
def test_one_logit_for_two_classes_becomes_two(images, squeezed, capsys):
    class Binary(nn.Sequential):
        def forward(self, x):
            logit = super().forward(x)
            return logit.squeeze(1) if squeezed else logit

    module = Binary(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 1)).eval()
    model = wrap(module, example=images)
    assert "yes (6 images); one logit, of the second of two classes" in capsys.readouterr().out
    torch.testing.assert_close(model(images).softmax(dim=1)[:, 1], module(images).sigmoid().flatten())
    assert model.features(images).shape == (6, 6)
    with pytest.raises(ValueError, match=r"sigmoid after the head '0\.3'"):
        wrap(nn.Sequential(module, nn.Sigmoid()), example=images)


def test_of_a_compiled_module_the_original_is_cut(images, capsys):
    module = cnn()
    compiled: Any = torch.compile(module, backend="eager")
    model = wrap(compiled, example=images)
    assert "wrap: the original of the compiled module; head " in capsys.readouterr().out
    assert torch.equal(model.eval()(images), module.eval()(images))


def test_a_convolution_before_pooling_has_pooled_features(images, capsys):
    module = NetworkInNetwork().eval()
    model = wrap(module, example=images)
    assert "6 features" in capsys.readouterr().out
    with torch.no_grad():
        assert torch.equal(model.features(images), module.features(images).mean((2, 3)))
        assert torch.allclose(model(images), module(images), atol=1e-6)
    assert [id(p) for p in model.head.parameters()] == [id(p) for p in module.last.parameters()]


def test_squeezenet_needs_its_whole_classifier(images, capsys):
    module = SqueezeNet().eval()
    with pytest.raises(
        ValueError, match=r"head 'classifier\.1' .* got \(6, 6, 6, 6\), and something else follows"
    ):
        wrap(module, example=images)
    model = wrap(module, "classifier", example=images)
    assert "216 features" in (printed := capsys.readouterr().out)
    assert "maps of 6 x 6 x 6 flattened: only for this size" in printed
    assert torch.equal(model(images), module(images))


def test_the_cut_in_a_row_of_linear_layers_is_told(images, capsys):
    head = nn.Sequential(nn.Linear(192, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5))
    wrap(nn.Sequential(nn.Flatten(), nn.Sequential(*head)), example=images)
    assert "head='1' would take all 3 linear layers, on 192 features" in capsys.readouterr().out


def test_mean_and_std_from_what_keeps_them(images):
    class Timm(PointHead):
        pretrained_cfg = {  # noqa: RUF012 - as timm keeps it
            "mean": (0.4, 0.5, 0.6),
            "std": (0.2, 0.3, 0.4),
            "input_size": (3, 8, 8),
            "crop_pct": 0.9,
        }

    module = Timm().eval()
    model = wrap(module, example=images, preprocessing=module, verbose=False)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    assert torch.equal(model(images), module((images - mean) / std))
    with pytest.raises(ValueError, match=r"give `preprocessing`, or `mean` and `std`, not both"):
        wrap(module, example=images, preprocessing=module, mean=0.5)
    with pytest.raises(ValueError, match=r"`preprocessing` must be a timm model .* got PointHead"):
        wrap(module, example=images, preprocessing=PointHead())


@pytest.mark.parametrize(
    ("name", "head", "width"),
    [
        ("resnet18", None, 512),
        ("vgg11", "classifier.6", 4096),
        ("googlenet", None, 1024),
        ("squeezenet1_1", None, 0),
    ],
)
@pytest.mark.filterwarnings("ignore:The default weight initialization of GoogleNet:FutureWarning")
def test_torchvision_itself(name, head, width):
    models = pytest.importorskip("torchvision.models", reason="torchvision cannot be imported here")
    module = models.get_model(name, weights=None)
    example = torch.rand(2, 3, 224, 224)
    if not width:
        head, width = "classifier", 512 * 13 * 13
    assert wrap(module, head, example=example, verbose=False).features(example).shape[1] == width


def test_timm_itself():
    timm = pytest.importorskip("timm", reason="timm cannot be imported here")
    module = timm.create_model("resnet18", pretrained=False)
    example = torch.rand(2, 3, 64, 64)
    model = wrap(module, example=example, preprocessing=module, verbose=False)
    assert model.features(example).shape == (2, 512)


def test_transformers_itself():
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported here")
    settings = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32
    )
    module = transformers.ViTForImageClassification(settings)
    example = torch.rand(2, 3, 32, 32)
    assert wrap(module, example=example, verbose=False).features(example).shape == (2, 16)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_logits_are_floating_point_numbers(dtype):
    class Named(nn.Sequential):
        def forward(self, x):
            return super().forward(x).to(dtype)

    with pytest.raises(ValueError, match=rf"logits as floating-point numbers; got {dtype}"):
        wrap(Named(nn.Flatten(), nn.Linear(12, 3)), example=torch.rand(2, 3, 2, 2))


class UnderAutocast(nn.Sequential):
    def forward(self, images):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(images)


def test_a_module_that_switches_autocast_on_is_one_error():
    example = torch.zeros(2, 1, 4, 4)
    module = UnderAutocast(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(
        ValueError, match=r"by itself on its features, of torch\.bfloat16: .*autocast.*black_box"
    ):
        wrap(module, example=example)
    assert black_box(module, example=example)(example).shape == (2, 3)


def test_of_a_module_that_compiles_itself_the_cut_does_not_run_the_whole(images):
    module = cnn()
    expected = module(images)
    module.compile(backend="eager")
    assert torch.equal(wrap(module, example=images)(images), expected)


class UnderInference(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Flatten(), nn.Tanh()), nn.Linear(192, 3)

    @torch.inference_mode()
    def forward(self, images):
        return self.fc(self.body(images))


def test_a_forward_pass_under_inference_mode_is_refused(images):
    with pytest.raises(ValueError, match=r"must not run under torch\.inference_mode"):
        wrap(UnderInference().eval(), example=images)
