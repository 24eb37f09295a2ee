"""Checkpoints as other people's scripts leave them, in a module: every tensor arrives, or one error says why not."""

import argparse
import collections
import copy
import io
import pickletools
import warnings
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from clearance.models import load_weights
from clearance.models.checkpoint import read_checkpoint

WRAPPERS = [
    "",
    "module.",
    "model.",
    "net.",
    "_orig_mod.",
    "module._orig_mod.",
    "model._orig_mod.",
    "_orig_mod.module.",
]


def net(bias=True, classes=3):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, classes, bias=bias)
    )


def trained():
    torch.manual_seed(1)
    return net()


def named(module, prefix=""):
    return {prefix + name: value for name, value in module.state_dict().items()}


def same(module, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in module.state_dict().items())


def saved(folder, content, name="best.pt"):
    torch.save(content, folder / name)
    return folder / name


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_prefixes_of_wrappers_are_taken_off(tmp_path, prefix):
    module = net()
    found = load_weights(module, saved(tmp_path, named(trained(), prefix)))
    assert same(module, trained())
    assert (found.prefix, found.count, found.missing, found.unexpected) == (prefix, 9, (), ())


def test_a_weight_of_the_same_name_beside_the_network_is_not_its_own(tmp_path):
    module = net()
    content = {**named(trained(), "model."), "4.weight": torch.zeros(3, 144), "3.weight": torch.zeros(3, 144)}
    found = load_weights(module, saved(tmp_path, content))
    assert same(module, trained())
    assert found.prefix == "model."
    assert set(found.unexpected) == {"4.weight", "3.weight, not model.3.weight"}


def test_a_prefix_that_the_module_has_itself_stays(tmp_path):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = net()

    module = Outer()
    found = load_weights(module, saved(tmp_path, named(trained(), "module.model.")))
    assert same(module.model, trained())
    assert found.prefix == "module."


@pytest.mark.parametrize("suffix", ["pt", "pth", "ckpt", "bin", "pth.tar"])
@pytest.mark.parametrize("legacy", [False, True])
def test_every_suffix_of_torch(tmp_path, suffix, legacy):
    torch.save(named(trained()), tmp_path / f"w.{suffix}", _use_new_zipfile_serialization=not legacy)
    module = net()
    assert load_weights(module, tmp_path / f"w.{suffix}").source == f"w.{suffix}"
    assert same(module, trained())


def test_safetensors(tmp_path):
    safetensors.torch.save_file(named(trained(), "module."), tmp_path / "w.safetensors")
    module = net()
    assert load_weights(module, tmp_path / "w.safetensors").prefix == "module."
    assert same(module, trained())


@pytest.mark.parametrize(
    "entry", ["state_dict", "model", "ema_state_dict", "model_ema", "state_dict_ema", "ema", "net", "params"]
)
def test_the_entry_is_found_beside_everything_else(tmp_path, entry):
    rest = {
        "epoch": 3,
        "optimizer": torch.optim.SGD(trained().parameters(), 0.1).state_dict(),
        "args": {"lr": 0.1},
    }
    module = net()
    found = load_weights(module, saved(tmp_path, {**rest, entry: named(trained())}))
    assert same(module, trained())
    assert found.source == f"best.pt[{entry!r}]"


def test_averaged_weights_come_first_and_others_are_told_and_can_be_chosen(tmp_path):
    file = saved(tmp_path, {"model": named(net()), "model_ema": named(trained(), "module.")})
    module = net()
    found = load_weights(module, file)
    assert same(module, trained())
    assert str(found) == (
        "weights: 9 tensors from best.pt['model_ema'], prefix 'module.' removed; not used: 'model'"
    )
    load_weights(module, file, entry="model")
    assert not same(module, trained())


def test_entries_of_any_name_are_told_beside_the_one_that_is_taken(tmp_path):
    file = saved(tmp_path, {"teacher": named(trained()), "model": named(net()), "epoch": 3})
    assert load_weights(net(), file).others == ("teacher",)


def test_an_averaged_model_as_torch_keeps_it(tmp_path):
    averaged = torch.optim.swa_utils.AveragedModel(trained())
    module = net()
    found = load_weights(module, saved(tmp_path, averaged.state_dict()))
    assert same(module, trained())
    assert found.unexpected == ("n_averaged",)


