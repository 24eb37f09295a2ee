"""The loop: batch order, schedule, bounds, history and seeds."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation, ImageSet
from clearance.heads import MLP, GradientHeads, HeadTraining
from clearance.losses import CrossEntropyLoss, Loss
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit

PLAIN = partial(torch.optim.SGD, lr=0.1)


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
        {"clip_norm": 0.1},
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


@pytest.mark.parametrize("name", ["epochs", "batch_size", "checkpoint_every", "clip_norm", "max_norm"])
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        fit(tiny(), EndToEnd(), numbered(4), **({"epochs": 1} | {name: 0}))


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
            r"got OptimizedModule\. Give its `\._orig_mod`, and compile_",
        ),
        (lambda m: m.extractor, r"got Sequential\. Make one with clearance\.wrap\(module"),
    ],
)
def test_what_is_no_classifier_is_refused_with_the_way_to_one(data, make_model, wrapper, message):
    with pytest.raises(TypeError, match=f"`model` must be a clearance Classifier; {message}"):
        fit(wrapper(make_model()), EndToEnd(), data, epochs=1)
