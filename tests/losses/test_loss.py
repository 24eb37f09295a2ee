"""The contract's own defaults."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from clearance import LossTerms, Outputs
from clearance.data import gaussian_images
from clearance.losses import LargeMarginLoss, Loss
from clearance.models import Classifier
from clearance.training import EndToEnd, fit


def test_defaults_ask_for_nothing_and_promise_nothing():
    loss = Loss()
    assert tuple(loss.layers) == ()
    assert loss.reads_logits_only is False


def test_what_follows_a_step_is_nothing_by_default():
    loss = Loss()
    loss.after_step(Outputs(torch.zeros(1, 2), torch.zeros(1, 3), torch.nn.Identity()), torch.tensor([0]))
    assert loss.state_dict() == {}


def test_a_loss_without_forward_says_so():
    outputs = Outputs(torch.zeros(1, 2), torch.zeros(1, 3), torch.nn.Identity())
    with pytest.raises(NotImplementedError):
        Loss()(outputs, torch.tensor([0]))


class Returning(Loss):
    """Returns what it was given."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, outputs, labels):
        return self.make(outputs, labels)


def one_step(make):
    data = gaussian_images(per_class=4)
    return fit(Classifier(nn.Flatten(), nn.Linear(64, 3)), EndToEnd(Returning(make)), data, epochs=1)


def test_logits_in_place_of_outputs_are_refused_in_words():
    with pytest.raises(
        TypeError,
        match=r"the first argument of LargeMarginLoss must be model\.outputs\(images, loss\.layers\)",
    ):
        LargeMarginLoss("input")(torch.randn(2, 3), torch.tensor([0, 1]))


def test_a_loss_that_is_no_named_terms_is_refused_in_words():
    with pytest.raises(
        TypeError, match=r"forward of Returning must return LossTerms\(\{'name': loss\}\); got Tensor"
    ):
        one_step(lambda outputs, labels: cross_entropy(outputs.logits, labels))


@pytest.mark.parametrize(("term", "got"), [(torch.zeros(4), r"shape \(4,\)"), (0.5, "float")])
def test_a_term_is_one_number(term, got):
    with pytest.raises(
        ValueError, match=rf"term 'mine' of a loss must be one number, a 0-dim tensor; got {got}"
    ):
        one_step(lambda outputs, labels: LossTerms({"mine": term}))