def test_what_changes_nothing_is_told_and_taken(tmp_path):
    content = named(trained())
    del content["1.num_batches_tracked"]
    content |= {"aux.fc.weight": torch.zeros(3, 4), "0.total_ops": torch.zeros(1)}
    module = net()
    found = load_weights(module, saved(tmp_path, content))
    assert found.missing == ("1.num_batches_tracked",)
    assert found.unexpected == ("aux.fc.weight", "0.total_ops")
    assert "1 missing: '1.num_batches_tracked'; 2 unexpected: 'aux.fc.weight', '0.total_ops'" in str(found)


def test_tied_weights_are_given_under_one_name(tmp_path):
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    module = nn.Sequential(first, second)
    content = {"0.weight": torch.eye(3), "0.bias": torch.ones(3), "1.bias": torch.zeros(3)}
    assert load_weights(module, saved(tmp_path, content)).missing == ()
    assert torch.equal(second.weight, torch.eye(3))


def test_half_precision_becomes_the_modules_own(tmp_path):
    module = net()
    load_weights(module, saved(tmp_path, {name: value.half() for name, value in named(trained()).items()}))
    assert module[3].weight.dtype == torch.float32
    assert torch.equal(module[3].weight, trained()[3].weight.half().float())


def without(name):
    content = named(trained())
    del content[name]
    return content


WRONG = {
    "missing parameter": (without("3.bias"), "missing: '3.bias'"),
    "missing statistics": (without("1.running_mean"), "missing: '1.running_mean'"),
    "shapes": (
        named(net(classes=9)),
        r"'3.weight' is \(9, 4\) in the checkpoint and \(3, 4\) in the module; '3.bias' is \(9,\)",
    ),
    "another module": (named(nn.LSTM(2, 2)), "got no name that fits. The module has '0.weight'"),
    "nan": ({**named(trained()), "3.bias": torch.full((3,), torch.nan)}, "NaN or infinity in '3.bias'"),
    "no tensors": ({"epoch": 3}, r"got 'epoch' \(int\). Save model.state_dict\(\)"),
    "empty": ({}, "got an empty one"),
    "list": ([torch.zeros(2)], "must hold a dictionary of tensors; got list"),
    "unknown entry": (
        {"student": named(trained()), "epoch": 1},
        "Name the entry that holds the weights: 'student'",
    ),
}


@pytest.mark.parametrize(("content", "fragment"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(tmp_path, content, fragment):
    module = net()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=fragment):
        load_weights(module, saved(tmp_path, content))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_mask_of_infinities_that_the_module_has_too_is_no_damage(tmp_path):
    module = net()
    module.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    load_weights(module, saved(tmp_path, {**named(trained()), "mask": module.mask.clone()}))
    assert module.mask.isinf().any()
    with pytest.raises(ValueError, match="NaN or infinity in 'mask'"):
        load_weights(module, saved(tmp_path, {**named(trained()), "mask": -module.mask}))


def test_a_bias_that_the_module_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds '3.bias', of layers that the module has without them"):
        load_weights(net(bias=False), saved(tmp_path, named(trained())))


class Scaled(nn.Module):
    """As in ViT: what scales is there or not."""

    def __init__(self, scaled):
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 3), nn.Linear(3, 3, bias=False) if scaled else nn.Identity()
        self.gamma = nn.Parameter(torch.ones(3)) if scaled else None


def test_weights_where_the_module_has_nothing_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"holds 'gamma', 'scale\.weight', of layers that the module has without"
    ):
        load_weights(Scaled(False), saved(tmp_path, named(Scaled(True))))
    counted = {**named(Scaled(False)), "scale.total_ops": torch.zeros(1)}
    assert load_weights(Scaled(False), saved(tmp_path, counted)).unexpected == ("scale.total_ops",)


def test_older_names_that_a_modules_own_hooks_know_are_translated(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        older = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 3)))
    newer = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    load_weights(newer, saved(tmp_path, named(older)))
    images = torch.rand(2, 3)
    torch.testing.assert_close(newer(images), older(images))


def test_names_of_torchvisions_older_files_are_read(tmp_path):
    """Of DenseNet, as its published weights have them; they have no counters of batches."""
    module = nn.Module()
    module.denselayer1 = nn.Module()
    module.denselayer1.norm1 = nn.BatchNorm2d(3)
    kept = {n.replace("norm1", "norm.1"): v + 1 for n, v in named(module).items() if "num_batches" not in n}
    load_weights(module, saved(tmp_path, kept))
    assert module.denselayer1.norm1.weight.tolist() == [2, 2, 2]


