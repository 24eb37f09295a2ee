"""The loop: batch order, schedule, steps, bounds, precision, history, and how a run can end."""

import copy
import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation, ImageSet, gaussian_images
from clearance.data.digits import read_digits
from clearance.data.stored import StoredImageSet, write_pixels
from clearance.data.synthetic import GaussianClasses
from clearance.heads import MLP, GaussianMixture, GradientHeads, HeadTraining, mixture_groups
from clearance.losses import (
    CrossEntropyLoss,
    GammaQuantile,
    GaussianMixtureLoss,
    LargeMarginLoss,
    Loss,
    TrainingWarning,
)
from clearance.models import Classifier, small_cnn
from clearance.training import FOCA, EndToEnd, Execution, Limits, fit
from clearance.training.fit import Progress
from clearance.vocabulary import Outcome

PLAIN = partial(torch.optim.SGD, lr=0.1)
WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=4.0, noise=0.03)


class Recorder(Loss):
    """Cross-entropy that notes which images it saw and what it returned."""

    layers = ("input",)

    def __init__(self):
        super().__init__()
        self.batches = []
        self.losses = []

    def forward(self, outputs, labels):
        loss = F.cross_entropy(outputs.logits, labels)
        self.batches.append((outputs.activations["input"][:, 0, 0, 0].detach() * 100).round().int().tolist())
        self.losses.append(float(loss.detach()))
        return LossTerms({"cross_entropy": loss})


def numbered(count):
    """Images that carry their number in every pixel."""
    images = (torch.arange(count) / 100).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()
    return ImageSet(images, torch.arange(count) % 2, ("a", "b"))


def tiny(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 4)), MLP((4, 3, 2), dropout=dropout))


def batches_of(count, batch_size, epochs=2, seed=0, **settings):
    loss = Recorder()
    way = settings.pop("way", EndToEnd)(loss)
    result = fit(
        settings.pop("model", tiny()), way, numbered(count), epochs=epochs, batch_size=batch_size,
        seed=seed, **settings,
    )  # fmt: skip
    return loss.batches, result


@pytest.mark.parametrize(
    ("count", "batch_size", "sizes"),
    [(12, 4, [4, 4, 4]), (10, 4, [4, 4, 2]), (9, 4, [4, 4]), (3, 1, [1, 1, 1]), (5, 99, [5]), (2, 2, [2])],
)
def test_an_epoch_is_a_permutation_without_a_lone_last_image(count, batch_size, sizes):
    batches, result = batches_of(count, batch_size, epochs=3)
    assert [len(batch) for batch in batches] == sizes * 3
    assert result.status.step == 3 * len(sizes)
    for epoch in range(3):
        seen = [i for batch in batches[epoch * len(sizes) : (epoch + 1) * len(sizes)] for i in batch]
        assert len(set(seen)) == len(seen) == sum(sizes)
        assert set(seen) <= set(range(count))


def test_epochs_differ_and_leave_out_different_images():
    batches, _ = batches_of(9, 4, epochs=12)
    left = {(set(range(9)) - set(batches[e] + batches[e + 1])).pop() for e in range(0, 24, 2)}
    assert len(left) > 3
    assert batches[:2] != batches[2:4]


def test_the_order_depends_on_the_seed_alone():
    torch.manual_seed(0)
    expected, _ = batches_of(11, 4)
    torch.manual_seed(1)  # the caller's own generator plays no part
    for settings in (
        {"optimizer": partial(torch.optim.Adam, lr=0.3)},
        {"model": tiny(5)},
        {"limits": Limits(clip_norm=0.1)},
        {"way": lambda loss: EndToEnd(loss, head_noise=0.3)},
        {"way": lambda loss: FOCA(loss, per_class=2)},
        {"model": tiny(dropout=0.5)},
    ):
        assert batches_of(11, 4, **settings)[0] == expected
    assert batches_of(11, 4, epochs=1)[0] == expected[:3]
    assert batches_of(11, 4, seed=1)[0] != expected


def test_a_set_with_too_few_images_for_a_step_is_refused():
    with pytest.raises(ValueError, match="`train` must hold at least 2 images; got 1"):
        fit(tiny(), EndToEnd(), numbered(12).subset(torch.tensor([3])), epochs=1)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "checkpoint_every"])
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        fit(tiny(), EndToEnd(), numbered(4), **({"epochs": 1} | {name: 0}))


@pytest.mark.parametrize("name", ["clip_norm", "max_norm"])
def test_limits_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        Limits(**{name: 0.0})


def test_the_schedule_is_stepped_once_an_epoch_after_it(data, make_model):
    model, ends = make_model(), []
    result = fit(
        model,
        EndToEnd(),
        data,
        epochs=4,
        batch_size=5,
        optimizer=partial(torch.optim.SGD, lr=0.1),
        schedule=lambda o: torch.optim.lr_scheduler.LambdaLR(o, [1.0, 0.5, 0.0, 0.0, 9.0].__getitem__),
        on_step=lambda progress: ends.append(copy.deepcopy(model.state_dict())),
    )
    assert [row["lr"] for row in result.history] == [0.1, 0.05, 0.0, 0.0]
    weight = [end["head.0.weight"] for end in ends]
    assert not torch.equal(weight[8], weight[9])  # epoch 2 still moves
    assert all(torch.equal(weight[9], later) for later in weight[10:])


