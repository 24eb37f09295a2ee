"""What people bring: models of torchvision, timm and Hugging Face, in small, and the packages where they are."""

import pytest
import torch
from torch import nn

from clearance.models import wrap
from models.library_shapes import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
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

pytestmark = pytest.mark.usefixtures("seeded")


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


def test_two_heads_that_are_averaged_are_refused_with_the_reason(images):
    with pytest.raises(ValueError, match=r"'head' has as many outputs\. Name that one; where two heads"):
        wrap(Distilled(), example=images)


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
        ValueError, match=r"head 'classifier\.1' .* receives \(6, 6, 6, 6\), and something else follows"
    ):
        wrap(module, example=images)
    model = wrap(module, "classifier", example=images)
    assert "216 features" in (told := capsys.readouterr().out)
    assert "maps of 6 x 6 x 6 flattened: for this size alone" in told
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