class Versioned(nn.Linear):
    """Refuses weights of which it is not said that they have its form."""

    _version = 2

    def _load_from_state_dict(self, state, prefix, local, *given):
        if local.get("version") != 2:
            raise ValueError("version should be 2")
        super()._load_from_state_dict(state, prefix, local, *given)


def test_a_module_that_asks_for_the_version_of_its_weights_gets_it(tmp_path):
    source, target = nn.Sequential(Versioned(3, 3)), nn.Sequential(Versioned(3, 3))
    load_weights(target, saved(tmp_path, named(source)))
    assert same(target, source)


class Rows(nn.Module):
    """Blocks in a row, as in ResNet or ViT."""

    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(depth))


def test_the_checkpoint_of_a_deeper_network_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"more layers than the module, such as 'blocks\.2\.weight'.*a deeper one"
    ):
        load_weights(Rows(2), saved(tmp_path, named(Rows(3))))
    beside = {**named(Rows(2)), "aux.0.weight": torch.ones(2)}
    assert load_weights(Rows(2), saved(tmp_path, beside)).unexpected == ("aux.0.weight",)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (lambda w: (100 * w).to(torch.int8), "torch.int8"),
        (lambda w: w.to(torch.complex64), "torch.complex64"),
        (lambda w: w.to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
        (lambda w: w.to_sparse(), "torch.float32, torch.sparse_coo"),
    ],
)
def test_weights_in_another_kind_of_number_are_refused(tmp_path, kind, said):
    content = {**named(trained()), "3.weight": kind(trained()[3].weight.detach())}
    with pytest.raises(ValueError, match=f"must hold floating-point weights; '3.weight' is {said}"):
        load_weights(net(), saved(tmp_path, content))


def test_a_decay_beside_averaged_weights_does_not_hide_them(tmp_path):
    module = net()
    content = {"model_ema": {**named(trained()), "decay": 0.9}, "model": named(net())}
    assert load_weights(module, saved(tmp_path, content)).others == ("model",)
    assert same(module, trained())
    deeper = {"ema": {"shadow": named(trained()), "decay": 0.9}, "model": named(net())}
    assert load_weights(module, saved(tmp_path, deeper)).others == ("ema",)


def test_a_chosen_entry_may_have_any_name(tmp_path):
    file = saved(tmp_path, {"network": named(trained())})
    module = net()
    load_weights(module, file, entry="network")
    assert same(module, trained())
    with pytest.raises(
        ValueError, match=r"`entry` must be one of 'network'; got 'netwrk'. Did you mean 'network'"
    ):
        read_checkpoint(file, "netwrk")


def test_a_whole_module_is_not_unpickled(tmp_path):
    file = saved(tmp_path, trained())
    with pytest.raises(
        ValueError,
        match=r"must hold a dictionary of tensors; got torch.nn.modules[.\w]+\. .*torch.save\(m.state_dict\(\)",
    ):
        read_checkpoint(file)


class AttributeDict(dict):
    """A dictionary with items as attributes, as trainers keep their hyper-parameters in."""


class Config:
    def __init__(self):
        self.lr = 0.1

    def __getstate__(self):
        return {"lr": self.lr}

    def __setstate__(self, state):
        raise AssertionError("was run")


class Evil:
    def __reduce__(self):
        return exec, ("raise AssertionError('was run')",)


@pytest.mark.parametrize(
    "beside",
    [
        argparse.Namespace(lr=0.1, out=Path("runs"), seeds=[1, 2]),
        np.float64(0.93),
        np.arange(3),
        {"best": {"acc": np.float32(0.5)}},
        PureWindowsPath("runs/1"),
        collections.defaultdict(list, loss=[0.1, 0.2]),
        AttributeDict(lr=0.1),
        Config(),
        Evil(),
        trained(),
    ],
    ids=lambda beside: type(beside).__name__,
)
def test_what_stands_beside_the_weights_is_skipped_and_not_run(tmp_path, beside):
    module = net()
    load_weights(module, saved(tmp_path, {"state_dict": named(trained()), "beside": beside, "epoch": 3}))
    assert same(module, trained())