def test_where_updates_are_counted_the_schedule_is_stepped_after_each(data, make_model):
    """So that its course does not depend on how many images there are; 20 images make four updates an epoch."""
    for images, at_ends in ((20, [0.6, 0.2, 0.1]), (10, [0.8, 0.6, 0.4, 0.2, 0.1])):
        model = make_model()
        some = data.subset(torch.arange(images))
        result = fit(
            model,
            EndToEnd(),
            some,
            steps=9,
            batch_size=5,
            optimizer=partial(torch.optim.SGD, lr=1.0),
            schedule=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: (9 - step) / 10),
        )
        assert [row["lr"] for row in result.history] == pytest.approx(at_ends)


def test_history_holds_means_rates_and_the_validation_error(data, make_model):
    loss = Recorder()
    model = make_model(nn.BatchNorm1d(6), nn.Dropout(0.5))
    held_out = data.subset(torch.tensor([0, 3, 9, 12, 17, 20, 23]))
    wrong = ImageSet(
        held_out.images, (held_out.labels + torch.tensor([0, 1, 0, 0, 0, 0, 0])) % 3, data.classes
    )
    result = fit(model, EndToEnd(loss), data, epochs=3, batch_size=10, validation=wrong, optimizer=PLAIN)
    assert [list(row) for row in result.history] == [
        ["epoch", "step", "lr", "cross_entropy", "validation_error"]
    ] * 3
    assert [(row["epoch"], row["step"], row["lr"]) for row in result.history] == [
        (1, 3, 0.1), (2, 6, 0.1), (3, 9, 0.1)
    ]  # fmt: skip
    for epoch, row in enumerate(result.history):
        assert row["cross_entropy"] == pytest.approx(sum(loss.losses[3 * epoch : 3 * epoch + 3]) / 3)
    errors = result.model(wrong.images).argmax(dim=1) != wrong.labels
    assert result.history[-1]["validation_error"] == float(errors.double().mean())
    assert result.history[-1]["validation_error"] > 0


def test_validating_changes_nothing_in_training(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    fit(models[0], EndToEnd(), data, epochs=3, batch_size=10)
    fit(models[1], EndToEnd(), data, epochs=3, batch_size=10, validation=data)
    assert same(weights(models[0]), weights(models[1]))


QUICK = GradientHeads(HeadTraining(steps=5, lr=0.05))


@pytest.mark.parametrize(
    "way",
    [
        EndToEnd(head_noise=0.1),
        FOCA(weak_heads=QUICK, per_class=2, heads=2, reuse=2, final_head=HeadTraining(steps=20)),
    ],
)
def test_a_seed_decides_every_bit(data, make_model, weights, same, way):
    augmented = data.augmented(Augmentation(flip=True, pad=1))

    def trained(seed, callers_seed):
        model = make_model(nn.Dropout(0.3), dropout=0.3)
        torch.manual_seed(callers_seed)
        result = fit(model, way, augmented, epochs=3, batch_size=7, seed=seed)
        return weights(model), result.history

    first, history = trained(7, callers_seed=0)
    again, history_again = trained(7, callers_seed=1)
    other, _ = trained(8, callers_seed=0)
    assert same(first, again)
    assert history == history_again
    assert not any(torch.equal(first[name], other[name]) for name in first if name.endswith("weight"))


def test_a_model_in_evaluation_mode_is_trained_all_the_same(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    fit(models[0].train(), EndToEnd(), data, epochs=2, batch_size=8)
    fit(models[1].eval(), EndToEnd(), data, epochs=2, batch_size=8)
    assert same(weights(models[0]), weights(models[1]))
    assert int(weights(models[1])["extractor.2.num_batches_tracked"]) == 6


def test_what_follows_foca_resumes_after_it_was_read_back(data, make_model, tmp_path):
    def both():
        model = make_model()
        fit(model, FOCA(weak_heads=QUICK, per_class=2), data, epochs=1, batch_size=8, run_dir=tmp_path / "a")
        return fit(model, EndToEnd(), data, epochs=1, batch_size=8, run_dir=tmp_path / "b")

    assert both().history == both().history


@pytest.mark.parametrize("ending", ["finished", "raises"])
def test_the_callers_random_numbers_are_untouched(data, make_model, ending):
    class Failing(CrossEntropyLoss):
        def forward(self, outputs, labels):
            torch.rand(3)
            if ending == "raises":
                raise RuntimeError("no loss today")
            return super().forward(outputs, labels)

    model = make_model(nn.Dropout(0.5))
    torch.manual_seed(123)
    before = torch.get_rng_state()
    if ending == "raises":
        with pytest.raises(RuntimeError, match="no loss today"):
            fit(model, EndToEnd(Failing()), data, epochs=2, batch_size=8)
    else:
        fit(model, FOCA(Failing(), per_class=2), data, epochs=2, batch_size=8)
    assert torch.equal(torch.get_rng_state(), before)


def test_fit_takes_tensors_and_datasets_too(data, make_model, weights, same):
    models = [make_model() for _ in range(3)]
    pairs = [(data.images[i], int(data.labels[i])) for i in range(len(data))]
    for model, form in zip(models, (data, (data.images, data.labels), pairs), strict=True):
        fit(model, EndToEnd(), form, epochs=1, batch_size=8, validation=form)
    assert same(weights(models[0]), weights(models[1]))
    assert same(weights(models[0]), weights(models[2]))


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (nn.DataParallel, r"got DataParallel\. Give its `\.module`; under torchrun"),
        (
            lambda m: torch.compile(m, backend="eager"),
            r"got OptimizedModule\. Give its `\._orig_mod`, and fit's execution",
        ),
        (lambda m: m.extractor, r"got Sequential\. Make one with clearance\.wrap\(module"),
    ],
)
def test_what_is_no_classifier_is_refused_with_the_way_to_one(data, make_model, wrapper, message):
    with pytest.raises(TypeError, match=f"`model` must be a clearance Classifier; {message}"):
        fit(wrapper(make_model()), EndToEnd(), data, epochs=1)


