"""The margin loss and its distances where networks are sure, dead, masked, or asked for what they cannot give."""

import math

import pytest
import torch
from torch import Tensor, nn

from clearance.losses import (
    DistanceSettings,
    GammaQuantile,
    LargeMarginLoss,
    margin_distances,
)
from clearance.losses.margins import class_gaps
from clearance.models import Classifier

LABELS = torch.tensor([0, 1, 2, 0])


def network(hidden: bool = False) -> Classifier:
    torch.manual_seed(0)
    extractor = (
        nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU()) if hidden else nn.Sequential(nn.Flatten())
    )
    return Classifier(extractor, nn.Linear(6 if hidden else 4, 3)).eval()


def images(count: int = 4) -> Tensor:
    return torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(1))


def test_samples_without_a_gradient_tell_no_margin():
    """At the default eps their gap over eps is a huge number; as with eps 0, they know no boundary."""
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("extractor.1.bias").fill_(-0.2)
    shown, labels = images(20), torch.arange(20) % 3
    shown[:4] = 0.0  # every unit is dead there
    gammas = []
    for eps in (0.0, 1e-6):
        loss = LargeMarginLoss(
            ("input",), gamma=GammaQuantile(0.9), distance=DistanceSettings(eps=eps), lower_clip=4.0
        )
        outputs = model.outputs(shown, loss.layers)
        assert bool((model.features(shown)[:4] == 0).all())
        assert bool(loss(outputs, labels).terms["margin"].isfinite())
        loss.after_step(outputs, labels)
        gammas.append(float(loss.state_dict()["margins.total"][0]))
    assert gammas[1] == pytest.approx(gammas[0], rel=1e-3)


def test_a_batch_without_any_gradient_leaves_a_margin_above_0():
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("extractor.1.bias").fill_(-100.0)
    loss = LargeMarginLoss(("input",), gamma=GammaQuantile(0.9), distance=DistanceSettings(eps=0.0))
    outputs = model.outputs(images(), loss.layers)
    loss(outputs, LABELS)
    loss.after_step(outputs, LABELS)
    assert float(loss.state_dict()["margins.total"][0]) > 0


@pytest.mark.parametrize(
    ("labels", "error", "said"),
    [
        (torch.tensor([0]), ValueError, r"`labels` must have shape \(4,\)"),
        (torch.tensor([0, 1, 2, 3]), ValueError, r"`labels` must lie in 0 \.\. 2"),
        (torch.tensor([0, 1, 2, -1]), ValueError, r"`labels` must lie in 0 \.\. 2"),
        (torch.eye(4)[:, :3].long(), ValueError, r"`labels` must have shape \(4,\)"),
        (LABELS.float(), TypeError, "`labels` must be int64"),
    ],
)
def test_distances_refuse_labels_that_are_not_one_for_each_image(labels, error, said):
    with pytest.raises(error, match=said):
        margin_distances(network(), images(), labels)


@pytest.mark.parametrize("layer", ["features", "logits"])
def test_a_layer_without_spread_sends_no_nan_back(layer):
    model = network(hidden=True)
    with torch.no_grad():
        model.get_parameter("head.weight").zero_()
        model.get_parameter("head.bias").zero_()
    loss = LargeMarginLoss((layer,), distance=DistanceSettings(unit="spread", denominator="full"))
    same = images(1).expand(4, -1, -1, -1)
    loss(model.outputs(same, loss.layers), LABELS).total.backward()
    assert all(bool(one.grad.isfinite().all()) for one in model.parameters() if one.grad is not None)


@pytest.mark.parametrize("z", [0.0, 5.0, 12.0, 16.0, 17.0, 30.0, 80.0, -17.0])
def test_p12_probabilities_pull_both_ways_however_sure_a_network_is(z):
    """In float32, where softmax's own derivative has no digits left: of two classes it is 2 p_0 p_1 and less that."""
    logits = torch.tensor([[0.0, z]], requires_grad=True)
    class_gaps(logits, torch.tensor([0]), torch.tensor([[1]]), "softmax").sum().backward()
    assert logits.grad is not None
    one_way, other = logits.grad[0].tolist()
    assert one_way == pytest.approx(2 * math.exp(-abs(z)) / (1 + math.exp(-abs(z))) ** 2, rel=1e-5)
    assert other == pytest.approx(-one_way, rel=1e-6)


