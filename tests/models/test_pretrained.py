"""Models by name, from the packages themselves; where one is not installed, its test says so and is skipped."""

import importlib
import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

import clearance as cl
from clearance.models.pretrained import is_pretrained
from cli.terminal import run

NAMES = ("cat", "ant", "bee")  # not in the order of folders
PROCESSOR = {
    "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4], "rescale_factor": 1 / 255, "resample": 3, "size": {"shortest_edge": 40},
    "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
}  # fmt: skip


def package(name):
    """The package; the test is skipped where it is not installed."""
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")


@pytest.fixture
def folder(tmp_path):
    """As save_pretrained writes it: a small ResNet with the names of its classes, and its image processor."""
    transformers = package("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
        id2label=dict(enumerate(NAMES)), label2id={name: k for k, name in enumerate(NAMES)},
    )  # fmt: skip
    module = transformers.ResNetForImageClassification(config).eval()
    module.save_pretrained(tmp_path / "net")
    (tmp_path / "net" / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return tmp_path / "net", module


@pytest.fixture
def pictures(tmp_path):
    """Folders of pictures, one for each class."""
    draw = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in sorted(NAMES):
            where = tmp_path / split / name
            where.mkdir(parents=True)
            for place in range(8):
                Image.fromarray(draw.integers(0, 256, (44, 60, 3), dtype=np.uint8)).save(
                    where / f"{place}.png"
                )
    return [f"folder:{tmp_path / split}" for split in ("train", "test")]


def normalised(images, mean, std):
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in (mean, std))
    return (images - mean) / std


def test_a_folder_of_hugging_face(folder, capsys):
    where, module = folder
    model = cl.load_pretrained(f"hf:{where}")
    images = torch.rand(4, 3, 32, 32)
    expected = module(normalised(images, PROCESSOR["image_mean"], PROCESSOR["image_std"])).logits
    torch.testing.assert_close(model(images), expected)
    assert str(model.preprocessing) == "images 40 -> 32 px (bicubic), mean 0.5, 0.4, 0.3, std 0.2, 0.3, 0.4"
    shown = capsys.readouterr().out
    assert "weights: ResNetForImageClassification from net\npreprocessing: images 40 -> 32 px" in shown


@pytest.mark.filterwarnings("ignore")
def test_python_and_the_command_give_the_same_numbers(folder, pictures, tmp_path):
    """Sizes, normalisation and the order of classes come from the folder, in both."""
    where, _ = folder
    train, test = pictures
    card = cl.audit(
        cl.load_pretrained(f"hf:{where}", verbose=False), train=train, test=test, audits=["accuracy"]
    )
    words = ("--train", train, "--test", test, "--audits", "accuracy", "--out", str(tmp_path / "out"))
    status, shown, complaint = run("audit", f"hf:{where}", *words)
    assert status == 0, complaint
    assert "put in the order of the images' classes, by name" in shown
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert str(tmp_path) not in json.dumps(found)
    assert found["recipe"]["model"] == "hf:net"
    values = [record["value"] for record in found["measurements"] if record["audit"] == "accuracy"]
    assert [m.value for m in card.measurements] == pytest.approx(values)


def test_without_an_image_processor_the_size_is_the_models_and_nothing_is_normalised(tmp_path, capsys):
    transformers = package("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
    )
    module = transformers.ViTForImageClassification(config).eval()
    module.save_pretrained(tmp_path / "vit")
    model = cl.load_pretrained(f"hf:{tmp_path / 'vit'}")
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(model(images), module(images).logits)
    assert (
        "has no preprocessor_config.json, so images in [0, 1] are not normalised" in capsys.readouterr().out
    )


def test_a_folder_without_a_classifier_is_refused(folder):
    transformers = package("transformers")
    where, module = folder
    transformers.ResNetModel(module.config).save_pretrained(where)
    with pytest.raises(ValueError, match=r"hf:net must hold every weight .* 'classifier\.1\.bias'"):
        cl.load_pretrained(f"hf:{where}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "another kind", "deep"])
def test_a_damaged_folder_is_one_error(folder, name, damage):
    where, _ = folder
    content = (where / name).read_bytes()
    known = json.loads((where / "config.json").read_text("utf-8"))
    damaged = {
        "cut": content[: len(content) // 2],
        "another kind": json.dumps({**known, "hidden_sizes": "many"}).encode(),
        "deep": b"[" * 100_000,
    }
    (where / name).write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=r"^hf:net cannot be loaded: [^\n]+$"):
        cl.load_pretrained(f"hf:{where}")


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"size": [[]]}'])
def test_a_damaged_image_processor_is_named(folder, content):
    where, _ = folder
    (where / "preprocessor_config.json").write_text(content)
    with pytest.raises(ValueError, match=r"preprocessor_config\.json must describe an image processor"):
        cl.load_pretrained(f"hf:{where}")