# Training for a number of steps, and sets that are looked at after every epoch.


def test_steps_cut_the_last_pass_short(data, make_model):
    """24 images, 10 a step: three steps an epoch; seven are two epochs and a third of one."""
    result = fit(make_model(), EndToEnd(), data, steps=7, batch_size=10)
    assert result.status.step == 7
    assert [(row["epoch"], row["step"]) for row in result.history] == [(1, 3), (2, 6), (3, 7)]


def test_as_far_as_they_go_steps_and_epochs_are_the_same_training(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    by_epoch = fit(models[0], EndToEnd(), data, epochs=2, batch_size=10)
    by_step = fit(models[1], EndToEnd(), data, steps=6, batch_size=10)
    assert same(weights(models[0]), weights(models[1]))
    assert by_epoch.history == by_step.history


def test_the_mean_of_a_short_pass_is_over_its_own_steps(data, make_model):
    """At step size 0 the loss of one step in a pass of one is that of its ten images alone."""
    still: dict[str, Any] = {
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        "batch_size": 12,
    }
    long = fit(make_model(), EndToEnd(), data, steps=4, **still).history
    short = fit(make_model(), EndToEnd(), data, steps=3, **still).history
    assert long[0] == short[0]
    assert short[1]["cross_entropy"] == pytest.approx(long[1]["cross_entropy"], rel=0.5)
    assert short[1]["cross_entropy"] != long[1]["cross_entropy"]
    assert short[1]["cross_entropy"] > 0.6 * short[0]["cross_entropy"]  # and not half of it


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ({}, "one of `epochs` and `steps` must be given, not both; got epochs=None and steps=None"),
        ({"epochs": 1, "steps": 1}, "one of `epochs` and `steps` must be given"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1"),
    ],
)
def test_one_length_is_needed(data, make_model, length, message):
    with pytest.raises(ValueError, match=message):
        fit(make_model(), EndToEnd(), data, **length)


def test_a_run_of_other_steps_is_another_run(data, make_model, tmp_path):
    fit(make_model(), EndToEnd(), data, steps=2, run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="steps"):
        fit(make_model(), EndToEnd(), data, steps=3, run_dir=tmp_path / "run")


class Killed(Exception):  # noqa: N818 - stands for the end of the process
    pass


def test_a_killed_run_of_steps_ends_the_same(data, make_model, weights, same, tmp_path):
    def train(folder, end=None):
        def on_step(progress):
            assert progress.steps == 8
            if progress.step == end:
                raise Killed

        model = make_model(nn.Dropout(0.5))
        kept = {"run_dir": folder, "checkpoint_every": 2, "validation": {"test": data}}
        result = fit(model, EndToEnd(), data, steps=8, batch_size=10, on_step=on_step, **kept)
        return weights(model), result.history

    straight = train(tmp_path / "straight")
    with pytest.raises(Killed):
        train(tmp_path / "killed", 7)
    again = train(tmp_path / "killed")
    assert same(again[0], straight[0])
    assert again[1] == straight[1]


