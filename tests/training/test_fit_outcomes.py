"""How a run can end, and that it says so at the right step and with the right word."""

import importlib
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.data import ImageSet
from clearance.losses import Loss
from clearance.models import Classifier
from clearance.tensors import LossTerms
from clearance.training import FOCA, EndToEnd, Progress, fit
from clearance.training.fit import untrained_reason
from clearance.vocabulary import Outcome

FIT = importlib.import_module("clearance.training.fit")  # the name in the package is the function


class Failing(Loss):
    """Two terms, of which the second is `value` from the `bad`-th call on."""

    def __init__(self, bad, value):
        super().__init__()
        self.bad, self.value, self.calls = bad, value, 0

    def forward(self, outputs, labels):
        self.calls += 1
        second = outputs.logits.square().mean() * (self.value if self.calls >= self.bad else 1.0)
        return LossTerms({"first": F.cross_entropy(outputs.logits, labels), "second": second})


def test_a_good_run_is_finished_after_all_its_steps(data, make_model):
    told: list[Progress] = []
    result = fit(make_model(), EndToEnd(), data, epochs=30, batch_size=10, on_step=told.append)
    assert result.status.outcome is Outcome.FINISHED
    assert result.status.good
    assert told == [Progress(step, 90) for step in range(1, 91)]
    assert not result.model.training
    assert result.seconds > 0


def test_a_run_is_judged_by_what_its_labels_allow(data, make_model, monkeypatch):
    told = []
    monkeypatch.setattr(FIT, "untrained_reason", lambda *given: told.append(given[2]))
    fit(make_model(), EndToEnd(), data, epochs=1, label_noise=0.25)
    assert told == [0.25]
    with pytest.raises(ValueError, match="`label_noise` must lie"):
        fit(make_model(), EndToEnd(), data, epochs=1, label_noise=1.0)


def test_a_run_that_is_read_back_is_judged_anew_where_other_labels_are_known_to_be_wrong(
    data, make_model, monkeypatch, tmp_path
):
    told = []

    def judged(model, images, noise):
        told.append(noise)
        return None if noise else (Outcome.COLLAPSED, "it is no better than chance")

    monkeypatch.setattr(FIT, "untrained_reason", judged)

    def outcome(**given):
        torch.manual_seed(0)
        return fit(make_model(), EndToEnd(), data, epochs=1, run_dir=tmp_path, **given).status.outcome

    assert outcome() is Outcome.COLLAPSED
    assert outcome() is Outcome.COLLAPSED
    assert told == [0.0]  # as it was judged: nobody looks again
    assert outcome(label_noise=0.25) is Outcome.FINISHED
    assert told == [0.0, 0.25]


def test_on_step_can_stop_a_run(data, make_model, weights, same):
    result = fit(
        make_model(), EndToEnd(), data, epochs=9, batch_size=10,
        on_step=lambda progress: "stop" if progress.step == 4 else "go on",
    )  # fmt: skip
    assert str(result.status) == "stopped at step 4: asked to"
    assert not result.status.good
    assert len(result.history) == 1
    whole = fit(make_model(), EndToEnd(), data, epochs=1, batch_size=10)
    assert result.history == whole.history


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_run_diverges_at_the_step_and_in_the_term_that_is_not_finite(data, make_model, value):
    loss = Failing(5, value)
    result = fit(make_model(), EndToEnd(loss), data, epochs=3, batch_size=10)
    assert str(result.status) == "diverged at step 5: term second is not finite"
    assert loss.calls == 5
    assert [row["step"] for row in result.history] == [3]


def test_a_huge_step_diverges_at_once(data, make_model):
    optimizer = partial(torch.optim.SGD, lr=1e30)
    result = fit(make_model(), EndToEnd(), data, epochs=3, batch_size=10, optimizer=optimizer)
    # the first loss is that of the untouched model
    assert str(result.status) == "diverged at step 2: term cross_entropy is not finite"


def test_weights_that_break_in_the_last_step_count_as_diverged(data, make_model):
    optimizer = partial(torch.optim.SGD, lr=float("inf"))
    result = fit(make_model(), EndToEnd(), data, epochs=1, batch_size=24, optimizer=optimizer)
    assert str(result.status) == "diverged at step 1: the trained weights are not finite"


@pytest.mark.parametrize("bias", [-1.0, 2.5])
@pytest.mark.parametrize("way", [EndToEnd(), FOCA(per_class=2)], ids=["end_to_end", "foca"])
def test_3_5_2_an_extractor_that_gives_all_images_the_same_features_has_collapsed(
    data, make_model, bias, way
):
    model = make_model(nn.ReLU())
    nn.init.zeros_(model.extractor[1].weight)
    nn.init.constant_(model.extractor[1].bias, bias)
    optimizer = partial(torch.optim.SGD, lr=1e-12)
    result = fit(model, way, data, epochs=5, batch_size=10, optimizer=optimizer)
    assert result.status.outcome is Outcome.COLLAPSED
    assert result.status.step == 3  # noticed at the end of the first epoch
    assert "all features are equal" in result.status.reason
    assert "lower the learning rate" in result.status.reason


