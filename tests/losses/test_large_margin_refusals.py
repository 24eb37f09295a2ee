"""What the large-margin loss refuses, and in which words."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance import Outputs
from clearance.losses import DistanceSettings, GammaQuantile, LargeMarginLoss, margin_distances
from clearance.models import Classifier
from clearance.training import EndToEnd, fit
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    CLASSES,
    HIDDEN,
    images,
    labels,
    smooth_net,
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, "`gamma` must be a finite number above 0; got 0"),
        ({"gamma": -1.0}, "`gamma` must be a finite number above 0"),
        ({"gamma": {"input": 1.0, "logits": 0.0}}, "`gamma` must be a finite number above 0"),
        (
            {"gamma": {"inputs": 1.0}},
            "`gamma` must be one of 'input', 'logits'; got 'inputs'. Did you mean 'input'",
        ),
        ({"gamma": {"input": 1.0}}, r"`gamma` must name every layer or be one number; it lacks \['logits'\]"),
        ({"gamma": {"quantile": 1.0}}, r"`quantile` must lie in \(0, 1\)"),
        ({"gamma": {"quantile": 0.5, "batch": 3}}, "Did you mean 'batches'"),
        ({"norm": 0.5}, "`norm` must be at least 1"),
        ({"norm": math.nan}, "`norm` must be at least 1"),
        ({"top_k": 0}, "`top_k` must be a whole number of at least 1"),
        ({"aggregate": "maximum"}, "`aggregate` must be one of 'max'"),
        ({"score": "logit"}, "Did you mean 'logits'"),
        ({"lower_clip": 0.25}, "`lower_clip` must be a finite number of at least 1, because.*got 0.25"),
        ({"lower_clip": math.inf}, "`lower_clip` must be a finite number"),
        ({"cross_entropy_weight": -1.0}, "`cross_entropy_weight` must be a finite number of at least 0"),
        ({"layer_weights": -1.0}, "`layer_weights` must be a finite number of at least 0"),
        ({"layer_weights": {"input": 1.0}}, "`layer_weights` must name every layer"),
        ({"every": 0}, "`every` must be a whole number of at least 1"),
        ({"every": 2, "cross_entropy_weight": 0.0}, "`every` must be 1 without cross-entropy, because"),
        ({"layers": ()}, "`layers` must name at least one layer, each once"),
        ({"layers": ("input", "input")}, "each once; got"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        LargeMarginLoss(**{"layers": ("input", "logits"), **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"denominator": "ful"}, "Did you mean 'full'"),
        ({"unit": "elements"}, "Did you mean 'element'"),
        ({"sweeps": "batch"}, "Did you mean 'batched'"),
        ({"eps": -1e-6}, "`eps` must be a finite number of at least 0"),
    ],
)
def test_settings_of_distances_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        DistanceSettings(**settings)


def test_how_distances_are_measured_is_a_group_of_settings():
    with pytest.raises(TypeError, match="`distance` must be DistanceSettings; got dict"):
        LargeMarginLoss(("input",), distance={"eps": 0.0})  # type: ignore[arg-type]


def loss_of(model, layers, **settings):
    loss = LargeMarginLoss(layers, **settings)
    return loss(model.outputs(images(), loss.layers), labels()).total


def test_a_layer_that_does_not_exist_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"'extractr\.2'. Did you mean 'extractor.2'"):
        loss_of(smooth_net(), ("input", "extractr.2"))


def test_a_layer_that_runs_twice():
    shared = nn.Linear(9, 9)
    model = Classifier(nn.Sequential(nn.Flatten(), shared, nn.Tanh(), shared), nn.Linear(9, CLASSES)).double()
    with pytest.raises(ValueError, match=r"layer 'extractor\.1' ran twice"):
        loss_of(model, ("extractor.1",))


def test_a_layer_that_the_next_one_overwrites():
    """Silently, the margin would be at what comes out of the ReLU."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(inplace=True))
    model = Classifier(extractor, nn.Linear(6, CLASSES)).double()
    with pytest.raises(ValueError, match=r"'extractor.1' was changed in place.*name the following layer"):
        loss_of(model, ("extractor.1",))
    assert loss_of(model, ("extractor.2",)).isfinite()


def test_an_activation_that_nobody_asked_for():
    loss = LargeMarginLoss(("input", HIDDEN))
    with pytest.raises(ValueError, match=r"must hold the activation of layer 'input'.*loss.layers"):
        loss(smooth_net().outputs(images()), labels())


def test_a_batch_without_a_graph():
    """An evaluation under no_grad; the diagnostic builds its own graph."""
    model, loss = smooth_net(), LargeMarginLoss((HIDDEN,))
    with torch.no_grad():
        outputs = model.outputs(images(), loss.layers)
        with pytest.raises(ValueError, match=r"layer 'extractor.2' carries no graph.*margin_distances"):
            loss(outputs, labels())
        assert margin_distances(model, images(), labels(), (HIDDEN,)).distances[HIDDEN].isfinite().all()


@pytest.mark.parametrize("gradients", [True, False])
def test_the_diagnostic_works_on_frozen_models_and_without_gradients(gradients):
    model = smooth_net()
    expected = margin_distances(model, images(), labels(), ("input", HIDDEN, "features"))
    model.requires_grad_(requires_grad=False)
    with torch.set_grad_enabled(gradients):
        found = margin_distances(model, images(), labels(), ("input", HIDDEN, "features"))
        assert torch.is_grad_enabled() == gradients
    for name, values in found.distances.items():
        assert torch.equal(values, expected.distances[name])
        assert not values.requires_grad