def test_watched_sets_are_measured_and_change_nothing(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    fit(models[0], EndToEnd(), data, epochs=2, batch_size=10)
    few = data.subset(torch.tensor([0, 5, 11, 17, 23]))
    found = fit(
        models[1], EndToEnd(), data, epochs=2, batch_size=10, validation={"validation": data, "test": few}
    )
    assert same(weights(models[0]), weights(models[1]))
    assert list(found.history[0])[-2:] == ["validation_error", "test_error"]
    wrong = models[1](few.images).argmax(dim=1) != few.labels
    assert found.history[-1]["test_error"] == float(wrong.double().mean())


def test_a_head_that_is_not_in_use_yet_is_not_measured(data, make_model):
    found = fit(make_model(), FOCA(per_class=2), data, steps=3, batch_size=10, validation={"test": data})
    assert all("test_error" not in row for row in found.history)


# Bounds on gradients and weights, against bounds by hand.


def test_clip_norm_bounds_the_whole_gradient_and_keeps_its_direction(data, make_model):
    def moved(bound):
        model = make_model()
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        fit(model, EndToEnd(), data, epochs=1, batch_size=24, optimizer=PLAIN, limits=Limits(clip_norm=bound))
        return (before - nn.utils.parameters_to_vector(model.parameters()).detach()) / 0.1

    free = moved(None)
    size = float(free.norm())
    assert size > 0.01
    torch.testing.assert_close(moved(size / 4), free / 4, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(moved(size * 2), free, rtol=1e-6, atol=1e-7)


def test_clip_norm_comes_before_momentum(data, make_model):
    model = make_model()
    sizes = []
    last = nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    def note(progress):
        nonlocal last
        now = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        sizes.append(float((now - last).norm()))
        last = now

    fit(model, EndToEnd(), data, epochs=2, batch_size=24, limits=Limits(clip_norm=1e-3), on_step=note,
        optimizer=partial(torch.optim.SGD, lr=1.0, momentum=0.9))  # fmt: skip
    assert sizes == pytest.approx([1e-3, 1.9e-3], rel=0.01)


def test_max_norm_bounds_every_unit_after_every_step():
    torch.manual_seed(0)
    head: Any = MLP((1024, 3, 2))
    model = Classifier(small_cnn(1, 8), head)
    data = ImageSet(torch.rand(6, 1, 8, 8), torch.arange(6) % 2, ("a", "b"))
    with torch.no_grad():
        head[0].bias.fill_(7.0)
    free = copy.deepcopy(model)
    fit(free, EndToEnd(), data, epochs=1, batch_size=6, optimizer=PLAIN)
    norms: list[float] = []

    def note(progress):
        norms.extend(float(p.detach().flatten(1).norm(dim=1).max()) for p in model.parameters() if p.ndim > 1)

    fit(
        model,
        EndToEnd(),
        data,
        epochs=1,
        batch_size=6,
        optimizer=PLAIN,
        limits=Limits(max_norm=0.9),
        on_step=note,
    )
    assert len(norms) == 5
    assert max(norms) <= 0.9 * (1 + 1e-6)
    for (name, bounded), loose in zip(model.named_parameters(), free.parameters(), strict=True):
        expected = loose.detach().clone()
        if expected.ndim > 1:
            for unit in expected:  # a row, or a filter
                unit *= min(1.0, 0.9 / float(unit.norm()))
        torch.testing.assert_close(bounded.detach(), expected, rtol=1e-6, atol=1e-8, msg=name)
    assert float(head[0].bias.detach().min()) > 6.0  # a bias is no incoming weight


def test_max_norm_bounds_filters_in_any_layout_of_memory():
    torch.manual_seed(0)
    data = gaussian_images(class_count=3, per_class=8, shape=(3, 4, 4))
    filters = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        filters.weight.mul_(10)
    model = Classifier(nn.Sequential(filters, nn.Flatten()), nn.Linear(16, 3))
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fit(model, EndToEnd(), data, epochs=1, batch_size=24, optimizer=PLAIN, limits=Limits(max_norm=0.5))
    torch.testing.assert_close(filters.weight.detach().flatten(1).norm(dim=1), torch.full((4,), 0.5))
    assert not filters.weight.is_contiguous()


def test_max_norm_leaves_alone_what_is_no_units_weights():
    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.full((1, 2, 3, 3), 4.0))
            self.filters = nn.Conv2d(1, 2, 2)

        def forward(self, images):
            return (self.filters(images) + self.place).flatten(1)

    data = gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))
    model = Classifier(placed := Placed(), nn.Linear(18, 3))
    fit(model, EndToEnd(), data, steps=1, batch_size=24, optimizer=PLAIN, limits=Limits(max_norm=0.2))
    assert float(placed.place.detach().norm()) > 10
    assert float(placed.filters.weight.detach().flatten(1).norm(dim=1).max()) <= 0.2 * (1 + 1e-6)


def test_max_norm_under_foca_leaves_heads_alone(data, make_model):
    model = make_model()
    fit(model, FOCA(per_class=2), data, epochs=1, batch_size=8, limits=Limits(max_norm=0.3))
    assert float(model.extractor[1].weight.detach().norm(dim=1).max()) <= 0.3 * (1 + 1e-6)
    assert float(model.head[0].weight.detach().norm(dim=1).max()) > 0.3


# How a run can end, and that it says so at the right step and with the right word.


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
    progress: list[Progress] = []
    result = fit(make_model(), EndToEnd(), data, epochs=30, batch_size=10, on_step=progress.append)
    assert result.status.outcome is Outcome.FINISHED
    assert result.status.good
    assert progress == [Progress(step, 90) for step in range(1, 91)]
    assert not result.model.training
    assert result.seconds > 0


def test_a_run_is_judged_by_what_its_labels_allow_also_where_it_is_read_back(tmp_path):
    """Who learnt the truth is right on a fifth of labels of which four fifths are wrong: known to be, it is well."""
    data = shows_the_truth(70).with_label_noise(0.8, seed=0)
    assert judged(tells_the_truth(10), data, run_dir=tmp_path).outcome is Outcome.COLLAPSED
    assert judged(tells_the_truth(10), data, run_dir=tmp_path).outcome is Outcome.COLLAPSED
    assert judged(tells_the_truth(10), data, run_dir=tmp_path, label_noise=0.8).outcome is Outcome.FINISHED
    with pytest.raises(ValueError, match="`label_noise` must lie"):
        judged(tells_the_truth(10), data, label_noise=1.0)


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