def test_a_collapse_is_looked_for_every_so_many_steps_where_epochs_are_short(data, make_model, monkeypatch):
    looks: list[None] = []
    monkeypatch.setattr(FIT, "collapse_reason", lambda *_: looks.append(None))
    fit(make_model(), EndToEnd(), data, epochs=40, batch_size=10)
    ends = range(3, 121, 3)
    assert [step for step in ends if FIT._is_checked(step, 3)] == [3, 51, 102]
    assert len(looks) == 3 + 1  # and once at the end, where the finished run is judged
    assert all(FIT._is_checked(step, 100) for step in (100, 200, 250))


def test_features_far_from_zero_that_differ_have_not_collapsed(data):
    torch.manual_seed(0)
    layer = nn.Linear(16, 6)
    nn.init.constant_(layer.bias, 100.0)
    extractor = nn.Sequential(nn.Flatten(), layer)
    model = Classifier(extractor, nn.Linear(6, 3))
    optimizer = partial(torch.optim.SGD, lr=1e-9)
    result = fit(model, EndToEnd(), data, epochs=1, batch_size=10, optimizer=optimizer)
    assert "all features are equal" not in result.status.reason


def test_a_head_that_always_names_one_class_has_collapsed(data):
    head = nn.Linear(16, 3)
    nn.init.zeros_(head.weight)
    model = Classifier(nn.Flatten(), head)
    optimizer = partial(torch.optim.SGD, lr=1e-12)
    result = fit(model, EndToEnd(), data, epochs=2, batch_size=10, optimizer=optimizer)
    assert result.status.outcome is Outcome.COLLAPSED
    assert result.status.step == 6
    assert result.status.reason.startswith("training accuracy 0.333 is no better than always naming")
    assert "(0.333)" in result.status.reason


def tells_the_truth(classes):
    """A network on images that show their true class, one pixel each."""
    head = nn.Linear(classes, classes)
    with torch.no_grad():
        head.weight.copy_(torch.eye(classes))
        head.bias.zero_()
    return Classifier(nn.Flatten(), head).eval()


@pytest.mark.parametrize(("count", "rate"), [(70, 0.8), (70, 0.9), (5000, 0.8)])
def test_who_learnt_the_truth_from_labels_known_to_be_wrong_has_not_collapsed(count, rate):
    truth = torch.arange(count) % 10
    clean = ImageSet(F.one_hot(truth, 10).float().view(-1, 1, 1, 10), truth, tuple("abcdefghij"))
    noisy = clean.with_label_noise(rate, seed=0)
    assert untrained_reason(tells_the_truth(10), noisy, rate) is None
    if count == 70:  # nobody said that these labels are wrong
        assert "no better than always naming" in str(untrained_reason(tells_the_truth(10), noisy))


def test_who_learnt_nothing_from_labels_known_to_be_wrong_has_collapsed():
    truth = torch.arange(5000) % 10
    noisy = ImageSet(F.one_hot(truth, 10).float().view(-1, 1, 1, 10), truth, tuple("abcdefghij"))
    noisy = noisy.with_label_noise(0.8, seed=0)
    blind = tells_the_truth(10)
    with torch.no_grad():
        blind.head.weight.zero_()
    found = untrained_reason(blind, noisy, 0.8)
    assert found is not None
    assert found[0] is Outcome.COLLAPSED


def test_naming_the_largest_class_of_an_uneven_set_is_chance():
    torch.manual_seed(0)
    labels = torch.tensor([0] * 80 + [1] * 20)
    data = ImageSet(torch.rand(100, 1, 2, 2), labels, ("a", "b"))
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 0.0]))
    model = Classifier(nn.Flatten(), head)
    optimizer = partial(torch.optim.SGD, lr=1e-12)
    result = fit(model, EndToEnd(), data, epochs=1, batch_size=50, optimizer=optimizer)
    assert result.status.reason.startswith("training accuracy 0.800 is no better")


def test_learning_little_from_wrong_labels_is_no_collapse():
    """Right on three tenths of the images, where four fifths of the labels say another class: 12 % of those."""
    draw = torch.Generator().manual_seed(0)
    count = 20_000
    true, other, said = (torch.randint(classes, (count,), generator=draw) for classes in (10, 9, 10))
    labels = torch.where(torch.rand(count, generator=draw) < 0.2, true, (true + 1 + other) % 10)
    said = torch.where(torch.rand(count, generator=draw) < 0.22, true, said)
    images = nn.functional.one_hot(said, 10).float().view(count, 1, 1, 10)
    head = nn.Linear(10, 10, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(10))
    data = ImageSet(images, labels, tuple("0123456789"))
    assert untrained_reason(Classifier(nn.Flatten(), head), data) is None
    with torch.no_grad():
        head.weight.copy_(torch.eye(10).roll(1, 0))  # what it says is as often wrong as any guess
    assert untrained_reason(Classifier(nn.Flatten(), head), data) is not None


def test_a_diverged_run_is_not_judged_again(data, make_model):
    result = fit(make_model(), FOCA(Failing(2, float("nan"))), data, epochs=3, batch_size=10)
    assert str(result.status) == "diverged at step 2: term second is not finite"
    assert not result.model.training