def test_a_name_that_is_no_folder_is_not_looked_for_elsewhere(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"must be a folder with config\.json.*got no folder\. Nothing is downl"
    ):
        cl.load_pretrained("hf:microsoft/resnet-18")
    with pytest.raises(FileNotFoundError, match="got one without"):
        cl.load_pretrained(f"hf:{tmp_path}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [3, 1000])
def test_timm(tmp_path, classes, capsys):
    timm = package("timm")
    torch.manual_seed(0)
    module = timm.create_model("resnet10t", num_classes=classes).eval()
    torch.save(
        {"state_dict": {f"module.{n}": v for n, v in module.state_dict().items()}}, tmp_path / "best.pth"
    )
    model = cl.load_pretrained("timm:resnet10t", tmp_path / "best.pth")
    how = module.pretrained_cfg
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(model(images), module(normalised(images, how["mean"], how["std"])))
    assert model.preprocessing is not None
    assert model.preprocessing.size == how["input_size"][-1]
    assert "prefix 'module.' removed" in capsys.readouterr().out
    with pytest.raises(ValueError, match="timm has no model 'resnet999'"):
        cl.load_pretrained("timm:resnet999", tmp_path / "best.pth")


@pytest.fixture
def torchvision():
    """A torchvision that works beside the installed torch."""
    try:
        return package("torchvision")
    except RuntimeError as error:
        pytest.skip(f"torchvision does not fit the installed torch: {error}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [3, 1000])
def test_torchvision(torchvision, tmp_path, classes):
    torch.manual_seed(0)
    module = torchvision.models.squeezenet1_1(num_classes=classes).eval()
    torch.save(module.state_dict(), tmp_path / "best.pth")
    place = "torchvision:squeezenet1_1"
    model = cl.load_pretrained(place, tmp_path / "best.pth", head="classifier", verbose=False)
    images = torch.rand(2, 3, 224, 224)
    how = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    torch.testing.assert_close(model(images), module(normalised(images, how.mean, how.std)))
    assert str(model.preprocessing).startswith("images 256 -> 224 px")
    assert hasattr(model.extractor.module, "classes") == (classes == 1000)
    with pytest.raises(ValueError, match="torchvision has no classifier 'resnet999'"):
        cl.load_pretrained("torchvision:resnet999", tmp_path / "best.pth")


@pytest.mark.filterwarnings("ignore")
def test_a_network_that_torchvision_trains_on_transformed_input_gets_it(torchvision, tmp_path):
    """Its weights do not say so: torchvision sets it where it loads them itself."""
    file = tmp_path / "googlenet.pth"
    module = torchvision.models.googlenet(num_classes=3, init_weights=False)
    torch.save(module.state_dict(), file)
    found = cl.load_pretrained("torchvision:googlenet", file, verbose=False)
    assert any(getattr(part, "transform_input", False) for part in found.modules())


def test_a_file_of_torchvision_has_its_own_preprocessing(torchvision, tmp_path):
    """V1 of these weights was made for pictures resized to 256, V2, the default, to 232."""
    versions = torchvision.models.MobileNet_V3_Large_Weights
    file = tmp_path / versions.IMAGENET1K_V1.url.rpartition("/")[2]
    torch.save(torchvision.models.mobilenet_v3_large().state_dict(), file)
    model = cl.load_pretrained("torchvision:mobilenet_v3_large", file, verbose=False)
    assert str(model.preprocessing).startswith("images 256 -> 224 px")
    other = cl.load_pretrained(
        "torchvision:mobilenet_v3_large", file.rename(tmp_path / "mine.pth"), verbose=False
    )
    assert str(other.preprocessing).startswith("images 232 -> 224 px")


LIGHTNING = """
import lightning.pytorch as L
import torch
from torch import nn

import clearance as cl


class Net(L.LightningModule):
    example_input_array = torch.zeros(1, 1, 8, 8)

    def __init__(self, width=4, rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 3))
        self.loss = nn.CrossEntropyLoss(weight=torch.ones(3))

    def forward(self, x):
        return self.net(x)


class Holds(Net):
    def __init__(self, width=4):
        super().__init__(width)
        self.model = cl.Classifier(self.net[:3], self.net[3], mean=0.25)

    def forward(self, x):
        raise NotImplementedError


class Prepared(Holds):
    def __init__(self, width=4):
        super().__init__(width)
        self.model.preprocessing = cl.data.Preprocessing(size=8, short_side=10)


class Forgets(Net):
    def __init__(self, width):
        super().__init__(width)
        self._hparams = {}
"""


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """Gives a checkpoint as Lightning's Trainer writes it, by the name of the class, and the module."""
    lightning = package("lightning.pytorch")
    (tmp_path / "nets.py").write_text(LIGHTNING)
    monkeypatch.syspath_prepend(tmp_path)
    nets = importlib.import_module("nets")

    def saved(name, **arguments):
        module = getattr(nets, name)(**arguments)
        trainer = lightning.Trainer(
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.strategy.connect(module)
        trainer.save_checkpoint(tmp_path / f"{name}.ckpt")
        return f"lightning:{tmp_path / name}.ckpt", module.eval()

    yield saved
    del sys.modules["nets"]


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_lightning(checkpoints, tmp_path, capsys):
    """Saved hyperparameters build the module; its size is that of its example."""
    place, module = checkpoints("Net", width=7)
    model = cl.load_pretrained(place, module="nets:Net")
    images = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(model(images), module(images))
    assert model.features(images).shape == (5, 7)
    assert "weights: Net from Net.ckpt" in capsys.readouterr().out
    by_class = cl.load_pretrained(place, module=type(module), verbose=False)
    torch.testing.assert_close(by_class(images), module(images))
    draw = np.random.default_rng(0)
    for split in ("train", "test"):
        pixels, labels = draw.random((9, 1, 8, 8), dtype=np.float32), np.arange(9) % 3
        np.savez(tmp_path / split, images=pixels, labels=labels)
    sets = ("--train", f"npz:{tmp_path}/train.npz", "--test", f"npz:{tmp_path}/test.npz")
    words = ("--module", f"{tmp_path}/nets.py:Net", "--audits", "accuracy", "--out", str(tmp_path))
    status, shown, complaint = run("audit", place, *sets, *words)
    assert status == 0, complaint
    assert "weights: Net from Net.ckpt" in shown
    found = (tmp_path / "report.json").read_text()
    assert json.loads(found)["recipe"]["model"] == "lightning:Net.ckpt"
    assert "--module nets.py:Net" in json.loads(found)["command"]
    assert str(tmp_path) not in found


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_in_a_lightning_module_is_taken_as_it_is(checkpoints, capsys):
    place, module = checkpoints("Holds", width=5)
    model = cl.load_pretrained(place, module="nets:Holds")
    images = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(model(images), module.net(images - 0.25))
    assert "the model is a Classifier already" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_in_a_lightning_module_keeps_its_preprocessing(checkpoints):
    place, _ = checkpoints("Prepared", width=5)
    model = cl.load_pretrained(place, module="nets:Prepared")
    assert model.preprocessing is not None
    assert (model.preprocessing.size, model.preprocessing.short_side) == (8, 10)


@pytest.mark.filterwarnings("ignore")
def test_what_lightning_cannot_build_is_said(checkpoints, tmp_path):
    place, _ = checkpoints("Forgets", width=5)
    with pytest.raises(
        ValueError, match=r"Forgets\.ckpt must be a checkpoint of Forgets; Lightning says TypeError"
    ):
        cl.load_pretrained(place, module="nets:Forgets")
    with pytest.raises(ValueError, match="`entry` names a part of `weights`; got 'ema' and no weights"):
        cl.load_pretrained(f"lightning:{tmp_path}/Net.ckpt", module="nets:Net", entry="ema")
    with pytest.raises(ValueError, match=r"class .* and lightning:FILE belong together; got .* and none"):
        cl.load_pretrained(place)
    with pytest.raises(ValueError, match="belong together; got hf:x and nets:Net"):
        cl.load_pretrained("hf:x", module="nets:Net")
    with pytest.raises(ValueError, match="`module` must be a LightningModule's class; got Linear"):
        cl.load_pretrained(place, module="torch.nn:Linear")
    content = {"state_dict": {"weight": torch.zeros(1)}, "hyper_parameters": {"width": print}}
    torch.save(content, tmp_path / "code.ckpt")
    with pytest.raises(
        ValueError, match=r"code\.ckpt must be .* says UnpicklingError.* numbers, words and the like"
    ):
        cl.load_pretrained(f"lightning:{tmp_path}/code.ckpt", module="nets:Net")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "side"), [("transformers", 32), ("timm", 224)])
def test_averaged_heads_of_the_packages_themselves(kind, side):
    """Distilled DeiT and LeViT."""
    here = package(kind)
    if kind == "timm":
        module = here.create_model("levit_128s", num_classes=5)
    else:
        module = here.DeiTForImageClassificationWithTeacher(
            here.DeiTConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
                patch_size=8, num_labels=5,
            )
        )  # fmt: skip
    images = torch.rand(2, 3, side, side)
    model = cl.wrap(module.eval(), example=images, verbose=False)
    output = module(images)
    torch.testing.assert_close(model(images), getattr(output, "logits", output))


@pytest.mark.parametrize("kind", ["timm", "torchvision"])
def test_weights_are_a_file_that_one_has(kind):
    with pytest.raises(ValueError, match=rf"{kind}:resnet18 needs weights, because nothing is downloaded"):
        cl.load_pretrained(f"{kind}:resnet18")


def test_a_package_that_is_missing_or_broken_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(ValueError, match="this needs timm: pip install timm"):
        cl.load_pretrained("timm:resnet18", tmp_path / "x.pt")
    stub = tmp_path / "torchvision"
    stub.mkdir()
    (stub / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"torchvision cannot be imported \(RuntimeError: operator torchvision::nms.* torch and torchvision that",
    ):
        cl.load_pretrained("torchvision:resnet18", tmp_path / "x.pt")


def test_a_place_of_ones_own_stays_one():
    assert not is_pretrained("timmy:build")
    assert not is_pretrained("hf:")
    assert isinstance(sys.modules["clearance"], ModuleType)