def test_on_epoch_gets_the_rows_and_can_stop_a_run(data, make_model):
    rows = []

    def note(row):
        rows.append(row)
        return "stop" if row["validation_error"] < 1 and row["epoch"] == 2 else None

    result = fit(make_model(), EndToEnd(), data, epochs=9, batch_size=10, validation=data, on_epoch=note)
    assert rows == result.history
    assert [row["epoch"] for row in rows] == [1, 2]
    assert str(result.status) == f"stopped at step {rows[-1]['step']}: asked to"

    def give_up(row):
        raise KeyError(row["epoch"])

    with pytest.raises(KeyError, match="1"):
        fit(make_model(), EndToEnd(), data, epochs=9, batch_size=10, on_epoch=give_up)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_run_diverges_at_the_step_and_in_the_term_that_is_not_finite(data, make_model, value):
    loss = Failing(5, value)
    result = fit(make_model(), EndToEnd(loss), data, epochs=3, batch_size=10)
    assert str(result.status) == "diverged at step 5: term second is not finite"
    assert loss.calls == 5
    assert [row["step"] for row in result.history] == [3]


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
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


@pytest.mark.parametrize(("broken_at", "noticed_at"), [(1, 3), (4, 51), (52, 102), (103, 120)])
@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_collapse_is_looked_for_every_so_many_steps_where_epochs_are_short(
    data, make_model, broken_at, noticed_at
):
    """Epochs of 3 steps: at the end of the first, then about every 50 steps, and of the finished run."""
    model = make_model()

    def break_it(progress):
        if progress.step >= broken_at:
            nn.init.zeros_(model.extractor[1].weight)

    still = partial(torch.optim.SGD, lr=1e-12)
    result = fit(model, EndToEnd(), data, epochs=40, batch_size=10, optimizer=still, on_step=break_it)
    assert "all features are equal" in result.status.reason
    assert result.status.step == noticed_at


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
    assert result.status.reason.startswith("training accuracy 0.333 is not clearly better than always naming")
    assert "(0.333)" in result.status.reason


def tells_the_truth(classes):
    """A network on images that show their true class, one pixel each."""
    head = nn.Linear(classes, classes)
    with torch.no_grad():
        head.weight.copy_(torch.eye(classes))
        head.bias.zero_()
    return Classifier(nn.Flatten(), head).eval()


def judged(model, data, **given):
    """How a run ends that trains for a step and moves nothing."""
    still = partial(torch.optim.SGD, lr=1e-30)
    return fit(model, EndToEnd(), data, steps=1, optimizer=still, **given).status


def shows_the_truth(count):
    """Ten classes in turn, one pixel each."""
    truth = torch.arange(count) % 10
    return ImageSet(F.one_hot(truth, 10).float().view(-1, 1, 1, 10), truth, tuple("abcdefghij"))


@pytest.mark.parametrize(("count", "rate"), [(70, 0.8), (70, 0.9), (5000, 0.8)])
def test_who_learnt_the_truth_from_labels_known_to_be_wrong_has_not_collapsed(count, rate):
    noisy = shows_the_truth(count).with_label_noise(rate, seed=0)
    assert judged(tells_the_truth(10), noisy, label_noise=rate).good
    if count == 70:  # nobody said that these labels are wrong
        assert "not clearly better than always naming" in judged(tells_the_truth(10), noisy).reason


def test_who_learnt_nothing_from_labels_known_to_be_wrong_has_collapsed():
    noisy = shows_the_truth(5000).with_label_noise(0.8, seed=0)
    blind = tells_the_truth(10)
    with torch.no_grad():
        blind.head.weight.zero_()
    assert judged(blind, noisy, label_noise=0.8).outcome is Outcome.COLLAPSED


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
    assert result.status.reason.startswith("training accuracy 0.800 is not clearly better")


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
    assert judged(Classifier(nn.Flatten(), head), data).good
    with torch.no_grad():
        head.weight.copy_(torch.eye(10).roll(1, 0))  # what it says is as often wrong as any guess
    assert judged(Classifier(nn.Flatten(), head), data).outcome is Outcome.COLLAPSED


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_diverged_run_is_not_judged_again(data, make_model):
    result = fit(make_model(), FOCA(Failing(2, float("nan"))), data, epochs=3, batch_size=10)
    assert str(result.status) == "diverged at step 2: term second is not finite"
    assert not result.model.training


# How the extractor runs during steps: in mixed precision, or compiled.


class Watching(CrossEntropyLoss):
    """Notes what reaches the loss."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def forward(self, outputs, labels):
        self.dtypes |= {outputs.features.dtype, outputs.logits.dtype}
        return super().forward(outputs, labels)


def inside(model):
    """The dtypes that the extractor's linear layer gives."""
    dtypes = []
    model.extractor[1].register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    return dtypes


def test_heads_are_trained_in_float32_while_the_extractor_runs_in_bfloat16(data, watched, make_model):
    model, spy, loss = make_model(), watched(), Watching()
    dtypes = inside(model)
    way = FOCA(loss, spy, per_class=2, heads=2, pool=12)
    steps = []
    result = fit(
        model, way, data, epochs=2, batch_size=12, execution=Execution(autocast=torch.bfloat16),
        on_step=lambda progress: steps.append(list(dtypes)),
    )  # fmt: skip
    assert set(steps[0]) == {torch.bfloat16}
    assert dtypes[-1] == torch.float32  # finish and evaluation
    assert loss.dtypes == {torch.float32}
    for features, _, trained in spy.calls:
        assert features.dtype == torch.float32
        assert {value.dtype for value in trained.stack.parameters.values()} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert result.status.step == 4


