"""The classifier in two parts, and the activations it hands out."""

import pytest
import torch
from torch import nn

from clearance import Outputs
from clearance.models import Classifier


@pytest.fixture
def images():
    return torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def small(**options):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 4))
    return Classifier(extractor, nn.Linear(4, 2), **options)


class Repeating(nn.Module):
    """One layer runs twice, one never, one returns a pair."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(48, 48)
        self.never = nn.Linear(48, 48)
        self.pair = nn.LSTM(48, 4)

    def forward(self, images):
        return self.pair(self.twice(self.twice(images.flatten(1))))[0]


def test_normalises_inside_one_value_a_channel(images):
    mean, std = [0.1, 0.5, 0.9], [0.2, 0.25, 1.5]
    model = Classifier(nn.Flatten(), nn.Identity(), mean=mean, std=std)
    expected = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1).flatten(1)
    torch.testing.assert_close(model.features(images), expected)
    torch.testing.assert_close(model(images), expected)


def test_normalises_inside_one_value_for_all(images):
    model = Classifier(nn.Flatten(), nn.Identity(), mean=0.5, std=0.25)
    torch.testing.assert_close(model(images), (4 * images - 2).flatten(1))


def test_mean_and_std_travel_in_the_state_dict(images):
    model, other = small(mean=0.3, std=[0.2, 0.3, 0.4]), small(mean=0.0, std=[1.0, 1.0, 1.0])
    assert not torch.equal(model(images), other(images))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(images), other(images))


def test_outputs_agree_with_the_forward_pass(images):
    model = small(mean=0.5, std=0.5)
    outputs = model.outputs(images, layers=("extractor.1", "head"))
    assert torch.equal(outputs.logits, model(images))
    assert torch.equal(outputs.features, model.features(images))
    assert torch.equal(
        outputs.activations["extractor.1"], model.get_submodule("extractor.1")(2 * images.flatten(1) - 1)
    )
    assert outputs.activations["head"] is outputs.logits
    assert set(model.outputs(images).activations) == set()


def test_input_is_a_fresh_leaf_in_image_units(images):
    head = nn.Linear(48, 2)
    model = Classifier(nn.Flatten(), head, std=0.5)
    images.requires_grad_()
    outputs = model.outputs(images, layers=("input",))
    leaf = outputs.activations["input"]
    outputs.logits[:, 1].sum().backward()
    assert leaf is not images
    assert leaf.is_leaf
    assert torch.equal(leaf, images)
    assert images.grad is None
    expected = (head.weight[1] / 0.5).reshape(3, 4, 4).expand_as(leaf)
    torch.testing.assert_close(leaf.grad, expected)


def test_input_does_not_share_memory_with_the_callers_images(images):
    leaf = small().outputs(images, layers=("input",)).activations["input"]
    before = images.clone()
    leaf.detach().zero_()
    assert torch.equal(images, before)


def test_activations_keep_their_graph(images):
    outputs = small().outputs(images, layers=("extractor.2",))
    (gradient,) = torch.autograd.grad(outputs.logits.sum(), outputs.activations["extractor.2"])
    assert bool(gradient.any())


def test_with_head_keeps_the_graph(images):
    model, other = small(), nn.Linear(4, 7)
    outputs = model.outputs(images, layers=("input",))
    swapped = outputs.with_head(other)
    assert swapped.features is outputs.features
    assert swapped.head is other
    assert torch.equal(swapped.logits, other(outputs.features))
    swapped.logits.square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in model.extractor.parameters())
    assert model.head.weight.grad is None
    assert bool(outputs.activations["input"].grad.any())


def test_another_head_reads_the_features_in_place_of_the_own(images):
    model, other = small(), nn.Linear(4, 7)
    outputs = model.outputs(images, head=other)
    assert outputs.head is other
    assert torch.equal(outputs.logits, other(model.features(images)))
    assert model.outputs(images).head is model.head


def test_layer_that_does_not_exist_gets_the_nearest_name(images):
    with pytest.raises(ValueError, match=r"Did you mean 'extractor\.2'"):
        small().outputs(images, layers=("extracter.2",))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("extractor.twice", "ran twice"),
        ("extractor.never", "did not run"),
        ("extractor.pair", "must return a tensor; got tuple"),
    ],
)
def test_layer_without_one_activation_is_refused(images, layer, reason):
    with pytest.raises(ValueError, match=reason):
        Classifier(Repeating(), nn.Linear(4, 2)).outputs(images, layers=(layer,))


def test_layer_changed_in_place_is_refused(images):
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.ReLU(inplace=True))
    model = Classifier(extractor, nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"'extractor\.1' was changed in place"):
        model.outputs(images, layers=("extractor.1",))
    assert model.outputs(images, layers=("extractor.2",)).activations["extractor.2"].shape == (5, 4)


def test_no_hook_stays_behind(images):
    model = small()
    model.outputs(images, layers=("extractor.1",))
    with pytest.raises(ValueError, match="must be one of"):
        model.outputs(images, layers=("extractor.1", "nowhere"))
    assert not any(part._forward_hooks for part in model.modules())


@pytest.mark.parametrize("extractor", [nn.Identity(), nn.Flatten(0)])
def test_features_of_another_shape_are_refused(images, extractor):
    model = Classifier(extractor, nn.Identity())
    for call in (model, model.features, model.outputs):
        with pytest.raises(ValueError, match=r"features of shape \(B, D\); got \((5, 3, 4, 4|240,)\)"):
            call(images)


@pytest.mark.parametrize("std", [0.0, -1.0, [0.5, 0.0, 0.5], float("nan")])
def test_std_must_be_above_zero(std):
    with pytest.raises(ValueError, match="`std` must be above 0"):
        small(std=std)


@pytest.mark.parametrize(
    "given", [{"mean": 127.5}, {"std": 127.5}, {"mean": float("nan")}, {"std": float("inf")}]
)
def test_a_normalisation_of_bytes_or_without_a_number_is_refused(given):
    with pytest.raises(ValueError, match=r"must be for images in \[0, 1\].*divide both by 255"):
        small(**given)


def test_grey_levels_are_refused_before_they_are_taken_for_pixels():
    model = Classifier(nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(TypeError, match=r"floating point in \[0, 1\]; got torch.uint8. Divide"):
        model(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))


def test_outputs_go_through_what_stands_in_place_of_forward():
    """As accelerate does: `forward` on the instance runs in bfloat16, and keeps what it is given."""
    model = small()
    inner = model.forward

    def forward(*given, **named):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inner(*given, **named)

    model.forward = forward
    images = torch.rand(2, 3, 4, 4)
    outputs = model.outputs(images, ("input",))
    assert outputs.logits.dtype == torch.bfloat16
    assert list(outputs.activations) == ["input"]
    outputs.logits.float().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_forward_with_layers_gives_the_outputs():
    model, images = small(), torch.rand(2, 3, 4, 4)
    outputs = model(images, layers=["extractor.1"], head=nn.Identity())
    assert isinstance(outputs, Outputs)
    assert torch.equal(outputs.logits, outputs.features)
    assert torch.equal(model(images, layers=[]).logits, model(images))
    assert torch.equal(model(images, head=nn.Identity()).logits, outputs.features)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_activations_have_no_graph_until_one_is_asked_for(mode):
    model, images = small(), torch.rand(2, 3, 4, 4)
    with mode():
        outputs = model.outputs(images.clone(), ("extractor.1",))
        assert not outputs.activations["extractor.1"].requires_grad
        again = outputs.with_graph()
    assert again.logits.requires_grad
    assert torch.equal(again.logits, outputs.logits)
    (slope,) = torch.autograd.grad(again.logits.sum(), again.activations["extractor.1"])
    assert bool(slope.any())


def test_a_model_compiled_in_place_shows_its_layers():
    model, images = small(), torch.rand(2, 3, 4, 4)
    expected = model.outputs(images, ("extractor.1",))
    model.compile(backend="eager")
    outputs = model.outputs(images, ("extractor.1",))
    assert torch.equal(outputs.activations["extractor.1"], expected.activations["extractor.1"])
    assert torch.equal(outputs.logits, expected.logits)


@pytest.mark.parametrize("call", [lambda model: model, lambda model: model.outputs], ids=["call", "outputs"])
@pytest.mark.parametrize("make", [lambda x: x.numpy(), lambda x: x.tolist()], ids=["array", "list"])
def test_images_that_are_no_tensor_are_refused(images, call, make):
    kind = type(make(images)).__name__
    with pytest.raises(
        TypeError, match=rf"must be a tensor of shape .*; got {kind}.*torch\.as_tensor\(images\)"
    ):
        call(small())(make(images))


def test_one_image_without_its_batch_is_refused(images):
    model = Classifier(nn.Flatten(), nn.Linear(48, 2), mean=(0.4, 0.5, 0.6))
    with pytest.raises(
        ValueError, match=r"3 channels on axis 1, .*; got shape \(3, 4, 4\)\. One image: images\[None\]"
    ):
        model(images[0])
    with pytest.raises(ValueError, match=r"must have shape \(B, C, H, W\); got \(3,\)"):
        model(images[0, :, 0, 0])


def test_signals_and_films_are_classified_too():
    for shape in ((5, 3, 8), (5, 3, 4, 8, 8)):
        assert Classifier(nn.Flatten(), nn.LazyLinear(2))(torch.rand(shape)).shape == (5, 2)


@pytest.mark.parametrize("call", [lambda model: model, lambda model: model.outputs], ids=["call", "outputs"])
def test_parts_that_do_not_fit_are_one_error_in_words(images, call):
    with pytest.raises(
        ValueError, match=r"head must take .* of shape \(5, 48\).*Give its first layer 48 inputs"
    ):
        call(Classifier(nn.Flatten(), nn.Linear(44, 2)))(images)
    inside = nn.Sequential(nn.Linear(48, 8), nn.Linear(9, 2))
    with pytest.raises(
        ValueError, match=r"head must take .*Give each layer as many inputs as the one before has"
    ):
        call(Classifier(nn.Flatten(), inside))(images)
    extractors = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Flatten(), nn.Linear(47, 4)))
    for extractor in extractors:
        with pytest.raises(
            ValueError, match=r"extractor must take images of shape \(5, 3, 4, 4\); torch says: .*made for"
        ):
            call(Classifier(extractor, nn.Linear(4, 2)))(images)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("mine"), RuntimeError("mine")])
def test_other_errors_of_a_part_stay_what_they_are(images, error):
    class Failing(nn.Module):
        def forward(self, images):
            raise error

    for model in (Classifier(Failing(), nn.Linear(4, 2)), Classifier(nn.Flatten(), Failing())):
        with pytest.raises(type(error)) as raised:
            model(images)
        assert raised.value is error
