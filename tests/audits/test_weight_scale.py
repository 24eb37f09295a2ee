"""Sizes of weights and answers: by hand on small networks, and as weights are scaled."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from clearance.audits import WeightScale, decayed_parameters
from clearance.audits.weight_scale import spectral_norm, weight_layers
from clearance.data import ImageSet, gaussian_images
from clearance.models import Classifier


def images(count=40, seed=0):
    """Pixels with the classes that the network below gives them, one in five another one."""
    pixels = torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        labels = relu_net().eval()(pixels).argmax(dim=1)
    labels[::5] = (labels[::5] + 1) % 3
    return ImageSet(pixels, labels, ("a", "b", "c"))


def relu_net(scale=1.0, norm=False):
    torch.manual_seed(3)
    parts = [nn.Flatten(), nn.Linear(36, 12, bias=False), *([nn.BatchNorm1d(12)] if norm else []), nn.ReLU()]
    model = Classifier(nn.Sequential(*parts), nn.Linear(12, 3, bias=False))
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight *= scale
    return model


def numbers(model, **settings):
    found = WeightScale(**settings)(model, images(), images(seed=1))
    return {(m.name, m.context.get("layer", m.context.get("by"))): m.value for m in found.measurements}


def test_every_number_by_hand():
    model = relu_net().eval()
    found = numbers(model)
    first, second = model.extractor[1].weight.detach().double(), model.head.weight.detach().double()
    both = torch.cat([first.flatten(), second.flatten()])
    for layer, weight in (("1", first), ("2", second)):
        assert found["weight_rms", layer] == pytest.approx(float(weight.square().mean().sqrt()))
        assert found["spectral_norm", layer] == pytest.approx(float(torch.linalg.svdvals(weight)[0]))
    assert found["weight_rms", "all"] == pytest.approx(float(both.square().mean().sqrt()))
    with torch.no_grad():
        logits, learnt = model(images(seed=1).images).double(), model(images().images).double()
    centred = logits - logits.mean(1, keepdim=True)
    assert found["logit_scale", None] == pytest.approx(float(centred.square().mean().sqrt()))
    sure = (logits / found["temperature", "median confidence"]).softmax(1).amax(1)
    assert float(sure.quantile(0.5)) == pytest.approx(0.95, abs=1e-6)
    p = learnt.softmax(1)[torch.arange(40), images().labels]
    right = learnt.argmax(1) == images().labels
    assert 0 < int(right.sum()) < 40
    for share in (0.2, 0.7):
        threshold = float((1 - p[right]).quantile(share)) + 1e-9
        expected = float((right & (1 - p >= threshold)).sum() / right.sum())
        assert expected == pytest.approx(1 - share, abs=0.05)
        assert numbers(model, threshold=threshold)["active_share", None] == pytest.approx(expected)


def test_p18_weights_times_c_scale_logits_and_temperature_by_c_to_the_layers():
    before, after = numbers(relu_net()), numbers(relu_net(scale=3.0))
    for layer in ("1", "2", "all"):
        assert after["weight_rms", layer] == pytest.approx(3 * before["weight_rms", layer], rel=1e-5)
    for key in (("logit_scale", None), ("temperature", "likelihood"), ("temperature", "median confidence")):
        assert after[key] == pytest.approx(9 * before[key], rel=1e-3), key
    loud, quiet = (numbers(relu_net(scale=c), threshold=0.5)["active_share", None] for c in (10.0, 1.0))
    assert loud < quiet


def test_before_normalisation_the_size_of_weights_does_not_reach_the_answers():
    with_norm = relu_net(norm=True)
    layers = weight_layers(with_norm.eval(), images().images[:2])
    assert [(one.name, one.normalised) for one in layers] == [("extractor.1", True), ("head", False)]
    assert numbers(with_norm)["normalised_layers", None] == 1
    assert numbers(relu_net())["normalised_layers", None] == 0
    loud = relu_net(norm=True)
    with torch.no_grad():
        loud.extractor[1].weight *= 100
        loud.extractor[2].running_var *= 100**2
        loud.extractor[2].running_mean *= 100
    # batch normalisation adds 1e-5 to a variance
    assert numbers(loud)["weight_rms", "1"] == pytest.approx(
        100 * numbers(with_norm)["weight_rms", "1"], rel=1e-5
    )
    assert numbers(loud)["logit_scale", None] == pytest.approx(
        numbers(with_norm)["logit_scale", None], rel=1e-4
    )


def test_layers_are_counted_in_the_order_in_which_they_run_and_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(4, 4), nn.Conv2d(1, 4, 6)
            self.unused = nn.Linear(4, 4)

        def forward(self, x):
            x = self.first(x).flatten(1)
            return self.last(self.last(x))

    model = Classifier(Twice(), nn.Linear(4, 3)).eval()
    layers = weight_layers(model, images().images[:2])
    assert [one.name for one in layers] == ["extractor.first", "extractor.last", "head"]
    kernels = model.state_dict()["extractor.first.weight"].double().flatten(1)
    assert spectral_norm(layers[0].weight) == pytest.approx(float(torch.linalg.svdvals(kernels)[0]))


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_do_not_mix_so_the_largest_counts(groups):
    """As the singular values of the matrix with a block for each group say."""
    kernels = nn.Conv2d(4, 8, 3, groups=groups, bias=False).weight.detach()
    blocks = torch.block_diag(*kernels.double().flatten(1).chunk(groups))
    assert spectral_norm(kernels, groups) == pytest.approx(float(torch.linalg.svdvals(blocks)[0]))
    model = Classifier(
        nn.Sequential(nn.Conv2d(1, 4, 6), nn.Conv2d(4, 8, 1, groups=groups), nn.Flatten()), nn.Linear(8, 3)
    )
    assert [one.groups for one in weight_layers(model.eval(), images().images[:2])] == [1, groups, 1]
    with torch.no_grad():
        model.get_parameter("extractor.1.weight").fill_(1 / 3)
    assert numbers(model)["spectral_norm", "2"] == pytest.approx(math.sqrt(8 / groups * 4 / groups) / 3)


def test_what_normalisation_reads_counts_and_not_what_ran_before_it():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other, self.norm = nn.Linear(36, 4), nn.Linear(36, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            one, other = self.one(x.flatten(1)), self.other(x.flatten(1))
            return self.norm(one) + other

    layers = weight_layers(Classifier(Apart(), nn.Linear(4, 3)).eval(), images().images[:2])
    assert {one.name: one.normalised for one in layers} == {
        "extractor.one": True, "extractor.other": False, "head": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("between", "normalised"),
    [(nn.Identity(), True), (nn.Dropout(), True), (nn.ReLU(), False), (nn.ReLU(inplace=True), False)],
)
def test_normalisation_behind_what_hands_on_just_what_it_gets(between, normalised):
    parts = [nn.Flatten(), nn.Linear(36, 4), between, nn.BatchNorm1d(4)]
    layers = weight_layers(Classifier(nn.Sequential(*parts), nn.Linear(4, 3)).eval(), images().images[:2])
    assert [one.normalised for one in layers] == [normalised, False]


@pytest.mark.parametrize(
    ("times", "own"), [(1, ["in_proj_weight"]), (2, ["q_proj_weight", "k_proj_weight", "v_proj_weight"])]
)
def test_attention_has_weights_too(times, own):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, kdim=6 * times, batch_first=True)

        def forward(self, x):
            rows = x.flatten(1, 2)
            return self.attention(rows, torch.cat([rows] * times, dim=2), rows)[0].mean(1)

    attending = Attending()
    model = Classifier(attending, nn.Linear(6, 3)).eval()
    names = [one.name for one in weight_layers(model, images().images[:2])]
    assert names == [*(f"extractor.attention.{one}" for one in own), "extractor.attention.out_proj", "head"]
    last = attending.attention.out_proj.weight.detach().double()
    assert numbers(model)["weight_rms", str(len(own) + 1)] == pytest.approx(
        float(last.square().mean().sqrt())
    )


def test_large_matrices_have_the_spectral_norm_of_all_their_singular_values():
    weight = torch.randn(90, 130, generator=torch.Generator().manual_seed(0))
    assert spectral_norm(weight) == pytest.approx(float(torch.linalg.svdvals(weight.double())[0]), rel=1e-9)
    assert spectral_norm(weight) == spectral_norm(weight.clone())
    assert spectral_norm(torch.zeros(90, 130)) == 0.0
    mirrored = torch.cat([weight, -weight])
    assert spectral_norm(mirrored) == pytest.approx(math.sqrt(2) * spectral_norm(weight), rel=1e-9)
    assert spectral_norm(torch.full((2, 2), math.nan)) == math.inf


@pytest.mark.parametrize("made", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_reparametrised_layer_is_a_layer(made):
    hidden = made(nn.Linear(36, 16))
    model = Classifier(nn.Sequential(nn.Flatten(), hidden, nn.ReLU()), nn.Linear(16, 3)).eval()
    layers = weight_layers(model, images().images)
    assert [one.name for one in layers] == ["extractor.1", "head"]
    assert torch.equal(layers[0].weight, hidden.weight)


class TestDecay:
    def test_groups_say_who_decays_and_how(self):
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.LayerNorm(4)), nn.Linear(4, 3))
        model.head.bias.requires_grad_(False)
        groups = [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ]
        found = {one.name: one for one in decayed_parameters(model, torch.optim.SGD(groups, lr=0.1))}
        assert (found["head.weight"].how, found["head.weight"].weight_decay) == ("coupled", 0.1)
        assert found["extractor.2.weight"].role == "bias or gain"
        assert {name for name, one in found.items() if one.how == "none"} == {
            "extractor.1.bias", "extractor.2.weight", "extractor.2.bias", "head.bias",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("kind", "how"),
        [
            (torch.optim.SGD, "coupled"),
            (torch.optim.Adam, "coupled"),
            (torch.optim.AdamW, "decoupled"),
            (torch.optim.Adafactor, "decoupled"),
        ],
    )
    def test_p17_what_is_said_is_what_a_step_does(self, kind, how):
        """Without a gradient of the loss: decoupled decay shrinks by lr * decay, coupled goes through step sizes."""
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(2.0)
        optimizer = kind(model.parameters(), lr=0.01, weight_decay=0.1)
        assert decayed_parameters(model, optimizer)[0].how == how
        model.weight.grad = torch.zeros_like(model.weight)
        optimizer.step()
        shrunk = 2.0 * (1 - 0.01 * 0.1)
        # Adam's first step has the length of its step size, whatever the gradient
        assert model.weight.item() == pytest.approx(2.0 - 0.01 if kind is torch.optim.Adam else shrunk)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`threshold`"):
        WeightScale(threshold=0.0)
    with pytest.raises(ValueError, match="`images`"):
        WeightScale(images=0)


def test_every_kind_of_normalisation_is_seen():
    for kind in (nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm, lambda width: nn.GroupNorm(2, width)):
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), kind(12), nn.ReLU())
        layers = weight_layers(Classifier(extractor, nn.Linear(12, 3)).eval(), images().images[:2])
        assert [one.normalised for one in layers] == [True, False]


def test_one_image_whose_logits_are_no_numbers_leaves_the_others_their_scale():
    class Standardised(nn.Module):
        def forward(self, x):
            return torch.where((x == 0).all(dim=(1, 2, 3), keepdim=True), math.nan, x).flatten(1)

    data = gaussian_images(per_class=10)
    first = torch.arange(len(data)) > 0
    model = Classifier(Standardised(), nn.Linear(64, 3))
    black = ImageSet(data.images * first[:, None, None, None], data.labels, data.classes)
    kept = data.subset(first.nonzero().flatten())

    def scale(test):
        made = WeightScale()(model, kept, test).measurements
        return [m.value for m in made if m.name in ("logit_scale", "temperature")]

    assert scale(black) == pytest.approx(scale(kept))