def test_the_callers_own_autocast_does_not_reach_the_training_of_heads(data, watched, make_model, sgd):
    made = []
    for autocast in (False, True):
        model, spy = make_model(), watched()
        with torch.no_grad():
            model.extractor[1].weight.zero_()  # features are the biases, which bfloat16 holds exactly
            model.extractor[1].bias.copy_(torch.tensor([1.0, 2, 4, 0.5, 0.25, 8]))
        way = FOCA(weak_heads=spy, per_class=2)
        training = way.start(model, data, sgd(way, model), way.generators(0))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            training.step(data.images, data.labels)
        assert spy.calls[0][0].dtype == torch.float32
        made.append(spy.calls[0][2].stack.parameters)
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


@pytest.mark.parametrize("way", [EndToEnd, partial(FOCA, per_class=2)])
def test_mixed_precision_is_close_to_full_precision_and_not_the_same(data, make_model, weights, way):
    moved = []
    for autocast in (None, torch.bfloat16):
        model = make_model()
        fit(model, way(), data, epochs=1, batch_size=12, execution=Execution(autocast=autocast))
        moved.append(weights(model)["extractor.1.weight"])
    start = weights(make_model())["extractor.1.weight"]
    difference, distance = (moved[0] - moved[1]).norm(), (moved[0] - start).norm()
    assert 0 < float(difference) < 0.3 * float(distance)


@pytest.mark.parametrize("wrong", [torch.float16, torch.float32, torch.float64])
def test_other_precisions_are_refused(data, make_model, wrong):
    with pytest.raises(ValueError, match=f"`autocast` must be torch.bfloat16 or None; got {wrong}"):
        fit(make_model(), EndToEnd(), data, epochs=1, execution=Execution(autocast=wrong))


def test_precision_is_part_of_a_runs_fingerprint(data, make_model, tmp_path):
    train = partial(fit, way=EndToEnd(), train=data, epochs=1, run_dir=tmp_path / "run")
    train(make_model())
    with pytest.raises(ValueError, match="autocast"):
        train(make_model(), execution=Execution(autocast=torch.bfloat16))


def test_a_compiled_extractor_gives_the_same_training(data, make_model, weights, monkeypatch):
    graphs = []

    def backend(graph, example):
        del example
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    trained = []
    for compiled in (False, True):
        model = make_model(nn.BatchNorm1d(6), nn.ReLU())
        way = FOCA(per_class=2, heads=2, reuse=2)
        fit(model, way, data, epochs=2, batch_size=12, execution=Execution(compile_extractor=compiled))
        assert "forward" not in vars(model.extractor)
        trained.append(weights(model))
        assert bool(graphs) == compiled
    for name, value in trained[0].items():
        torch.testing.assert_close(trained[1][name], value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports warn of torch's
def test_torchs_own_compiler_gives_the_same_training(data, make_model, weights):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("no compiler: torch.compile needs g++ or clang++ on the path")
    trained = []
    for compiled in (False, True):
        model = make_model(nn.ReLU())
        fit(
            model,
            FOCA(per_class=2),
            data,
            epochs=1,
            batch_size=12,
            execution=Execution(compile_extractor=compiled),
        )
        trained.append(weights(model))
    for name, value in trained[0].items():
        torch.testing.assert_close(trained[1][name], value, rtol=1e-3, atol=1e-4)


def test_a_compiled_extractor_shows_no_activations(data, make_model):
    class Reader(CrossEntropyLoss):
        layers = ("extractor.1",)

    with pytest.raises(ValueError, match=r"`compile_extractor` must be False with Reader.*extractor\.1"):
        fit(make_model(), EndToEnd(Reader()), data, epochs=1, execution=Execution(compile_extractor=True))


@pytest.mark.parametrize("had", [False, True])
def test_the_extractor_is_as_before_even_where_a_step_fails(data, make_model, had):
    model = make_model()
    own = model.extractor.forward
    if had:
        model.extractor.forward = own
    dtypes = []

    class Failing(CrossEntropyLoss):
        def forward(self, outputs, labels):
            dtypes.append(model.extractor[:2](data.images).dtype)
            assert vars(model.extractor).get("forward") is not own
            raise RuntimeError("no step")

    with pytest.raises(RuntimeError, match="no step"):
        fit(model, EndToEnd(Failing()), data, epochs=1, execution=Execution(autocast=torch.bfloat16))
    assert len(dtypes) == 1
    assert vars(model.extractor).get("forward") is (own if had else None)


@pytest.mark.filterwarnings("ignore:the means of the classes have not changed")
@pytest.mark.parametrize(("rate", "weight", "warned"), [(1e-9, 0.0, True), (3.0, 0.1, False)])
def test_a_line_says_that_the_means_of_a_mixture_are_away_from_their_classes(rate, weight, warned, caplog):
    torch.manual_seed(0)
    data = gaussian_images(per_class=20, shape=(1, 4, 4))
    head = GaussianMixture(8, 3)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), head, mean=0.5, std=0.1)

    def optimizer(parameters):
        return torch.optim.SGD(mixture_groups(parameters, head, lr=0.01, means=rate), momentum=0.9)

    way = EndToEnd(GaussianMixtureLoss(0.0, weight))
    result = fit(model, way, data, epochs=60, batch_size=20, optimizer=optimizer)
    assert result.status.good
    offset = head.mean_offset(model.features(data.images).detach(), data.labels)
    assert (offset > 0.25) is warned
    lines = [line for line in caplog.messages if "learned means are away" in line]
    assert [f"that is {100 * offset:.0f} % of the squared distance" in line for line in lines] == [
        True
    ] * warned