def test_the_diagnostic_refuses_training_mode():
    norm = nn.BatchNorm1d(64)
    part = Classifier(nn.Sequential(nn.Flatten(), norm), nn.Linear(64, 4)).eval()
    norm.train()
    with pytest.raises(ValueError, match="with all its parts"):
        margin_distances(part, torch.rand(6, 1, 8, 8), torch.zeros(6, dtype=torch.long))
    with pytest.raises(ValueError, match=r"`model` must be in evaluation mode.*model.eval\(\)"):
        margin_distances(smooth_net().train(), images(), labels())


def test_an_activation_that_has_no_part_in_the_logits():
    """As behind nn.DataParallel, whose captured tensors are not those that were gathered."""
    model = smooth_net()
    mine, other = (model.outputs(images(), ("input",)) for _ in range(2))
    mixed = Outputs(mine.features, mine.logits, mine.head, other.activations)
    for sweeps in ("sequential", "batched"):
        with pytest.raises(ValueError, match=r"layer 'input' has no part in these logits.*DataParallel"):
            LargeMarginLoss(("input",), top_k=2, distance=DistanceSettings(sweeps=sweeps))(mixed, labels())


class Cut(nn.Module):
    def forward(self, x):
        return x.detach()


@pytest.mark.parametrize("more", [{}, {"distance": DistanceSettings(sweeps="batched")}])
def test_an_activation_that_is_cut_off_before_the_features(more):
    model = smooth_net()
    extractor = nn.Sequential(*model.extractor, Cut())
    cut = Classifier(extractor, model.head, 0.4, 0.5).double()
    with pytest.raises(ValueError, match=r"layer 'input' has no part in these logits.*is not detached"):
        loss_of(cut, ("input",), **{"top_k": 2, **more})


class TimeFirst(nn.Module):
    def forward(self, x):
        return x.flatten(1).mT


class BatchFirst(nn.Module):
    def forward(self, x):
        return x.mT


def test_an_activation_whose_first_axis_is_not_the_batch():
    extractor = nn.Sequential(TimeFirst(), BatchFirst())
    model = Classifier(extractor, nn.Linear(9, CLASSES)).double()
    with pytest.raises(
        ValueError, match=r"first axis of layer 'extractor.0' must count the 6 samples.*\(9, 6\)"
    ):
        loss_of(model, ("extractor.0", "input"))


def test_one_logit_for_two_classes():
    model = Classifier(nn.Flatten(), nn.Linear(9, 1)).double()
    with pytest.raises(
        ValueError, match=r"at least two classes; got \(6, 1\).*give the second class the logit 0"
    ):
        loss_of(model, ("input",))


def test_a_spread_of_one_sample():
    model, loss = smooth_net(), LargeMarginLoss((HIDDEN,), distance=DistanceSettings(unit="spread"))
    with pytest.raises(ValueError, match="'spread' needs at least 2 samples"):
        loss(model.outputs(images(1), (HIDDEN,)), labels(1))


def test_a_compiled_extractor_is_refused_by_fit_with_the_reason():
    model = smooth_net().float()
    data = (images(8).float(), labels(8))
    with pytest.raises(ValueError, match=r"`compile_extractor` must be False with LargeMarginLoss, because"):
        fit(
            model, EndToEnd(LargeMarginLoss(("input",))), data, epochs=1, batch_size=4, compile_extractor=True
        )


def compiled_whole(extractor):
    """torch.compile's wrapper; no code runs, so any backend will do."""
    return torch.compile(extractor, backend="eager"), "extractor._orig_mod.2"


def compiled_in_place(extractor):
    """The module's own method, which keeps names."""
    extractor.compile(backend="eager")
    return extractor, "extractor.2"


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        (compiled_whole, "must not lie in compiled code, because torch.compile keeps no activation"),
        (compiled_in_place, "must not lie in compiled code"),
        (
            lambda e: (nn.DataParallel(e), "extractor.module.2"),
            "must not lie in nn.DataParallel, because.*torch.distributed",
        ),
    ],
)
def test_a_layer_that_runs_as_a_copy(wrapped, message):
    """Of activations that the logits were not made from there is no gradient, or a wrong reason for that."""
    plain = smooth_net()
    extractor, layer = wrapped(plain.extractor)
    model = Classifier(extractor, plain.head, 0.4, 0.5).double().eval()
    with pytest.raises(ValueError, match=f"layer '{layer}' {message}"):
        loss_of(model, ("input", layer))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks at every input's
def test_the_input_of_compiled_and_of_copied_networks_is_no_such_layer():
    """Nor are the features: both stand outside what is compiled or copied."""
    layers = ("input", "features", "logits")
    expected = loss_of(smooth_net(), layers, top_k=2)
    plain = smooth_net()
    copied = Classifier(nn.DataParallel(plain.extractor), plain.head, 0.4, 0.5).double().eval()
    wrapped: Any = torch.compile(plain.extractor, backend="aot_eager")
    compiled = Classifier(wrapped, plain.head, 0.4, 0.5)
    for model in (copied, compiled.double().eval()):
        for sweeps in ("sequential", "batched"):
            found = loss_of(model, layers, top_k=2, distance=DistanceSettings(sweeps=sweeps))
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
            found.backward()
            assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
            model.zero_grad()


def test_quantile_settings():
    with pytest.raises(ValueError, match="`batches` must be a whole number of at least 1"):
        GammaQuantile(batches=0)