def test_gaps_of_probabilities_can_be_differentiated_twice():
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels, rivals = torch.tensor([0, 1, 2]), torch.tensor([[1, 2, 3], [2, 3, 0]])

    def gaps(z: Tensor) -> Tensor:
        return class_gaps(z, labels, rivals, "softmax")

    assert torch.autograd.gradcheck(gaps, logits.requires_grad_())
    assert torch.autograd.gradgradcheck(gaps, logits)


def test_whole_numbers_for_images_are_refused_before_anything_else():
    with pytest.raises(TypeError, match="images must be floating point"):
        margin_distances(network(), (255 * images()).byte(), LABELS)


def test_names_of_the_last_layers_are_offered_and_always_there():
    model = network(hidden=True)
    with pytest.raises(ValueError, match="Did you mean 'features'"):
        model.outputs(images(), LargeMarginLoss(("feature",)).layers)
    outputs = model.outputs(images(), ("input", "features", "logits", "extractor.1", "extractor.1"))
    assert set(outputs.activations) == {"input", "extractor.1"}


def test_a_loss_in_evaluation_mode_is_the_whole_loss_and_learns_nothing():
    model = network(hidden=True)
    every = LargeMarginLoss(("input",), gamma=0.5, every=4)
    plain = LargeMarginLoss(("input",), gamma=0.5)
    learnt = LargeMarginLoss(("input",), gamma=GammaQuantile(0.5))
    for loss in (every, learnt):
        loss.eval()
    outputs = model.outputs(images(), ("input",))
    expected = plain(outputs, LABELS).terms["margin"]
    for _ in range(3):
        torch.testing.assert_close(every(outputs, LABELS).terms["margin"], expected)
        learnt(outputs, LABELS)
        every.after_step(outputs, LABELS)
        learnt.after_step(outputs, LABELS)
    assert int(learnt.state_dict()["margins.batches"]) == 0
    every.train()
    assert float(every(outputs, LABELS).terms["margin"]) == 0.0  # the third step of four


@pytest.mark.parametrize("layer", ["input", "extractor.1", "features", "logits"])
def test_distances_in_inference_mode_are_those_outside(layer):
    model = network(hidden=True)
    expected = margin_distances(model, images(), LABELS, (layer,)).distances[layer]
    with torch.inference_mode():
        assert torch.equal(margin_distances(model, images(), LABELS, (layer,)).distances[layer], expected)


def test_activations_of_inference_mode_are_refused():
    with torch.inference_mode(), pytest.raises(ValueError, match=r"ran in torch\.inference_mode"):
        network(hidden=True).outputs(images(), ("extractor.1",))


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("scale", [1e-24, 1e20])
def test_p03_distances_at_the_features_are_in_range_wherever_the_input_s_are(norm, scale):
    model = network()
    with torch.no_grad():
        for one in model.head.parameters():
            one.mul_(scale)
    found = margin_distances(model, images(), LABELS, ("input", "features"), norm=norm).distances
    assert bool(found["input"].isfinite().all() and (found["input"] != 0).all())
    torch.testing.assert_close(found["features"], found["input"], rtol=1e-4, atol=0)


class Masking(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.masked_fill(features == 0, -math.inf)


def test_a_class_that_is_masked_out_is_a_rival_before_the_own_class():
    shown = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.9, 0.5]]).view(2, 1, 1, 3)
    model = Classifier(nn.Flatten(), Masking()).eval()
    found = margin_distances(model, shown, torch.tensor([0, 1]), ("logits",), top_k=2).rivals
    assert sorted(found[0].tolist()) == [1, 2]
    assert found[1].tolist() == [2, 0]


def test_a_setting_of_another_kind_is_refused_in_words():
    with pytest.raises((TypeError, ValueError), match="`lower_clip`"):
        LargeMarginLoss(("input",), lower_clip="4")  # type: ignore[arg-type]