def fitted(model, data, **settings):
    fit(model, settings.pop("way", EndToEnd()), data, optimizer=settings.pop("optimizer", PLAIN), **settings)
    return model


def test_a_set_on_disk_trains_to_the_same_bits(tmp_path, monkeypatch):
    """Also under FOCA, whose heads and whose batch normalisation read the whole set."""
    pixels = np.random.default_rng(0).integers(0, 255, (60, 1, 4, 4)).astype(np.uint8)
    labels = torch.arange(60) % 3
    kept = ImageSet(torch.from_numpy(pixels) / 255, labels, ("a", "b", "c"))
    store = write_pixels(tmp_path / "a.pixels", list(pixels))
    monkeypatch.setattr("clearance.data.stored.IN_MEMORY", 100)  # bytes
    stored = StoredImageSet(store, labels, ("a", "b", "c"))
    with pytest.raises(ValueError, match="stay on disk"):
        _ = stored.images

    def trained(data, way):
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU())
        model = Classifier(extractor, nn.Linear(8, 3))
        return fitted(model, data, way=way, epochs=2, batch_size=20, validation=data).state_dict()

    for way in (EndToEnd, partial(FOCA, per_class=2, recalibrate=True)):
        in_memory, on_disk = (trained(data, way()) for data in (kept, stored))
        assert all(torch.equal(in_memory[name], on_disk[name]) for name in in_memory)


class Named(torch.utils.data.Dataset):
    """The images of gaussian_images with class names in an order of its own."""

    def __init__(self, *classes):
        self.classes, self._images = classes, gaussian_images(class_count=2)

    def __len__(self):
        return len(self._images)

    def __getitem__(self, place):
        image, label = self._images.images[place], int(self._images.labels[place])
        return image, self.classes.index(("cat", "dog")[label])


def test_validation_images_have_the_classes_of_the_training_images():
    """A Dataset with other classes, or the same ones in another order, is refused."""
    model, train = Classifier(nn.Flatten(), nn.Linear(64, 2)), Named("cat", "dog")
    row = fit(model, EndToEnd(), train, epochs=80, batch_size=20, validation=Named("cat", "dog")).history[-1]
    assert row["validation_error"] < 0.2
    for other in (Named("dog", "cat"), gaussian_images(class_count=3)):
        with pytest.raises(
            ValueError, match=r"`late` must have the classes of `train`, in their order: cat, dog"
        ):
            fitted(model, train, epochs=1, validation={"late": other})


def test_a_frozen_part_is_neither_rescaled_nor_counted_in_the_clipped_norm():
    data = gaussian_images()
    model = tiny_for(data)
    model.extractor.requires_grad_(False)
    before = model.extractor[1].weight.clone()
    fitted(model, data, epochs=1, batch_size=10, limits=Limits(max_norm=0.1))
    assert torch.equal(model.extractor[1].weight, before)

    def losses(clip, *, frozen):
        model = tiny_for(data)
        model.extractor.requires_grad_(not frozen)
        own = partial(torch.optim.SGD, list(model.head.parameters()), lr=0.1)
        limits = Limits(clip_norm=clip)
        result = fit(
            model, EndToEnd(), data, epochs=5, batch_size=10, optimizer=lambda _: own(), limits=limits
        )
        return [row["cross_entropy"] for row in result.history]

    assert losses(1.0, frozen=False) == losses(1.0, frozen=True)


def tiny_for(data, head=None):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
    return Classifier(extractor, head or nn.Linear(16, data.class_count))


def test_means_and_variances_of_a_mixture_have_no_largest_norm():
    data, head = gaussian_images(), GaussianMixture(16, 3, "class_diagonal")
    assert head.raw_log_variance is not None
    with torch.no_grad():
        head.raw_log_variance.fill_(-3.0)
        head.means.fill_(5.0)
    before = copy.deepcopy(head.state_dict())
    still = partial(torch.optim.SGD, lr=1e-9)
    fitted(tiny_for(data, head), data, steps=1, optimizer=still, limits=Limits(max_norm=1.0))
    torch.testing.assert_close(head.state_dict(), before)


def test_a_loss_in_evaluation_mode_is_trained_like_any_other():
    data, losses = gaussian_images(), []
    for mode in (True, False):
        loss = LargeMarginLoss(("features",), gamma=GammaQuantile(0.5, 3)).train(mode)
        fit(tiny_for(data), EndToEnd(loss), data, steps=4, batch_size=10)
        losses.append(loss.state_dict())
    torch.testing.assert_close(losses[0], losses[1])


def test_a_run_directory_is_not_that_of_a_run_with_another_part_frozen(tmp_path):
    data = gaussian_images()
    fitted(tiny_for(data), data, epochs=1, run_dir=tmp_path)
    frozen = tiny_for(data)
    frozen.extractor.requires_grad_(False)
    with pytest.raises(ValueError, match="run_dir"):
        fitted(frozen, data, epochs=1, run_dir=tmp_path)
    frozen.head.requires_grad_(False)
    with pytest.raises(ValueError, match=r"nothing to train.*frozen"):
        fitted(frozen, data, epochs=1)


