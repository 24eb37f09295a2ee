"""The contract's own defaults."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from clearance import LossTerms, Outputs
from clearance.data import gaussian_images
from clearance.losses import (
    CenterLoss,
    ContrastiveLoss,
    CrossEntropyLoss,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    LargeMarginSoftmaxLoss,
    Loss,
    SquaredErrorLoss,
    SumLoss,
    TripletLoss,
)
from clearance.models import Classifier
from clearance.tensors import GivenOutputs
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


class OfLogits(Loss):
    """Somebody's own loss, which says nothing about what it reads."""

    def forward(self, outputs, labels):
        return LossTerms({"mine": cross_entropy(outputs.logits, labels)})


HEAD, FEATURES, LABELS = (
    nn.Linear(4, 3).requires_grad_(False),
    torch.rand(6, 4),
    torch.tensor([0, 1, 2, 0, 1, 2]),
)


@pytest.mark.parametrize(
    ("loss", "features"),
    [
        (OfLogits(), False),
        (CrossEntropyLoss(), False),
        (HingeLoss(), False),
        (SquaredErrorLoss(), False),
        (SumLoss({"one": CrossEntropyLoss(), "two": HingeLoss()}), False),
        (CenterLoss(4, 3), True),
        (ContrastiveLoss(), True),
        (TripletLoss(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_loss_takes_the_tensors_that_it_reads(loss, features):
    outputs = Outputs(FEATURES, HEAD(FEATURES), HEAD)
    expected = {name: float(term) for name, term in loss(outputs, LABELS).terms.items()}
    plain = (FEATURES, outputs.logits, LABELS)
    assert {name: float(term) for name, term in loss(*plain).terms.items()} == expected
    if features:
        with pytest.raises(
            TypeError, match=r"reads `features`, which were not given; call it with \(features"
        ):
            loss(outputs.logits, LABELS)
    else:
        assert float(loss(outputs.logits, LABELS).total) == float(loss(outputs, LABELS).total)
        assert float(loss(outputs.logits, labels=LABELS).total) == float(loss(outputs, LABELS).total)


@pytest.mark.parametrize("loss", [GaussianMixtureLoss(), LargeMarginSoftmaxLoss()])
def test_a_loss_that_reads_the_head_asks_for_outputs(loss):
    with pytest.raises(
        TypeError, match=r"reads the model's `head`, .*model\.outputs\(images, loss\.layers\)"
    ):
        loss(FEATURES, HEAD(FEATURES), LABELS)


def test_a_margin_at_the_features_needs_only_the_graph_from_them():
    features, gradients = FEATURES.clone().requires_grad_(), []
    loss = LargeMarginLoss(("features",), cross_entropy_weight=0.0)
    for given in ((Outputs(features, HEAD(features), HEAD), LABELS), (features, HEAD(features), LABELS)):
        total = loss(*given).total
        gradients.append([total.detach(), *torch.autograd.grad(total, features)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match="layer 'features' must have a graph to the logits"):
        loss(FEATURES, HEAD(FEATURES).detach(), LABELS)


@pytest.mark.parametrize("given", [(LABELS,), (LABELS, LABELS, LABELS, LABELS)])
def test_other_numbers_of_tensors_are_refused_in_words(given):
    with pytest.raises(TypeError, match=rf"\(features, logits, labels\); got {len(given)} arguments"):
        CrossEntropyLoss()(*given)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (HEAD, r"got Linear first\. Call it first: loss\(model\(images\), labels\)"),
        (HEAD(FEATURES).numpy(), "got ndarray first. An array has no graph"),
        ((HEAD(FEATURES),), "got tuple first"),
        ({"logits": HEAD(FEATURES)}, "got dict first"),
        (Outputs, "got type first"),
        (None, "got NoneType first"),
    ],
    ids=["module", "array", "tuple", "dict", "class", "none"],
)
def test_what_has_no_logits_is_refused_with_the_remedy(given, remedy):
    with pytest.raises(TypeError, match=rf"\(model\.outputs\(images, loss\.layers\), labels\).*{remedy}"):
        CrossEntropyLoss()(given, LABELS)


def test_labels_before_logits_are_refused():
    with pytest.raises(
        ValueError, match=r"shape \(B, C\), or .*; got \(6,\)\. The order is \(logits, labels\)"
    ):
        CrossEntropyLoss()(LABELS, HEAD(FEATURES))


def test_logits_of_images_are_refused_in_words():
    with pytest.raises(ValueError, match=r"\(K, B, C\) of several heads; got \(3, 4, 5, 5\)"):
        CrossEntropyLoss()(torch.zeros(3, 4, 5, 5), torch.zeros(3, dtype=torch.int64))


def test_labels_that_other_losses_ignore_are_refused_in_words():
    with pytest.raises(ValueError, match="Leave samples out that have no class: no label is ignored"):
        CrossEntropyLoss()(torch.zeros(2, 3), torch.tensor([0, -100]))


def test_given_outputs_can_be_kept_without_their_graph():
    logits = torch.zeros(2, 3, requires_grad=True)
    for given in (GivenOutputs(logits), GivenOutputs(logits, logits)):
        kept = given.detached()
        assert not kept.logits.requires_grad
        assert repr(kept) == repr(given)
    assert (given == kept) is False


def test_activations_that_tensors_cannot_hold_are_asked_for():
    with pytest.raises(
        ValueError, match=r"layer 'input'; got tensors alone\. Call the loss with model\.outputs"
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


def test_the_total_may_be_read_without_gradients_before_it_is_differentiated():
    logits = torch.zeros(8, 4, requires_grad=True)
    terms = CrossEntropyLoss()(logits, torch.arange(8) % 4)
    fresh = LossTerms(terms.terms)
    with torch.no_grad():
        assert float(fresh.total) == pytest.approx(math.log(4))
    fresh.total.backward()
    assert logits.grad is not None


class Distilled(Loss):
    """A frozen teacher, and layers that are trained."""

    def __init__(self):
        super().__init__()
        self.teacher = (
            nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)).eval().requires_grad_(False)
        )
        self.projection = nn.Sequential(nn.Dropout(), nn.Linear(10, 10))

    def forward(self, outputs, labels):
        wanted = self.teacher(outputs.images).softmax(dim=1)
        return LossTerms({"kd": nn.functional.cross_entropy(self.projection(outputs.logits), wanted)})


def test_a_frozen_teacher_keeps_its_mode_and_what_is_trained_does_not():
    loss = Distilled().eval()
    loss.train()
    assert [part.training for part in (loss, loss.projection[0], loss.teacher, loss.teacher[1])] == [
        True, True, False, False,
    ]  # fmt: skip
    loss.teacher.train()  # as a module is made
    loss.eval()
    assert [part.training for part in (loss, loss.projection[0], loss.teacher[1])] == [False, False, False]


def test_parts_of_a_sum_beside_a_frozen_teacher_change_their_mode():
    class Teaching(Distilled):
        def __init__(self):
            super().__init__()
            self.projection = nn.Sequential(nn.Dropout())

    loss = SumLoss({"kd": Teaching(), "hinge": HingeLoss()}).eval()
    kd, hinge = loss.parts["kd"], loss.parts["hinge"]
    assert [part.training for part in (kd, kd.projection[0], kd.teacher, hinge)] == [False] * 4  # type: ignore[index,union-attr]
    loss.train()
    assert [part.training for part in (kd, kd.projection[0], kd.teacher, hinge)] == [True, True, False, True]  # type: ignore[index,union-attr]


def test_tensors_may_be_given_by_name():
    features, logits, labels = torch.randn(4, 2), torch.randn(4, 3), torch.arange(4) % 3
    loss = CrossEntropyLoss()
    expected = loss(logits, labels).total
    assert torch.equal(loss(logits=logits, labels=labels).total, expected)
    assert torch.equal(loss(labels=labels, logits=logits, features=features).total, expected)
    assert torch.equal(loss(outputs=logits, labels=labels).total, expected)
    outputs = Outputs(features, logits, nn.Identity())
    assert torch.equal(loss(outputs=outputs, labels=labels).total, expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [CrossEntropyLoss, HingeLoss])
def test_gradients_of_single_samples_by_vmap(kind, training):
    torch.manual_seed(0)
    net, loss = nn.Linear(4, 3), kind().train(training)
    images, labels = torch.randn(5, 4), torch.arange(5) % 3

    def one(weights, image, label):
        return loss(functional_call(net, weights, image[None]), label[None]).total

    found = vmap(grad(one), (None, 0, 0))(dict(net.named_parameters()), images, labels)
    for i in range(5):
        net.zero_grad()
        loss(net(images[i : i + 1]), labels[i : i + 1]).total.backward()
        torch.testing.assert_close(found["weight"][i], net.weight.grad)


@pytest.mark.parametrize(
    ("loss", "name"),
    [(GaussianMixtureLoss(0.1), "alpha"), (LargeMarginSoftmaxLoss(4, 0.5), "softmax_weight")],
)
def test_a_setting_may_be_changed_to_a_whole_number(loss, name):
    setattr(loss, name, 1)
    assert getattr(loss, f"current_{name}") == 1.0