def test_a_configuration_of_omegaconf_beside_the_weights(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    settings = omegaconf.OmegaConf.create({"lr": 0.1, "data": {"sizes": [1, 2]}})
    module = net()
    load_weights(module, saved(tmp_path, {"state_dict": named(trained()), "hyper_parameters": settings}))
    assert same(module, trained())


def test_a_file_that_would_run_code_does_not(tmp_path):
    program = b"\x80\x02cbuiltins\nexec\nX\x12\x00\x00\x00raise SystemExit()\x85R."
    pickletools.dis(program, out=io.StringIO())  # a whole program, not a damaged one
    (tmp_path / "w.pt").write_bytes(program)
    with pytest.raises(ValueError, match="would run code from the file"):
        read_checkpoint(tmp_path / "w.pt")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"got no file .*w.pt. Correct the path"):
        read_checkpoint(tmp_path / "w.pt")
    with pytest.raises(FileNotFoundError, match="got a folder"):
        read_checkpoint(tmp_path)
    (tmp_path / "w.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    with pytest.raises(ValueError, match="got a Git LFS pointer"):
        read_checkpoint(tmp_path / "w.pt")
    (tmp_path / "w.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"w.pt must be a file of torch.save; got another kind of file"):
        read_checkpoint(tmp_path / "w.pt")
    (tmp_path / "w.safetensors").write_text("hello")
    with pytest.raises(ValueError, match=r"w.safetensors cannot be read as safetensors"):
        read_checkpoint(tmp_path / "w.safetensors")
    (tmp_path / "w.onnx").write_text("hello")
    with pytest.raises(ValueError, match=r"ends in .safetensors, .pt, .*; got w.onnx"):
        read_checkpoint(tmp_path / "w.onnx")
    content = saved(tmp_path, named(trained()), "cut.pth").read_bytes()
    for length in (1000, len(content) // 2, len(content) - 200):
        (tmp_path / "cut.pth").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut.pth is damaged or not a checkpoint"):
            read_checkpoint(tmp_path / "cut.pth")


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_scripted_model_is_no_weights(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"got a scripted model.*torch\.jit\.load\('net\.pt'\).*--black-box"):
        read_checkpoint(tmp_path / "net.pt")


@pytest.mark.parametrize("length", [5_000, 20_000, 50_000])
def test_a_long_file_that_was_cut_is_not_called_dangerous(tmp_path, length):
    torch.save({"weight": torch.zeros(300_000)}, tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:length])
    with pytest.raises(ValueError, match=r"cut.pt is damaged or not a checkpoint .* Copy or save it again"):
        read_checkpoint(tmp_path / "cut.pt")


class OtherNames(nn.Module):
    """As a model of transformers 5: files have older names of its layers, which only `from_pretrained` knows."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.Linear(4, 3)
        self.classifier = nn.Linear(3, 2)

    @classmethod
    def from_pretrained(cls, place, *, config, state_dict, output_loading_info):
        assert place is None
        assert output_loading_info
        made = cls(config)
        known = {name.replace("encoder.layer.", "layers."): value for name, value in state_dict.items()}
        found = made.load_state_dict(known, strict=False)
        report = {"missing_keys": {*found.missing_keys}, "unexpected_keys": {*found.unexpected_keys}}
        return made, {**report, "mismatched_keys": set()}


def written(module, path, without=()):
    named = {name.replace("layers.", "encoder.layer."): v for name, v in module.state_dict().items()}
    safetensors.torch.save_file({n: v for n, v in named.items() if n not in without}, path)
    return path


def test_older_names_of_a_hugging_face_model_are_translated_by_its_class(tmp_path):
    torch.manual_seed(0)
    saved, fresh = OtherNames("settings"), OtherNames("settings")
    load_weights(fresh, written(saved, tmp_path / "model.safetensors"))
    assert all(torch.equal(value, saved.state_dict()[name]) for name, value in fresh.state_dict().items())


def test_what_such_a_file_lacks_is_not_made_up(tmp_path):
    saved, fresh = OtherNames("settings"), OtherNames("settings")
    before = copy.deepcopy(fresh.state_dict())
    with pytest.raises(ValueError, match=r"missing: 'classifier\.bias'"):
        load_weights(fresh, written(saved, tmp_path / "model.safetensors", without=("classifier.bias",)))
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())


def test_a_file_of_transformers_itself(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported here")
    settings = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32
    )
    saved, fresh = (transformers.ViTForImageClassification(settings) for _ in range(2))
    saved.save_pretrained(tmp_path)
    load_weights(fresh, tmp_path / "model.safetensors")
    assert all(torch.equal(value, saved.state_dict()[name]) for name, value in fresh.state_dict().items())
