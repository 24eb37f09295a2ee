"""Several losses at once, in training too."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance import Outputs
from clearance.data import gaussian_images
from clearance.heads import GaussianMixture
from clearance.losses import (
    CenterLoss,
    CrossEntropyLoss,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    SquaredErrorLoss,
    StepUp,
    SumLoss,
)
from clearance.models import Classifier
from clearance.training import EndToEnd, fit


def world():
    draws = torch.Generator().manual_seed(0)
    head = nn.Linear(4, 3)
    features = torch.randn(8, 4, generator=draws)
    return Outputs(features, head(features), head), torch.arange(8) % 3


def test_terms_are_those_of_the_parts_with_their_weights():
    outputs, labels = world()
    parts = {"softmax": CrossEntropyLoss(), "center": CenterLoss(4, 3)}
    found = SumLoss(parts, {"center": 0.5})(outputs, labels).terms
    alone = {name: part(outputs, labels).terms for name, part in parts.items()}
    assert list(found) == ["softmax/cross_entropy", "center/cross_entropy", "center/center"]
    assert torch.equal(found["softmax/cross_entropy"], alone["softmax"]["cross_entropy"])
    torch.testing.assert_close(found["center/center"], 0.5 * alone["center"]["center"])


def test_layers_are_read_once_and_logits_alone_where_all_parts_do():
    margins = [LargeMarginLoss(layers, cross_entropy_weight=0.0) for layers in (("input", "a"), ("a", "b"))]
    assert SumLoss({"one": margins[0], "two": margins[1]}).layers == ("input", "a", "b")
    assert SumLoss({"hinge": HingeLoss(), "softmax": CrossEntropyLoss()}).reads_logits_only
    assert not SumLoss({"hinge": HingeLoss(), "margin": margins[0]}).reads_logits_only


def test_heads_trained_alone_get_the_loss_of_a_single_part():
    hinge = HingeLoss(2.0)
    assert SumLoss({"hinge": hinge}).sample_loss == hinge.sample_loss
    assert SumLoss({"hinge": hinge, "softmax": CrossEntropyLoss()}).sample_loss is None


def test_a_description_holds_no_address():
    """A function of the loss has another one in every process, so that a run would not resume."""
    assert " at 0x" not in repr(SumLoss({"one": SquaredErrorLoss()}))


def test_every_part_is_told_of_a_step():
    outputs, labels = world()
    loss: Any = SumLoss({"center": CenterLoss(4, 3), "mixture": GaussianMixtureLoss(StepUp(0.1, 2, 1, 1))})
    loss.after_step(outputs, labels)
    assert int(loss.parts["mixture"].steps) == 1
    assert loss.parts["center"].centres.abs().sum() > 0


def test_a_mixture_and_a_large_margin_train_together():
    """Under EndToEnd, with the margin at input and features: the features' gradient passes through the mixture."""
    data = gaussian_images(class_count=3, per_class=20, shape=(1, 4, 4))
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh())
    model: Any = Classifier(extractor, GaussianMixture(8, 3, "diagonal"), 0.5, 0.25)
    loss = SumLoss(
        {
            "mixture": GaussianMixtureLoss(0.1, 0.1),
            "margin": LargeMarginLoss(("input", "features"), gamma=0.5, cross_entropy_weight=0.0),
        },
        {"margin": 0.5},
    )
    first = model.head.means.detach().clone()
    result = fit(model, EndToEnd(loss), data, epochs=15, batch_size=20)
    assert result.status.good
    last = result.history[-1]
    assert last["mixture/classification"] < 0.5 * result.history[0]["mixture/classification"]
    assert last["margin/margin"] < result.history[0]["margin/margin"]
    assert not torch.equal(model.head.means, first)


def test_sums_of_nothing_and_unknown_weights_are_refused():
    unnamed: Any = [CrossEntropyLoss()]
    with pytest.raises(TypeError, match=r"`parts` must be losses by name, .*; got list"):
        SumLoss(unnamed)
    with pytest.raises(ValueError, match="at least one loss; got none"):
        SumLoss({})
    with pytest.raises(
        ValueError, match=r"`weights` must be one of 'hinge'; got 'hing'. Did you mean 'hinge'"
    ):
        SumLoss({"hinge": HingeLoss()}, {"hing": 1.0})
    with pytest.raises(ValueError, match="`weights` must be a finite number of at least 0; got -1"):
        SumLoss({"hinge": HingeLoss()}, {"hinge": -1.0})


@pytest.mark.parametrize("name", ["a.b", "", "keys"])
def test_a_sum_takes_losses_under_names(name):
    with pytest.raises(ValueError, match="`parts` must have names"):
        SumLoss({name: HingeLoss()})
    plain: dict = {"a": nn.CrossEntropyLoss()}
    with pytest.raises(TypeError, match="`parts` must hold losses; got CrossEntropyLoss under 'a'"):
        SumLoss(plain)