def test_a_failure_is_said_again_in_the_next_training_with_the_same_loss():
    data, way = read_digits("train"), EndToEnd()
    fitted(tiny_for(data), data, way=way, steps=60, batch_size=64)
    for _ in range(2):
        with pytest.warns(TrainingWarning):
            fitted(
                tiny_for(data),
                data,
                way=way,
                steps=90,
                batch_size=64,
                optimizer=partial(torch.optim.SGD, lr=50.0),
            )


def test_foca_refuses_a_layer_that_extractor_and_head_share():
    data, layer = gaussian_images(), nn.Linear(64, 64)
    model = Classifier(
        nn.Sequential(nn.Flatten(), layer, nn.ReLU()), nn.Sequential(layer, nn.ReLU(), nn.Linear(64, 3))
    )
    with pytest.raises(ValueError, match=r"share '1\.weight', '1\.bias'"):
        fitted(model, data, way=FOCA(per_class=2), epochs=1)


def test_frozen_batch_normalisation_keeps_its_statistics():
    data = gaussian_images()

    def trained(*, frozen):
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 16), nn.ReLU())
        model = Classifier(extractor.requires_grad_(not frozen), nn.Linear(16, 3))
        fitted(model, data, epochs=2, batch_size=10)
        return extractor[1].running_mean

    assert trained(frozen=True).eq(0).all()
    assert not trained(frozen=False).eq(0).any()


@pytest.mark.parametrize("name", ["epoch", "step", "lr"])
def test_a_term_is_not_called_like_a_column_of_the_history(name):
    with pytest.raises(ValueError, match=f"must not be called '{name}'"):
        LossTerms({name: torch.tensor(1.0)})


def test_a_loss_that_goes_on_from_another_network_is_said(data, make_model, caplog):
    counting, plain = EndToEnd(LargeMarginLoss(("input",), every=2)), EndToEnd()
    first, second = make_model(), make_model()
    for way in (counting, plain):
        for model in (first, first, second):
            fit(model, way, data, steps=2, batch_size=8)
    lines = [line for line in caplog.messages if "state of another network's training" in line]
    assert lines == [
        "the loss goes on with the state of another network's training (steps); give each network a new one"
    ]


class Masked(nn.Module):
    """Attention over the rows of an image that looks back only."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))

    def forward(self, images):
        rows = self.query(images[:, 0])
        return ((rows @ rows.mT + self.mask).softmax(dim=-1) @ rows).flatten(1)


def test_a_mask_of_infinities_is_no_divergence():
    torch.manual_seed(0)
    model = Classifier(Masked(), nn.Linear(16, 3), 0.5, 0.1)
    found = fit(model, EndToEnd(), WORLD.images(30, seed=0), steps=300, batch_size=16, optimizer=PLAIN)
    assert str(found.status) == "finished at step 300"


def test_a_parameter_that_loss_and_model_share_moves_once():
    class Penalised(CrossEntropyLoss):
        def __init__(self, model):
            super().__init__()
            self.model = model

    def first_step(make):
        torch.manual_seed(0)
        head = nn.Linear(16, 3)
        model = Classifier(nn.Flatten(), head)
        before = head.weight.detach().clone()
        fit(model, EndToEnd(make(model)), WORLD.images(30, seed=0), steps=1, batch_size=16)
        return head.weight.detach() - before

    assert torch.equal(first_step(Penalised), first_step(lambda model: CrossEntropyLoss()))


def test_trained_end_to_end_a_head_that_foca_left_open_is_finished():
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    head, images = nn.Linear(8, 3), WORLD.images(30, seed=0)
    model = Classifier(extractor, head)
    FOCA(per_class=2).start(model, images).loss(*images.batch(torch.arange(16)))
    assert model.unfinished == "FOCA"
    head.requires_grad_(False)  # as another package's loop freezes it until FOCA's end
    before = head.weight.clone()
    fit(model, EndToEnd(), images, steps=2, batch_size=16)
    assert model.unfinished is None
    assert not torch.equal(head.weight, before)


class LeavesOut(nn.Linear):
    """A class more, which is left out of every answer."""

    def forward(self, features):
        return super().forward(features) + torch.tensor([0.0, 0.0, 0.0, -torch.inf])


@pytest.mark.filterwarnings("ignore:training begins without numbers")
def test_a_class_left_out_by_minus_infinity_is_named_as_the_reason(data):
    result = fit(Classifier(nn.Flatten(), LeavesOut(16, 4)), EndToEnd(), data, epochs=2, batch_size=10)
    assert result.status.outcome is Outcome.COLLAPSED
    assert f"logits of {len(data)} of {len(data)} training images are not finite" in str(result.status)


@pytest.mark.parametrize("way", [EndToEnd(), FOCA(per_class=2)])
def test_first_tries_at_a_loop_of_ones_own(way):
    """A seed where generators are asked for, none at all, and arrays as a batch."""
    images = WORLD.images(30, seed=0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.1)
    with pytest.raises(TypeError, match=r"got int\. Write generators=way\.generators\(seed\)"):
        way.start(model, images, optimizer, 0)
    training = way.start(model, images, optimizer)
    with pytest.raises(
        TypeError, match="a batch must be tensors of images and labels; got ndarray and ndarray"
    ):
        training.step(images.images.numpy(), images.labels.numpy())
